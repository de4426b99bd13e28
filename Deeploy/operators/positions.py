"""Tensors (n, c, ...) and (n, ...) with all their spatial positions seen as one axis, and operands over them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from Deeploy.operators.lowering import Lowering
from Deeploy.operators.views import join_axes
from Deeploy.program.step import Access, DimMap, Operand
from Deeploy.program.tensor import Tensor


def flattened(ctx: Lowering, tensor: Tensor, kept: int) -> tuple[Tensor, tuple[int, ...], tuple[int, ...]]:
    """(tensor, sizes, strides) with the dimensions from `kept` on as one, of length 1 if there is none.

    The tensor is a dense copy if no stride runs through them.
    """
    sizes, (steps,) = join_axes(tensor.shape[kept:], [tensor.strides[kept:]])
    if len(sizes) > 1:
        tensor = ctx.dense(tensor)
        sizes, (steps,) = join_axes(tensor.shape[kept:], [tensor.strides[kept:]])
    assert len(sizes) <= 1, tensor.name
    return tensor, (*tensor.shape[:kept], math.prod(tensor.shape[kept:])), (*tensor.strides[:kept], steps[0] if steps else 0)


def along(size: int, stride: int, axis: int, access: Access = Access.READ) -> DimMap:
    """A dimension that is the axis itself; one that is read and does not move is a single element for every tile."""
    if access is Access.READ and (size == 1 or stride == 0):
        return DimMap(1, 0)
    return DimMap(size, stride, ((axis, 1),))


def whole(size: int, stride: int) -> DimMap:
    """A dimension that every tile has as a whole."""
    if size == 1 or stride == 0:
        return DimMap(1, 0)
    return DimMap(size, stride, (), 0, size)


def positional(ctx: Lowering, tensor: Tensor, access: Access, axes: Sequence[int | None]) -> Operand:
    """The tensor with all dimensions from the last of `axes` on as one. Dimension d is axis axes[d]; None: all of it for every tile.

    A written tensor must be dense.
    """
    tensor, sizes, strides = flattened(ctx, tensor, len(axes) - 1)
    dims = [whole(n, s) if a is None else along(n, s, a, access) for n, s, a in zip(sizes, strides, axes, strict=True)]
    return Operand(tensor, access, tuple(dims))
