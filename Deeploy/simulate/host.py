"""Builds C programs against the host runtime in one of its check modes, runs them, and turns whatever goes wrong into one clear error.

Runtime and kernels are compiled once per (compiler, flags, content) and cached as objects and as a static library; the cache may be
shared by any number of processes.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from Deeploy.errors import DefectError, Problem, RunError, ToolMissingError, UsageError
from Deeploy.platform.reader import targets_dir

HOSTRT_STATUS = 71
"""Exit status of a failed check of the runtime; DP_HOST_FAILED in dp_host.h."""
SANITIZER_STATUS = 72
DEFAULT_TIMEOUT = 600.0
CACHE_DAYS = 14

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
    report: dict[str, object] | None


class HostBuilder:
    """Compiles against the host runtime.

    compiler: name or path of gcc or clang. cache: folder; default below $XDG_CACHE_HOME or ~/.cache. targets: the folder Targets;
    default: the one that belongs to this package.
    """

    def __init__(self, compiler: str = "gcc", cache: Path | None = None, targets: Path | None = None) -> None:
        self.compiler = _find_tool(compiler, "the host simulator compiles the project with it")
        self.cache = cache if cache is not None else default_cache()
        self.targets = targets if targets is not None else targets_dir()
        self._version: str | None = None

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        return (self.targets / "runtime" / "include", self.targets / "runtime" / "host", self.targets / "kernels")

    def library(self, check: CheckMode) -> Path:
        """The static library of runtime and kernels for a check mode, compiled unless it is in the cache."""
        flavour = FLAVOURS[check]
        headers = self._headers_digest()
        host = self.targets / "runtime" / "host"
        jobs: list[tuple[Path, tuple[str, ...], str]] = []
        for source in self._library_sources():
            flags = flavour.quiet if source.parent == host and source.name not in INSTRUMENTED else flavour.flags
            jobs.append((source, flags, self._digest(headers, " ".join(flags), source.name, source.read_bytes())))
        key = self._digest(flavour.name, *(key for _, _, key in jobs))
        library = self.cache / f"host-{flavour.name}-{key[:24]}.a"
        if _touch(library):
            return library
        self._make_cache()
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            objects = list(pool.map(lambda job: self._object(*job), jobs))
        with tempfile.TemporaryDirectory(dir=self.cache) as folder:
            archive = Path(folder) / "lib.a"
            ar = _find_tool("ar", "the host simulator builds its library with it")
            # Members are named by key: two kernels in different folders may have the same file name.
            _compile([ar, "rcsD", str(archive), *map(str, objects)])
            os.replace(archive, library)
        self._prune()
        return library

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
            _compile([*command, *map(str, sources), str(library), *FLAVOURS[check].link, "-lm", "-o", str(binary)])
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

    def _headers_digest(self) -> str:
        parts: list[str | bytes] = []
        for folder in (*self.include_dirs, self.targets / "runtime" / "common"):
            for header in sorted(folder.rglob("*.h")):
                parts += [str(header.relative_to(folder)), header.read_bytes()]
        return self._digest(*parts)

    def _digest(self, *parts: str | bytes) -> str:
        if self._version is None:
            self._version = _compile([self.compiler, "--version"])
        digest = hashlib.sha256()
        for part in (self.compiler, self._version, " ".join(COMMON_FLAGS), *parts):
            data = part.encode() if isinstance(part, str) else part
            digest.update(len(data).to_bytes(8, "little") + data)
        return digest.hexdigest()

    def _object(self, source: Path, flags: tuple[str, ...], key: str) -> Path:
        target = self.cache / f"{source.stem}-{key[:24]}.o"
        if not _touch(target):
            with tempfile.TemporaryDirectory(dir=self.cache) as folder:
                made = Path(folder) / "made.o"
                dirs = [f"-I{path}" for path in self.include_dirs]
                _compile([self.compiler, *COMMON_FLAGS, *flags, *dirs, "-c", str(source), "-o", str(made)])
                os.replace(made, target)
        return target

    def _make_cache(self) -> None:
        try:
            self.cache.mkdir(parents=True, exist_ok=True)
            if not os.access(self.cache, os.W_OK | os.X_OK):
                raise PermissionError("no permission to write")
        except OSError as error:
            raise UsageError(
                Problem(f"the cache folder '{self.cache}' cannot be made", why=str(error), remedy="set XDG_CACHE_HOME to a writable folder")
            ) from None

    def _prune(self) -> None:
        """Removes what has not been used for long; another process may be removing the same files."""
        oldest = time.time() - CACHE_DAYS * 86400
        for entry in self.cache.glob("*.[ao]"):
            try:
                if entry.stat().st_mtime < oldest:
                    entry.unlink()
            except OSError:
                continue


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
    status, stdout, stderr = _run_group(command, environment, folder, timeout)
    if check is CheckMode.TSAN and "unexpected memory mapping" in stderr:
        # Older ThreadSanitizers cannot live with much address space randomisation.
        setarch = _find_tool("setarch", "this ThreadSanitizer starts only without address space randomisation")
        status, stdout, stderr = _run_group([setarch, platform.machine(), "-R", *command], environment, folder, timeout)
    if status is None or status not in accept or _SANITIZER.search(stderr) or "HOSTRT: " in stderr:
        raise _run_error(check, status, stderr, timeout)
    return HostRun(check, status, stdout, stderr, time.monotonic() - start, _report(stdout))


def default_cache() -> Path:
    """Where libraries are kept: deeploy below $XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "deeploy"


