"""When the bytes of every storage are needed, and which storages may lie on each other because a step works in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from Deeploy.plan.geometry import is_literal
from Deeploy.program.program import Program
from Deeploy.program.step import Access, Operand, Step
from Deeploy.program.tensor import Role, Storage


@dataclass(frozen=True)
class Lifetime:
    """Step indices, both inclusive."""

    first: int
    last: int


def placed_storages(program: Program) -> list[Storage]:
    """Every storage with bytes, once: what gets a home."""
    found = {id(s): s for s in program.storages if s.size}
    for step in program.steps:
        for operand in step.operands:
            if not is_literal(operand):
                found.setdefault(id(operand.tensor.storage), operand.tensor.storage)
    return list(found.values())


def lifetimes(program: Program) -> dict[Storage, Lifetime]:
    """Lifetimes of all storages.

    Constants and state live always. What the caller writes lives from step 0 on, what he reads lives to the last step. Everything else
    lives from its first to its last use.
    """
    end = max(0, len(program.steps) - 1)
    uses: dict[Storage, list[int]] = {s: [] for s in placed_storages(program)}
    for index, step in enumerate(program.steps):
        for operand in step.operands:
            if not is_literal(operand):
                uses[operand.tensor.storage].append(index)
    written_before = {id(t.storage) for t in program.inputs}
    read_after = {id(t.storage) for t in program.outputs}
    result = {}
    for storage, steps in uses.items():
        if storage.role in (Role.CONSTANT, Role.STATE):
            result[storage] = Lifetime(0, end)
            continue
        first, last = (min(steps), max(steps)) if steps else (0, 0)
        if storage.role is Role.INPUT or id(storage) in written_before:
            first = 0
        if storage.role is Role.OUTPUT or id(storage) in read_after:
            last = end
        result[storage] = Lifetime(first, last)
    return result


def in_arena(storage: Storage) -> bool:
    """Whether the storage lies in an arena: it has no initial bytes and does not outlive a run."""
    return storage.role not in (Role.CONSTANT, Role.STATE) and storage.content is None


@dataclass(frozen=True)
class InPlace:
    """`written` begins to live where `read` ends: step `step` may write its result over its operand."""

    written: Storage
    read: Storage
    step: int


def in_place_pairs(program: Program, alive: dict[Storage, Lifetime]) -> list[InPlace]:
    """The pairs that may share their bytes. A storage is written over at most once, and writes over at most one other."""
    taken: set[tuple[int, int]] = set()
    protected = {id(t.storage) for t in (*program.inputs, *program.outputs, *program.state)}
    result = []
    for index, step in enumerate(program.steps):
        for w, r in step.in_place:
            written, read = step.operands[w].tensor.storage, step.operands[r].tensor.storage
            allowed = (
                in_arena(written)
                and read.role is Role.ACTIVATION
                and id(read) not in protected
                and written is not read
                and (id(written), 0) not in taken
                and (id(read), 1) not in taken
                and alive[written].first == index == alive[read].last
                and _same_elements(step, w, r)
            )
            if allowed:
                taken |= {(id(written), 0), (id(read), 1)}
                result.append(InPlace(written, read, index))
    return result


def _covers(operand: Operand) -> bool:
    tensor = operand.tensor
    return operand.offset == 0 and tensor.offset == 0 and tensor.is_dense and tensor.bytes == tensor.storage.size


def _same_elements(step: Step, w: int, r: int) -> bool:
    """Whether every tile of operand w lies on exactly the bytes of the same tile of operand r, and nothing else reads those."""
    written, read = step.operands[w], step.operands[r]
    if written.access is not Access.WRITE or read.access is not Access.READ or is_literal(read):
        return False
    if written.dims != read.dims or written.tensor.dtype.size != read.tensor.dtype.size or not (_covers(written) and _covers(read)):
        return False
    for index, other in enumerate(step.operands):
        if index not in (w, r) and not is_literal(other) and other.tensor.storage in (written.tensor.storage, read.tensor.storage):
            same = other.access is Access.READ and other.dims == read.dims and other.offset == 0 and other.tensor.offset == 0
            if other.tensor.storage is written.tensor.storage or not same:
                return False
    return True


@dataclass
class Group:
    """Storages that lie on each other: an in-place chain, or one storage alone."""

    storages: list[Storage]
    first: int
    last: int

    @property
    def size(self) -> int:
        return max(s.size for s in self.storages)


def groups(
    storages: Iterable[Storage], alive: dict[Storage, Lifetime], pairs: Iterable[InPlace], together: Callable[[Storage, Storage], bool]
) -> list[Group]:
    """Joins in-place chains. together: whether two storages may be in one arena (they have the same home)."""
    group_of = {s: Group([s], alive[s].first, alive[s].last) for s in storages}
    for pair in pairs:
        if pair.written in group_of and pair.read in group_of and together(pair.written, pair.read):
            into, other = group_of[pair.read], group_of[pair.written]
            into.storages += other.storages
            into.first, into.last = min(into.first, other.first), max(into.last, other.last)
            for storage in other.storages:
                group_of[storage] = into
    return list({id(g): g for g in group_of.values()}.values())
