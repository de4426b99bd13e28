"""The same programs on the simulated chip: values, traffic, what Init takes and loads, and every way in which a run can end badly."""

from __future__ import annotations

import itertools
import resource
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from Deeploy import cli
from Deeploy.compiler import Options
from Deeploy.errors import DoesNotFitError, ExitCode, ModelError, RunError, ToolMissingError
from Deeploy.operators import load_all
from Deeploy.operators.base import find
from Deeploy.platform.reader import load
from Deeploy.simulate.chip import ChipBuilder, write_flash
from Deeploy.simulate.gvsoc import Gvsoc, GvsocRun, chip_sizes
from Deeploy.simulate.run import RunOptions, RunResult, run
from DeeployTest.support import CORPUS, MODELS, NETWORKS, ROOT, deeploy, deeploy_json, needs_corpus, why_no_gvsoc

WHY_NOT = why_no_gvsoc("gap9")
needs_gvsoc = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
pytestmark = [pytest.mark.gvsoc]

CHIP = RunOptions(simulator="gvsoc", timeout=120)
NAMES = ("quant_cnn", "attention", "minus_zero_vectors", "nan_payload_vectors")
HOPS = ("l3_to_l2", "l2_to_l3", "l2_to_l1", "l1_to_l2")


def on_chip(name: str, options: RunOptions = CHIP, **changes: object) -> RunResult:
    return run(NETWORKS / name, Options(**{"platform": "gap9", **changes}), options)  # type: ignore[arg-type]


# ---- networks -----------------------------------------------------------------------------------------------------------------------


@needs_gvsoc
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("home,buffering", list(itertools.product(("L2", "L3"), ("single", "double"))))
def test_networks_are_right(name: str, home: str, buffering: str) -> None:
    """Also what is moved is what the host counts, byte for byte."""
    result = on_chip(name, home=home, buffering=buffering)
    assert result.good, result.text()
    (mode,) = result.modes
    host = run(NETWORKS / name, Options("gap9", home=home, buffering=buffering), RunOptions(checks="none"))
    assert mode.traffic == host.modes[0].traffic and mode.forks == host.modes[0].forks
    assert mode.loaded == host.modes[0].loaded


@needs_gvsoc
@pytest.mark.parametrize("cores", [1, 3, 8])
@pytest.mark.parametrize("platform", ["gap9", "pulp-open"])
def test_any_number_of_cores(cores: int, platform: str) -> None:
    for name in ("quant_cnn", "attention"):
        result = on_chip(name, platform=platform, cores=cores, home="L2")
        assert result.good, result.text()


@needs_gvsoc
def test_small_tiles_and_several_rounds() -> None:
    """Tiles that are cut in both loops, and rounds that differ in nothing."""
    rounds = RunOptions(simulator="gvsoc", timeout=120, rounds=2)
    for name, l1, l2 in (("quant_cnn", 1500, 4000), ("attention", 2000, 6000)):
        once, twice = (on_chip(name, options, home="L3", l1=l1, l2=l2) for options in (CHIP, rounds))
        assert once.good and twice.good, once.text() + twice.text()
        assert once.modes[0].traffic == twice.modes[0].traffic
        assert once.modes[0].forks > 15


@needs_gvsoc
@pytest.mark.parametrize("name", NAMES)
def test_init_takes_and_loads_what_the_report_says(name: str) -> None:
    for share in (True, False):
        result = on_chip(name, home="L3", share=share)
        stored, loaded = result.l3["stored"], result.modes[0].loaded
        assert (loaded["bytes"], loaded["allocations"]) == (stored["bytes"], stored["allocations"])
        assert (loaded["file_bytes"], loaded["files"]) == (stored["bytes"], stored["allocations"])


@needs_gvsoc
def test_cycles_are_reported_per_step() -> None:
    result = deeploy_json("run", NETWORKS / "quant_cnn", "--platform", "gap9", "--simulator", "gvsoc", "--home", "L3")
    steps, measured = result["steps"], result["measured"]
    assert result["simulator"] == "gvsoc" and result["errors"] == 0
    assert [s["step"] for s in steps] == list(range(len(steps))) and len(steps) == 8
    for step in steps:
        assert step["cycles"] == step["compute"] + step["wait_l2"] + step["wait_l3"] + step["control"]
        assert step["compute"] > 0 and step["wait_l3"] > 0 and step["control"] > 0
    assert sum(s["cycles"] for s in steps) <= result["cycles"] == measured["total"]
    assert measured["macs"] == sum(s["macs"] for s in steps) > 0
    assert measured["macs_per_cycle"] == pytest.approx(measured["macs"] / result["cycles"], abs=1e-3)


