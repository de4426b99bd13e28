"""The runtime on the vendor's SDK, as far as it can be tested without: compiled against a stand-in of the SDK's interface, run on one
that is strict about it, and built and run by the command line with a stand-in of the SDK itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from Deeploy.errors import DoesNotFitError, ExitCode, RunError, ToolMissingError, UsageError
from Deeploy.platform.reader import load
from Deeploy.simulate import sdk
from Deeploy.simulate.build import LibraryCache, default_cache
from DeeployTest.support import NETWORKS, ROOT, deeploy, deeploy_json

RUNTIME = ROOT / "Targets/runtime"
GLUE = sorted((RUNTIME / "gap9").glob("*.c"))
C_FILES = ROOT / "DeeployTest/c"
MOCK = C_FILES / "pmsis_mock"
FAKE_SDK = C_FILES / "fake_sdk"
STRICT = ("-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off")
RUN = ("-O0", "-fsanitize=undefined", "-fno-sanitize-recover", "-fno-pie", "-no-pie", "-DDP_PROFILE")
COMPILERS = [name for name in ("gcc", "clang-19") if shutil.which(name)]
HOPS = ("l3_to_l2", "l2_to_l3", "l2_to_l1", "l1_to_l2")

needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None or shutil.which("make") is None, reason="cmake or make is not installed")


def generated(network: str, folder: Path, *options: object) -> Path:
    done = deeploy("generate", NETWORKS / network, "--platform", "gap9", "-o", folder, *options)
    assert done.returncode == 0, done.stderr
    return folder


def call(*command: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


def includes(project: Path) -> list[str]:
    return [f"-I{path}" for path in (MOCK, RUNTIME / "gap9", project, project / "deeploy/include", project / "deeploy/kernels")]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generated("quant_cnn", tmp_path_factory.mktemp("small") / "project", "--home", "L3")


# ---- compiling ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    "defines", [(), ("-DDP_PROFILE",), ("-DDP_FLASH_MRAM", '-DDP_PARTITION="files"', '-DDP_FOLDER="x"')], ids=["plain", "measured", "mram"]
)
def test_the_glue_compiles(compiler: str, defines: tuple[str, ...], small: Path, tmp_path: Path) -> None:
    for source in GLUE:
        done = call(compiler, *STRICT, *defines, *includes(small), "-c", source, "-o", tmp_path / "x.o")
        assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_project_compiles_with_it(compiler: str, small: Path, tmp_path: Path) -> None:
    """As on the chip: nothing defines DP_HOST."""
    for source in (small / "Network.c", *(small / "deeploy/common").glob("*.c"), *(small / "deeploy/kernels").glob("*.c")):
        done = call(compiler, *STRICT, *includes(small), "-c", source, "-o", tmp_path / "x.o")
        assert done.returncode == 0 and not done.stderr, done.stderr
    done = call(compiler, *STRICT, "-Dmain=dp_gap9_program", *includes(small), "-c", small / "main.c", "-o", tmp_path / "x.o")
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_the_mock_declares_only_what_is_used() -> None:
    """A declaration that nobody needs would be one that nobody has looked up."""
    used = "".join(source.read_text() for source in (*GLUE, RUNTIME / "gap9/dp_gap9.h"))
    for header in MOCK.rglob("*.h"):
        for line in header.read_text().splitlines():
            name = line.partition("(")[0].split("*")[-1].split(" ")[-1]
            if line.endswith(");") and name.startswith(("pi_", "pmsis_")):
                assert f"{name}(" in used, f"{header.name}: {name}"


# ---- running ------------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library() -> Path:
    """Glue, stand-in and kernels, compiled once."""
    include = (MOCK, RUNTIME / "gap9", RUNTIME / "include", ROOT / "Targets/kernels")
    sources = [*GLUE, *MOCK.glob("*.c"), *(RUNTIME / "common").glob("*.c"), *(ROOT / "Targets/kernels").glob("*.c")]
    cache = LibraryCache("gcc", "ar", (*STRICT, *RUN), include, default_cache(), (RUNTIME / "common", MOCK))
    return cache.library("sdk-stand-in", [(source, ()) for source in sorted(sources)])


def native(library: Path, sources: Sequence[Path], output: Path, project: Path) -> Path:
    """A program on the stand-in: `sources` has its main, which the runtime calls."""
    compiled = [output.with_name(f"{source.stem}.o") for source in sources]
    for source, target in zip(sources, compiled, strict=True):
        name = () if source.name == "Network.c" else ("-Dmain=dp_gap9_program",)
        done = call("gcc", *STRICT, *RUN, *name, *includes(project), "-c", source, "-o", target)
        assert done.returncode == 0, done.stderr
    done = call("gcc", *RUN, *compiled, library, "-o", output, "-lm", "-lpthread")
    assert done.returncode == 0, done.stderr
    return output


def report_of(stdout: str) -> dict[str, Any]:
    return json.loads(stdout.strip().splitlines()[-1])


@pytest.mark.parametrize(
    "network,options",
    [
        ("quant_cnn", ("--home", "L3")),
        ("quant_cnn", ("--home", "L3", "--l1", 1500, "--l2", 4000, "--buffering", "single")),
        ("quant_cnn", ("--home", "L2", "--cores", 3)),
        ("attention", ("--home", "L3", "--l1", 2000, "--l2", 6000)),
        ("minus_zero_vectors", ()),
    ],
)
def test_networks_are_right(network: str, options: tuple[object, ...], library: Path, tmp_path: Path) -> None:
    """The outputs are the stored ones, and what is moved and loaded is what the host runtime counts."""
    project = generated(network, tmp_path / "project", *options)
    program = native(library, [project / "main.c", project / "Network.c"], tmp_path / "program", project)
    done = call(program, cwd=tmp_path, MOCK_READFS=str(project / "hex"))
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = json.loads((project / "deeploy.json").read_text())["programs"][0]
    golden = np.load(NETWORKS / network / "outputs.npz")
    tensors = {tensor["name"]: tensor for tensor in manifest["tensors"]}
    for k, name in enumerate(manifest["outputs"]):
        tensor = tensors[name]
        got = np.fromfile(tmp_path / f"output_{k}.bin", np.dtype(tensor["dtype"])).reshape(tensor["shape"])
        np.testing.assert_allclose(got.astype(np.float64), golden[tensor["source"]], rtol=1e-5, atol=1e-4)
    host = deeploy_json("run", NETWORKS / network, "--platform", "gap9", "--checks", "none", *options)
    report = report_of(done.stdout)
    assert (report["traffic"], report["l3"], report["forks"]) == (host["traffic"], host["loaded"], host["forks"])
    assert report["steps"] == len(manifest["steps"]) and report["l2"]["files"] >= len(manifest["inputs"])
    steps = np.fromfile(tmp_path / "steps.bin", np.uint32).reshape(-1, 11)
    assert list(steps[:, 0]) == list(range(len(steps))) and len(steps) == report["steps"]
    assert [int(steps[:, k].sum()) for k in range(7, 11)] == [report["traffic"][hop] for hop in HOPS]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "seven.hex").write_bytes(b"0123456")
    (folder / "long.hex").write_bytes(bytes(i % 253 for i in range(9001)))
    return folder


def test_transfers_that_no_small_network_has(library: Path, small: Path, files: Path, tmp_path: Path) -> None:
    program = native(library, [C_FILES / "pmsis_transfers.c"], tmp_path / "program", small)
    done = call(program, cwd=tmp_path, MOCK_READFS=str(files))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "made.bin").read_bytes() == bytes((i * 7 + i // 251) % 256 for i in range(5 + 4096))


def test_a_missing_file_is_an_error_of_the_program(library: Path, small: Path, tmp_path: Path) -> None:
    program = native(library, [small / "main.c", small / "Network.c"], tmp_path / "program", small)
    for environment in ({"MOCK_READFS": str(tmp_path)}, {}):
        done = call(program, cwd=tmp_path, **environment)
        assert done.returncode == 1 and "Init: 2" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    "body,words",
    [
        ("dp_dma d = {0, 0, 0}; dp_dma_l2(&d, l1, far, 8, 1, 8, DP_IN);", "nobody has waited for"),
        ("dp_dma d = {0, 0, 0}; dp_dma_l2(&d, far, far, 8, 1, 8, DP_IN);", "not between L1 and L2"),
        ("dp_l3_read(far, 0x40000000u, 4);", "pi_ram_read on core 8"),
        ("dp_load_file_to_l2(far, far, 1);", "on core 8"),
        ("dp_fork(9, 0, 0);", "number of cores"),
    ],
)
def test_the_stand_in_is_strict(body: str, words: str, library: Path, small: Path, tmp_path: Path) -> None:
    """Otherwise the tests above would show little."""
    main = tmp_path / "wrong.c"
    main.write_text(
        '#include "dp_runtime.h"\nstatic char far[64];\nstatic void *l1;\n'
        f"static void control(void *unused) {{ (void)unused; (void)l1; (void)far; {body} }}\n"
        "int main(int argc, char **argv) { (void)argc; (void)argv; l1 = dp_arena_l1(64); dp_arena_l3(8); dp_cluster_call(control, 0);"
        " dp_arena_l1_free(l1, 64); return 0; }\n"
    )
    done = call(native(library, [main], tmp_path / "program", small), cwd=tmp_path, MOCK_READFS=str(tmp_path))
    assert done.returncode == 99 and words in done.stderr, done.stdout + done.stderr


# ---- the SDK ------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of a stand-in of the SDK; returns the log of its runner."""
    toolchain = tmp_path / "toolchain/bin"
    toolchain.mkdir(parents=True)
    compiler = toolchain / sdk.COMPILER
    compiler.write_text('#!/bin/sh\nexec gcc "$@"\n')
    compiler.chmod(0o755)
    log = tmp_path / "log"
    settings = {"GAP_SDK_HOME": FAKE_SDK, "TARGET_CHIP": "fake", "GAP_RISCV_GCC_TOOLCHAIN": toolchain.parent, "FAKE_SDK_LOG": log}
    for name, value in settings.items():
        monkeypatch.setenv(name, str(value))
    for name in ("KCONFIG_CONFIG", "MAKEFLAGS"):
        monkeypatch.delenv(name, raising=False)
    return log


