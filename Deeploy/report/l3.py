"""What constants and initialised state take at each level: as if every reader had its own copy, as stored, and as recounted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from Deeploy.emit.manifest import Manifest, StorageEntry, TensorEntry
from Deeploy.errors import DefectError
from Deeploy.program.dtypes import from_name
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
class NearMiss:
    """Two tensors with equal bytes and two storages."""

    tensor: str
    twin: str
    reason: str


@dataclass(frozen=True)
class Immediate:
    """A constant that is stored nowhere, because it is one value: `bytes` is what it would take."""

    tensor: str
    bytes: int


@dataclass(frozen=True)
class LevelReport:
    """The l3 (or l2) object of the command line's JSON.

    replicated: every (node, slot) of the source graph has a copy of its own at this level, whatever the options; stored: this project;
    recount: counted from the emitted files alone; padding: bytes that alignment adds, not in any of the figures.
    """

    replicated: Figures
    stored: Figures
    recount: Count
    padding: int
    groups: list[ShareGroup]
    not_shared: list[NearMiss]
    immediates: list[Immediate]

    def json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def level_reports(manifest: Manifest, folder: Path) -> dict[str, LevelReport]:
    """{"l3": ..., "l2": ...} of the project in `folder`. Raises DefectError if stored and recounted figures differ."""
    counted = recount(folder)
    result = {}
    for level, count in (("L3", counted.l3), ("L2", counted.l2)):
        stored = _stored(manifest, level)
        found = Figures(count.allocations, count.files, count.bytes)
        if found != stored:
            raise DefectError(f"{level}: the manifest says {stored}, the emitted files {found}")
        mine = list(_carried(manifest, level))
        padding = sum(-s.size % s.alignment for s in mine)
        result[level.lower()] = LevelReport(
            replicated=_replicated(manifest, level),
            stored=stored,
            recount=count,
            padding=padding,
            groups=[ShareGroup(s.content, s.size, [_label(manifest, m) for m in s.members]) for s in mine if len(s.members) > 1],
            not_shared=list(_near_misses(manifest, mine)),
            immediates=list(_immediates(manifest)),
        )
    return result


def _carried(manifest: Manifest, level: str) -> Iterator[StorageEntry]:
    """Storages at home in the level that the project brings bytes for."""
    return (s for s in manifest.storages if s.home == level and s.content)


def _fixtures(manifest: Manifest) -> set[str]:
    return {name for p in manifest.programs for name in p.fixtures if name}


def _stored(manifest: Manifest, level: str) -> Figures:
    mine = list(_carried(manifest, level))
    if level == "L3":  # every .hex file counts
        files = {s.file for s in manifest.storages if s.file} | _fixtures(manifest)
    else:
        files = {s.file for s in mine if s.file}
    return Figures(len(mine), len(files), sum(s.size for s in mine))


def _replicated(manifest: Manifest, level: str) -> Figures:
    readers = manifest.readers
    files = len(readers) + len(_fixtures(manifest)) if level == "L3" else 0
    return Figures(len(readers), files, sum(r.bytes for r in readers))


def _tensors(manifest: Manifest) -> dict[str, TensorEntry]:
    return {t.name: t for p in manifest.programs for t in p.tensors}


def _label(manifest: Manifest, name: str) -> str:
    tensor = _tensors(manifest).get(name)
    if tensor is None:
        return name
    return f"{tensor.source} ({tensor.reader})" if tensor.reader else tensor.source


def _near_misses(manifest: Manifest, mine: list[StorageEntry]) -> Iterator[NearMiss]:
    """What sharing has reported, and equal contents at the level that have two storages for another reason."""
    for n in manifest.not_shared:
        yield NearMiss(n.tensor, n.twin, n.reason)
    reported = {n.tensor for n in manifest.not_shared} | {n.twin for n in manifest.not_shared}
    tensors = _tensors(manifest)
    first: dict[str, StorageEntry] = {}
    for storage in mine:
        twin = first.setdefault(storage.content, storage)
        sources = {tensors[m].source for s in (storage, twin) for m in s.members if m in tensors}
        if twin is storage or sources & reported:
            continue
        state = "state" in (storage.role, twin.role)
        reason = "state is shared by identity, never by content" if state else "sharing was switched off"
        yield NearMiss(_label(manifest, storage.members[0]), _label(manifest, twin.members[0]), reason)


def _immediates(manifest: Manifest) -> Iterator[Immediate]:
    for tensor in _tensors(manifest).values():
        if tensor.literal is not None:
            elements = 1
            for extent in tensor.shape:
                elements *= extent
            yield Immediate(_label(manifest, tensor.name), elements * from_name(tensor.dtype).size)
