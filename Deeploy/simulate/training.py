"""Goldens of training: stored losses, gradients and weights, judged as gradients are; everything else from the operators' references.

Gradients that are zero by construction (those of weights before a batch normalisation along the weight itself) are rounding noise, so a
tensor's error is measured against the largest gradient of the network, too.

Weights are judged by what training has changed of them: an absolute tolerance would let a lost update pass, whose size is the learning rate
times a gradient. How far rounding moves the result of several steps depends on the network (normalisation over few pixels amplifies it, and
then a Relu somewhere passes a gradient or does not), so it is measured: the references run once more from weights that differ in their last
bit. The first update is judged by the references alone, before any of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from Deeploy.compiler import Graph
from Deeploy.emit import Script
from Deeploy.errors import Problem, UsageError
from Deeploy.frontend import Model, load_outputs
from Deeploy.frontend.fixtures import OUTPUTS, arrays_of
from Deeploy.simulate.compare import Tolerance
from Deeploy.simulate.evaluate import evaluated
from Deeploy.simulate.golden import Expected, ExpectedState, Golden
from Deeploy.stored import Protocol, protocol_of, updated_state

NUDGE_SEED = 1
STEP_OUTPUTS = "step_outputs.npz"
LOSS = "loss"
LOSS_TOLERANCE = Tolerance(1e-3, 0.0)
OWN, NET = 1e-3, 1e-4
"""Tolerance of a gradient, as parts of the largest value of its tensor and of the largest of all gradients."""
CHANGE, ROUNDING = 1e-2, 2.0**-23
"""Tolerance of a weight, as parts of the largest change of its tensor and of its largest value."""
STORED_CHANGE = 0.15
"""As CHANGE, for weights that are stored outputs of a graph: those of 2025 were made with a bias in another place than their graphs say."""
SPREAD = 8
"""How many times the worst effect of one changed last bit per weight, as a part of a tensor, the roundings of all operators may have."""


def step_golden(path: Path, model: Model, script: Script) -> Golden:
    """One call with the first mini-batch: the stored outputs of the step, else the references."""
    golden = evaluated([model], script)
    outputs = _step_outputs(path, model)
    if outputs is None:
        return golden
    largest = max((_distance(e.array) for e in golden.state), default=0.0)
    state = [replace(e, tolerance=_of_gradient(e.array, largest)) for e in golden.state]
    return Golden(script, tuple(outputs), tuple(state), STEP_OUTPUTS)


def output_golden(path: Path, model: Model, script: Script) -> Golden:
    """One call with stored outputs; those that are updated state are judged by what has changed."""
    state = {s.variable.name: s.initial for s in model.state if s.initial is not None} | dict(script.state)
    updated = updated_state(model)
    outputs = []
    for index, (tensor, array) in enumerate(zip(model.graph.outputs, load_outputs(path, model), strict=True)):
        before = state.get(updated.get(tensor.name, ""))
        tolerance = None
        if before is not None and array.dtype.kind == "f":
            tolerance = _of_change(array, before, STORED_CHANGE)
        outputs.append(Expected(0, index, array, tolerance))
    kept = []
    for e in evaluated([model], script).state if state else ():
        kept.append(ExpectedState(e.name, e.array, _of_change(e.array, state[e.name], STORED_CHANGE)))
    return Golden(script, tuple(outputs), tuple(kept), OUTPUTS)


def project_golden(graphs: Sequence[Graph], models: Sequence[Model], script: Script) -> Golden:
    """A project of several graphs: of a training protocol the stored losses, the first step's gradients and the final weights; stored
    outputs of graphs without state that are called once; everything else from the references."""
    golden = evaluated(models, script)
    outputs = {(e.call, e.output): e for e in golden.outputs}
    sources = set()
    for index, (graph, model) in enumerate(zip(graphs, models, strict=True)):
        calls = [number for number, call in enumerate(script.calls) if call.program == index]
        if len(calls) == 1 and not model.state and graph.path.is_dir() and (graph.path / OUTPUTS).is_file():
            outputs |= {(calls[0], k): Expected(calls[0], k, array) for k, array in enumerate(load_outputs(graph.path, model))}
            sources.add(OUTPUTS)
    protocol = protocol_of(graphs, models)
    final = golden.state
    if protocol is not None:
        stored = _stored_results(graphs[protocol.train].path, models[protocol.train])
        outputs |= {(e.call, e.output): e for e in _first_updates(models, script, protocol, golden)}
        steps = _step_outputs(graphs[protocol.train].path, models[protocol.train])
        outputs |= {(e.call, e.output): e for e in steps or ()}
        outputs |= {(e.call, e.output): e for e in _losses(models[protocol.train], script, protocol, stored)}
        final = _final(script, golden, _nudged(models, script), stored if protocol.optimizers else {})
        sources |= {*([STEP_OUTPUTS] if steps else []), *([OUTPUTS] if stored else [])}
    source = ", ".join([*sorted(sources, reverse=True), golden.source])
    return Golden(script, tuple(outputs[key] for key in sorted(outputs)), final, source)


def _stored_results(folder: Path, model: Model) -> dict[str, np.ndarray]:
    """The losses and the final weights that lie beside a training graph. Raises UsageError if they do not fit it."""
    if not (folder / OUTPUTS).is_file():
        return {}
    stored = arrays_of(folder / OUTPUTS)
    for name, array in stored.items():
        value = model.values.get(name)
        if array.dtype.kind not in "fiu" or (name != LOSS and value is not None and array.shape != value.shape):
            raise UsageError(Problem(f"{OUTPUTS}: '{name}' is {array.dtype} {list(array.shape)}, which does not fit the training graph"))
    return stored


def _losses(model: Model, script: Script, protocol: Protocol, stored: Mapping[str, np.ndarray]) -> list[Expected]:
    """The stored losses: of the first output that is one number."""
    single = [k for k, t in enumerate(model.graph.outputs) if t.name not in updated_state(model) and model.values[t.name].elements == 1]
    calls = [number for number, call in enumerate(script.calls) if call.program == protocol.train]
    if LOSS not in stored or not single:
        return []
    losses = np.ravel(stored[LOSS]).astype(np.float32)
    if losses.size != len(calls):
        raise UsageError(Problem(f"{OUTPUTS} has {losses.size} losses, there are {len(calls)} mini-batches"))
    return [Expected(number, single[0], np.asarray(loss), LOSS_TOLERANCE) for number, loss in zip(calls, losses, strict=True)]


def _first_updates(models: Sequence[Model], script: Script, protocol: Protocol, golden: Golden) -> list[Expected]:
    """The outputs of each optimizer's first call, judged by what has changed: no rounding has been amplified yet."""
    first = {index: min(n for n, c in enumerate(script.calls) if c.program == index) for index in protocol.optimizers}
    results = []
    for e in golden.outputs:
        index = script.calls[e.call].program
        if first.get(index) != e.call:
            continue
        model = models[index]
        before = script.state.get(updated_state(model).get(model.graph.outputs[e.output].name, ""))
        if before is not None:
            change = _distance(e.array, before)
            results.append((e, change))
    largest = max((change for _, change in results), default=0.0)
    return [replace(e, tolerance=Tolerance(CHANGE * c + NET * largest + ROUNDING * _distance(e.array), 0.0)) for e, c in results]


