"""Iteration spaces of element-wise steps: numpy broadcasting as strides, and as few axes as the operands' strides allow."""

from __future__ import annotations

from collections.abc import Sequence

from Deeploy.errors import ModelError, Problem
from Deeploy.program.step import MAX_RANK, Access, Axis, DimMap, Operand
from Deeploy.program.tensor import Tensor


def broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Whether a shape broadcasts numpy-style to another without making it larger."""
    return len(shape) <= len(to) and all(have in (1, want) for have, want in zip(reversed(shape), reversed(to), strict=False))


def broadcast_strides(tensor: Tensor, shape: Sequence[int]) -> list[int]:
    """Strides (elements) with which `tensor` is read at `shape`, to which it broadcasts; 0 along broadcast axes.

    The tensor may have more leading axes than `shape`, of length 1.
    """
    extra = max(0, len(tensor.shape) - len(shape))
    assert all(n == 1 for n in tensor.shape[:extra]), tensor.name
    missing = len(shape) - len(tensor.shape) + extra
    strides = [0] * missing
    for have, want, stride in zip(tensor.shape[extra:], shape[missing:], tensor.strides[extra:], strict=True):
        assert have in (1, want), (tensor.name, tensor.shape, tuple(shape))
        strides.append(stride if have == want and have != 1 else 0)
    return strides


def merge_axes(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Fewest axes for a loop over `shape` in which operand o moves by strides[o][axis]; the last operand is the written one.

    Axes of length 1 are dropped, the rest is ordered by the written operand's strides (for a dense output: its own order), and
    neighbours are joined where every operand runs through them without a jump. Returns sizes and strides[operand][axis]; at least one axis.
    """
    axes = [d for d in range(len(shape)) if shape[d] != 1]
    axes.sort(key=lambda d: (-abs(strides[-1][d]), d))
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for d in axes:
        if sizes and all(m[-1] == s[d] * shape[d] for m, s in zip(merged, strides, strict=True)):
            sizes[-1] *= shape[d]
            for m, s in zip(merged, strides, strict=True):
                m[-1] = s[d]
            continue
        sizes.append(shape[d])
        for m, s in zip(merged, strides, strict=True):
            m.append(s[d])
    if not sizes:
        return [1], [[0] for _ in strides]
    return sizes, merged


def elementwise_space(inputs: Sequence[Tensor], output: Tensor) -> tuple[list[Axis], list[Operand]]:
    """Axes and operands (inputs in order, then the output) of a step that computes each element of `output` from the elements of
    `inputs` broadcast to it. Raises ModelError if more than MAX_RANK axes remain."""
    strides = [broadcast_strides(t, output.shape) for t in inputs] + [list(output.strides)]
    sizes, merged = merge_axes(output.shape, strides)
    if len(sizes) > MAX_RANK:
        raise ModelError(
            Problem(
                f"the operation on '{output.source}' needs {len(sizes)} loops after merging axes",
                f"kernels have at most {MAX_RANK}",
                "reshape its inputs to fewer dimensions",
            )
        )
    axes = [Axis(f"e{i}", size) for i, size in enumerate(sizes)]
    operands = []
    for tensor, steps in zip([*inputs, output], merged, strict=True):
        access = Access.WRITE if tensor is output else Access.READ
        dims = tuple(
            DimMap(size, step, ((i, 1),)) if step or access is Access.WRITE and size > 1 else DimMap(1, 0)
            for i, (size, step) in enumerate(zip(sizes, steps, strict=True))
        )
        operands.append(Operand(tensor, access, dims))
    return axes, operands
