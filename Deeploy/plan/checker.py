"""Proves a plan, from the program and the definitions of interval maps alone; shares no code with what made the plan.

For every plan: no two blocks that are alive at once overlap, but for a step that works in place; every block lies inside its arena and is
aligned; every arena fits its level beside constants and reserved bytes; lifetimes cover all uses; tile buffers, accumulators and scratch
hold every tile; tile sizes and loop orders are legal; the tiles of every written operand cover it exactly once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from Deeploy.errors import DefectError, Problem
from Deeploy.plan.result import Arena, Placement, Plan, StepPlan, TileBuffers
from Deeploy.platform import LevelSpec, Platform
from Deeploy.program.step import Access, AxisKind, DimMap, Operand, Step
from Deeploy.program.tensor import ConstantBuffer, Level, Role, Storage


def check(plan: Plan, platform: Platform) -> None:
    """Raises DefectError naming the first fault. `platform`: with the sizes and cores that the plan was made for."""
    _Checker(plan, platform).run()


def _fail(text: str, step: Step | None = None) -> None:
    where = Problem(f"the plan is wrong: {text}", node=step.node if step else "", operator=step.operator if step else "")
    raise DefectError(where)


def _require(condition: object, text: str, step: Step | None = None) -> None:
    if not condition:
        _fail(text, step)


def _immediate(operand: Operand) -> bool:
    tensor = operand.tensor
    return tensor.storage.size == 0 or (isinstance(tensor, ConstantBuffer) and tensor.literal is not None)


@dataclass(frozen=True)
class _Piece:
    """A piece of an arena during some steps; storage is None for tile buffers, accumulators and scratch."""

    what: str
    begin: int
    end: int
    first: int
    last: int
    alignment: int
    storage: Storage | None = None


class _Checker:
    def __init__(self, plan: Plan, platform: Platform) -> None:
        self.plan, self.platform = plan, platform
        self.program = plan.program
        self.extents: dict[tuple[DimMap, tuple[tuple[int, int, int], ...]], int] = {}
        self.partitions: dict[tuple[DimMap, tuple[tuple[int, int, int], ...]], bool] = {}

    def run(self) -> None:
        steps = self.program.steps
        _require(len(self.plan.steps) == len(steps), "not every step has a plan")
        for index, step in enumerate(steps):
            chosen = self.plan.steps[index]
            _require(chosen.step is step, f"step plan {index} is not that of step {index}", step)
            self._tiles(chosen)
            self._loops(chosen)
            self._buffers(chosen)
            self._coverage(chosen)
            self._near(chosen)
        self._homes()
        for level in (Level.L2, Level.L3):
            self._arena(level)
        self._levels()

    # ---- one step -----------------------------------------------------------------------------------------------------------------

    def _tiles(self, p: StepPlan) -> None:
        step = p.step
        _require(len(p.outer) == len(p.inner) == len(step.axes), "a tile size is missing", step)
        for axis, outer, inner in zip(step.axes, p.outer, p.inner, strict=True):
            size, quantum = max(1, axis.size), max(1, axis.quantum)
            _require(1 <= inner <= outer <= size, f"axis {axis.name}: tiles {outer} and {inner} of {size}", step)
            _require(outer == size or outer % quantum == 0, f"axis {axis.name}: outer tile {outer} breaks the quantum {quantum}", step)
            _require(inner == outer or inner % quantum == 0, f"axis {axis.name}: inner tile {inner} breaks the quantum {quantum}", step)
            _require(axis.tileable or inner == size, f"axis {axis.name} is cut and may not be", step)
            split = axis.kind is AxisKind.REDUCED and inner < size
            may_split = step.accumulator is not None and all(c.kernel.splits_reduction for c in step.calls)
            _require(not split or may_split, f"the reduction over axis {axis.name} is split and may not be", step)
        if not any(self._far(o) for o in step.operands):
            _require(all(o == max(1, a.size) for o, a in zip(p.outer, step.axes, strict=True)), "an outer loop without need", step)
        _require(1 <= p.cores <= self.platform.cores, f"{p.cores} cores", step)

    @staticmethod
    def _loops(p: StepPlan) -> None:
        step = p.step
        _require(sorted(p.order) == list(range(len(step.axes))), "the loop order is no permutation of the axes", step)
        kinds = [step.axes[a].kind for a in p.order]
        parallel = kinds.count(AxisKind.PARALLEL)
        _require(all(k is AxisKind.PARALLEL for k in kinds[:parallel]), "a reduced axis is outside of a parallel one", step)
        cut_outside = any(a.kind is AxisKind.REDUCED and o < a.size for a, o in zip(step.axes, p.outer, strict=True))
        for axis, outer, inner in zip(step.axes, p.outer, p.inner, strict=True):
            moves = axis.kind is AxisKind.PARALLEL and inner < outer
            _require(not (cut_outside and moves), f"axis {axis.name} moves within a part of the outer reduction", step)

    def _buffers(self, p: StepPlan) -> None:
        step = p.step
        _require(len(p.l1) == len(p.l2) == len(step.operands), "a tile buffer is missing", step)
        rounding = self.platform.levels[Level.L3].read_rounding
        for operand, l1, l2 in zip(step.operands, p.l1, p.l2, strict=True):
            name = operand.tensor.name
            _require((l1 is None) == _immediate(operand), f"{name}: L1 buffers of an immediate, or none", step)
            _require((l2 is None) == (not self._far(operand)), f"{name}: L2 buffers without need, or none", step)
            if l1 is not None:
                self._holds(l1, operand, self._bytes(operand, p, True), step)
            if l2 is not None:
                needed = self._bytes(operand, p, False)
                if operand.access is not Access.WRITE and operand.tensor.dtype.size % rounding:
                    needed += rounding - 1
                self._holds(l2, operand, needed, step)
        self._blocks(p)

    @staticmethod
    def _holds(buffers: TileBuffers, operand: Operand, needed: int, step: Step) -> None:
        name = operand.tensor.name
        _require(buffers.bytes >= needed, f"{name}: a tile of {needed} bytes in a buffer of {buffers.bytes}", step)
        most = 1 if operand.access is Access.UPDATE else 2
        _require(1 <= buffers.copies <= most, f"{name}: {buffers.copies} copies of a tile buffer", step)

    def _blocks(self, p: StepPlan) -> None:
        step = p.step
        split = any(a.kind is AxisKind.REDUCED and i < a.size for a, i in zip(step.axes, p.inner, strict=True))
        if split:
            assert step.accumulator is not None
            written = next(o for o in step.operands if o.access is not Access.READ)
            needed = self._bytes(written, p, True) // written.tensor.dtype.size * step.accumulator.size
            _require(p.accumulator is not None and p.accumulator.bytes >= needed, f"accumulators need {needed} bytes", step)
        for call in step.calls:
            if call.kernel.scratch is None:
                continue
            lengths = [sorted({n for _, n in _boxes(s)}) for s in self._spans(p, call.axes, True)]
            for point in itertools.islice(itertools.product(*lengths), 64):
                needed = int(call.kernel.scratch(list(point), p.cores))
                given = p.scratch.bytes if p.scratch else 0
                _require(given >= needed, f"scratch of {call.kernel.symbol} needs {needed} bytes, {given} given", step)

    @staticmethod
    def _spans(p: StepPlan, axes: Sequence[int], inner: bool) -> tuple[tuple[int, int, int], ...]:
        """(size, outer tile, inner tile) per axis; without the inner loop the inner tile is the outer one."""
        return tuple((max(1, p.step.axes[a].size), p.outer[a], p.inner[a] if inner else p.outer[a]) for a in axes)

    def _bytes(self, operand: Operand, p: StepPlan, inner: bool) -> int:
        """The most bytes of a tile."""
        result = operand.tensor.dtype.size
        for dim in operand.dims:
            key = (dim, self._spans(p, [a for a, _ in dim.terms], inner))
            if key not in self.extents:
                low, high = _intervals(*key)
                extent = int(np.maximum(np.minimum(high, dim.size) - np.maximum(low, 0), 0).max())
                self.extents[key] = min(extent, 1) if dim.stride == 0 else extent
            result *= self.extents[key]
        return result

    def _coverage(self, p: StepPlan) -> None:
        """The tiles of a written operand: each axis that is cut moves one dimension, and each dimension's intervals partition it."""
        step = p.step
        for operand in step.operands:
            if operand.access is Access.READ or _immediate(operand):
                continue
            name = operand.tensor.name
            used = [a for dim in operand.dims for a, _ in dim.terms]
            for index, axis in enumerate(step.axes):
                if p.inner[index] < axis.size:
                    wanted = 1 if axis.kind is AxisKind.PARALLEL else 0
                    _require(used.count(index) == wanted, f"{name} is not written exactly once when axis {axis.name} is cut", step)
            for number, dim in enumerate(operand.dims):
                for inner in (True, False):
                    key = (dim, self._spans(p, [a for a, _ in dim.terms], inner))
                    if key not in self.partitions:
                        self.partitions[key] = _partitions(*key)
                    _require(self.partitions[key], f"{name}: tiles do not cover dimension {number} exactly once", step)

    def _near(self, p: StepPlan) -> None:
        """The step's blocks in L1."""
        step, alignment = p.step, self.platform.levels[Level.L1].alignment
        pieces = []
        for operand, buffers in zip(step.operands, p.l1, strict=True):
            for offset in buffers.offsets if buffers else ():
                assert buffers is not None
                unit = max(alignment, operand.tensor.dtype.size)
                pieces.append(_Piece(operand.tensor.name, offset, offset + buffers.bytes, 0, 0, unit))
        for what, block in (("accumulators", p.accumulator), ("scratch", p.scratch)):
            if block is not None:
                pieces.append(_Piece(what, block.offset, block.offset + block.bytes, 0, 0, max(8, alignment)))
        arena = self.plan.arenas[Level.L1]
        for piece in pieces:
            self._inside(piece, arena, step)
        for below, above in itertools.pairwise(sorted(pieces, key=lambda q: (q.begin, q.end))):
            _require(below.end <= above.begin, f"{below.what} and {above.what} overlap in L1", step)

    # ---- storages -----------------------------------------------------------------------------------------------------------------

    @staticmethod
    def _far(operand: Operand) -> bool:
        return not _immediate(operand) and operand.tensor.storage.home is Level.L3

    def _used(self) -> dict[Storage, list[int]]:
        used: dict[Storage, list[int]] = {}
        for tensor in self.program.tensors:
            if tensor.storage.size:
                used.setdefault(tensor.storage, [])
        for index, step in enumerate(self.program.steps):
            for operand in step.operands:
                if not _immediate(operand):
                    used.setdefault(operand.tensor.storage, []).append(index)
        return used

    def _homes(self) -> None:
        placed: dict[Storage, tuple[Level, Placement]] = {}
        for level in (Level.L2, Level.L3):
            for placement in self.plan.arenas[level].placements:
                _require(placement.storage not in placed, f"storage {placement.storage.name} is placed twice")
                placed[placement.storage] = (level, placement)
        inputs, outputs = {t.storage for t in self.program.inputs}, {t.storage for t in self.program.outputs}
        end = max(0, len(self.program.steps) - 1)
        for storage, steps in self._used().items():
            name = storage.name
            _require(storage.home in (Level.L2, Level.L3), f"storage {name} has no home")
            fixed = storage.role in (Role.CONSTANT, Role.STATE) or storage.content is not None
            _require(fixed != (storage in placed), f"storage {name} is in an arena and may not be, or is in none")
            if fixed:
                continue
            level, placement = placed[storage]
            _require(level is storage.home, f"storage {name} is not in the arena of its home")
            need = [*steps, *([0] if storage in inputs else []), *([end] if storage in outputs else [])]
            alive = not need or (placement.first <= min(need) and max(need) <= placement.last)
            _require(alive, f"storage {name} is used outside of its lifetime")

    def _pieces(self, level: Level) -> Iterator[_Piece]:
        least = self.platform.levels[level].alignment
        for q in self.plan.arenas[level].placements:
            unit = max(least, q.storage.alignment)
            yield _Piece(q.storage.name, q.offset, q.offset + q.storage.size, q.first, q.last, unit, q.storage)
        for index, p in enumerate(self.plan.steps if level is Level.L2 else ()):
            for operand, buffers in zip(p.step.operands, p.l2, strict=True):
                for offset in buffers.offsets if buffers else ():
                    assert buffers is not None
                    unit = max(least, operand.tensor.dtype.size)
                    yield _Piece(f"a tile of {operand.tensor.name}", offset, offset + buffers.bytes, index, index, unit)

    def _arena(self, level: Level) -> None:
        starts: dict[int, list[_Piece]] = {}
        for piece in self._pieces(level):
            self._inside(piece, self.plan.arenas[level], None)
            _require(0 <= piece.first <= piece.last, f"{piece.what} has no lifetime")
            starts.setdefault(piece.first, []).append(piece)
        active: list[_Piece] = []
        for time in sorted(starts):
            active = [p for p in active if p.last >= time]
            for piece in starts[time]:
                for other in active:
                    apart = piece.end <= other.begin or other.end <= piece.begin
                    _require(apart or self._in_place(other, piece), f"{piece.what} and {other.what} overlap in {level.name}")
                active.append(piece)

    def _in_place(self, a: _Piece, b: _Piece) -> bool:
        """Whether one of the two ends in the step that writes the other over it, element by element."""
        return self._writes_over(a, b) or self._writes_over(b, a)

    def _writes_over(self, old: _Piece, new: _Piece) -> bool:
        if old.storage is None or new.storage is None or old.last != new.first or old.begin != new.begin:
            return False
        outlives = {t.storage for t in (*self.program.inputs, *self.program.outputs)}
        if old.storage.role is not Role.ACTIVATION or old.storage in outlives:
            return False
        step = self.program.steps[new.first]
        for w, r in step.in_place:
            written, read = step.operands[w], step.operands[r]
            if written.tensor.storage is new.storage and read.tensor.storage is old.storage:
                others = [o for o in step.operands if o.tensor.storage in (old.storage, new.storage) and o is not written]
                return (
                    all(o.access is Access.READ and o.dims == written.dims and o.tensor.storage is old.storage for o in others)
                    and all(o.offset == o.tensor.offset == 0 and o.tensor.is_dense for o in (written, *others))
                    and written.tensor.dtype.size == read.tensor.dtype.size
                    and old.storage.size == new.storage.size == written.tensor.bytes
                )
        return False

    def _inside(self, piece: _Piece, arena: Arena, step: Step | None) -> None:
        level = arena.level.name
        _require(0 <= piece.begin and piece.end <= arena.size, f"{piece.what} lies outside of the {level} arena", step)
        _require(piece.begin % piece.alignment == 0, f"{piece.what} is not aligned in {level}", step)

    def _levels(self) -> None:
        for level in Level:
            spec: LevelSpec = self.platform.levels[level]
            constants = 0
            for storage in self._used():
                fixed = storage.role in (Role.CONSTANT, Role.STATE) or storage.content is not None
                constants += storage.size if fixed and storage.home is level else 0
            needed = constants + self.plan.arenas[level].size
            _require(needed <= spec.usable, f"{needed} bytes in {level.name}, which has {spec.usable}")
            use = next((u for u in self.plan.use if u.level is level), None)
            _require(use is not None and use.arena == self.plan.arenas[level].size, f"the use of {level.name} is not that of its arena")
            assert use is not None
            _require(use.constants >= constants, f"constants of {constants} bytes in {level.name} counted as {use.constants}")


