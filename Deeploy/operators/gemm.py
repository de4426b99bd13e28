"""Matrix products: Gemm, MatMul, MatMulInteger, and the requantised forms that passes make of them. One step per node (see products.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from Deeploy.errors import Problem
from Deeploy.operators.accumulation import NARROW, Accumulated
from Deeploy.operators.base import DOMAIN, Node, Operator, Value, register
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.products import Along, accumulated, checked, common_problems, emit, multiply
from Deeploy.operators.requantisation import Requant, requant_params
from Deeploy.program.dtypes import FLOAT32, INT8, INT32, INT64, TYPE_CODES, UINT8, DType
from Deeploy.program.step import Kernel

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

_SYMBOLS = {f"dp_gemm_{a}_{b}": 10.0 for a in NARROW.values() for b in NARROW.values()}
KERNELS = {
    **{s: Kernel(s, "gemm.c", "dp_gemm_cst", cycles, splits_reduction=True) for s, cycles in {**_SYMBOLS, "dp_gemm_any": 30.0}.items()},
    "dp_gemm_f32": Kernel("dp_gemm_f32", "gemm.c", "dp_gemm_f32_cst", 8.0, splits_reduction=True),
}
INTEGER_KERNELS = tuple(k for s, k in KERNELS.items() if s != "dp_gemm_f32")


def _scale_problems(node: Node) -> list[Problem]:
    """alpha and beta of integer products."""
    if node.value(0).dtype.is_float:
        return []
    return [
        node.problem(f"{node.float(name)} is not a whole number", "the operands are integers", "fold the factor into the weights", name)
        for name in ("alpha", "beta")
        if node.has(name) and node.float(name) != int(node.float(name))
    ]


def _lower_float(node: Node, ctx: Lowering, addend: int | None) -> None:
    """addend: input slot of c."""
    alpha, beta = (float(node.float(name, 1.0)) for name in ("alpha", "beta"))
    c = None if addend is None or beta == 0.0 else ctx.optional(addend)
    numbers: list[tuple[str, int | float]] = [("c", -1), ("alpha", alpha), ("beta", beta)]
    emit(ctx, checked(node), KERNELS["dp_gemm_f32"], FLOAT32, {"c": None if c is None else Along(c)}, numbers)


def _lower_integer(
    node: Node,
    ctx: Lowering,
    ranges: Accumulated,
    addend: int | None = None,
    requant: Requant | None = None,
    zeros: tuple[Along | None, Along | None] = (None, None),
    scale: tuple[int, int] = (1, 1),
) -> None:
    """addend: input slot of c; mul and add of a requantised form are at slots 3 and 4."""
    a, b = ctx.input(0), ctx.input(1)
    c = None if addend is None or scale[1] == 0 else ctx.optional(addend)
    narrow = a.dtype in NARROW and b.dtype in NARROW and zeros == (None, None) and ranges.fits(INT32)
    wide = requant is not None and not requant.fits(ranges.result, node.value(3), node.value(4), INT32)
    kernel = KERNELS[f"dp_gemm_{NARROW[a.dtype]}_{NARROW[b.dtype]}" if narrow else "dp_gemm_any"]
    along = {
        "c": None if c is None else Along(c),
        "mul": Along(ctx.input(3)) if requant else None,
        "add": Along(ctx.input(4)) if requant else None,
        "a_zero": zeros[0],
        "b_zero": zeros[1],
    }
    numbers: list[tuple[str, int | float]] = [
        ("alpha64", scale[0]),
        ("beta64", scale[1]),
        ("a_type", TYPE_CODES[a.dtype]),
        ("b_type", TYPE_CODES[b.dtype]),
        ("c_type", 0 if c is None else TYPE_CODES[c.dtype]),
        ("y_type", TYPE_CODES[ctx.output(0).dtype]),
        *((f"{side}_zero_type", 0 if z is None else TYPE_CODES[z.tensor.dtype]) for side, z in zip("ab", zeros, strict=True)),
        *((name, -1) for name in along),
        *requant_params(requant, wide),
    ]
    emit(ctx, checked(node), kernel, INT32 if narrow else INT64, along, numbers)


class _Product(Operator):
    """What all products of this file do alike: y = alpha * a b + beta * c, requantised or not.

    addend: input slot of c; requantised: whether mul and add follow at slots 3 and 4.
    """

    addend: ClassVar[int | None] = None
    requantised: ClassVar[bool] = False

    def _scale(self, node: Node) -> tuple[int, int]:
        """alpha and beta of an integer product."""
        return node.int("alpha", 1), node.int("beta", 1)

    def _bias(self, node: Node) -> Value | None:
        return None if self.addend is None else node.optional(self.addend)

    def _ranges(self, node: Node) -> Accumulated:
        return accumulated(node, self._bias(node), *self._scale(node))

    def problems(self, node: Node) -> list[Problem]:
        tables = (node.optional(3), node.optional(4)) if self.requantised else ()
        found = common_problems(node, self._bias(node), tables) + _scale_problems(node)
        floats = node.value(0).dtype.is_float
        if self.requantised:
            found += Requant.problems(node, 3, 4)
            if not found and floats:
                found.append(node.problem("a float product cannot be requantised"))
        if found or floats or not (node.integers or self.requantised):
            return found
        ranges = self._ranges(node)
        if not ranges.fits(INT64):
            found.append(node.problem("the sum may leave 64 bits", f"its range is {ranges.result.total}", "use narrower operands"))
        elif self.requantised and not Requant.of(node).fits(ranges.result, node.value(3), node.value(4), INT64):
            found.append(node.problem("requantisation may leave 64 bits", remedy="use smaller mul and add"))
        return found

    def infer(self, node: Node) -> list[Value]:
        shape, dtype = checked(node).shape, node.value(0).dtype
        if dtype.is_float:
            return [Value(shape, FLOAT32)]
        result = self._ranges(node).result
        if self.requantised:
            requant = Requant.of(node)
            return [Value.integer(shape, requant.dtype, *requant.range(result, node.value(3), node.value(4)))]
        if node.integers:
            dtype = INT32 if result.fits(INT32) else INT64
        return [Value.integer(shape, dtype, *(result.total if result.fits(dtype) else (dtype.lo, dtype.hi)))]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        a, b = inputs[0], inputs[1]
        assert a is not None and b is not None
        c = inputs[self.addend] if self.addend is not None and len(inputs) > self.addend else None
        with np.errstate(all="ignore"):
            total = multiply(checked(node), a, b)
            floats = total.dtype.kind == "f"
            alpha, beta = (float(np.float32(node.float(n, 1.0))) for n in ("alpha", "beta")) if floats else self._scale(node)
            total = total * total.dtype.type(alpha)
            if c is not None and beta != 0:
                total = total + total.dtype.type(beta) * c.astype(total.dtype)
            if self.requantised:
                mul, add = inputs[3], inputs[4]
                assert mul is not None and add is not None
                return [Requant.of(node).reference(total, mul, add)]
            return [np.asarray(total).astype(self.infer(node)[0].dtype.numpy)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        if node.value(0).dtype.is_float:
            _lower_float(node, ctx, self.addend)
            return
        requant = Requant.of(node) if self.requantised else None
        _lower_integer(node, ctx, self._ranges(node), self.addend, requant, scale=self._scale(node))

    def kernels(self) -> Sequence[Kernel]:
        return INTEGER_KERNELS if self.requantised else tuple(KERNELS.values())


@register
class Gemm(_Product):
    """ai.onnx Gemm; operands of more than two axes are products of their last two, as Deeploy-format networks use it."""

    names = ("Gemm",)
    domains = ("",)
    addend = 2
    integer_slots: ClassVar[Mapping[int, DType]] = {2: INT32}
    channel_axis = -1

    def normalise(self, node: gs.Node, opset: int) -> None:
        node.attrs.pop("broadcast", None)  # before opset 7; newer ones always broadcast c


@register
class MatMul(_Product):
    """ai.onnx MatMul."""

    names = ("MatMul",)
    domains = ("",)
    channel_axis = -1

    def _scale(self, node: Node) -> tuple[int, int]:
        return 1, 1


@register
class RequantizedGemm(_Product):
    """Gemm and RequantShift: a, b, c or absent, mul, add; attributes of Gemm and div, n_levels, signed."""

    names = ("RequantizedGemm",)
    domains = (DOMAIN,)
    addend = 2
    requantised = True
    integer_slots: ClassVar[Mapping[int, DType]] = {2: INT32, 3: INT32, 4: INT32}


@register
class RequantizedMatMul(_Product):
    """MatMul, perhaps Add of a constant, and RequantShift: a, b, bias or absent, mul, add; attributes div, n_levels, signed."""

    names = ("RequantizedMatMul",)
    domains = (DOMAIN,)
    addend = 2
    requantised = True
    integer_slots: ClassVar[Mapping[int, DType]] = {2: INT32, 3: INT32, 4: INT32}

    def _scale(self, node: Node) -> tuple[int, int]:
        return 1, 1


@register
class MatMulInteger(Operator):
    """ai.onnx MatMulInteger: (a - a_zero)(b - b_zero) in int32. a_zero: one value or one per row; b_zero: one value or one per column."""

    names = ("MatMulInteger",)
    domains = ("",)
    channel_axis = -1

    @staticmethod
    def _zero(node: Node, slot: int) -> Value | None:
        """The zero point, None if it is absent or known to be 0."""
        value = node.optional(slot)
        if value is None or (value.constant is not None and not np.any(value.constant)):
            return None
        return value

    def _ranges(self, node: Node) -> Accumulated:
        return accumulated(node, None, zeros=(self._zero(node, 2), self._zero(node, 3)))

    def problems(self, node: Node) -> list[Problem]:
        a, b = node.value(0), node.value(1)
        zeros = (node.optional(2), node.optional(3))
        for value, zero in zip((a, b), zeros, strict=True):
            if value.dtype not in (INT8, UINT8):
                return [node.problem(f"an operand is {value.dtype}", "operands are int8 or uint8")]
            if zero is not None and not zero.dtype.is_integer:
                return [node.problem(f"a zero point is {zero.dtype}", "zero points have the operands' types")]
        rows = zeros[0]
        if rows is not None and rows.rank == 1 and rows.elements > 1 and rows.shape != (a.shape[-2] if a.rank > 1 else 1,):
            return [node.problem(f"a_zero_point has shape {rows.shape}", "one value or one per row is needed")]
        along = [z for z in (None if rows is None or rows.rank == 1 else rows, zeros[1]) if z is not None]
        return common_problems(node, None, along)

    def infer(self, node: Node) -> list[Value]:
        result = self._ranges(node).result
        return [Value.integer(checked(node).shape, INT32, *(result.total if result.fits(INT32) else (INT32.lo, INT32.hi)))]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        a, b = (np.asarray(x, np.int64) for x in inputs[:2])
        a_zero, b_zero = (inputs[i].astype(np.int64) if len(inputs) > i and inputs[i] is not None else None for i in (2, 3))  # type: ignore[union-attr]
        if a_zero is not None:
            a = a - (a_zero[:, None] if a_zero.ndim == 1 and a_zero.size > 1 else a_zero)
        if b_zero is not None:
            b = b - (b_zero.reshape(()) if b_zero.size == 1 else b_zero)
        return [multiply(checked(node), a, b).astype(np.int32)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        zeros = []
        for slot in (2, 3):
            tensor = None if self._zero(node, slot) is None else ctx.input(slot)
            per_row = slot == 2 and tensor is not None and len(tensor.shape) == 1 and tensor.shape[0] > 1
            zeros.append(None if tensor is None else Along(tensor, per_row))
        _lower_integer(node, ctx, self._ranges(node), zeros=(zeros[0], zeros[1]))

    def kernels(self) -> Sequence[Kernel]:
        return INTEGER_KERNELS
