"""Pad with a constant: the padded tensor is written tile by tile from the part that is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from Deeploy.errors import ModelError, Problem
from Deeploy.operators.base import Exactness, Node, Operator, Value, bounds, register
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.shape_ops import static_problem
from Deeploy.operators.softmax import checked_axis
from Deeploy.program.step import MAX_RANK, Access, Axis, DimMap, Kernel, KernelCall, Operand, Param
from Deeploy.program.tensor import Tensor

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

PAD = {size: Kernel(f"dp_pad_{size}", "pad.c", "dp_pad_cst", cycles_per_point=4.0) for size in (1, 2, 4, 8)}


def _joined(x: Tensor, before: Sequence[int], out: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """(input size, input stride, padding before, output size) per loop axis: an axis takes the next one in if that has no padding and
    the input runs through both without a jump."""
    axes: list[tuple[int, int, int, int]] = []
    for size, stride, pad, wanted in zip(x.shape, x.strides, before, out, strict=True):
        if size == wanted == 1:
            continue
        if axes and size == wanted:
            last = axes[-1]
            if last[0] == 1 or last[1] == stride * size:
                axes[-1] = (last[0] * size, stride, last[2] * size, last[3] * size)
                continue
        axes.append((size, stride, pad, wanted))
    return axes or [(1, 0, 0, 1)]


@register
class Pad(Operator):
    """Attributes in the internal form: mode, pads, value, axes."""

    names = ("Pad",)
    domains = ("",)
    static_inputs = ((1, "pads"), (2, "value"), (3, "axes"))
    exactness = Exactness.COPIED

    def normalise(self, node: gs.Node, opset: int) -> None:
        if opset < 2 and "paddings" in node.attrs:
            node.attrs["pads"] = node.attrs.pop("paddings")

    def problems(self, node: Node) -> list[Problem]:
        mode = node.string("mode", "constant")
        if mode != "constant":
            return [node.problem(f"mode '{mode}' is not supported", "only constant padding is", "pad with a constant", attribute="mode")]
        if missing := static_problem(node, "pads"):
            return missing
        try:
            pads = self._pads(node)
            if any(p < 0 for pair in pads for p in pair):
                return [node.problem("negative padding is not supported", remedy="use Slice", attribute="pads")]
            value, dtype = self._value(node), node.value(0).dtype
        except ModelError as error:
            return list(error.problems)
        if not dtype.is_float and not (np.isfinite(value) and value == int(value) and dtype.lo <= int(value) <= dtype.hi):
            return [node.problem(f"{value} does not fit the input's type {dtype}", remedy="choose a value in its range", attribute="value")]
        return []

    def _value(self, node: Node) -> float:
        raw = node.attributes.get("value")
        return 0 if raw is None or np.asarray(raw).size == 0 else node.float("value")

    def _pads(self, node: Node) -> list[tuple[int, int]]:
        """(before, after) per dimension."""
        rank, flat = node.value(0).rank, node.ints("pads")
        axes = [checked_axis(node, a, rank) for a in node.ints("axes", range(rank))]
        if len(flat) != 2 * len(axes):
            raise ModelError(node.problem(f"{len(flat)} numbers for {len(axes)} axes", "each axis needs two", attribute="pads"))
        pads = [(0, 0)] * rank
        for i, d in enumerate(axes):
            pads[d] = (flat[i], flat[i + len(axes)])
        return pads

    def infer(self, node: Node) -> list[Value]:
        x, pads = node.value(0), self._pads(node)
        shape = tuple(n + a + b for n, (a, b) in zip(x.shape, pads, strict=True))
        if x.dtype.is_float or shape == x.shape:
            return [replace(x, shape=shape, constant=None)]
        lo, hi = bounds(x)
        value = int(self._value(node))
        return [Value.integer(shape, x.dtype, min(lo, value), max(hi, value))]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x = np.asarray(inputs[0])
        return [np.pad(x, self._pads(node), constant_values=np.asarray(self._value(node)).astype(x.dtype))]

    def lower(self, node: Node, ctx: Lowering) -> None:
        x, pads = ctx.input(0), self._pads(node)
        if not any(p for pair in pads for p in pair):
            ctx.view(0, x, x.shape, x.strides)
            return
        y, before = ctx.output(0), [a for a, _ in pads]
        joined = _joined(x, before, y.shape)
        if len(joined) > MAX_RANK:
            x = ctx.dense(x)
            joined = _joined(x, before, y.shape)
        axes = [Axis(f"e{i}", out) for i, (_, _, _, out) in enumerate(joined)]
        read = tuple(DimMap(size, stride, ((i, 1),), -pad) for i, (size, stride, pad, _) in enumerate(joined))
        written: list[DimMap] = []
        step = 1
        for i in range(len(joined) - 1, -1, -1):
            written.insert(0, DimMap(joined[i][3], step, ((i, 1),)))
            step *= joined[i][3]
        bits = int.from_bytes(np.asarray(self._value(node)).astype(x.dtype.numpy).tobytes().ljust(8, b"\0"), "little")
        low, high = (half - (1 << 32) if half >= 1 << 31 else half for half in (bits & 0xFFFFFFFF, bits >> 32))
        ends = tuple(pad + size for size, _, pad, _ in joined) + (0,) * (MAX_RANK - len(joined))
        params = (Param("rank", len(joined)), Param("value_lo", low), Param("value_hi", high), Param("end", ends))
        call = KernelCall(PAD[x.dtype.size], (0, 1), tuple(range(len(axes))), params)
        ctx.step(axes, [Operand(x, Access.READ, read), Operand(y, Access.WRITE, tuple(written))], [call], macs=y.elements)

    def kernels(self) -> Sequence[Kernel]:
        return tuple(PAD.values())
