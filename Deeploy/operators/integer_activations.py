"""Integer forms of non-linear operations: iGELU, iHardswish, TrueIntegerDiv, IntegerDiv, iNoNorm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from Deeploy.errors import ModelError, Problem
from Deeploy.operators.base import Node, Operator, Value, bounds, register
from Deeploy.operators.elementwise import arithmetic_value, broadcast_shape, lower_elementwise, truncating_division
from Deeploy.operators.lowering import Lowering
from Deeploy.program.dtypes import INT8, INT32, INT64, TYPE_CODES
from Deeploy.program.step import Kernel, Param
from Deeploy.program.tensor import Tensor

_MOST_VALUES = 1 << 16
"""Size of an input range up to which results are enumerated."""


def _kernel(symbol: str, cycles: float) -> Kernel:
    return Kernel(f"dp_{symbol}", "iactivations.c", "dp_iactivations_cst", cycles_per_point=cycles)


def _params(inputs: Sequence[Tensor], output: Tensor, *numbers: int, narrow: bool = False, bias: int = 0) -> tuple[Param, ...]:
    """Fields of dp_iactivations_cst after the rank; numbers: the parameters a, b, c."""
    a, b, c = (*numbers, 0, 0, 0)[:3]
    return (
        Param("type_x", TYPE_CODES[inputs[0].dtype]),
        Param("type_y", TYPE_CODES[inputs[min(1, len(inputs) - 1)].dtype]),
        Param("type_z", TYPE_CODES[output.dtype]),
        Param("type_b", bias),
        Param("narrow", int(narrow)),
        Param("a64", a),
        Param("b64", b),
        Param("c64", c),
    )


def _missing(node: Node, attributes: Sequence[str], inputs: int) -> list[Problem]:
    """Problems of absent or non-integer inputs, and of attributes that are absent or no whole numbers."""
    found = []
    for slot in range(inputs):
        value = node.optional(slot)
        if value is None:
            found.append(node.problem(f"input {slot} is missing"))
        elif not value.dtype.is_integer:
            found.append(node.problem(f"input {slot} is {value.dtype.name}, not an integer", remedy="check that all its values are whole"))
    for name in attributes:
        try:
            node.int(name)
        except ModelError as error:
            found += error.problems
    return found


def _fits(bits: int, *values: int) -> bool:
    return all(-(1 << (bits - 1)) < v < 1 << (bits - 1) for v in values)


class _OneInput(Operator):
    """Base of a function of one integer with whole-number attributes."""

    integer_format = True
    attributes: ClassVar[tuple[str, ...]]
    kernel: ClassVar[Kernel]

    def problems(self, node: Node) -> list[Problem]:
        return _missing(node, self.attributes, 1)

    def values(self, node: Node) -> list[int]:
        return [node.int(name) for name in self.attributes]

    def function(self, x: np.ndarray, *attributes: int) -> np.ndarray:
        """The definition, on an array of int64 (or of Python integers)."""
        raise NotImplementedError

    def extent(self, lo: int, hi: int, *attributes: int) -> tuple[int, int, int]:
        """(lowest, highest result, largest magnitude of anything in between) for x in [lo, hi]."""
        raise NotImplementedError

    def scan(self, node: Node) -> tuple[int, int, bool]:
        """(lowest, highest result, whether 32-bit arithmetic is enough). ModelError if 64 bits are not."""
        lo, hi = bounds(node.value(0))
        low, high, largest = self.extent(lo, hi, *self.values(node))
        if not _fits(64, largest, low, high):
            raise ModelError(node.problem(f"its arithmetic does not fit 64 bits for inputs in [{lo}, {hi}]", remedy="requantise its input"))
        narrow = _fits(32, largest, low, high, lo, hi)
        if narrow and hi - lo < _MOST_VALUES:
            results = self.function(np.arange(lo, hi + 1, dtype=np.int64), *self.values(node))
            low, high = int(results.min()), int(results.max())
        return low, high, narrow

    def infer(self, node: Node) -> list[Value]:
        low, high, _ = self.scan(node)
        return [arithmetic_value(node, node.value(0).shape, INT64, low, high)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        result = self.function(np.asarray(inputs[0]).astype(np.int64), *self.values(node))
        return [result.astype(self.infer(node)[0].dtype.numpy)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        x, output = ctx.input(0), ctx.output(0)
        _, _, narrow = self.scan(node)
        lower_elementwise(ctx, self.kernel, [x], output, _params([x], output, *self.values(node), narrow=narrow))

    def kernels(self) -> Sequence[Kernel]:
        return [self.kernel]


@register
class IGelu(_OneInput):
    """q = min(|x|, -b); y = x * ((one + sign(x) * (one - (q + b)^2)) >> 1)."""

    names = ("iGELU",)
    attributes = ("b", "one")
    kernel = _kernel("igelu", 18.0)
    keeps_axes = True

    def problems(self, node: Node) -> list[Problem]:
        found = super().problems(node)
        if not found and node.int("b") > 0:
            found.append(node.problem(f"{node.int('b')} is positive", "the polynomial is defined for b <= 0", attribute="b"))
        return found

    def function(self, x: np.ndarray, *attributes: int) -> np.ndarray:
        b, one = attributes
        q = np.minimum(np.abs(x), -b)
        return x * ((one + np.sign(x) * (one - (q + b) ** 2)) >> 1)

    def extent(self, lo: int, hi: int, *attributes: int) -> tuple[int, int, int]:
        b, one = attributes
        steepest = max(abs(one), abs(one - b * b))
        factors = ((one - steepest) >> 1, (one + steepest) >> 1)
        results = [x * f for x in (lo, hi, 0) for f in factors]
        return min(results), max(results), max(b * b, abs(one) + steepest, *map(abs, results))


@register
class IHardswish(_OneInput):
    """y = x * (clamp(x + three, 0, six) * one_over_six)."""

    names = ("iHardswish",)
    attributes = ("three", "six", "one_over_six")
    kernel = _kernel("ihardswish", 12.0)
    keeps_axes = True

    def function(self, x: np.ndarray, *attributes: int) -> np.ndarray:
        three, six, sixth = attributes
        return x * (np.clip(x + three, 0, six) * sixth)

    def extent(self, lo: int, hi: int, *attributes: int) -> tuple[int, int, int]:
        three, six, sixth = attributes
        factors = [min(max(x + three, 0), six) * sixth for x in (lo, hi)]
        results = [x * f for x in (lo, hi, 0) for f in factors]
        return min(results), max(results), max(abs(six), abs(lo + three), abs(hi + three), *map(abs, factors), *map(abs, results))


class _Division(Operator):
    """Base of scaled divisions: numerator Delta * eta * x, divisor eta * y + eps."""

    integer_format = True

    def problems(self, node: Node) -> list[Problem]:
        has_input = node.optional(1) is not None
        found = _missing(node, ("Delta", "eps", "eta") if has_input else ("Delta", "eps", "eta", "y"), 2 if has_input else 1)
        if not found and not has_input and self.divisor(node) == 0:
            found.append(node.problem("the divisor eta * y + eps is 0", attribute="y"))
        if not found and has_input:
            try:
                broadcast_shape(node, [node.value(0), node.value(1)])
            except ModelError as error:
                found += error.problems
        return found

    def factor(self, node: Node) -> int:
        return node.int("Delta") * node.int("eta")

    def divisor(self, node: Node) -> int:
        """The divisor if y is an attribute."""
        return node.int("eta") * node.int("y") + node.int("eps")

    def divisors(self, node: Node) -> list[int]:
        """Divisors at which the quotient is extreme: the ends of their range, and those next to 0."""
        if node.optional(1) is None:
            return [self.divisor(node)]
        eta, eps = node.int("eta"), node.int("eps")
        ends = sorted(eta * y + eps for y in bounds(node.value(1)))
        return [d for d in (*ends, -1, 1) if ends[0] <= d <= ends[1] and d]

    def quotient(self, n: int, d: int) -> int:
        """The definition on whole numbers."""
        raise NotImplementedError

    def scan(self, node: Node) -> tuple[int, int]:
        """Lowest and highest result. ModelError if the arithmetic does not fit 64 bits."""
        ends = [self.factor(node) * x for x in bounds(node.value(0))]
        divisors = self.divisors(node)
        results = [self.quotient(n, d) for n in ends for d in divisors]
        if ends[0] * ends[1] <= 0:
            results += [self.quotient(0, d) for d in divisors]
        if node.optional(1) is not None:
            results.append(0)
        if not _fits(63, *ends, *divisors, *results):
            what = f"Delta * eta * x = {max(map(abs, ends))} does not fit 64 bits"
            raise ModelError(node.problem(what, remedy="requantise its input or use smaller factors"))
        return min(results), max(results)

    def infer(self, node: Node) -> list[Value]:
        lo, hi = self.scan(node)
        others = [] if node.optional(1) is None else [node.value(1)]
        return [arithmetic_value(node, broadcast_shape(node, [node.value(0), *others]), INT64, lo, hi)]

    def whole(self, n: np.ndarray, d: np.ndarray) -> np.ndarray:
        """The definition on int64 arrays, 0 where the divisor is 0."""
        raise NotImplementedError

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        n = np.asarray(inputs[0]).astype(np.int64) * self.factor(node)
        if node.optional(1) is None:
            d = np.array(self.divisor(node), np.int64)
        else:
            d = np.asarray(inputs[1]).astype(np.int64) * node.int("eta") + node.int("eps")
        return [self.whole(n, d).astype(self.infer(node)[0].dtype.numpy)]


@register
class TrueIntegerDiv(_Division):
    """floor(Delta * eta * x / (eta * y + eps)); y is an attribute or the second input."""

    names = ("TrueIntegerDiv",)
    _by = _kernel("true_integer_div_by", 60.0)
    _two = _kernel("true_integer_div", 70.0)

    def quotient(self, n: int, d: int) -> int:
        return n // d

    def whole(self, n: np.ndarray, d: np.ndarray) -> np.ndarray:
        return np.where(d == 0, 0, n // np.where(d == 0, 1, d))

    def lower(self, node: Node, ctx: Lowering) -> None:
        x, output = ctx.input(0), ctx.output(0)
        if node.optional(1) is not None:
            y = ctx.input(1)
            params = _params([x, y], output, self.factor(node), node.int("eta"), node.int("eps"))
            lower_elementwise(ctx, self._two, [x, y], output, params)
            return
        factor, divisor = self.factor(node), self.divisor(node)
        common = math.gcd(factor, divisor)
        factor, divisor = factor // common, divisor // common
        narrow = _fits(32, divisor, *(factor * v for v in bounds(node.value(0))), *bounds(node.value(0)))
        lower_elementwise(ctx, self._by, [x], output, _params([x], output, factor, divisor, narrow=narrow))

    def kernels(self) -> Sequence[Kernel]:
        return [self._by, self._two]


@register
class IntegerDiv(_Division):
    """d = eta * B + eps; n = Delta * eta * A; tdiv(n + sgn(n) * (d >> 1), d), sgn(0) = 1."""

    names = ("IntegerDiv",)
    _two = _kernel("integer_div", 70.0)

    def problems(self, node: Node) -> list[Problem]:
        return _missing(node, ("Delta", "eps", "eta"), 2) or super().problems(node)

    def quotient(self, n: int, d: int) -> int:
        n += (d >> 1) if n >= 0 else -(d >> 1)
        return abs(n) // abs(d) * (1 if (n < 0) == (d < 0) else -1)

    def whole(self, n: np.ndarray, d: np.ndarray) -> np.ndarray:
        return truncating_division(n + np.where(n >= 0, 1, -1) * (d >> 1), d)

    def scan(self, node: Node) -> tuple[int, int]:
        """Rounding is not monotone in the divisor: one more on each side."""
        lo, hi = super().scan(node)
        return lo - 1, hi + 1

    def lower(self, node: Node, ctx: Lowering) -> None:
        a, b, output = ctx.input(0), ctx.input(1), ctx.output(0)
        lower_elementwise(ctx, self._two, [a, b], output, _params([a, b], output, self.factor(node), node.int("eta"), node.int("eps")))

    def kernels(self) -> Sequence[Kernel]:
        return [self._two]


@register
class INoNorm(Operator):
    """((x * weight + bias) * mul) >> log2(D), limited to int8."""

    names = ("iNoNorm",)
    integer_format = True
    integer_slots = {2: INT32}
    _kernel = _kernel("inonorm", 24.0)

    def problems(self, node: Node) -> list[Problem]:
        found = _missing(node, ("D", "mul"), 3)
        if not found and (node.int("D") < 1 or node.int("D") & (node.int("D") - 1)):
            found.append(node.problem(f"{node.int('D')} is no power of two", attribute="D"))
        if not found:
            try:
                shape = broadcast_shape(node, [node.value(i) for i in range(3)])
            except ModelError as error:
                return list(error.problems)
            if shape != node.value(0).shape:
                found.append(node.problem("weight and bias do not broadcast to the input"))
        return found

    def infer(self, node: Node) -> list[Value]:
        x, weight, bias = (bounds(node.value(i)) for i in range(3))
        products = [v * w for v in x for w in weight]
        sums = [p + b for p in (min(products), max(products)) for b in bias]
        results = [s * node.int("mul") for s in sums]
        if not _fits(64, *products, *sums, *results):
            raise ModelError(node.problem("(x * weight + bias) * mul does not fit 64 bits", remedy="requantise its input"))
        shift = node.int("D").bit_length() - 1
        low, high = (min(max(r >> shift, INT8.lo), INT8.hi) for r in (min(results), max(results)))
        return [Value.integer(node.value(0).shape, INT8, low, high)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x, weight, bias = (np.asarray(a).astype(np.int64) for a in inputs[:3])
        result = ((x * weight + bias) * node.int("mul")) >> (node.int("D").bit_length() - 1)
        return [np.clip(result, INT8.lo, INT8.hi).astype(np.int8)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        tensors, output = [ctx.input(i) for i in range(3)], ctx.output(0)
        shift = node.int("D").bit_length() - 1
        params = _params(tensors, output, node.int("mul"), shift, bias=TYPE_CODES[tensors[2].dtype])
        lower_elementwise(ctx, self._kernel, tensors, output, params)

    def kernels(self) -> Sequence[Kernel]:
        return [self._kernel]
