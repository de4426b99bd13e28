"""GVSoC: finds it, keeps its description of a platform, runs programs on it and reads what they measured."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from Deeploy.errors import DeeployError, DefectError, DoesNotFitError, Problem, RunError, ToolMissingError, UsageError
from Deeploy.platform.reader import Platform, targets_dir
from Deeploy.program.tensor import Level
from Deeploy.simulate.build import MAX_LINES, call_tool, counters, default_cache, make_cache, run_group
from Deeploy.simulate.chip import ARCHITECTURE, ChipSizes, find_toolchain, write_flash

REMEDY = "build GVSoC (github.com/gvsoc/gvsoc) with the target that README.md names and set GVSOC_HOME to the folder it is installed in"
FRONT_END_SECONDS = 120.0
TRAP_STATUS = 70
STACK_STATUS = 73

_STEP = struct.Struct("<11I")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_REFUSED = re.compile(r"^\w+_(?:Init|Run\w*): 1$", re.M)
"""A status of the network that main.c prints: NO_MEMORY."""
_NO_MEMORY = re.compile(r"Invalid access|out-of-bound")
_START_PROGRAM = ".globl _start\n_start: li t0, 0x1A1040A0\nli t1, 0x80000000\nsw t1, 0(t0)\n1: j 1b\n"


@dataclass(frozen=True)
class StepCycles:
    """What one run of one step took, in cluster cycles: in all, while the workers computed, while the controller waited for the DMA of a
    level, and what forks and joins took. The rest: forks, and bytes moved per hop as the host counts them."""

    step: int
    cycles: int
    compute: int
    wait_l2: int
    wait_l3: int
    fork_join: int
    forks: int
    l3_to_l2: int
    l2_to_l3: int
    l2_to_l1: int
    l1_to_l2: int

    @property
    def control(self) -> int:
        """The controller's own work: geometry of tiles, programming of transfers."""
        return self.cycles - self.compute - self.wait_l2 - self.wait_l3


@dataclass(frozen=True)
class GvsocRun:
    """A run that ended well. report: the runtime's counters; steps: of all rounds, in the order in which they ran."""

    stdout: str
    seconds: float
    report: dict[str, Any]
    steps: tuple[StepCycles, ...]


def find_gvsoc() -> Path:
    """The folder of the installation: $GVSOC_HOME, that of gvsoc_launcher on the PATH, or ~/gvsoc/install. Raises ToolMissingError."""
    named = os.environ.get("GVSOC_HOME")
    on_path = shutil.which("gvsoc_launcher")
    candidates = [Path(named)] if named else []
    if on_path:
        candidates.append(Path(on_path).resolve().parent.parent)
    candidates.append(Path.home() / "gvsoc" / "install")
    for home in candidates:
        if (home / "bin" / "gvsoc_launcher").is_file():
            return home.absolute()
    where = "looked in GVSOC_HOME, on the PATH and in ~/gvsoc/install"
    raise ToolMissingError(Problem("the simulator GVSoC is not installed", where, REMEDY))


def chip_sizes(platform: Platform) -> ChipSizes:
    """What the simulated chip has of L1 and L3."""
    l1, l3 = (platform.levels[level].bytes for level in (Level.L1, Level.L3))
    return ChipSizes(l1, l3)


