"""What tiles of a step touch: extents, bytes, DMA commands and exact traffic, from the interval maps alone.

Tile sizes come as one value per axis; a value is an int or an array of candidates, so that a whole grid is computed at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from Deeploy.program.step import Access, AxisKind, DimMap, Operand, Step
from Deeploy.program.tensor import ConstantBuffer

Sizes = Sequence[Any]
"""One tile size per axis: ints or equally long integer arrays."""


def round_up(value: Any, unit: int) -> Any:
    """The next multiple of `unit`; also for arrays."""
    return -(-value // unit) * unit


def ceil_div(a: Any, b: Any) -> Any:
    return -(-a // b)


def is_literal(operand: Operand) -> bool:
    """Whether the operand is an immediate: it has no bytes at any level."""
    tensor = operand.tensor
    return (isinstance(tensor, ConstantBuffer) and tensor.literal is not None) or tensor.storage.size == 0


class OperandGeometry:
    """An operand's tiles. `unit`: buffers begin at, and are rounded up to, multiples of it."""

    def __init__(self, operand: Operand, alignment: int) -> None:
        self.access = operand.access
        self.reads = operand.access is not Access.WRITE
        self.writes = operand.access is not Access.READ
        self.literal = is_literal(operand)
        self.elem = operand.tensor.dtype.size
        self.unit = max(4, self.elem, alignment)
        self.dims = operand.dims
        self.order = operand.memory_order
        self.axes = frozenset(a for dim in operand.dims for a, _ in dim.terms)

    def extents(self, tile: Sizes) -> list[Any]:
        """Largest clipped extent per dimension over all tiles of that size."""
        return [_extent(dim, tile) for dim in self.dims]

    def elements(self, tile: Sizes) -> Any:
        result: Any = 1
        for dim in self.dims:
            result = result * _extent(dim, tile)
        return result

    def buffer_bytes(self, tile: Sizes) -> Any:
        """Bytes of one tile buffer: at least those of every tile of that size."""
        return round_up(self.elements(tile) * self.elem, self.unit)

    def moves(self, tile: Sizes, within: Sizes) -> Any:
        """Whether the tile changes in the loop that cuts boxes of size `within` into tiles of size `tile`."""
        result: Any = False
        for a in self.axes:
            result = result | (tile[a] < within[a])
        return result

    def commands(self, tile: Sizes, far: Sizes | None) -> Any:
        """About how many DMA commands a transfer of a tile takes: one per two contiguous dimensions on the far side.

        far: tile size of the dense tile on the far side, None if that is the storage.
        """
        run: Any = 1
        rows_span: Any = 0
        count: Any = 1
        broken: Any = np.False_
        unit: Any = 1
        for d in reversed(self.order):
            dim = self.dims[d]
            if dim.stride == 0 or dim.size == 1:
                continue
            extent = _extent(dim, tile)
            stride = dim.stride if far is None else unit
            if far is not None:
                unit = unit * _extent(dim, far)
            several = np.greater(extent, 1)
            joins = several & ~broken & np.equal(stride, run)
            opens = several & ~broken & ~joins
            merges = several & broken & np.equal(stride, rows_span) & np.equal(count, 1)
            run = np.where(joins, run * extent, run)
            rows_span = np.where(opens | merges, stride * extent, rows_span)
            count = np.where(several & broken & ~merges, count * extent, count)
            broken = broken | opens
        return count

    @cached_property
    def components(self) -> list[tuple[tuple[int, ...], list[DimMap]]]:
        """Groups of dimensions that share axes: the extents of different groups vary independently."""
        groups: list[tuple[set[int], list[DimMap]]] = []
        for dim in self.dims:
            axes, dims = {a for a, _ in dim.terms}, [dim]
            apart = []
            for other_axes, other_dims in groups:
                if axes & other_axes:
                    axes, dims = axes | other_axes, other_dims + dims
                else:
                    apart.append((other_axes, other_dims))
            groups = [*apart, (axes, dims)]
        return [(tuple(sorted(axes)), dims) for axes, dims in groups]


