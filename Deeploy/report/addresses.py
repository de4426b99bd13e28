"""Whether every pointer of the emitted C has the address that the manifest says, and every file what it should hold.

The figures alone do not tell when two files, two pointers or two sizes have changed places.
"""

from __future__ import annotations

from collections.abc import Iterator

from Deeploy.emit.manifest import Manifest, StorageEntry
from Deeploy.report.index import bytes_of
from Deeploy.report.recount import Address, Recount

INIT = "init_network"
"""The function of Network.c that sets the pointers of what lives from Init to Free."""


def address_faults(manifest: Manifest, counted: Recount) -> list[str]:
    """What is wrong with the pointers and files of an emitted project; empty if nothing is."""
    return [*_pointers(manifest, counted), *_files(manifest, counted)]


def _pointers(manifest: Manifest, counted: Recount) -> Iterator[str]:
    storages = {s.name: s for s in manifest.storages}
    tensors = {f"t_{t.name}": (p.name, t) for p in manifest.programs for t in p.tensors if t.literal is None}
    seen: set[str] = set()
    aliases: set[tuple[str, str]] = set()
    for address in counted.addresses:
        unknown = [x for x in address.pointers if x not in tensors or tensors[x][1].storage not in storages]
        if unknown:
            yield from (f"{x} is no tensor of the manifest" for x in unknown)
            continue
        seen |= set(address.pointers)
        mine = [(program, storages[t.storage]) for program, t in (tensors[x] for x in address.pointers)]
        if address.kind == "arena":
            yield from _opened(address, mine)
            continue
        aliases |= {(x, address.pointers[0]) for x in address.pointers[1:]}
        yield from _initialised(address, [s for _, s in mine])
    expected = {(f"t_{a.tensor}", f"t_{a.of}") for a in manifest.aliases}
    yield from sorted(f"{x} is not set to {y}" for x, y in expected - aliases)
    yield from sorted(f"{x} is set to {y}, which the manifest does not say" for x, y in aliases - expected)
    needed = {x for x, (_, t) in tensors.items() if t.storage in storages and storages[t.storage].size}
    yield from sorted(f"{x} is never set" for x in needed - seen)


def _initialised(address: Address, storages: list[StorageEntry]) -> Iterator[str]:
    """A place with initial bytes belongs to one storage and has its size, file and content."""
    first, name = storages[0], address.pointers[0]
    for pointer, storage in zip(address.pointers, storages, strict=True):
        if storage is not first:
            yield f"{pointer} is set to {name}, but they have the storages {storage.name} and {first.name}"
    symbol = address.symbol or name
    said = (first.home, first.symbol, first.size, first.file, first.content)
    found = (address.level, symbol, address.bytes, address.file, address.content)
    for what, a, b in zip(("level", "symbol", "size", "file", "content"), said, found, strict=True):
        if a != b:
            yield f"{name}: its {what} is {b} and not {a}"
    if address.function != INIT:
        yield f"{name} is set by {address.function} and not by {INIT}"


def _opened(address: Address, mine: list[tuple[str, StorageEntry]]) -> Iterator[str]:
    """A place in an arena has the offset of all its storages and the size of the largest; state shares it with nothing else."""
    name = address.pointers[0]
    for pointer, (program, storage) in zip(address.pointers, mine, strict=True):
        if storage.content or (storage.home, storage.offset) != (address.level, address.offset):
            yield f"{pointer} is set to the offset {address.offset} of {address.level}, which is not that of its storage {storage.name}"
        if storage is not mine[0][1] and ("state" in (storage.role, mine[0][1].role) or program != mine[0][0]):
            yield f"{pointer} is set to {name}, but they have the storages {storage.name} and {mine[0][1].name}"
        if storage.role == "state" and address.function != INIT:
            yield f"{pointer} is set by {address.function} and not by {INIT}"
    largest = max(s.size for _, s in mine)
    if largest != address.bytes:
        yield f"{name} has {address.bytes} bytes in the arena of {address.level} and not {largest}"


def _files(manifest: Manifest, counted: Recount) -> Iterator[str]:
    """The files are those of storages and fixtures; a fixture has the size of its tensor."""
    expected = {s.file for s in manifest.storages if s.file} | manifest.fixtures
    yield from sorted(f"the file {name} is missing" for name in expected - counted.files.keys())
    yield from sorted(f"the file {name} belongs to nothing" for name in counted.files.keys() - expected)
    wanted: dict[str, int] = {}
    tensors = {t.name: t for p in manifest.programs for t in p.tensors}
    for call in manifest.calls:
        inputs = manifest.programs[call.program].inputs
        wanted |= {file: bytes_of(tensors[x]) for file, x in zip(call.fixtures, inputs, strict=True) if file}
    wanted |= {s.fixture: bytes_of(tensors[s.tensor]) for s in manifest.state if s.fixture}
    for name, size in sorted(wanted.items()):
        if counted.files.get(name, size) != size:
            yield f"the file {name} has {counted.files[name]} bytes and not {size}"
