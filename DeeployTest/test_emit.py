"""Emitted projects, from hand-built programs: values on the host runtime under its checks, texts, files, folders, the interface."""

from __future__ import annotations

import filecmp
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from Deeploy.emit import Call, EmitOptions, Script, emit, literals, read_manifest
from Deeploy.emit.folder import write_folder
from Deeploy.errors import DefectError, UsageError
from Deeploy.platform import load
from Deeploy.program.dtypes import FLOAT32
from Deeploy.program.program import Program, Project
from Deeploy.program.step import Access, Axis, DimMap, KernelCall, Operand, Param, Step
from Deeploy.program.tensor import Level, Role
from Deeploy.report.l3 import level_reports
from Deeploy.simulate.host import CheckMode, HostBuilder, run_program
from Deeploy.simulate.trace import step_traces
from DeeployTest.emit_examples import BLEND, KERNELS, Example, constant, example, naive_plan, stateful, variable, write

MIXED = {"w1": Level.L3, "y2": Level.L3, "v1": Level.L3, "h": Level.L3, "x": Level.L3}
CASES = {
    "whole": (Level.L2, {}, {}, 1),
    "inner": (Level.L2, {}, {"MatMul": (4, 3, 3), "Blend": (5,)}, 2),
    "single": (Level.L2, {}, {"MatMul": (4, 3, 3), "Blend": (5,)}, 1),
    "far": (Level.L3, {"MatMul": (5, 4, 10), "Blend": (17,)}, {"MatMul": (2, 3, 4), "Blend": (5,)}, 2),
    "far_single": (Level.L3, {"MatMul": (5, 4, 10), "Blend": (17,)}, {"MatMul": (2, 3, 4), "Blend": (5,)}, 1),
    "split_outside": (MIXED, {"MatMul": (6, 7, 4), "Blend": (17,)}, {"MatMul": (6, 7, 3), "Blend": (17,)}, 2),
    "split_outside_single": (MIXED, {"MatMul": (6, 7, 4), "Blend": (36,)}, {"MatMul": (6, 7, 1), "Blend": (4,)}, 1),
}


OURS = '{"format": 1, "tool": "Deeploy", "programs": [], "kernels": ["conv.c"], "storages": [{"file": "w_1.hex"}]}'


def build(folder: Path, check: CheckMode = CheckMode.NONE, flags: tuple[str, ...] = (), extra: tuple[Path, ...] = ()) -> Path:
    sources = [*sorted(folder.glob("*.c")), *extra, KERNELS / "emit_kernels.c"]
    return HostBuilder().build(sources, check, folder.parent / f"{folder.name}.{check.value}", include=(folder, KERNELS), flags=flags)


def outputs(made: Example, where: Path) -> list[np.ndarray]:
    return [np.frombuffer((where / f"output_{i}.bin").read_bytes(), e.dtype).reshape(e.shape) for i, e in enumerate(made.expected)]


def check_outputs(made: Example, where: Path) -> None:
    for got, expected in zip(outputs(made, where), made.expected, strict=True):
        if expected.dtype == np.float32:
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(got, expected)


def made(tmp_path: Path, case: str, name: str = "project", shared: bool = True, **options: object) -> Example:
    result = example(shared=shared)
    home, outer, inner, copies = CASES[case]
    result.plan = naive_plan(result.program, home, outer, inner, copies, cores=3)
    write(result, result.plan, tmp_path / name, share=shared, **options)
    return result


@pytest.mark.parametrize("case", CASES)
def test_values(tmp_path: Path, case: str) -> None:
    project = made(tmp_path, case)
    check_modes = [CheckMode.LAZY, CheckMode.EAGER]
    binary = build(tmp_path / "project", CheckMode.LAZY)
    for check in check_modes:
        run = run_program(binary, check, arguments=["2"], folder=tmp_path, files=tmp_path / "project" / "hex")
        check_outputs(project, tmp_path)
        assert run.report is not None


def test_threads(tmp_path: Path) -> None:
    project = made(tmp_path, "far")
    binary = build(tmp_path / "project", CheckMode.TSAN)
    run_program(binary, CheckMode.TSAN, folder=tmp_path, files=tmp_path / "project" / "hex")
    check_outputs(project, tmp_path)