def _extent(dim: DimMap, tile: Sizes) -> Any:
    if dim.stride == 0:
        return 1
    if not dim.terms:
        return max(0, min(dim.offset + dim.window, dim.size) - max(dim.offset, 0))
    extent: Any = dim.window
    for a, c in dim.terms:
        extent = extent + c * (tile[a] - 1)
    return np.minimum(extent, dim.size) if isinstance(extent, np.ndarray) else min(extent, dim.size)


@dataclass(frozen=True)
class Chain:
    """Axes whose terms make up one written dimension, coarsest first: if one has a tile above 1, the finer ones must be whole."""

    axes: tuple[int, ...]


class StepGeometry:
    """A step's axes and operands as tiling needs them. alignment: the strictest of the levels that tiles lie in; a power of two."""

    def __init__(self, step: Step, alignment: int = 4) -> None:
        self.step = step
        self.sizes = tuple(max(1, axis.size) for axis in step.axes)
        self.operands = tuple(OperandGeometry(o, alignment) for o in step.operands)
        self.unit = max(8, alignment)
        self.parallel = tuple(i for i, a in enumerate(step.axes) if a.kind is AxisKind.PARALLEL)
        self.reduced = tuple(i for i, a in enumerate(step.axes) if a.kind is AxisKind.REDUCED)
        self.cuttable = tuple(i for i in range(len(step.axes)) if self._may_cut(i))
        self.cuttable_reduced = tuple(i for i in self.cuttable if i in self.reduced)
        self.chains = tuple(_chains(step, self.cuttable))
        self.accumulated = self.operands[step.writes[0]] if step.writes else None

    def _may_cut(self, axis: int) -> bool:
        """An axis may be cut if it may be tiled, and every tile of every written operand is then still written exactly once."""
        described = self.step.axes[axis]
        if not described.tileable or described.size <= max(1, described.quantum):
            return False
        if described.kind is AxisKind.REDUCED:
            splits = self.step.accumulator is not None and all(c.kernel.splits_reduction for c in self.step.calls)
            return splits and not any(o.writes and axis in o.axes for o in self.operands)
        return all(axis in o.axes for o in self.operands if o.writes)

    @property
    def smallest(self) -> list[int]:
        """The smallest tile."""
        return [max(1, self.step.axes[a].quantum) if a in self.cuttable else n for a, n in enumerate(self.sizes)]

    def accumulator_bytes(self, inner: Sizes) -> Any:
        """Bytes of the accumulators: 0 unless a reduced axis is cut."""
        if self.step.accumulator is None or self.accumulated is None:
            return 0
        cut: Any = False
        for a in self.reduced:
            cut = cut | (inner[a] < self.sizes[a])
        return np.where(cut, round_up(self.accumulated.elements(inner) * self.step.accumulator.size, self.unit), 0)

    def scratch_bytes(self, inner: Sizes, cores: int) -> Any:
        """Bytes of scratch for the tile: the most that a call asks for."""
        most: Any = 0
        for call in self.step.calls:
            if call.kernel.scratch is not None:
                most = np.maximum(most, _scratch(call.kernel.scratch, [inner[a] for a in call.axes], cores))
        return round_up(most, self.unit)


def _scratch(rule: Any, extents: list[Any], cores: int) -> Any:
    arrays = [e for e in extents if isinstance(e, np.ndarray)]
    try:
        return np.asarray(rule(extents, cores)).astype(np.int64)
    except (TypeError, ValueError):
        if not arrays:
            raise
        # a rule that cannot take arrays is asked for every candidate
        spread = np.broadcast_arrays(*extents)
        return np.array([int(rule([int(v) for v in point], cores)) for point in zip(*spread, strict=True)], np.int64)


def _chains(step: Step, cuttable: tuple[int, ...]) -> list[Chain]:
    result = []
    for operand in step.operands:
        for dim in operand.dims if operand.access is not Access.READ else ():
            terms = sorted((t for t in dim.terms if step.axes[t[0]].size > 1), key=lambda t: -t[1])
            if len(terms) > 1 and any(a in cuttable for a, _ in terms):
                result.append(Chain(tuple(a for a, _ in terms)))
    return result


