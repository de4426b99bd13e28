"""Inputs and expected outputs of a run: stored ones, or random inputs with outputs from onnxruntime or from the operators' references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from Deeploy.compiler import Graph
from Deeploy.emit import Call, Script
from Deeploy.frontend import Model
from Deeploy.frontend.fixtures import INPUTS, OUTPUTS, mini_batches
from Deeploy.frontend.source import model_file
from Deeploy.operators.base import Value, find
from Deeploy.simulate.evaluate import evaluated
from Deeploy.simulate.golden import Expected, Golden
from Deeploy.simulate.training import output_golden, project_golden, step_golden
from Deeploy.stored import reset_inputs, stored_script

RANDOM_SEED = 20240229


def golden_of(graphs: Sequence[Graph], models: Sequence[Model], inputs: str) -> Golden:
    """The golden of a project's models as loaded, before any pass. inputs: "stored" (drawn where nothing is stored) or "random"."""
    rng = np.random.default_rng(RANDOM_SEED)
    if len(models) > 1:
        script = _complete(stored_script(graphs, models), models, rng)
        return evaluated(models, _redrawn(script, models, rng)) if inputs == "random" else project_golden(graphs, models, script)
    (graph,), (model,) = graphs, models
    if inputs == "random" or not graph.path.is_dir() or not (graph.path / INPUTS).exists():
        return computed(graph.path, model, _complete(Script(), models, rng))
    script = _complete(stored_script(graphs, models), models, rng)
    if mini_batches(graph.path, model) is not None:
        return step_golden(graph.path, model, script)
    if (graph.path / OUTPUTS).exists():
        return output_golden(graph.path, model, script)
    return computed(graph.path, model, script)


def _complete(script: Script, models: Sequence[Model], rng: np.random.Generator) -> Script:
    """The script with an array for every input of the first call of each program and for all state that has no initial value: random ones
    where there is none."""
    calls, seen = [], set[int]()
    for call in script.calls:
        given = dict(call.inputs)
        if call.program not in seen:
            model = models[call.program]
            bounds = _index_bounds(model)
            for tensor in model.graph.inputs:
                if tensor.name not in given:
                    given[tensor.name] = draw(model.values[tensor.name], rng, bounds.get(tensor.name))
        seen.add(call.program)
        calls.append(Call(call.program, given, call.outputs))
    state = dict(script.state)
    initial = {s.variable.name for m in models for s in m.state if s.initial is not None}
    for model in models:
        for kept in model.state:
            name = kept.variable.name
            if name not in state and name not in initial:
                state[name] = draw(model.values[name], rng)
    return Script(tuple(calls), state, script.keep_state or any(m.state for m in models))


def _redrawn(script: Script, models: Sequence[Model], rng: np.random.Generator) -> Script:
    """The script with random inputs in place of all that it has, but for those that begin an accumulation anew. State begins as it did."""
    calls = []
    for call in script.calls:
        model = models[call.program]
        bounds, kept = _index_bounds(model), reset_inputs(model)
        given = {n: a if n in kept else draw(model.values[n], rng, bounds.get(n)) for n, a in call.inputs.items()}
        calls.append(Call(call.program, given, call.outputs))
    return Script(tuple(calls), script.state, script.keep_state)


def draw(value: Value, rng: np.random.Generator, bound: int | None = None) -> np.ndarray:
    """A random array for a value: floats from a normal distribution, integers from their range (indices below `bound`)."""
    if value.dtype.is_float:
        return rng.standard_normal(value.shape).astype(np.float32)
    lo = value.dtype.lo if value.lo is None else value.lo
    hi = value.dtype.hi if value.hi is None else value.hi
    if bound is not None:
        lo, hi = 0, max(0, bound - 1)
    lo, hi = max(lo, -(2**31)), min(hi, 2**31 - 1)
    return rng.integers(lo, hi, value.shape, dtype=np.int64, endpoint=True).astype(value.dtype.numpy)


def _index_bounds(model: Model) -> dict[str, int]:
    """Graph inputs that index tables: the length of the table's axis."""
    bounds: dict[str, int] = {}
    for node in model.graph.nodes:
        operator = find(node.op, node.domain or "")
        for slot in () if operator is None else operator.index_slots:
            table = model.values[node.inputs[0].name]
            axis = int(node.attrs.get("axis", 0)) % max(1, table.rank)
            name = node.inputs[slot].name
            bounds[name] = min(bounds.get(name, table.shape[axis]), table.shape[axis])
    return bounds


def computed(path: Path, model: Model, script: Script) -> Golden:
    """The golden of one call: outputs from onnxruntime where it can load the model, else from the references of the graph's operators.

    `model` must be as loaded, before any pass.
    """
    inputs = script.calls[0].inputs
    try:
        if model.integers:
            raise _NoOracle("it does not know the integer format")
        if model.state:
            raise _NoOracle("the network has state")
        arrays, source = _onnxruntime(model_file(path)[0], [inputs[t.name] for t in model.graph.inputs]), "onnxruntime"
    except _NoOracle as reason:
        source = f"the operators' numpy references on the source graph (not onnxruntime: {reason})"
        return replace(evaluated([model], script), source=source)
    return Golden(script, tuple(Expected(0, i, a) for i, a in enumerate(arrays)), (), source)


class _NoOracle(Exception):
    """Why onnxruntime cannot be asked."""


def _onnxruntime(file: Path, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    try:
        import onnxruntime as ort
    except ImportError:
        raise _NoOracle("it is not installed") from None
    try:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        names = [i.name for i in session.get_inputs()]
        if len(names) != len(inputs):
            raise _NoOracle(f"it wants {len(names)} inputs")
        return [np.asarray(o) for o in session.run(None, dict(zip(names, inputs, strict=True)))]
    except Exception as error:  # onnxruntime raises many kinds; any of them means that it is no oracle for this model
        raise _NoOracle(str(error).split("\n")[0][:120]) from None
