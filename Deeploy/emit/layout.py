"""Where everything is in the emitted C: pointers of tensors, arrays and files of storages, and when arena buffers open and close.

Pointer variables belong to tensors, so that the text of the steps does not depend on which storages are shared. A pointer is the
beginning of the tensor's storage; the tensor's own offset is added where it is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from Deeploy.emit.script import project_state
from Deeploy.errors import DefectError
from Deeploy.plan.result import KEPT_ALIGNMENT, Arena, Placement, Plan
from Deeploy.program.program import Program, Project
from Deeploy.program.step import Access
from Deeploy.program.tensor import ConstantBuffer, Level, Role, Storage, Tensor, VariableBuffer


def pointer(tensor: Tensor) -> str:
    """The pointer variable of a tensor."""
    return f"t_{tensor.name}"


@dataclass
class Owned:
    """A storage with initial bytes: an array in L2, or an allocation in L3.

    tensors: that point to it; the first one gets the address. symbol: the array in L2, else that first pointer.
    file:    name in hex/, "" for a constant array in L2.
    """

    storage: Storage
    tensors: list[Tensor]
    symbol: str
    file: str

    @property
    def level(self) -> Level:
        return home(self.storage)

    @property
    def constant(self) -> bool:
        return self.storage.role is Role.CONSTANT


@dataclass
class Buffer:
    """An open buffer of an arena: one placement, or several at the same place with touching lives (results computed in place).

    first, last: steps. kept: it stays open from Init to Free, so its values survive a run.
    """

    level: Level
    offset: int
    size: int
    first: int
    last: int
    placements: list[Placement]
    tensors: list[Tensor] = field(default_factory=list)
    is_input: bool = False
    is_output: bool = False
    kept: bool = False


@dataclass
class ProgramLayout:
    """One program. index: in the project; base: number of its first step among the steps of all programs."""

    index: int
    base: int
    plan: Plan
    tensors: list[Tensor]
    buffers: list[Buffer]

    @property
    def program(self) -> Program:
        return self.plan.program

    @property
    def title(self) -> str:
        """Behind `Run` in the name of the function that runs the steps."""
        return self.program.suffix or "Network"


@dataclass
class Layout:
    """Everything above for one project.

    state: of all programs, each storage once. kept: state without initial bytes, behind the arenas. arenas: bytes per level that all
    programs use one after the other, with `kept`.
    """

    programs: list[ProgramLayout]
    owned: list[Owned]
    state: list[VariableBuffer]
    kept: list[Buffer]
    arenas: dict[Level, int]

    @property
    def tensors(self) -> list[Tensor]:
        return [t for p in self.programs for t in p.tensors]


def home(storage: Storage) -> Level:
    """The home of a planned storage; L2 for one without bytes."""
    if storage.home is None:
        if storage.size:
            raise DefectError(f"storage {storage.name} has no home")
        return Level.L2
    return storage.home


def has_pointer(tensor: Tensor) -> bool:
    """Whether the tensor is in memory at all: immediates are not."""
    return not (isinstance(tensor, ConstantBuffer) and (tensor.literal is not None or tensor.storage.size == 0))


def lay_out(project: Project, plans: Sequence[Plan], share: bool) -> Layout:
    """The layout of a planned project. share: whether equal contents are one file."""
    programs, base = [], 0
    for index, plan in enumerate(plans):
        tensors = _tensors(plan)
        in_memory = [t for t in tensors if has_pointer(t)]
        programs.append(ProgramLayout(index, base, plan, tensors, _buffers(plan, in_memory, len(plans) == 1)))
        base += len(plan.steps)
    in_memory = [t for p in programs for t in p.tensors if has_pointer(t)]
    owned = _owned(in_memory, share)
    arenas = {level: max((p.arenas[level].size for p in plans if level in p.arenas), default=0) for level in Level}
    kept = _kept(in_memory, arenas)
    placed = {id(p.storage) for plan in plans for a in plan.arenas.values() for p in a.placements} | {id(o.storage) for o in owned}
    placed |= {id(t.storage) for b in kept for t in b.tensors}
    for tensor in in_memory:
        if tensor.storage.size and id(tensor.storage) not in placed:
            raise DefectError(f"storage {tensor.storage.name} of tensor {tensor.name} is in no arena")
    return Layout(programs, owned, project_state(project), kept, arenas)


def _tensors(plan: Plan) -> list[Tensor]:
    """The tensors of a program that a step or the interface names."""
    program = plan.program
    named = [*program.inputs, *program.outputs, *program.state]
    used = {id(o.tensor) for s in plan.steps for o in s.step.operands} | {id(t) for t in named}
    known = {id(t) for t in program.tensors}
    return [t for t in [*program.tensors, *(t for t in named if id(t) not in known)] if id(t) in used]


def _kept(tensors: Sequence[Tensor], arenas: dict[Level, int]) -> list[Buffer]:
    """Buffers for state without initial bytes; `arenas` grows by them."""
    buffers: dict[int, Buffer] = {}
    for tensor in tensors:
        storage = tensor.storage
        if storage.role is not Role.STATE or storage.content is not None or not storage.size:
            continue
        if id(storage) not in buffers:
            level = home(storage)
            unit = max(KEPT_ALIGNMENT, storage.alignment)
            offset = -(-arenas[level] // unit) * unit
            arenas[level] = offset + storage.size
            buffers[id(storage)] = Buffer(level, offset, storage.size, 0, 0, [], kept=True)
        buffers[id(storage)].tensors.append(tensor)
    return list(buffers.values())


def _owned(tensors: Iterable[Tensor], share: bool) -> list[Owned]:
    by_storage: dict[int, Owned] = {}
    symbols: set[str] = set()
    files: dict[bytes, str] = {}
    names: set[str] = set()
    for tensor in tensors:
        storage = tensor.storage
        if storage.content is None or storage.size == 0:
            continue
        entry = by_storage.get(id(storage))
        if entry is not None:
            entry.tensors.append(tensor)
            continue
        level = home(storage)
        symbol = pointer(tensor) if level is Level.L3 else _free(f"s_{storage.name}", symbols)
        file = ""
        if level is Level.L3 or storage.role is not Role.CONSTANT:
            file = files.get(storage.content, "") if share else ""
            if not file:
                digest = hashlib.sha256(storage.content).hexdigest()[:8]
                file = _free(f"{storage.name[:80]}_{digest}", names) + ".hex"
                files[storage.content] = file
        by_storage[id(storage)] = Owned(storage, [tensor], symbol, file)
    return list(by_storage.values())


def _free(name: str, taken: set[str]) -> str:
    """`name`, or `name` with a number, that is not in `taken`, whatever the case; adds it."""
    candidate, number = name, 1
    while candidate.lower() in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate.lower())
    return candidate


def _buffers(plan: Plan, tensors: Sequence[Tensor], alone: bool) -> list[Buffer]:
    """alone: the program is the only one, so nobody else uses its arenas between two runs."""
    pointing: dict[int, list[Tensor]] = {}
    for tensor in tensors:
        pointing.setdefault(id(tensor.storage), []).append(tensor)
    inputs = {id(t.storage) for t in plan.program.inputs}
    outputs = {id(t.storage) for t in plan.program.outputs}
    written = {id(s.step.operands[w].tensor.storage) for s in plan.steps for w in s.step.writes}
    buffers: list[Buffer] = []
    for level in (Level.L2, Level.L3):
        arena = plan.arenas.get(level)
        if arena is None:
            continue
        here = _merge(level, [p for p in arena.placements if id(p.storage) in pointing])
        for buffer in here:
            storages = [p.storage for p in buffer.placements]
            buffer.tensors = [t for s in storages for t in pointing[id(s)]]
            buffer.is_input = any(id(s) in inputs for s in storages)
            buffer.is_output = any(id(s) in outputs for s in storages)
            untouched = alone and not any(id(s) in written for s in storages) and _alone(buffer, plan, arena)
            buffer.kept = buffer.is_input and not buffer.is_output and untouched
        buffers += here
    return buffers


def _merge(level: Level, placements: list[Placement]) -> list[Buffer]:
    """Placements at the same offset whose lives touch become one buffer."""
    buffers: list[Buffer] = []
    for p in sorted(placements, key=lambda p: (p.first, p.last, p.offset)):
        for b in buffers:
            if b.offset == p.offset and b.first <= p.last and p.first <= b.last and b.size and p.storage.size:
                b.size = max(b.size, p.storage.size)
                b.first, b.last = min(b.first, p.first), max(b.last, p.last)
                b.placements.append(p)
                break
        else:
            buffers.append(Buffer(level, p.offset, p.storage.size, p.first, p.last, [p]))
    return buffers


def _alone(buffer: Buffer, plan: Plan, arena: Arena) -> bool:
    """Whether nothing else ever uses the buffer's bytes of the arena."""
    own = {id(p) for p in buffer.placements}
    taken = [(p.offset, p.storage.size) for p in arena.placements if id(p) not in own]
    if buffer.level is Level.L2:
        taken += [(o, t.bytes) for s in plan.steps for t in s.l2 if t is not None for o in t.offsets]
    return all(offset + size <= buffer.offset or buffer.offset + buffer.size <= offset for offset, size in taken)


@dataclass(frozen=True)
class Observed:
    """The variables of one step, each once. fresh: those it reads that no earlier step of the same graph node has touched (only these may
    be given random values, or the node could not be checked as a whole); read: the others it reads; written: those it writes."""

    fresh: list[Tensor]
    read: list[Tensor]
    written: list[Tensor]


def observed(plan: Plan) -> list[Observed]:
    """Per step what an observer looks at."""
    result = []
    node, touched = "", set[int]()
    for step in plan.steps:
        if step.step.node != node:
            node, touched = step.step.node, set()
        reads: dict[int, Tensor] = {}
        writes: dict[int, Tensor] = {}
        for o in step.step.operands:
            if o.tensor.storage.role is Role.CONSTANT or not has_pointer(o.tensor):
                continue
            if o.access is not Access.WRITE:
                reads.setdefault(id(o.tensor), o.tensor)
            if o.access is not Access.READ:
                writes.setdefault(id(o.tensor), o.tensor)
        fresh = [t for t in reads.values() if id(t.storage) not in touched]
        result.append(Observed(fresh, [t for t in reads.values() if id(t.storage) in touched], list(writes.values())))
        touched |= {id(t.storage) for t in [*reads.values(), *writes.values()]}
    return result
