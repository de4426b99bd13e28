"""Programs and projects: the typed form of graphs, as `lower` makes them and every later room reads them."""

from __future__ import annotations

from dataclasses import dataclass, field

from Deeploy.program.step import Step
from Deeploy.program.tensor import ConstantBuffer, Role, Storage, Tensor, VariableBuffer


@dataclass(frozen=True)
class Reader:
    """One (node, slot) of the source graph that reads an initializer or Constant, before any folding.

    program: name of the program that the graph has become.
    bytes:   its content's length at the storage type.
    content: key of the bytes (hex digest), for counting distinct contents.
    """

    node: str
    slot: int
    tensor: str
    bytes: int
    content: str
    program: str = ""


@dataclass(frozen=True)
class Binding:
    """Which tensors stand for the inputs and outputs of a graph node (None: an absent optional one); for checking node by node."""

    node: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]


@dataclass
class Program:
    """The typed form of one graph.

    steps are in execution order. `tensors` holds every tensor that a step, an input or an output names. suffix: of its C functions; ""
    for the one program of a project.
    """

    name: str
    inputs: list[VariableBuffer] = field(default_factory=list)
    outputs: list[VariableBuffer] = field(default_factory=list)
    state: list[VariableBuffer] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)
    suffix: str = ""

    @property
    def constants(self) -> list[ConstantBuffer]:
        return [t for t in self.tensors if isinstance(t, ConstantBuffer)]

    @property
    def storages(self) -> list[Storage]:
        """Every storage with bytes, once, in the order of first use by a tensor."""
        seen: dict[int, Storage] = {}
        for tensor in self.tensors:
            if tensor.storage.size or tensor.storage.role is not Role.CONSTANT:
                seen.setdefault(id(tensor.storage), tensor.storage)
        return list(seen.values())


@dataclass(frozen=True)
class NotShared:
    """A near miss: two tensors with equal bytes that do not share a storage, and why."""

    tensor: str
    twin: str
    reason: str


@dataclass
class Project:
    """Programs over one store, with what the report needs to know about their sources.

    readers:    of the source graphs, before folding.
    not_shared: filled by `sharing`.
    notes:      decisions worth telling the user (storage types, folded constants, widened accumulators).
    """

    programs: list[Program]
    readers: list[Reader] = field(default_factory=list)
    not_shared: list[NotShared] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
