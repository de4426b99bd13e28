"""The vendor's SDK: finds it, builds projects with it, and runs them on its own simulator or on a board.

Each runtime that stands on an SDK brings a CMake project (Targets/runtime/<runtime>/CMakeLists.txt), which takes the generated project as
DEEPLOY_PROJECT and has the target `deeploy_run`. Everything about the chip is in there.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from Deeploy.errors import DeeployError, DoesNotFitError, Problem, RunError, ToolMissingError, UsageError
from Deeploy.platform.reader import Platform, targets_dir
from Deeploy.simulate.build import MAX_LINES, counters, run_group
from Deeploy.simulate.gvsoc import GvsocRun, no_memory, read_steps

REMEDY = "install the vendor's SDK and its compiler, and source its configs/<board>.sh, which sets GAP_SDK_HOME and the PATH"
COMPILER = "riscv32-unknown-elf-gcc"
BUILD_SECONDS = 1800.0
"""For building the SDK's operating system with a project: minutes on a slow machine."""

_BOARD_VARIABLES = ("TARGET_CHIP", "BOARD_NAME", "GAPY_TARGET")
"""At least one of them is set by the configuration of a board, in every release."""
_FULL = re.compile(r"region [`'](\w+)' overflowed by (\d+) bytes")
_STEPS = "steps.bin"
_LEFT = ("output_*.bin", "state_*.bin", _STEPS)
"""Files that a program leaves."""


@dataclass(frozen=True)
class Sdk:
    """An SDK whose environment is set up. environment: for its tools."""

    home: Path
    cmake: str
    environment: dict[str, str]


def find_sdk() -> Sdk:
    """The SDK in $GAP_SDK_HOME, with its compiler and the configuration of a board. Raises ToolMissingError."""
    named = os.environ.get("GAP_SDK_HOME")
    if not named:
        raise ToolMissingError(Problem("the vendor's SDK is not installed", "GAP_SDK_HOME is not set", REMEDY))
    home = Path(named)
    if not (home / "utils/cmake/setup.cmake").is_file():
        raise ToolMissingError(Problem(f"GAP_SDK_HOME is no SDK: '{home}'", "it has no utils/cmake/setup.cmake", REMEDY))
    if not any(os.environ.get(name) for name in _BOARD_VARIABLES):
        raise ToolMissingError(
            Problem(f"the environment of the SDK in '{home}' is not set up", f"none of {', '.join(_BOARD_VARIABLES)} is set", REMEDY)
        )
    environment = {**os.environ, "KCONFIG_CONFIG": os.environ.get("KCONFIG_CONFIG") or "sdk.config"}
    toolchain = os.environ.get("GAP_RISCV_GCC_TOOLCHAIN")
    if toolchain:
        environment["PATH"] = f"{Path(toolchain) / 'bin'}:{environment.get('PATH', '')}"
    if shutil.which(COMPILER, path=environment.get("PATH")) is None:
        raise ToolMissingError(Problem(f"the SDK's compiler '{COMPILER}' is not installed", "it is not on the PATH", REMEDY))
    cmake = shutil.which("cmake", path=environment.get("PATH"))
    if cmake is None:
        raise ToolMissingError(Problem("'cmake' is not installed", "the SDK builds with it", "install it (Debian: apt install cmake)"))
    return Sdk(home.absolute(), cmake, environment)


def glue_of(platform: Platform) -> Path | None:
    """The CMake project that builds for the platform with the SDK; None if its runtime has none."""
    folder = targets_dir() / "runtime" / platform.runtime
    return folder if (folder / "CMakeLists.txt").is_file() else None


