"""Chooses the tile sizes, loop order, buffer counts and cores of one step: a search over a bounded grid, then over neighbours.

Tile sizes of both hops are chosen together. The result depends only on the step's geometry, the homes of its operands and the budget,
so steps that agree in these are tiled once (`signature`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from Deeploy.errors import DoesNotFitError, Problem
from Deeploy.plan.cost import Estimate, estimate, final_cost
from Deeploy.plan.geometry import OperandGeometry, Sizes, StepGeometry, breaks_chain, ceil_div, is_literal, round_up
from Deeploy.plan.result import StepCost
from Deeploy.platform import Platform
from Deeploy.program.step import Step
from Deeploy.program.tensor import Level

GRID = 3000
"""Candidates of the first search over the L2<->L1 tile sizes."""
OUTER_GRID = 200
KEPT = 20
"""With operands at home in L3: candidates of the outer sizes, and how many of the best inner ones each is tried with."""
HIDDEN = 0.05
"""Price of a hidden cycle of transfer, against a cycle of the step: bytes moved cost energy even where they cost no time."""
ROUNDS = 4
"""Rounds of the search over neighbours."""


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
    def l2_bytes(self) -> int:
        return sum(b * c for b, c in filter(None, self.l2))


def signature(step: Step, far: Sequence[bool]) -> Hashable:
    """Equal for steps that are tiled alike."""
    axes = tuple((a.size, a.kind, a.tileable, a.quantum) for a in step.axes)
    operands = tuple((o.access, o.dims, o.tensor.dtype.size, is_literal(o)) for o in step.operands)
    calls = tuple((c.kernel, c.axes) for c in step.calls)
    return axes, operands, calls, step.accumulator, tuple(far)


def tile_step(step: Step, far: Sequence[bool], budget: Budget, platform: Platform) -> Tiling:
    """The best tiling found. far: per operand whether it is at home in L3. Raises DoesNotFitError if even the smallest tile does not fit.

    What does not fit double-buffered is tried single-buffered, then with fewer cores (their scratch).
    """
    geometry = StepGeometry(step)
    has_scratch = any(call.kernel.scratch is not None for call in step.calls)
    cores = [budget.cores] + [c for c in (4, 2, 1) if c < budget.cores and has_scratch]
    best: Tiling | None = None
    for count in cores:
        for double in (True, False) if budget.double else (False,):
            found = _Search(geometry, far, budget, count, double, platform).run()
            if found is not None and (best is None or found.cost.total < best.cost.total):
                best = found
            if found is not None:
                break
        # fewer cores are only worth a look where scratch crowds the tiles out
        if best is not None and best.scratch * 4 < budget.l1:
            break
    if best is None:
        raise _does_not_fit(geometry, far, budget, platform)
    return best


def far_bytes(operand: OperandGeometry, outer: Sizes, platform: Platform) -> Any:
    """Bytes of an L2 tile buffer: padded for what an L3 read writes past its end."""
    rounding = platform.levels[Level.L3].read_rounding
    return round_up(operand.buffer_bytes(outer), math.lcm(operand.unit, rounding))


def smallest_l2(step: Step, far: Sequence[bool], platform: Platform) -> int:
    """Bytes of L2 that the step's tile buffers take at least."""
    geometry = StepGeometry(step)
    tile = geometry.smallest
    return sum(int(far_bytes(o, tile, platform)) for o, f in zip(geometry.operands, far, strict=True) if f and not o.literal)


