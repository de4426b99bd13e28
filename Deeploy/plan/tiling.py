"""Chooses the tile sizes, loop order, buffer counts and cores of one step.

Tile sizes of both hops are chosen together. The result depends only on the step's geometry, the homes of its operands and the budget,
so steps that agree in these are tiled once (`signature`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from Deeploy.errors import DoesNotFitError, Problem
from Deeploy.plan.cost import final_cost
from Deeploy.plan.geometry import StepGeometry, is_literal
from Deeploy.plan.result import StepCost
from Deeploy.plan.search import Search, copies, far_bytes
from Deeploy.platform import Platform
from Deeploy.program.step import Step
from Deeploy.program.tensor import Level


@dataclass(frozen=True)
class Budget:
    """What a step's tiles may use.

    l1, l2:    bytes for tile buffers (and in L1 accumulators and scratch).
    l2_taken:  bytes of L2 that other things take, for messages.
    double:    whether operands that change are double-buffered.
    """

    l1: int
    l2: int
    cores: int
    double: bool
    l2_taken: int = 0


@dataclass(frozen=True)
class Tiling:
    """Tile sizes and buffers of one step, not yet placed: per operand (bytes, copies) at both levels, None as in StepPlan."""

    outer: tuple[int, ...]
    inner: tuple[int, ...]
    order: tuple[int, ...]
    l1: tuple[tuple[int, int] | None, ...]
    l2: tuple[tuple[int, int] | None, ...]
    accumulator: int
    scratch: int
    cores: int
    cost: StepCost

    @property
    def l1_bytes(self) -> int:
        """Bytes of L1 that the step takes."""
        return sum(b * c for b, c in filter(None, self.l1)) + self.accumulator + self.scratch


def signature(step: Step, far: Sequence[bool]) -> Hashable:
    """Equal for steps that are tiled alike."""
    axes = tuple((a.size, a.kind, a.tileable, a.quantum) for a in step.axes)
    operands = tuple((o.access, o.dims, o.tensor.dtype.size, is_literal(o)) for o in step.operands)
    calls = tuple((c.kernel, c.axes) for c in step.calls)
    return axes, operands, calls, step.accumulator, tuple(far)


def tile_step(step: Step, far: Sequence[bool], budget: Budget, platform: Platform) -> Tiling:
    """The best tiling found. far: per operand whether it is at home in L3. Raises DoesNotFitError if even the smallest tile does not fit.

    What does not fit double-buffered, or barely, is tried single-buffered, then with fewer cores (their scratch).
    """
    geometry = StepGeometry(step, tile_alignment(platform))
    has_scratch = any(call.kernel.scratch is not None for call in step.calls)
    cores = [budget.cores] + [c for c in (4, 2, 1) if c < budget.cores and has_scratch]
    best: Tiling | None = None
    for count in cores:
        for double in (True, False) if budget.double else (False,):
            found = _search(geometry, far, budget, count, double, platform)
            if found is not None and (best is None or found.cost.total < best.cost.total):
                best = found
            # where L1 is crowded and no L3 transfers are to be hidden, single buffers leave room for larger tiles
            if found is not None and (any(far) or found.l1_bytes * 2 < budget.l1):
                break
        # fewer cores are only worth a look where scratch crowds the tiles out
        if best is not None and best.scratch * 4 < budget.l1:
            break
    if best is None:
        raise _does_not_fit(geometry, far, budget, platform)
    return best


def tile_alignment(platform: Platform) -> int:
    """The strictest alignment of the levels that tile buffers lie in."""
    return max(platform.levels[Level.L1].alignment, platform.levels[Level.L2].alignment)


def smallest_l2(step: Step, far: Sequence[bool], platform: Platform) -> int:
    """Bytes of L2 that the step's tile buffers take at least."""
    geometry = StepGeometry(step, tile_alignment(platform))
    tile = geometry.smallest
    return sum(int(far_bytes(o, tile, platform)) for o, f in zip(geometry.operands, far, strict=True) if f and not o.literal)


def _search(geometry: StepGeometry, far: Sequence[bool], budget: Budget, cores: int, double: bool, platform: Platform) -> Tiling | None:
    found = Search(geometry, far, budget.l1, budget.l2, cores, double, platform).run()
    if found is None:
        return None
    outer, inner, order = found
    there = [f and not o.literal for o, f in zip(geometry.operands, far, strict=True)]
    l1 = tuple(None if o.literal else (int(o.buffer_bytes(inner)), int(copies(o, inner, outer, double))) for o in geometry.operands)
    l2 = tuple(
        (int(far_bytes(o, outer, platform)), int(copies(o, outer, geometry.sizes, double))) if f else None
        for o, f in zip(geometry.operands, there, strict=True)
    )
    accumulator, scratch = int(geometry.accumulator_bytes(inner)), int(geometry.scratch_bytes(inner, cores))
    cost = final_cost(geometry, there, outer, inner, order, cores, double, platform)
    return Tiling(tuple(outer), tuple(inner), tuple(order), l1, l2, accumulator, scratch, cores, cost)


def _does_not_fit(geometry: StepGeometry, far: Sequence[bool], budget: Budget, platform: Platform) -> DoesNotFitError:
    """The error for a step whose smallest tile does not fit, naming its largest operand."""
    step, tile = geometry.step, geometry.smallest
    bytes_of = {i: int(o.buffer_bytes(tile)) for i, o in enumerate(geometry.operands) if not o.literal}
    l1 = sum(bytes_of.values()) + int(geometry.accumulator_bytes(tile)) + int(geometry.scratch_bytes(tile, 1))
    if l1 > budget.l1:
        return does_not_fit(step, Level.L1, l1, budget.l1, bytes_of)
    among = {i: int(far_bytes(o, tile, platform)) for i, o in enumerate(geometry.operands) if far[i] and not o.literal}
    return does_not_fit(step, Level.L2, sum(among.values()) + budget.l2_taken, budget.l2 + budget.l2_taken, among)


def does_not_fit(step: Step, level: Level, needed: int, given: int, among: Mapping[int, int]) -> DoesNotFitError:
    """The error that names step, tensor, level, bytes needed and given. among: bytes per operand index; the largest is named."""
    largest = max(among, key=lambda i: among[i], default=0)
    tensor = step.operands[largest].tensor
    return DoesNotFitError(
        Problem(
            f"step '{step.name}' does not fit into {level.name}: {needed} bytes needed, {given} bytes given",
            f"the largest part is tensor '{tensor.source or tensor.name}' with {among.get(largest, 0)} bytes",
            f"give more {level.name} (--{level.name.lower()})",
            node=step.node,
            operator=step.operator,
        )
    )
