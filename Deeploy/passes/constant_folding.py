"""Evaluates nodes whose inputs are all constants, where that costs no memory and gives the same bytes on every machine.

* Views of constants (Transpose, Reshape, Slice, ...) stay views, so that a permutation stays a view of the same content; only tiny ones
  of constants that nobody else reads are evaluated.
* Folding must not cost memory: a result may be as large as the constants that nobody needs any more. Splats (kept as one element with
  strides 0) and single elements are free, as they become literals; what no kernel computes is folded at any size.
* Floats: only exactly rounded operations. Nothing that comes from libm (Exp, Tanh, Pow, ...) or a BLAS; products are in `exact`.
* Constants that a caller may override, or that were written out on purpose, are left alone. So are producers of graph outputs, unless no
  kernel computes them: these outputs are read from constants.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_graphsurgeon as gs

from Deeploy.frontend.model import Model, node_view
from Deeploy.operators.base import Exactness, Node, Operator, Value, View
from Deeploy.passes import exact
from Deeploy.passes.edit import Uses, declaration, foldable, forget_unused, new_constant, remove_nodes, uses_of

TINY = 64
"""Bytes below which a view is evaluated."""
LARGEST = 1 << 28
"""Bytes of results beyond which nothing is evaluated that a kernel can compute: no target could store them."""


def run(model: Model) -> None:
    """The pass: one walk in topological order, so that results are folded further."""
    uses = uses_of(model.graph)
    known: dict[str, np.ndarray] = {}  # results of views that stay in the graph
    dead: set[int] = set()
    for node in model.graph.nodes:
        operator = declaration(node)
        if operator is None or operator.table_slots:  # what tables mean is settled by a later pass
            continue
        arrays = _inputs(model, node, operator, known)
        if arrays is None or any(t.name and t.name not in model.values for t in node.outputs):
            continue
        is_output = any(t.name in uses.outputs for t in node.outputs)
        if is_output and not (operator.shape_only or not arrays):
            continue
        if arrays and _has_kernel(operator) and sum(model.values[t.name].bytes for t in node.outputs if t.name) > LARGEST:
            continue
        stays = operator.view is not View.NONE and not _tiny_view(model, node, uses)
        results = _evaluate(model, node_view(model, node), operator, arrays)
        if results is None:
            continue
        if stays:
            known.update({t.name: r for t, r in zip(node.outputs, results, strict=False) if t.name})
        elif (kept := _worth(results, _freed(model, node, uses), operator)) is not None:
            if is_output:
                _read_from_constant(model, node, kept[0], uses)
                continue
            _replace(model, node, kept, uses)
            dead.add(id(node))
    if dead:
        remove_nodes(model.graph, dead)
        forget_unused(model)


def _inputs(model: Model, node: gs.Node, operator: Operator, known: dict[str, np.ndarray]) -> list[np.ndarray | None] | None:
    """The arrays of all inputs (None for an absent one), or None if one of them is not known."""
    if operator.shape_only:
        value = model.values.get(node.inputs[0].name)
        return None if value is None else [np.broadcast_to(np.zeros((), value.dtype.numpy), value.shape)]
    arrays: list[np.ndarray | None] = []
    for tensor in node.inputs:
        if not tensor.name:
            arrays.append(None)
        elif foldable(model, tensor):
            arrays.append(tensor.values)
        elif tensor.name in known:
            arrays.append(known[tensor.name])
        else:
            return None
    return arrays


def _tiny_view(model: Model, node: gs.Node, uses: Uses) -> bool:
    """Whether a view is so small, and its constant unread otherwise, that its result is better a constant of its own."""
    source = node.inputs[0].name
    result = sum(v.elements * v.dtype.size for t in node.outputs if (v := model.values.get(t.name)) is not None)
    return result < TINY and isinstance(node.inputs[0], gs.Constant) and uses.only_reader(source) is node


def _evaluate(model: Model, view: Node, operator: Operator, arrays: list[np.ndarray | None]) -> list[np.ndarray] | None:
    """The results in their storage types, or None if the operator is not exact on these types."""
    values = [model.values[name] for name in view.outputs if name]
    floats = any(v.dtype.is_float for v in [*values, *(v for v in view.inputs if v is not None)])
    results: list[np.ndarray] | None
    if floats and view.domain in ("", "ai.onnx") and view.op in ("MatMul", "Gemm", "Pow"):
        results = _exact_product(view, arrays)
    elif floats and operator.exactness < Exactness.ROUNDED and not operator.shape_only:
        results = None
    else:
        try:
            with np.errstate(all="ignore"):
                results = operator.reference(_with_constants(view, arrays), arrays)
        except NotImplementedError:
            results = None
    if results is None or (operator.exactness < Exactness.COPIED and any(r.dtype.kind == "f" and np.isnan(r).any() for r in results)):
        return None  # which NaN an operation gives depends on the machine
    return [_stored(r, v) for r, v in zip(results, values, strict=False)]


def _with_constants(view: Node, arrays: list[np.ndarray | None]) -> Node:
    """The view, with the constants of inputs that are views of constants."""
    pairs = zip(view.inputs, arrays, strict=True)
    return replace(view, inputs=tuple(v if v is None or v.constant is not None else replace(v, constant=a) for v, a in pairs))


def _stored(result: np.ndarray, value: Value) -> np.ndarray:
    array = np.asarray(result).reshape(value.shape)
    assert array.dtype == value.dtype.numpy, (array.dtype, value.dtype)
    return array


def _exact_product(view: Node, arrays: list[np.ndarray | None]) -> list[np.ndarray] | None:
    """MatMul, Gemm and squares of floats; None for anything else."""
    a, b = arrays[0], arrays[1]
    assert a is not None and b is not None
    if view.op == "Pow":
        if not (a.dtype == np.float32 and b.size and np.all(b == 2)):
            return None
        wide = np.broadcast_to(a, np.broadcast_shapes(a.shape, b.shape)).astype(np.float64)
        return [exact.rounded(wide * wide)]
    if a.ndim < 2 or b.ndim < 2:
        return None
    if view.op == "MatMul":
        return [exact.rounded(exact.matmul(a, b))]
    c = arrays[2] if len(arrays) > 2 else None
    flags = bool(view.int("transA", 0)), bool(view.int("transB", 0))
    return [exact.rounded(exact.gemm(a, b, c, view.float("alpha", 1.0), view.float("beta", 1.0), *flags))]


def _freed(model: Model, node: gs.Node, uses: Uses) -> int:
    """Bytes of the constants that only this node reads, itself or through views that only it reads."""
    total = 0
    for name in {t.name for t in node.inputs if t.name}:
        reader = node
        while name not in uses.outputs and all(r is reader for r, _ in uses.readers[name]):
            producer = uses.producers.get(name)
            if producer is None or not _is_view(producer):
                constant = model.values[name].constant
                total += 0 if constant is None else constant.nbytes
                break
            reader, name = producer, producer.inputs[0].name
    return total


def _is_view(node: gs.Node) -> bool:
    operator = declaration(node)
    return operator is not None and operator.view is not View.NONE


def _has_kernel(operator: Operator) -> bool:
    """Whether the operator can be computed on the device."""
    return type(operator).lower is not Operator.lower and not operator.shape_only


def _worth(results: list[np.ndarray], freed: int, operator: Operator) -> list[np.ndarray] | None:
    """The results as they are to be kept (splats with strides 0), or None if folding would cost memory."""
    kept = [_splat(r) for r in results]
    needed = sum(r.nbytes for r, splat in zip(results, kept, strict=True) if splat is None and r.size > 1)
    if needed > freed and _has_kernel(operator):
        return None
    return [np.array(r, order="C") if splat is None else splat for r, splat in zip(results, kept, strict=True)]


def _splat(array: np.ndarray) -> np.ndarray | None:
    """The array as one element with strides 0, if all its elements have the same bytes; None otherwise."""
    if array.size < 2:
        return None
    if not any(array.strides):
        return array
    first = array[(slice(0, 1),) * array.ndim].reshape(-1).copy()
    pattern = np.dtype(f"u{array.itemsize}")
    if bool(np.all(np.ascontiguousarray(array).view(pattern) == first.view(pattern))):
        return np.broadcast_to(first.reshape(()), array.shape)
    return None


def _read_from_constant(model: Model, node: gs.Node, array: np.ndarray, uses: Uses) -> None:
    """Makes the node, whose one output is a graph output, an Identity of a constant. Other readers read the constant."""
    name = node.outputs[0].name
    constant = new_constant(model, name, array)
    for reader, slot in uses.readers.pop(name, []):
        reader.inputs[slot] = constant
        uses.readers.setdefault(constant.name, []).append((reader, slot))
    for source in {t.name for t in node.inputs if t.name}:
        uses.readers[source] = [place for place in uses.readers[source] if place[0] is not node]
    uses.readers.setdefault(constant.name, []).append((node, 0))
    model.notes.append(f"folded {node.op} '{node.name}', an output")
    node.op, node.domain = "Identity", ""
    node.attrs.clear()
    node.inputs.clear()
    node.inputs.append(constant)


def _replace(model: Model, node: gs.Node, results: list[np.ndarray], uses: Uses) -> None:
    """Puts constants in the place of the node's outputs."""
    sources = sorted({model.source_of.get(t.name, t.name) for t in node.inputs if isinstance(t, gs.Constant)})
    for tensor, array in zip([t for t in node.outputs if t.name], results, strict=False):
        if array.flags.writeable:
            array.flags.writeable = False
        del model.values[tensor.name]  # its name is free again
        constant = new_constant(model, tensor.name, array, sources[0] if len(sources) == 1 else "")
        uses.producers.pop(tensor.name, None)
        for reader, slot in uses.readers.get(tensor.name, []):
            reader.inputs[slot] = constant
    for name in {t.name for t in node.inputs if t.name}:
        uses.readers[name] = [place for place in uses.readers[name] if place[0] is not node]
    model.notes.append(f"folded {node.op} '{node.name}'" + (f" of {', '.join(sources)}" if sources else ""))