class _Search:
    """The search for one number of cores and one buffering."""

    def __init__(
        self, geometry: StepGeometry, far: Sequence[bool], budget: Budget, cores: int, double: bool, platform: Platform
    ) -> None:
        self.geometry, self.budget, self.cores, self.double, self.platform = geometry, budget, cores, double, platform
        self.far = [f and not o.literal for f, o in zip(far, geometry.operands, strict=True)]
        self.near = [False] * len(self.far)
        self.orders = _orders(geometry)

    def run(self) -> Tiling | None:
        sizes = list(self.geometry.sizes)
        grid = self._grid(sizes, GRID)
        inner, cost = self._evaluate(self.near, sizes, grid)
        if inner is None:
            return None
        if not any(self.far):
            best = [int(v[np.argmin(cost)]) for v in inner]
            outer = sizes
        else:
            chosen = self._outer(inner, cost)
            if chosen is None:
                return None
            outer, best = chosen
        outer, best = self._refine(outer, best)
        return self._finish(outer, best)

    # ---- candidates ---------------------------------------------------------------------------------------------------------------

    def _grid(self, within: Sequence[int], limit: int) -> list[np.ndarray]:
        """Candidates for all axes, as one flat array per axis, from large to small."""
        choices = [self._candidates(a, within[a]) if a in self.geometry.cuttable else [within[a]] for a in range(len(within))]
        while math.prod(len(c) for c in choices) > limit:
            longest = max(choices, key=len)
            if len(longest) <= 2:
                longest[:] = [longest[-1]]
            else:
                longest[:] = [*longest[:-1:2], longest[-1]] if len(longest) > 3 else [longest[0], longest[-1]]
        return [m.reshape(-1) for m in np.meshgrid(*[np.array(c, np.int64) for c in choices], indexing="ij")]

    def _candidates(self, axis: int, size: int) -> list[int]:
        quantum = max(1, self.geometry.step.axes[axis].quantum)
        if size <= 4:
            found = {size, quantum}
        else:
            found = {ceil_div(size, k) for k in (1, 2, 3, 4, 5, 6, 8, 12, 16)} | {1 << k for k in range(size.bit_length())}
        return sorted({min(size, round_up(f, quantum)) for f in found}, reverse=True)

    # ---- evaluation ---------------------------------------------------------------------------------------------------------------

    def _evaluate(self, far: Sequence[bool], outer: Sizes, inner: Sizes) -> tuple[list[np.ndarray] | None, np.ndarray]:
        """The feasible candidates of `inner` (arrays) within `outer` (ints), and their cost."""
        feasible = self._fits(far, outer, inner)
        if not feasible.any():
            return None, np.zeros(0)
        kept = [v[feasible] for v in inner]
        return kept, self._cost(far, outer, kept)

    def _fits(self, far: Sequence[bool], outer: Sizes, inner: Sizes) -> np.ndarray:
        used: Any = self.geometry.accumulator_bytes(inner) + self.geometry.scratch_bytes(inner, self.cores)
        for operand in self.geometry.operands:
            if not operand.literal:
                used = used + operand.buffer_bytes(inner) * self._copies(operand, inner, outer)
        fits = np.less_equal(used, self.budget.l1) & ~np.asarray(breaks_chain(self.geometry, inner, outer), bool)
        if any(far):
            used = 0
            for operand, there in zip(self.geometry.operands, far, strict=True):
                if there:
                    used = used + far_bytes(operand, outer, self.platform) * self._copies(operand, outer, self.geometry.sizes)
            fits = fits & np.less_equal(used, self.budget.l2)
            fits = fits & ~np.asarray(breaks_chain(self.geometry, outer, self.geometry.sizes), bool)
            fits = fits & ~self._splits_badly(outer, inner)
        return np.broadcast_to(fits, np.shape(inner[0]) if inner else (1,))

    def _copies(self, operand: OperandGeometry, tile: Sizes, within: Sizes) -> Any:
        if not self.double or (operand.reads and operand.writes):
            return 1
        return np.where(operand.moves(tile, within), 2, 1)

    def _splits_badly(self, outer: Sizes, inner: Sizes) -> Any:
        """Accumulators live in L1 across the outer loop's reduction, so the inner loop may then not change the output tile."""
        split: Any = np.False_
        for a in self.geometry.cuttable_reduced:
            split = split | (outer[a] < self.geometry.sizes[a])
        moves: Any = np.False_
        for a in self.geometry.parallel:
            moves = moves | (inner[a] < outer[a])
        return split & moves

    def _cost(self, far: Sequence[bool], outer: Sizes, inner: Sizes) -> np.ndarray:
        best: Any = None
        for order in self.orders:
            price = _price(estimate(self.geometry, far, outer, inner, order, self.cores, self.double, self.platform))
            best = price if best is None else np.minimum(best, price)
        return np.broadcast_to(best, np.shape(inner[0]) if inner else (1,))

    # ---- the two loops together ---------------------------------------------------------------------------------------------------

    def _outer(self, inner: list[np.ndarray], cost: np.ndarray) -> tuple[list[int], list[int]] | None:
        """The best pair of outer and inner sizes: each outer candidate with the best inner ones, cut down to it."""
        few = np.argsort(cost, kind="stable")[:KEPT]
        kept = [v[few] for v in inner]
        grid = self._grid(self.geometry.sizes, OUTER_GRID)
        outer = [np.repeat(g, len(few)) for g in grid]
        clipped = [np.minimum(np.tile(k, len(grid[0])), o) for k, o in zip(kept, outer, strict=True)]
        split: Any = np.zeros(len(outer[0]), bool)
        for a in self.geometry.cuttable_reduced:
            split |= outer[a] < self.geometry.sizes[a]
        for a in self.geometry.parallel:
            clipped[a] = np.where(split, outer[a], clipped[a])
        pair = self._best_pair(outer, clipped)
        if pair is None:
            smallest = [np.array([s], np.int64) for s in self.geometry.smallest]
            pair = self._best_pair(smallest, smallest)
        return pair

    def _best_pair(self, outer: list[np.ndarray], inner: list[np.ndarray]) -> tuple[list[int], list[int]] | None:
        feasible = self._fits(self.far, outer, inner)
        if not feasible.any():
            return None
        outer, inner = [o[feasible] for o in outer], [i[feasible] for i in inner]
        at = int(np.argmin(self._cost(self.far, outer, inner)))
        return [int(o[at]) for o in outer], [int(i[at]) for i in inner]

    # ---- neighbours ---------------------------------------------------------------------------------------------------------------

    def _refine(self, outer: list[int], inner: list[int]) -> tuple[list[int], list[int]]:
        """Moves to the best neighbour while that is better: one axis (or two) by one trip, by a little, or by two."""
        current = float(self._cost(self.far, *self._pair(outer, inner))[0])
        for _ in range(ROUNDS):
            pairs = self._neighbours(outer, inner)
            if not pairs:
                break
            outers = [np.array(v, np.int64) for v in zip(*[o for o, _ in pairs], strict=True)]
            inners = [np.array(v, np.int64) for v in zip(*[i for _, i in pairs], strict=True)]
            feasible = self._fits(self.far, outers, inners)
            if not feasible.any():
                break
            outers, inners = [o[feasible] for o in outers], [i[feasible] for i in inners]
            cost = self._cost(self.far, outers, inners)
            at = int(np.argmin(cost))
            if not float(cost[at]) < current:
                break
            current = float(cost[at])
            outer, inner = [int(o[at]) for o in outers], [int(i[at]) for i in inners]
        return outer, inner

    @staticmethod
    def _pair(outer: Sequence[int], inner: Sequence[int]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        return [np.array([o], np.int64) for o in outer], [np.array([i], np.int64) for i in inner]

    def _neighbours(self, outer: Sequence[int], inner: Sequence[int]) -> list[tuple[list[int], list[int]]]:
        options = {a: self._near(a, inner[a], outer[a]) for a in self.geometry.cuttable}
        changes: list[dict[int, int]] = [{a: v} for a, values in options.items() for v in values]
        # pairs trade one axis against another
        for a, b in itertools.combinations(options, 2):
            changes += [{a: v, b: w} for v in options[a][:4] for w in options[b][:4] if (v > inner[a]) != (w > inner[b])]
        result = [(list(outer), [c.get(a, i) for a, i in enumerate(inner)]) for c in changes[:400]]
        if any(self.far):
            for a in self.geometry.cuttable:
                for value in self._near(a, outer[a], self.geometry.sizes[a]):
                    changed = [value if b == a else o for b, o in enumerate(outer)]
                    result.append((changed, [min(i, o) for i, o in zip(inner, changed, strict=True)]))
                    if inner[a] == outer[a] < value:
                        result.append((changed, [value if b == a else i for b, i in enumerate(inner)]))
        return result

    def _near(self, axis: int, tile: int, size: int) -> list[int]:
        quantum = max(1, self.geometry.step.axes[axis].quantum)
        trips = ceil_div(size, tile)
        wanted = [ceil_div(size, trips + 1), ceil_div(size, max(1, trips - 1)), tile - quantum, tile + quantum, tile // 2, tile * 2, size]
        values = {min(size, round_up(max(1, w), quantum)) for w in wanted}
        return sorted(values - {tile})

    # ---- the result ---------------------------------------------------------------------------------------------------------------

    def _finish(self, outer: Sequence[int], inner: Sequence[int]) -> Tiling:
        geometry = self.geometry
        order = self._order(outer, inner)
        l1 = tuple(
            None if o.literal else (int(o.buffer_bytes(inner)), int(self._copies(o, inner, outer))) for o in geometry.operands
        )
        l2 = tuple(
            (int(far_bytes(o, outer, self.platform)), int(self._copies(o, outer, geometry.sizes))) if f else None
            for o, f in zip(geometry.operands, self.far, strict=True)
        )
        return Tiling(
            tuple(outer), tuple(inner), tuple(order), l1, l2,
            int(geometry.accumulator_bytes(inner)), int(geometry.scratch_bytes(inner, self.cores)), self.cores,
            final_cost(geometry, self.far, outer, inner, order, self.cores, self.double, self.platform),
        )

    def _order(self, outer: Sequence[int], inner: Sequence[int]) -> list[int]:
        """The cheapest loop order: all permutations of the parallel axes that are cut, if these are few."""
        cut = [a for a in self.geometry.parallel if inner[a] < self.geometry.sizes[a]]
        whole = [a for a in self.geometry.parallel if a not in cut]
        orders = self.orders
        if len(cut) <= 4:
            orders = [[*whole, *p, *self.geometry.reduced] for p in itertools.permutations(cut)]
        costs = [
            float(_price(estimate(self.geometry, self.far, outer, inner, o, self.cores, self.double, self.platform))) for o in orders
        ]
        return list(orders[costs.index(min(costs))])


def _price(cycles: Estimate) -> Any:
    """What the search minimises: cycles, and a little for transfers that are hidden behind the computation."""
    return cycles.total + HIDDEN * (cycles.l2 + cycles.l3)


def _orders(geometry: StepGeometry) -> list[list[int]]:
    """Loop orders worth trying: each keeps one read operand in place for long, then another. At most eight."""
    cut = [a for a in geometry.parallel if a in geometry.cuttable]
    whole = [a for a in geometry.parallel if a not in geometry.cuttable]
    sets = list(dict.fromkeys(o.axes & set(cut) for o in geometry.operands if o.reads and not o.literal))
    sets = [s for s in sets if s and len(s) < len(cut)]
    found: dict[tuple[int, ...], None] = {}
    for priority in itertools.islice(itertools.permutations(sets), 8):
        rank = {a: tuple(a not in s for s in priority) for a in cut}
        found.setdefault(tuple(sorted(cut, key=lambda a: rank[a])))
    return [[*whole, *order, *geometry.reduced] for order in found]


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