class Gvsoc:
    """The simulator for one platform.

    Raises ToolMissingError if something is not installed, UsageError for a platform without a GVSoC target.
    """

    def __init__(self, platform: Platform, cache: Path | None = None) -> None:
        if not platform.gvsoc_target:
            remedy = "use another simulator, or name the target in the platform file: gvsoc_target"
            raise UsageError(Problem(f"platform '{platform.name}' has no GVSoC target", remedy=remedy))
        self.home = find_gvsoc()
        self.target = platform.gvsoc_target
        self.cache = cache if cache is not None else default_cache()
        self.description = self._described()

    def run(self, program: Path, files: Iterable[Path], folder: Path, timeout: float) -> GvsocRun:
        """Runs the ELF file in the empty folder `folder`, where it also leaves its files. files: what the flash holds.

        Raises RunError if it ends with another status than 0, or not within `timeout` seconds; no process is left behind.
        """
        write_flash(folder / "hyperflash.bin", files)
        place = json.dumps(str(program.resolve()))[1:-1]
        text = self.description.read_text().replace(_placeholder(self.description), place)
        config = folder / "gvsoc_config.json"
        config.write_text(text)
        libraries = [str(self.home / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
        environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, libraries))}
        begin = time.monotonic()
        command = [str(self.home / "bin" / "gvsoc_launcher"), f"--config={config.resolve()}"]
        try:
            status, stdout, stderr = run_group(command, environment, folder, timeout)
        finally:
            (folder / "hyperflash.bin").unlink(missing_ok=True)
        text = _COLOUR.sub("", stdout + stderr)
        if status != 0:
            raise _run_error(status, text, timeout)
        report = counters(text)
        if report is None:
            raise DefectError(f"the program printed no counters: {text[-300:]}")
        return GvsocRun(stdout, time.monotonic() - begin, report, read_steps(folder / "steps.bin"))

    def _described(self) -> Path:
        """The description of the target, made once by GVSoC's front-end (0.7 s) and cached."""
        own = targets_dir() / "runtime" / "pulp" / f"{self.target}.py"
        launcher = (self.home / "bin" / "gvsoc_launcher").stat()
        key = hashlib.sha256(f"{self.home} {launcher.st_mtime_ns} {launcher.st_size} {self.target}".encode())
        if own.is_file():
            key.update(own.read_bytes())
        path = self.cache / f"gvsoc-{self.target}-{key.hexdigest()[:24]}.json"
        if path.is_file():
            path.touch()  # unused descriptions go after a while
            return path
        make_cache(self.cache)
        with tempfile.TemporaryDirectory(dir=self.cache) as folder:
            work = Path(folder)
            program = work / _placeholder(path)
            self._start_program(program)
            self._front_end(program, work)
            made = work / "gvsoc_config.json"
            text = made.read_text()
            if str(program) not in text:
                raise DefectError("GVSoC's description of the platform does not name the program")
            made.write_text(text.replace(str(program), program.name))
            os.replace(made, path)
        return path

    def _start_program(self, program: Path) -> None:
        """A program that ends at once: the front-end wants one, and runs it."""
        tools = find_toolchain()
        source = program.with_suffix(".S")
        source.write_text(_START_PROGRAM)
        call_tool([tools.clang, *ARCHITECTURE, "-c", str(source), "-o", str(program.with_suffix(".o"))])
        call_tool([tools.lld, "-Ttext=0x1C010000", str(program.with_suffix(".o")), "-o", str(program)])

    def _front_end(self, program: Path, work: Path) -> None:
        own = ["--target-dir", str(targets_dir() / "runtime" / "pulp"), "--target", self.target]
        command = [str(self.home / "bin" / "gvsoc"), *own, "--binary", str(program), "--work-dir", str(work), "run"]
        errors = []
        # Its modules may be in a Python of their own.
        for python in ("", str(Path(sys.executable).parent), str(self.home.parent / "venv" / "bin")):
            path = ":".join(filter(None, [python, os.environ.get("PATH", "")]))
            _, stdout, stderr = run_group(command, {**os.environ, "PATH": path}, work, FRONT_END_SECONDS)
            if (work / "gvsoc_config.json").is_file():
                return
            errors.append("\n".join((stderr or stdout).strip().splitlines()[-3:]))
        what = f"GVSoC cannot describe the target {self.target}"
        if all("ModuleNotFoundError" in error for error in errors):
            raise ToolMissingError(Problem(what, errors[0], "its front-end needs Python packages: pip install -e '.[gvsoc]'"))
        raise RunError(Problem(what, next(error for error in errors if "ModuleNotFoundError" not in error)))


def _placeholder(description: Path) -> str:
    """What stands for the program in a cached description."""
    return f"program-{description.stem}"


def no_memory(text: str) -> DoesNotFitError | None:
    """What main.c has printed if the network did not get the memory that it needs."""
    if not _REFUSED.search(text):
        return None
    what = "the program did not get the memory that the plan gives it"
    why = "code, tables and other data of the program take more of L2 than is reserved for them"
    return DoesNotFitError(Problem(what, why, "store constants in L3 (--home L3), or give the data less memory (--l2)"))


def _run_error(status: int | None, text: str, timeout: float) -> DeeployError:
    lines = text.strip().splitlines()
    if (full := no_memory(text)) is not None:
        return full
    if status is None:
        what = f"no end after {timeout:g} s"
    elif status == TRAP_STATUS:
        what = "a core of the chip trapped"
        lines = [line for line in lines if line.startswith("TRAP")] or lines
    elif status == STACK_STATUS:
        what = "a stack of the chip overflowed"
        lines = [line for line in lines if line.startswith("STACK")] or lines
    elif any(_NO_MEMORY.search(line) for line in lines):
        what = "the program accessed memory that is not there"
        lines = [line.strip() for line in lines if _NO_MEMORY.search(line)]
    else:
        what = f"the program ended with status {status}" if status >= 0 else f"the simulator was ended by signal {-status}"
    return RunError(Problem(f"{what} (simulator gvsoc)", "\n".join(line for line in lines[-MAX_LINES:])))


def read_steps(path: Path) -> tuple[StepCycles, ...]:
    """What the runtime has left of its steps; nothing if there is no such file."""
    data = path.read_bytes() if path.exists() else b""
    return tuple(StepCycles(*values) for values in _STEP.iter_unpack(data[: len(data) // _STEP.size * _STEP.size]))
