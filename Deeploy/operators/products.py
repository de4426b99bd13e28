"""The geometry of matrix products: shapes, batch broadcasting, proven ranges, the numpy reference, and the step they become.

Iteration space (b0, b1, b2, m, n | k). Transposition, batch broadcasting and views are strides of the operands' dimensions; nothing is
copied unless a view leaves more than three batch axes that cannot be joined.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from Deeploy.errors import Problem
from Deeploy.operators.accumulation import Accumulated, Span, align, dim, exact_integers, finish_sum, free_sum, weighted_sum
from Deeploy.operators.base import Node, Value, bounds
from Deeploy.operators.broadcasting import broadcasts
from Deeploy.operators.lowering import Lowering
from Deeploy.program.dtypes import FLOAT32, DType
from Deeploy.program.step import Access, Axis, AxisKind, DimMap, Kernel, KernelCall, Operand, Param
from Deeploy.program.tensor import Tensor

BATCH_AXES = 3
"""Batch axes of the kernels."""


@dataclass(frozen=True)
class Product:
    """The shape of a product: y[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n].

    vector_a, vector_b: a 1-D operand, whose row or column axis is missing in y.
    """

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    vector_a: bool = False
    vector_b: bool = False
    trans_a: bool = False
    trans_b: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Of y."""
        return (*self.batch, *(() if self.vector_a else (self.m,)), *(() if self.vector_b else (self.n,)))

    def matrix_a(self, shape_or_strides: Sequence[int], missing: int) -> tuple[int, ...]:
        """A shape or the strides of a, as (batch..., m, k)."""
        found = (missing, *shape_or_strides) if self.vector_a else tuple(shape_or_strides)
        return (*found[:-2], found[-1], found[-2]) if self.trans_a else found

    def matrix_b(self, shape_or_strides: Sequence[int], missing: int) -> tuple[int, ...]:
        """The same for b, as (batch..., k, n)."""
        found = (*shape_or_strides, missing) if self.vector_b else tuple(shape_or_strides)
        return (*found[:-2], found[-1], found[-2]) if self.trans_b else found

    def full(self, of_output: Sequence[int], missing: int) -> tuple[int, ...]:
        """A shape or strides per axis of y, with the missing row and column axes put in."""
        count = len(self.batch)
        rest = list(of_output[count:])
        m = missing if self.vector_a else rest.pop(0)
        n = missing if self.vector_b else rest.pop(0)
        return (*of_output[:count], m, n)

    def array_a(self, array: np.ndarray) -> np.ndarray:
        array = array[None, :] if self.vector_a else array
        return array.swapaxes(-1, -2) if self.trans_a else array

    def array_b(self, array: np.ndarray) -> np.ndarray:
        array = array[:, None] if self.vector_b else array
        return array.swapaxes(-1, -2) if self.trans_b else array


def product_of(node: Node, a: Sequence[int], b: Sequence[int]) -> Product | Problem:
    """The product of operands of those shapes, or what is wrong with them."""
    gemm = node.op in ("Gemm", "RequantizedGemm")
    least = 2 if gemm else 1
    if len(a) < least or len(b) < least:
        return node.problem(f"operands of rank {len(a)} and {len(b)}", f"at least {least} is needed")
    trans_a, trans_b = gemm and bool(node.int("transA", 0)), gemm and bool(node.int("transB", 0))
    blank = Product((), 1, 1, 1, len(a) == 1, len(b) == 1, trans_a, trans_b)
    full_a, full_b = blank.matrix_a(a, 1), blank.matrix_b(b, 1)
    if full_a[-1] != full_b[-2]:
        return node.problem(f"operands of shapes {tuple(a)} and {tuple(b)} do not multiply", f"{full_a[-1]} is not {full_b[-2]}")
    try:
        batch = np.broadcast_shapes(full_a[:-2], full_b[:-2])
    except ValueError:
        return node.problem(f"the batch axes of {tuple(a)} and {tuple(b)} do not broadcast")
    return Product(tuple(batch), full_a[-2], full_b[-1], full_a[-1], blank.vector_a, blank.vector_b, trans_a, trans_b)


def checked(node: Node) -> Product:
    found = product_of(node, node.value(0).shape, node.value(1).shape)
    assert isinstance(found, Product), found
    return found


def _pattern_axes(product: Product, batches: Sequence[Sequence[int]]) -> int:
    """How many batch axes remain if axes are joined wherever each operand is dense or broadcast alike. batches: shapes of batch axes."""
    count = len(product.batch)
    aligned = [[1] * (count - len(shape)) + list(shape) for shape in batches]
    patterns = [tuple(shape[axis] != 1 for shape in aligned) for axis in range(count) if product.batch[axis] != 1]
    return sum(1 for i, pattern in enumerate(patterns) if i == 0 or pattern != patterns[i - 1])


