"""What operators with accumulators (convolutions, matrix products) share: proven ranges, requantisation, operands along the output.

Ranges are kept per output channel, row or column as far as the constants tell, as numpy arrays of Python integers that broadcast
against the output: they cannot overflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from Deeploy.errors import Problem
from Deeploy.operators.base import Node, Value
from Deeploy.operators.broadcasting import broadcast_strides
from Deeploy.program.dtypes import INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, DType
from Deeploy.program.step import DimMap
from Deeploy.program.tensor import Tensor

TYPE_CODES = {INT8: 0, UINT8: 1, INT16: 2, UINT16: 3, INT32: 4, UINT32: 5, INT64: 6, UINT64: 7}
"""Type codes of dp_accumulate.h."""
NARROW = {INT8: "i8", UINT8: "u8"}
"""Operand types that have kernels of their own with 32-bit accumulators."""
_LARGE = 1 << 16
"""Constants with more elements are represented by their extremes in ranges."""


def _objects(array: np.ndarray | int) -> np.ndarray:
    """An array of Python integers; numpy turns results of rank 0 into bare numbers, this turns them back."""
    return np.asarray(array, object) if isinstance(array, int) else np.asarray(array).astype(object)


def _smaller(a: np.ndarray | int, b: np.ndarray | int) -> np.ndarray:
    return _objects(np.minimum(_objects(a), _objects(b)))


def _larger(a: np.ndarray | int, b: np.ndarray | int) -> np.ndarray:
    return _objects(np.maximum(_objects(a), _objects(b)))


@dataclass(frozen=True)
class Span:
    """Intervals [lo, hi] of whole numbers, element by element; arrays that broadcast against the output."""

    lo: np.ndarray
    hi: np.ndarray

    @staticmethod
    def of(lo: np.ndarray | int, hi: np.ndarray | int) -> Span:
        return Span(_objects(lo), _objects(hi))

    @staticmethod
    def value(value: Value) -> Span:
        """The elements of an integer value: themselves if constant, else its proven range."""
        array = value.constant
        if array is not None and 0 < array.size <= _LARGE:
            return Span.of(array, array)
        lo, hi = limits(value)
        return Span.of(lo, hi)

    def __add__(self, other: Span) -> Span:
        return Span.of(self.lo + other.lo, self.hi + other.hi)

    def __mul__(self, other: Span) -> Span:
        products = [self.lo * other.lo, self.lo * other.hi, self.hi * other.lo, self.hi * other.hi]
        low, high = products[0], products[0]
        for product in products[1:]:
            low, high = _smaller(low, product), _larger(high, product)
        return Span.of(low, high)

    def with_zero(self) -> Span:
        """The span widened to hold 0."""
        return Span(_smaller(self.lo, 0), _larger(self.hi, 0))

    @property
    def total(self) -> tuple[int, int]:
        """The smallest interval around all of them."""
        return int(self.lo.min()), int(self.hi.max())

    def fits(self, dtype: DType) -> bool:
        lo, hi = self.total
        return dtype.lo <= lo and hi <= dtype.hi


def limits(value: Value) -> tuple[int, int]:
    """The proven range of an integer value, or its type's."""
    return (value.dtype.lo if value.lo is None else value.lo), (value.dtype.hi if value.hi is None else value.hi)


def weighted_sum(weights: np.ndarray, axes: tuple[int, ...], x: tuple[int, int], zero: bool) -> Span:
    """Range of sum(w * x) over `axes` of constant weights for x in a range; `zero`: any term may be absent.

    With `zero` the span also holds every partial sum, in any order.
    """
    wide = weights.astype(object if weights.dtype.itemsize == 8 else np.int64)
    positive = _objects(np.where(wide > 0, wide, 0).sum(axis=axes, keepdims=True))
    negative = _objects(np.where(wide < 0, wide, 0).sum(axis=axes, keepdims=True))
    lo, hi = (min(x[0], 0), max(x[1], 0)) if zero else x
    return Span.of(positive * lo + negative * hi, positive * hi + negative * lo)


def free_sum(count: int, a: tuple[int, int], b: tuple[int, int], zero: bool) -> Span:
    """The same for `count` products of two operands of which only ranges are known."""
    product = Span.of(*a) * Span.of(*b)
    if zero:
        product = product.with_zero()
    return Span.of(product.lo * count, product.hi * count)


@dataclass(frozen=True)
class Accumulated:
    """What is proven of a sum with its scale and bias.

    result: the finished value (before requantisation). steps: every value on the way, partial sums included.
    """

    result: Span
    steps: tuple[Span, ...]

    def fits(self, dtype: DType) -> bool:
        return all(span.fits(dtype) for span in (*self.steps, self.result))


