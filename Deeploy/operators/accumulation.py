"""What operators with accumulators (convolutions, matrix products) share: proven ranges, operands along the output.

Ranges are kept per output channel, row or column as far as the constants tell, as numpy arrays of Python integers that broadcast
against the output: they cannot overflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from Deeploy.operators.base import Value, bounds
from Deeploy.operators.broadcasting import broadcast_strides
from Deeploy.program.dtypes import INT8, UINT8, DType
from Deeploy.program.step import DimMap
from Deeploy.program.tensor import Tensor

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
        return Span.of(*bounds(value))

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