def _boxes(span: tuple[int, int, int]) -> list[tuple[int, int]]:
    """(first index, length) of every inner tile of an axis."""
    size, outer, inner = span
    result = []
    for begin in range(0, size, outer):
        end = min(begin + outer, size)
        result += [(at, min(inner, end - at)) for at in range(begin, end, inner)]
    return result


def _intervals(dim: DimMap, spans: tuple[tuple[int, int, int], ...]) -> tuple[np.ndarray, np.ndarray]:
    """Unclipped [low, high) of a dimension for all tiles of its axes."""
    low = np.array([dim.offset], np.int64)
    high = low + dim.window
    for (_, coefficient), span in zip(dim.terms, spans, strict=True):
        boxes = np.array(_boxes(span), np.int64)
        first, last = boxes[:, 0] * coefficient, (boxes[:, 0] + boxes[:, 1] - 1) * coefficient
        low = (low[:, None] + first[None, :]).reshape(-1)
        high = (high[:, None] + last[None, :]).reshape(-1)
    return low, high


def _partitions(dim: DimMap, spans: tuple[tuple[int, int, int], ...]) -> bool:
    """Whether the intervals of all tiles follow each other without gap or overlap from 0 to the end."""
    low, high = _intervals(dim, spans)
    order = np.argsort(low, kind="stable")
    low, high = low[order], high[order]
    return bool(low[0] == 0 and (high[:-1] == low[1:]).all() and low[-1] < dim.size <= high[-1])
