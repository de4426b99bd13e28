"""RequantShift, and the merged RequantizedAdd: y = clamp((x * mul + add + half) >> shift), see semantics of RequantShift.

Tables (mul, add) broadcast numpy-style against the output; a pass brings those of the file to such shapes before anything is lowered.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from Deeploy.errors import ModelError, Problem
from Deeploy.operators.accumulation import Span
from Deeploy.operators.arithmetic import integer_kernel, integer_params
from Deeploy.operators.base import DOMAIN, Node, Operator, Value, bounds, register
from Deeploy.operators.elementwise import broadcast_shape, lower_elementwise
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.requantisation import Requant
from Deeploy.program.dtypes import INT8, INT32, INT64, TYPE_CODES, UINT8, DType
from Deeploy.program.step import Kernel, Param
from Deeploy.program.tensor import Tensor


def requant_kernel(dtype: DType) -> Kernel:
    """The kernel for x of that type."""
    special = dtype.short in ("i8", "u8", "i32")
    return Kernel(
        f"dp_requant_{dtype.short if special else 'int'}", "requant.c", "dp_requant_cst", cycles_per_point=8.0 if special else 16.0
    )


_ADD_FAST = Kernel("dp_requantized_add_i8_i8", "requant.c", "dp_requantized_add_cst", cycles_per_point=20.0)
_ADD_ANY = Kernel("dp_requantized_add_int", "requant.c", "dp_requantized_add_cst", cycles_per_point=32.0)


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
    return Param("type", TYPE_CODES[x.dtype]), *(Param(name, value) for name, value in q.fields(wide))


def _scan(node: Node, q: Requant, x: tuple[int, int], mul: Value, add: Value) -> tuple[int, int, bool]:
    """(lowest, highest result, whether 64 bits are needed) for x in that range; ModelError if they are not enough."""
    span = Span.of(*x)
    if not q.fits(span, mul, add, INT64):
        what = f"x * mul + add does not fit 64 bits for x in [{x[0]}, {x[1]}]"
        raise ModelError(node.problem(what, remedy="requantise its input earlier"))
    return *q.range(span, mul, add), not q.fits(span, mul, add, INT32)


@register
class RequantShift(Operator):
    """Requantisation to 8 bits, rounding half up. 32-bit arithmetic where the ranges prove it wide enough, else 64-bit."""

    names = ("RequantShift",)
    integer_format = True
    integer_slots = {1: INT32, 2: INT32}
    keeps_axes = True
    table_slots = (1, 2)

    def problems(self, node: Node) -> list[Problem]:
        return _operand_problems(node, (0,)) + Requant.problems(node, 1, 2)

    def scan(self, node: Node) -> tuple[int, int, bool]:
        """(lowest, highest result, whether 64 bits are needed)."""
        return _scan(node, Requant.of(node), bounds(node.value(0)), node.value(1), node.value(2))

    def infer(self, node: Node) -> list[Value]:
        low, high, _ = self.scan(node)
        return [Value.integer(node.value(0).shape, Requant.of(node).dtype, low, high)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x, mul, add = (np.asarray(a) for a in inputs[:3])
        return [Requant.of(node).reference(x, mul, add)]

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
        found = _operand_problems(node, (0, 1)) + Requant.problems(node, 6, 7)
        for side, letter in enumerate("ab"):
            if self._has(node, side):
                found += Requant.problems(node, 2 + 2 * side, 3 + 2 * side, f"_{letter}")
        return found

    def side(self, node: Node, side: int) -> tuple[int, int, bool]:
        """(low, high, wide) of one input after its own requantisation."""
        x = bounds(node.value(side))
        if not self._has(node, side):
            return *x, False
        return _scan(node, Requant.of(node, f"_{'ab'[side]}"), x, node.value(2 + 2 * side), node.value(3 + 2 * side))

    def scan(self, node: Node) -> tuple[int, int, bool]:
        """(low, high, wide) of the sum's requantisation."""
        a, b = self.side(node, 0), self.side(node, 1)
        return _scan(node, Requant.of(node), (a[0] + b[0], a[1] + b[1]), node.value(6), node.value(7))

    def infer(self, node: Node) -> list[Value]:
        low, high, _ = self.scan(node)
        shape = broadcast_shape(node, [node.value(0), node.value(1)])
        return [Value.integer(shape, Requant.of(node).dtype, low, high)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        arrays = [None if a is None else np.asarray(a).astype(np.int64) for a in inputs]

        def requantised(x: np.ndarray, slot: int, suffix: str) -> np.ndarray:
            mul, add = arrays[slot], arrays[slot + 1]
            assert mul is not None and add is not None
            return Requant.of(node, suffix).reference(x, mul, add)

        total = np.zeros((), np.int64)
        for side, letter in enumerate("ab"):
            part = arrays[side]
            assert part is not None
            total = total + (requantised(part, 2 + 2 * side, f"_{letter}") if self._has(node, side) else part)
        return [requantised(total, 6, "")]

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
        params += [Param(name, value) for name, value in q.fields(wide)]
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
        fields = {"type": TYPE_CODES[x.dtype], "mul": mul, "add": add, **dict(q.fields(wide))}
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
