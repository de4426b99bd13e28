"""Whole plans: homes, arenas, working in place, errors, determinism; and the checker, which must catch every injected fault."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import pytest

from Deeploy.errors import DefectError, DoesNotFitError, UsageError
from Deeploy.plan import Plan, PlanOptions, check, plan
from Deeploy.plan.geometry import StepGeometry
from Deeploy.plan.result import Block, Placement, StepPlan, TileBuffers
from Deeploy.platform import Platform, load
from Deeploy.program.program import Program
from Deeploy.program.tensor import Level, Role, Storage, VariableBuffer
from DeeployTest import plan_steps as ps

PLATFORM = load("gap9")
OPTIONS = {
    "default": PlanOptions(),
    "single": PlanOptions(buffering="single"),
    "small": PlanOptions(l1=4000),
    "L3": PlanOptions(home="L3"),
    "L3 single small": PlanOptions(home="L3", buffering="single", l1=3000, cores=3),
    "little L2": PlanOptions(l2=20_000),
    "very little L2": PlanOptions(l2=4_000, l1=3_000),
    "L2": PlanOptions(home="L2", cores=1),
}


def summary(p: Plan) -> object:
    homes = [(s.name, s.home) for s in p.program.storages]
    arenas = [(level, a.size, [(q.storage.name, q.offset, q.first, q.last) for q in a.placements]) for level, a in p.arenas.items()]
    return homes, arenas, [dataclasses.replace(s, step=None) for s in p.steps], p.use


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_gives_a_legal_plan(name):
    first, second = plan(ps.network(), PLATFORM, OPTIONS[name]), plan(ps.network(), PLATFORM, OPTIONS[name])
    assert summary(first) == summary(second)
    for arena in first.arenas.values():
        assert arena.bound <= arena.size <= 1.05 * arena.bound + 16
    for use in first.use:
        assert use.constants + use.arena + use.reserved <= use.given
    assert plan(first.program, PLATFORM).arenas.keys() == set(Level)  # and again with other options, on the same program


def test_homes():
    def homes(options):
        return {s.home for s in plan(ps.network(), PLATFORM, options).program.storages}

    assert homes(PlanOptions()) == {Level.L2}
    assert homes(PlanOptions(home="L3")) == {Level.L3}
    assert homes(PlanOptions(home="L2")) == {Level.L2}
    assert homes(PlanOptions(l2=20_000)) == {Level.L2, Level.L3}


def test_weights_move_down_before_activations_and_no_more_than_needed():
    program = ps.network()
    weights = sum(s.size for s in program.storages if s.role is Role.CONSTANT)
    whole = plan(program, PLATFORM)
    needed = whole.arenas[Level.L2].size + weights
    assert plan(ps.network(), PLATFORM, PlanOptions(l2=needed)).use[1].constants == weights
    tight = plan(ps.network(), PLATFORM, PlanOptions(l2=needed - 1000))
    moved = [s for s in tight.program.storages if s.home is Level.L3]
    assert moved and all(s.role is Role.CONSTANT for s in moved) and len(moved) == 1
    # the step that reads it has L2 tile buffers, and only for it
    for p in tight.steps:
        assert [b is not None for b in p.l2] == [o.tensor.storage in moved for o in p.step.operands]


def test_elementwise_steps_work_in_place():
    p = plan(ps.network(layers=2), PLATFORM)
    where = {q.storage.name: q.offset for q in p.arenas[Level.L2].placements}
    assert where["y0"] == where["z0"] and where["y1"] == where["z1"]
    assert where["x"] != where["s1"]  # an input is never written over
    assert p.arenas[Level.L2].size <= 3 * 16 * 16 * 16 + 64


def test_not_in_place_where_it_would_be_wrong():
    x = ps.variable("x", (8, 8), role=Role.INPUT)
    a, b, c = (ps.variable(n, (8, 8)) for n in "abc")
    out = ps.variable("out", (8, 8), role=Role.OUTPUT)
    wide = ps.variable("wide", (8, 8), ps.INT32, Role.OUTPUT)
    steps = [
        ps.elementwise([x], a, "s0"),
        ps.elementwise([a], b, "s1"),  # a is read again later
        ps.elementwise([a, b], c, "s2"),
        ps.elementwise([c], wide, "s3"),  # another element size
        ps.elementwise([c], out, "s4"),
    ]
    p = plan(ps.program(steps), PLATFORM)
    where = {q.storage.name: (q.offset, q.first, q.last) for q in p.arenas[Level.L2].placements}
    assert where["a"][0] != where["b"][0] and where["x"][0] != where["a"][0] and where["c"][0] != where["wide"][0]
    assert where["c"][0] == where["out"][0]
    assert where["x"] == (where["x"][0], 0, 0) and where["wide"][2] == 4


def test_views_of_one_storage_and_unused_inputs():
    x, unused = ps.variable("x", (4, 8), role=Role.INPUT), ps.variable("unused", (4,), role=Role.INPUT)
    joined = Storage("joined", 64, Role.OUTPUT)
    left = VariableBuffer("left", "left", (4, 8), ps.INT8, joined, 0, (16, 1))
    right = VariableBuffer("right", "right", (4, 8), ps.INT8, joined, 8, (16, 1))
    program = ps.program([ps.elementwise([x], left, "s0"), ps.elementwise([x], right, "s1")])
    program.inputs.append(unused)
    program.tensors.append(unused)
    p = plan(program, PLATFORM)
    assert {q.storage.name: (q.first, q.last) for q in p.arenas[Level.L2].placements} == {"x": (0, 1), "joined": (0, 1), "unused": (0, 0)}
    assert p.steps[0].cost.l1_to_l2 == 32


@pytest.fixture
def tiny_l1(monkeypatch):
    """Lets plans be made for less L1 than is sensible."""
    monkeypatch.setattr("Deeploy.plan.planner.LEAST_L1", 0)


def test_less_l1_than_is_sensible_is_refused():
    step = ps.elementwise([ps.variable("x", (64,), role=Role.INPUT)], ps.variable("o", (64,), role=Role.OUTPUT))
    with pytest.raises(DoesNotFitError, match="at least 512 bytes needed, 511 bytes given"):
        plan(ps.program([step]), PLATFORM, PlanOptions(l1=511))
    plan(ps.program([step]), PLATFORM, PlanOptions(l1=512))


def test_state_and_literals(tiny_l1):
    state = ps.variable("state", (64,), role=Role.STATE)
    update = dataclasses.replace(ps.operand(state, ps.READ, (0,)), access=ps.Access.UPDATE)
    step = ps.elementwise([ps.literal("l", (64,)), ps.variable("x", (64,), role=Role.INPUT)], ps.variable("o", (64,), role=Role.OUTPUT))
    step.operands = (*step.operands, update)
    step.calls = (ps.call(4, 1),)
    for options in (PlanOptions(), PlanOptions(home="L3", l1=64)):
        p = plan(ps.program([step]), PLATFORM, options)
        assert p.steps[0].l1[0] is None and p.steps[0].l2[0] is None
        assert p.steps[0].l1[3].copies == 1
        assert 64 <= p.use[1 if options.home == "auto" else 2].constants < 64 + 8  # behind the arena, aligned
        assert "state" not in [q.storage.name for a in p.arenas.values() for q in a.placements]


def test_tensors_without_elements():
    step = ps.elementwise([ps.variable("x", (0, 4), role=Role.INPUT)], ps.variable("y", (0, 4), role=Role.OUTPUT))
    p = plan(ps.program([step]), PLATFORM)
    assert p.steps[0].l1 == (None, None) and p.arenas[Level.L2].size == 0


def test_a_platform_with_a_stricter_alignment():
    levels = {level: dataclasses.replace(spec, alignment=16) for level, spec in PLATFORM.levels.items()}
    for options in (PlanOptions(l1=4000), PlanOptions(home="L3", l1=4000)):
        p = plan(ps.network(layers=2), dataclasses.replace(PLATFORM, levels=levels), options)
        assert all(o % 16 == 0 for s in p.steps for b in (*s.l1, *s.l2) if b for o in b.offsets)


def test_an_empty_program():
    assert plan(Program("empty"), PLATFORM).steps == []


ERRORS = {
    "L1": (PlanOptions(l1=10), ["L1", "10 bytes given", "step '", "tensor '"]),
    "L2 fixed": (PlanOptions(home="L2", l2=10_000), ["L2", "10000 bytes given", "step '", "tensor '"]),
    "L2 tiles": (PlanOptions(home="L3", l2=8, l1=100_000), ["L2", "8 bytes given", "step '", "tensor '"]),
    "L2 auto": (PlanOptions(l2=8), ["L2", "8 bytes given"]),
    "L3": (PlanOptions(home="L3", l3=5_000), ["L3", "5000 bytes given", "step '", "tensor '"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_does_not_fit_is_named(name):
    options, parts = ERRORS[name]
    with pytest.raises(DoesNotFitError) as error:
        plan(ps.network(), PLATFORM, options)
    for part in parts:
        assert part in str(error.value)


def test_wrong_options():
    for wrong in ({"home": "L4"}, {"buffering": "triple"}):
        with pytest.raises(UsageError):
            PlanOptions(**wrong)


def test_a_long_network_is_planned_fast():
    program = ps.network(layers=120, channels=8, size=8)
    begin = time.process_time()
    plan(program, PLATFORM, PlanOptions(home="L3"))
    assert time.process_time() - begin < 3


def test_tight_l2_is_used_to_the_last_bytes():
    """From what is just enough for the smallest tiles upwards there is always a plan."""
    for l2 in range(300, 3000, 300):
        plan(ps.network(layers=2), PLATFORM, PlanOptions(l2=l2, l1=4000))


# ---- the checker -------------------------------------------------------------------------------------------------------------------


def sound(home: str = "L3") -> tuple[Plan, Platform]:
    """A plan with everything in it: two loops, accumulators, double buffers, working in place."""
    options = PlanOptions(home=home, l1=2_000, l2=12_000 if home != "L2" else None)
    return plan(ps.network(layers=2), PLATFORM, options), PLATFORM.with_overrides(options.l1, options.l2)


def change(p: Plan, index: int, **values: object) -> None:
    p.steps[index] = dataclasses.replace(p.steps[index], **values)


def put(values: tuple, index: int, value: object) -> tuple:
    return (*values[:index], value, *values[index + 1 :])


def arena(p: Plan, level: Level, **values: object) -> None:
    p.arenas[level] = dataclasses.replace(p.arenas[level], **values)


def placements(p: Plan, level: Level, edit: Callable[[Placement], Placement]) -> None:
    arena(p, level, placements=tuple(edit(q) for q in p.arenas[level].placements))


def where(p: Plan, wanted: Callable[[StepPlan], bool]) -> int:
    return next(i for i, s in enumerate(p.steps) if wanted(s))


def cut_step(p: Plan) -> tuple[int, int]:
    """A step and a parallel axis that its inner loop cuts."""
    for i, s in enumerate(p.steps):
        for a, axis in enumerate(s.step.axes):
            if s.inner[a] < s.outer[a] and axis.kind is ps.AxisKind.PARALLEL:
                return i, a
    raise AssertionError


def larger_inner(p: Plan) -> None:
    i, a = cut_step(p)
    change(p, i, inner=put(p.steps[i].inner, a, p.steps[i].outer[a]))


def larger_outer(p: Plan) -> None:
    i, a = next((i, a) for i, s in enumerate(p.steps) for a, axis in enumerate(s.step.axes) if s.outer[a] < axis.size)
    change(p, i, outer=put(p.steps[i].outer, a, p.steps[i].step.axes[a].size))


def inner_above_outer(p: Plan) -> None:
    change(p, 0, inner=put(p.steps[0].inner, 0, p.steps[0].outer[0] + 1))


def tile_of_nothing(p: Plan) -> None:
    change(p, 0, inner=put(p.steps[0].inner, 0, 0))


def small_buffer(p: Plan) -> None:
    buffers = p.steps[0].l1[0]
    change(p, 0, l1=put(p.steps[0].l1, 0, TileBuffers(buffers.bytes - 4, buffers.offsets)))


def small_far_buffer(p: Plan) -> None:
    buffers = p.steps[0].l2[1]
    change(p, 0, l2=put(p.steps[0].l2, 1, TileBuffers(buffers.bytes - 4, buffers.offsets)))


def no_room_for_rounded_reads(p: Plan) -> None:
    """A buffer that holds its tile, but not what a read that is rounded up writes past it."""
    s = p.steps[0]
    tile = StepGeometry(s.step).operands[1].buffer_bytes(s.outer)
    assert tile % 4 == 0
    change(p, 0, l2=put(s.l2, 1, TileBuffers(tile, s.l2[1].offsets)))


def overlap_l1(p: Plan) -> None:
    s = p.steps[0]
    change(p, 0, l1=put(s.l1, 0, TileBuffers(s.l1[0].bytes, s.l1[1].offsets[:1])))


def overlap_l2_tiles(p: Plan) -> None:
    s = p.steps[0]
    change(p, 0, l2=put(s.l2, 0, TileBuffers(s.l2[0].bytes, s.l2[1].offsets[:1])))


def same_copy_twice(p: Plan) -> None:
    i = where(p, lambda s: any(b and b.copies == 2 for b in s.l1))
    number = next(n for n, b in enumerate(p.steps[i].l1) if b and b.copies == 2)
    buffers = p.steps[i].l1[number]
    change(p, i, l1=put(p.steps[i].l1, number, TileBuffers(buffers.bytes, buffers.offsets[:1] * 2)))


def no_buffer(p: Plan) -> None:
    change(p, 0, l1=put(p.steps[0].l1, 0, None))


def no_far_buffer(p: Plan) -> None:
    change(p, 0, l2=put(p.steps[0].l2, 0, None))


def outside_l1(p: Plan) -> None:
    s = p.steps[0]
    change(p, 0, l1=put(s.l1, 0, TileBuffers(s.l1[0].bytes, (p.arenas[Level.L1].size,))))


def odd_l1(p: Plan) -> None:
    arena(p, Level.L1, size=p.arenas[Level.L1].size + 16)
    s = p.steps[0]
    change(p, 0, l1=put(s.l1, 0, TileBuffers(s.l1[0].bytes, (p.arenas[Level.L1].size - s.l1[0].bytes - 1,))))


def no_accumulator(p: Plan) -> None:
    i = where(p, lambda s: s.accumulator is not None)
    change(p, i, accumulator=None)


def small_accumulator(p: Plan) -> None:
    i = where(p, lambda s: s.accumulator is not None)
    block = p.steps[i].accumulator
    change(p, i, accumulator=Block(block.bytes // 2, block.offset))


def reduced_outside(p: Plan) -> None:
    i = where(p, lambda s: s.step.operator == "Conv")
    change(p, i, order=tuple(reversed(p.steps[i].order)))


def twice_in_order(p: Plan) -> None:
    change(p, 0, order=(p.steps[0].order[0], *p.steps[0].order[:-1]))


def many_cores(p: Plan) -> None:
    change(p, 0, cores=9)


def missing_step(p: Plan) -> None:
    p.steps.pop()


def swapped_steps(p: Plan) -> None:
    p.steps[0], p.steps[1] = p.steps[1], p.steps[0]


def no_home(p: Plan) -> None:
    p.program.storages[0].home = None


def home_of_another_arena(p: Plan) -> None:
    next(s for s in p.program.storages if s.name == "x").home = Level.L2


def not_placed(p: Plan) -> None:
    arena(p, Level.L3, placements=p.arenas[Level.L3].placements[1:])


def placed_twice(p: Plan) -> None:
    arena(p, Level.L3, placements=(*p.arenas[Level.L3].placements, p.arenas[Level.L3].placements[0]))


def dies_early(p: Plan) -> None:
    placements(p, Level.L3, lambda q: dataclasses.replace(q, last=q.first) if q.last - q.first >= 1 and q.storage.name == "x" else q)


def born_late(p: Plan) -> None:
    placements(p, Level.L3, lambda q: dataclasses.replace(q, first=1) if q.storage.name == "x" else q)


def output_dies(p: Plan) -> None:
    index = len(p.steps) - 1
    placements(p, Level.L3, lambda q: dataclasses.replace(q, last=index - 1, first=index - 1) if q.storage.name == "out" else q)


def all_at_zero(p: Plan) -> None:
    placements(p, Level.L3, lambda q: dataclasses.replace(q, offset=0))


def odd_storage(p: Plan) -> None:
    arena(p, Level.L3, size=p.arenas[Level.L3].size + 8)
    placements(p, Level.L3, lambda q: dataclasses.replace(q, offset=q.offset + 2))


def outside_l3(p: Plan) -> None:
    arena(p, Level.L3, size=p.arenas[Level.L3].size - 4)


def negative(p: Plan) -> None:
    placements(p, Level.L3, lambda q: dataclasses.replace(q, offset=q.offset - 4))


def almost_in_place(p: Plan) -> None:
    """The output of a step that works in place, shifted by one word."""
    arena(p, Level.L3, size=p.arenas[Level.L3].size + 8)
    placements(p, Level.L3, lambda q: dataclasses.replace(q, offset=q.offset + 4) if q.storage.name == "z0" else q)


def not_allowed_in_place(p: Plan) -> None:
    step = next(s.step for s in p.steps if s.step.name == "relu0")
    step.in_place = ()


def read_again_after_in_place(p: Plan) -> None:
    placements(p, Level.L3, lambda q: dataclasses.replace(q, last=q.last + 1) if q.storage.name == "y0" else q)


def larger_than_level(p: Plan) -> None:
    arena(p, Level.L2, size=12_001)


def wrong_use(p: Plan) -> None:
    p.use[2] = dataclasses.replace(p.use[2], constants=0)


FAULTS: list[Callable[[Plan], None]] = [
    larger_inner, larger_outer, inner_above_outer, tile_of_nothing, small_buffer, small_far_buffer, no_room_for_rounded_reads, overlap_l1,
    overlap_l2_tiles,
    same_copy_twice, no_buffer, no_far_buffer, outside_l1, odd_l1, no_accumulator, small_accumulator, reduced_outside, twice_in_order,
    many_cores, missing_step, swapped_steps, no_home, home_of_another_arena, not_placed, placed_twice, dies_early, born_late, output_dies,
    all_at_zero, odd_storage, outside_l3, negative, almost_in_place, not_allowed_in_place, read_again_after_in_place, larger_than_level,
    wrong_use,
]  # fmt: skip


def test_a_sound_plan_passes():
    for home in ("L2", "L3", "auto"):
        check(*sound(home))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_the_checker_catches(fault):
    p, platform = sound()
    fault(p)
    with pytest.raises(DefectError):
        check(p, platform)


def test_the_checker_catches_illegal_cuts():
    # a row of a softmax, a reduction without accumulators, and an inner loop that moves within an outer part of a reduction
    x, y = ps.variable("x", (8, 64), role=Role.INPUT), ps.variable("y", (8, 64), role=Role.OUTPUT)
    p = plan(ps.program([ps.softmax(x, y)]), PLATFORM)
    change(p, 0, inner=(p.steps[0].inner[0], 32))
    with pytest.raises(DefectError, match="may not be"):
        check(p, PLATFORM)
    for split in (False, True):
        tensors = [ps.variable(n, (16, 16), role=r) for n, r in (("a", Role.INPUT), ("b", Role.INPUT), ("c", Role.OUTPUT))]
        p = plan(ps.program([ps.matmul(*tensors, split=split)]), PLATFORM, PlanOptions(home="L3"))
        if split:
            change(p, 0, outer=(16, 16, 8), inner=(8, 16, 8))
        else:
            change(p, 0, outer=(16, 16, 16), inner=(16, 16, 8))
        with pytest.raises(DefectError, match="moves within|may not be"):
            check(p, PLATFORM)


def test_the_checker_catches_uncovered_outputs(tiny_l1):
    # one row is never written; every row is written twice
    for size, terms in ((9, ((0, 1),)), (8, ((0, 1), (1, 1)))):
        x, y = ps.variable("x", (8, 8), role=Role.INPUT), ps.variable("y", (size, 8), role=Role.OUTPUT)
        step = ps.elementwise([x], ps.variable("o", (8, 8)), in_place=False)
        dims = (ps.DimMap(size, 8, terms), ps.DimMap(8, 1, ((1, 1),)))
        step.operands = (step.operands[0], ps.Operand(y, ps.WRITE, dims))
        with pytest.raises(DefectError, match="cover|exactly once"):
            plan(ps.program([step]), PLATFORM, PlanOptions(l1=40))
