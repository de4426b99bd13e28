"""Tilings of single steps: bytes of tiles, exact traffic against a simulation of the loops, budgets, and the search's quality."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Deeploy.errors import DoesNotFitError
from Deeploy.plan.cost import estimate
from Deeploy.plan.geometry import StepGeometry, is_literal
from Deeploy.plan.tiling import Budget, signature, tile_step
from Deeploy.platform import load
from Deeploy.program.dtypes import INT8
from Deeploy.program.step import Access, AxisKind, DimMap, Operand, Step
from DeeployTest import plan_steps as ps

STEPS = ps.some_steps()
PLATFORM = load("gap9")


def sequences(step, outer, inner, order):
    whole = ((0,) * len(step.axes), tuple(a.size for a in step.axes))
    outers = list(ps.boxes(*whole, outer, order))
    inners = [box for o in outers for box in ps.boxes(*o, inner, order)]
    return outers, inners


@st.composite
def tilings(draw, steps=STEPS):
    step = draw(st.sampled_from(steps))
    geometry = StepGeometry(step)
    outer, inner = [], []
    for a, axis in enumerate(step.axes):
        free = a in geometry.cuttable
        outer.append(draw(st.integers(1, axis.size)) if free and draw(st.booleans()) else axis.size)
        inner.append(draw(st.integers(1, outer[-1])) if free and draw(st.booleans()) else outer[-1])
    if any(outer[a] < step.axes[a].size for a in geometry.reduced):
        for a in geometry.parallel:
            inner[a] = outer[a]
    order = [*draw(st.permutations(geometry.parallel)), *draw(st.permutations(geometry.reduced))]
    # keep the simulation short
    count = math.prod(-(-axis.size // o) * -(-o // i) for axis, o, i in zip(step.axes, outer, inner, strict=True))
    return (step, outer, inner, order) if count < 3000 else (step, *([[a.size for a in step.axes]] * 2), order)


@settings(max_examples=60, deadline=None)
@given(tilings())
def test_tile_buffers_hold_every_tile(tiling):
    step, outer, inner, order = tiling
    geometry = StepGeometry(step)
    outers, inners = sequences(step, outer, inner, order)
    for operand, shape in zip(step.operands, geometry.operands, strict=True):
        if not shape.literal:
            assert shape.buffer_bytes(outer) >= max(ps.region_bytes(operand, b) for b in outers)
            assert shape.buffer_bytes(inner) >= max(ps.region_bytes(operand, b) for b in inners)
            assert shape.buffer_bytes(inner) % 4 == 0


@settings(max_examples=80, deadline=None)
@given(tilings(), st.integers(0, 7))
def test_traffic_is_that_of_the_loops(tiling, mask):
    from Deeploy.plan.cost import final_cost

    step, outer, inner, order = tiling
    far = [bool(mask >> i & 1) and not is_literal(o) for i, o in enumerate(step.operands)]
    outers, inners = sequences(step, outer, inner, order)
    cost = final_cost(StepGeometry(step), far, outer, inner, order, 8, True, PLATFORM)
    real = [(o, f) for o, f in zip(step.operands, far, strict=True) if not is_literal(o)]
    assert cost.l2_to_l1 == sum(ps.loads(o, inners) for o, _ in real if o.access is not Access.WRITE)
    assert cost.l3_to_l2 == sum(ps.loads(o, outers) for o, f in real if f and o.access is not Access.WRITE)
    assert cost.l1_to_l2 == sum(ps.stores(step, o, inners) for o, _ in real if o.access is not Access.READ)
    assert cost.l2_to_l3 == sum(ps.stores(step, o, outers) for o, f in real if f and o.access is not Access.READ)


@settings(max_examples=20, deadline=None)
@given(tilings())
def test_a_grid_of_candidates_costs_what_each_candidate_costs(tiling):
    step, outer, inner, order = tiling
    geometry, far = StepGeometry(step), [True] + [False] * (len(step.operands) - 1)
    sizes = [a.size for a in step.axes]
    outers = [np.array(v, np.int64) for v in zip(outer, sizes, strict=True)]
    inners = [np.array(v, np.int64) for v in zip(inner, sizes, strict=True)]
    both = estimate(geometry, far, outers, inners, order, 8, True, PLATFORM).total
    assert both[0] == pytest.approx(float(estimate(geometry, far, outer, inner, order, 8, True, PLATFORM).total))
    assert both[1] == pytest.approx(float(estimate(geometry, far, sizes, sizes, order, 8, True, PLATFORM).total))


def buffers(tiling, level):
    return sum(b * c for b, c in filter(None, tiling.l1 if level == 1 else tiling.l2))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(STEPS), st.integers(200, 4000), st.integers(300, 6000), st.integers(0, 7), st.booleans())
def test_tilings_keep_to_the_budget(step, l1, l2, mask, double):
    far = [bool(mask >> i & 1) and not is_literal(o) for i, o in enumerate(step.operands)]
    try:
        tiling = tile_step(step, far, Budget(l1, l2, 8, double), PLATFORM)
    except DoesNotFitError:
        # only if the smallest tiles, single-buffered, do not fit
        geometry = StepGeometry(step)
        tile = geometry.smallest
        near = sum(o.buffer_bytes(tile) for o in geometry.operands if not o.literal) + geometry.accumulator_bytes(tile)
        # an L3 read writes up to three bytes past its end
        there = sum(o.buffer_bytes(tile) + 4 for o, f in zip(geometry.operands, far, strict=True) if f)
        assert near > l1 or there > l2
        return
    assert buffers(tiling, 1) + tiling.accumulator + tiling.scratch <= l1
    assert buffers(tiling, 2) <= l2
    assert [b is None for b in tiling.l2] == [not f for f in far]
    assert double or all(c == 1 for _, c in filter(None, (*tiling.l1, *tiling.l2)))
    if any(tiling.outer[a] < axis.size for a, axis in enumerate(step.axes) if axis.kind is AxisKind.REDUCED):
        assert all(tiling.inner[a] == tiling.outer[a] for a, axis in enumerate(step.axes) if axis.kind is AxisKind.PARALLEL)


def test_the_search_comes_near_the_best_of_all_tilings():
    step = ps.matmul(ps.variable("a", (24, 40)), ps.variable("b", (40, 30)), ps.variable("c", (24, 30)))
    geometry, far, sizes = StepGeometry(step), [False] * 3, [24, 30, 40]
    grid = [np.array(v, np.int64) for v in zip(*itertools.product(range(1, 25), range(1, 31), range(1, 41)), strict=True)]
    used = geometry.accumulator_bytes(grid)
    for o in geometry.operands:
        used = used + o.buffer_bytes(grid) * np.where(o.moves(grid, sizes), 2, 1)
    for l1 in (600, 1500, 100_000):
        best = min(
            estimate(geometry, far, sizes, grid, order, 8, True, PLATFORM).total[used <= l1].min() for order in ([0, 1, 2], [1, 0, 2])
        )
        assert tile_step(step, far, Budget(l1, 0, 8, True), PLATFORM).cost.total <= 1.05 * best + 1


def test_the_loop_order_keeps_the_larger_operand_in_place():
    step = ps.matmul(ps.variable("a", (8, 512)), ps.variable("b", (512, 512)), ps.variable("c", (8, 512)), split=False)
    tiling = tile_step(step, [False] * 3, Budget(20_000, 0, 8, False), PLATFORM)
    assert tiling.cost.l2_to_l1 <= 512 * 512 + 8 * 512 * 2


def test_fewer_cores_where_scratch_does_not_fit():
    step = ps.softmax(ps.variable("x", (64, 200)), ps.variable("y", (64, 200)), scratch=True)
    assert tile_step(step, [False] * 2, Budget(100_000, 0, 8, True), PLATFORM).cores == 8
    tiling = tile_step(step, [False] * 2, Budget(5_000, 0, 8, True), PLATFORM)
    assert tiling.cores == 2 and tiling.scratch == 3200


def test_a_quantum_is_kept():
    step = ps.elementwise([ps.variable("a", (100,))], ps.variable("b", (100,)))
    from dataclasses import replace

    step = Step(**{**step.__dict__, "axes": (replace(step.axes[0], quantum=16),)})
    tiling = tile_step(step, [False] * 2, Budget(150, 0, 8, True), PLATFORM)
    assert tiling.inner[0] % 16 == 0


def test_regrouped_written_dimensions_stay_intervals():
    """A written dimension of 4 groups x 6: if several groups are in a tile, each is whole."""
    out = ps.variable("o", (24, 5))
    from Deeploy.program.step import Axis

    step = Step(
        "g",
        "g",
        "Any",
        (Axis("g", 4), Axis("c", 6), Axis("p", 5)),
        (Operand(out, Access.WRITE, (DimMap(24, 5, ((0, 6), (1, 1))), DimMap(5, 1, ((2, 1),)))),),
        (ps.call(1, 3),),
    )
    for l1 in (8, 16, 40, 60, 100, 200):
        g, c, _ = tile_step(step, [False], Budget(l1, 0, 8, True), PLATFORM).inner
        assert g == 1 or c == 6


def test_an_error_names_everything():
    step = ps.softmax(ps.variable("x", (4, 5000)), ps.variable("y", (4, 5000)))
    with pytest.raises(DoesNotFitError) as error:
        tile_step(step, [False] * 2, Budget(9_999, 0, 8, True), PLATFORM)
    text = str(error.value)
    for part in ("'sm'", "L1", "10000 bytes needed", "9999 bytes given", "tensor 'x'", "5000"):
        assert part in text


def test_equal_steps_have_equal_signatures():
    def make(name, length=64):
        return ps.softmax(ps.variable(f"x{name}", (4, length), INT8), ps.variable(f"y{name}", (4, length), INT8), name)

    assert signature(make("a"), [False, False]) == signature(make("b"), [False, False])
    assert signature(make("a"), [False, False]) != signature(make("a"), [True, False])
    assert signature(make("a"), [False, False]) != signature(make("a", 65), [False, False])