def test_makefile_builds_and_runs(tmp_path: Path) -> None:
    project = made(tmp_path, "split_outside")
    subprocess.run(["make", "-s", "run", "CFLAGS=-O0"], cwd=tmp_path / "project", check=True, capture_output=True)
    check_outputs(project, tmp_path / "project")


@pytest.mark.parametrize("compiler", ["gcc -std=c11", "clang-19 -std=c11", "g++ -x c++", "clang-19 -x c++"])
def test_warnings(tmp_path: Path, compiler: str) -> None:
    made(tmp_path, "far")
    folder = tmp_path / "project"
    include = ["-I.", *(f"-Ideeploy/{part}" for part in ("include", "host", "kernels"))]
    for flags in (["-DDP_HOST", "-DDP_OBSERVE"], ["-DDP_HOST"]):
        files = ["Network.c", "main.c", "Observe.c"]
        for name in files:
            command = [*compiler.split(), "-Wall", "-Wextra", "-Werror", *flags, *include, "-fsyntax-only", name]
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
    subprocess.run([*compiler.split(), "-Wall", "-Wextra", "-Werror", *include, "-fsyntax-only", "Network.c"], cwd=folder, check=True)


def run_network(text: str) -> str:
    """The steps and RunNetwork: everything between the interface and the pointers."""
    begin, end = text.index("static struct {"), text.index("/* ---- the interface")
    return text[begin:end]


def test_sharing_changes_only_storages(tmp_path: Path) -> None:
    made(tmp_path, "far", "shared")
    made(tmp_path, "far", "apart", shared=False)
    texts = [(tmp_path / name / "Network.c").read_text() for name in ("shared", "apart")]
    assert run_network(texts[0]) == run_network(texts[1])
    assert "static void RunNetwork" in run_network(texts[0])
    assert [t.count("cl_ram_malloc(") for t in texts] == [2, 4]
    assert [t.count("load_file_to_ram(") for t in texts] == [2, 4]
    assert "t_w2 = t_w1;" in texts[0] and "t_w2 = t_w1;" not in texts[1]
    assert [len(list((tmp_path / n / "hex").glob("*.hex"))) for n in ("shared", "apart")] == [4, 6]
    manifests = [read_manifest(tmp_path / n) for n in ("shared", "apart")]
    assert manifests[0].programs[0].steps == manifests[1].programs[0].steps
    assert [a.tensor for a in manifests[0].aliases] == ["w2", "v2"]
    assert not manifests[1].aliases


def test_arrays_in_l2_are_shared_too(tmp_path: Path) -> None:
    made(tmp_path, "inner", "shared")
    made(tmp_path, "inner", "apart", shared=False)
    texts = [(tmp_path / name / "Network.c").read_text() for name in ("shared", "apart")]
    assert run_network(texts[0]) == run_network(texts[1])
    arrays = [re.findall(r"static const DP_ALIGN\(4\) (\w+) (\w+)\[(\d+)\]", t) for t in texts]
    assert arrays[0] == [("uint8_t", "s_w1", "70"), ("uint32_t", "s_v1", "37")]
    assert len(arrays[1]) == 4


def test_two_runs_are_identical(tmp_path: Path) -> None:
    made(tmp_path / "a", "far", "one")
    made(tmp_path / "b", "far", "other")
    difference = filecmp.dircmp(tmp_path / "a" / "one", tmp_path / "b" / "other")

    def walk(d: filecmp.dircmp) -> None:
        assert not d.left_only and not d.right_only
        assert not filecmp.cmpfiles(d.left, d.right, d.common_files, shallow=False)[1]
        for sub in d.subdirs.values():
            walk(sub)

    walk(difference)
    text = (tmp_path / "a" / "one" / "deeploy.json").read_text()
    assert str(tmp_path) not in text and str(Path.cwd()) not in text


