"""How an operator's `lower` makes steps: the context it gets, and builders of operands that most operators need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from Deeploy.program.dtypes import DType
from Deeploy.program.step import Access, Axis, DimMap, KernelCall, Operand
from Deeploy.program.tensor import Tensor, VariableBuffer


class Lowering(Protocol):
    """The context of one node's lowering. Implemented in Deeploy/lower."""

    def input(self, index: int) -> Tensor:
        """The tensor of input `index`: any strides (a view), a constant, or a literal."""

    def optional(self, index: int) -> Tensor | None:
        """The tensor of input `index`, or None if it is absent."""

    def output(self, index: int) -> VariableBuffer:
        """The dense tensor of output `index`, with a storage of its own (made at the first call)."""

    def update(self, index: int) -> VariableBuffer:
        """The tensor of output `index`, which is the input that `Operator.updates` names, to be written in place."""

    def view(self, index: int, tensor: Tensor, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> None:
        """Declares output `index` to be a view of `tensor`; `offset` in elements from the tensor's first. Makes no step."""

    def dense(self, tensor: Tensor) -> Tensor:
        """The tensor itself if it is row-major without gaps, else a dense copy (makes a copy step)."""

    def temporary(self, name: str, shape: Sequence[int], dtype: DType) -> VariableBuffer:
        """A dense activation between two steps of this node."""

    def write_into(self, tensor: Tensor, target: VariableBuffer, offset: int, strides: Sequence[int]) -> None:
        """Makes `tensor`'s values appear inside `target` at `offset` (elements) with those strides: by letting its producer write there
        if nothing forbids it, else by a copy step."""

    def step(
        self,
        axes: Sequence[Axis],
        operands: Sequence[Operand],
        calls: Sequence[KernelCall],
        *,
        accumulator: DType | None = None,
        in_place: Sequence[tuple[int, int]] = (),
        macs: int = 0,
        suffix: str = "",
    ) -> None:
        """Appends a step."""

    def note(self, text: str) -> None:
        """A decision worth telling the user."""


def operand(tensor: Tensor, access: Access, axes: Sequence[int | None]) -> Operand:
    """An operand whose dimension d is axis axes[d] itself (None: the whole dimension, for every tile).

    A dimension of length 1 is never cut: it is broadcast over whatever axis is given.
    """
    dims = []
    for size, stride, axis in zip(tensor.shape, tensor.strides, axes, strict=True):
        if axis is None or size == 1:
            dims.append(DimMap(size, stride if size > 1 else 0, (), 0, size))
        else:
            dims.append(DimMap(size, stride, ((axis, 1),)))
    return Operand(tensor, access, tuple(dims))
