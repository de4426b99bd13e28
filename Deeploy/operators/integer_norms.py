"""iLayerNorm and iRMSNorm: integer normalisation over the last axis (docs: semantics, section 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from Deeploy.errors import ModelError, Problem
from Deeploy.operators.base import Node, Operator, Value, bounds, register
from Deeploy.operators.broadcasting import broadcast_strides
from Deeploy.operators.elementwise import truncating_division
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.normalization import broadcasts
from Deeploy.operators.softmax import LINE_TYPES, accumulator_bits
from Deeploy.operators.views import LineSpace, Strided, line_space
from Deeploy.program.dtypes import INT8, INT32
from Deeploy.program.step import Kernel, KernelCall, Param
from Deeploy.program.tensor import Tensor

INORM = {
    (dtype, bits): Kernel(f"dp_inorm_{dtype.short}_{bits}", "inorm.c", "dp_inorm_cst", cycles_per_point=55.0 if bits == 32 else 120.0)
    for dtype in LINE_TYPES
    for bits in (32, 64)
}


def _root(values: np.ndarray) -> np.ndarray:
    return np.array([math.isqrt(int(v)) for v in values.flat], np.int64).reshape(values.shape)


class _IntegerNorm(Operator):
    """out = (tdiv((x - mean) * w, sd) + b) >> log2(D) with sd = floor(sqrt(tdiv(sum (x - mean)^2, L) + 1))."""

    integer_format = True
    integer_slots = {1: INT32, 2: INT32}
    centre = False

    def problems(self, node: Node) -> list[Problem]:
        x = node.value(0)
        problems: list[Problem] = []
        try:
            d = node.int("D")
            if d <= 0 or d & (d - 1) or d >= 1 << 31:
                problems.append(node.problem(f"D is {d}", "it must be a power of two below 2^31", attribute="D"))
        except ModelError as error:
            problems += error.problems
        if x.dtype not in LINE_TYPES:
            problems.append(
                node.problem(
                    f"the input has type {x.dtype}", f"kernels take {', '.join(t.name for t in LINE_TYPES)}", "requantise the input"
                )
            )
        if node.int("n_levels", 256) != 256:
            problems.append(node.problem("only 256 levels are supported", "results are stored as int8", attribute="n_levels"))
        if x.rank == 0:
            return [*problems, node.problem("the input is a scalar", "it works along the last axis")]
        for slot in range(1, 3 if self.centre else 2):
            value = node.value(slot)
            if value.dtype != INT32:
                problems.append(node.problem(f"input {slot} has type {value.dtype}", "int32 is needed", "make it a constant"))
            if not broadcasts(value.shape, x.shape):
                problems.append(node.problem(f"input {slot} of shape {list(value.shape)} does not broadcast to {list(x.shape)}"))
        if not problems and self._bits(node) is None:
            problems.append(node.problem("intermediate values need more than 64 bits", "the ranges are too large", "requantise the input"))
        return problems

    def _magnitudes(self, node: Node) -> tuple[int, int]:
        """Largest |x - mean| and largest |(x - mean) * w|."""
        lo, hi = bounds(node.value(0))
        distance = hi - lo if self.centre else max(abs(lo), abs(hi))
        return distance, distance * max(abs(v) for v in bounds(node.value(1)))

    def _bits(self, node: Node) -> int | None:
        x = node.value(0)
        distance, product = self._magnitudes(node)
        largest = max(abs(v) for v in bounds(x))
        bias = max(abs(v) for v in bounds(node.value(2))) if self.centre else 0
        return accumulator_bits(x.shape[-1] * largest, x.shape[-1] * distance * distance + 1, product + bias)

    def infer(self, node: Node) -> list[Value]:
        _, product = self._magnitudes(node)
        low, high = (-product, product)
        if self.centre:
            bias = bounds(node.value(2))
            low, high = low + bias[0], high + bias[1]
        shift = node.int("D").bit_length() - 1
        low, high = low >> shift, high >> shift
        if self.centre and not (INT8.lo <= low and high <= INT8.hi):
            low, high = INT8.lo, INT8.hi
        return [Value.integer(node.value(0).shape, INT8, max(low, INT8.lo), min(high, INT8.hi))]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x, w = (np.asarray(v).astype(np.int64) for v in inputs[:2])
        if x.size == 0:
            return [x.astype(np.int8)]
        length = x.shape[-1]
        d = x - truncating_division(x.sum(-1, keepdims=True), np.asarray(length, np.int64)) if self.centre else x
        deviation = _root((d * d).sum(-1, keepdims=True) // length + 1)
        y = truncating_division(d * w, deviation)
        if self.centre:
            y = y + np.asarray(inputs[2]).astype(np.int64)
        y = y >> (node.int("D").bit_length() - 1)
        # iLayerNorm has no clamp: what does not fit wraps around, here as on the device.
        return [y.astype(np.int8) if self.centre else np.clip(y, INT8.lo, INT8.hi).astype(np.int8)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        y, bits = ctx.output(0), self._bits(node)
        assert bits is not None
        if bits == 64:
            ctx.note("intermediate values need 64 bits")
        tables = [ctx.input(slot) for slot in range(1, 3 if self.centre else 2)]

        def space(x: Tensor) -> LineSpace | None:
            extras = [Strided(t, tuple(broadcast_strides(t, x.shape))) for t in tables]
            return line_space(x.shape, (len(x.shape) - 1,), Strided(x, x.strides), Strided(y, y.strides), extras)

        found = space(ctx.input(0)) or space(ctx.dense(ctx.input(0)))
        if found is None:
            raise ModelError(node.problem("weight or bias broadcast in a way that needs too many loops"))
        params = (Param("rank", found.rank), Param("centre", int(self.centre)), Param("shift", node.int("D").bit_length() - 1))
        call = KernelCall(INORM[node.value(0).dtype, bits], tuple(range(2 + len(tables))), tuple(range(len(found.axes))), params)
        ctx.step(found.axes, found.operands, [call], in_place=found.in_place, macs=4 * node.value(0).elements)

    def kernels(self) -> Sequence[Kernel]:
        return tuple(INORM.values())


@register
class ILayerNorm(_IntegerNorm):
    names = ("iLayerNorm",)
    centre = True


@register
class IRMSNorm(_IntegerNorm):
    names = ("iRMSNorm",)
