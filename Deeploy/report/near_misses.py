"""Equal contents that have two storages, each once, with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from Deeploy.emit.manifest import StorageEntry
from Deeploy.report.index import Index

STATE = "state is shared by identity, never by content"


@dataclass(frozen=True)
class NearMiss:
    """Two tensors with equal bytes and two storages."""

    tensor: str
    twin: str
    reason: str


def near_misses(index: Index) -> dict[str, list[NearMiss]]:
    """Per level: every storage whose bytes, all of them, another one has as well, with one twin of it and the reason.

    What sharing has reported comes first. The level is that of the first tensor of the pair; its twin may be at home elsewhere. Length and
    bytes decide, not the type: a content that is only the beginning of another is none.
    """
    result: dict[str, list[NearMiss]] = {}
    pairs: set[frozenset[str]] = set()
    named: dict[str, StorageEntry] = {}
    for owner in index.manifest.storages:
        for tensor in index.on[owner.name]:
            named.setdefault(tensor.source, owner)
    told: set[str] = set()
    for n in index.manifest.not_shared:
        storage, twin = named.get(n.tensor), named.get(n.twin)
        pair = frozenset((storage.name if storage else n.tensor, twin.name if twin else n.twin))
        if pair not in pairs:
            pairs.add(pair)
            told.add(storage.name if storage else n.tensor)
            result.setdefault(storage.home if storage else "L3", []).append(NearMiss(n.tensor, n.twin, n.reason))
    for twins in _equal(index):
        # One twin keeps the bytes; it is none of those that sharing has already given a twin.
        keeper = next((s for s in twins if s.name not in told), twins[0])
        for other in twins:
            if other is not keeper and other.name not in told and frozenset((other.name, keeper.name)) not in pairs:
                result.setdefault(other.home, []).append(_miss(index, other, keeper))
    return result


def _equal(index: Index) -> list[list[StorageEntry]]:
    """The storages of each content that has several."""
    contents: dict[str, list[StorageEntry]] = {}
    for storage in index.manifest.storages:
        if storage.content:
            contents.setdefault(storage.content, []).append(storage)
    return [twins for twins in contents.values() if len(twins) > 1]


def _miss(index: Index, storage: StorageEntry, twin: StorageEntry) -> NearMiss:
    state = [s for s in (storage, twin) if s.role == "state"]
    names = [index.title(s) for s in (storage, twin)]
    if len(state) == 2:
        reason = STATE
    elif state:
        reason = f"'{index.title(state[0])}' is state: {STATE}"
    else:
        reason = "sharing was switched off"
    return NearMiss(names[0], names[1], reason)