def test_two_networks_in_one_program(tmp_path: Path) -> None:
    first = made(tmp_path, "far", "first", prefix="First", observe=False)
    second = example(seed=9)
    second.plan = naive_plan(second.program, Level.L3, {}, {"MatMul": (4, 3, 3)}, 1, cores=1)
    write(second, second.plan, tmp_path / "second", prefix="Second", observe=False)
    main = tmp_path / "both.c"
    main.write_text(
        """
#include <stdio.h>
#include "first/Network.h"
#include "second/Network.h"
#include "dp_host.h"
static int8_t x[130]; static float f[37]; static int32_t y[91];
static void save(const char *name) { FILE *o = fopen(name, "wb"); fwrite(y, 1, sizeof y, o); fclose(o); }
int main(void) {
  if (First_Init() || Second_Init()) return 1;
  if (First_Run() != First_NOT_READY || First_GetOutput(0, y, sizeof y) != First_NOT_READY) return 2;
  if (First_SetInput(0, x, 7) != First_BAD_ARGUMENT || First_SetInput(2, x, 7) != First_BAD_ARGUMENT) return 3;
  for (int round = 0; round < 2; round++) {
    if (dp_load_file_to_l2(x, "first/hex/input_x.hex", 130) || First_SetInput(0, x, 130) || First_SetInput(1, f, 148)) return 4;
    if (dp_load_file_to_l2(x, "second/hex/input_x.hex", 130) || Second_SetInput(0, x, 130) || Second_SetInput(1, f, 148)) return 4;
    if (First_Run() || Second_Run() || First_Run()) return 5;
    if (First_GetOutput(0, y, sizeof y)) return 6;
    save("output_first.bin");
    if (Second_GetOutput(0, y, sizeof y)) return 6;
    save("output_second.bin");
  }
  First_Free(); Second_Free();
  if (First_Init()) return 7;
  First_Free();
  dp_host_finish();
  return 0;
}
"""
    )
    hexes = tmp_path / "hex"
    hexes.mkdir()
    for name in ("first", "second"):
        (hexes / name).symlink_to(tmp_path / name)
        for path in (tmp_path / name / "hex").glob("*.hex"):
            if not path.name.startswith("input_"):
                assert not (hexes / path.name).exists() or (hexes / path.name).read_bytes() == path.read_bytes()
                (hexes / path.name).write_bytes(path.read_bytes())
    sources = [main, tmp_path / "first" / "Network.c", tmp_path / "second" / "Network.c", KERNELS / "emit_kernels.c"]
    # Each Network.c finds its own Network.h beside it.
    binary = HostBuilder().build(sources, CheckMode.LAZY, tmp_path / "both", include=(tmp_path, KERNELS))
    run_program(binary, CheckMode.LAZY, folder=tmp_path, files=hexes)
    for name, project in (("first", first), ("second", second)):
        got = np.frombuffer((tmp_path / f"output_{name}.bin").read_bytes(), np.int32).reshape(13, 7)
        np.testing.assert_array_equal(got, project.expected[0])


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("level", [Level.L2, Level.L3])
def test_state(tmp_path: Path, level: Level, copies: int) -> None:
    """State is kept between calls, begins anew in every round and process, and is never shared by content; its file is."""
    project = stateful()
    plan = naive_plan(project.program, level, {"Update": (8,), "Blend": (9,)}, {"Update": (5,), "Blend": (4,)}, copies)
    write(project, plan, tmp_path / "project", Script((Call(0, project.fixtures, ()), Call(0))))
    binary = build(tmp_path / "project", CheckMode.LAZY)
    for rounds in ("1", "2"):
        run_program(binary, CheckMode.LAZY, arguments=[rounds], folder=tmp_path, files=tmp_path / "project" / "hex")
        for k, expected in enumerate(project.expected):
            got = np.fromfile(tmp_path / f"output_1_{k}.bin", np.float32)
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    text = (tmp_path / "project" / "Network.c").read_text()
    assert len(re.findall(r"load_file_to_(?:ram|l2)\(", text)) == 2
    assert len(list((tmp_path / "project" / "hex").glob("*.hex"))) == 2
    report = level_reports(read_manifest(tmp_path / "project"), tmp_path / "project")[level.name.lower()]
    assert (report.stored.allocations, report.stored.bytes) == (2, 168)
    assert [n.reason for n in report.not_shared] == ["state is shared by identity, never by content"]


