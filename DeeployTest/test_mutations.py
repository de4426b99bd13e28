"""The host runtime proves itself: faults put into generated projects, tile loops and kernels are caught, and without them all passes.

Every fault is a small edit of the C text behind a switch, `dp_mutant(number)`, that the environment sets: one build per check flavour
serves all faults of a project, and switch 0 is the project as it was generated. An edit whose place is no longer found fails.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from Deeploy.compiler import Compiled, Options, compile_model, emit_project
from Deeploy.emit import Call, Script
from Deeploy.errors import RunError
from Deeploy.frontend import load_inputs
from Deeploy.plan.result import Plan, StepPlan, TileBuffers
from Deeploy.platform.reader import targets_dir
from Deeploy.program.step import Access, AxisKind
from Deeploy.program.tensor import ConstantBuffer, Level, Role
from Deeploy.simulate.host import ALL_CHECKS, CheckMode, HostBuilder, run_program

MODEL = Path(__file__).parent / "networks" / "quant_cnn"
LAZY, EAGER, TSAN = ALL_CHECKS
ADDRESS = (LAZY, EAGER)
REPORTED = "HOSTRT|Sanitizer|runtime error"
"""What a report of the runtime or of a sanitizer says, and a mere bad exit status does not."""

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")

SWITCH = """
#include <stdlib.h>
int dp_mutant(int number);
int dp_mutant_step; /* the step that runs */
static int chosen;
__attribute__((constructor)) static void choose(void) {
  const char *text = getenv("DP_MUTANT");
  chosen = text ? atoi(text) : 0;
}
int dp_mutant(int number) { return number == chosen; }
"""
DECLARATION = "int dp_mutant(int number);\nextern int dp_mutant_step;\n"
WAITS, CONSTANTS = 10000, 20000
"""Where the numbers of waits and of operands begin."""


# ---- projects -----------------------------------------------------------------------------------------------------------------------


class Text:
    """C text under edits. Patterns are regular expressions that must match exactly once in the function."""

    def __init__(self, text: str) -> None:
        self.text = DECLARATION + text

    def edit(self, function: str, pattern: str, new: str | Callable[[re.Match[str]], str]) -> re.Match[str]:
        """Puts `new` (a template if it is a string) for the one match."""
        begin, end = self._span(function)
        found = list(re.finditer(pattern, self.text[begin:end], re.DOTALL))
        assert len(found) == 1, f"{len(found)} places in {function} are like: {pattern}"
        put = found[0].expand(new) if isinstance(new, str) else new(found[0])
        self.text = self.text[: begin + found[0].start()] + put + self.text[begin + found[0].end() :]
        return found[0]

    def _span(self, function: str) -> tuple[int, int]:
        found = list(re.finditer(rf"^[\w ]+ \**{function}\([^;]*?\) \{{\n.*?^\}}\n", self.text, re.DOTALL | re.MULTILINE))
        assert len(found) == 1, f"{len(found)} functions are called {function}"
        return found[0].span()


@dataclass(frozen=True)
class Wait:
    """A wait of one operand in one loop of one step. stores: whether it is for stores. equivalent: nothing is ever in flight there."""

    number: int
    text: str
    stores: bool
    equivalent: bool


@dataclass
class Project:
    """A generated project with all its faults built in: the texts that are built instead of its own and of the library's."""

    name: str
    compiled: Compiled
    folder: Path
    texts: dict[str, Text]
    faults: dict[str, int] = field(default_factory=dict)
    waits: list[Wait] = field(default_factory=list)
    programs: dict[CheckMode, Path] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def steps(self) -> list[StepPlan]:
        return self.compiled.plans[0].steps

    @property
    def loops(self) -> Text:
        return self.texts["dp_step.c"]

    def fault(self, name: str) -> int:
        assert name not in self.faults
        self.faults[name] = next(self.numbers)
        return self.faults[name]

    def build(self, builder: HostBuilder) -> list[tuple[CheckMode, Callable[[], Path]]]:
        """The two builds, to be called in any order; lazy and eager are one."""
        for name, text in self.texts.items():  # linked instead of the library's members with the same symbols
            (self.folder / name).write_text(text.text)
        (self.folder / "switch.c").write_text(SWITCH)
        sources = sorted(self.folder.glob("*.c"))

        def job(check: CheckMode) -> Callable[[], Path]:
            return lambda: builder.build(sources, check, self.folder / f"program_{check.value}", include=(self.folder,))

        return [(check, job(check)) for check in (LAZY, TSAN)]

    def run(self, check: CheckMode, mutant: int, seed: int = 1) -> np.ndarray:
        """The output; raises RunError if the run reports something or fails."""
        work = self.folder / f"work_{check.value}_{mutant}_{seed}"
        work.mkdir(exist_ok=True)
        program = self.programs[TSAN if check is TSAN else LAZY]
        environment = {"DP_MUTANT": str(mutant)}
        run_program(program, check, folder=work, files=self.folder / "hex", seed=seed, timeout=120, environment=environment)
        return np.fromfile(work / "output_0.bin", np.int8)

    def caught(self, check: CheckMode, mutant: int) -> str:
        """What the runtime or a sanitizer reports; "" if nothing."""
        try:
            self.run(check, mutant)
        except RunError as error:
            assert re.search(REPORTED, str(error)), error
            return str(error)
        return ""


