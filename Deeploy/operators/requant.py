"""RequantShift, and the merged RequantizedAdd: y = clamp((x * mul + add + half) >> shift), see semantics of RequantShift.

Tables (mul, add) broadcast numpy-style against the output; a pass brings those of the file to such shapes before anything is lowered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from Deeploy.errors import ModelError, Problem
from Deeploy.operators.arithmetic import integer_kernel, integer_params
from Deeploy.operators.base import DOMAIN, Node, Operator, Value, register
from Deeploy.operators.elementwise import TYPE_CODES, bounds, broadcast_shape, lower_elementwise
from Deeploy.operators.lowering import Lowering
from Deeploy.program.dtypes import INT8, INT32, INT64, UINT8, DType
from Deeploy.program.step import Kernel, Param
from Deeploy.program.tensor import Tensor

_MOST_PAIRS = 4096
"""Table entries up to which ranges are computed pair by pair."""


def requant_kernel(dtype: DType) -> Kernel:
    """The kernel for x of that type."""
    special = dtype.short in ("i8", "u8", "i32")
    return Kernel(
        f"dp_requant_{dtype.short if special else 'int'}", "requant.c", "dp_requant_cst", cycles_per_point=8.0 if special else 16.0
    )


_ADD_FAST = Kernel("dp_requantized_add_i8_i8", "requant.c", "dp_requantized_add_cst", cycles_per_point=20.0)
_ADD_ANY = Kernel("dp_requantized_add_int", "requant.c", "dp_requantized_add_cst", cycles_per_point=32.0)


@dataclass(frozen=True)
class Requant:
    """Shift and clamp of a requantisation; `dtype` is what holds the result."""

    shift: int
    lo: int
    hi: int

    @property
    def dtype(self) -> DType:
        return INT8 if self.lo < 0 else UINT8

    @property
    def half(self) -> int:
        return 1 << (self.shift - 1) if self.shift > 0 else 0

    @staticmethod
    def of(node: Node, suffix: str = "") -> Requant:
        """From the attributes div, n_levels (or n_levels_out) and signed, with that suffix."""
        levels = node.int(f"n_levels{suffix}", node.int(f"n_levels_out{suffix}", 256))
        shift = node.int(f"div{suffix}").bit_length() - 1
        if node.int(f"signed{suffix}", 1):
            return Requant(shift, -(levels // 2), levels // 2 - 1)
        return Requant(shift, 0, levels - 1)

    def apply(self, x: np.ndarray, mul: np.ndarray, add: np.ndarray) -> np.ndarray:
        """The definition, on int64 arrays; the range is proven to fit."""
        return np.clip((x * mul + add + self.half) >> self.shift, self.lo, self.hi)

    def scan(self, x: tuple[int, int], pairs: Iterable[tuple[int, int]]) -> tuple[int, int, int]:
        """(lowest result, highest result, bits that intermediate values need: 32, 64 or more) for x in that range."""
        low, high = self.hi, self.lo
        least, most = 0, self.half
        for mul, add in pairs:
            for value in x:
                product = value * mul
                total = product + add + self.half
                least = min(least, product, product + add, total)
                most = max(most, product, product + add, total)
                result = min(max(total >> self.shift, self.lo), self.hi)
                low, high = min(low, result), max(high, result)
        bits = next((b for b in (32, 64) if -(1 << (b - 1)) <= least and most < 1 << (b - 1)), 128)
        return min(low, high), max(low, high), bits


def requant_problems(node: Node, suffix: str = "") -> list[Problem]:
    """Problems of the attributes of one requantisation."""
    found = []
    try:
        div = node.int(f"div{suffix}")
        levels = node.int(f"n_levels{suffix}", node.int(f"n_levels_out{suffix}", 256))
    except ModelError as error:
        return list(error.problems)
    if div < 1 or div & (div - 1) or div >= 1 << 62:
        found.append(node.problem(f"{div} is no power of two", "the division is a shift", attribute=f"div{suffix}"))
    if levels < 2 or levels > 256 or levels % 2:
        found.append(
            node.problem(f"{levels} levels do not fit 8 bits evenly", remedy="use an even number up to 256", attribute=f"n_levels{suffix}")
        )
    return found


def table_pairs(mul: Value, add: Value) -> list[tuple[int, int]]:
    """The (mul, add) pairs that occur; the corners of their ranges if the tables are computed or very long."""
    if mul.constant is not None and add.constant is not None and max(mul.elements, add.elements) <= _MOST_PAIRS:
        muls, adds = mul.constant.reshape(-1).tolist(), add.constant.reshape(-1).tolist()
        if 1 in (len(muls), len(adds)) or len(muls) == len(adds):
            length = max(len(muls), len(adds))
            pairs = zip(muls * (length // len(muls)), adds * (length // len(adds)), strict=True) if muls and adds else []
            return list(dict.fromkeys((int(m), int(a)) for m, a in pairs))
    return [(m, a) for m in bounds(mul) for a in bounds(add)]


def scalar_of(value: Value) -> int | None:
    """The one number of a constant all of whose elements are equal, else None."""
    if value.constant is None or not value.elements:
        return None
    lo, hi = int(value.constant.min()), int(value.constant.max())
    return lo if lo == hi else None


def _operand_problems(node: Node, slots: Sequence[int]) -> list[Problem]:
    found = []
    for slot in slots:
        value = node.optional(slot)
        if value is None:
            found.append(node.problem(f"input {slot} is missing"))
        elif not value.dtype.is_integer:
            found.append(node.problem(f"input {slot} is {value.dtype.name}, not an integer", remedy="check that all its values are whole"))
    return found


def _requant_params(x: Tensor, q: Requant, wide: bool) -> tuple[Param, ...]:
    return (
        Param("type", TYPE_CODES[x.dtype]),
        Param("shift", q.shift),
        Param("lo", q.lo),
        Param("hi", q.hi),
        Param("wide", int(wide)),
    )


def _checked_scan(node: Node, q: Requant, x: tuple[int, int], pairs: list[tuple[int, int]]) -> tuple[int, int, bool]:
    """(low, high, wide); ModelError if 64 bits are not enough."""
    low, high, bits = q.scan(x, pairs)
    if bits > 64:
        what = f"x * mul + add does not fit 64 bits for x in [{x[0]}, {x[1]}]"
        raise ModelError(node.problem(what, remedy="requantise its input earlier"))
    return low, high, bits > 32


@register
class RequantShift(Operator):
    """Requantisation to 8 bits, rounding half up. 32-bit arithmetic where the ranges prove it wide enough, else 64-bit."""

    names = ("RequantShift",)
    integer_format = True
    integer_slots = {1: INT32, 2: INT32}

    def problems(self, node: Node) -> list[Problem]:
        return _operand_problems(node, (0, 1, 2)) + requant_problems(node)

    def scan(self, node: Node) -> tuple[int, int, bool]:
        """(lowest, highest result, whether 64 bits are needed)."""
        return _checked_scan(node, Requant.of(node), bounds(node.value(0)), table_pairs(node.value(1), node.value(2)))

    def infer(self, node: Node) -> list[Value]:
        low, high, _ = self.scan(node)
        return [Value.integer(node.value(0).shape, Requant.of(node).dtype, low, high)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        q = Requant.of(node)
        x, mul, add = (np.asarray(a).astype(np.int64) for a in inputs[:3])
        return [q.apply(x, mul, add).astype(q.dtype.numpy)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        _, _, wide = self.scan(node)
        x = ctx.input(0)
        if wide:
            ctx.note("the product needs 64-bit arithmetic")
        lower_elementwise(
            ctx, requant_kernel(x.dtype), [x, ctx.input(1), ctx.input(2)], ctx.output(0), _requant_params(x, Requant.of(node), wide)
        )

    def kernels(self) -> Sequence[Kernel]:
        return [requant_kernel(d) for d in (INT8, UINT8, INT32, INT64)]


@register
class RequantizedAdd(Operator):
    """requant(requant_a(a) + requant_b(b)): inputs a, b, mul_a, add_a, mul_b, add_b (absent: no requantisation of that input), mul, add.

    Attributes div_a, n_levels_a, signed_a, div_b, ..., div, n_levels, signed.
    """

    names = ("RequantizedAdd",)
    domains = (DOMAIN,)
    integer_format = True
    integer_slots = {slot: INT32 for slot in range(2, 8)}

    def _has(self, node: Node, side: int) -> bool:
        return node.optional(2 + 2 * side) is not None

    def problems(self, node: Node) -> list[Problem]:
        slots = [0, 1, 6, 7]
        found = requant_problems(node)
        for side, letter in enumerate("ab"):
            if self._has(node, side):
                slots += [2 + 2 * side, 3 + 2 * side]
                found += requant_problems(node, f"_{letter}")
        return _operand_problems(node, slots) + found

    def side(self, node: Node, side: int) -> tuple[int, int, bool]:
        """(low, high, wide) of one input after its own requantisation."""
        x = bounds(node.value(side))
        if not self._has(node, side):
            return *x, False
        pairs = table_pairs(node.value(2 + 2 * side), node.value(3 + 2 * side))
        return _checked_scan(node, Requant.of(node, f"_{'ab'[side]}"), x, pairs)

    def scan(self, node: Node) -> tuple[int, int, bool]:
        """(low, high, wide) of the sum's requantisation."""
        a, b = self.side(node, 0), self.side(node, 1)
        return _checked_scan(node, Requant.of(node), (a[0] + b[0], a[1] + b[1]), table_pairs(node.value(6), node.value(7)))

    def infer(self, node: Node) -> list[Value]:
        low, high, _ = self.scan(node)
        shape = broadcast_shape(node, [node.value(0), node.value(1)])
        return [Value.integer(shape, Requant.of(node).dtype, low, high)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        def wide(slot: int) -> np.ndarray:
            return np.asarray(inputs[slot]).astype(np.int64)

        total: np.ndarray | int = 0
        for side, letter in enumerate("ab"):
            part = wide(side)
            if self._has(node, side):
                part = Requant.of(node, f"_{letter}").apply(part, wide(2 + 2 * side), wide(3 + 2 * side))
            total = total + part
        q = Requant.of(node)
        return [q.apply(np.asarray(total), wide(6), wide(7)).astype(q.dtype.numpy)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        output = ctx.output(0)
        ranges = [self.side(node, side) for side in (0, 1)]
        beyond = any(low < INT32.lo or high > INT32.hi for low, high, _ in ranges)
        sides = [self._lower_side(node, ctx, side, own_step=beyond) for side in (0, 1)]
        tensors = [tensor for tensor, _ in sides]
        q = Requant.of(node)
        _, _, wide = self.scan(node)
        tables = [ctx.input(6), ctx.input(7)]
        if beyond:
            self._lower_wide(ctx, tensors, tables, output, q, wide)
            return
        params = [p for _, own in sides for p in own]
        params += [Param("shift", q.shift), Param("lo", q.lo), Param("hi", q.hi), Param("wide", int(wide))]
        fast = all(t.dtype == INT8 for t in tensors)
        lower_elementwise(ctx, _ADD_FAST if fast else _ADD_ANY, [*tensors, *tables], output, params)

    def _lower_side(self, node: Node, ctx: Lowering, side: int, own_step: bool) -> tuple[Tensor, list[Param]]:
        """The tensor to add and its fields of the constant struct; tables that are not one number each take their own step."""
        letter = "ab"[side]
        x = ctx.input(side)
        low, high, wide = self.side(node, side)
        mul, add, q = 1, 0, Requant(0, max(low, INT32.lo), min(high, INT32.hi))
        if self._has(node, side):
            values = node.value(2 + 2 * side), node.value(3 + 2 * side)
            own = Requant.of(node, f"_{letter}")
            numbers = [scalar_of(v) for v in values]
            if own_step or numbers[0] is None or numbers[1] is None:
                shape = tuple(int(n) for n in np.broadcast_shapes(x.shape, *(v.shape for v in values)))
                target = ctx.temporary(letter, shape, own.dtype)
                target.lo, target.hi = low, high
                inputs = [x, ctx.input(2 + 2 * side), ctx.input(3 + 2 * side)]
                lower_elementwise(ctx, requant_kernel(x.dtype), inputs, target, _requant_params(x, own, wide), suffix=letter)
                x, wide = target, False
            else:
                mul, add, q = numbers[0], numbers[1], own
        fields = {"type": TYPE_CODES[x.dtype], "mul": mul, "add": add, "shift": q.shift, "lo": q.lo, "hi": q.hi, "wide": int(wide)}
        return x, [Param(f"{name}_{letter}", value) for name, value in fields.items()]

    def _lower_wide(
        self, ctx: Lowering, tensors: Sequence[Tensor], tables: Sequence[Tensor], output: Tensor, q: Requant, wide: bool
    ) -> None:
        """Sums beyond 32 bits: an addition in 64 bits, then a requantisation.

        Only an input without a requantisation of its own can be that wide; requantised inputs have had a step of their own.
        """
        total = ctx.temporary("sum", output.shape, INT64)
        x, y = tensors
        lower_elementwise(ctx, integer_kernel("add", 16.0), [x, y], total, integer_params(x.dtype, y.dtype, INT64), suffix="sum")
        lower_elementwise(ctx, requant_kernel(INT64), [total, *tables], output, _requant_params(total, q, wide))

    def kernels(self) -> Sequence[Kernel]:
        return [_ADD_FAST, _ADD_ANY]
