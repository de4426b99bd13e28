"""Goldens of training: stored losses, gradients and weights, judged as gradients are; everything else from the operators' references.

Gradients that are zero by construction (those of weights before a batch normalisation along the weight itself) are rounding noise, so a
tensor's error is measured against the largest gradient of the network, too.

Weights are judged by what training has changed of them: an absolute tolerance would let a lost update pass, whose size is the learning rate
times a gradient. How far rounding moves the result of several steps depends on the network (normalisation over few pixels amplifies it, and
then a Relu somewhere passes a gradient or does not), so it is measured: the references run once more from weights that differ in their last
bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from Deeploy.compiler import Graph
from Deeploy.emit import Script
from Deeploy.errors import Problem, UsageError
from Deeploy.frontend import Model
from Deeploy.frontend.fixtures import OUTPUTS, arrays_of
from Deeploy.simulate.compare import Tolerance
from Deeploy.simulate.evaluate import evaluated
from Deeploy.simulate.golden import Expected, ExpectedState, Golden
from Deeploy.stored import is_updated_state, protocol_of

NUDGE_SEED = 1
STEP_OUTPUTS = "step_outputs.npz"
LOSS = "loss"
LOSS_TOLERANCE = Tolerance(1e-3, 0.0)
OWN, NET = 1e-3, 1e-4
"""Tolerance of a gradient, as parts of the largest value of its tensor and of the largest of all gradients."""
CHANGE, ROUNDING = 1e-2, 2.0**-23
"""Tolerance of a weight, as parts of the largest change of its tensor and of its largest value."""
SPREAD = 8
"""How many times the worst effect of one changed last bit per weight, as a part of a tensor, the roundings of all operators may have."""


def step_golden(path: Path, model: Model, script: Script) -> Golden:
    """One call with the first mini-batch: the stored outputs of the step, else the references."""
    golden = evaluated([model], script)
    outputs = _step_outputs(path, model, 0)
    if outputs is None:
        return golden
    return Golden(script, tuple(outputs), golden.state, STEP_OUTPUTS)


def training_golden(graphs: Sequence[Graph], models: Sequence[Model], script: Script) -> Golden:
    """A whole project: the protocol of its training graph with the stored losses, the first step's gradients and the final weights."""
    golden = evaluated(models, script)
    protocol = protocol_of(graphs, models)
    if protocol is None:
        return golden
    folder, model = graphs[protocol.train].path, models[protocol.train]
    outputs = {(e.call, e.output): e for e in golden.outputs}
    steps = _step_outputs(folder, model, 0)
    outputs |= {(e.call, e.output): e for e in steps or ()}
    stored = arrays_of(folder / OUTPUTS) if (folder / OUTPUTS).is_file() else {}
    plain = [k for k, t in enumerate(model.graph.outputs) if not is_updated_state(model, t.name)]
    calls = [number for number, call in enumerate(script.calls) if call.program == protocol.train]
    if LOSS in stored and plain:
        if len(stored[LOSS]) != len(calls):
            raise UsageError(Problem(f"{OUTPUTS} has {len(stored[LOSS])} losses, there are {len(calls)} mini-batches"))
        for number, loss in zip(calls, np.ravel(stored[LOSS]), strict=True):
            outputs[number, plain[0]] = Expected(number, plain[0], np.asarray(loss, np.float32), LOSS_TOLERANCE)
    final = _final(script, golden, _nudged(models, script), stored if protocol.optimizers else {})
    parts = [STEP_OUTPUTS] if steps else []
    source = ", ".join([*parts, *([OUTPUTS] if stored else []), golden.source])
    return Golden(script, tuple(outputs[key] for key in sorted(outputs)), final, source)


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
            change = _distance(array, script.state[e.name]) if e.name in script.state else 0.0
            tolerance = (CHANGE + spread) * change + ROUNDING * _distance(array)
        else:
            array = e.array
            tolerance = (OWN + spread) * _distance(array) + NET * largest
        result.append(ExpectedState(e.name, array, Tolerance(tolerance, 0.0)))
    return tuple(result)


def _distance(a: np.ndarray, b: np.ndarray | float = 0.0) -> float:
    """The largest difference."""
    return float(np.abs(a.astype(np.float64) - b).max(initial=0.0))


def _step_outputs(folder: Path, model: Model, call: int) -> list[Expected] | None:
    if not (folder / STEP_OUTPUTS).is_file():
        return None
    stored = arrays_of(folder / STEP_OUTPUTS)
    missing = [name for name in model.output_names if name not in stored]
    if missing:
        raise UsageError(Problem(f"{STEP_OUTPUTS} has no output '{missing[0]}'"))
    gradients = [is_updated_state(model, t.name) for t in model.graph.outputs]
    largest = max((_largest(stored, n) for n, g in zip(model.output_names, gradients, strict=True) if g), default=0.0)
    result = []
    for index, (name, gradient) in enumerate(zip(model.output_names, gradients, strict=True)):
        tolerance = Tolerance(OWN * _largest(stored, name) + NET * largest, 0.0) if gradient else LOSS_TOLERANCE
        result.append(Expected(call, index, stored[name], tolerance))
    return result


def _largest(stored: Mapping[str, np.ndarray], name: str) -> float:
    return float(np.abs(stored[name]).max(initial=0.0))
