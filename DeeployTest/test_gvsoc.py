"""The same programs on the simulated chip: values, traffic, what Init takes and loads, and every way in which a run can end badly."""

from __future__ import annotations

import itertools
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from Deeploy.compiler import Options
from Deeploy.errors import DoesNotFitError, ExitCode, ModelError, RunError, ToolMissingError
from Deeploy.platform.reader import load
from Deeploy.simulate.chip import ChipBuilder, write_flash
from Deeploy.simulate.gvsoc import Gvsoc, GvsocRun, chip_sizes
from Deeploy.simulate.run import RunOptions, RunResult, run
from DeeployTest.support import CORPUS, MODELS, NETWORKS, deeploy, deeploy_json, needs_corpus, why_no_gvsoc

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


# ---- the corpus ---------------------------------------------------------------------------------------------------------------------

KERNELS = CORPUS / "deeploy/Kernels"
CASES = sorted(str(p.parent.relative_to(KERNELS)) for p in KERNELS.rglob("network.onnx")) if KERNELS.is_dir() else []

KERNEL_RUNS = [(name, ("L2", "L3")[k % 2]) for k, name in enumerate(CASES[::2]) if "BF16" not in name]


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
    assert done.seconds < 5  # 0.1 on an idle machine


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
def test_wrong_values_are_exit_1(tmp_path: Path) -> None:
    shutil.copytree(NETWORKS / "quant_cnn", tmp_path / "net")
    golden = dict(np.load(tmp_path / "net/outputs.npz"))
    golden = {name: value + (np.arange(value.size).reshape(value.shape) == 3) for name, value in golden.items()}
    np.savez(tmp_path / "net/outputs.npz", **golden)
    done = deeploy("run", tmp_path / "net", "--platform", "gap9", "--simulator", "gvsoc", "--home", "L2")
    assert done.returncode == ExitCode.VALUES_DIFFER, done.stderr
    assert "1 of 10 elements differ" in done.stdout


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


def test_operators_are_watched_on_the_host_only() -> None:
    done = deeploy("run", NETWORKS / "quant_cnn", "--platform", "gap9", "--simulator", "gvsoc", "--compare", "all")
    assert done.returncode == ExitCode.WRONG_USAGE and "--simulator host" in done.stderr


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
