"""The host runtime: correct programs pass in every check mode, classic faults and every misuse are caught; tile geometry against numpy.

The programs are hand-written C (DeeployTest/c), the models of dp_tile.c are written here from the definitions in Deeploy/program/step.py.
"""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Deeploy.errors import DefectError, RunError, ToolMissingError, UsageError
from Deeploy.platform.reader import targets_dir
from Deeploy.simulate.host import ALL_CHECKS, CheckMode, HostBuilder, checks_named, essential_lines, run_program

C_FILES = Path(__file__).parent / "c"

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")

# every fault, and the check modes that must catch it
ADDRESS = (CheckMode.LAZY, CheckMode.EAGER)
FAULTS = (
    ("missing wait", ALL_CHECKS),
    ("source reused before wait", (CheckMode.LAZY, CheckMode.TSAN)),
    ("prefetch into a live buffer", ALL_CHECKS),
    ("store before the barrier", (CheckMode.LAZY, CheckMode.TSAN)),
    ("off-by-one in L1", ADDRESS),
    ("overlapping core ranges", (CheckMode.TSAN,)),
    ("unsynchronised counter", (CheckMode.TSAN,)),
    ("signed overflow", ADDRESS),
    ("misaligned access", ADDRESS),
    ("one core skips a barrier", ADDRESS),
)


