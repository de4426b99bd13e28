"""What every simulator needs: compiling C into cached objects and libraries, and running a program with a time limit.

The cache may be shared by any number of processes: a file appears in it complete or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from Deeploy.errors import DefectError, Problem, ToolMissingError, UsageError

CACHE_DAYS = 14
MAX_LINES = 16
"""Lines of a tool's output that are shown."""

_MISSING_LIBRARY = re.compile(r"lib(?:asan|ubsan|tsan)_preinit\.o|-l(?:asan|ubsan|tsan)\b|libclang_rt\.[\w.-]+")


def default_cache() -> Path:
    """Where libraries are kept: deeploy below $XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).absolute() if base else Path.home() / ".cache") / "deeploy"


def make_cache(cache: Path) -> None:
    """Makes the folder. Raises UsageError if that is not possible."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        if not os.access(cache, os.W_OK | os.X_OK):
            raise PermissionError("no permission to write")
    except OSError as error:
        raise UsageError(
            Problem(f"the cache folder '{cache}' cannot be made", why=str(error), remedy="set XDG_CACHE_HOME to a writable folder")
        ) from None


def touch(path: Path) -> bool:
    """Whether the file is there; marks it as used."""
    try:
        os.utime(path)
    except OSError:
        return path.exists()
    return True


def find_tool(name: str, why: str, remedy: str = "install it, or name another compiler") -> str:
    """The path of a command. Raises ToolMissingError."""
    found = shutil.which(name)
    if found is None:
        raise ToolMissingError(Problem(f"'{name}' is not installed", why=why, remedy=remedy))
    return found


def call_tool(command: Sequence[str]) -> str:
    """Runs a compiler or the like and returns its output. Raises ToolMissingError for a missing library, else DefectError with the first
    messages: what is compiled is ours."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        missing = _MISSING_LIBRARY.search(done.stderr)
        if missing:
            raise ToolMissingError(Problem(f"'{missing[0]}' is not installed", why=f"'{command[0]}' needs it for sanitizers"))
        lines = [line for line in done.stderr.splitlines() if "error" in line or "undefined reference" in line] or done.stderr.splitlines()
        raise DefectError(Problem(f"'{Path(command[0]).name}' failed with status {done.returncode}", why="\n".join(lines[:MAX_LINES])))
    return done.stdout


def counters(output: str) -> dict[str, Any] | None:
    """The runtime's counters, which a program prints as one JSON object on a line of its own; None if it printed none."""
    for line in reversed(output.splitlines()):
        if line.startswith("{") and '"traffic"' in line:
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                return value
    return None


class LibraryCache:
    """Compiles sources into static libraries, each object once per (compiler, flags, content of source and headers).

    compiler, ar: paths. flags: of every compilation. include: folders; their headers count as content, and those of `headers` too.
    """

    def __init__(
        self, compiler: str, ar: str, flags: Sequence[str], include: Sequence[Path], cache: Path, headers: Sequence[Path] = ()
    ) -> None:
        self.compiler, self.ar, self.flags, self.include, self.cache = compiler, ar, tuple(flags), tuple(include), cache
        self.headers = (*self.include, *headers)
        self._version: str | None = None

    def library(self, name: str, sources: Sequence[tuple[Path, tuple[str, ...]]]) -> Path:
        """A static library of the sources, each with its additional flags, compiled unless it is in the cache."""
        headers = self._headers_digest()
        jobs = [(source, flags, self.digest(headers, " ".join(flags), source.name, source.read_bytes())) for source, flags in sources]
        library = self.cache / f"{name}-{self.digest(name, *(key for _, _, key in jobs))[:24]}.a"
        if touch(library):
            return library
        make_cache(self.cache)
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            objects = list(pool.map(lambda job: self._object(*job), jobs))
        with tempfile.TemporaryDirectory(dir=self.cache) as folder:
            archive = Path(folder) / "lib.a"
            # Members are named by key: two kernels in different folders may have the same file name.
            call_tool([self.ar, "rcsD", str(archive), *map(str, objects)])
            os.replace(archive, library)
        self._prune()
        return library

    def digest(self, *parts: str | bytes) -> str:
        """A key for something that this compiler makes with these flags from `parts`."""
        if self._version is None:
            self._version = call_tool([self.compiler, "--version"])
        digest = hashlib.sha256()
        for part in (self.compiler, self._version, " ".join(self.flags), *parts):
            data = part.encode() if isinstance(part, str) else part
            digest.update(len(data).to_bytes(8, "little") + data)
        return digest.hexdigest()

    def _headers_digest(self) -> str:
        parts: list[str | bytes] = []
        for folder in self.headers:
            for header in sorted(folder.rglob("*.h")):
                parts += [str(header.relative_to(folder)), header.read_bytes()]
        return self.digest(*parts)

    def _object(self, source: Path, flags: tuple[str, ...], key: str) -> Path:
        target = self.cache / f"{source.stem}-{key[:24]}.o"
        if not touch(target):
            with tempfile.TemporaryDirectory(dir=self.cache) as folder:
                made = Path(folder) / "made.o"
                dirs = [f"-I{path}" for path in self.include]
                call_tool([self.compiler, *self.flags, *flags, *dirs, "-c", str(source), "-o", str(made)])
                os.replace(made, target)
        return target

    def _prune(self) -> None:
        """Removes what has not been used for long; another process may be removing the same files."""
        oldest = time.time() - CACHE_DAYS * 86400
        for entry in self.cache.iterdir():
            try:
                if entry.stat().st_mtime >= oldest:
                    continue
                if entry.is_dir():  # of a run that was killed
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink()
            except OSError:
                continue


def run_group(command: Sequence[str], environment: Mapping[str, str], folder: Path | None, timeout: float) -> tuple[int | None, str, str]:
    """Runs a program in a process group of its own, of which nothing is left afterwards; it is killed after `timeout` seconds.

    Returns (status, stdout, stderr); status None after a timeout, negative for a signal.
    """
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
        _kill_group(process)
        process.wait()


def _kill_group(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
