"""What a picture of a memory level shows, as data: rectangles of step index and address, one per storage, never one per tensor.

A picture is of one program and one level. Constants and state live as long as the project: they are bars over all steps, in a part of
their own. Everything else lies in the level's arena: storages with their lifetimes, and the tile buffers of each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from Deeploy.emit.manifest import OperandEntry, ProgramEntry, StepEntry, StorageEntry
from Deeploy.report.index import Index

LEVELS = ("L1", "L2", "L3")


@dataclass(frozen=True)
class Box:
    """A rectangle in the arena. kind: role of the storage, or "tile", "accumulator", "scratch"; storage: "" for those of a step; first,
    last: steps, both inclusive; title: lines for people."""

    kind: str
    storage: str
    first: int
    last: int
    offset: int
    bytes: int
    label: str
    title: tuple[str, ...]


@dataclass(frozen=True)
class Bar:
    """A constant or a state. offset: None if it is not in the arena; readers: how many read it, in the whole project; reads, writes: the
    steps of this program that do; others: the other programs that use it; label: its name and what to say behind it."""

    kind: str
    storage: str
    offset: int | None
    bytes: int
    readers: int
    reads: list[int]
    writes: list[int]
    others: list[str]
    label: tuple[str, str]
    title: tuple[str, ...]

    @property
    def shared(self) -> bool:
        return self.readers > 1 or bool(self.others)


@dataclass(frozen=True)
class Picture:
    """Of one program and one level. steps: number of columns; size: of the arena, bytes."""

    program: str
    level: str
    steps: int
    size: int
    bound: int
    bars: list[Bar]
    boxes: list[Box]


def pictures(index: Index, program: ProgramEntry) -> list[Picture]:
    """The pictures of a program: of all levels that it uses."""
    result = []
    arenas = {a.level: a for a in program.arenas}
    for level in LEVELS:
        here = [s for s in index.of_program(program) if s.home == level and s.size]
        bars = [_bar(index, program, s) for s in here if is_bar(s)]
        boxes = [_box(index, program, s) for s in here if not is_bar(s)] + list(_of_steps(index, program, level))
        if bars or boxes:
            arena = arenas.get(level)
            size = max([arena.size if arena else 0, *(b.offset + b.bytes for b in boxes)])
            result.append(Picture(program.name, level, max(1, len(program.steps)), size, arena.bound if arena else 0, bars, boxes))
    return result


def is_bar(storage: StorageEntry) -> bool:
    """Whether the storage lives as long as the project."""
    return storage.role in ("constant", "state") or bool(storage.content)


def plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _bar(index: Index, program: ProgramEntry, storage: StorageEntry) -> Bar:
    uses = index.uses[storage.name]
    mine = [u for u in uses if u.program == program.name]
    members = index.members(storage)
    readers = len(members) if storage.role == "constant" else sum(u.reads for u in uses)
    others = [p for p in index.programs_of(storage) if p != program.name]
    updates = sum(u.writes for u in uses)
    parts = [plural(readers, "reader")] + ([plural(updates, "update")] if updates else [])
    name = index.title(storage) if storage.role == "state" else index.on[storage.name][0].source
    behind = ": " + ", ".join(parts) + (f", also in {', '.join(others)}" if others else "")
    place = "" if storage.offset is None else f", offset {storage.offset:,}"
    title = (
        storage.name,
        f"{storage.role}, {storage.size:,} bytes{place}, from Init to Free",
        ", ".join(parts),
        f"members: {', '.join(members)}",
    )
    return Bar(
        kind=storage.role,
        storage=storage.name,
        offset=storage.offset,
        bytes=storage.size,
        readers=readers,
        reads=[u.step for u in mine if u.reads],
        writes=[u.step for u in mine if u.writes],
        others=others,
        label=(name, behind),
        title=title,
    )


def _box(index: Index, program: ProgramEntry, storage: StorageEntry) -> Box:
    end = max(0, len(program.steps) - 1)
    first, last = (min(max(0 if step is None else step, 0), end) for step in (storage.first, storage.last))
    offset = storage.offset or 0
    title = (
        storage.name,
        f"{storage.role}, {storage.size:,} bytes, offset {offset:,}, steps {first} to {last}",
        f"members: {', '.join(index.members(storage))}",
    )
    return Box(storage.role, storage.name, first, last, offset, storage.size, index.title(storage), title)


def _of_steps(index: Index, program: ProgramEntry, level: str) -> Iterator[Box]:
    """The tile buffers of all steps at the level, in L1 also their accumulators and scratch."""
    for number, step in enumerate(program.steps):
        for operand in step.operands:
            yield from _tiles(index, number, step, operand, level)
        if level == "L1":
            blocks = (("accumulator", step.accumulator, step.accumulator_offset), ("scratch", step.scratch, step.scratch_offset))
            for kind, size, offset in blocks:
                if size and offset is not None:
                    title = (f"{kind} of step {number} ({step.operator})", f"{size:,} bytes, offset {offset:,}")
                    yield Box(kind, "", number, number, offset, size, kind, title)


def _tiles(index: Index, number: int, step: StepEntry, operand: OperandEntry, level: str) -> Iterator[Box]:
    near = level == "L1"
    size, offsets = (operand.l1_bytes, operand.l1_offsets) if near else (operand.l2_bytes, operand.l2_offsets)
    if level == "L3" or not size or not offsets:
        return
    tensor = index.tensors[operand.tensor]
    for copy, offset in enumerate(offsets, 1):
        title = (
            f"tile buffer {copy} of {len(offsets)} of step {number} ({step.operator})",
            f"{size:,} bytes, offset {offset:,}",
            f"{operand.access}: {index.label(tensor)}",
        )
        yield Box("tile", "", number, number, offset, size, tensor.source, title)
