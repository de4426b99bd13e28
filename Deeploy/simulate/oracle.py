"""Inputs and expected outputs of a run: stored ones, or random inputs with outputs from onnxruntime or from the operators' references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from Deeploy.frontend import Model, node_view
from Deeploy.frontend.fixtures import load_inputs, load_outputs
from Deeploy.operators.base import Value, find
from Deeploy.passes import requant_tables

RANDOM_SEED = 20240229


@dataclass(frozen=True)
class Golden:
    """Input arrays in the order of the graph's inputs (storage types), expected outputs in the order of its outputs, and who says so."""

    inputs: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]
    source: str


def model_file(path: Path) -> Path:
    return path / "network.onnx" if path.is_dir() else path


def stored(path: Path, model: Model) -> Golden | None:
    """The fixtures beside the model; None if there are no inputs. Without stored outputs, an oracle computes them."""
    if not path.is_dir() or not (path / "inputs.npz").exists():
        return None
    inputs = tuple(load_inputs(path, model))
    if (path / "outputs.npz").exists():
        return Golden(inputs, tuple(load_outputs(path, model)), "outputs.npz")
    return computed(path, model, inputs)


def drawn(path: Path, model: Model) -> Golden:
    """Random inputs within their types and ranges, outputs from an oracle."""
    rng = np.random.default_rng(RANDOM_SEED)
    bounds = _index_bounds(model)
    inputs = []
    for variable in model.graph.inputs:
        value = model.values[variable.name]
        inputs.append(draw(value, rng, bounds.get(variable.name)))
    return computed(path, model, tuple(inputs))


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


def computed(path: Path, model: Model, inputs: tuple[np.ndarray, ...]) -> Golden:
    """Outputs from onnxruntime where it can load the model, else from the references of the source graph's operators.

    `model` must be as loaded, before any pass.
    """
    try:
        if model.integers:
            raise _NoOracle("it does not know the integer format")
        return Golden(inputs, tuple(_onnxruntime(model_file(path), inputs)), "onnxruntime")
    except _NoOracle as reason:
        source = f"the operators' numpy references on the source graph (not onnxruntime: {reason})"
    return Golden(inputs, tuple(evaluate(model, inputs)), source)


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


def evaluate(model: Model, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The graph's outputs by the references of its operators, node by node.

    Requantisation tables are brought to their broadcastable form first (in place): the references know no other.
    """
    requant_tables.run(model)
    arrays: dict[str, np.ndarray] = {v.name: a for v, a in zip(model.graph.inputs, inputs, strict=True)}
    for node in model.graph.nodes:
        view = node_view(model, node)
        operator = find(view.op, view.domain)
        assert operator is not None, view.op
        slots = [_array(model, arrays, v.name) for v in node.inputs]
        with np.errstate(all="ignore"):
            results = operator.reference(view, slots)
        for variable, array in zip(node.outputs, results, strict=False):
            arrays[variable.name] = array
    return [_present(_array(model, arrays, v.name)) for v in model.graph.outputs]


def _array(model: Model, arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray | None:
    if not name:
        return None
    return arrays[name] if name in arrays else model.values[name].constant


def _present(array: np.ndarray | None) -> np.ndarray:
    assert array is not None
    return array
