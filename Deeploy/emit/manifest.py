"""The manifest of an emitted project, deeploy.json, as dataclasses: what reports, simulators and tests read.

Keys are written in the order of the fields; nothing depends on where or when the project was written.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from Deeploy.errors import Problem, UsageError

FILE_NAME = "deeploy.json"
TOOL = "Deeploy"
FORMAT = 2
"""Version of the manifest's structure."""


@dataclass(frozen=True)
class TensorEntry:
    """A tensor. offset: bytes in its storage; strides: elements; kind: "constant" or "variable"; literal: hex bytes of an immediate."""

    name: str
    source: str
    kind: str
    shape: list[int]
    dtype: str
    storage: str
    offset: int
    strides: list[int]
    lo: int | None
    hi: int | None
    literal: str | None = None
    reader: str = ""


@dataclass(frozen=True)
class StorageEntry:
    """A storage. symbol: its array or pointer in Network.c; file: in hex/; content: SHA-256 of its initial bytes (both "" if it has none);
    offset: in the arena of its level, None outside of arenas; first, last: steps of its life there."""

    name: str
    role: str
    size: int
    alignment: int
    home: str
    symbol: str
    file: str
    content: str
    members: list[str]
    offset: int | None = None
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class AliasEntry:
    """A constant buffer whose pointer is that of another one."""

    tensor: str
    of: str


@dataclass(frozen=True)
class OperandEntry:
    """An operand of a step and its tile buffers. l1, l2: bytes, number of copies, their offsets in the arena; None if it has none there."""

    tensor: str
    access: str
    home: str
    l1_bytes: int | None
    l1_copies: int | None
    l1_offsets: list[int] | None
    l2_bytes: int | None
    l2_copies: int | None
    l2_offsets: list[int] | None


@dataclass(frozen=True)
class CostEntry:
    """Estimated cycles, and bytes moved per hop in one run of the step."""

    compute: int
    l2: int
    l3: int
    total: int
    l3_to_l2: int
    l2_to_l3: int
    l2_to_l1: int
    l1_to_l2: int


@dataclass(frozen=True)
class StepEntry:
    """A step and its schedule: axes with sizes and tile sizes, loop order, operands with buffers, kernels, cores, L1 blocks in bytes (0 and
    no offset if it has none)."""

    name: str
    node: str
    operator: str
    axes: list[str]
    sizes: list[int]
    reduced: list[bool]
    outer: list[int]
    inner: list[int]
    order: list[int]
    operands: list[OperandEntry]
    kernels: list[str]
    cores: int
    accumulator: int
    accumulator_offset: int | None
    scratch: int
    scratch_offset: int | None
    macs: int
    cost: CostEntry


@dataclass(frozen=True)
class ArenaEntry:
    """One level's arena: bytes and their lower bound."""

    level: str
    size: int
    bound: int


@dataclass(frozen=True)
class UseEntry:
    """Bytes of a level: given, and taken by constants, the arena, code and stacks."""

    level: str
    given: int
    constants: int
    arena: int
    reserved: int


@dataclass(frozen=True)
class ProgramEntry:
    """One program. inputs, outputs, state: tensor names; base: number of its first step among those of all programs."""

    name: str
    base: int
    inputs: list[str]
    outputs: list[str]
    state: list[str]
    tensors: list[TensorEntry]
    steps: list[StepEntry]
    arenas: list[ArenaEntry]
    use: list[UseEntry]


@dataclass(frozen=True)
class StateEntry:
    """A state of the project, in the order of the C interface. tensor: its name in its first program; source: its ONNX name; storage: where
    it is; given: the caller gives the first value; fixture: the file in hex/ that main.c gives it, "" for zeros."""

    tensor: str
    source: str
    storage: str
    given: bool
    fixture: str


@dataclass(frozen=True)
class CallEntry:
    """One call of main.c. program: its index; fixtures: file in hex/ per input, "" for zeros; outputs: indices of those that are kept."""

    program: int
    fixtures: list[str]
    outputs: list[int]


@dataclass(frozen=True)
class ReaderEntry:
    """A (node, slot) of the source graph of a program that reads a constant."""

    program: str
    node: str
    slot: int
    tensor: str
    bytes: int
    content: str


@dataclass(frozen=True)
class NotSharedEntry:
    """Two tensors with equal bytes and two storages."""

    tensor: str
    twin: str
    reason: str


@dataclass(frozen=True)
class Manifest:
    """Everything about an emitted project. options: as given on the command line; model_sha256: of the models, joined by +."""

    format: int
    tool: str
    version: str
    options: dict[str, Any]
    prefix: str
    model_sha256: str
    platform: str
    kernels: list[str]
    programs: list[ProgramEntry]
    state: list[StateEntry]
    calls: list[CallEntry]
    storages: list[StorageEntry]
    aliases: list[AliasEntry]
    readers: list[ReaderEntry]
    not_shared: list[NotSharedEntry]
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=True, sort_keys=False) + "\n"

    @property
    def fixtures(self) -> set[str]:
        """All files in hex/ that main.c gives to inputs and state."""
        return {f for f in (*(f for c in self.calls for f in c.fixtures), *(s.fixture for s in self.state)) if f}

    def storage(self, name: str) -> StorageEntry:
        """The storage of that name. Raises KeyError."""
        for entry in self.storages:
            if entry.name == name:
                return entry
        raise KeyError(name)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a project folder. Raises UsageError if there is none or it is not readable."""
    path = folder / FILE_NAME
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        remedy = "give a folder that `deeploy generate` made"
        raise UsageError(Problem(f"'{folder}' has no readable {FILE_NAME}", str(error), remedy)) from None
    other = UsageError(Problem(f"'{folder}' was made by another version", remedy="generate it again"))
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise other
    try:
        return _build(Manifest, data)
    except (TypeError, KeyError):  # a key is missing
        raise other from None


def _build(kind: Any, data: Any) -> Any:
    """`data`, as JSON gives it, as an instance of the (possibly nested) dataclass type `kind`."""
    origin = typing.get_origin(kind)
    if origin is list:
        (item,) = typing.get_args(kind)
        return [_build(item, d) for d in data]
    if origin in (types.UnionType, typing.Union, dict) or not dataclasses.is_dataclass(kind):
        return data
    hints = typing.get_type_hints(kind)
    return kind(**{f.name: _build(hints[f.name], data[f.name]) for f in dataclasses.fields(kind) if f.name in data})  # type: ignore[operator]
