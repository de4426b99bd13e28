"""Copies of tensors with any strides: what `lower` uses to make a view dense or to write a piece into a larger tensor."""

from __future__ import annotations

from Deeploy.operators.broadcasting import elementwise_space
from Deeploy.program.step import Axis, Kernel, KernelCall, Operand, Param
from Deeploy.program.tensor import Tensor

COPY_KERNELS = {size: Kernel(f"dp_copy_{size}", "copy.c", "dp_copy_cst", cycles_per_point=3.0) for size in (1, 2, 4, 8)}
"""Kernel by element size in bytes."""


def copy_parts(source: Tensor, target: Tensor) -> tuple[list[Axis], list[Operand], list[KernelCall]]:
    """The parts of a step that copies `source` to `target`: operand 0 is read, operand 1 is written.

    Types are equal; `source` has the target's shape or broadcasts to it. Axes are merged as far as both sides' strides allow.
    Raises ModelError if more than MAX_RANK axes remain.
    """
    assert source.dtype == target.dtype, (source.name, target.name)
    axes, operands = elementwise_space([source], target)
    call = KernelCall(COPY_KERNELS[source.dtype.size], (0, 1), tuple(range(len(axes))), (Param("rank", len(axes)),))
    return axes, operands, [call]
