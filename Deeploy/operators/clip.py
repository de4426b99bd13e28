"""Clip: bounds as attributes (before opset 11), as constants or as tensors, each of them optional."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from Deeploy.errors import Problem
from Deeploy.operators.arithmetic import float_kernel, float_params, integer_kernel, integer_params
from Deeploy.operators.base import Exactness, Node, Operator, Value, bounds, register
from Deeploy.operators.elementwise import lower_elementwise, type_problems
from Deeploy.operators.lowering import Lowering
from Deeploy.program.dtypes import FLOAT32, INT64, TYPE_CODES, UINT64
from Deeploy.program.step import Kernel, Param
from Deeploy.program.tensor import Tensor

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

_SLOTS = (("min", 1), ("max", 2))
_CLIP_INT = Kernel("dp_clip_int", "elementwise_integer.c", "dp_clip_int_cst", cycles_per_point=12.0)


def _within(value: float | int, lo: int, hi: int) -> int:
    """A bound limited to the range of a type, exactly."""
    return int(min(max(value, lo), hi))


@register
class Clip(Operator):
    """y = min(max(x, min), max). Integers keep their type; absent bounds do nothing."""

    names = ("Clip",)
    domains = ("",)
    exactness = Exactness.ROUNDED
    keeps_axes = True

    def normalise(self, node: gs.Node, opset: int) -> None:
        node.attrs.pop("consumed_inputs", None)

    def problems(self, node: Node) -> list[Problem]:
        found: list[Problem] = []
        if node.optional(0) is None:
            return [node.problem("input 0 is missing")]
        values = [node.value(0)] + [v for _, slot in _SLOTS if (v := node.optional(slot)) is not None]
        found += [node.problem("a bound is not a scalar") for v in values[1:] if v.elements != 1]
        known = [self._known(node, name, slot) for name, slot in _SLOTS]
        if node.value(0).dtype.is_integer:
            found += [
                node.problem(f"the bound {k} is not a whole number") for k in known if k is not None and math.isfinite(k) and k != int(k)
            ]
        if node.integers and all(v.constant is not None for v in values[1:]):
            return found + type_problems(node, values[:1])
        return found + type_problems(node, values)

    def _known(self, node: Node, name: str, slot: int) -> float | int | None:
        """A bound that is known at compile time, or None if it is absent or computed."""
        value = node.optional(slot)
        if value is not None:
            return None if value.constant is None else value.constant.reshape(-1)[0].item()
        return node.float(name) if node.has(name) else None

    def _does_nothing(self, node: Node, name: str, slot: int) -> bool:
        """Whether a bound is absent or the infinity on its side."""
        known = self._known(node, name, slot)
        absent = node.optional(slot) is None and not node.has(name)
        return absent or known == (-np.inf if name == "min" else np.inf)

    def infer(self, node: Node) -> list[Value]:
        x = node.value(0)
        if x.dtype == FLOAT32:
            return [Value(x.shape, FLOAT32)]
        low, high = bounds(x)
        for (name, slot), join in zip(_SLOTS, (max, min), strict=True):
            limit = node.optional(slot)
            known = self._known(node, name, slot)
            if known is not None:
                first = last = _within(known, x.dtype.lo, x.dtype.hi)
            elif limit is not None:
                first, last = (_within(v, x.dtype.lo, x.dtype.hi) for v in bounds(limit))
            else:
                continue
            low, high = join(low, first), join(high, last)
        return [Value.integer(x.shape, x.dtype, low, high)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x = np.asarray(inputs[0])
        dtype = x.dtype
        for (name, slot), join in zip(_SLOTS, (np.maximum, np.minimum), strict=True):
            limit: np.ndarray | None = inputs[slot] if slot < len(inputs) else None
            if limit is None and node.has(name):
                limit = np.asarray(node.float(name))
            if limit is None:
                continue
            if dtype.kind in "iu":
                info = np.iinfo(dtype)
                limit = np.array(_within(np.asarray(limit).reshape(-1)[0].item(), info.min, info.max), dtype)
            x = join(x, np.asarray(limit).reshape(()).astype(dtype))
        return [x.astype(dtype)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        x = ctx.input(0)
        if all(self._does_nothing(node, name, slot) for name, slot in _SLOTS):
            ctx.view(0, x, x.shape, x.strides)
            return
        output = ctx.output(0)
        known = [self._known(node, name, slot) for name, slot in _SLOTS]
        limits = [ctx.input(slot) for _, slot in _SLOTS if node.optional(slot) is not None]
        settled = len(limits) == sum(node.optional(slot) is not None and k is not None for (_, slot), k in zip(_SLOTS, known, strict=True))
        if settled and output.dtype == FLOAT32 and known[0] != np.inf and known[1] != -np.inf:
            self._lower_floats(ctx, x, output, known)
        elif settled and output.dtype not in (FLOAT32, UINT64) and bounds(node.value(0))[0] > INT64.lo:
            dtype = output.dtype
            ends = [b if k is None else k for k, b in zip(known, bounds(node.value(0)), strict=True)]
            low, high = (_within(e, dtype.lo, dtype.hi) for e in ends)
            params = (Param("type", TYPE_CODES[dtype]), Param("lo64", low), Param("hi64", high))
            lower_elementwise(ctx, _CLIP_INT, [x], output, params)
        else:
            self._lower_tensors(node, ctx, x, limits, output)

    def _lower_floats(self, ctx: Lowering, x: Tensor, output: Tensor, known: Sequence[float | int | None]) -> None:
        """Bounds in the constant struct; an infinite bound is none."""
        low = None if known[0] is None or known[0] == -np.inf else float(np.float32(known[0]))
        high = None if known[1] is None or known[1] == np.inf else float(np.float32(known[1]))
        symbol = "clip" if low is not None and high is not None else "clip_low" if high is None else "clip_high"
        lower_elementwise(ctx, float_kernel(symbol, 5.0), [x], output, float_params(low or 0.0, high or 0.0))

    def _lower_tensors(self, node: Node, ctx: Lowering, x: Tensor, limits: Sequence[Tensor], output: Tensor) -> None:
        """Bounds as operands of the kernel (constants are immediates)."""
        is_float = output.dtype == FLOAT32
        symbol = "clip_between" if len(limits) == 2 else "max" if node.optional(1) is not None else "min"
        kernel = float_kernel(symbol, 6.0) if is_float else integer_kernel(symbol, 24.0)
        params = float_params() if is_float else integer_params(x.dtype, x.dtype, x.dtype)
        lower_elementwise(ctx, kernel, [x, *limits], output, params)

    def kernels(self) -> Sequence[Kernel]:
        floats = [float_kernel(s, 5.0) for s in ("clip", "clip_low", "clip_high", "clip_between", "min", "max")]
        return [*floats, _CLIP_INT, *(integer_kernel(s, 24.0) for s in ("clip_between", "min", "max"))]
