"""Removes the pairs of dequantisation and quantisation that give back exactly the integers they started from.

A pair Dequant -> Quant (or DequantizeLinear -> QuantizeLinear) is removed only if running both on every integer that the tensor can hold
shows that nothing changes: then scales, zero points, rounding and clamping agree. Quant -> Dequant loses information and stays.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_graphsurgeon as gs

from Deeploy.frontend.model import Model, node_view
from Deeploy.operators import base
from Deeploy.operators.base import Value
from Deeploy.passes.dead_code import run as remove_dead_code
from Deeploy.passes.edit import bypass, foldable, uses_of

PAIRS = {"Quant": "Dequant", "QuantizeLinear": "DequantizeLinear"}
MOST = 1 << 16
"""Integers for which a pair is tried; wider tensors are left alone."""


def run(model: Model) -> None:
    """The pass. Safe for several readers: the readers of the Quant read the integers, other readers of the Dequant keep it."""
    uses = uses_of(model.graph)
    removed = 0
    for node in model.graph.nodes:
        first = uses.producers.get(node.inputs[0].name) if node.op in PAIRS else None
        if first is None or first.op != PAIRS[node.op]:
            continue
        if _is_identity(model, first, node) and bypass(uses, node, first.inputs[0]):
            removed += 1
            model.notes.append(f"removed {first.op} '{first.name}' and {node.op} '{node.name}': they give back the same integers")
    if removed:
        remove_dead_code(model)


def _is_identity(model: Model, dequant: gs.Node, quant: gs.Node) -> bool:
    """Whether quant(dequant(q)) == q, in the same type, for every q in the proven range."""
    source = model.values[dequant.inputs[0].name]
    result = model.values[quant.outputs[0].name]
    if source.dtype != result.dtype or source.lo is None or source.hi is None or source.hi - source.lo >= MOST:
        return False
    everything = np.arange(source.lo, source.hi + 1, dtype=np.int64).astype(source.dtype.numpy)
    values: list[np.ndarray] = [everything]
    for node in (dequant, quant):
        if any(t.name and not (foldable(model, t) and t.values.size == 1) for t in node.inputs[1:]):
            return False
        operator = base.find(node.op, node.domain or "")
        if operator is None:
            return False
        view = node_view(model, node)
        dtype = model.values[node.inputs[0].name].dtype
        arrays = [values[0], *(t.values.reshape(()) if t.name else None for t in node.inputs[1:])]
        shaped = [Value.of(values[0], dtype), *(None if v is None else v.reshaped(()) for v in view.inputs[1:])]
        with np.errstate(all="ignore"):
            values = operator.reference(replace(view, inputs=tuple(shaped)), arrays)
    return values[0].dtype == everything.dtype and np.array_equal(values[0], everything)
