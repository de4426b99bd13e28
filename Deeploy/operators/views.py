"""Strided views: reshaping without copying, joining of neighbouring axes, and the iteration spaces of kernels that need whole lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from Deeploy.operators.broadcasting import merge_axes
from Deeploy.operators.lowering import Lowering
from Deeploy.program.step import MAX_AXES, MAX_RANK, Access, Axis, AxisKind, DimMap, Operand
from Deeploy.program.tensor import Tensor, dense_strides

Strides = Sequence[int]


def join_axes(shape: Sequence[int], strides: Sequence[Strides]) -> tuple[list[int], list[list[int]]]:
    """Fewest axes, in the given order, for a loop over `shape` in which operand o moves by strides[o][axis].

    Axes of length 1 are dropped; neighbours are joined where every operand runs through both without a jump. Unlike
    `broadcasting.merge_axes` the order of the axes is kept and there may be no axis left.
    """
    sizes: list[int] = []
    joined: list[list[int]] = [[] for _ in strides]
    for d, size in enumerate(shape):
        if size == 1:
            continue
        if sizes and all(j[-1] == s[d] * size for j, s in zip(joined, strides, strict=True)):
            sizes[-1] *= size
            for j, s in zip(joined, strides, strict=True):
                j[-1] = s[d]
            continue
        sizes.append(size)
        for j, s in zip(joined, strides, strict=True):
            j.append(s[d])
    return sizes, joined


def reshape_strides(shape: Sequence[int], strides: Strides, target: Sequence[int]) -> tuple[int, ...] | None:
    """Strides with which elements laid out by (shape, strides) are seen at `target` in the same row-major order; None if no strides do.

    Both shapes have the same number of elements. Runs of axes without a jump may be cut anywhere; target axes never cross a jump.
    """
    if 0 in shape:
        return dense_strides(tuple(target))
    sizes, (steps,) = join_axes(shape, [strides])
    result: list[int] = [0] * len(target)
    run = len(sizes) - 1
    left = sizes[run] if sizes else 1
    step = steps[run] if sizes else 0
    for d in range(len(target) - 1, -1, -1):
        if target[d] == 1:
            continue
        if left == 1:
            run -= 1
            left, step = sizes[run], steps[run]
        if left % target[d]:
            return None
        result[d] = step
        left //= target[d]
        step *= target[d]
    return tuple(result)


def reshape(ctx: Lowering, index: int, tensor: Tensor, shape: Sequence[int]) -> None:
    """Declares output `index` to be `tensor` at another shape: a view where strides allow it, else a view of a dense copy."""
    strides = reshape_strides(tensor.shape, tensor.strides, shape)
    if strides is None:
        tensor = ctx.dense(tensor)
        strides = reshape_strides(tensor.shape, tensor.strides, shape)
        assert strides is not None, tensor.name
    ctx.view(index, tensor, shape, strides)


def strided_operand(tensor: Tensor, access: Access, sizes: Sequence[int], strides: Strides, offset: int = 0) -> Operand:
    """An operand with one dimension per axis: dimension i moves along axis i by strides[i], 0: it is broadcast over it."""
    dims = tuple(
        DimMap(size, stride, ((i, 1),)) if stride or (access is Access.WRITE and size > 1) else DimMap(1, 0)
        for i, (size, stride) in enumerate(zip(sizes, strides, strict=True))
    )
    return Operand(tensor, access, dims, offset)


@dataclass(frozen=True)
class Strided:
    """A tensor seen at some shape through strides (elements)."""

    tensor: Tensor
    strides: tuple[int, ...]


@dataclass(frozen=True)
class LineSpace:
    """The space of a kernel that needs whole lines: `rank` parallel axes, then the axes of a line; operands x, y, then the extra ones.

    in_place: for `Lowering.step`: y may take the place of x.
    """

    axes: tuple[Axis, ...]
    operands: tuple[Operand, ...]
    rank: int
    in_place: tuple[tuple[int, int], ...]


def line_space(
    shape: Sequence[int], line: Sequence[int], x: Strided, y: Strided, extras: Sequence[Strided] = (), line_axes: int = 1
) -> LineSpace | None:
    """The space over `shape` whose lines run along the dimensions `line`, joined to exactly `line_axes` axes.

    y is written, everything else is read. None if the strides ask for more axes of a line, or for more dimensions than a kernel has.
    """
    operands = [x, *extras, y]
    parallel = [d for d in range(len(shape)) if d not in line]
    sizes, strides = merge_axes([shape[d] for d in parallel], [[o.strides[d] for d in parallel] for o in operands])
    ends, steps = join_axes([shape[d] for d in line], [[o.strides[d] for d in line] for o in operands])
    if len(ends) > line_axes or len(sizes) + line_axes > min(MAX_RANK, MAX_AXES):
        return None
    missing = line_axes - len(ends)
    all_sizes = [*sizes, *[1] * missing, *ends]
    axes = [Axis(f"p{i}", size) for i, size in enumerate(sizes)]
    axes += [Axis(f"l{i}", size, tileable=False) for i, size in enumerate(all_sizes[len(sizes) :])]
    built = []
    for o, outer, inner in zip(operands, strides, steps, strict=True):
        access = Access.WRITE if o is y else Access.READ
        built.append(strided_operand(o.tensor, access, all_sizes, [*outer, *[0] * missing, *inner]))
    same = x.tensor.dtype.size == y.tensor.dtype.size and built[0].dims == built[-1].dims
    return LineSpace(tuple(axes), (built[0], built[-1], *built[1:-1]), len(sizes), ((1, 0),) if same else ())


def reduced_axes(sizes: Sequence[int], split_any: bool) -> list[Axis]:
    """Axes of a reduction in their order. Unless `split_any`, only the outermost may be cut: tiles then follow each other in the order
    of the untiled reduction, so that floating-point sums do not depend on tiling."""
    return [Axis(f"r{i}", size, AxisKind.REDUCED, tileable=split_any or i == 0) for i, size in enumerate(sizes)]
