"""Arithmetic with two or more operands: Add, Sub, Mul, Div, Pow, Min, Max, Sum, PRelu, on float32 and on integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from Deeploy.errors import Problem
from Deeploy.operators.base import Exactness, Node, Operator, Value, bounds, register
from Deeploy.operators.broadcasting import broadcasts
from Deeploy.operators.elementwise import (
    arithmetic_value,
    as_type,
    broadcast_shape,
    corners,
    input_problems,
    lower_elementwise,
    to_float32,
    truncating_division,
    type_problems,
    work_array,
)
from Deeploy.operators.lowering import Lowering
from Deeploy.program.dtypes import FLOAT32, INT64, TYPE_CODES, DType
from Deeploy.program.step import Kernel, Param
from Deeploy.program.tensor import Tensor

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

FAST_TYPES = (("i8", "i8"), ("u8", "u8"), ("i8", "u8"), ("u8", "i8"), ("i32", "i32"), ("i8", "i32"), ("i32", "i8"))
"""Operand types with their own add, sub and mul kernels (result int32)."""


def float_kernel(symbol: str, cycles: float) -> Kernel:
    return Kernel(f"dp_{symbol}_f32", "elementwise_float.c", "dp_elementwise_float_cst", cycles_per_point=cycles)


def integer_kernel(symbol: str, cycles: float, signature: str = "int") -> Kernel:
    return Kernel(f"dp_{symbol}_{signature}", "elementwise_integer.c", "dp_elementwise_integer_cst", cycles_per_point=cycles)


def float_params(a: float = 0.0, b: float = 0.0) -> tuple[Param, ...]:
    """Params of float kernels after the rank."""
    return Param("a", float(a)), Param("b", float(b))


def integer_params(x: DType, y: DType, z: DType) -> tuple[Param, ...]:
    """Params of integer kernels after the rank."""
    return Param("type_x", TYPE_CODES[x]), Param("type_y", TYPE_CODES[y]), Param("type_z", TYPE_CODES[z])


class Binary(Operator):
    """Base of operators on two operands of one type, or any number of them that are combined from left to right."""

    domains = ("",)
    elementwise = True
    symbol: ClassVar[str]
    cycles: ClassVar[float] = 4.0
    integer_cycles: ClassVar[float] = 16.0
    has_fast: ClassVar[bool] = False
    variadic: ClassVar[bool] = False

    def normalise(self, node: gs.Node, opset: int) -> None:
        """Before opset 7 the second operand had to be told to broadcast; at the last axis that is numpy's rule."""
        broadcasts = node.attrs.pop("broadcast", 0)
        node.attrs.pop("consumed_inputs", None)
        if opset >= 7 or not broadcasts:
            node.attrs.pop("axis", None)

    def problems(self, node: Node) -> list[Problem]:
        found = input_problems(node, None if self.variadic else 2)
        if found:
            return found
        if node.has("axis"):
            what = "broadcasting at an axis (opset before 7) is not supported"
            found.append(node.problem(what, remedy="convert the model to opset 7 or later", attribute="axis"))
        return found + type_problems(node, self.operands(node))

    def operands(self, node: Node) -> list[Value]:
        return [node.value(i) for i in range(len(node.inputs) if self.variadic else 2)]

    def infer(self, node: Node) -> list[Value]:
        values = self.operands(node)
        shape = broadcast_shape(node, values)
        if values[0].dtype == FLOAT32:
            return [Value(shape, FLOAT32)]
        result = values[0]
        for value in values[1:]:
            result = self.integer_value(node, shape, result, value)
        return [Value.integer(shape, result.dtype, *bounds(result))]

    def integer_value(self, node: Node, shape: Sequence[int], a: Value, b: Value) -> Value:
        """Type and range of the operation on two integers."""
        return arithmetic_value(node, shape, a.dtype, *self.integer_range(a, b))

    def integer_range(self, a: Value, b: Value) -> tuple[int, int]:
        return corners(self.scalar, a, b)

    def scalar(self, a: int, b: int) -> int:
        """The operation on two whole numbers, without limits."""
        raise NotImplementedError

    def floats(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The operation on float64 arrays."""
        raise NotImplementedError

    def integers(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The operation on int64 (or uint64) arrays, wrapping around."""
        return self.floats(a, b)

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        target = self.infer(node)[0].dtype
        arrays = [np.asarray(a) for a in inputs if a is not None]
        with np.errstate(all="ignore"):
            if target == FLOAT32:
                result = arrays[0].astype(np.float64)
                for array in arrays[1:]:
                    result = self.floats(result, array.astype(np.float64))
                return [to_float32(result)]
            result = work_array(arrays[0])
            for array in arrays[1:]:
                result = self.integers(result, work_array(array))
                if not node.integers:
                    result = work_array(result.astype(target.numpy))
            return [result.astype(target.numpy)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        tensors = [ctx.input(i) for i in range(len(self.operands(node)))]
        if len(tensors) == 1:
            ctx.view(0, tensors[0], tensors[0].shape, tensors[0].strides)
            return
        result = tensors[0]
        output = ctx.output(0)
        for number, tensor in enumerate(tensors[1:], 1):
            shape = tuple(int(n) for n in np.broadcast_shapes(result.shape, tensor.shape))
            target = output if number == len(tensors) - 1 else ctx.temporary(f"part{number}", shape, output.dtype)
            kernel, params = self.kernel(result, tensor, target)
            lower_elementwise(ctx, kernel, [result, tensor], target, params, suffix="" if target is output else f"part{number}")
            result = target

    def kernel(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Kernel, tuple[Param, ...]]:
        """The kernel for those operands, and its params."""
        if z.dtype == FLOAT32:
            return float_kernel(self.symbol, self.cycles), float_params()
        params = integer_params(x.dtype, y.dtype, z.dtype)
        pair = (x.dtype.short, y.dtype.short)
        if self.has_fast and pair in FAST_TYPES and z.dtype.short == "i32":
            return integer_kernel(self.symbol, self.cycles, f"{pair[0]}_{pair[1]}_i32"), params
        return integer_kernel(self.symbol, self.integer_cycles), params

    def kernels(self) -> Sequence[Kernel]:
        fast = [integer_kernel(self.symbol, self.cycles, f"{x}_{y}_i32") for x, y in FAST_TYPES] if self.has_fast else []
        return [float_kernel(self.symbol, self.cycles), *fast, integer_kernel(self.symbol, self.integer_cycles)]


@register
class Add(Binary):
    names = ("Add",)
    symbol, has_fast = "add", True
    exactness = Exactness.ROUNDED

    def scalar(self, a: int, b: int) -> int:
        return a + b

    def floats(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a + b


@register
class Sum(Add):
    names = ("Sum",)
    variadic = True
    exactness = Exactness.APPROXIMATE  # of several operands


@register
class Sub(Binary):
    names = ("Sub",)
    symbol, has_fast = "sub", True
    exactness = Exactness.ROUNDED

    def scalar(self, a: int, b: int) -> int:
        return a - b

    def floats(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a - b


@register
class Mul(Binary):
    names = ("Mul",)
    symbol, has_fast = "mul", True
    exactness = Exactness.ROUNDED

    def scalar(self, a: int, b: int) -> int:
        return a * b

    def floats(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a * b


@register
class Div(Binary):
    """Integer quotients truncate toward zero; a division of integers by 0 gives 0."""

    names = ("Div",)
    symbol, cycles, integer_cycles = "div", 12.0, 40.0
    exactness = Exactness.ROUNDED

    def problems(self, node: Node) -> list[Problem]:
        found = super().problems(node)
        if not found and node.integers:
            what = "a division in the integer format has no defined rounding"
            found.append(node.problem(what, remedy="use IntegerDiv or TrueIntegerDiv, or give the network in floats"))
        return found

    def integer_range(self, a: Value, b: Value) -> tuple[int, int]:
        (low, high), (first, last) = bounds(a), bounds(b)
        divisors = {d for d in (first, last, -1, 1) if first <= d <= last and d}
        results = [0] if first <= 0 <= last else []
        results += [_truncate(n, d) for n in (low, high) for d in divisors]
        if low <= 0 <= high:
            results.append(0)
        return min(results), max(results)

    def floats(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.divide(a, b)

    def integers(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return truncating_division(a, b)


def _truncate(n: int, d: int) -> int:
    return abs(n) // abs(d) * (1 if (n < 0) == (d < 0) else -1)


@register
class Min(Binary):
    names = ("Min",)
    symbol, variadic = "min", True
    exactness = Exactness.ROUNDED

    def integer_value(self, node: Node, shape: Sequence[int], a: Value, b: Value) -> Value:
        lo, hi = corners(self.scalar, a, b)
        return Value.integer(shape, a.dtype, lo, hi) if a.dtype == b.dtype else arithmetic_value(node, shape, a.dtype, lo, hi)

    def scalar(self, a: int, b: int) -> int:
        return min(a, b)

    def floats(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.minimum(a, b)


@register
class Max(Min):
    names = ("Max",)
    symbol = "max"

    def scalar(self, a: int, b: int) -> int:
        return max(a, b)

    def floats(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.maximum(a, b)


@register
class Pow(Binary):
    """Exponents of another type are converted to float32 (float base). Integer bases take whole exponents."""

    names = ("Pow",)
    symbol, cycles, integer_cycles = "pow", 80.0, 80.0

    def problems(self, node: Node) -> list[Problem]:
        found = input_problems(node, 2)
        if found:
            return found
        base, exponent = self.operands(node)
        known = exponent.constant
        fractions = exponent.dtype == FLOAT32 and (known is None or not np.all((known == np.trunc(known)) & (np.abs(known) < 1e9)))
        if base.dtype != FLOAT32 and fractions:
            what = "an integer base with a float exponent that is not known to be whole is not supported"
            return [node.problem(what, remedy="cast the base to float")]
        if base.dtype.is_integer and node.integers and not 0 <= bounds(exponent)[0] <= bounds(exponent)[1] <= 64:
            return [node.problem("an exponent outside of [0, 64] is not supported in the integer format")]
        return []

    def integer_value(self, node: Node, shape: Sequence[int], a: Value, b: Value) -> Value:
        if not node.integers:
            return Value.integer(shape, a.dtype, a.dtype.lo, a.dtype.hi)
        (low, high), (first, last) = bounds(a), bounds(b)
        results = [x**e for x in (low, high) for e in (first, last)]
        if low <= 0 <= high:
            results.append(0)
        if low < 0 and first != last:
            largest = max(abs(low), abs(high)) ** last
            results += [-largest, largest]
        return arithmetic_value(node, shape, a.dtype, min(results), max(results))

    def floats(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.power(a, b)

    def integers(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        shape = np.broadcast_shapes(a.shape, b.shape)
        pairs = zip(np.broadcast_to(a, shape).reshape(-1).tolist(), np.broadcast_to(b, shape).reshape(-1).tolist(), strict=True)
        powers = [pow(x, e, 1 << 64) if e >= 0 else _negative_power(x, e) & ((1 << 64) - 1) for x, e in pairs]
        return np.array(powers, np.uint64).astype(a.dtype).reshape(shape)

    def lower(self, node: Node, ctx: Lowering) -> None:
        base, exponent, output = ctx.input(0), ctx.input(1), ctx.output(0)
        if output.dtype == FLOAT32:
            exponent = as_type(ctx, exponent, FLOAT32, "exponent")
        elif exponent.dtype == FLOAT32:
            exponent = as_type(ctx, exponent, INT64, "exponent")
        kernel, params = self.kernel(base, exponent, output)
        lower_elementwise(ctx, kernel, [base, exponent], output, params)


def _negative_power(x: int, exponent: int) -> int:
    """x to a negative exponent, truncated; 0 for x = 0."""
    if x in (1, -1):
        return x if exponent % 2 else 1
    return 0


@register
class PRelu(Binary):
    """x where x >= 0, else slope * x; the slope broadcasts to x. Before opset 7 a slope [C] is per channel (axis 1): `per_channel`."""

    names = ("PRelu",)
    symbol = "prelu"
    exactness = Exactness.ROUNDED

    def normalise(self, node: gs.Node, opset: int) -> None:
        super().normalise(node, opset)
        if opset < 7:
            node.attrs["per_channel"] = 1

    def problems(self, node: Node) -> list[Problem]:
        missing = [node.problem(f"input {i} is missing") for i in (0, 1) if node.optional(i) is None]
        if missing:
            return missing
        x, slope = self.operands(node)
        found = type_problems(node, [x, slope])
        if not broadcasts(slope.shape, x.shape):
            found.append(node.problem(f"the slope of shape {list(slope.shape)} does not broadcast to {list(x.shape)}"))
        return found

    def operands(self, node: Node) -> list[Value]:
        x, slope = node.value(0), node.value(1)
        return [x, slope.reshaped(self.slope_shape(node))]

    def operand_shape(self, node: Node, slot: int) -> tuple[int, ...]:
        return self.slope_shape(node) if slot == 1 else node.value(slot).shape

    def slope_shape(self, node: Node) -> tuple[int, ...]:
        """The slope's shape as numpy broadcasts it."""
        x, slope = node.value(0), node.value(1)
        if node.has("per_channel") and slope.rank == 1 and slope.elements > 1 and x.rank > 1:
            return (slope.elements, *(1 for _ in x.shape[2:]))
        return slope.shape

    def integer_range(self, a: Value, b: Value) -> tuple[int, int]:
        low, high = bounds(a)
        results = [x for x in (low, high) if x >= 0]
        if low < 0:
            results += [x * y for x in (low, min(high, -1)) for y in bounds(b)]
        if low <= 0 <= high:
            results.append(0)
        return min(results), max(results)

    def floats(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(a < 0, a * b, a)

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        return super().reference(node, [inputs[0], np.asarray(inputs[1]).reshape(self.slope_shape(node))])

    def lower(self, node: Node, ctx: Lowering) -> None:
        x, slope, output = ctx.input(0), ctx.input(1), ctx.output(0)
        shape = self.slope_shape(node)
        strides = slope.strides if shape == slope.shape else (*slope.strides, *(0 for _ in shape[1:]))
        kernel, params = self.kernel(x, slope, output)
        shaped = replace(slope, shape=shape, strides=strides)
        lower_elementwise(ctx, kernel, [x, shaped], output, params, owners=[x, slope])
