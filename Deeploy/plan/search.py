"""The search for tile sizes of one step, for one number of cores and one buffering: a bounded grid, then a beam of neighbours.

Points are pairs (outer, inner) of integer arrays of shape (points, axes). With nothing at home in L3 the outer sizes are the axes' own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from Deeploy.plan.cost import Estimate, estimate
from Deeploy.plan.geometry import OperandGeometry, Sizes, StepGeometry, breaks_chain, ceil_div, round_up
from Deeploy.platform import Platform
from Deeploy.program.tensor import Level

GRID = 3000
"""Candidates of the first search over the L2<->L1 tile sizes."""
OUTER_GRID = 200
KEPT = 20
"""With operands at home in L3: candidates of the outer sizes, and how many of the best inner ones each is tried with."""
BEAM = 4
ROUNDS = 8
"""Points whose neighbours are looked at in a round, and rounds; the search ends when a round finds nothing better."""
HIDDEN = 0.05
"""Price of a hidden cycle of transfer, against a cycle of the step: bytes moved cost energy even where they cost no time."""

Points = tuple[np.ndarray, np.ndarray]


def far_bytes(operand: OperandGeometry, outer: Sizes, platform: Platform) -> Any:
    """Bytes of an L2 tile buffer: padded for what the last L3 read of a tile writes past its end, as every read is rounded up."""
    rounding = platform.levels[Level.L3].read_rounding
    past = rounding - 1 if operand.reads and operand.elem % rounding else 0
    return round_up(operand.elements(outer) * operand.elem + past, math.lcm(operand.unit, rounding))


def copies(operand: OperandGeometry, tile: Sizes, within: Sizes, double: bool) -> Any:
    """Two buffers if the tile changes in its loop; state, which is read and written, has one."""
    if not double or (operand.reads and operand.writes):
        return 1
    return np.where(operand.moves(tile, within), 2, 1)


class Search:
    """far: per operand whether it is at home in L3; l1, l2: bytes for buffers."""

    def __init__(self, geometry: StepGeometry, far: Sequence[bool], l1: int, l2: int, cores: int, double: bool, platform: Platform) -> None:
        self.geometry, self.l1, self.l2, self.cores, self.double, self.platform = geometry, l1, l2, cores, double, platform
        self.far = [f and not o.literal for f, o in zip(far, geometry.operands, strict=True)]
        self.orders = _orders(geometry)

    def run(self) -> tuple[list[int], list[int], list[int]] | None:
        """(outer, inner, order) of the best point found, None if no tile fits."""
        whole = np.array([self.geometry.sizes], np.int64)
        grid = self._grid(GRID)
        points = [(np.broadcast_to(whole, grid.shape), grid)]
        if any(self.far):
            points = [self._pairs(grid), (grid, grid)]
        outer, inner = (np.concatenate(parts) for parts in zip(*points, strict=True))
        best = self._beam(*self._ranked(outer, inner))
        if best is None:
            return None
        return best[0], best[1], self._order(*best)

    # ---- candidates ---------------------------------------------------------------------------------------------------------------

    def _grid(self, limit: int) -> np.ndarray:
        """Candidates for all axes, from large to small; the last is the smallest tile."""
        choices = [self._candidates(a) if a in self.geometry.cuttable else [n] for a, n in enumerate(self.geometry.sizes)]
        while math.prod(len(c) for c in choices) > limit:
            longest = max(choices, key=len)
            if len(longest) <= 2:
                longest[:] = [longest[-1]]
            else:
                longest[:] = [*longest[:-1:2], longest[-1]] if len(longest) > 3 else [longest[0], longest[-1]]
        mesh = np.meshgrid(*[np.array(c, np.int64) for c in choices], indexing="ij")
        return np.stack([m.reshape(-1) for m in mesh], axis=1) if mesh else np.zeros((1, 0), np.int64)

    def _candidates(self, axis: int) -> list[int]:
        size, quantum = self.geometry.sizes[axis], max(1, self.geometry.step.axes[axis].quantum)
        if size <= 4:
            found = {size, quantum}
        else:
            found = {ceil_div(size, k) for k in (1, 2, 3, 4, 5, 6, 8, 12, 16)} | {1 << k for k in range(size.bit_length())}
        return sorted({min(size, round_up(f, quantum)) for f in found}, reverse=True)

    def _pairs(self, grid: np.ndarray) -> Points:
        """Outer candidates, each with the inner ones that are best without an outer loop, cut down to it."""
        whole = np.broadcast_to(np.array([self.geometry.sizes], np.int64), grid.shape)
        best = self._ranked(whole, grid, near_only=True)[1][:KEPT]
        outers = self._grid(OUTER_GRID)
        outer = np.repeat(outers, len(best), axis=0)
        inner = np.minimum(np.tile(best, (len(outers), 1)), outer)
        return outer, self._legal_parts(outer, inner)

    def _legal_parts(self, outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
        """Where the outer loop splits a reduction, the inner one takes the parallel axes whole (see `_splits_badly`)."""
        split = self._splits(list(outer.T))
        inner = inner.copy()
        for a in self.geometry.parallel:
            inner[:, a] = np.where(split, outer[:, a], inner[:, a])
        return inner

    # ---- evaluation ---------------------------------------------------------------------------------------------------------------

    def _ranked(self, outer: np.ndarray, inner: np.ndarray, near_only: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The points that fit, best first, and their prices. near_only: as if nothing were at home in L3."""
        far = [False] * len(self.far) if near_only else self.far
        fits = self.fits(list(outer.T), list(inner.T), far)
        outer, inner = outer[fits], inner[fits]
        if not len(outer):
            return outer, inner, np.zeros(0)
        price = self.price(list(outer.T), list(inner.T), far)
        order = np.argsort(price, kind="stable")
        return outer[order], inner[order], price[order]

    def fits(self, outer: Sizes, inner: Sizes, far: Sequence[bool]) -> Any:
        """Which points are legal and within the budget."""
        used: Any = self.geometry.accumulator_bytes(inner) + self.geometry.scratch_bytes(inner, self.cores)
        for operand in self.geometry.operands:
            if not operand.literal:
                used = used + operand.buffer_bytes(inner) * copies(operand, inner, outer, self.double)
        good = np.less_equal(used, self.l1) & ~np.asarray(breaks_chain(self.geometry, inner, outer), bool)
        if any(far):
            used = 0
            for operand, there in zip(self.geometry.operands, far, strict=True):
                if there:
                    tile = far_bytes(operand, outer, self.platform)
                    used = used + tile * copies(operand, outer, self.geometry.sizes, self.double)
            good = good & np.less_equal(used, self.l2) & ~self._splits_badly(outer, inner)
            good = good & ~np.asarray(breaks_chain(self.geometry, outer, self.geometry.sizes), bool)
        return np.broadcast_to(good, np.shape(inner[0]) if inner else (1,))

    def _splits(self, outer: Sizes) -> Any:
        split: Any = np.False_
        for a in self.geometry.cuttable_reduced:
            split = split | (outer[a] < self.geometry.sizes[a])
        return split

    def _splits_badly(self, outer: Sizes, inner: Sizes) -> Any:
        """Accumulators live in L1 across the outer loop's reduction, so the inner loop may then not change the output tile."""
        moves: Any = np.False_
        for a in self.geometry.parallel:
            moves = moves | (inner[a] < outer[a])
        return self._splits(outer) & moves

    def price(self, outer: Sizes, inner: Sizes, far: Sequence[bool], orders: Sequence[Sequence[int]] | None = None) -> Any:
        """What is minimised, with the best of the loop orders: cycles, and a little for transfers that the computation hides."""
        best: Any = None
        for order in orders or self.orders:
            cycles = _price(estimate(self.geometry, far, outer, inner, order, self.cores, self.double, self.platform))
            best = cycles if best is None else np.minimum(best, cycles)
        return np.broadcast_to(best, np.shape(inner[0]) if inner else (1,))

    # ---- neighbours ---------------------------------------------------------------------------------------------------------------

    def _beam(self, outer: np.ndarray, inner: np.ndarray, price: np.ndarray) -> tuple[list[int], list[int]] | None:
        """The best point that is reached from the best ones by moving to better neighbours."""
        if not len(price):
            return None
        outer, inner, price = _distinct(outer, inner, price, BEAM)
        seen: set[tuple[int, ...]] = set()
        for _ in range(ROUNDS if self._worth(outer[0], inner[0], float(price[0])) else 0):
            fresh = [p for p in zip(outer, inner, strict=True) if (*p[0], *p[1]) not in seen]
            seen |= {(*o, *i) for o, i in fresh}
            around = [block for o, i in fresh for block in self._around(o, i)]
            if not around:
                break
            outers, inners = (np.concatenate(parts) for parts in zip(*around, strict=True))
            outers, inners, prices = self._ranked(outers, inners)
            if not len(prices) or prices[0] >= price[0]:
                break
            few = slice(0, 8 * BEAM)
            outer, inner = np.concatenate([outers[few], outer]), np.concatenate([inners[few], inner])
            price = np.concatenate([prices[few], price])
            order = np.argsort(price, kind="stable")
            outer, inner, price = _distinct(outer[order], inner[order], price[order], BEAM)
        return [int(v) for v in outer[0]], [int(v) for v in inner[0]]

    def _worth(self, outer: np.ndarray, inner: np.ndarray, price: float) -> bool:
        """Whether anything but one whole tile can be better: a second tile costs the controller more than overlap saves, else."""
        if any(self.far) or any(i < n for i, n in zip(inner, self.geometry.sizes, strict=True)):
            return True
        costs = self.platform.costs
        cycles = estimate(self.geometry, self.far, list(outer), list(inner), self.orders[0], self.cores, self.double, self.platform)
        return min(float(cycles.compute), float(cycles.l2)) > costs.tile_cycles + costs.fork_cycles

    def _around(self, outer: np.ndarray, inner: np.ndarray) -> Iterator[Points]:
        """Points near a point: one axis or two changed, in the inner loop, in the outer loop, or in both."""
        axes = self.geometry.cuttable
        sizes = self.geometry.sizes
        near = {a: self._near(a, int(inner[a]), int(outer[a])) for a in axes}
        for values in _changed(inner, near):
            yield np.broadcast_to(outer, values.shape), values
        if not any(self.far):
            return
        beyond = {a: self._near(a, int(outer[a]), sizes[a]) for a in axes}
        for values in _changed(outer, beyond):
            cut = np.minimum(inner, values)
            yield values, self._legal_parts(values, cut)
            # an inner tile that was the whole outer one goes on being so
            yield values, np.where(inner == outer, values, cut)
        for a in axes:
            wanted = self._near(a, int(inner[a]), sizes[a])
            both = np.repeat(outer[None, :], len(wanted), axis=0)
            both[:, a] = wanted
            yield both, np.where(np.arange(len(sizes)) == a, both, np.minimum(inner, both))

    def _near(self, axis: int, tile: int, size: int) -> list[int]:
        """Other tile sizes: a trip more or fewer, half, double; then a step away and the next multiples of eight."""
        quantum = max(1, self.geometry.step.axes[axis].quantum)
        trips = ceil_div(size, tile)
        wanted = [ceil_div(size, trips + 1), ceil_div(size, max(1, trips - 1)), tile // 2, tile * 2]
        wanted += [tile - quantum, tile + quantum, tile // 8 * 8, tile // 8 * 8 + 8, size]
        values = dict.fromkeys(min(size, round_up(max(1, w), quantum)) for w in wanted)
        return [v for v in values if v != tile]

    # ---- loop order ---------------------------------------------------------------------------------------------------------------

    def _order(self, outer: Sequence[int], inner: Sequence[int]) -> list[int]:
        """The cheapest loop order: all permutations of the parallel axes that are cut, if these are few."""
        cut = [a for a in self.geometry.parallel if inner[a] < self.geometry.sizes[a]]
        whole = [a for a in self.geometry.parallel if a not in cut]
        orders = self.orders
        if len(cut) <= 4:
            orders = [[*whole, *p, *self.geometry.reduced] for p in itertools.permutations(cut)]
        prices = [float(_price(estimate(self.geometry, self.far, outer, inner, o, self.cores, self.double, self.platform))) for o in orders]
        return list(orders[prices.index(min(prices))])


def _price(cycles: Estimate) -> Any:
    return cycles.total + HIDDEN * (cycles.l2 + cycles.l3)


def _distinct(outer: np.ndarray, inner: np.ndarray, price: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first `count` points that differ."""
    chosen: dict[tuple[int, ...], int] = {}
    for row in range(len(price)):
        chosen.setdefault((*outer[row].tolist(), *inner[row].tolist()), row)
        if len(chosen) == count:
            break
    rows = list(chosen.values())
    return outer[rows], inner[rows], price[rows]


def _changed(tile: np.ndarray, options: dict[int, list[int]]) -> Iterator[np.ndarray]:
    """Copies of a tile with one axis changed, and with two: one larger, the other smaller."""
    for a, values in options.items():
        if values:
            one = np.repeat(tile[None, :], len(values), axis=0)
            one[:, a] = values
            yield one
    for a, b in itertools.combinations(options, 2):
        pairs = [(v, w) for v in options[a][:4] for w in options[b][:4] if (v > tile[a]) != (w > tile[b])]
        if pairs:
            two = np.repeat(tile[None, :], len(pairs), axis=0)
            two[:, [a, b]] = pairs
            yield two


def _orders(geometry: StepGeometry) -> list[list[int]]:
    """Loop orders worth trying: each keeps one read operand in place for long, then another. At most eight."""
    cut = [a for a in geometry.parallel if a in geometry.cuttable]
    whole = [a for a in geometry.parallel if a not in geometry.cuttable]
    sets = list(dict.fromkeys(o.axes & set(cut) for o in geometry.operands if o.reads and not o.literal))
    sets = [s for s in sets if s and len(s) < len(cut)]
    found: dict[tuple[int, ...], None] = {}
    for priority in itertools.islice(itertools.permutations(sets), 8):
        rank = {a: tuple(a not in s for s in priority) for a in cut}
        found.setdefault(tuple(sorted(cut, key=lambda a, rank=rank: rank[a])))  # type: ignore[misc]
    return [[*whole, *order, *geometry.reduced] for order in found]