def breaks_chain(geometry: StepGeometry, tile: Sizes, within: Sizes) -> Any:
    """Whether a written tile would not be an interval of its dimension (see Chain)."""
    broken: Any = False
    for chain in geometry.chains:
        for coarse, fine in itertools.combinations(chain.axes, 2):
            broken = broken | ((tile[coarse] > 1) & (tile[fine] < within[fine]))
    return broken


# ---- exact traffic ---------------------------------------------------------------------------------------------------------------


_Tiles = tuple[int, int, np.ndarray, np.ndarray]
"""Outer tiles of one length of an axis: how many, inner trips in each, first indices and lengths of all their inner tiles."""


def _tiles(size: int, outer: int, inner: int) -> list[_Tiles]:
    """The outer tiles of an axis by length."""
    whole, rest = divmod(size, outer)
    result = []
    for length, begins in ((outer, np.arange(whole) * outer), (rest, np.array([whole * outer]))):
        if length == 0 or len(begins) == 0:
            continue
        steps = np.arange(0, length, inner)
        first = (begins[:, None] + steps[None, :]).reshape(-1)
        count = np.tile(np.minimum(inner, length - steps), len(begins))
        result.append((len(begins), len(steps), first, count))
    return result


def loaded_bytes(geometry: StepGeometry, operand: OperandGeometry, outer: Sequence[int], inner: Sequence[int], order: Sequence[int]) -> int:
    """Bytes that loads of the operand move in the inner loops of all outer boxes.

    It is loaded for the first box, then whenever one of its axes moves between consecutive inner boxes, also from one outer box to the
    next. So in an outer box it is loaded once per iteration of the loops down to the innermost one of its own that has several trips;
    if none has, once per iteration of the outer loops down to the innermost of its own.
    """
    classes = [_tiles(n, o, i) for n, o, i in zip(geometry.sizes, outer, inner, strict=True)]
    others = [a for a in order if a not in operand.axes]
    position = {a: p for p, a in enumerate(order)}
    mine = sorted(operand.axes)
    total = 0
    for choice in itertools.product(*[classes[a] for a in mine]):
        chosen = dict(zip(mine, choice, strict=True))
        loads = 1
        deepest = max((position[a] for a in mine if chosen[a][1] > 1), default=-1)
        if deepest >= 0:
            for a in others:
                inside = position[a] <= deepest
                loads *= sum(boxes * (trips if inside else 1) for boxes, trips, _, _ in classes[a])
        else:
            deepest = max((position[a] for a in mine if outer[a] < geometry.sizes[a]), default=-1)
            for a in others:
                loads *= ceil_div(geometry.sizes[a], outer[a]) if position[a] <= deepest else 1
        for axes, dims in operand.components:
            loads *= _sum_of_extents(axes, dims, chosen)
        total += loads
    return total * operand.elem


def _sum_of_extents(axes: tuple[int, ...], dims: list[DimMap], choice: Mapping[int, _Tiles]) -> int:
    """Sum over all boxes of the axes of the product of the dimensions' clipped extents."""
    place = {a: tuple(-1 if i == k else 1 for i in range(len(axes))) for k, a in enumerate(axes)}
    product: Any = np.ones([len(choice[a][2]) for a in axes] or [1], np.int64)
    for dim in dims:
        begin: Any = np.int64(dim.offset)
        end: Any = np.int64(dim.offset + dim.window)
        for a, c in dim.terms:
            first, count = choice[a][2].reshape(place[a]), choice[a][3].reshape(place[a])
            begin = begin + c * first
            end = end + c * (first + count - 1)
        low = np.clip(begin, 0, dim.size)
        extent = np.maximum(np.minimum(end, dim.size) - low, 0)
        product = product * (np.minimum(extent, 1) if dim.stride == 0 else extent)
    return int(product.sum())


def whole_bytes(geometry: StepGeometry, operand: OperandGeometry) -> int:
    """Bytes of the region that the whole iteration space touches: what the stores of a written operand move."""
    zero = [0] * len(geometry.sizes)
    extents = [dim.clipped(zero, geometry.sizes)[1] for dim in operand.dims]
    return operand.elem * math.prod(min(e, 1) if d.stride == 0 else e for e, d in zip(extents, operand.dims, strict=True))