@needs_gvsoc
def test_more_cores_compute_faster_and_repeat_exactly() -> None:
    one, eight, again = (on_chip("quant_cnn", home="L2", cores=cores).modes[0].cycles for cores in (1, 8, 8))
    assert one is not None and eight is not None
    assert sum(s.compute for s in one.steps) > 3 * sum(s.compute for s in eight.steps)
    assert eight == again


@needs_gvsoc
def test_runs_do_not_disturb_each_other() -> None:
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda seed: on_chip("quant_cnn", home=seed), ("L2", "L3", "L2")))
    assert all(r.good for r in results)
    assert results[0].modes[0].cycles == results[2].modes[0].cycles


# ---- every operator by itself ---------------------------------------------------------------------------------------------------------


@needs_gvsoc
@pytest.mark.parametrize(
    "name,platform,home,inputs",
    [("quant_cnn", "gap9", "L3", "random"), ("attention", "gap9", "L2", "stored"), ("attention", "pulp-open", "L3", "random")],
)
def test_operators_are_checked_one_by_one(name: str, platform: str, home: str, inputs: str) -> None:
    """The same ones as on the host; that they are watched does not change what is measured."""
    watched = on_chip(name, RunOptions("gvsoc", compare="all", inputs=inputs, timeout=120), platform=platform, home=home)
    assert watched.good, watched.text()
    host = run(NETWORKS / name, Options(platform, home=home), RunOptions(checks="none", compare="all", inputs=inputs))
    assert host.good, host.text()
    nodes, expected = watched.modes[0].nodes, host.modes[0].nodes
    assert [(n.node, n.operator, n.checked) for n in nodes] == [(n.node, n.operator, n.checked) for n in expected]
    assert all(n.checked for n in nodes)
    if name == "quant_cnn":
        assert nodes == expected
        plain = on_chip(name, RunOptions("gvsoc", inputs=inputs, timeout=120), platform=platform, home=home)
        assert plain.modes[0].cycles == watched.modes[0].cycles and plain.modes[0].loaded == watched.modes[0].loaded


@needs_gvsoc
def test_an_operator_that_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though all outputs are as they should be."""
    load_all()
    operator = find("RequantizedConv", "deeploy")
    assert operator is not None
    right = type(operator).reference
    monkeypatch.setattr(type(operator), "reference", lambda self, node, inputs: [right(self, node, inputs)[0] ^ 1])
    result = on_chip("quant_cnn", RunOptions("gvsoc", compare="all", timeout=120), home="L3")
    assert not result.good and all(o.errors == 0 for o in result.modes[0].outputs)
    assert {n.operator for n in result.modes[0].nodes if n.errors} == {"RequantizedConv"}


# ---- the corpus ---------------------------------------------------------------------------------------------------------------------

KERNELS = CORPUS / "deeploy/Kernels"
CASES = sorted(str(p.parent.relative_to(KERNELS)) for p in KERNELS.rglob("network.onnx")) if KERNELS.is_dir() else []

ODD = ("Integer/ReduceMean",)
"""Its golden rounds what its graph, which is in floats, does not."""
KERNEL_RUNS = [(name, home) for name in CASES if "BF16" not in name and name not in ODD for home in ("L2", "L3")]


@needs_gvsoc
@needs_corpus
@pytest.mark.corpus
@pytest.mark.parametrize("name,home", KERNEL_RUNS)
def test_kernel_cases(name: str, home: str) -> None:
    try:
        result = run(KERNELS / name, Options("gap9", home=home), CHIP)
    except ModelError as error:
        pytest.skip(str(error))
    assert result.good, result.text()


@needs_gvsoc
@needs_corpus
@pytest.mark.corpus
@pytest.mark.parametrize(
    "name,home", [("MLPerf/AnomalyDetection", "L3"), ("CNN_Linear1", "L2"), ("miniMobileNet", "L3"), ("EEGFormer", "auto")]
)
def test_models(name: str, home: str) -> None:
    result = run(MODELS / name, Options("gap9", home=home), CHIP)
    assert result.good, result.text()
    stored, loaded = result.l3["stored"], result.modes[0].loaded
    assert (loaded["bytes"], loaded["file_bytes"]) == (stored["bytes"], stored["bytes"])


@needs_gvsoc
@needs_corpus
@pytest.mark.corpus
@pytest.mark.parametrize(
    "name,home,inputs",
    [
        ("MLPerf/AnomalyDetection", "L3", "stored"),
        ("miniMobileNet", "L3", "random"),
        ("CCT/FP32/CCT_1_16_16_32", "L2", "random"),
    ],
)
def test_every_operator_of_models(name: str, home: str, inputs: str) -> None:
    result = run(MODELS / name, Options("gap9", home=home), RunOptions("gvsoc", compare="all", inputs=inputs, timeout=120))
    assert result.good, result.text()
    assert any(n.checked for n in result.modes[0].nodes)


# ---- runs that end badly ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chip() -> tuple[ChipBuilder, Gvsoc]:
    platform = load("pulp-open")
    return ChipBuilder(chip_sizes(platform)), Gvsoc(platform)


MAIN = """
#include <stdio.h>
#include "dp_runtime.h"
static void work(const dp_args *args, const dp_team *team) { (void)args; (void)team; %s }
static void control(void *unused) { (void)unused; dp_fork(8, work, NULL); }
int main(void) { dp_cluster_call(control, NULL); printf("done\\n"); return 0; }
"""


def execute(chip: tuple[ChipBuilder, Gvsoc], source: str, folder: Path, timeout: float = 60) -> GvsocRun:
    project = folder / "project"
    project.mkdir()
    (project / "main.c").write_text(source)
    program = chip[0].build_project(project, folder / "program.elf")
    (folder / "run").mkdir()
    return chip[1].run(program, [], folder / "run", timeout)


def processes_in(folder: Path) -> list[str]:
    """Command lines of the processes that have the folder in theirs."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = entry.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in text:
            found.append(text)
    return found