def finish_sum(exact: Span, partial: Span, bias: Value | None, alpha: int = 1, beta: int = 1) -> Accumulated:
    """alpha * sum + beta * bias."""
    scaled = exact * Span.of(alpha, alpha)
    steps = [partial, partial * Span.of(alpha, alpha), Span.of(min(alpha, beta), max(alpha, beta))]
    if bias is None:
        return Accumulated(scaled, tuple(steps))
    raw = Span.value(bias)
    added = raw * Span.of(beta, beta)
    return Accumulated(scaled + added, (*steps, raw, added))


@dataclass(frozen=True)
class Requant:
    """clamp((x * mul + add + half) >> shift): attributes div, n_levels, signed (RequantShift, the trailing part of merged operators)."""

    shift: int
    lo: int
    hi: int
    dtype: DType

    @property
    def half(self) -> int:
        return 1 << (self.shift - 1) if self.shift else 0

    @staticmethod
    def problems(node: Node, mul: int, add: int) -> list[Problem]:
        """What is not supported of the attributes and of the tables at those slots."""
        found = []
        div = node.float("div")
        if div < 1 or div != int(div) or int(div) & (int(div) - 1) or div >= 2**62:
            found.append(node.problem(f"div is {div}", "the division is a shift", "use a power of two from 1 to 2^61", "div"))
        levels = node.int("n_levels")
        if not 1 < levels <= 256:
            found.append(node.problem(f"n_levels is {levels}", "results are stored in 8 bits", "use 2 to 256", "n_levels"))
        for slot, name in ((mul, "mul"), (add, "add")):
            value = node.value(slot)
            if value.dtype is not INT32:
                remedy = f"make {name} a constant within int32"
                found.append(node.problem(f"{name} is {value.dtype}", "requantisation tables are int32", remedy))
        return found

    @staticmethod
    def of(node: Node) -> Requant:
        levels, signed = node.int("n_levels"), bool(node.int("signed"))
        shift = node.int("div").bit_length() - 1
        if signed:
            return Requant(shift, -(levels // 2), levels // 2 - 1, INT8)
        return Requant(shift, 0, levels - 1, UINT8)

    def _shifted(self, x: Span, mul: Value, add: Value) -> tuple[Span, ...]:
        product = x * Span.value(mul)
        added = product + Span.value(add)
        return product, added, added + Span.of(self.half, self.half)

    def range(self, x: Span, mul: Value, add: Value) -> tuple[int, int]:
        """The exact range of the result for x in those spans."""
        lo, hi = self._shifted(x, mul, add)[-1].total
        return min(max(lo >> self.shift, self.lo), self.hi), min(max(hi >> self.shift, self.lo), self.hi)

    def fits(self, x: Span, mul: Value, add: Value, dtype: DType) -> bool:
        """Whether every value on the way is within the type."""
        half = Span.of(self.half, self.half)
        return all(span.fits(dtype) for span in (x, half, *self._shifted(x, mul, add)))

    def reference(self, x: np.ndarray, mul: np.ndarray, add: np.ndarray) -> np.ndarray:
        scaled = x.astype(np.int64) * mul.astype(np.int64) + add.astype(np.int64) + self.half
        return np.clip(scaled >> self.shift, self.lo, self.hi).astype(self.dtype.numpy)


def requant_params(requant: Requant | None, wide: bool) -> tuple[tuple[str, int], ...]:
    """Fields of the constant structs, in their order."""
    if requant is None:
        return ("requantise", 0), ("shift", 0), ("lo", 0), ("hi", 0), ("wide", 0)
    return ("requantise", 1), ("shift", requant.shift), ("lo", requant.lo), ("hi", requant.hi), ("wide", int(wide))


def exact_integers(depth: int, a: np.ndarray, b: np.ndarray) -> bool:
    """Whether sums of `depth` products of elements of the two integer arrays are exact in float64."""

    def largest(array: np.ndarray) -> int:
        return max(abs(int(array.min())), abs(int(array.max()))) if array.size else 0

    return depth * largest(a) * largest(b) < 1 << 53


def dim(size: int, stride: int, *terms: tuple[int, int], offset: int = 0) -> DimMap:
    """A dimension of a read operand; one that does not move (length 1, splat, broadcast) is a single element for every tile."""
    if size == 1 or stride == 0:
        return DimMap(1, 0)
    return DimMap(size, stride, terms, offset)


def align(tensor: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """Strides with which a tensor that broadcasts to `shape` is read there."""
    return tuple(broadcast_strides(tensor, shape))
