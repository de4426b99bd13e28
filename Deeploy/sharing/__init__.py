"""Which constants share a storage.

Runs after every rewrite that changes bytes. The key is the bytes: length, digest, then full comparison; never dtype or shape, so -0.0 and
0.0 differ, equal NaN payloads are equal, and zeros of any type are one content. Only storages change: tensors, types and steps do not.
"""

from __future__ import annotations

import hashlib

from Deeploy.program.program import NotShared, Project
from Deeploy.program.tensor import ConstantBuffer, Storage


def share(project: Project, *, exclude: frozenset[str] = frozenset()) -> None:
    """Lets all ConstantBuffers of all programs with equal bytes use one storage each, aligned for the strictest.

    exclude: ONNX names of constants that are shared by identity only (initializers that a caller may override): all readers of one name
    use one storage, and equal twins under other names are listed in project.not_shared with the reason.
    """
    buckets: dict[tuple[int, bytes], list[Storage]] = {}
    replaced: dict[int, Storage] = {}
    identities: dict[tuple[str, bytes], Storage] = {}
    for program in project.programs:
        for tensor in program.constants:
            storage = tensor.storage
            if storage.size == 0 or id(storage) in replaced:
                continue
            if tensor.source in exclude:
                replaced[id(storage)] = _joined(identities.setdefault((tensor.source, _content(storage)), storage), storage)
                continue
            replaced[id(storage)] = _representative(buckets, storage)
    for program in project.programs:
        for tensor in program.constants:
            if tensor.storage.size:
                tensor.storage = replaced[id(tensor.storage)]
    _report_near_misses(project, identities)


def _content(storage: Storage) -> bytes:
    assert storage.content is not None, storage.name
    return storage.content


def _representative(buckets: dict[tuple[int, bytes], list[Storage]], storage: Storage) -> Storage:
    """The first storage with the same bytes; `storage` itself if it is the first."""
    content = _content(storage)
    candidates = buckets.setdefault((len(content), hashlib.sha256(content).digest()), [])
    for other in candidates:
        if other.content == content:
            return _joined(other, storage)
    candidates.append(storage)
    return storage


def _joined(owner: Storage, storage: Storage) -> Storage:
    """`owner`, now also for the members of `storage`."""
    if owner is not storage:
        owner.alignment = max(owner.alignment, storage.alignment)
        owner.members += storage.members
    return owner


def _report_near_misses(project: Project, identities: dict[tuple[str, bytes], Storage]) -> None:
    """One entry per pair of names with equal bytes of which at least one may be overridden."""
    owners: dict[bytes, str] = {}
    for name, content in identities:
        owners.setdefault(content, name)
    seen: set[str] = set()
    for program in project.programs:
        for tensor in program.constants:
            twin = owners.get(_content(tensor.storage)) if tensor.storage.size else None
            if twin is not None and twin != tensor.source and tensor.source not in seen:
                seen.add(tensor.source)
                reason = f"'{twin}' is also a graph input, so a caller may override it"
                project.not_shared.append(NotShared(tensor.source, twin, reason))


def aliases(project: Project) -> list[tuple[ConstantBuffer, ConstantBuffer]]:
    """(buffer, first buffer of its storage) for every ConstantBuffer that is not the first of its storage."""
    first: dict[int, ConstantBuffer] = {}
    pairs = []
    for program in project.programs:
        for tensor in program.constants:
            if tensor.storage.size == 0:
                continue
            owner = first.setdefault(id(tensor.storage), tensor)
            if owner is not tensor:
                pairs.append((tensor, owner))
    return pairs