def run_of(network: str) -> tuple[object, ...]:
    return ("run", NETWORKS / network, "--platform", "gap9", "--home", "L3")


@needs_cmake
@pytest.mark.parametrize("simulator,network,files", [("gvsoc", "quant_cnn", 9), ("board", "minus_zero_vectors", 3)])
def test_a_run_with_the_sdk(simulator: str, network: str, files: int, fake: Path) -> None:
    result = deeploy_json(*run_of(network), "--simulator", simulator, "--rounds", 2)
    assert result["errors"] == 0 and result["simulator"] == simulator and result["outputs"][0]["elements"] > 0
    host = deeploy_json(*run_of(network), "--checks", "none", "--rounds", 2)
    assert result["traffic"] == host["traffic"] and result["forks"] == host["forks"] and result["loaded"] == host["loaded"]
    assert len(result["steps"]) > 0 and result["cycles"] > sum(step["cycles"] for step in result["steps"]) > 0
    assert any("SDK" in note for note in result["notes"])
    lines = fake.read_text().splitlines()
    assert lines[0] == f"--platform=CONFIG_PLATFORM_{simulator.upper()}=y" and lines[1] == "run"
    flash = [line for line in lines if line.startswith("--flash-property=")]
    assert len(flash) == files and all(line.endswith(".hex@flash:readfs:files") for line in flash)