@needs_gvsoc
def test_a_good_program_starts_fast(chip: tuple[ChipBuilder, Gvsoc], tmp_path: Path) -> None:
    done = execute(chip, MAIN % "", tmp_path)
    assert "done" in done.stdout and done.report["forks"] == 1


@needs_gvsoc
@pytest.mark.parametrize("platform", ["gap9", "pulp-open"])
def test_the_simulator_starts_fast(platform: str, tmp_path: Path) -> None:
    """Processor time of the whole run, so that others on the machine do not count; the best of several, as page faults vary."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project/main.c").write_text("int main(void) { return 0; }\n")
    description = load(platform)
    program = ChipBuilder(chip_sizes(description)).build_project(tmp_path / "project", tmp_path / "program.elf")
    simulator, spent = Gvsoc(description), []
    for k in range(5):
        (tmp_path / f"run{k}").mkdir()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        simulator.run(program, [], tmp_path / f"run{k}", 60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert min(spent) < 0.2, spent


@needs_gvsoc
@pytest.mark.parametrize(
    "body,words",
    [
        ('__asm__ volatile(".word 0x0000707f");', ("trapped", "TRAP: hart 0000000", "mepc 1c0")),
        ("*(volatile int *)0x40000000 = 1;", ("not there",)),
        ("volatile char big[800]; for (int i = 0; dp_team_rank(team) == 3 && i < 800; i++) big[i] = 1;", ("stack", "core 00000003")),
        ('if (dp_team_rank(team) == 0) for (;;) __asm__ volatile("nop");', ("no end after 3 s",)),
        ("if (dp_team_rank(team) != 0) dp_team_barrier(team);", ("no end after 3 s",)),
    ],
    ids=["trap", "unmapped", "stack", "hang", "barrier"],
)
def test_bad_programs(chip: tuple[ChipBuilder, Gvsoc], tmp_path: Path, body: str, words: tuple[str, ...]) -> None:
    with pytest.raises(RunError) as caught:
        execute(chip, MAIN % body, tmp_path, timeout=3)
    assert caught.value.exit_code == ExitCode.BAD_RUN
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert not processes_in(tmp_path)


@needs_gvsoc
def test_accesses_beyond_the_ram(chip: tuple[ChipBuilder, Gvsoc], tmp_path: Path) -> None:
    source = (
        '#include "dp_runtime.h"\nstatic char x[64];\nint main(void) { dp_l3_write(0x40000000u + (8u << 20) - 32u, x, 64); return 0; }\n'
    )
    with pytest.raises(RunError, match="not there"):
        execute(chip, source, tmp_path)


@needs_gvsoc
def test_programs_larger_than_the_memory(chip: tuple[ChipBuilder, Gvsoc], tmp_path: Path) -> None:
    source = "static volatile char big[2 << 20];\nint main(void) { return big[5]; }\n"
    with pytest.raises(DoesNotFitError, match="too large for L2"):
        execute(chip, source, tmp_path)


@needs_gvsoc
@pytest.mark.parametrize(
    "source,code,words",
    [
        (MAIN % 'if (dp_team_rank(team) == 0) for (;;) __asm__ volatile("nop");', ExitCode.BAD_RUN, "no end after 2 s"),
        (MAIN % '__asm__ volatile(".word 0x0000707f");', ExitCode.BAD_RUN, "TRAP: hart 0000000"),
        (MAIN % "*(volatile int *)0x40000000 = 1;", ExitCode.BAD_RUN, "memory that is not there"),
        ("static volatile char big[2 << 20];\nint main(void) { return big[5]; }\n", ExitCode.DOES_NOT_FIT, "too large for L2"),
    ],
    ids=["hang", "trap", "unmapped", "large"],
)
def test_exit_codes_of_bad_runs(
    source: str, code: ExitCode, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of the command, with a main program that behaves badly in the place of the network's; no process is left."""
    build = ChipBuilder.build_project

    def badly(self: ChipBuilder, project: Path, output: Path, *options: object) -> Path:
        bad = output.parent / "bad"
        bad.mkdir()
        (bad / "main.c").write_text(source)
        return build(self, bad, output)

    monkeypatch.setattr(ChipBuilder, "build_project", badly)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    arguments = ["run", str(NETWORKS / "quant_cnn"), "--platform", "gap9", "--simulator", "gvsoc", "--timeout", "2"]
    assert cli.main(arguments) == code
    assert words in capsys.readouterr().err
    assert not processes_in(tmp_path)
    assert not list(tmp_path.glob("deeploy-run-*"))


