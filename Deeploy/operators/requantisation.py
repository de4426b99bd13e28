"""What every requantisation has, of RequantShift and of the merged operators: attributes, proven ranges, fields of constant structs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from Deeploy.errors import ModelError, Problem
from Deeploy.operators.accumulation import Span
from Deeploy.operators.base import Node, Value
from Deeploy.program.dtypes import INT8, INT32, UINT8, DType

LEVELS = 256
"""n_levels where a file does not say it."""
SIGNED = 1
"""signed where a file does not say it."""


@dataclass(frozen=True)
class Requant:
    """y = clamp((x * mul + add + half) >> shift, lo, hi), half = 2^(shift - 1) if shift > 0: rounds half up."""

    shift: int
    lo: int
    hi: int

    @property
    def dtype(self) -> DType:
        """The type that stores the result."""
        return INT8 if self.lo < 0 else UINT8

    @property
    def half(self) -> int:
        return 1 << (self.shift - 1) if self.shift > 0 else 0

    @staticmethod
    def of(node: Node, suffix: str = "") -> Requant:
        """From the attributes div, n_levels (or n_levels_out) and signed, with that suffix. Raises ModelError if div is missing."""
        shift, levels = node.int(f"div{suffix}").bit_length() - 1, _levels(node, suffix)
        if node.int(f"signed{suffix}", SIGNED):
            return Requant(shift, -(levels // 2), levels // 2 - 1)
        return Requant(shift, 0, levels - 1)

    @staticmethod
    def problems(node: Node, mul: int, add: int, suffix: str = "") -> list[Problem]:
        """What is not supported of the attributes with that suffix and of the tables at those slots."""
        found: list[Problem] = []
        try:
            found += _attribute_problems(node, suffix)
        except ModelError as error:
            found += error.problems
        for slot, name in ((mul, "mul"), (add, "add")):
            value = node.optional(slot)
            if value is None:
                found.append(node.problem(f"input {slot} ({name}) is missing"))
            elif value.dtype is not INT32:
                remedy = f"make {name} a constant of whole numbers within int32"
                found.append(node.problem(f"{name} is {value.dtype}", "requantisation tables are int32", remedy))
        return found

    def _steps(self, x: Span, mul: Value, add: Value) -> tuple[Span, ...]:
        product = x * Span.value(mul)
        added = product + Span.value(add)
        return product, added, added + Span.of(self.half, self.half)

    def range(self, x: Span, mul: Value, add: Value) -> tuple[int, int]:
        """The exact range of the result for x in those spans."""
        lo, hi = self._steps(x, mul, add)[-1].total
        return min(max(lo >> self.shift, self.lo), self.hi), min(max(hi >> self.shift, self.lo), self.hi)

    def fits(self, x: Span, mul: Value, add: Value, dtype: DType) -> bool:
        """Whether x and every value on the way are within the type."""
        half = Span.of(self.half, self.half)
        return all(span.fits(dtype) for span in (x, half, *self._steps(x, mul, add)))

    def reference(self, x: np.ndarray, mul: np.ndarray, add: np.ndarray) -> np.ndarray:
        """The definition in 64 bits, which are proven to be enough; tables broadcast numpy-style."""
        scaled = x.astype(np.int64) * mul.astype(np.int64) + add.astype(np.int64) + self.half
        return np.clip(scaled >> self.shift, self.lo, self.hi).astype(self.dtype.numpy)

    def fields(self, wide: bool) -> tuple[tuple[str, int], ...]:
        """Fields of the constant structs, in the order of dp_requant. wide: whether the arithmetic needs 64 bits."""
        return ("shift", self.shift), ("lo", self.lo), ("hi", self.hi), ("wide", int(wide))


def _levels(node: Node, suffix: str) -> int:
    return node.int(f"n_levels{suffix}", node.int(f"n_levels_out{suffix}", LEVELS))


def _attribute_problems(node: Node, suffix: str) -> list[Problem]:
    found = []
    div = node.float(f"div{suffix}")
    if div < 1 or div != int(div) or int(div) & (int(div) - 1) or div >= 1 << 62:
        what = f"div is {div}, not a power of two"
        found.append(node.problem(what, "the division is a shift", "use a power of two from 1 to 2^61", f"div{suffix}"))
    levels, signed = _levels(node, suffix), node.int(f"signed{suffix}", SIGNED)
    name = f"n_levels{suffix}" if node.has(f"n_levels{suffix}") else f"n_levels_out{suffix}"
    if not 2 <= levels <= 256:
        found.append(node.problem(f"{levels} levels are not supported", "results are stored in 8 bits", "use 2 to 256", name))
    elif signed and levels % 2:
        why = "signed results go from -n/2 to n/2 - 1"
        found.append(node.problem(f"{levels} levels are odd", why, "use an even number, or unsigned results", name))
    return found


def requant_params(requant: Requant | None, wide: bool) -> tuple[tuple[str, int], ...]:
    """Fields of the constant structs of operators that may be requantised, in their order."""
    if requant is None:
        return ("requantise", 0), ("shift", 0), ("lo", 0), ("hi", 0), ("wide", 0)
    return ("requantise", 1), *requant.fields(wide)