@needs_cmake
def test_runs_that_end_badly(fake: Path, tmp_path: Path) -> None:
    project = generated("minus_zero_vectors", tmp_path / "project", "--home", "L3")
    runner = sdk.SdkRunner(load("gap9"), board=True)
    runner.build(project, project / "hex", tmp_path / "build", 1, 1)
    environment = runner.sdk.environment
    environment["FAKE_SDK_LOSE"] = "input_x.hex"
    with pytest.raises(RunError, match="cannot load input_x.hex"):
        runner.run(tmp_path / "build", tmp_path, 60)
    environment["FAKE_SDK_LOSE"] = "nothing"
    environment["FAKE_SDK_HANG"] = str(tmp_path / "pid")
    with pytest.raises(RunError, match="no end after 3 s") as caught:
        runner.run(tmp_path / "build", tmp_path, 3)
    assert caught.value.exit_code == ExitCode.BAD_RUN
    command = Path(f"/proc/{(tmp_path / 'pid').read_text()}/cmdline")
    assert not command.exists() or not command.read_bytes()  # gone, or dead and not yet collected
    del environment["FAKE_SDK_HANG"]
    done = runner.run(tmp_path / "build", tmp_path, 60)
    assert done.report["status"] == 0 and (tmp_path / "output_0.bin").is_file() and len(done.steps) == 1


