"""Look-ups in a manifest that several reports need: tensors by name, which programs and steps use a storage, names for people."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from Deeploy.emit.manifest import Manifest, ProgramEntry, StateEntry, StorageEntry, TensorEntry
from Deeploy.program.dtypes import from_name


@dataclass(frozen=True)
class Use:
    """A step that uses a storage. step: its number in the program; how often it reads, and whether it writes."""

    program: str
    step: int
    reads: int
    writes: bool


@dataclass
class Index:
    """Tensors and storages of a manifest by name, which tensors are on a storage, and which steps use it. A tensor that is an immediate is
    on none."""

    manifest: Manifest
    tensors: dict[str, TensorEntry] = field(init=False)
    storages: dict[str, StorageEntry] = field(init=False)
    on: dict[str, list[TensorEntry]] = field(init=False)
    program_of: dict[str, str] = field(init=False)
    states: dict[str, StateEntry] = field(init=False)
    uses: dict[str, list[Use]] = field(init=False)

    def __post_init__(self) -> None:
        programs = self.manifest.programs
        self.tensors = {t.name: t for p in programs for t in p.tensors}
        self.storages = {s.name: s for s in self.manifest.storages}
        self.states = {s.storage: s for s in self.manifest.state}
        self.on = {name: [] for name in self.storages}
        self.uses = {name: [] for name in self.storages}
        self.program_of = {t.name: p.name for p in programs for t in p.tensors}
        for tensor in self.tensors.values():
            if tensor.literal is None and tensor.storage in self.on:
                self.on[tensor.storage].append(tensor)
        for program in programs:
            self._add_uses(program)

    def _add_uses(self, program: ProgramEntry) -> None:
        for number, step in enumerate(program.steps):
            reads: dict[str, int] = {}
            written: set[str] = set()
            for operand in step.operands:
                name = self.tensors[operand.tensor].storage
                if self.tensors[operand.tensor].literal is None and name in self.uses:
                    reads[name] = reads.get(name, 0) + (operand.access != "write")
                    written |= {name} if operand.access != "read" else set()
            for name, count in reads.items():
                self.uses[name].append(Use(program.name, number, count, name in written))

    def of_program(self, program: ProgramEntry) -> list[StorageEntry]:
        """The storages that the program's tensors are on, in the order of the manifest."""
        return [s for s in self.manifest.storages if program.name in self.programs_of(s)]

    def programs_of(self, storage: StorageEntry) -> list[str]:
        """The programs with tensors on the storage."""
        mine = {self.program_of[t.name] for t in self.on[storage.name]}
        return [p.name for p in self.manifest.programs if p.name in mine]

    def members(self, storage: StorageEntry) -> list[str]:
        """The tensors on the storage, as people know them: constants one per reader, others one per name."""
        labels = [self.label(t) for t in self.on[storage.name]]
        return labels if storage.role == "constant" else list(dict.fromkeys(labels))

    def title(self, storage: StorageEntry) -> str:
        """One name for the storage: that of the state, or its first member."""
        if storage.name in self.states:
            return self.states[storage.name].source
        return self.members(storage)[0]

    def label(self, tensor: TensorEntry) -> str:
        """The ONNX name of a tensor; of a constant with its reader, and with the reader's program if there are several."""
        if not tensor.reader:
            return tensor.source
        program = f"{self.program_of[tensor.name]}: " if len(self.manifest.programs) > 1 else ""
        return f"{tensor.source} ({program}{tensor.reader})"

    def loaded(self, level: str) -> Iterator[StorageEntry]:
        """Storages at home in the level that the project brings bytes for."""
        return (s for s in self.manifest.storages if s.home == level and s.content)


def bytes_of(tensor: TensorEntry) -> int:
    """Length of the tensor's values, without gaps."""
    return math.prod(tensor.shape) * from_name(tensor.dtype).size
