"""Plans a program: homes, tiles, buffers and arenas in one loop that only ever moves storages down, so it ends."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from Deeploy.errors import DoesNotFitError, Problem, UsageError
from Deeploy.plan.arena import Layout, Request, allocate
from Deeploy.plan.checker import check
from Deeploy.plan.geometry import is_literal, round_up
from Deeploy.plan.homes import Excess, next_to_move, values
from Deeploy.plan.lifetimes import Group, InPlace, Lifetime, groups, in_arena, in_place_pairs, lifetimes, placed_storages
from Deeploy.plan.result import KEPT_ALIGNMENT, Arena, Block, LevelUse, Placement, Plan, StepPlan, TileBuffers
from Deeploy.plan.tables import generated_bytes
from Deeploy.plan.tiling import Budget, Tiling, does_not_fit, signature, smallest_l2, tile_step
from Deeploy.platform import Platform
from Deeploy.program.program import Program
from Deeploy.program.step import Step
from Deeploy.program.tensor import Level, Storage

QUICK = 20_000
"""Effort of the allocator while homes are still moving."""


@dataclass(frozen=True)
class PlanOptions:
    """What the user decides.

    home:       "L2" or "L3": every storage lives there; "auto": in L2 as long as it fits.
    buffering:  "double" where an operand's tile changes, or "single" everywhere.
    l1, l2, l3: bytes that the project's data may use at the level; None: what the platform has, less what it reserves.
    cores:      worker cores to use; None: all of the platform.
    """

    home: str = "auto"
    buffering: str = "double"
    l1: int | None = None
    l2: int | None = None
    l3: int | None = None
    cores: int | None = None

    def __post_init__(self) -> None:
        for name, value, known in (("home", self.home, ("auto", "L2", "L3")), ("buffering", self.buffering, ("single", "double"))):
            if value not in known:
                raise UsageError(Problem(f"{name} '{value}' is not known", remedy=f"use one of: {', '.join(known)}"))


LEAST_L1 = 512
"""Bytes of L1 below which nothing is planned: tiles of a few points would be legal, but the controller would work a hundred times longer on
each than the cores."""


def plan(program: Program, platform: Platform, options: PlanOptions | None = None) -> Plan:
    """The plan of a project of one program, see `plan_programs`."""
    return plan_programs([program], platform, options)[0]


def plan_programs(programs: Sequence[Program], platform: Platform, options: PlanOptions | None = None) -> list[Plan]:
    """The plans of all programs of a project; sets the home of every storage. Every plan is checked.

    Constants and state of all programs lie side by side; what lives within a run may use the same bytes in every program. A storage that
    one program moves down is there for all of them, so the programs are planned again until none moves one.

    Raises DoesNotFitError naming step, tensor, level, bytes needed and given; DefectError if the check finds a fault of ours.
    """
    options = options or PlanOptions()
    platform = platform.with_overrides(options.l1, options.l2, options.l3, options.cores)
    platform = platform.with_reserved(Level.L2, generated_bytes(programs))
    home = Level.L3 if options.home == "L3" else Level.L2
    lasting: dict[Storage, None] = {}
    for program in programs:
        for storage in placed_storages(program):
            storage.home = home
            if not in_arena(storage):
                lasting.setdefault(storage)
    while True:
        before = [s.home for s in lasting]
        plans = []
        for program in programs:
            plans.append(_Planner(programs, program, lasting, platform, options).run(home))
        if len(programs) == 1 or [s.home for s in lasting] == before:
            break
    for made in plans:
        check(made, platform)
    return plans


@dataclass
class _Placed:
    """An arena's layout with what lies in it: groups of storages first, then (step, operand) tile buffer copies."""

    layout: Layout
    groups: list[Group] = field(default_factory=list)
    buffers: list[tuple[int, int]] = field(default_factory=list)


