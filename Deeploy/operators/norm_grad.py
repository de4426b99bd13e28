"""The gradient of LayerNormalization: dX line by line, dScale and dBias as sums over the lines.

With x' = (x - mean) * inverse, inverse = 1 / sqrt(var + epsilon), and g = dy * scale:
    dX = inverse * (g - mean(g) - x' * mean(g * x')),    dScale = sum(dy * x'),    dBias = sum(dy).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from Deeploy.errors import ModelError, Problem
from Deeploy.operators.base import Node, Operator, Value, register
from Deeploy.operators.broadcasting import broadcast_strides, merge_axes
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.normalization import STATISTICS, float_problems, statistics_shape, statistics_step
from Deeploy.operators.reduction import REDUCE, reduction_step
from Deeploy.operators.softmax import axis_problems, checked_axis
from Deeploy.operators.views import LineSpace, Strided, join_axes, line_space, reduced_axes, strided_operand
from Deeploy.program.dtypes import FLOAT32
from Deeploy.program.step import MAX_RANK, Access, Axis, Kernel, KernelCall, Operand, Param
from Deeploy.program.tensor import Tensor

NORM_GRAD = Kernel("dp_norm_grad_f32", "norm_grad.c", "dp_norm_grad_cst", cycles_per_point=30.0)
SCALE_GRAD = Kernel("dp_norm_scale_grad_f32", "norm_grad.c", "dp_norm_scale_grad_cst", cycles_per_point=10.0, splits_reduction=True)
SUM = REDUCE["sum", FLOAT32, FLOAT32]
DX, DSCALE, DBIAS = range(3)
"""Outputs, each optional."""


@register
class LayerNormalizationGrad(Operator):
    """Inputs dY, X, scale, mean, inverse deviation, as ONNX Runtime has them; or dY, X, scale, bias, as in files of the Deeploy format,
    where the statistics are computed once more from X. Attributes as of LayerNormalization."""

    names = ("LayerNormalizationGrad",)
    domains = ("", "com.microsoft")
    needed_outputs = 0

    def problems(self, node: Node) -> list[Problem]:
        found = [node.problem(f"input {slot} is missing") for slot in range(3) if node.optional(slot) is None]
        if found:
            return found
        found = float_problems(node) + axis_problems(node, -1)
        if node.int("stash_type", 1) != 1:
            found.append(node.problem("only statistics in float32 are supported", attribute="stash_type"))
        dy, x = node.value(0), node.value(1)
        if dy.shape != x.shape:
            found.append(node.problem(f"the gradient of shape {list(dy.shape)} is not that of a result of shape {list(x.shape)}"))
        if x.elements == 0:
            found.append(node.problem("the input has no elements", "there is nothing to differentiate", "remove the node"))
        return found or self._slot_problems(node)

    def _slot_problems(self, node: Node) -> list[Problem]:
        x, line = node.value(1), self._line(node)
        normalised, statistics = x.shape[line[0] :], statistics_shape(x.shape, line)
        found = []
        if self._given(node):
            wanted = {2: normalised, 3: statistics, 4: statistics}
        elif node.optional(4) is not None:
            return [node.problem("it has an inverse deviation but no mean", remedy="give both or none")]
        else:
            wanted = {2: normalised, 3: normalised}
        for slot, shape in wanted.items():
            value = node.optional(slot)
            if value is not None and value.shape != shape:
                found.append(node.problem(f"input {slot} has the shape {list(value.shape)}", f"it must be {list(shape)}"))
        return found

    @staticmethod
    def _given(node: Node) -> bool:
        """Whether the statistics are inputs."""
        return node.optional(3) is not None and node.optional(4) is not None

    def _line(self, node: Node) -> tuple[int, ...]:
        rank = node.value(1).rank
        return tuple(range(checked_axis(node, node.int("axis", -1), rank), rank))

    def infer(self, node: Node) -> list[Value]:
        x, line = node.value(1), self._line(node)
        normalised = x.shape[line[0] :]
        return [Value(shape, FLOAT32) for shape in (x.shape, normalised, normalised)][: len(node.outputs)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        dy, x, scale = (np.asarray(v, np.float64) for v in inputs[:3])
        line = self._line(node)
        lines = tuple(range(line[0]))
        if self._given(node):
            mean, inverse = (np.asarray(v, np.float64) for v in inputs[3:5])
        else:
            mean = x.mean(line, keepdims=True)
            epsilon = float(np.float32(node.float("epsilon", 1e-5)))
            inverse = 1.0 / np.sqrt(x.var(line, keepdims=True) + epsilon)
        unit, g = (x - mean) * inverse, dy * scale
        dx = inverse * (g - g.mean(line, keepdims=True) - unit * (g * unit).mean(line, keepdims=True))
        results = [dx, (dy * unit).sum(lines), dy.sum(lines)]
        return [r.astype(np.float32) for r in results[: len(node.outputs)]]

    def lower(self, node: Node, ctx: Lowering) -> None:
        wanted = [len(node.outputs) > index and node.outputs[index] != "" for index in (DX, DSCALE, DBIAS)]
        statistics: tuple[Tensor, ...] = (ctx.input(3), ctx.input(4)) if self._given(node) else ()
        if wanted[DSCALE] and not statistics:
            statistics = statistics_step(node, ctx, ctx.input(1), self._line(node), (None, None), node.float("epsilon", 1e-5))
        # dX comes last: nobody reads dY after it, so it may take its place.
        if wanted[DSCALE]:
            self._lower_scale(node, ctx, statistics)
        if wanted[DBIAS]:
            lines = tuple(range(self._line(node)[0]))
            reduction_step(node, ctx, SUM, ctx.input(0), ctx.output(DBIAS), lines, suffix="bias")
        if wanted[DX]:
            self._lower_input(node, ctx, statistics)

    def _lower_input(self, node: Node, ctx: Lowering, statistics: Sequence[Tensor]) -> None:
        dx, line = ctx.output(DX), self._line(node)

        def space(dy: Tensor, others: Sequence[Tensor]) -> LineSpace | None:
            extras = [Strided(t, tuple(broadcast_strides(t, dx.shape))) for t in others]
            return line_space(dx.shape, line, Strided(dy, dy.strides), Strided(dx, dx.strides), extras, line_axes=2)

        dy, others = ctx.input(0), [ctx.input(1), ctx.input(2), *statistics]
        found = space(dy, others) or space(ctx.dense(dy), [ctx.dense(t) for t in others])
        if found is None:
            raise ModelError(node.problem("it needs too many loops", remedy="reduce the rank of its inputs"))
        params = (
            Param("rank", found.rank),
            Param("given", int(bool(statistics))),
            Param("epsilon", float(node.float("epsilon", 1e-5))),
        )
        call = KernelCall(NORM_GRAD, tuple(range(len(found.operands))), tuple(range(len(found.axes))), params)
        ctx.step(found.axes, found.operands, [call], in_place=found.in_place, macs=6 * dx.elements)

    def _lower_scale(self, node: Node, ctx: Lowering, statistics: Sequence[Tensor]) -> None:
        dscale, line = ctx.output(DSCALE), self._line(node)
        inputs = [ctx.input(0), ctx.input(1), *statistics]
        space = _scale_space(inputs, dscale, line) or _scale_space([ctx.dense(t) for t in inputs], dscale, line)
        if space is None:
            raise ModelError(node.problem("it needs too many loops", remedy="reduce the rank of its inputs"))
        rank, axes, operands = space
        params = (Param("rank", rank), Param("reduced", len(axes) - rank))
        call = KernelCall(SCALE_GRAD, tuple(range(5)), tuple(range(len(axes))), params)
        ctx.step(axes, operands, [call], accumulator=FLOAT32, macs=2 * node.value(1).elements, suffix="scale")

    def kernels(self) -> Sequence[Kernel]:
        return (NORM_GRAD, SCALE_GRAD, SUM, STATISTICS)


def _scale_space(inputs: Sequence[Tensor], y: Tensor, line: Sequence[int]) -> tuple[int, list[Axis], list[Operand]] | None:
    """(parallel axes, all axes, operands) of the sum over the lines of the inputs; None if there are more axes than kernels take.

    The first input has the shape of all; y has the dimensions `line` alone.
    """
    shape = inputs[0].shape
    over = range(line[0])
    strides = [broadcast_strides(t, shape) for t in inputs]
    sizes, outer = merge_axes([shape[d] for d in line], [*[[s[d] for d in line] for s in strides], list(y.strides)])
    ends, inner = join_axes([shape[d] for d in over], [[s[d] for d in over] for s in strides])
    if not ends:
        ends, inner = [1], [[0] for _ in inputs]
    if len(sizes) + len(ends) > MAX_RANK:
        return None
    axes = [Axis(f"p{i}", size) for i, size in enumerate(sizes)] + reduced_axes(ends, False)
    operands = [strided_operand(t, Access.READ, [*sizes, *ends], [*a, *b]) for t, a, b in zip(inputs, outer[:-1], inner, strict=True)]
    return len(sizes), axes, [*operands, strided_operand(y, Access.WRITE, sizes, outer[-1])]
