"""Slice, Split and Concat: views of a tensor, and tensors made of pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from Deeploy.errors import ModelError, Problem
from Deeploy.operators.base import Exactness, Node, Operator, Value, View, bounds, register
from Deeploy.operators.copying import COPY_KERNELS
from Deeploy.operators.elementwise import CAST_KERNEL, as_type
from Deeploy.operators.gather import STRIDE, pick_space
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.shape_ops import static_problem
from Deeploy.operators.softmax import axis_problems, checked_axis
from Deeploy.program.dtypes import smallest_integer
from Deeploy.program.step import Kernel, KernelCall, Param
from Deeploy.program.tensor import Tensor, dense_strides


@register
class Slice(Operator):
    """Attributes: starts, ends, axes, steps. Positive steps make a view; a negative step makes a copy along its axis."""

    names = ("Slice",)
    domains = ("",)
    static_inputs = ((1, "starts"), (2, "ends"), (3, "axes"), (4, "steps"))
    view = View.STRIDED
    exactness = Exactness.COPIED

    def problems(self, node: Node) -> list[Problem]:
        problems = static_problem(node, "starts") + static_problem(node, "ends")
        if problems:
            return problems
        try:
            self._ranges(node)
        except ModelError as error:
            problems += error.problems
        return problems

    def _ranges(self, node: Node) -> list[range]:
        """The indices of the input that are kept, per dimension."""
        x = node.value(0)
        starts, ends = node.ints("starts"), node.ints("ends")
        axes = node.ints("axes", range(len(starts)))
        steps = node.ints("steps", [1] * len(starts))
        if not len(starts) == len(ends) == len(axes) == len(steps):
            raise ModelError(node.problem("starts, ends, axes and steps have different lengths", attribute="starts"))
        if 0 in steps:
            raise ModelError(node.problem("a step is 0", attribute="steps"))
        ranges = [range(n) for n in x.shape]
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            d = checked_axis(node, axis, x.rank)
            ranges[d] = range(*slice(start, end, step).indices(x.shape[d]))
        return ranges

    def infer(self, node: Node) -> list[Value]:
        return [replace(node.value(0), shape=tuple(len(r) for r in self._ranges(node)), constant=None)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        y = np.asarray(inputs[0])
        for d, r in enumerate(self._ranges(node)):
            y = np.take(y, np.array(r, np.int64), d)
        return [y]

    def lower(self, node: Node, ctx: Lowering) -> None:
        x, ranges = ctx.input(0), self._ranges(node)
        if 0 in (len(r) for r in ranges):
            ctx.output(0)
            return
        for d, picked in enumerate(ranges):
            if picked.step < 0 and len(picked) > 1:
                x = _turned(node, ctx, x, d, picked)
                ranges[d] = range(len(picked))
        offset = sum(r.start * s for r, s in zip(ranges, x.strides, strict=True))
        strides = [s * max(1, r.step) for r, s in zip(ranges, x.strides, strict=True)]
        ctx.view(0, x, [len(r) for r in ranges], strides, offset)

    def kernels(self) -> Sequence[Kernel]:
        return tuple(STRIDE.values())


def _turned(node: Node, ctx: Lowering, x: Tensor, axis: int, picked: range) -> Tensor:
    """A copy of x with only the entries `picked` along `axis`."""
    y = ctx.temporary(f"turned_{axis}", (*x.shape[:axis], len(picked), *x.shape[axis + 1 :]), x.dtype)
    y.lo, y.hi = x.lo, x.hi
    space = pick_space(x, y, axis)
    if space is None:
        x = ctx.dense(x)
        space = pick_space(x, y, axis)
    if space is None:
        raise ModelError(node.problem("a negative step on a tensor whose strides need too many loops", remedy="expand it later"))
    axes, source, target = space
    params = (Param("start", picked.start), Param("step", picked.step))
    call = KernelCall(STRIDE[x.dtype.size], (0, 1), (0, 1, 2), params)
    ctx.step(axes, [source, target], [call], suffix="turn", macs=y.elements)
    return y


@register
class Split(Operator):
    """Attributes: axis; split (sizes) or num_outputs; else equal parts. All outputs are views."""

    names = ("Split",)
    domains = ("",)
    static_inputs = ((1, "split"),)
    view = View.STRIDED
    exactness = Exactness.COPIED

    def problems(self, node: Node) -> list[Problem]:
        problems = axis_problems(node, 0)
        if not problems:
            try:
                self._sizes(node)
            except ModelError as error:
                problems += error.problems
        return problems

    def _axis(self, node: Node) -> int:
        return checked_axis(node, node.int("axis", 0), node.value(0).rank)

    def _sizes(self, node: Node) -> tuple[int, ...]:
        total, parts = node.value(0).shape[self._axis(node)], len(node.outputs)
        if node.has("split"):
            sizes = node.ints("split")
            if len(sizes) != parts or sum(sizes) != total or min(sizes) < 0:
                raise ModelError(node.problem(f"parts {list(sizes)} do not make {parts} outputs of {total} in all", attribute="split"))
            return sizes
        if node.has("num_outputs"):
            if node.int("num_outputs") != parts:
                raise ModelError(node.problem(f"there are {parts} outputs", attribute="num_outputs"))
            each = -(-total // parts)
            sizes = tuple(min(each, max(0, total - each * i)) for i in range(parts))
            return sizes
        if total % parts:
            raise ModelError(node.problem(f"{total} does not split into {parts} equal parts", attribute="split"))
        return (total // parts,) * parts

    def infer(self, node: Node) -> list[Value]:
        x, axis = node.value(0), self._axis(node)
        return [replace(x, shape=(*x.shape[:axis], n, *x.shape[axis + 1 :]), constant=None) for n in self._sizes(node)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        cuts = np.cumsum(self._sizes(node))[:-1]
        return list(np.split(np.asarray(inputs[0]), cuts, self._axis(node)))

    def lower(self, node: Node, ctx: Lowering) -> None:
        x, axis, first = ctx.input(0), self._axis(node), 0
        for index, size in enumerate(self._sizes(node)):
            if size:
                ctx.view(index, x, (*x.shape[:axis], size, *x.shape[axis + 1 :]), x.strides, first * x.strides[axis])
            else:
                ctx.output(index)
            first += size


@register
class Concat(Operator):
    """Every input is written to its place in the output; inputs without elements are skipped.

    In the integer format storage types may differ: the result gets the narrowest type that holds all ranges.
    """

    names = ("Concat",)
    domains = ("",)
    exactness = Exactness.COPIED

    def normalise(self, node, opset: int) -> None:  # noqa: ANN001
        if opset < 4:
            node.attrs.setdefault("axis", 1)

    def _pieces(self, node: Node) -> list[tuple[int, Value]]:
        """(slot, value) of the inputs that have elements; all of them if none has."""
        pieces = [(slot, v) for slot, v in enumerate(node.inputs) if v is not None]
        return [p for p in pieces if p[1].elements] or pieces[:1]

    def problems(self, node: Node) -> list[Problem]:
        if not node.has("axis"):
            return [node.problem("the attribute is missing", attribute="axis")]
        problems = axis_problems(node, 0)
        if problems:
            return problems
        axis, first = self._axis(node), self._pieces(node)[0][1]
        for slot, value in self._pieces(node):
            if value.dtype != first.dtype and (not node.integers or value.dtype.is_float or first.dtype.is_float):
                why, remedy = f"another input has {first.dtype}", "convert one with Cast"
                problems.append(node.problem(f"input {slot} has type {value.dtype}", why, remedy))
            if value.rank != first.rank or any(a != b for d, (a, b) in enumerate(zip(value.shape, first.shape, strict=False)) if d != axis):
                problems.append(node.problem(f"inputs of shapes {list(first.shape)} and {list(value.shape)} do not join along axis {axis}"))
        return problems

    def _axis(self, node: Node) -> int:
        return checked_axis(node, node.int("axis"), node.value(0).rank)

    def infer(self, node: Node) -> list[Value]:
        axis, values = self._axis(node), [v for _, v in self._pieces(node)]
        first = values[0]
        length = sum(v.shape[axis] for v in node.inputs if v is not None and (v.elements or v is first))
        shape = (*first.shape[:axis], length, *first.shape[axis + 1 :])
        if first.dtype.is_float:
            return [Value(shape, first.dtype)]
        lo, hi = min(bounds(v)[0] for v in values), max(bounds(v)[1] for v in values)
        same = all(v.dtype == first.dtype for v in values)
        return [Value.integer(shape, first.dtype if same else smallest_integer(lo, hi), lo, hi)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        dtype = self.infer(node)[0].dtype.numpy
        return [np.concatenate([np.asarray(inputs[slot]).astype(dtype) for slot, _ in self._pieces(node)], self._axis(node))]

    def lower(self, node: Node, ctx: Lowering) -> None:
        y, axis, first = ctx.output(0), self._axis(node), 0
        strides = dense_strides(y.shape)
        if not y.elements:
            return
        for slot, value in self._pieces(node):
            piece = as_type(ctx, ctx.input(slot), y.dtype, f"as_{y.dtype}_{slot}")
            ctx.write_into(piece, y, first * strides[axis], strides)
            first += value.shape[axis]

    def kernels(self) -> Sequence[Kernel]:
        return (*COPY_KERNELS.values(), CAST_KERNEL)