_SANITIZER = re.compile(r"ERROR: AddressSanitizer|runtime error: |WARNING: ThreadSanitizer|AddressSanitizer:DEADLYSIGNAL")
_ESSENTIAL = re.compile(
    r"HOSTRT: |ERROR: AddressSanitizer|runtime error: |WARNING: ThreadSanitizer|^\s*(READ|WRITE|Read|Write|Previous) .*of size|^SUMMARY"
)
_FRAME = re.compile(r"^\s*#[0-3] ")
_MISSING_LIBRARY = re.compile(r"lib(?:asan|ubsan|tsan)_preinit\.o|-l(?:asan|ubsan|tsan)\b|libclang_rt\.[\w.-]+")
_MAX_LINES = 16


def _find_tool(name: str, why: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ToolMissingError(Problem(f"'{name}' is not installed", why=why, remedy="install it, or name another compiler"))
    return found


def _touch(path: Path) -> bool:
    """Whether the file is there; marks it as used."""
    try:
        os.utime(path)
    except OSError:
        return path.exists()
    return True


def _compile(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        missing = _MISSING_LIBRARY.search(done.stderr)
        if missing:
            raise ToolMissingError(Problem(f"'{missing[0]}' is not installed", why=f"'{command[0]}' needs it for sanitizers"))
        lines = [line for line in done.stderr.splitlines() if "error" in line or "undefined reference" in line] or done.stderr.splitlines()
        raise DefectError(Problem(f"'{Path(command[0]).name}' failed with status {done.returncode}", why="\n".join(lines[:_MAX_LINES])))
    return done.stdout


def _run_group(command: Sequence[str], environment: Mapping[str, str], folder: Path | None, timeout: float) -> tuple[int | None, str, str]:
    """(status, stdout, stderr); status None after a timeout, negative for a signal."""
    process = subprocess.Popen(
        command,
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout)
        return process.returncode, stdout, stderr
    except subprocess.TimeoutExpired:
        _kill_group(process)
        stdout, stderr = process.communicate()
        return None, stdout, stderr
    finally:
        if process.poll() is None:
            _kill_group(process)
            process.wait()


def _kill_group(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


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
        kept = stderr.strip().splitlines()[-_MAX_LINES:]
    return "\n".join(kept[:_MAX_LINES])


def _report(stdout: str) -> dict[str, object] | None:
    for line in reversed(stdout.splitlines()):
        if line.startswith("{") and '"traffic"' in line:
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                return value
    return None
