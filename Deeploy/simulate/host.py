"""Builds C programs against the host runtime in one of its check modes, runs them, and turns whatever goes wrong into one clear error.

Runtime and kernels are compiled once per (compiler, flags, content) and cached as objects and as a static library; the cache may be
shared by any number of processes.
"""

from __future__ import annotations

import os
import platform
import re
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from Deeploy.errors import Problem, RunError, UsageError
from Deeploy.platform.reader import targets_dir
from Deeploy.simulate.build import MAX_LINES, LibraryCache, call_tool, counters, default_cache, find_tool, run_group

HOSTRT_STATUS = 71
"""Exit status of a failed check of the runtime; DP_HOST_FAILED in dp_host.h."""
SANITIZER_STATUS = 72
DEFAULT_TIMEOUT = 600.0

COMMON_FLAGS = ("-std=c11", "-g", "-DDP_HOST", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror")


class CheckMode(Enum):
    """How the host runtime watches transfers and memory."""

    NONE = "none"
    LAZY = "lazy"
    EAGER = "eager"
    TSAN = "tsan"


ALL_CHECKS = (CheckMode.LAZY, CheckMode.EAGER, CheckMode.TSAN)


@dataclass(frozen=True)
class Flavour:
    """How C is compiled for a check mode. `quiet`: flags instead of `flags` for the runtime's own files (not instrumented). `link`: flags
    for linking alone."""

    name: str
    flags: tuple[str, ...]
    quiet: tuple[str, ...]
    link: tuple[str, ...] = ()


_PLAIN = Flavour("plain", ("-O2",), ("-O2",))
_ADDRESS_FLAGS = ("-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DDP_HOST_ASAN")
_ADDRESS = Flavour("address", _ADDRESS_FLAGS, _ADDRESS_FLAGS)
# dp_host_race.c looks at every access before the sanitizer does.
_WATCHED = tuple(f"-Wl,--wrap=__tsan_{access}{size}" for access in ("read", "write") for size in (1, 2, 4, 8))
_THREAD = Flavour("thread", ("-O1", "-fsanitize=thread", "-DDP_HOST_TSAN"), ("-O1", "-DDP_HOST_TSAN"), _WATCHED)
FLAVOURS: Mapping[CheckMode, Flavour] = {
    CheckMode.NONE: _PLAIN,
    CheckMode.LAZY: _ADDRESS,
    CheckMode.EAGER: _ADDRESS,
    CheckMode.TSAN: _THREAD,
}
INSTRUMENTED = ("agent.c",)
"""Files of the host runtime that ThreadSanitizer instruments: the transfers as it sees them."""


def checks_named(name: str) -> tuple[CheckMode, ...]:
    """The modes that `--checks NAME` stands for; raises UsageError."""
    if name == "all":
        return ALL_CHECKS
    try:
        return (CheckMode(name),)
    except ValueError:
        known = ", ".join([mode.value for mode in CheckMode] + ["all"])
        raise UsageError(Problem(f"'{name}' is not a check mode", remedy=f"use one of {known}")) from None


@dataclass(frozen=True)
class HostRun:
    """A run that ended well. `report`: the runtime's counters (dp_host_report), if the program printed them."""

    check: CheckMode
    status: int
    stdout: str
    stderr: str
    seconds: float
    report: dict[str, Any] | None


class HostBuilder:
    """Compiles against the host runtime.

    compiler: name or path of gcc or clang. cache: folder; default below $XDG_CACHE_HOME or ~/.cache. targets: the folder Targets;
    default: the one that belongs to this package.
    """

    def __init__(self, compiler: str = "gcc", cache: Path | None = None, targets: Path | None = None) -> None:
        self.compiler = find_tool(compiler, "the host simulator compiles the project with it")
        self.cache = cache if cache is not None else default_cache()
        self.targets = targets if targets is not None else targets_dir()
        ar = find_tool("ar", "the host simulator builds its library with it")
        common = self.targets / "runtime" / "common"
        self._objects = LibraryCache(self.compiler, ar, COMMON_FLAGS, self.include_dirs, self.cache, (common,))

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        return (self.targets / "runtime" / "include", self.targets / "runtime" / "host", self.targets / "kernels")

    def library(self, check: CheckMode) -> Path:
        """The static library of runtime and kernels for a check mode, compiled unless it is in the cache."""
        flavour = FLAVOURS[check]
        host = self.targets / "runtime" / "host"
        sources = []
        for source in self._library_sources():
            quiet = source.parent == host and source.name not in INSTRUMENTED
            sources.append((source, flavour.quiet if quiet else flavour.flags))
        return self._objects.library(f"host-{flavour.name}", sources)

    def build(
        self,
        sources: Sequence[Path],
        check: CheckMode,
        output: Path,
        include: Sequence[Path] = (),
        flags: Sequence[str] = (),
    ) -> Path:
        """Compiles and links C sources into the executable `output`, which appears only when complete.

        Raises ToolMissingError, or DefectError with the compiler's first messages: the sources are generated, so they are ours.
        """
        library = self.library(check)
        output.parent.mkdir(parents=True, exist_ok=True)
        dirs = [f"-I{path}" for path in (*include, *self.include_dirs)]
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=".build-") as folder:
            binary = Path(folder) / "program"
            command = [self.compiler, *COMMON_FLAGS, *FLAVOURS[check].flags, *flags, *dirs]
            call_tool([*command, *map(str, sources), str(library), *FLAVOURS[check].link, "-lm", "-o", str(binary)])
            os.replace(binary, output)
        return output

    def build_project(self, project: Path, check: CheckMode, output: Path, flags: Sequence[str] = ()) -> Path:
        """Compiles and links all C files directly in the folder `project`."""
        sources = sorted(project.glob("*.c"))
        if not sources:
            raise UsageError(Problem(f"there is no C file in '{project}'", remedy="give a folder that `deeploy generate` wrote"))
        return self.build(sources, check, output, include=(project,), flags=flags)

    def _library_sources(self) -> list[Path]:
        runtime = self.targets / "runtime"
        folders = (runtime / "common", runtime / "host", self.targets / "kernels")
        return [source for folder in folders for source in sorted(folder.rglob("*.c"))]