def _nudged(models: Sequence[Model], script: Script) -> Golden:
    """The references' results from given state that differs in the last bit."""
    rng = np.random.default_rng(NUDGE_SEED)

    def nudge(array: np.ndarray) -> np.ndarray:
        if array.dtype.kind != "f":
            return array
        return (array * (1 + ROUNDING * rng.choice((-1.0, 1.0), array.shape))).astype(array.dtype)

    return evaluated(models, replace(script, state={name: nudge(array) for name, array in script.state.items()}))


def _final(script: Script, golden: Golden, nudged: Golden, stored: Mapping[str, np.ndarray]) -> tuple[ExpectedState, ...]:
    """The state at the end: stored weights; what is not stored (accumulated gradients, running statistics) as the references have it."""
    moved = {n.name: n.array for n in nudged.state}
    others = [e for e in golden.state if e.name not in stored]
    largest = max((_distance(e.array) for e in others), default=0.0)
    sized = [e for e in others if _distance(e.array) > NET * largest]
    spread = SPREAD * max((_distance(e.array, moved[e.name]) / _distance(e.array) for e in sized), default=0.0)
    result = []
    for e in golden.state:
        if e.name in stored:
            array = stored[e.name]
            tolerance = _of_change(array, script.state.get(e.name, array), CHANGE + spread)
        else:
            array, tolerance = e.array, _of_gradient(e.array, largest, OWN + spread)
        result.append(ExpectedState(e.name, array, tolerance))
    return tuple(result)


def _of_change(array: np.ndarray, before: np.ndarray, part: float) -> Tolerance:
    """Of a weight: that part of its tensor's largest change, and rounding."""
    return Tolerance(part * _distance(array, before) + ROUNDING * _distance(array), 0.0)


def _of_gradient(array: np.ndarray, largest: float, part: float = OWN) -> Tolerance:
    """Of a gradient: that part of its tensor's largest value, and a little of the largest of all."""
    return Tolerance(part * _distance(array) + NET * largest, 0.0)


def _distance(a: np.ndarray, b: np.ndarray | float = 0.0) -> float:
    """The largest finite difference."""
    with np.errstate(invalid="ignore"):
        difference = np.abs(a.astype(np.float64) - b)
    return float(difference[np.isfinite(difference)].max(initial=0.0))


def _step_outputs(folder: Path, model: Model) -> list[Expected] | None:
    """The stored outputs of the first call, in the order of the graph's. Raises UsageError if they do not fit it."""
    if not (folder / STEP_OUTPUTS).is_file():
        return None
    stored = arrays_of(folder / STEP_OUTPUTS)
    updated = updated_state(model)
    for name, tensor in zip(model.output_names, model.graph.outputs, strict=True):
        if name not in stored:
            raise UsageError(Problem(f"{STEP_OUTPUTS} has no output '{name}'"))
        if stored[name].dtype.kind not in "fiu" or stored[name].size != model.values[tensor.name].elements:
            what = f"{stored[name].dtype} {list(stored[name].shape)}"
            raise UsageError(Problem(f"{STEP_OUTPUTS}: output '{name}' is {what}, which does not fit the training graph"))
    gradients = [tensor.name in updated for tensor in model.graph.outputs]
    largest = max((_distance(stored[n]) for n, g in zip(model.output_names, gradients, strict=True) if g), default=0.0)
    result = []
    for index, (name, gradient) in enumerate(zip(model.output_names, gradients, strict=True)):
        tolerance = _of_gradient(stored[name], largest) if gradient else LOSS_TOLERANCE
        result.append(Expected(0, index, stored[name], tolerance))
    return result