def accumulated(
    node: Node, bias: Value | None, alpha: int = 1, beta: int = 1, zeros: tuple[Value | None, Value | None] = (None, None)
) -> Accumulated:
    """Ranges of an integer product; per column (row) where b (a) is constant and there are no zero points."""
    product = checked(node)
    a, b = node.value(0), node.value(1)
    if any(z is not None for z in zeros):
        left, right = (_shifted(v, z) for v, z in zip((a, b), zeros, strict=True))
        exact, partial = (free_sum(product.k, left, right, zero) for zero in (False, True))
    elif b.constant is not None and b.constant.size:
        exact, partial = (weighted_sum(product.array_b(b.constant), (-2,), bounds(a), zero) for zero in (False, True))
        exact, partial = _like_output(exact, product), _like_output(partial, product)
    elif a.constant is not None and a.constant.size:
        exact, partial = (weighted_sum(product.array_a(a.constant), (-1,), bounds(b), zero) for zero in (False, True))
        exact, partial = _like_output(exact, product), _like_output(partial, product)
    else:
        exact, partial = (free_sum(product.k, bounds(a), bounds(b), zero) for zero in (False, True))
    return finish_sum(exact, partial, bias, alpha, beta)


def _shifted(value: Value, zero: Value | None) -> tuple[int, int]:
    """The range of a value less its zero point."""
    lo, hi = bounds(value)
    z_lo, z_hi = (0, 0) if zero is None else bounds(zero)
    return lo - z_hi, hi - z_lo


def _like_output(span: Span, product: Product) -> Span:
    """A span at (batch..., m, n) without the row and column axes that the output does not have."""
    lo, hi = span.lo, span.hi
    for gone, axis in ((product.vector_b, -1), (product.vector_a, -1 if product.vector_b else -2)):
        if gone:
            lo, hi = lo.min(axis=axis), hi.max(axis=axis)
    return Span.of(lo, hi)


def common_problems(node: Node, bias: Value | None, tables: Sequence[Value | None] = ()) -> list[Problem]:
    """Shapes, types and batch axes of any product; tables: further operands that broadcast to the output."""
    a, b = node.value(0), node.value(1)
    product = product_of(node, a.shape, b.shape)
    if isinstance(product, Problem):
        return [product]
    found = []
    if product.k == 0:
        found.append(node.problem("the common axis has length 0", "there is nothing to add up", "remove the node"))
    batches = [product.matrix_a(a.shape, 1)[:-2], product.matrix_b(b.shape, 1)[:-2]]
    for value in (bias, *tables):
        if value is None:
            continue
        if not broadcasts(value.shape, product.shape):
            what = f"an operand of shape {value.shape} does not broadcast to {product.shape}"
            found.append(node.problem(what, remedy="give it the shape of the output, or of its last axes"))
            continue
        padded = (*(1,) * (len(product.shape) - len(value.shape)), *value.shape)
        batches.append(product.full(padded, 1)[:-2])
    if _pattern_axes(product, batches) > BATCH_AXES:
        what = f"batch axes {product.batch} of {a.shape} and {b.shape} cannot be joined to {BATCH_AXES}"
        found.append(node.problem(what, "they are broadcast alternately", "expand one operand or reshape the batch axes"))
    values = [v for v in (a, b, bias) if v is not None]
    if not (all(v.dtype is FLOAT32 for v in values) or all(v.dtype.is_integer for v in values)):
        types = ", ".join(str(v.dtype) for v in values)
        found.append(node.problem(f"operand types {types} do not go together", "all are float32 or all are integers", "cast them"))
    return found