class SdkRunner:
    """Builds and runs projects with the SDK: on its simulator, or on a board.

    Raises ToolMissingError if it is not installed, UsageError for a platform that it does not know.
    """

    def __init__(self, platform: Platform, board: bool) -> None:
        glue = glue_of(platform)
        if glue is None:
            raise UsageError(
                Problem(f"there is no SDK for the platform '{platform.name}'", remedy="use --simulator host or --simulator gvsoc")
            )
        self.glue, self.board, self.sdk = glue, board, find_sdk()

    @property
    def name(self) -> str:
        return "board" if self.board else "gvsoc of the SDK"

    def build(self, project: Path, files: Path, build: Path, rounds: int, steps: int) -> None:
        """Builds the project in the folder `build`, which may have been used before.

        files: the folder of what the flash is to hold. rounds: what main is told. steps: how many steps the programs have.
        Raises DoesNotFitError if it is too large for a memory, RunError if the SDK does not build it.
        """
        for command in self.build_commands(project, files, build, rounds, steps):
            status, stdout, stderr = run_group(command, self.sdk.environment, None, BUILD_SECONDS)
            if status == 0:
                continue
            text = stdout + stderr
            full = _FULL.search(text)
            if full:
                remedy = "store constants in L3 (--home L3), or give the data less memory (--l2)"
                raise DoesNotFitError(Problem(f"the program is {full[2]} bytes too large for {full[1]}", remedy=remedy))
            lines = [line for line in text.splitlines() if "error" in line.lower()] or text.splitlines()[-MAX_LINES:]
            what = "the SDK does not build the project" if status is not None else f"the SDK's build has no end after {BUILD_SECONDS:g} s"
            raise RunError(Problem(what, "\n".join(lines[:MAX_LINES])))

    def build_commands(self, project: Path, files: Path, build: Path, rounds: int, steps: int) -> list[Sequence[str]]:
        """What `build` calls."""
        where = "-DCONFIG_PLATFORM_BOARD=y" if self.board else "-DCONFIG_PLATFORM_GVSOC=y"
        settings = (f"-DDEEPLOY_PROJECT={project.resolve()}", f"-DDEEPLOY_FILES={files.resolve()}", f"-DDEEPLOY_ROUNDS={rounds}")
        configure = (self.sdk.cmake, "-S", str(self.glue), "-B", str(build), *settings, f"-DDEEPLOY_STEPS={max(steps, 1)}", where)
        return [configure, (self.sdk.cmake, "--build", str(build), "--parallel", str(os.cpu_count() or 1))]

    def run_command(self, build: Path) -> Sequence[str]:
        """What `run` calls: the SDK's target makes the flash image, writes it to the flash and starts the program."""
        return (self.sdk.cmake, "--build", str(build), "--target", "deeploy_run")

    def run(self, build: Path, folder: Path, timeout: float) -> GvsocRun:
        """Runs what `build` has built and moves the files that it leaves to `folder`.

        Raises RunError if it ends with another status than 0, or not within `timeout` seconds; no process is left behind.
        """
        for old in _left(build):
            old.unlink()
        begin = time.monotonic()
        status, stdout, stderr = run_group(self.run_command(build), self.sdk.environment, build, timeout)
        seconds = time.monotonic() - begin
        report = counters(stdout)
        if status != 0 or report is None or report["status"] != 0:
            raise self._run_error(status, None if report is None else int(report["status"]), stdout + stderr, timeout)
        for made in _left(build):
            shutil.move(made, folder / made.name)
        return GvsocRun(stdout, seconds, report, read_steps(folder / _STEPS))

    def _run_error(self, status: int | None, own: int | None, text: str, timeout: float) -> DeeployError:
        if (full := no_memory(text)) is not None:
            return full
        if status is None:
            what = f"no end after {timeout:g} s"
        elif own:
            what = f"the program ended with status {own}"
        elif status != 0:
            what = f"the SDK's runner ended with status {status}"
        else:
            what = "the program printed no counters"
        return RunError(Problem(f"{what} (simulator {self.name})", "\n".join(text.strip().splitlines()[-MAX_LINES:])))


def _left(build: Path) -> list[Path]:
    return [path for pattern in _LEFT for path in build.glob(pattern)]