@needs_cmake
def test_projects_that_the_sdk_does_not_build(small: Path, fake: Path, tmp_path: Path) -> None:
    runner = sdk.SdkRunner(load("gap9"), board=False)
    broken = tmp_path / "broken"
    shutil.copytree(small, broken)
    (broken / "Network.c").write_text("int x = y;\n")
    with pytest.raises(RunError, match="does not build"):
        runner.build(broken, broken / "hex", tmp_path / "build", 1, 1)
    compiler = Path(os.environ["GAP_RISCV_GCC_TOOLCHAIN"]) / "bin" / sdk.COMPILER
    compiler.write_text('#!/bin/sh\necho "ld: region \\`L2\' overflowed by 4711 bytes" >&2\nexit 1\n')
    with pytest.raises(DoesNotFitError, match="4711 bytes too large for L2"):
        runner.build(small, small / "hex", tmp_path / "other", 1, 1)


@needs_cmake
def test_the_command_lines(fake: Path, tmp_path: Path) -> None:
    for board, where in ((False, "GVSOC"), (True, "BOARD")):
        runner = sdk.SdkRunner(load("gap9"), board)
        configure, build = runner.build_commands(tmp_path / "p", tmp_path / "f", tmp_path / "b", 3, 24)
        assert configure[1:5] == ("-S", str(RUNTIME / "gap9"), "-B", str(tmp_path / "b"))
        settings = {f"-DDEEPLOY_PROJECT={tmp_path}/p", f"-DDEEPLOY_FILES={tmp_path}/f", "-DDEEPLOY_ROUNDS=3", "-DDEEPLOY_STEPS=24"}
        assert {*settings, f"-DCONFIG_PLATFORM_{where}=y"} == set(configure[5:])
        assert build[1:3] == ("--build", str(tmp_path / "b"))
        assert runner.run_command(tmp_path / "b")[1:] == ("--build", str(tmp_path / "b"), "--target", "deeploy_run")
        assert runner.sdk.environment["KCONFIG_CONFIG"] == "sdk.config"


@needs_cmake
def test_an_sdk_that_is_not_sound(fake: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert sdk.find_sdk().home == FAKE_SDK
    for name, value, words in (
        ("GAP_RISCV_GCC_TOOLCHAIN", tmp_path, sdk.COMPILER),
        ("TARGET_CHIP", "", "environment of the SDK"),
        ("GAP_SDK_HOME", tmp_path, "no SDK"),
        ("GAP_SDK_HOME", "", "GAP_SDK_HOME is not set"),
    ):
        monkeypatch.setenv(name, str(value))
        with pytest.raises(ToolMissingError, match=words) as caught:
            sdk.find_sdk()
        assert "source its configs" in str(caught.value)


def test_without_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GAP_SDK_HOME", raising=False)
    done = deeploy(*run_of("quant_cnn"), "--simulator", "board")
    assert done.returncode == ExitCode.TOOL_MISSING, done.stdout + done.stderr
    assert "SDK is not installed" in done.stderr and "GAP_SDK_HOME" in done.stderr
    done = deeploy("doctor", "--json")
    (finding,) = (tool for tool in json.loads(done.stdout)["tools"] if tool["tool"] == "vendor SDK")
    assert not finding["found"] and not finding["needed"] and "GAP_SDK_HOME" in finding["remedy"]


def test_a_platform_without_an_sdk() -> None:
    with pytest.raises(UsageError, match="no SDK for the platform"):
        sdk.SdkRunner(load("pulp-open"), board=True)
    done = deeploy("run", NETWORKS / "quant_cnn", "--platform", "pulp-open", "--simulator", "board")
    assert done.returncode == ExitCode.WRONG_USAGE and "--simulator host" in done.stderr