class _Planner:
    """Plans one program. lasting: the constants and the state of all programs of the project."""

    def __init__(
        self, programs: Sequence[Program], program: Program, lasting: Iterable[Storage], platform: Platform, options: PlanOptions
    ) -> None:
        self.programs, self.program, self.platform, self.options = programs, program, platform, options
        self.alive: dict[Storage, Lifetime] = lifetimes(program)
        for storage in lasting:
            self.alive.setdefault(storage, Lifetime(0, max(0, len(program.steps) - 1)))
        self.pairs: list[InPlace] = in_place_pairs(program, self.alive)
        self.cache: dict[Hashable, Tiling] = {}
        self.least: dict[Hashable, int] = {}
        self.signatures: dict[int, tuple[tuple[bool, ...], Hashable]] = {}
        self.usable = {level: platform.levels[level].usable for level in Level}

    def run(self, home: Level) -> Plan:
        """The plan. home: where storages have begun."""
        self._check_l1()
        self._check_whole(home)
        tilings, near = self._settle()
        far = self._place(Level.L3, [])
        self._check_l3(far)
        return self._result(tilings, near, far)

    # ---- the loop -----------------------------------------------------------------------------------------------------------------

    def _settle(self) -> tuple[list[Tiling], _Placed]:
        """Moves storages down until everything fits; returns the tilings and the L2 arena."""
        value: dict[Storage, float] | None = None
        slack = 0
        while True:
            excess = self._excess(slack)
            if excess is None:
                tilings = self._tile(slack)
                free = self.usable[Level.L2] - self._constants(Level.L2)
                placed = self._place(Level.L2, tilings, free, QUICK)
                if placed.layout.size > free:
                    placed = self._place(Level.L2, tilings, free)
                if placed.layout.size <= free:
                    return tilings, self._place(Level.L2, tilings)
                # gaps between blocks: leave that much room next time, in tile buffers or by moving a storage
                slack += placed.layout.size - free
                continue
            if self.options.home != "auto":
                raise self._l2_error(excess)
            value = values(self.programs, self.platform) if value is None else value
            moving = next_to_move(self._movable(excess.step), value, excess.bytes)
            if moving is None:
                raise self._l2_error(excess)
            moving.home = Level.L3

    def _movable(self, step: int) -> list[Storage]:
        """Storages whose move frees bytes of L2 at that step."""
        return [s for s, life in self.alive.items() if s.home is Level.L2 and (not in_arena(s) or life.first <= step <= life.last)]

    def _excess(self, slack: int) -> Excess | None:
        """The worst overflow of L2 if every step had its smallest tiles."""
        room = self.usable[Level.L2] - self._constants(Level.L2) - slack
        live = self._live(Level.L2)
        worst = Excess(-room, 0)
        for index, step in enumerate(self.program.steps):
            over = live[index] + self._smallest(step) - room
            if over > worst.bytes:
                worst = Excess(over, index)
        return worst if worst.bytes > 0 else None

    def _constants(self, level: Level) -> int:
        """Bytes of constants and state at home in a level, with the gap before state that lies behind an arena."""
        alignment = self.platform.levels[level].alignment
        lasting = [s for s in self.alive if s.home is level and not in_arena(s)]
        gap = KEPT_ALIGNMENT - 1 if any(s.content is None for s in lasting) else 0
        return gap + sum(round_up(s.size, max(alignment, s.alignment, KEPT_ALIGNMENT if s.content is None else 1)) for s in lasting)

    def _groups(self, level: Level) -> list[Group]:
        chosen = [s for s in self.alive if s.home is level and in_arena(s)]
        return groups(chosen, self.alive, self.pairs, lambda a, b: a.home is b.home)

    def _live(self, level: Level) -> list[int]:
        """Bytes of the arena's storages alive at every step."""
        change = [0] * (len(self.program.steps) + 2)
        for group in self._groups(level):
            size = round_up(group.size, self._alignment(group, level))
            change[group.first] += size
            change[group.last + 1] -= size
        live, current = [], 0
        for delta in change[:-1]:
            current += delta
            live.append(current)
        return live

    def _alignment(self, group: Group, level: Level) -> int:
        return max([self.platform.levels[level].alignment, *(s.alignment for s in group.storages)])

    # ---- tiles --------------------------------------------------------------------------------------------------------------------

    def _far(self, step: Step) -> tuple[bool, ...]:
        return tuple(not is_literal(o) and o.tensor.storage.home is Level.L3 for o in step.operands)

    def _signature(self, step: Step) -> tuple[tuple[bool, ...], Hashable]:
        """Where the operands live, and what the tiling depends on; kept until a home changes."""
        far = self._far(step)
        known = self.signatures.get(id(step))
        if known is None or known[0] != far:
            known = (far, signature(step, far))
            self.signatures[id(step)] = known
        return known

    def _smallest(self, step: Step) -> int:
        far, key = self._signature(step)
        if not any(far):
            return 0
        if key not in self.least:
            self.least[key] = smallest_l2(step, far, self.platform)
        return self.least[key]

    def _tile(self, slack: int) -> list[Tiling]:
        room = self.usable[Level.L2] - self._constants(Level.L2) - slack
        live = self._live(Level.L2)
        result = []
        for index, step in enumerate(self.program.steps):
            far, key = self._signature(step)
            free = _coarse(room - live[index], self._smallest(step)) if any(far) else 0
            if (key, free) not in self.cache:
                budget = Budget(
                    self.usable[Level.L1], free, self.platform.cores, self.options.buffering == "double", self.usable[Level.L2] - free
                )
                self.cache[key, free] = tile_step(step, far, budget, self.platform)
            result.append(self.cache[key, free])
        return result

    # ---- arenas -------------------------------------------------------------------------------------------------------------------

    def _place(self, level: Level, tilings: list[Tiling], enough: int | None = None, effort: int | None = None) -> _Placed:
        chosen = self._groups(level)
        requests = [Request(g.first, g.last, g.size, self._alignment(g, level)) for g in chosen]
        buffers = []
        for index, tiling in enumerate(tilings):
            for number, (operand, buffer) in enumerate(zip(self.program.steps[index].operands, tiling.l2, strict=True)):
                for _ in range(buffer[1] if buffer else 0):
                    assert buffer is not None
                    alignment = max(self.platform.levels[level].alignment, operand.tensor.dtype.size)
                    requests.append(Request(index, index, buffer[0], alignment))
                    buffers.append((index, number))
        layout = allocate(requests, enough) if effort is None else allocate(requests, enough, effort)
        return _Placed(layout, chosen, buffers)

    def _l1(self, step: Step, tiling: Tiling) -> tuple[list[TileBuffers | None], Block | None, Block | None, int]:
        """Places a step's L1 blocks: those with the strictest alignment first, so nothing lies between."""
        at = 0
        accumulator = scratch = None
        if tiling.accumulator:
            accumulator, at = Block(tiling.accumulator, at), at + tiling.accumulator
        if tiling.scratch:
            scratch, at = Block(tiling.scratch, at), at + tiling.scratch
        buffers: list[TileBuffers | None] = [None] * len(tiling.l1)
        for index in sorted(range(len(buffers)), key=lambda i: -step.operands[i].tensor.dtype.size):
            wanted = tiling.l1[index]
            if wanted is not None:
                size, copies = wanted
                buffers[index] = TileBuffers(size, tuple(at + size * c for c in range(copies)))
                at += size * copies
        return buffers, accumulator, scratch, at

    def _result(self, tilings: list[Tiling], near: _Placed, far: _Placed) -> Plan:
        offsets: dict[tuple[int, int], list[int]] = {}
        for key, offset in zip(near.buffers, near.layout.offsets[len(near.groups) :], strict=True):
            offsets.setdefault(key, []).append(offset)
        result, most = Plan(self.program), 0
        for index, (step, tiling) in enumerate(zip(self.program.steps, tilings, strict=True)):
            l1, accumulator, scratch, used = self._l1(step, tiling)
            most = max(most, used)
            l2 = tuple(TileBuffers(buffer[0], tuple(offsets[index, number])) if buffer else None for number, buffer in enumerate(tiling.l2))
            result.steps.append(
                StepPlan(step, tiling.outer, tiling.inner, tiling.order, tuple(l1), l2, accumulator, scratch, tiling.cores, tiling.cost)
            )
        result.arenas = {
            Level.L1: Arena(Level.L1, most, most),
            Level.L2: self._arena(Level.L2, near),
            Level.L3: self._arena(Level.L3, far),
        }
        result.use = [
            LevelUse(level, spec.bytes, self._constants(level), result.arenas[level].size, spec.bytes - spec.usable)
            for level, spec in ((level, self.platform.levels[level]) for level in Level)
        ]
        return result

    def _arena(self, level: Level, placed: _Placed) -> Arena:
        where = {s: offset for g, offset in zip(placed.groups, placed.layout.offsets, strict=False) for s in g.storages}
        placements = tuple(Placement(s, where[s], life.first, life.last) for s, life in self.alive.items() if s in where)
        return Arena(level, placed.layout.size, placed.layout.bound, placements)

    # ---- errors -------------------------------------------------------------------------------------------------------------------

    def _l2_error(self, excess: Excess) -> DoesNotFitError:
        given = self.usable[Level.L2]
        if not self.program.steps:
            return self._level_error(Level.L2, given + excess.bytes)
        step = self.program.steps[excess.step]
        sizes = {i: o.tensor.storage.size for i, o in enumerate(step.operands) if not is_literal(o)}
        return does_not_fit(step, Level.L2, given + excess.bytes, given, sizes)

    def _check_l1(self) -> None:
        given = self.usable[Level.L1]
        if given >= LEAST_L1 or not self.program.steps:
            return
        sizes = {(s, i): o.tensor.bytes for s in self.program.steps for i, o in enumerate(s.operands) if not is_literal(o)}
        step, operand = max(sizes, key=lambda key: sizes[key], default=(self.program.steps[0], 0))
        what = f"step '{step.name}' does not fit into L1: at least {LEAST_L1} bytes needed, {given} bytes given"
        why = f"smaller tiles of tensor '{step.operands[operand].tensor.source}' would cost far more control than computation"
        raise DoesNotFitError(Problem(what, why, "give more L1 (--l1)", node=step.node, operator=step.operator))

    def _check_whole(self, home: Level) -> None:
        """Refuses at once what no choice of homes and tiles can help: more bytes alive at one step than all the homes have together."""
        if self.options.home == "L2":
            return  # found without tiling, with the step that is too large
        near = self.usable[Level.L2] if self.options.home == "auto" else 0
        needed = self._constants(home) + max(self._live(home), default=0)
        largest = max((s.size for s in self.alive), default=0)
        if needed > near + self.usable[Level.L3] or largest > max(near, self.usable[Level.L3]):
            for storage in self.alive:
                storage.home = Level.L3
            raise self._level_error(Level.L3, max(needed - near, largest))

    def _check_l3(self, placed: _Placed) -> None:
        needed = self._constants(Level.L3) + placed.layout.size
        if needed > self.usable[Level.L3]:
            raise self._level_error(Level.L3, needed)

    def _level_error(self, level: Level, needed: int) -> DoesNotFitError:
        """The error for a level that is full whatever the step: names the largest storage there and the step that uses it first."""
        largest = max((s for s in self.alive if s.home is level), key=lambda s: s.size)
        for step in self.program.steps:
            sizes = {i: largest.size for i, o in enumerate(step.operands) if o.tensor.storage is largest}
            if sizes:
                return does_not_fit(step, level, needed, self.usable[level], sizes)
        what = f"tensor '{largest.name}' does not fit into {level.name}: {needed} bytes needed, {self.usable[level]} bytes given"
        return DoesNotFitError(Problem(what))


def _coarse(free: int, least: int) -> int:
    """Rounds a budget down, so that steps with nearly the same one are tiled once; never below what is needed."""
    unit = max(4, 1 << max(0, free.bit_length() - 5))
    return max(min(least, free), free // unit * unit)
