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

    exclude: ONNX names of constants that must keep their own (initializers that a caller may override); equal twins of them are listed in
    project.not_shared with the reason.
    """
    buckets: dict[tuple[int, bytes], list[Storage]] = {}
    replaced: dict[int, Storage] = {}
    first_excluded: dict[bytes, str] = {}
    for program in project.programs:
        for tensor in program.constants:
            storage = tensor.storage
            if storage.size == 0 or id(storage) in replaced:
                continue
            if tensor.source in exclude:
                first_excluded.setdefault(_content(storage), tensor.source)
                replaced[id(storage)] = storage
                continue
            replaced[id(storage)] = _representative(buckets, storage)
    for program in project.programs:
        for tensor in program.constants:
            if tensor.storage.size:
                tensor.storage = replaced[id(tensor.storage)]
    _report_near_misses(project, first_excluded)


def _content(storage: Storage) -> bytes:
    assert storage.content is not None, storage.name
    return storage.content


def _representative(buckets: dict[tuple[int, bytes], list[Storage]], storage: Storage) -> Storage:
    """The first storage with the same bytes; `storage` itself if it is the first."""
    content = _content(storage)
    candidates = buckets.setdefault((len(content), hashlib.sha256(content).digest()), [])
    for other in candidates:
        if other.content == content:
            other.alignment = max(other.alignment, storage.alignment)
            other.members += storage.members
            return other
    candidates.append(storage)
    return storage


def _report_near_misses(project: Project, excluded: dict[bytes, str]) -> None:
    for program in project.programs:
        for tensor in program.constants:
            twin = excluded.get(tensor.storage.content or b"") if tensor.storage.size else None
            if twin is not None and twin != tensor.source:
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
