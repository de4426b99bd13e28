"""Quant and Dequant: between float32 and integers, with scale and zero point as attributes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from Deeploy.errors import Problem
from Deeploy.operators.base import Exactness, Node, Operator, Value, register
from Deeploy.operators.elementwise import lower_elementwise
from Deeploy.operators.lowering import Lowering
from Deeploy.program.dtypes import FLOAT32, INT32, TYPE_CODES, smallest_integer
from Deeploy.program.step import Kernel, Param

QUANT_KERNEL = Kernel("dp_quant_f32", "convert.c", "dp_convert_cst", cycles_per_point=16.0)
DEQUANT_KERNEL = Kernel("dp_dequant_f32", "convert.c", "dp_convert_cst", cycles_per_point=8.0)


def _scale_problems(node: Node) -> list[Problem]:
    found = [node.problem("the attribute is missing", attribute=name) for name in ("scale", "zero_point") if not node.has(name)]
    for name in ("scale", "zero_point"):
        if node.has(name) and np.asarray(node.attributes[name]).size != 1:
            found.append(node.problem("only one number for the whole tensor is supported", attribute=name))
    if len(node.inputs) > 1:
        found.append(node.problem("scale and zero point as inputs are not supported", remedy="give them as attributes"))
    return found


def _scale(node: Node) -> tuple[float, float]:
    """Scale and zero point as float32 numbers."""
    return float(np.float32(node.float("scale"))), float(np.float32(node.float("zero_point")))


@register
class Quant(Operator):
    """q = clamp(round(x * scale + zero_point)), half away from zero, in float32; to the range of `bit_width` bits, `signed` or not."""

    names = ("Quant",)
    exactness = Exactness.ROUNDED

    def problems(self, node: Node) -> list[Problem]:
        if node.optional(0) is None:
            return [node.problem("input 0 is missing")]
        found = _scale_problems(node)
        if node.value(0).dtype != FLOAT32:
            found.append(node.problem(f"its input is {node.value(0).dtype.name}, not float32"))
        bits = node.int("bit_width", 8)
        if not 1 <= bits <= (32 if node.int("signed", 1) else 31):
            found.append(node.problem(f"{bits} bits are not supported", remedy="use at most 32 (31 unsigned)", attribute="bit_width"))
        return found

    def limits(self, node: Node) -> tuple[int, int]:
        bits = node.int("bit_width", 8)
        return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if node.int("signed", 1) else (0, (1 << bits) - 1)

    def infer(self, node: Node) -> list[Value]:
        lo, hi = self.limits(node)
        dtype = smallest_integer(lo, hi) if lo < 0 else smallest_integer(lo, max(hi, 255))
        return [Value.integer(node.value(0).shape, INT32 if hi > 255 else dtype, lo, hi)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        (scale, zero), (lo, hi) = _scale(node), self.limits(node)
        with np.errstate(all="ignore"):
            scaled = (np.asarray(inputs[0], np.float32) * np.float32(scale)).astype(np.float32)
            t = (scaled + np.float32(zero)).astype(np.float64)
            rounded = np.sign(t) * np.floor(np.abs(t) + 0.5)
        rounded = np.where(np.isnan(rounded), float(lo), rounded)
        return [np.clip(rounded, lo, hi).astype(self.infer(node)[0].dtype.numpy)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        output = ctx.output(0)
        (scale, zero), (lo, hi) = _scale(node), self.limits(node)
        params = (
            Param("type_x", TYPE_CODES[FLOAT32]),
            Param("type_y", TYPE_CODES[output.dtype]),
            Param("scale", scale),
            Param("zero", zero),
            Param("lo", lo),
            Param("hi", hi),
        )
        lower_elementwise(ctx, QUANT_KERNEL, [ctx.input(0)], output, params)

    def kernels(self) -> Sequence[Kernel]:
        return [QUANT_KERNEL]


@register
class Dequant(Operator):
    """y = (q - zero_point) * scale, in float32."""

    names = ("Dequant",)
    exactness = Exactness.ROUNDED

    def problems(self, node: Node) -> list[Problem]:
        return [node.problem("input 0 is missing")] if node.optional(0) is None else _scale_problems(node)

    def infer(self, node: Node) -> list[Value]:
        return [Value(node.value(0).shape, FLOAT32)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        scale, zero = _scale(node)
        shifted = (np.asarray(inputs[0]).astype(np.float32) - np.float32(zero)).astype(np.float32)
        return [(shifted * np.float32(scale)).astype(np.float32)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        x = ctx.input(0)
        scale, zero = _scale(node)
        params = (
            Param("type_x", TYPE_CODES[x.dtype]),
            Param("type_y", TYPE_CODES[FLOAT32]),
            Param("scale", scale),
            Param("zero", zero),
            Param("lo", 0),
            Param("hi", 0),
        )
        lower_elementwise(ctx, DEQUANT_KERNEL, [x], ctx.output(0), params)

    def kernels(self) -> Sequence[Kernel]:
        return [DEQUANT_KERNEL]
