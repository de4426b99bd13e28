"""Gather: picks slices of a table by indices; a view where constant indices allow it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from Deeploy.errors import ModelError, Problem
from Deeploy.operators.base import Exactness, Node, Operator, Value, register
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.softmax import axis_problems, checked_axis
from Deeploy.operators.views import join_axes
from Deeploy.program.dtypes import Kind
from Deeploy.program.step import Access, Axis, DimMap, Kernel, KernelCall, Operand, Param
from Deeploy.program.tensor import Tensor, dense_strides

GATHER = {size: Kernel(f"dp_gather_{size}", "gather.c", "dp_gather_cst", cycles_per_point=4.0) for size in (1, 2, 4, 8)}
STRIDE = {size: Kernel(f"dp_stride_{size}", "gather.c", "dp_stride_cst", cycles_per_point=4.0) for size in (1, 2, 4, 8)}
"""Kernels by element size in bytes."""


def pick_space(x: Tensor, y: Tensor, axis: int) -> tuple[list[Axis], Operand, Operand] | None:
    """Axes (a, k, b) and operands [a, whole table, b] and [a, k, b] of a step that picks entries of x along `axis`.

    y is dense; its dimensions are those of x with any number of dimensions for the picked entries in the place of `axis`. None if the
    dimensions of x before or behind do not join to one axis each.
    """
    entries, stride = x.shape[axis], x.strides[axis]
    before, (outer,) = join_axes(x.shape[:axis], [x.strides[:axis]])
    behind, (inner,) = join_axes(x.shape[axis + 1 :], [x.strides[axis + 1 :]])
    if len(before) > 1 or len(behind) > 1:
        return None
    a, b = math.prod(before), math.prod(behind)
    picked = math.prod(y.shape) // max(1, a * b)

    def dim(size: int, step: int, index: int) -> DimMap:
        return DimMap(size, step, ((index, 1),)) if size > 1 and step else DimMap(1, 0)

    table = DimMap(entries, stride, (), 0, entries) if entries > 1 and stride else DimMap(1, 0)
    source = Operand(x, Access.READ, (dim(a, outer[0] if outer else 0, 0), table, dim(b, inner[0] if inner else 0, 2)))
    target = Operand(y, Access.WRITE, (dim(a, picked * b, 0), dim(picked, b, 1), dim(b, 1, 2)))
    return [Axis("a", a), Axis("k", picked), Axis("b", b)], source, target


def progression(indices: np.ndarray) -> tuple[int, int] | None:
    """(first, step) if the indices rise evenly (step 1 for one index), else None."""
    flat = [int(i) for i in indices.reshape(-1)]
    if len(flat) == 1:
        return flat[0], 1
    step = flat[1] - flat[0]
    return (flat[0], step) if step > 0 and all(b - a == step for a, b in zip(flat, flat[1:], strict=False)) else None


@register
class Gather(Operator):
    """Attribute: axis. The device brings run-time indices outside of the table to its nearest entry."""

    names = ("Gather",)
    domains = ("",)
    exactness = Exactness.COPIED
    index_slots = (1,)

    def problems(self, node: Node) -> list[Problem]:
        problems = axis_problems(node, 0)
        index = node.value(1)
        if not index.dtype.is_integer or index.dtype.name == "uint64":
            problems.append(node.problem(f"the indices have type {index.dtype}", "integers are needed"))
        if problems:
            return problems
        entries = node.value(0).shape[self._axis(node)]
        if index.constant is not None and index.elements:
            low, high = int(index.constant.min()), int(index.constant.max())
            if low < -entries or high >= entries:
                problems.append(node.problem(f"an index is outside of the table of {entries} entries", f"they go from {low} to {high}"))
        elif entries == 0 and index.elements:
            problems.append(node.problem("the table has no entries"))
        return problems

    def _axis(self, node: Node) -> int:
        return checked_axis(node, node.int("axis", 0), node.value(0).rank)

    def infer(self, node: Node) -> list[Value]:
        x, axis = node.value(0), self._axis(node)
        return [replace(x, shape=(*x.shape[:axis], *node.value(1).shape, *x.shape[axis + 1 :]), constant=None)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x, axis = np.asarray(inputs[0]), self._axis(node)
        index = np.asarray(inputs[1]).astype(np.int64)
        index = np.clip(np.where(index < 0, index + x.shape[axis], index), 0, max(0, x.shape[axis] - 1))
        return [np.take(x, index, axis)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        x, axis, index = ctx.input(0), self._axis(node), node.value(1)
        entries = x.shape[axis]
        out = self.infer(node)[0]
        if not out.elements:
            ctx.output(0)
            return
        if index.constant is not None:
            found = progression(np.where(index.constant < 0, index.constant + entries, index.constant))
            if found is not None:
                self._view(ctx, x, axis, index, out, *found)
                return
        self._step(node, ctx, x, axis, entries)

    def _view(self, ctx: Lowering, x: Tensor, axis: int, index: Value, out: Value, first: int, step: int) -> None:
        """The output as a view: dimensions of the index become cuts of the progression."""
        stride = x.strides[axis] * step
        inner = [stride * n for n in dense_strides(index.shape)]
        ctx.view(0, x, out.shape, (*x.strides[:axis], *inner, *x.strides[axis + 1 :]), first * x.strides[axis])

    def _step(self, node: Node, ctx: Lowering, x: Tensor, axis: int, entries: int) -> None:
        y, index = ctx.output(0), ctx.dense(ctx.input(1))
        space = pick_space(x, y, axis)
        if space is None:
            x = ctx.dense(x)
            space = pick_space(x, y, axis)
        if space is None:
            raise ModelError(node.problem("the table's strides need too many loops"))
        axes, source, target = space
        picked = axes[1].size
        step = index.strides[-1] if index.shape and picked > 1 else 0
        indices = Operand(index, Access.READ, (DimMap(picked, step, ((1, 1),)) if step else DimMap(1, 0),))
        params = (
            Param("size", entries),
            Param("index_bytes", index.dtype.size),
            Param("index_signed", int(index.dtype.kind is Kind.SIGNED)),
        )
        call = KernelCall(GATHER[x.dtype.size], (0, 1, 2), (0, 1, 2), params)
        ctx.step(axes, [source, indices, target], [call], macs=y.elements)

    def kernels(self) -> Sequence[Kernel]:
        return (*GATHER.values(), *STRIDE.values())