def run_program(
    executable: Path,
    check: CheckMode,
    *,
    arguments: Sequence[str] = (),
    folder: Path | None = None,
    files: Path | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    seed: int = 1,
    accept: Sequence[int] = (0,),
    environment: Mapping[str, str] | None = None,
) -> HostRun:
    """Runs a program built by HostBuilder with the checks of `check`.

    folder: where it runs. files: where it finds its data files. timeout: seconds, then the whole process group is killed.
    seed: of the order in which cores run. accept: exit statuses that are an answer. environment: variables to add. Raises RunError
    for everything else.
    """
    environment = {**os.environ, **(environment or {})}
    environment.update(DP_HOST_CHECK=check.value, DP_HOST_SEED=str(seed))
    environment["ASAN_OPTIONS"] = f"detect_leaks=0:abort_on_error=0:detect_stack_use_after_return=0:exitcode={SANITIZER_STATUS}"
    environment["UBSAN_OPTIONS"] = f"print_stacktrace=1:halt_on_error=1:exitcode={SANITIZER_STATUS}"
    environment["TSAN_OPTIONS"] = f"halt_on_error=1:report_signal_unsafe=0:atexit_sleep_ms=0:exitcode={SANITIZER_STATUS}"
    if files is not None:
        environment["DP_HOST_FILES"] = str(files.resolve())
    command = [str(executable.resolve()), *arguments]
    start = time.monotonic()
    status, stdout, stderr = run_group(command, environment, folder, timeout)
    if check is CheckMode.TSAN and "unexpected memory mapping" in stderr:
        # Older ThreadSanitizers cannot live with much address space randomisation.
        setarch = find_tool("setarch", "this ThreadSanitizer starts only without address space randomisation")
        status, stdout, stderr = run_group([setarch, platform.machine(), "-R", *command], environment, folder, timeout)
    if status is None or status not in accept or _SANITIZER.search(stderr) or "HOSTRT: " in stderr:
        raise _run_error(check, status, stderr, timeout)
    return HostRun(check, status, stdout, stderr, time.monotonic() - start, counters(stdout))


_SANITIZER = re.compile(r"ERROR: AddressSanitizer|runtime error: |WARNING: ThreadSanitizer|AddressSanitizer:DEADLYSIGNAL")
_ESSENTIAL = re.compile(
    r"HOSTRT: |ERROR: AddressSanitizer|runtime error: |WARNING: ThreadSanitizer|^\s*(READ|WRITE|Read|Write|Previous) .*of size|^SUMMARY"
)
_FRAME = re.compile(r"^\s*#[0-3] ")


def _run_error(check: CheckMode, status: int | None, stderr: str, timeout: float) -> RunError:
    if status is None:
        what = f"no end after {timeout:g} s"
    elif "HOSTRT: " in stderr:
        what = "a check of the host runtime failed"
    elif _SANITIZER.search(stderr):
        what = "a sanitizer found a defect"
    elif status < 0:
        what = f"the program was ended by signal {signal.Signals(-status).name}"
    else:
        what = f"the program ended with status {status}"
    return RunError(Problem(f"{what} (checks {check.value})", why=essential_lines(stderr)))


def essential_lines(stderr: str) -> str:
    """The lines of a sanitizer's or the runtime's output that say what happened and where, without folders and process numbers."""
    kept: list[str] = []
    for line in stderr.splitlines():
        if _ESSENTIAL.search(line) or _FRAME.match(line):
            line = re.sub(r"^==\d+==|\(pid=\d+\)|\(BuildId: [0-9a-f]+\)", "", line)
            kept.append(re.sub(r"(?:/[^\s/:()]+)+/([^\s/:()]+)", r"\1", line).strip())
    if not kept:
        kept = stderr.strip().splitlines()[-MAX_LINES:]
    return "\n".join(kept[:MAX_LINES])
