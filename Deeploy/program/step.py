"""Steps: tile loops over kernel calls, described by iteration spaces and interval maps.

A step has named axes. Every operand says, per dimension, which interval of it a box of the iteration space touches:

    first = sum(coefficient * axis_first) + offset
    last  = sum(coefficient * axis_last)  + offset + window - 1          both inclusive

Whatever lies outside [0, size) is padding: it is not transferred; the kernel gets how much there is before the first element.
A tile is a box: one interval per axis. Nothing else is needed for tiling, for transfers, for bounds and for the coverage proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from Deeploy.program.dtypes import DType
from Deeploy.program.tensor import Tensor

MAX_AXES = 10
"""Axes of a step; DP_AXES in dp_kernel.h."""
MAX_RANK = 7
"""Dimensions of an operand; DP_RANK in dp_kernel.h."""
MAX_OPERANDS = 8
"""Operands of a kernel call; DP_OPERANDS in dp_kernel.h."""


class AxisKind(Enum):
    PARALLEL = "parallel"
    REDUCED = "reduced"


@dataclass(frozen=True)
class Axis:
    """One axis of an iteration space.

    tileable: whether a tile may be smaller than `size` (a softmax needs its whole row).
    quantum:  tile sizes are multiples of it (the last tile may be smaller).
    """

    name: str
    size: int
    kind: AxisKind = AxisKind.PARALLEL
    tileable: bool = True
    quantum: int = 1


class Access(Enum):
    READ = "read"
    WRITE = "write"
    UPDATE = "update"
    """Read and written in place (state)."""


@dataclass(frozen=True)
class DimMap:
    """The interval of one operand dimension that a box touches.

    size:   extent of the dimension.
    stride: distance of neighbours in the operand's storage, in elements; 0 if all neighbours are the same element.
    terms:  (axis index, coefficient > 0) pairs.
    offset: added to the first index (minus the padding before).
    window: elements touched per point (a pooling window that is no axis of its own).
    """

    size: int
    stride: int
    terms: tuple[tuple[int, int], ...] = ()
    offset: int = 0
    window: int = 1

    def interval(self, first: Sequence[int], count: Sequence[int]) -> tuple[int, int]:
        """Unclipped [begin, end) for the box with those first indices and counts."""
        begin = sum(c * first[a] for a, c in self.terms) + self.offset
        end = sum(c * (first[a] + count[a] - 1) for a, c in self.terms) + self.offset + self.window
        return begin, end

    def clipped(self, first: Sequence[int], count: Sequence[int]) -> tuple[int, int, int]:
        """(begin, extent, padding before) after clipping to [0, size). The extent may be 0 (all padding)."""
        begin, end = self.interval(first, count)
        lo, hi = max(begin, 0), min(end, self.size)
        return min(lo, self.size), max(0, hi - lo), max(0, -begin)


@dataclass(frozen=True)
class Operand:
    """A tensor as a step reads or writes it.

    dims:   in the order the kernel documents; together with `offset` (elements from the tensor's first) they address the storage of
            `tensor`. They may regroup the tensor's own axes (a channel axis as group x channel) or permute them.
    In L1 a tile is dense, its dimensions ordered by falling storage stride (ties: as listed), so a transfer moves the longest runs.
    """

    tensor: Tensor
    access: Access
    dims: tuple[DimMap, ...]
    offset: int = 0

    @property
    def memory_order(self) -> tuple[int, ...]:
        """Dimension indices from the outermost to the innermost in memory, for storage and tile alike."""
        return tuple(sorted(range(len(self.dims)), key=lambda d: (-self.dims[d].stride, d)))


@dataclass(frozen=True)
class Kernel:
    """A C kernel.

    symbol:           the C function.
    source:           file below Targets/kernels.
    constant_struct:  C struct of its constant part, or "" if it has none.
    cycles_per_point: estimated cycles of one core per point of the iteration space.
    scratch:          bytes of L1 scratch, a function of (extent per kernel axis, cores); extents may be numpy arrays. None: no scratch.
    splits_reduction: whether it can be called for a part of its reduced axes (`first`, `last`, `acc`).
    """

    symbol: str
    source: str
    constant_struct: str = ""
    cycles_per_point: float = 2.0
    scratch: Callable[[Sequence[Any], int], Any] | None = None
    splits_reduction: bool = False


@dataclass(frozen=True)
class Param:
    """One field of a kernel's constant struct. Integers are written as they are, floats as exact hexadecimal literals."""

    name: str
    value: int | float | tuple[int, ...] | tuple[float, ...]


@dataclass(frozen=True)
class KernelCall:
    """A call of `kernel` on operands of the step.

    operands: indices into Step.operands, in the order that the kernel documents.
    axes:     indices into Step.axes, in the order that the kernel documents.
    """

    kernel: Kernel
    operands: tuple[int, ...]
    axes: tuple[int, ...]
    params: tuple[Param, ...] = ()


@dataclass(eq=False)
class Step:
    """One tile loop.

    name:        unique, a valid C identifier.
    node:        name of the graph node it comes from; operator: its type.
    accumulator: element type of the accumulators for a split reduction; None if reduced axes must not be split. One element per
                 element of the first written operand's tile.
    in_place:    (written operand, read operand) pairs that may be the same storage: same maps, and the kernel reads each element
                 before it writes it.
    macs:        multiply-accumulates, or operations where the operator has none.
    """

    name: str
    node: str
    operator: str
    axes: tuple[Axis, ...]
    operands: tuple[Operand, ...]
    calls: tuple[KernelCall, ...]
    accumulator: DType | None = None
    in_place: tuple[tuple[int, int], ...] = ()
    macs: int = 0

    @property
    def reads(self) -> list[int]:
        return [i for i, o in enumerate(self.operands) if o.access is not Access.WRITE]

    @property
    def writes(self) -> list[int]:
        return [i for i, o in enumerate(self.operands) if o.access is not Access.READ]