@pytest.mark.parametrize("seed", [None, "3"])
def test_trace(tmp_path: Path, seed: str | None) -> None:
    project = made(tmp_path, "far")
    binary = build(tmp_path / "project", CheckMode.LAZY, ("-DDP_OBSERVE",))
    environment = {"DP_TRACE": "trace.bin"} if seed is None else {"DP_TRACE": "trace.bin", "DP_RANDOM": seed}
    hex_folder = tmp_path / "project" / "hex"
    run_program(binary, CheckMode.LAZY, arguments=["2"], folder=tmp_path, files=hex_folder, environment=environment)
    traces = list(step_traces(tmp_path / "trace.bin", read_manifest(tmp_path / "project")))
    assert [(t.round, t.step) for t in traces] == [(r, s) for r in (1, 2) for s in range(5)]
    weights = next(c.value() for c in project.program.constants if c.name == "w1")
    for t in traces:
        if t.step == 0:
            assert set(t.reads) == {"x"} and set(t.writes) == {"y1"}
            np.testing.assert_array_equal(t.writes["y1"], t.reads["x"].astype(np.int32) @ weights.astype(np.int32))
    blend = traces[3]
    np.testing.assert_allclose(blend.writes["g"], blend.reads["h"] + 0.1 * np.float32(1 / 3), rtol=1e-5, atol=1e-6)
    given = project.fixtures["onnx/x"]
    if seed is None:
        np.testing.assert_array_equal(traces[0].reads["x"], given)
        np.testing.assert_array_equal(traces[1].writes["h"], traces[3].reads["h"])
    else:
        assert not np.array_equal(traces[0].reads["x"], given)
        assert not np.array_equal(traces[0].reads["x"], traces[5].reads["x"])
        assert np.abs(blend.reads["h"]).max() <= 2 and blend.reads["h"].std() > 0.5


def test_folder_is_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "sub" / "project"

    def good(folder: Path) -> None:
        (folder / "deeploy.json").write_text(OURS)

    def bad(folder: Path) -> None:
        (folder / "half").write_text("")
        raise DefectError("stop")

    with pytest.raises(DefectError):
        write_folder(target, bad)
    assert not target.exists() and not list(target.parent.iterdir())
    write_folder(target, good)
    (target / "main.c").write_text("")
    with pytest.raises(DefectError):
        write_folder(target, bad)
    assert (target / "main.c").exists()
    write_folder(target, good)
    assert [p.name for p in target.iterdir()] == ["deeploy.json"]
    assert [p.name for p in target.parent.iterdir()] == ["project"]


def test_foreign_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="not empty"):
        write_folder(tmp_path, lambda folder: None)
    with pytest.raises(UsageError, match="no folder"):
        write_folder(tmp_path / "file", lambda folder: None)
    with pytest.raises(UsageError, match="cannot be written"):
        write_folder(tmp_path / "file" / "below", lambda folder: None)
    write_folder(tmp_path / "empty", lambda folder: None)


@pytest.mark.parametrize("text", ["{}", "no json", "[]", '{"format": 1, "tool": "Other", "programs": []}', OURS.replace("1,", '"1",', 1)])
def test_a_foreign_manifest_protects_its_folder(tmp_path: Path, text: str) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "deeploy.json").write_text(text)
    with pytest.raises(UsageError, match="was not made by this program"):
        write_folder(tmp_path / "p", lambda folder: None)
    assert (tmp_path / "p" / "deeploy.json").read_text() == text


@pytest.mark.parametrize(
    "name, known",
    [(n, True) for n in ("Network.c", "Observe.c", "network", "output_12.bin", "trace.bin", "hex/w_1.hex", "deeploy/kernels/conv.c")]
    + [(n, True) for n in ("deeploy/host/dp_old.c", "deeploy/include/dp_old.h")]
    + [(n, False) for n in ("notes.txt", "output_a.bin", "hex/mine.hex", "hex/w_1.txt", "deeploy/kernels/my.c")]
    + [(n, False) for n in (".git/", "hex/old/", "main.c/")],
)
def test_files_of_the_user_protect_a_project(tmp_path: Path, name: str, known: bool) -> None:
    target = tmp_path / "p"
    path = target / name
    path.parent.mkdir(parents=True)
    if name.endswith("/"):
        path.mkdir()
    else:
        path.write_text("")
    (target / "deeploy.json").write_text(OURS)
    if known:
        write_folder(target, lambda folder: None)
        assert not list(target.iterdir())
    else:
        with pytest.raises(UsageError, match=re.escape(f"holds '{name}', which this program has not made")):
            write_folder(target, lambda folder: None)
        assert path.exists()
    assert list(tmp_path.iterdir()) == [target]