@pytest.fixture(scope="module")
def runtime_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder Targets without kernels: the programs here bring their own."""
    folder = tmp_path_factory.mktemp("targets")
    (folder / "kernels").mkdir()
    (folder / "runtime").symlink_to(targets_dir() / "runtime")
    return folder


@pytest.fixture(scope="module")
def builder(runtime_only: Path) -> HostBuilder:
    return HostBuilder(targets=runtime_only)


# ---- programs -----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tile_programs(builder: HostBuilder, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, CheckMode], Path]:
    """host_tiles.c correct for every mode and with every fault for the modes that must catch it; lazy and eager are one build."""
    folder = tmp_path_factory.mktemp("tiles")
    jobs = [(0, check) for check in (CheckMode.NONE, CheckMode.LAZY, CheckMode.TSAN)]
    jobs += [(fault, check) for fault, (_, checks) in enumerate(FAULTS, 1) for check in checks if check is not CheckMode.EAGER]

    def build(job: tuple[int, CheckMode]) -> Path:
        fault, check = job
        return builder.build([C_FILES / "host_tiles.c"], check, folder / f"{fault}_{check.value}", flags=[f"-DFAULT={fault}"])

    for check in {check for _, check in jobs}:
        builder.library(check)
    with ThreadPoolExecutor(max_workers=2) as pool:
        built = dict(zip(jobs, pool.map(build, jobs), strict=True))
    return built | {(fault, CheckMode.EAGER): program for (fault, check), program in built.items() if check is CheckMode.LAZY}


@pytest.mark.parametrize("check", list(CheckMode))
def test_correct_program_passes(tile_programs: dict[tuple[int, CheckMode], Path], check: CheckMode) -> None:
    for seed in (1, 2, 77):
        run = run_program(tile_programs[0, check], check, seed=seed, timeout=60)
        assert run.stdout.startswith("PASS")
        assert run.report is not None
        # two rounds: x once from L3; per row tile the columns are cut 21 + 21 + 11, w comes again for every row tile
        outer = (16, 16, 5)
        row_tiles = sum(-(-rows // 5) for rows in outer)
        assert run.report["traffic"] == {
            "l3_to_l2": 2 * 37 * 53,
            "l2_to_l3": 0,
            "l2_to_l1": 2 * (37 * 53 + row_tiles * 53 + 37 * 53 * 4),
            "l1_to_l2": 2 * (37 * 53 * 4 + 37 * 4),
        }
        assert run.report["forks"] == 2 * (row_tiles * 3 + 4 * 3)
        assert run.report["steps"] == 4
        assert run.report["peaks"] == {"l1": 12000, "l2": 2 * 848 + 37 * 53 * 4 + 37 * 4, "l3": 37 * 53}


@pytest.mark.parametrize("fault", range(1, len(FAULTS) + 1), ids=[name.replace(" ", "_") for name, _ in FAULTS])
def test_classic_fault_is_caught(tile_programs: dict[tuple[int, CheckMode], Path], fault: int) -> None:
    """Caught by a check, not merely by wrong values (status 1)."""
    for check in FAULTS[fault - 1][1]:
        with pytest.raises(RunError, match="HOSTRT|Sanitizer|runtime error"):
            run_program(tile_programs[fault, check], check, timeout=60, accept=(0, 1))


def test_clang_builds_and_agrees(tmp_path: Path, runtime_only: Path) -> None:
    compiler = next((name for name in ("clang-19", "clang") if shutil.which(name)), None)
    if compiler is None:
        pytest.skip("clang is not installed")
    clang = HostBuilder(compiler, targets=runtime_only)
    for check in (CheckMode.NONE, CheckMode.LAZY, CheckMode.TSAN):
        program = clang.build([C_FILES / "host_tiles.c"], check, tmp_path / check.value)
        assert run_program(program, check, timeout=60).stdout.startswith("PASS")


def test_cache_is_shared_and_follows_content(tmp_path: Path) -> None:
    targets = tmp_path / "targets"
    for name in ("kernels/k.c", "runtime/host/h.c", "runtime/common/c.c"):
        (targets / name).parent.mkdir(parents=True)
        (targets / name).write_text(f"int dp_{Path(name).stem}(void);\nint dp_{Path(name).stem}(void) {{ return 1; }}\n")
    cache = tmp_path / "cache"

    def library(check: CheckMode) -> Path:
        return HostBuilder(cache=cache, targets=targets).library(check)

    with ThreadPoolExecutor(max_workers=2) as pool:
        first, second = pool.map(library, [CheckMode.NONE] * 2)
    assert first == second and first.is_file()
    made = first.stat().st_ino
    assert library(CheckMode.EAGER) == library(CheckMode.LAZY) != first
    assert library(CheckMode.NONE).stat().st_ino == made
    (targets / "kernels" / "k.h").write_text("/* a header */\n")
    changed = library(CheckMode.NONE)
    assert changed != first
    (targets / "kernels" / "k.c").write_text("int dp_other(void);\nint dp_other(void) { return 1; }\n")
    assert library(CheckMode.NONE) not in (first, changed)
    assert all(entry.suffix in (".a", ".o") for entry in cache.iterdir())


# ---- misuse -------------------------------------------------------------------------------------------------------------------------

MISUSE = {
    "outside_arena": "leaves its arena",
    "unaligned_offset": "not aligned to 4",
    "no_arena": "is no arena",
    "overlap": "overlaps the open buffer",
    "close_unknown": "no buffer is open there",
    "close_length": "closed with 60 bytes",
    "free_open": "open",
    "near_outside": "do not lie in one open buffer of L1",
    "far_outside": "do not lie in one open buffer of L2",
    "wrong_level": "do not lie in one open buffer of L1",
    "close_in_flight": "in flight",
    "too_long": "the most is 131071",
    "no_rows": "0 rows",
    "rounding": "rounded up and leaves its buffer",
    "rounded_rows": "rounded up and leaves its buffer of 4 bytes",
    "rounded_array": "rounded up and goes to no buffer",
    "engine_alignment": "not aligned to 4",
    "engine_stride": "stride 10, ",
    "engine_bytes": "the most is 64",
    "engine_none": "no such engine",
    "l3_outside": "do not lie in one open buffer of L3",
    "two_engines": "other engine",
    "damaged": "damaged or out of date",
    "never_waited": "never waited for",
    "leak": "never freed",
    "free_length": "closed with 100 bytes",
    "free_twice": "free of 1 bytes",
    "fork_in_kernel": "dp_fork inside a kernel",
    "dma_in_kernel": "a kernel programs a transfer",
    "wrong_team": "not in the team",
    "too_many_cores": "fork on 9 cores",
    "scratch": "not aligned to 8",
    "diverged": "barrier divergence",
    "configured_twice": "before anything else",
    "file_too_long": "does not fit",
    "abort": "SIGABRT",
    "status": "status 3",
}
ONLY_CHECKED = {
    "same_bytes": "two commands of one handle",
    "descending": "overwrites 3 bytes past its end, of which an earlier command of its handle wrote some",
    "past_end_written": "writes past its end what another transfer in flight writes",
    "past_end_read": "writes past its end what another transfer in flight reads",
    "reads_past_end": "reads what another transfer in flight writes",
    "reads_spoilt": "reads a byte that a read has overwritten past its end",
}
ONLY_ADDRESS = {"leaves_array": "leaves its array"}


@pytest.fixture(scope="module")
def misuse_programs(builder: HostBuilder, tmp_path_factory: pytest.TempPathFactory) -> dict[CheckMode, Path]:
    folder = tmp_path_factory.mktemp("misuse")
    modes = (CheckMode.NONE, CheckMode.LAZY, CheckMode.TSAN)
    built = {check: builder.build([C_FILES / "host_misuse.c"], check, folder / check.value) for check in modes}
    return built | {CheckMode.EAGER: built[CheckMode.LAZY]}


@pytest.mark.parametrize("check", list(CheckMode))
def test_runtime_rules(misuse_programs: dict[CheckMode, Path], check: CheckMode) -> None:
    assert run_program(misuse_programs[check], check, timeout=60).stdout.startswith("PASS")


@pytest.mark.parametrize("check", [CheckMode.NONE, CheckMode.LAZY])
def test_every_misuse_is_named(misuse_programs: dict[CheckMode, Path], check: CheckMode) -> None:
    cases = dict(MISUSE)
    if check is not CheckMode.NONE:
        cases |= ONLY_CHECKED | ONLY_ADDRESS
    for case, message in cases.items():
        with pytest.raises(RunError) as caught:
            run_program(misuse_programs[check], check, arguments=[case], timeout=60)
        assert message in str(caught.value), case
        assert caught.value.exit_code == 6


def test_lazy_order(misuse_programs: dict[CheckMode, Path]) -> None:
    """The commands of a handle in order, those of different handles in an order that the seed decides."""
    seen = set()
    for seed in range(1, 7):
        lines = run_program(misuse_programs[CheckMode.LAZY], CheckMode.LAZY, arguments=["order"], seed=seed, timeout=60).stdout
        waited, *others = lines.split()
        assert waited == "111" and all(o in ("000", "100", "110", "111") for o in others)
        seen.add(tuple(others))
    assert len(seen) > 1


def test_crash_and_timeout(misuse_programs: dict[CheckMode, Path]) -> None:
    with pytest.raises(RunError, match="SIGSEGV"):
        run_program(misuse_programs[CheckMode.NONE], CheckMode.NONE, arguments=["segv"], timeout=60)
    with pytest.raises(RunError, match="no end after 0.5 s"):
        run_program(misuse_programs[CheckMode.NONE], CheckMode.NONE, arguments=["endless"], timeout=0.5)


@pytest.mark.skipif(shutil.which("setarch") is None, reason="setarch is not installed")
def test_thread_sanitizer_that_cannot_start_is_tried_again(tmp_path: Path) -> None:
    """A stand-in that fails as ThreadSanitizer does, the first time; the second start must be without address randomisation."""
    program = tmp_path / "program"
    lines = ['if [ -e started ]; then echo "second $(cat /proc/$$/personality)"; exit 0; fi', "touch started"]
    lines.append('echo "FATAL: ThreadSanitizer: unexpected memory mapping 0x1-0x2" >&2; exit 66')
    program.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    program.chmod(0o755)
    run = run_program(program, CheckMode.TSAN, folder=tmp_path, timeout=60)
    word, personality = run.stdout.split()
    assert word == "second" and int(personality, 16) & 0x0040000


def test_check_names_and_missing_tools(tmp_path: Path, builder: HostBuilder) -> None:
    assert checks_named("all") == ALL_CHECKS
    assert checks_named("none") == (CheckMode.NONE,)
    with pytest.raises(UsageError, match="asan"):
        checks_named("asan")
    with pytest.raises(ToolMissingError, match="no-such-compiler"):
        HostBuilder("no-such-compiler")
    broken = tmp_path / "broken.c"
    broken.write_text("int main(void) { return undefined_name; }\n")
    with pytest.raises(DefectError, match="undefined_name"):
        builder.build([broken], CheckMode.NONE, tmp_path / "out")
    assert not list(tmp_path.glob("out*")) and not list(tmp_path.glob(".build-*"))


def test_essential_lines_hide_folders() -> None:
    text = "noise\n==12==ERROR: AddressSanitizer: use-after-poison\n    #0 0x1 in k /home/me/x/k.c:5\n    #9 0x1 in z /home/me/z.c:1\n"
    assert essential_lines(text) == "ERROR: AddressSanitizer: use-after-poison\n#0 0x1 in k k.c:5"


# ---- tile geometry ------------------------------------------------------------------------------------------------------------------

AXES, RANK = 10, 7


class CAxis(ctypes.Structure):
    _fields_ = [("size", ctypes.c_int32), ("outer", ctypes.c_int32), ("inner", ctypes.c_int32), ("reduced", ctypes.c_uint8)]


class CSpace(ctypes.Structure):
    _fields_ = [("axis", ctypes.POINTER(CAxis)), ("axes", ctypes.c_uint8), ("order", ctypes.c_uint8 * AXES)]


class CBox(ctypes.Structure):
    _fields_ = [("lo", ctypes.c_int32 * AXES), ("n", ctypes.c_int32 * AXES)]


class CDim(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("size", "stride", "offset", "window", "first_term", "terms")]


class CTerm(ctypes.Structure):
    _fields_ = [("axis", ctypes.c_uint8), ("coefficient", ctypes.c_int32)]


class COperand(ctypes.Structure):
    _fields_ = [
        ("dim", ctypes.POINTER(CDim)),
        ("term", ctypes.POINTER(CTerm)),
        ("rank", ctypes.c_uint8),
        ("elem", ctypes.c_uint8),
        ("axes", ctypes.c_uint16),
        ("order", ctypes.c_uint8 * RANK),
    ]


class CSource(ctypes.Structure):
    _fields_ = [("base", ctypes.c_size_t), ("lo", ctypes.c_int32 * RANK), ("stride", ctypes.c_int32 * RANK)]


class CRegion(ctypes.Structure):
    _fields_ = [("lo", ctypes.c_int32 * RANK), ("ext", ctypes.c_int32 * RANK), ("pad", ctypes.c_int32 * RANK)]


class CTile(ctypes.Structure):
    _fields_ = [
        ("ptr", ctypes.c_void_p),
        ("ext", ctypes.c_int32 * RANK),
        ("str", ctypes.c_int32 * RANK),
        ("pad", ctypes.c_int32 * RANK),
        ("imm", ctypes.c_int64),
    ]


class CDma(ctypes.Structure):
    _fields_ = [("pending", ctypes.c_uint32), ("id", ctypes.c_uint32), ("link", ctypes.c_void_p)]


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("tile") / "tile.so"
    runtime = targets_dir() / "runtime"
    sources = [str(runtime / "common" / "dp_tile.c"), str(C_FILES / "tile_probe.c")]
    flags = ["-O1", "-shared", "-fPIC", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, f"-I{runtime / 'include'}", *sources, "-o", str(path)], check=True)
    return ctypes.CDLL(str(path))


Box = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass
class Geometry:
    """A random space with one operand on it, in Python and in C (`keep` holds the C arrays alive)."""

    size: list[int]
    outer: list[int]
    inner: list[int]
    reduced: list[bool]
    loop_order: list[int]
    dim_size: list[int]
    dim_stride: list[int]
    terms: list[list[tuple[int, int]]]
    offset: list[int]
    window: list[int]
    memory_order: list[int]
    elem: int

    def boxes(self, within: Box, tiles: list[int]) -> Iterator[Box]:
        lo, n = within
        cuts = [[(lo[a] + at, min(tiles[a], n[a] - at)) for at in range(0, n[a], tiles[a])] for a in self.loop_order]
        for choice in itertools.product(*cuts):
            by_axis = dict(zip(self.loop_order, choice, strict=True))
            yield tuple(by_axis[a][0] for a in range(len(lo))), tuple(by_axis[a][1] for a in range(len(lo)))

    def region(self, box: Box) -> list[tuple[int, int, int]]:
        """Per dimension the first index, the extent and the padding before, by enumerating the points of the box."""
        result = []
        for d, size in enumerate(self.dim_size):
            ranges = [range(box[0][a], box[0][a] + box[1][a]) for a, _ in self.terms[d]]
            products = itertools.product(*ranges)
            points = {sum(c * i for (_, c), i in zip(self.terms[d], index, strict=True)) + self.offset[d] for index in products}
            touched = range(min(points), max(points) + self.window[d])
            present = [i for i in touched if 0 <= i < size]
            extent = min(len(present), 1) if self.dim_stride[d] == 0 else len(present)
            result.append((present[0] if present else -1, extent, max(0, -touched[0])))
        return result

    def c_space(self, keep: list[object]) -> CSpace:
        rows = zip(self.size, self.outer, self.inner, self.reduced, strict=True)
        axis = (CAxis * len(self.size))(*[CAxis(*row) for row in rows])
        keep.append(axis)
        return CSpace(axis, len(self.size), (ctypes.c_uint8 * AXES)(*self.loop_order))

    def c_operand(self, keep: list[object]) -> COperand:
        flat = [CTerm(a, c) for terms in self.terms for a, c in terms]
        term = (CTerm * max(len(flat), 1))(*flat)
        dims, first = [], 0
        for d in range(len(self.dim_size)):
            dims.append(CDim(self.dim_size[d], self.dim_stride[d], self.offset[d], self.window[d], first, len(self.terms[d])))
            first += len(self.terms[d])
        dim = (CDim * max(len(dims), 1))(*dims)
        keep += [term, dim]
        mask = 0
        for terms in self.terms:
            for a, _ in terms:
                mask |= 1 << a
        return COperand(dim, term, len(dims), self.elem, mask, (ctypes.c_uint8 * RANK)(*self.memory_order))


def random_geometry(rng: np.random.Generator) -> Geometry:
    axes = int(rng.integers(1, 5))
    size = [int(rng.integers(1, 7)) for _ in range(axes)]
    outer = [int(rng.integers(1, n + 1)) for n in size]
    inner = [int(rng.integers(1, n + 1)) for n in outer]
    rank = int(rng.integers(0, 5))
    terms, offset, window, dim_size = [], [], [], []
    for _ in range(rank):
        used = rng.permutation(axes)[: int(rng.integers(0, 3))]
        terms.append([(int(a), int(rng.integers(1, 4))) for a in used])
        window.append(int(rng.integers(1, 4)))
        offset.append(int(rng.integers(-3, 2)) if used.size else 0)
        reach = sum(c * (size[a] - 1) for a, c in terms[-1]) + offset[-1] + window[-1]
        dim_size.append(max(1, reach + int(rng.integers(-3, 3))))
    memory_order = [int(d) for d in rng.permutation(rank)]
    stride, step = [0] * rank, 1
    for d in reversed(memory_order):
        if rng.random() < 0.3:
            step += int(rng.integers(1, 4))  # a gap: the storage holds more than this operand
        if rng.random() < 0.15 and offset[d] >= 0:
            stride[d] = 0
            window[d] = 1
            continue
        stride[d] = step
        step *= dim_size[d]
    loop_order = [int(a) for a in rng.permutation(axes)]
    reduced = [bool(rng.random() < 0.4) for _ in range(axes)]
    elem = int(rng.choice([1, 2, 4, 8]))
    return Geometry(size, outer, inner, reduced, loop_order, dim_size, stride, terms, offset, window, memory_order, elem)


def c_boxes(lib: ctypes.CDLL, space: CSpace, within: CBox | None, loop: int) -> Iterator[CBox]:
    outside = ctypes.byref(within) if within is not None else None
    box = CBox()
    lib.dp_box_first(ctypes.byref(box), ctypes.byref(space), outside, loop)
    while True:
        yield CBox.from_buffer_copy(box)
        if not lib.dp_box_next(ctypes.byref(box), ctypes.byref(space), outside, loop):
            return


def as_box(box: CBox, axes: int) -> Box:
    return tuple(box.lo[:axes]), tuple(box.n[:axes])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_boxes_match_enumeration(lib: ctypes.CDLL, seed: int) -> None:
    geometry = random_geometry(np.random.default_rng(seed))
    keep: list[object] = []
    space, operand, axes = geometry.c_space(keep), geometry.c_operand(keep), len(geometry.size)
    whole: Box = ((0,) * axes, tuple(geometry.size))
    outer = list(c_boxes(lib, space, None, 1))
    assert [as_box(b, axes) for b in outer] == list(geometry.boxes(whole, geometry.outer))
    covered = np.zeros(geometry.size, int)
    previous = outer[0]
    for within in outer:
        inner = list(c_boxes(lib, space, within, 0))
        assert [as_box(b, axes) for b in inner] == list(geometry.boxes(as_box(within, axes), geometry.inner))
        for box in inner:
            lo, n = as_box(box, axes)
            covered[tuple(slice(b, b + e) for b, e in zip(lo, n, strict=True))] += 1
            starts = all(lo[a] == 0 for a in range(axes) if geometry.reduced[a])
            ends = all(lo[a] + n[a] == geometry.size[a] for a in range(axes) if geometry.reduced[a])
            assert lib.dp_first(ctypes.byref(space), ctypes.byref(box)) == starts
            assert lib.dp_last(ctypes.byref(space), ctypes.byref(box)) == ends
            used = {a for terms in geometry.terms for a, _ in terms}
            moved = any(previous.lo[a] != box.lo[a] or previous.n[a] != box.n[a] for a in used)
            assert lib.dp_moved(ctypes.byref(operand), ctypes.byref(previous), ctypes.byref(box)) == moved
            previous = box
    assert (covered == 1).all()


def region_matches(region: CRegion, expected: list[tuple[int, int, int]]) -> None:
    for d, (lo, ext, pad) in enumerate(expected):
        assert (region.ext[d], region.pad[d]) == (ext, pad)
        assert ext == 0 or region.lo[d] == lo


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_tiles_hold_their_regions(lib: ctypes.CDLL, seed: int) -> None:
    """L3 -> L2 tile -> L1 tile, every element of every tile against the storage; then back to an empty storage."""
    rng = np.random.default_rng(seed)
    geometry = random_geometry(rng)
    keep: list[object] = []
    space, operand = geometry.c_space(keep), geometry.c_operand(keep)
    rank, axes, elem = len(geometry.dim_size), len(geometry.size), geometry.elem
    span = 1 + sum((n - 1) * s for n, s in zip(geometry.dim_size, geometry.dim_stride, strict=True))
    dtype = np.dtype(f"u{elem}")
    storage = rng.integers(0, np.iinfo(dtype).max, span, dtype=dtype, endpoint=True)
    back = np.zeros_like(storage)
    written = np.zeros(span, bool)
    room = max(int(np.prod(geometry.dim_size)), 1)
    l2_tile, l1_tile = np.zeros(room, dtype), np.zeros(room, dtype)
    op, dma = ctypes.byref(operand), CDma()
    handle = ctypes.byref(dma)
    for within in c_boxes(lib, space, None, 1):
        far, near, home = CSource(), CSource(), CSource()
        big = CRegion()
        lib.dp_region_of(ctypes.byref(big), op, ctypes.byref(within))
        region_matches(big, geometry.region(as_box(within, axes)))
        lib.dp_source_storage(ctypes.byref(far), op, ctypes.c_size_t(storage.ctypes.data))
        lib.dp_source_storage(ctypes.byref(home), op, ctypes.c_size_t(back.ctypes.data))
        lib.dp_source_tile(ctypes.byref(near), op, ctypes.byref(big), ctypes.c_size_t(l2_tile.ctypes.data))
        bytes_before = ctypes.c_uint64.in_dll(lib, "probe_bytes").value
        lib.dp_move_l3(handle, op, ctypes.byref(big), ctypes.c_void_p(l2_tile.ctypes.data), ctypes.byref(far), 0)
        elements = int(np.prod([big.ext[d] for d in range(rank)], dtype=int))
        assert ctypes.c_uint64.in_dll(lib, "probe_bytes").value - bytes_before == elements * elem
        for box in c_boxes(lib, space, within, 0):
            region, tile = CRegion(), CTile()
            lib.dp_region_of(ctypes.byref(region), op, ctypes.byref(box))
            expected = geometry.region(as_box(box, axes))
            region_matches(region, expected)
            lib.dp_move_l2(handle, op, ctypes.byref(region), ctypes.c_void_p(l1_tile.ctypes.data), ctypes.byref(near), 0)
            lib.dp_tile_of(ctypes.byref(tile), op, ctypes.byref(region), ctypes.c_void_p(l1_tile.ctypes.data))
            places = set()
            for index in itertools.product(*[range(ext) for _, ext, _ in expected]):
                at = sum((lo + i) * s for (lo, _, _), i, s in zip(expected, index, geometry.dim_stride, strict=True))
                place = sum(i * tile.str[d] for d, i in enumerate(index))
                assert l1_tile[place] == storage[at]
                places.add(place)
                written[at] = True
            assert places == set(range(len(places)))  # dense
            assert all(tile.str[d] == 0 for d in range(rank) if geometry.dim_stride[d] == 0 or geometry.dim_size[d] == 1)
            lib.dp_move_l2(handle, op, ctypes.byref(region), ctypes.c_void_p(l1_tile.ctypes.data), ctypes.byref(home), 1)
    assert np.array_equal(back, np.where(written, storage, 0).astype(dtype))


@pytest.mark.parametrize(
    ("rows", "cols", "gap", "most"),
    [(1, 400_001, 0, 4), (3, 140_001, 5, 6), (5000, 77, 3, 4), (3, 131_071, 1, 3), (131_072, 1, 1, 2), (2, 131_072, 7, 4)],
)
def test_commands_stay_within_the_limit(lib: ctypes.CDLL, rows: int, cols: int, gap: int, most: int) -> None:
    pitch = cols + gap
    dims = (CDim * 2)(CDim(rows, pitch, 0, 1, 0, 1), CDim(cols, 1, 0, 1, 1, 1))
    terms = (CTerm * 2)(CTerm(0, 1), CTerm(1, 1))
    operand = COperand(dims, terms, 2, 1, 3, (ctypes.c_uint8 * RANK)(0, 1))
    box = CBox((ctypes.c_int32 * AXES)(), (ctypes.c_int32 * AXES)(rows, cols))
    storage = np.random.default_rng(3).integers(0, 256, rows * pitch, np.uint8)
    tile = np.zeros(rows * cols, np.uint8)
    region, source, dma = CRegion(), CSource(), CDma()
    lib.dp_region_of(ctypes.byref(region), ctypes.byref(operand), ctypes.byref(box))
    lib.dp_source_storage(ctypes.byref(source), ctypes.byref(operand), ctypes.c_size_t(storage.ctypes.data))
    counted = {name: ctypes.c_uint64.in_dll(lib, f"probe_{name}") for name in ("commands", "bytes", "largest")}
    for value in counted.values():
        value.value = 0
    place = ctypes.c_void_p(tile.ctypes.data)
    lib.dp_move_l3(ctypes.byref(dma), ctypes.byref(operand), ctypes.byref(region), place, ctypes.byref(source), 0)
    assert np.array_equal(tile.reshape(rows, cols), storage.reshape(rows, pitch)[:, :cols])
    assert counted["bytes"].value == rows * cols
    assert counted["largest"].value <= 131_071
    assert counted["commands"].value <= most