def multiply(product: Product, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum: int64 for integers (wrapping), float64 for floats (one chain of additions, so no machine's library decides a byte)."""
    a, b = product.array_a(a), product.array_b(b)
    if a.dtype.kind != "f" and exact_integers(product.k, a, b):
        total = np.rint(np.matmul(a.astype(np.float64), b.astype(np.float64))).astype(np.int64)
    else:
        working = np.float64 if a.dtype.kind == "f" else np.int64
        left, right = a.astype(working), b.astype(working)
        total = np.zeros((*product.batch, product.m, product.n), working)
        for k in range(product.k):
            total += left[..., :, k, None] * right[..., None, k, :]
    return total.reshape(product.shape)


# ---- lowering -------------------------------------------------------------------------------------------------------------------------


def _join(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Batch axes with those sizes and strides[operand][axis], the fewest: length 1 dropped, neighbours joined where no operand jumps."""
    kept: list[int] = []
    moves: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(sizes):
        if size == 1:
            continue
        if kept and all(m[-1] == s[axis] * size for m, s in zip(moves, strides, strict=True)):
            kept[-1] *= size
            for m, s in zip(moves, strides, strict=True):
                m[-1] = s[axis]
            continue
        kept.append(size)
        for m, s in zip(moves, strides, strict=True):
            m.append(s[axis])
    return kept, moves


@dataclass(frozen=True)
class Along:
    """An operand that broadcasts to the output. per_row: it is a vector of one value per row (m), not per column."""

    tensor: Tensor
    per_row: bool = False

    def strides(self, product: Product) -> tuple[int, ...]:
        """At (batch..., m, n)."""
        if self.per_row:
            return (*(0,) * len(product.batch), self.tensor.strides[0], 0)
        return product.full(align(self.tensor, product.shape), 0)


@dataclass(frozen=True)
class _Space:
    """Joined batch axes and rows: their sizes, and the strides of every operand along them (y, a, b, then those along the output)."""

    batch: list[int]
    moves: list[list[int]]
    m: int
    rows: list[int]


def _space(product: Product, tensors: Sequence[Tensor], along: Sequence[Along]) -> _Space:
    """tensors: y, a, b."""
    y, a, b = tensors
    count = len(product.batch)
    full_y = product.full(y.strides, 0)
    full_a, full_b = product.matrix_a(a.strides, 0), product.matrix_b(b.strides, 0)
    shape_a, shape_b = product.matrix_a(a.shape, 1), product.matrix_b(b.shape, 1)

    def batch(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
        missing = count + 2 - len(shape)
        return [0] * missing + [0 if n == 1 else s for n, s in zip(shape[:-2], strides[:-2], strict=True)]

    extra = [o.strides(product) for o in along]
    strides = [list(full_y[:count]), batch(shape_a, full_a), batch(shape_b, full_b), *(list(e[:count]) for e in extra)]
    rows = [full_y[-2], full_a[-2], 0, *(e[-2] for e in extra)]
    sizes, moves = _join(product.batch, strides)
    m = product.m
    # The innermost batch axis is more rows where b does not change along it.
    if sizes and moves[2][-1] == 0 and (m == 1 or all(move[-1] == row * m for move, row in zip(moves, rows, strict=True))):
        last = [move.pop() for move in moves]
        rows = last if m == 1 else rows
        m *= sizes.pop()
    return _Space(sizes, moves, m, rows)


def _operands(product: Product, space: _Space, tensors: Sequence[Tensor], along: Sequence[Along]) -> list[Operand]:
    y, a, b = tensors
    lead = BATCH_AXES - len(space.batch)
    sizes = [1] * lead + space.batch

    def batch(which: int, written: bool = False) -> list[DimMap]:
        moves = [0] * lead + space.moves[which]
        return [DimMap(n, s, ((i, 1),)) if written else dim(n, s, (i, 1)) for i, (n, s) in enumerate(zip(sizes, moves, strict=True))]

    m, n, k = 3, 4, 5
    y_dims = [*batch(0, True), DimMap(space.m, space.rows[0], ((m, 1),)), DimMap(product.n, product.full(y.strides, 0)[-1], ((n, 1),))]
    a_dims = [*batch(1), dim(space.m, space.rows[1], (m, 1)), dim(product.k, product.matrix_a(a.strides, 0)[-1], (k, 1))]
    b_strides = product.matrix_b(b.strides, 0)
    b_dims = [*batch(2), dim(product.k, b_strides[-2], (k, 1)), dim(product.n, b_strides[-1], (n, 1))]
    found = [Operand(y, Access.WRITE, tuple(y_dims)), Operand(a, Access.READ, tuple(a_dims)), Operand(b, Access.READ, tuple(b_dims))]
    for i, other in enumerate(along, 3):
        dims = [*batch(i), dim(space.m, space.rows[i], (m, 1)), dim(product.n, other.strides(product)[-1], (n, 1))]
        found.append(Operand(other.tensor, Access.READ, tuple(dims)))
    return found


def emit(
    ctx: Lowering,
    product: Product,
    kernel: Kernel,
    accumulator: DType,
    along: Mapping[str, Along | None],
    numbers: Sequence[tuple[str, int | float]],
) -> None:
    """Makes the step of inputs 0 and 1. along: operands that broadcast to the output, by the name of the struct's field that holds their
    slot; numbers: the struct's fields in order, in which those slots are filled in."""
    present = {name: other for name, other in along.items() if other is not None}
    tensors, others = [ctx.output(0), ctx.input(0), ctx.input(1)], list(present.values())
    space = _space(product, tensors, others)
    if len(space.batch) > BATCH_AXES:
        tensors = [tensors[0], ctx.dense(tensors[1]), ctx.dense(tensors[2])]
        others = [Along(ctx.dense(o.tensor), o.per_row) for o in others]
        space = _space(product, tensors, others)
    axes = [Axis(f"b{i}", size) for i, size in enumerate([1] * (BATCH_AXES - len(space.batch)) + space.batch)]
    axes += [Axis("m", space.m), Axis("n", product.n), Axis("k", product.k, AxisKind.REDUCED)]
    operands = _operands(product, space, tensors, others)
    slots: dict[str, int | float] = {name: 3 + i for i, name in enumerate(present)}
    params = tuple(Param(name, slots.get(name, value)) for name, value in numbers)
    call = KernelCall(kernel, tuple(range(len(operands))), tuple(range(len(axes))), params)
    ctx.step(axes, operands, [call], accumulator=accumulator, macs=math.prod(a.size for a in axes))