@dataclass(frozen=True)
class Hop:
    """One of the two loops of a step. level: the one that its tiles come from, l2 or l3."""

    index: int
    plan: StepPlan
    level: str

    @property
    def buffers(self) -> tuple[TileBuffers | None, ...]:
        return self.plan.l1 if self.level == "l2" else self.plan.l2

    def tiles(self, operand: int) -> int:
        """How many tiles of the operand one run of the loop goes through."""
        tiles = 1
        for a in {a for d in self.plan.step.operands[operand].dims for a, _ in d.terms}:
            size = self.plan.step.axes[a].size
            whole, tile = (min(self.plan.outer[a], size), self.plan.inner[a]) if self.level == "l2" else (size, self.plan.outer[a])
            tiles *= -(-whole // tile)
        return tiles

    def bytes(self, operand: int) -> int:
        """Of the largest tile of the operand, if no edge cuts it."""
        tile = self.plan.inner if self.level == "l2" else self.plan.outer
        chosen = self.plan.step.operands[operand]
        size = chosen.tensor.dtype.size
        for d in chosen.dims:
            size *= min(d.size, d.window + sum(abs(c) * (tile[a] - 1) for a, c in d.terms)) if d.stride else 1
        return size

    def busy(self, access: Access) -> list[int]:
        """Operands with two tile buffers that are both used again."""
        operands = enumerate(self.plan.step.operands)
        chosen = [i for i, o in operands if o.access is access]
        return [i for i in chosen if (b := self.buffers[i]) is not None and b.copies == 2 and self.tiles(i) > 2]


def generate(name: str, folder: Path, home: str, replan: Callable[[Plan], None] | None = None) -> Project:
    """Planned with single buffers in little L1; `replan` then changes the plan, so that the faults' places do not depend on the planner."""
    compiled = compile_model(MODEL, Options("gap9", l1=900, home=home, buffering="single"))
    if replan is not None:
        replan(compiled.plans[0])
    emit_project(compiled, folder, Script((Call(0, load_inputs(MODEL, compiled.model)),)), observe=False)
    texts = {"Network.c": folder / "Network.c", "dp_step.c": targets_dir() / "runtime" / "common" / "dp_step.c"}
    project = Project(name, compiled, folder, {name: Text(path.read_text()) for name, path in texts.items()})
    for i in range(len(project.steps)):
        project.texts["Network.c"].edit("RunNetwork", rf"dp_step_run\(&k{i}, ", rf"dp_mutant_step = {i};\n  \g<0>")
    return project


def double_l1(plan: Plan) -> None:
    """Two L1 tile buffers for every operand that moves."""
    end = 0
    for i, step in enumerate(plan.steps):
        buffers, at = doubled(Hop(i, step, "l2"), 0)
        blocks = []
        for block in (step.accumulator, step.scratch):
            blocks.append(block and replace(block, offset=at))
            at += (block.bytes + 7) // 8 * 8 if block else 0
        plan.steps[i] = replace(step, l1=buffers, accumulator=blocks[0], scratch=blocks[1])
        end = max(end, at)
    plan.arenas[Level.L1] = replace(plan.arenas[Level.L1], size=end)


def cut_both(plan: Plan) -> None:
    """What were the tiles of the inner loop are those of the outer loop, double-buffered; the inner loop cuts them again."""
    arena = plan.arenas[Level.L2]
    end = arena.size
    for i, step in enumerate(plan.steps):
        axes = step.step.axes
        inner = list(step.inner)
        cuttable = [a for a, axis in enumerate(axes) if axis.kind is AxisKind.PARALLEL and inner[a] > 1]
        split = any(axis.kind is AxisKind.REDUCED and inner[a] < axis.size for a, axis in enumerate(axes))
        if cuttable and not split:  # accumulators are for one tile
            inner[cuttable[-1]] = (inner[cuttable[-1]] + 1) // 2
        step = replace(step, outer=step.inner, inner=tuple(inner))
        buffers, at = doubled(Hop(i, step, "l3"), (arena.size + 7) // 8 * 8)
        plan.steps[i] = replace(step, l2=buffers)
        end = max(end, at)
    plan.arenas[Level.L2] = replace(arena, size=end)


def doubled(hop: Hop, at: int) -> tuple[tuple[TileBuffers | None, ...], int]:
    """The tile buffers side by side from offset `at` on, twice for operands that move; and where they end."""
    placed: list[TileBuffers | None] = []
    for operand, buffers in enumerate(hop.buffers):
        if buffers is None:
            placed.append(None)
            continue
        loaded = hop.level == "l3" and hop.plan.step.operands[operand].access is not Access.WRITE
        size = (hop.bytes(operand) + (3 if loaded else 0) + 3) // 4 * 4  # a load from L3 overwrites up to 3 bytes past its end
        step = (size + 7) // 8 * 8
        copies = 2 if hop.tiles(operand) > 1 else 1
        placed.append(TileBuffers(size, tuple(at + c * step for c in range(copies))))
        at += copies * step
    return tuple(placed), at


def busy_hop(project: Project, level: str) -> Hop:
    """The first convolution in whose loop everything happens that a fault needs."""
    hops = [Hop(i, p, level) for i, p in enumerate(project.steps) if p.step.operator == "RequantizedConv"]
    return next(h for h in hops if h.busy(Access.READ) and h.busy(Access.WRITE))


# ---- faults of the loops ---------------------------------------------------------------------------------------------------------------


def add_transfer_faults(project: Project, level: str) -> None:
    """The four faults of a tile loop, in the loop of the level."""
    text = project.loops
    loop, compute, hop = ("inner_loop", r"call_kernels\(", "DP_NEAR") if level == "l2" else ("outer_loop", r"inner_loop\(", "DP_FAR")
    n = project.fault("prefetch into a live buffer")
    text.edit("prefetch", r"slot->now \^ 1u;", rf"slot->now ^ !dp_mutant({n});")
    call = text.edit(loop, r"if \(more\) (prefetch\([^;]*;)", rf"if (more && !dp_mutant({n})) \1")[1]
    text.edit(loop, rf"settle\(step, state, {hop}\);", rf"\g<0>\n    if (more && dp_mutant({n})) {call}")

    n = project.fault("store before the barrier")
    call = text.edit(loop, rf"store\(step, state, {hop}, &box\);", rf"if (!dp_mutant({n})) \g<0>")[0]
    text.edit(loop, compute, rf"if (dp_mutant({n})) {call}\n    \g<0>")

    missing, reused = project.fault("missing wait"), project.fault("source reused before wait")
    skipped = f"(hop == {hop} && ((dp_mutant({missing}) && o->loads) || (dp_mutant({reused}) && o->stores)))"
    text.edit("settle", r"if \((buffers_of\(&step->operand\[i\], hop\)->copies)\) wait_for", rf"if (\1 && !{skipped}) wait_for")
    text.edit("settle", r"    dp_slot \*slot =", r"    const dp_step_operand *o = &step->operand[i];\n\g<0>")


def add_access_faults(project: Project) -> None:
    """Off by one and misaligned: a step works on more than its tile; kernels get tables of words at odd addresses."""
    add = next(i for i, p in enumerate(project.steps) if p.step.operator == "RequantizedAdd")
    n = project.fault("off-by-one in L1")
    project.loops.edit(
        "call_kernels", r"args->n\[k\] = box->n\[call->axis\[k\]\]", rf"\g<0> + (dp_mutant({n}) && dp_mutant_step == {add} && k == 0)"
    )
    n = project.fault("misaligned access")
    tile = r"(&slot->region\[slot->now\], )(slot->buffer\[slot->now\])\);"
    project.loops.edit("call_kernels", tile, rf"\1(uint8_t *)\2 + (dp_mutant({n}) && o->op->elem == 4));")


def add_buffer_faults(project: Project, level: str) -> None:
    """Buffers at wrong places of their arena, and an arena that is too large."""
    hop = busy_hop(project, level)
    places = {o: (i, c) for i, b in enumerate(hop.buffers) if b is not None for c, o in enumerate(b.offsets)}
    ends = {o + b.bytes for b in hop.buffers if b is not None for o in b.offsets}
    operand, copy = next(place for offset, place in sorted(places.items()) if any(offset - 4 < end <= offset for end in ends))
    written = hop.busy(Access.WRITE)[0]
    near, side = ("l1", "near") if level == "l2" else ("l2", "far")
    inside = Level.L1 if near == "l1" else Level.L2
    arena, limit = project.compiled.plans[0].arenas[inside].size, project.compiled.platform.levels[inside].usable
    overlap, outside, odd, small = (project.fault(name) for name in ("overlap", "outside", "odd offset", "too small"))
    here = f"(uint32_t)(dp_mutant_step == {hop.index} && i == {operand} && copy == {copy})"
    there = f"(uint32_t)(dp_mutant_step == {hop.index} && i == {written} && dp_mutant({small}))"
    project.loops.edit(
        "open_buffers",
        rf"(dp_open_{near}\(state->{near}, o->{side}\.offset\[copy\])(, o->{side}\.bytes)\)",
        rf"\1 + {here} * (2u * (uint32_t)dp_mutant({odd}) - 4u * (uint32_t)dp_mutant({overlap}))\2 + "
        rf"{here} * {arena}u * (uint32_t)dp_mutant({outside}) - {there})",
    )
    n = project.fault("level exceeded")
    function = "Deeploy_Run" if near == "l1" else "init_network"
    more = rf"\1 + {limit}u * (uint32_t)dp_mutant({n}))"
    project.texts["Network.c"].edit(function, rf"(dp_arena_{near}\({arena}u)\)", more)


def add_constant_faults(project: Project) -> None:
    """Tile loads from just behind and just before arrays of constants."""
    number = f"({CONSTANTS} + (dp_mutant_step * 8 + (int)i) * 2)"
    shift = f"(uintptr_t)o->op->elem * (uintptr_t)(dp_mutant({number}) - dp_mutant({number} + 1))"
    project.loops.edit("open_buffers", r"(dp_source_storage\(source, o->op, [^;]*)\);", rf"\1 + {shift});")
    for index, plan in enumerate(project.steps):
        for i, operand in enumerate(plan.step.operands):
            tensor = operand.tensor
            if tensor.storage.role is Role.CONSTANT and isinstance(tensor, ConstantBuffer) and tensor.literal is None:
                assert tensor.storage.home is Level.L2 and tensor.bytes == tensor.storage.size
                project.faults[f"behind {tensor.name}"] = CONSTANTS + (index * 8 + i) * 2
                project.faults[f"before {tensor.name}"] = CONSTANTS + (index * 8 + i) * 2 + 1


# ---- waits -----------------------------------------------------------------------------------------------------------------------------


def add_wait_faults(project: Project) -> None:
    """Every wait of every operand in every loop, one at a time. (No operand of the network is updated in place.)"""
    number = f"({WAITS} + ((dp_mutant_step * 2 + (int)hop) * 8 + (int)i) * 4)"
    places = {"settle": 0, "drain": 1, "prefetch": 3, "advance": 3}
    text = project.loops
    assert len(re.findall(r"\bwait_for\(", text.text)) == len(places) + 1, "there are waits that this test does not know"
    for function, at in places.items():
        shift = " + (int)copy" if function == "drain" else ""
        text.edit(function, r"wait_for\(([^;]*);", rf"{{\n      if (!dp_mutant({number} + {at}{shift})) wait_for(\1;\n    }}")
    for index, plan in enumerate(project.steps):
        outer = any(b is not None for b in plan.l2)
        for hop in [Hop(index, plan, "l2")] + [Hop(index, plan, "l3")] * outer:
            for i, buffers in enumerate(hop.buffers):
                if buffers is None:
                    continue
                first = WAITS + ((index * 2 + (hop.level == "l3")) * 8 + i) * 4
                written = plan.step.operands[i].access is Access.WRITE
                for copy in [None, *range(buffers.copies)] if written else [None]:
                    what = "settle" if copy is None else f"drain of copy {copy}"
                    where = f"step {index}, {hop.level}, operand {i}, {what}"
                    place = 0 if copy is None else copy + 1
                    project.waits.append(Wait(first + place, where, written, never_in_flight(hop, i, copy)))


def never_in_flight(hop: Hop, operand: int, copy: int | None) -> bool:
    """Whether the structure of the loops shows that a wait finds nothing in flight. copy: that is waited for at the end, None: the wait
    before a tile is worked on.

    Only of written operands: the tiles of one run of the loop take the copies in turn, and the run ends with a wait for every copy. So the
    wait before a tile is written has something to wait for from the second turn of the copies on, and the wait for a copy at the end if the
    copy had a turn. Loads are always issued before the wait for their first tile.
    """
    buffers = hop.buffers[operand]
    assert buffers is not None
    if hop.plan.step.operands[operand].access is not Access.WRITE:
        return False
    tiles = hop.tiles(operand)
    return tiles <= buffers.copies if copy is None else tiles <= copy


# ---- faults of kernels ------------------------------------------------------------------------------------------------------------------


def add_kernel_faults(project: Project) -> None:
    """In the convolutions' walk over the points of a core. No kernel needs a barrier, so a right one is added to skip."""
    overlap, everything, counter, barrier, skipped, overflow = (
        project.fault(name)
        for name in (
            "overlapping core ranges",
            "every core does everything",
            "unsynchronised counter",
            "right barrier",
            "one core skips a barrier",
            "signed overflow",
        )
    )
    kernels = targets_dir() / "kernels"
    # rows of bytes: more accesses to eight bytes than ThreadSanitizer keeps
    bytewise = project.fault("every core does all bytes")
    project.texts |= {name: Text((kernels / name).read_text()) for name in ("conv.c", "requant.c", "dp_rows.h")}
    shared = rf"\g<0>\n  if (dp_mutant({bytewise})) begin = 0, end = total;"
    project.texts["dp_rows.h"].edit("dp_rows_first", r"dp_share\(team, total, &begin, &end\);", shared)
    kernel = project.texts["conv.c"]
    extra = f"""
  static volatile int32_t counter;
  if (dp_mutant({overlap}) && at > 0) at--;
  if (dp_mutant({everything})) at = 0, end = n[0] * n[1] * n[2] * n[3] * n[4];
  if (dp_mutant({counter})) counter = counter + 1;
  if (dp_mutant({barrier}) || (dp_mutant({skipped}) && dp_team_rank(team) != 1)) dp_team_barrier(team);"""
    kernel.edit("conv_points", r"dp_share\([^;]*, &at, &end\);", lambda m: m[0] + extra)
    kernel.edit("conv_finish_i32", r"  conv_store\(", lambda m: f"  if (dp_mutant({overflow})) sum = sum * 65536 * 32767;\n{m[0]}")


# ---- building ---------------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Project]:
    """near: everything at home in L2, double buffering, several tiles per step. far: at home in L3, several tiles in both loops.
    single: at home in L3, single buffering."""
    folder = tmp_path_factory.mktemp("mutations")
    near = generate("near", folder / "near", "L2", double_l1)
    far = generate("far", folder / "far", "L3", cut_both)
    single = generate("single", folder / "single", "L3")
    for project, level in ((near, "l2"), (far, "l3")):
        add_transfer_faults(project, level)
        add_buffer_faults(project, level)
    add_access_faults(near)
    add_constant_faults(near)
    add_kernel_faults(near)
    everything = (near, far, single)
    for project in everything:
        add_wait_faults(project)
    builder = HostBuilder()
    for check in (LAZY, TSAN):
        builder.library(check)
    with ThreadPoolExecutor(max_workers=2) as pool:
        jobs = [(project, check, pool.submit(build)) for project in everything for check, build in project.build(builder)]
    for project, check, job in jobs:
        project.programs[check] = job.result()
    return {project.name: project for project in everything}


@pytest.fixture(scope="module")
def golden() -> np.ndarray:
    with np.load(MODEL / "outputs.npz") as stored:
        (name,) = stored.files
        return stored[name].reshape(-1)


def both(jobs: list[Callable[[], object]]) -> list[object]:
    """Runs jobs, two at a time."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        return [job.result() for job in [pool.submit(job) for job in jobs]]


# ---- tests ------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", ALL_CHECKS)
@pytest.mark.parametrize("name", ["near", "far", "single"])
def test_without_a_fault_all_checks_pass(projects: dict[str, Project], golden: np.ndarray, name: str, check: CheckMode) -> None:
    for seed in (1, 5):
        assert np.array_equal(projects[name].run(check, 0, seed), golden)


def test_a_right_barrier_passes(projects: dict[str, Project], golden: np.ndarray) -> None:
    near = projects["near"]
    for check in ALL_CHECKS:
        assert np.array_equal(near.run(check, near.faults["right barrier"]), golden)


FAULTS = (
    ("near", "missing wait", ALL_CHECKS),
    ("far", "missing wait", ALL_CHECKS),
    ("near", "source reused before wait", (LAZY, TSAN)),
    ("far", "source reused before wait", ALL_CHECKS),
    ("near", "prefetch into a live buffer", ALL_CHECKS),
    ("far", "prefetch into a live buffer", ALL_CHECKS),
    ("near", "store before the barrier", (LAZY, TSAN)),
    ("far", "store before the barrier", ALL_CHECKS),
    ("near", "off-by-one in L1", ADDRESS),
    ("near", "overlapping core ranges", (TSAN,)),
    ("near", "every core does everything", (TSAN,)),
    ("near", "every core does all bytes", (TSAN,)),
    ("near", "unsynchronised counter", (TSAN,)),
    ("near", "signed overflow", ADDRESS),
    ("near", "misaligned access", ADDRESS),
    ("near", "one core skips a barrier", ALL_CHECKS),
)
"""Project, fault, and the checks that must report it."""


@pytest.mark.parametrize(("name", "fault", "checks"), FAULTS, ids=[f"{p}-{f.replace(' ', '_')}" for p, f, _ in FAULTS])
def test_classic_fault_is_caught(projects: dict[str, Project], name: str, fault: str, checks: tuple[CheckMode, ...]) -> None:
    project = projects[name]
    missed = [check.value for check in checks if not project.caught(check, project.faults[fault])]
    assert not missed


@pytest.mark.parametrize("name", ["near", "far"])
def test_buffers_are_checked_against_arenas(projects: dict[str, Project], name: str) -> None:
    project = projects[name]
    for check in ALL_CHECKS:
        for fault, words in (
            ("overlap", "overlaps the open buffer"),
            ("outside", "leaves its arena"),
            ("odd offset", "not aligned"),
            ("too small", "do not lie in one open buffer|use-after-poison"),
        ):
            assert re.search(words, project.caught(check, project.faults[fault])), (check, fault)
        with pytest.raises(RunError, match="ended with status 1"):
            project.run(check, project.faults["level exceeded"])


@pytest.mark.parametrize("check", ADDRESS)
def test_loads_do_not_leave_arrays_of_constants(projects: dict[str, Project], check: CheckMode) -> None:
    near = projects["near"]
    faults = {name: number for name, number in near.faults.items() if name.startswith(("behind ", "before "))}
    assert len(faults) > 10
    reports = both([partial(near.caught, check, number) for number in faults.values()])
    missed = [name for name, report in zip(faults, reports, strict=True) if "leaves its array in L2" not in str(report)]
    assert not missed


@pytest.mark.parametrize("name", ["near", "far", "single"])
def test_every_wait_is_needed(projects: dict[str, Project], golden: np.ndarray, name: str) -> None:
    """Without it lazy or tsan reports, and both if it is for stores; or nothing is ever in flight there, and then nothing changes."""
    project = projects[name]

    def survives(wait: Wait) -> bool:
        if wait.equivalent:
            return not all(np.array_equal(project.run(check, wait.number), golden) for check in (LAZY, TSAN))
        if not wait.stores:
            return not (project.caught(LAZY, wait.number) or project.caught(TSAN, wait.number))
        return not (project.caught(LAZY, wait.number) and project.caught(TSAN, wait.number))

    survived = both([partial(survives, wait) for wait in project.waits])
    assert [wait for wait, found in zip(project.waits, survived, strict=True) if found] == []
    needed = sum(not w.equivalent for w in project.waits)
    assert needed > len(project.waits) // 2