@needs_gvsoc
def test_wrong_values_are_exit_1(tmp_path: Path) -> None:
    shutil.copytree(NETWORKS / "quant_cnn", tmp_path / "net")
    golden = dict(np.load(tmp_path / "net/outputs.npz"))
    golden = {name: value + (np.arange(value.size).reshape(value.shape) == 3) for name, value in golden.items()}
    np.savez(tmp_path / "net/outputs.npz", **golden)
    done = deeploy("run", tmp_path / "net", "--platform", "gap9", "--simulator", "gvsoc", "--home", "L2")
    assert done.returncode == ExitCode.VALUES_DIFFER, done.stderr
    assert "1 of 10 elements differ" in done.stdout


@needs_gvsoc
def test_what_the_plan_gives_is_there(tmp_path: Path) -> None:
    """A tensor that fills half of L2 and its result beside it: the plan leaves room for the program and for what main.c needs."""
    node = helper.make_node("Relu", ["x"], ["y"], "n")
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 170000]) for name in "xy"]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "network.onnx")
    result = run(tmp_path / "network.onnx", Options("gap9"), CHIP)
    assert result.good


@needs_gvsoc
def test_timeouts_are_exit_6() -> None:
    done = deeploy("run", NETWORKS / "quant_cnn", "--platform", "gap9", "--simulator", "gvsoc", "--rounds", 200, "--timeout", 1)
    assert done.returncode == ExitCode.BAD_RUN and "no end after 1 s" in done.stderr, done.stdout + done.stderr


# ---- also without the simulator -----------------------------------------------------------------------------------------------------


def test_no_simulator_is_exit_5(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GVSOC_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(ToolMissingError, match="GVSoC is not installed") as caught:
        on_chip("quant_cnn")
    assert caught.value.exit_code == ExitCode.TOOL_MISSING


def test_flash_image(tmp_path: Path) -> None:
    """Read back as dp_pulp_memory.c reads it."""
    contents = {"b.hex": b"12345", "a.hex": b"", "c.hex": bytes(range(200))}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    image = tmp_path / "flash"
    write_flash(image, [tmp_path / name for name in contents])
    data = image.read_bytes()
    assert data[:8] == b"DPFLASH1" and int.from_bytes(data[8:12], "little") == 3
    for k, name in enumerate(sorted(contents)):
        entry = data[16 + 80 * k : 96 + 80 * k]
        assert entry[:64].rstrip(b"\0").decode() == name
        at, size = (int.from_bytes(entry[i : i + 4], "little") for i in (64, 68))
        assert at % 4 == 0 and data[at : at + size] == contents[name]


@needs_gvsoc
def test_transfers_files_and_barriers(tmp_path: Path) -> None:
    """The program that tests the SDK's glue on its mock: long commands, far strides, many at once, odd lengths, files in parts."""
    platform = load("gap9")
    builder, simulator = ChipBuilder(chip_sizes(platform)), Gvsoc(platform)
    project, files = tmp_path / "project", tmp_path / "files"
    for folder in (project, files, tmp_path / "run"):
        folder.mkdir()
    shutil.copy(ROOT / "DeeployTest/c/pmsis_transfers.c", project / "main.c")
    (files / "seven.hex").write_bytes(b"0123456")
    (files / "long.hex").write_bytes(bytes(i % 253 for i in range(9001)))
    program = builder.build_project(project, tmp_path / "program.elf")
    simulator.run(program, files.iterdir(), tmp_path / "run", 60)
