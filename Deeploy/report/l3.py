"""What constants and initialised state take at each level: as if every reader had its own copy, as stored, and as recounted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from Deeploy.emit.manifest import Manifest, ProgramEntry, ReaderEntry, StorageEntry
from Deeploy.errors import DefectError
from Deeploy.report.addresses import address_faults
from Deeploy.report.index import Index, bytes_of
from Deeploy.report.near_misses import NearMiss, near_misses
from Deeploy.report.recount import Count, recount


@dataclass(frozen=True)
class Figures:
    """Allocations, .hex files and bytes without padding."""

    allocations: int
    files: int
    bytes: int


@dataclass(frozen=True)
class ShareGroup:
    """Constants of one content on one storage. content: SHA-256; members: ONNX names with their readers."""

    content: str
    bytes: int
    members: list[str]


@dataclass(frozen=True)
class Immediate:
    """A constant that is stored nowhere, because it is one value: `bytes` is what it would take."""

    tensor: str
    bytes: int


@dataclass(frozen=True)
class ProgramFigures:
    """The part of one program. replicated: of its own readers; stored: all that its tensors use. What two programs use, and their fixtures
    for common state, count in both, and once in the figures of the project."""

    name: str
    replicated: Figures
    stored: Figures


@dataclass(frozen=True)
class LevelReport:
    """The l3 (or l2) object of the command line's JSON.

    replicated: every (node, slot) of the source graph has a copy of its own at this level, whatever the options; stored: this project;
    recount: counted from the emitted files alone; programs: the same per program; padding: bytes that alignment adds, not in any of the
    figures.
    """

    replicated: Figures
    stored: Figures
    recount: Count
    programs: list[ProgramFigures]
    padding: int
    groups: list[ShareGroup]
    not_shared: list[NearMiss]
    immediates: list[Immediate]

    def json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def level_reports(manifest: Manifest, folder: Path) -> dict[str, LevelReport]:
    """{"l3": ..., "l2": ...} of the project in `folder`. Raises DefectError if its files are not what the manifest says."""
    counted = recount(folder)
    faults = address_faults(manifest, counted)
    index = Index(manifest)
    misses = near_misses(index)
    result = {}
    for level, count in (("L3", counted.l3), ("L2", counted.l2)):
        mine = list(index.loaded(level))
        stored = _stored(level, mine, {s.file for s in manifest.storages} | manifest.fixtures)
        found = Figures(count.allocations, count.files, count.bytes)
        if found != stored:
            faults.append(f"{level}: the manifest says {stored}, the emitted files {found}")
        result[level.lower()] = LevelReport(
            replicated=_replicated(level, manifest.readers, manifest.fixtures),
            stored=stored,
            recount=count,
            programs=[_program(index, level, p) for p in manifest.programs],
            padding=sum(-s.size % s.alignment for s in mine),
            groups=[ShareGroup(s.content, s.size, index.members(s)) for s in mine if s.role != "state" and len(index.on[s.name]) > 1],
            not_shared=misses.get(level, []),
            immediates=list(_immediates(index)),
        )
    if faults:
        raise DefectError(*faults)
    return result


def _stored(level: str, mine: list[StorageEntry], files: set[str]) -> Figures:
    """files: of everything, which all count for L3."""
    if level != "L3":
        files = {s.file for s in mine}
    return Figures(len(mine), len(files - {""}), sum(s.size for s in mine))


def _replicated(level: str, readers: Iterable[ReaderEntry], fixtures: set[str]) -> Figures:
    sizes = [r.bytes for r in readers]
    return Figures(len(sizes), len(sizes) + len(fixtures) if level == "L3" else 0, sum(sizes))


def _program(index: Index, level: str, program: ProgramEntry) -> ProgramFigures:
    manifest = index.manifest
    used = index.of_program(program)
    names = {s.name for s in used}
    number = manifest.programs.index(program)
    fixtures = {f for c in manifest.calls if c.program == number for f in c.fixtures} | {
        s.fixture for s in manifest.state if s.storage in names
    }
    alone = len(manifest.programs) == 1
    readers = [r for r in manifest.readers if alone or r.program == program.name]
    mine = [s for s in used if s.home == level and s.content]
    return ProgramFigures(
        program.name,
        _replicated(level, readers, fixtures - {""}),
        _stored(level, mine, {s.file for s in used} | fixtures),
    )


def _immediates(index: Index) -> Iterator[Immediate]:
    for tensor in index.tensors.values():
        if tensor.literal is not None:
            yield Immediate(index.label(tensor), bytes_of(tensor))