def test_everything_emitted_is_known(tmp_path: Path) -> None:
    made(tmp_path, "far")
    for product in ("network", "output_0.bin"):
        (tmp_path / "project" / product).write_text("")
    made(tmp_path, "far")
    assert not (tmp_path / "project" / "network").exists()


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    write_folder(tmp_path / "link", lambda folder: (folder / "deeploy.json").write_text(OURS))
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / "deeploy.json").exists()
    (tmp_path / "dangling").symlink_to("nothing")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("dangling", "loop"):
        with pytest.raises(UsageError, match="is a link to '\\w+', which is not there"):
            write_folder(tmp_path / name, lambda folder: None)


def test_the_current_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "a" / "b"
    here.mkdir(parents=True)
    (tmp_path / "link").symlink_to(here)
    monkeypatch.chdir(here)
    for target in (".", here, tmp_path / "link", "..", "/"):
        with pytest.raises(UsageError, match="is a parent of the current folder" if target in ("..", "/") else "is the current folder"):
            write_folder(Path(target), lambda folder: None)
    write_folder(Path("../c"), lambda folder: None)
    assert here.is_dir() and (tmp_path / "a" / "c").is_dir()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("nth", range(3))
def test_signals_leave_the_old_project_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, nth: int) -> None:
    """nth: the signal comes while the folder is filled, or after the first or the second renaming."""

    class Stop(BaseException):
        pass

    def stop(got: int, frame: object) -> None:
        raise Stop

    def fill(folder: Path) -> None:
        (folder / "deeploy.json").write_text(OURS + " ")
        if nth == 0:
            signal.raise_signal(number)

    def rename(source: Path, target: Path) -> None:
        done.append(really(source, target))
        if len(done) == nth:
            signal.raise_signal(number)

    done: list[None] = []
    target = tmp_path / "p"
    write_folder(target, lambda folder: (folder / "deeploy.json").write_text(OURS))
    really = os.rename
    monkeypatch.setattr(os, "rename", rename)
    before = signal.signal(number, stop)
    try:
        with pytest.raises(Stop):
            write_folder(target, fill)
        assert signal.getsignal(number) is stop
    finally:
        signal.signal(number, before)
    assert (target / "deeploy.json").read_text() == (OURS if nth == 0 else OURS + " ")
    assert list(tmp_path.iterdir()) == [target]


def test_a_failing_swap_puts_the_old_project_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(source: Path, target: Path) -> None:
        if str(source).endswith(".tmp"):
            raise OSError(28, "no space")
        really(source, target)

    target = tmp_path / "p"
    write_folder(target, lambda folder: (folder / "deeploy.json").write_text(OURS))
    really = os.rename
    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(UsageError, match="no space"):
        write_folder(target, lambda folder: None)
    assert (target / "deeploy.json").read_text() == OURS and list(tmp_path.iterdir()) == [target]


def test_stale_temporary_folders_go(tmp_path: Path) -> None:
    names = {".p.abcdefg1.tmp": 2, ".p.abcdefg2.tmp": 0, ".p.abcdefg3.tmp": 2, ".q.abcdefg1.tmp": 2, ".p.tmp": 2, ".p.abcdefg4.old": 2}
    for name, days in names.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / ("mine.txt" if "3" in name else "main.c")).write_text("")
        then = time.time() - days * 86400
        os.utime(tmp_path / name, (then, then))
    write_folder(tmp_path / "p", lambda folder: None)
    assert {p.name for p in tmp_path.iterdir()} == {"p", *names} - {".p.abcdefg1.tmp"}


