"""The cost model: estimated cycles of a step for tile sizes, and the exact bytes that it moves.

Per tile the cores compute points * cycles_per_point / cores, stretched by the imbalance of the last round, plus a fork and the
controller's own work. A hop costs a latency per tile, a set-up per command and bytes / bandwidth. Double buffering hides the shorter of
the two behind the longer, but for the first load and the last store; single buffering adds them. The L3<->L2 loop is the same around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from Deeploy.plan.geometry import OperandGeometry, Sizes, StepGeometry, ceil_div, loaded_bytes, whole_bytes
from Deeploy.plan.result import StepCost
from Deeploy.platform import Dma, Platform


@dataclass(frozen=True)
class Estimate:
    """Cycles (floats or arrays): the cores' and controller's work, the two hops', and the step's with overlap."""

    compute: Any
    l2: Any
    l3: Any
    total: Any


ACCUMULATOR_CYCLES = 4.0
"""Of one core, to store and fetch one accumulator between two parts of a split reduction."""


@dataclass(frozen=True)
class _Loop:
    """A tile loop: mean and full tile sizes, trips per axis; far: tile sizes on the far side per operand, None for the storage itself;
    around: trips of the loop that it runs in, if any."""

    mean: Sizes
    tile: Sizes
    trips: Sequence[Any]
    far: Sequence[Sizes | None]
    around: Sequence[Any] | None


def estimate(
    geometry: StepGeometry,
    far: Sequence[bool],
    outer: Sizes,
    inner: Sizes,
    order: Sequence[int],
    cores: int,
    double: bool,
    platform: Platform,
) -> Estimate:
    """Cycles of one run of the step. far: per operand whether it is at home in L3."""
    trips_out = [ceil_div(n, o) for n, o in zip(geometry.sizes, outer, strict=True)]
    trips_in = [ceil_div(o, i) for o, i in zip(outer, inner, strict=True)]
    # mean tile lengths: the last tile of an axis may be much shorter
    mean_out = [n / t for n, t in zip(geometry.sizes, trips_out, strict=True)]
    mean_in = [o / t for o, t in zip(mean_out, trips_in, strict=True)]
    boxes_out, boxes_in = _product(trips_out), _product(trips_in)
    compute = _compute(geometry, mean_in, boxes_out * boxes_in, cores, platform)
    near_loop = _Loop(mean_in, inner, trips_in, [outer if f else None for f in far], trips_out)
    l2, first, last = _hop(geometry, [not o.literal for o in geometry.operands], near_loop, order, platform.dma_l2)
    l2 = l2 + boxes_out * boxes_in * platform.dma_l2.latency_cycles
    edges = boxes_out * (first + last + platform.dma_l2.latency_cycles)
    near = np.maximum(compute, l2) + np.where(boxes_in > 1, edges, np.minimum(compute, l2)) if double else compute + l2
    near = np.minimum(near, compute + l2)
    if not any(far):
        return Estimate(compute, l2, 0, near)
    far_loop = _Loop(mean_out, outer, trips_out, [None] * len(far), None)
    l3, first, last = _hop(geometry, far, far_loop, order, platform.dma_l3)
    l3 = l3 + boxes_out * platform.dma_l3.latency_cycles
    if not double:
        return Estimate(compute, l2, l3, near + l3)
    edges = first + last + platform.dma_l3.latency_cycles
    return Estimate(compute, l2, l3, np.minimum(np.maximum(near, l3) + edges, near + l3))


def _product(values: Sequence[Any]) -> Any:
    result: Any = 1
    for value in values:
        result = result * value
    return result


def _compute(geometry: StepGeometry, tile: Sizes, tiles: Any, cores: int, platform: Platform) -> Any:
    cycles = sum(call.kernel.cycles_per_point for call in geometry.step.calls)
    work = float(_product(geometry.sizes)) * cycles / cores
    # the kernels share a flattened index over the axes that may be tiled
    shared = _product([tile[a] for a in geometry.parallel if geometry.step.axes[a].tileable])
    stretch = np.ceil(shared / cores) * cores / shared
    parts = tiles / _product([n / t for a, (n, t) in enumerate(zip(geometry.sizes, tile, strict=True)) if a in geometry.parallel])
    if geometry.step.accumulator is not None and geometry.accumulated is not None:
        # each further part of a split reduction reads and writes its accumulators
        work = work + (parts - 1) * float(_product([geometry.sizes[a] for a in geometry.parallel])) * ACCUMULATOR_CYCLES / cores
    return work * stretch + tiles * (platform.costs.tile_cycles + platform.costs.fork_cycles * len(geometry.step.calls))


def _hop(geometry: StepGeometry, moved: Sequence[bool], loop: _Loop, order: Sequence[int], dma: Dma) -> tuple[Any, Any, Any]:
    """Cycles of all transfers of a loop, of its first loads and of its last stores."""
    total: Any = 0.0
    first: Any = 0.0
    last: Any = 0.0
    for operand, used, far in zip(geometry.operands, moved, loop.far, strict=True):
        if not used:
            continue
        read, write = _tile_cycles(operand, loop.mean, loop.tile, far, dma)
        if operand.reads:
            total = total + read * _all_loads(operand, loop, order)
            first = first + read
        if operand.writes:
            stores = _product([loop.trips[a] for a in geometry.parallel])
            if loop.around is not None:
                stores = stores * _product([loop.around[a] for a in geometry.parallel])
            total = total + write * stores
            last = last + write
    return total, first, last


def _all_loads(operand: OperandGeometry, loop: _Loop, order: Sequence[int]) -> Any:
    loads = _loads(operand, loop.trips, order)
    if loop.around is None:
        return loads
    # a tile that does not move in the inner loop stays from one outer box to the next, unless it moves there
    moves: Any = np.False_
    for a in operand.axes:
        moves = moves | np.greater(loop.trips[a], 1)
    return np.where(moves, loads * _product(loop.around), _loads(operand, loop.around, order))


def _tile_cycles(operand: OperandGeometry, mean: Sizes, tile: Sizes, far: Sizes | None, dma: Dma) -> tuple[Any, Any]:
    size = operand.elements(mean) * operand.elem
    setup = np.maximum(operand.commands(tile, far), size / dma.max_bytes) * dma.setup_cycles
    return setup + size / dma.read_bytes_per_cycle, setup + size / dma.write_bytes_per_cycle


def _loads(operand: OperandGeometry, trips: Sequence[Any], order: Sequence[int]) -> Any:
    """How often an operand is loaded in a loop: once per iteration of the loops down to its innermost one with several trips."""
    loads: Any = 1
    running: Any = 1
    for a in order:
        running = running * trips[a]
        if a in operand.axes:
            loads = np.where(np.greater(trips[a], 1), running, loads)
    return loads


def final_cost(
    geometry: StepGeometry,
    far: Sequence[bool],
    outer: Sequence[int],
    inner: Sequence[int],
    order: Sequence[int],
    cores: int,
    double: bool,
    platform: Platform,
) -> StepCost:
    """The estimate in whole cycles, and the exact bytes per hop and direction."""
    cycles = estimate(geometry, far, outer, inner, order, cores, double, platform)
    used = [(o, f) for o, f in zip(geometry.operands, far, strict=True) if not o.literal]
    sizes = geometry.sizes
    return StepCost(
        compute=round(float(cycles.compute)),
        l2=round(float(cycles.l2)),
        l3=round(float(cycles.l3)),
        total=round(float(cycles.total)),
        l3_to_l2=sum(loaded_bytes(geometry, o, sizes, outer, order) for o, f in used if f and o.reads),
        l2_to_l3=sum(whole_bytes(geometry, o) for o, f in used if f and o.writes),
        l2_to_l1=sum(loaded_bytes(geometry, o, outer, inner, order) for o, _ in used if o.reads),
        l1_to_l2=sum(whole_bytes(geometry, o) for o, _ in used if o.writes),
    )
