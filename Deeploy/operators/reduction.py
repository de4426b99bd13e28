"""Reductions over any set of axes (sums, means, extremes, products, norms), IntegerMean, ArgMax and ArgMin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from Deeploy.errors import ModelError, Problem
from Deeploy.operators.base import Exactness, Node, Operator, Value, bounds, register
from Deeploy.operators.broadcasting import merge_axes
from Deeploy.operators.elementwise import truncating_division
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.softmax import axis_problems, checked_axis
from Deeploy.operators.views import join_axes, reduced_axes, strided_operand
from Deeploy.program.dtypes import BOOL, FLOAT32, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, DType
from Deeploy.program.step import MAX_RANK, Access, Axis, Kernel, KernelCall, Param
from Deeploy.program.tensor import Tensor

NARROW = (INT8, UINT8, INT16, UINT16, INT32)
WIDE = (*NARROW, UINT32, INT64)
COMMON = ("sum", "max", "min")
FAMILIES = (*COMMON, "sumsq", "sumabs", "prod")
PLAIN, MEAN, ROOT, LOG, TRUNCATED = range(5)
"""What is done with the accumulated value: DP_REDUCE_* in reduce.h."""


def _kernel(family: str, source: DType, accumulator: DType) -> Kernel:
    suffix = "f32" if source.is_float else f"{source.short}_{accumulator.short}"
    cycles = 4.0 if accumulator.size == 4 else 8.0
    return Kernel(f"dp_reduce_{family}_{suffix}", "reduce.c", "dp_reduce_cst", cycles, splits_reduction=True)


REDUCE = {(family, FLOAT32, FLOAT32): _kernel(family, FLOAT32, FLOAT32) for family in FAMILIES}
REDUCE |= {(family, t, INT32): _kernel(family, t, INT32) for family in COMMON for t in NARROW}
REDUCE |= {(family, t, INT64): _kernel(family, t, INT64) for family in FAMILIES for t in WIDE}
"""Kernel by (what is accumulated, input type, accumulator type)."""
ARG = {t: Kernel(f"dp_arg_{t.short}", "reduce.c", "dp_arg_cst", 4.0) for t in (FLOAT32, *WIDE)}


def stored_as(dtype: DType) -> DType:
    """The type whose kernels read it: booleans are bytes."""
    return UINT8 if dtype == BOOL else dtype


class _Reduce(Operator):
    """Attributes in the internal form: axes, keepdims, noop_with_empty_axes.

    family: what is accumulated; finish: what is done with it (float).
    """

    static_inputs = ((1, "axes"),)
    domains: ClassVar[tuple[str, ...] | None] = ("",)
    family = "sum"
    finish = PLAIN
    floats_only = False
    noop_is_identity = True

    def problems(self, node: Node) -> list[Problem]:
        x = node.value(0)
        try:
            axes = self._axes(node)
        except ModelError as error:
            return list(error.problems)
        problems = []
        allowed = (FLOAT32,) if self.floats_only else (FLOAT32, *WIDE, *((BOOL,) if self.family in ("max", "min") else ()))
        if x.dtype not in allowed:
            problems.append(node.problem(f"the input has type {x.dtype}", f"kernels take {', '.join(t.name for t in allowed)}"))
        if not axes and node.int("noop_with_empty_axes", 0) and not self.noop_is_identity:
            problems.append(node.problem("an empty list of axes is not supported", attribute="noop_with_empty_axes"))
        count = math.prod(x.shape[a] for a in axes)
        if count == 0 and all(x.shape[d] for d in range(x.rank) if d not in axes):
            problems.append(
                node.problem("it reduces an axis of length 0", remedy="replace the node by its constant result", attribute="axes")
            )
        if count >= 1 << 31:
            problems.append(node.problem(f"it reduces {count} elements to one", "at most 2^31 - 1 are supported", attribute="axes"))
        return problems or self._width_problems(node)

    def _width_problems(self, node: Node) -> list[Problem]:
        """Sums that may leave 64 bits, where the result is meant to be exact: in the integer format, and of means in any network.

        Every partial sum is between 0 and a bound of the whole one.
        """
        x = node.value(0)
        exact = node.integers or self._is_mean()
        if x.dtype.is_float or not exact or (not self._axes(node) and node.int("noop_with_empty_axes", 0)):
            return []
        lo, hi = self._bounds(node)
        half = self._count(node) >> 1 if self._is_mean() and node.integers else 0
        if INT64.lo <= lo - half and hi + half <= INT64.hi:
            return []
        what = f"what it accumulates, in [{lo}, {hi}], may leave 64 bits"
        why = f"it reduces {self._count(node)} elements in {list(bounds(x))}"
        remedy = "requantise its input first" if node.integers else "use a narrower input type"
        return [node.problem(what, why, remedy)]

    def _axes(self, node: Node) -> tuple[int, ...]:
        """The reduced axes, ascending; () if it does nothing."""
        rank = node.value(0).rank
        axes = node.ints("axes", ())
        if not axes:
            return () if node.int("noop_with_empty_axes", 0) else tuple(range(rank))
        return tuple(sorted({checked_axis(node, a, rank) for a in axes}))

    def _shape(self, node: Node, keep: bool) -> tuple[int, ...]:
        axes = self._axes(node)
        return tuple(1 if d in axes else n for d, n in enumerate(node.value(0).shape) if keep or d not in axes)

    def _count(self, node: Node) -> int:
        return math.prod(node.value(0).shape[a] for a in self._axes(node))

    def _is_mean(self) -> bool:
        return self.finish == MEAN

    def _bounds(self, node: Node) -> tuple[int, int]:
        """Range of the exact integer result (of the sum, for a mean)."""
        lo, hi = bounds(node.value(0))
        count = self._count(node)
        largest = max(abs(lo), abs(hi))
        if self.family in ("max", "min"):
            return lo, hi
        if self.family == "sumsq":
            return 0, count * largest * largest
        if self.family == "sumabs":
            return 0, count * largest
        if self.family == "prod":
            peak = largest if largest <= 1 else largest ** min(count, 64)
            return (-peak if lo < 0 else 0), peak
        return count * lo, count * hi

    def infer(self, node: Node) -> list[Value]:
        x = node.value(0)
        shape = self._shape(node, bool(node.int("keepdims", 1)))
        if not self._axes(node) and node.int("noop_with_empty_axes", 0):
            return [replace(x, shape=shape, constant=None)]
        if x.dtype.is_float:
            return [Value(shape, FLOAT32)]
        lo, hi = bounds(x) if self._is_mean() else self._bounds(node)
        dtype = x.dtype
        if node.integers and not self._is_mean() and self.family not in ("max", "min"):
            dtype = INT32 if INT32.lo <= lo and hi <= INT32.hi else INT64
        if lo < dtype.lo or hi > dtype.hi:
            lo, hi = dtype.lo, dtype.hi
        return [Value.integer(shape, dtype, lo, hi)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x, out = np.asarray(inputs[0]), self.infer(node)[0]
        axes = self._axes(node)
        if not axes and node.int("noop_with_empty_axes", 0):
            return [x]
        if x.dtype.kind == "f":
            with np.errstate(divide="ignore", invalid="ignore"):
                y = self._accumulated(x.astype(np.float64), axes)
                y = (
                    y / self._count(node)
                    if self._is_mean()
                    else np.sqrt(y)
                    if self.finish == ROOT
                    else np.log(y)
                    if self.finish == LOG
                    else y
                )
        else:
            y = self._accumulated(x.astype(np.int64), axes)
            y = self._integer_mean(node, y) if self._is_mean() else y
        return [np.asarray(y).astype(out.dtype.numpy).reshape(out.shape)]

    def _accumulated(self, x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        with np.errstate(over="ignore"):
            if self.family in ("max", "min"):
                return (x.max if self.family == "max" else x.min)(axes)
            if self.family == "prod":
                return x.prod(axes)
            x = x * x if self.family == "sumsq" else np.abs(x) if self.family == "sumabs" else x
            return x.sum(axes)

    def _integer_mean(self, node: Node, total: np.ndarray) -> np.ndarray:
        """Integer format: half up for a power of two, else half away from zero. Otherwise toward zero."""
        count = self._count(node)
        if not node.integers:
            return truncating_division(total, np.asarray(count, np.int64))
        if count & (count - 1) == 0:
            return (total + (count >> 1)) >> (count.bit_length() - 1)
        return truncating_division(total + np.where(total >= 0, 1, -1) * (count >> 1), np.asarray(count, np.int64))

    def _accumulator(self, node: Node) -> DType:
        x = node.value(0)
        if x.dtype.is_float:
            return FLOAT32
        dtype = stored_as(x.dtype)
        if dtype not in NARROW or self.family not in COMMON:
            return INT64
        if self.family in ("max", "min"):
            return INT32
        lo, hi = self._bounds(node)
        half = self._count(node) if self._is_mean() else 0
        fits = INT32.lo <= lo - half and hi + half <= INT32.hi
        # A sum that wraps around in 32 bits wraps to the same narrow result.
        wraps = not self._is_mean() and self.infer(node)[0].dtype.size <= 4
        return INT32 if fits or wraps else INT64

    def _finish(self, node: Node) -> int:
        return TRUNCATED if self._is_mean() and not node.value(0).dtype.is_float and not node.integers else self.finish

    def lower(self, node: Node, ctx: Lowering) -> None:
        axes = self._axes(node)
        if not axes and node.int("noop_with_empty_axes", 0):
            x = ctx.input(0)
            ctx.view(0, x, x.shape, x.strides)
            return
        accumulator = self._accumulator(node)
        kernel = REDUCE[self.family, stored_as(node.value(0).dtype), accumulator]
        split_any = self.family in ("max", "min") or not accumulator.is_float
        finish = self._finish(node)
        reduction_step(node, ctx, kernel, ctx.input(0), ctx.output(0), axes, accumulator, finish=finish, split_any=split_any)

    def kernels(self) -> Sequence[Kernel]:
        return tuple(k for (family, t, _), k in REDUCE.items() if family == self.family and (t.is_float or not self.floats_only))


def reduction_step(
    node: Node,
    ctx: Lowering,
    kernel: Kernel,
    x: Tensor,
    y: Tensor,
    axes: Sequence[int],
    accumulator: DType = FLOAT32,
    *,
    finish: int = PLAIN,
    split_any: bool = False,
    suffix: str = "",
) -> None:
    """Makes the step y = reduction of x over `axes` with a kernel of REDUCE; y has those dimensions with length 1, or lacks them.

    split_any: whether any of the axes may be cut (not of floating-point sums: their order would depend on the tiles).
    """
    space = _reduction_space(x, y, axes, split_any) or _reduction_space(ctx.dense(x), y, axes, split_any)
    if space is None:
        raise ModelError(node.problem(f"it needs more than {MAX_RANK} loops", remedy="reduce the rank of its input"))
    rank, loops, operands = space
    params = (
        Param("rank", rank),
        Param("reduced", len(loops) - rank),
        Param("finish", finish),
        Param("count", math.prod(x.shape[a] for a in axes)),
        Param("out_bytes", y.dtype.size),
    )
    call = KernelCall(kernel, (0, 1), tuple(range(len(loops))), params)
    ctx.step(loops, operands, [call], accumulator=accumulator, macs=x.elements, suffix=suffix)


def _reduction_space(x: Tensor, y: Tensor, axes: Sequence[int], split_any: bool):  # noqa: ANN202
    """(parallel axes, all axes, operands x and y), or None if there are more than kernels take. y has or lacks the reduced dimensions."""
    kept = [d for d in range(len(x.shape)) if d not in axes]
    out = list(y.strides) if len(y.shape) == len(kept) else [y.strides[d] for d in kept]
    sizes, (outer, written) = merge_axes([x.shape[d] for d in kept], [[x.strides[d] for d in kept], out])
    ends, (inner,) = join_axes([x.shape[d] for d in axes], [[x.strides[d] for d in axes]])
    if not ends:
        ends, inner = [1], [0]
    if len(sizes) + len(ends) > MAX_RANK:
        return None
    loops = [Axis(f"p{i}", size) for i, size in enumerate(sizes)] + reduced_axes(ends, split_any)
    operands = [
        strided_operand(x, Access.READ, [*sizes, *ends], [*outer, *inner]),
        strided_operand(y, Access.WRITE, sizes, written),
    ]
    return len(sizes), loops, operands


@register
class ReduceSum(_Reduce):
    names = ("ReduceSum",)


@register
class ReduceMean(_Reduce):
    names = ("ReduceMean",)
    finish = MEAN


@register
class IntegerMean(_Reduce):
    """ReduceMean of the integer format under a name of its own."""

    names = ("IntegerMean",)
    domains = None
    integer_format = True
    finish = MEAN


@register
class ReduceMax(_Reduce):
    names = ("ReduceMax",)
    family = "max"
    exactness = Exactness.ROUNDED


@register
class ReduceMin(_Reduce):
    names = ("ReduceMin",)
    family = "min"
    exactness = Exactness.ROUNDED


@register
class ReduceProd(_Reduce):
    names = ("ReduceProd",)
    family = "prod"


@register
class ReduceL1(_Reduce):
    names = ("ReduceL1",)
    family = "sumabs"
    noop_is_identity = False


@register
class ReduceL2(_Reduce):
    names = ("ReduceL2",)
    family = "sumsq"
    finish = ROOT
    floats_only = True
    noop_is_identity = False


@register
class ReduceSumSquare(_Reduce):
    names = ("ReduceSumSquare",)
    family = "sumsq"
    noop_is_identity = False


@register
class ReduceLogSum(_Reduce):
    names = ("ReduceLogSum",)
    finish = LOG
    floats_only = True
    noop_is_identity = False


class _Arg(Operator):
    """Attributes: axis, keepdims, select_last_index. The result is int64."""

    domains = ("",)
    smallest = False

    def problems(self, node: Node) -> list[Problem]:
        problems = axis_problems(node, 0)
        x = node.value(0)
        if stored_as(x.dtype) not in ARG:
            problems.append(node.problem(f"the input has type {x.dtype}", f"kernels take {', '.join(t.name for t in ARG)}"))
        if not problems and x.shape[self._axis(node)] == 0:
            problems.append(node.problem("its axis has length 0", attribute="axis"))
        return problems

    def _axis(self, node: Node) -> int:
        return checked_axis(node, node.int("axis", 0), node.value(0).rank)

    def infer(self, node: Node) -> list[Value]:
        shape, axis = node.value(0).shape, self._axis(node)
        kept = (1,) if node.int("keepdims", 1) else ()
        return [Value.integer((*shape[:axis], *kept, *shape[axis + 1 :]), INT64, 0, max(0, shape[axis] - 1))]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x, axis = np.asarray(inputs[0]), self._axis(node)
        find = np.argmin if self.smallest else np.argmax
        last = node.int("select_last_index", 0)
        y = x.shape[axis] - 1 - find(np.flip(x, axis), axis) if last else find(x, axis)
        return [np.asarray(y, np.int64).reshape(self.infer(node)[0].shape)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        y, axis = ctx.output(0), self._axis(node)
        space = _reduction_space(ctx.input(0), y, (axis,), False) or _reduction_space(ctx.dense(ctx.input(0)), y, (axis,), False)
        assert space is not None
        rank, loops, operands = space
        loops = [*loops[:rank], replace(loops[rank], tileable=False)]
        params = (Param("rank", rank), Param("smallest", int(self.smallest)), Param("last", node.int("select_last_index", 0)))
        call = KernelCall(ARG[stored_as(node.value(0).dtype)], (0, 1), tuple(range(len(loops))), params)
        ctx.step(loops, operands, [call], macs=node.value(0).elements)

    def kernels(self) -> Sequence[Kernel]:
        return tuple(ARG.values())


@register
class ArgMax(_Arg):
    names = ("ArgMax",)


@register
class ArgMin(_Arg):
    names = ("ArgMin",)
    smallest = True