def test_empty_outputs_and_scalar_inputs(tmp_path: Path) -> None:
    """y = 0.25 * a + 0.5 with a single number a, beside outputs without elements that no step writes; then with nothing but those."""
    a = np.array(3.5, np.float32)
    half = constant("half", np.full((), 0.5, np.float32), FLOAT32, literal=True)
    ta, y = variable("a", (), FLOAT32, Role.INPUT), variable("y", (), FLOAT32, Role.OUTPUT)
    empty = [variable(f"e{i}", shape, FLOAT32, Role.OUTPUT) for i, shape in enumerate([(0,), (2, 0)])]
    call = KernelCall(BLEND, (0, 1, 2), (0,), (Param("scale", (0.25, 1.0)), Param("rank", 1)))
    dims = [(DimMap(1, stride, ((0, 1),)),) for stride in (1, 0, 1)]
    accesses = (Access.READ, Access.READ, Access.WRITE)
    operands = tuple(Operand(t, access, d) for t, access, d in zip((ta, half, y), accesses, dims, strict=True))
    step = Step("s", "s", "Blend", (Axis("i", 1),), operands, (call,))
    for name, outputs_, tensors, steps in (("some", [y, *empty], [ta, half, y, *empty], [step]), ("only", empty, [ta, *empty], [])):
        program = Program("network", [ta], outputs_, [], tensors, steps)
        expected = [np.float32(0.25) * a + np.float32(0.5)] * len(steps) + [np.zeros(e.shape, np.float32) for e in empty]
        project = Example(Project([program]), {"a": a}, [np.asarray(e) for e in expected])
        write(project, naive_plan(program, Level.L2, {}, {}), tmp_path / name)
        binary = build(tmp_path / name, CheckMode.LAZY, ("-DDP_OBSERVE",))
        environment = {"DP_TRACE": str(tmp_path / "trace.bin")}
        run_program(binary, CheckMode.LAZY, arguments=["2"], folder=tmp_path, files=tmp_path / name / "hex", environment=environment)
        check_outputs(project, tmp_path)
        for compiler in ("gcc -std=c11", "clang-19 -x c++"):
            command = [*compiler.split(), "-Wall", "-Wextra", "-Werror", "-I.", "-Ideeploy/include", "-Ideeploy/kernels", "-fsyntax-only"]
            subprocess.run([*command, "Network.c"], cwd=tmp_path / name, check=True)


def test_refusals(tmp_path: Path) -> None:
    project = example()
    plan = naive_plan(project.program, Level.L2, {}, {})
    platform = load("gap9")
    with pytest.raises(UsageError, match="prefix"):
        emit(project.project, [plan], platform, EmitOptions(prefix="a-b"), Script(), tmp_path / "p")
    for prefix in ("dp", "DP", "Dp", "dp_net", "DP_x"):
        with pytest.raises(UsageError, match="runtime's own"):
            emit(project.project, [plan], platform, EmitOptions(prefix=prefix), Script(), tmp_path / "p")
    with pytest.raises(UsageError, match="does not fit"):
        script = Script((Call(0, {"x": np.full((13, 10), 200)}),))
        emit(project.project, [plan], platform, EmitOptions(kernel_path=(KERNELS,)), script, tmp_path / "p")
    assert not (tmp_path / "p").exists()
    split = naive_plan(project.program, Level.L3, {"MatMul": (6, 7, 4)}, {"MatMul": (2, 7, 4)})
    with pytest.raises(DefectError, match="outer loop"):
        emit(project.project, [split], platform, EmitOptions(kernel_path=(KERNELS,)), Script(), tmp_path / "p")


def test_literals() -> None:
    assert literals.real(-0.0) == "-0.0f" and literals.real(1.0) == "1.0f" and literals.real(float("-inf")) == "-INFINITY"
    rng = np.random.default_rng(0)
    for bits in rng.integers(0, 1 << 32, 200, dtype=np.uint64).astype(np.uint32):
        value = np.uint32(bits).view(np.float32)
        if np.isfinite(value):
            assert np.float32(literals.real(float(value)).rstrip("f")).view(np.uint32) == bits
    assert literals.integer(-(1 << 31)) == "(-2147483647 - 1)" and literals.integer(1 << 40) == "1099511627776LL"
    assert literals.string('a"b\\?é') == '"a\\042b\\134\\077\\303\\251"'
    assert "*/" not in literals.comment("a */ b\n")
    content = bytes(range(1, 24))
    ctype, count, lines = literals.array(content)
    assert (ctype, count) == ("uint8_t", 23) and bytes(int(v) for v in lines.split(",")) == content
    ctype, count, lines = literals.array(content + b"\xff")
    words = np.array([int(v.strip().rstrip("u"), 16) for v in lines.split(",")], "<u4")
    assert (ctype, count) == ("uint32_t", 6) and words.tobytes() == content + b"\xff"
