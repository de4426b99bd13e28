"""What `plan` decides, as data: tiles, buffers, homes (on the storages themselves), arenas. Read by emit, simulate and report."""

from __future__ import annotations

from dataclasses import dataclass, field

from Deeploy.program.program import Program
from Deeploy.program.step import Step
from Deeploy.program.tensor import Level, Storage

KEPT_ALIGNMENT = 8
"""Of state without initial bytes, which lies behind an arena, bytes: what any transfer and any type may want."""


@dataclass(frozen=True)
class TileBuffers:
    """The tile buffers of one operand at one level: `len(offsets)` copies of `bytes` bytes at those arena offsets.

    Two copies: double-buffered; one: single-buffered, or the operand's tile never changes.
    """

    bytes: int
    offsets: tuple[int, ...]

    @property
    def copies(self) -> int:
        return len(self.offsets)


@dataclass(frozen=True)
class Block:
    """A piece of an arena: accumulators, scratch."""

    bytes: int
    offset: int


@dataclass(frozen=True)
class StepCost:
    """Estimates in cycles, and bytes moved per hop and direction in one run of the step."""

    compute: int = 0
    l2: int = 0
    l3: int = 0
    total: int = 0
    l3_to_l2: int = 0
    l2_to_l3: int = 0
    l2_to_l1: int = 0
    l1_to_l2: int = 0


@dataclass(frozen=True)
class StepPlan:
    """How one step runs.

    outer, inner: tile size per axis of the L3<->L2 and of the L2<->L1 loop; outer == axis size where nothing is at home in L3.
    order:        axes from the outermost to the innermost loop, parallel before reduced.
    l1:           per operand its L1 tile buffers; None for an immediate.
    l2:           per operand its L2 tile buffers; None unless its storage is at home in L3.
    accumulator, scratch: L1 blocks, None if not needed.
    """

    step: Step
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    order: tuple[int, ...]
    l1: tuple[TileBuffers | None, ...]
    l2: tuple[TileBuffers | None, ...]
    accumulator: Block | None
    scratch: Block | None
    cores: int
    cost: StepCost


@dataclass(frozen=True)
class Placement:
    """A storage in an arena; alive from step index `first` to `last`, both inclusive."""

    storage: Storage
    offset: int
    first: int
    last: int


@dataclass(frozen=True)
class Arena:
    """One level's arena: what has no initial bytes. L2 also holds the tile buffers of steps with operands at home in L3 (at the offsets
    in StepPlan.l2); L1 holds the tile buffers, accumulators and scratch of one step at a time.

    size: bytes; bound: the lower bound (the largest sum of bytes alive at once).
    """

    level: Level
    size: int
    bound: int
    placements: tuple[Placement, ...] = ()


@dataclass(frozen=True)
class LevelUse:
    """Bytes of a level: what the chip has, taken by constants and state, by the arena, and what is not this project's data (reserved: code,
    tables and stacks, and what the user withholds)."""

    level: Level
    given: int
    constants: int
    arena: int
    reserved: int


@dataclass
class Plan:
    """The plan of one program. Storages in one in-place chain share a placement offset by having one storage already (see plan)."""

    program: Program
    steps: list[StepPlan] = field(default_factory=list)
    arenas: dict[Level, Arena] = field(default_factory=dict)
    use: list[LevelUse] = field(default_factory=list)
