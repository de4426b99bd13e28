"""The target folder: written beside its final place and moved there when complete; and the copies of runtime and kernels in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from Deeploy.emit.manifest import FILE_NAME, TOOL
from Deeploy.errors import DefectError, Problem, UsageError
from Deeploy.platform import targets_dir

STALE_SECONDS = 86400
"""Age from which the temporary folder of another run is taken for a left one."""

_FOLDERS = frozenset({"hex", "deeploy", *(f"deeploy/{part}" for part in ("include", "common", "host", "kernels"))})
_FILES = re.compile(
    r"Network\.[ch]|main\.c|Observe\.c|Makefile|deeploy\.json|hex/[^/]+\.hex|deeploy/\w+/[^/]+\.[ch]"
    r"|network|(output|state)_\d+(_\d+)?\.bin|trace\.bin"  # made by the Makefile, and by running what it makes
)
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def write_folder(target: Path, fill: Callable[[Path], None]) -> None:
    """Calls `fill` with an empty temporary folder beside `target` and renames it to `target`.

    A project that is there already is replaced; so is an empty folder. If `target` is a link, the folder that it names is meant. Raises
    UsageError if `target` is anything else (a project with somebody's files in it too), or cannot be written; then nothing has changed.
    An exception that a signal raises leaves the old project or the new one, and nothing beside it.
    """
    work: Path | None = None
    try:
        target = _resolved(target)
        _refuse_foreign(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(target)
        with _uninterrupted():
            work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
        fill(work)
        work.chmod(0o777 & ~_umask())
        _refuse_foreign(target)
        with _uninterrupted():
            _swap(work, target)
    except OSError as error:
        raise UsageError(Problem(f"'{target.name}' cannot be written", error.strerror or str(error), "choose another folder")) from None
    finally:
        with _uninterrupted():
            if work is not None:
                shutil.rmtree(work, ignore_errors=True)


def _resolved(target: Path) -> Path:
    """The absolute path without links. Raises UsageError for a link to nothing and for a folder that somebody stands in."""
    if target.is_symlink() and not target.exists():
        what = f"'{target.name}' is a link to '{os.readlink(target)}', which is not there"
        raise UsageError(Problem(what, remedy="make that folder, or remove the link"))
    real = Path(os.path.realpath(target))
    try:
        here = Path.cwd()
    except OSError:
        return real  # the current folder is gone
    if real.is_dir() and any(os.path.samefile(real, folder) for folder in (here, *here.parents)):
        what = "the current folder" if os.path.samefile(real, here) else "a parent of the current folder"
        raise UsageError(Problem(f"'{target}' is {what} and cannot be replaced", remedy="give a folder below it"))
    return real


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Signals that end the process wait until the block is done, unless somebody has them handled outside of Python."""
    held: list[int] = []
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # only this one can be interrupted
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) not in (None, signal.SIG_IGN)}
    for number in before:
        signal.signal(number, lambda got, frame: held.append(got))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


def _refuse_foreign(target: Path) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise UsageError(Problem(f"'{target.name}' exists and is no folder", remedy="choose another folder"))
    if not any(target.iterdir()):
        return
    manifest = _manifest_text(target)
    if not manifest:
        raise UsageError(
            Problem(f"'{target.name}' is not empty and was not made by this program", remedy="choose another folder, or empty that one")
        )
    unknown = _unknown(target, manifest)
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        what = f"'{target.name}' holds '{unknown[0]}'{more}, which this program has not made"
        raise UsageError(Problem(what, "the whole folder would be replaced", "move that away, or choose another folder"))


def _manifest_text(folder: Path) -> str:
    """The text of a manifest that this program, in any version, has written; "" if the folder has none."""
    try:
        text = (folder / FILE_NAME).read_text(encoding="utf-8")
        data = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return ""
    ours = isinstance(data, dict) and data.get("tool") == TOOL and type(data.get("format")) is int and "programs" in data
    return text if ours else ""


def _unknown(folder: Path, manifest: str | None) -> list[str]:
    """What is in a project folder and is neither written by this program nor made from it, sorted; a folder ends with /.

    manifest: its text, which names the data and kernel files; None (there is no manifest yet) takes any of their kind.
    """

    def unreadable(error: OSError) -> None:
        raise error

    unknown = []
    for place, folders, files in os.walk(folder, onerror=unreadable):
        above = Path(place).relative_to(folder)
        for name in list(folders):
            path = (above / name).as_posix()
            if path not in _FOLDERS:
                folders.remove(name)
                unknown.append(f"{path}/")
        for name in files:
            path = (above / name).as_posix()
            listed = above.as_posix() in ("hex", "deeploy/kernels")
            if not _FILES.fullmatch(path) or (listed and manifest is not None and json.dumps(name) not in manifest):
                unknown.append(path)
    return sorted(unknown)


def _remove_stale(target: Path) -> None:
    """Removes temporary folders of runs that were killed: older than a day, ours by name, owner and content."""
    name = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]{{8}}\.tmp")
    with suppress(OSError):  # other processes may be removing them too, or the parent cannot be listed
        for path in [p for p in target.parent.iterdir() if name.fullmatch(p.name)]:
            status = path.lstat()
            old = stat.S_ISDIR(status.st_mode) and status.st_mtime < time.time() - STALE_SECONDS
            if old and status.st_uid == os.geteuid() and not _unknown(path, None):
                shutil.rmtree(path, ignore_errors=True)


def _swap(work: Path, target: Path) -> None:
    """Moves `work` to `target`; what was there is put aside first and put back if that fails."""
    if not target.exists():
        os.rename(work, target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent))
    try:
        os.rename(target, aside / "old")
        try:
            os.rename(work, target)
        except BaseException:
            os.rename(aside / "old", target)
            raise
    finally:
        # Never what could not be put back.
        if target.exists():
            shutil.rmtree(aside, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def copy_runtime(folder: Path, sources: Iterable[str], search: Sequence[Path] = ()) -> list[str]:
    """Copies headers, runtime and those kernel files (with what they include) into `folder`/deeploy. Returns the kernel files.

    search: folders looked in for kernel files before Targets/kernels.
    """
    targets = targets_dir()
    for part, place in (("include", "include"), ("common", "common"), ("host", "host")):
        (folder / "deeploy" / place).mkdir(parents=True, exist_ok=True)
        for path in sorted((targets / "runtime" / part).glob("*.[ch]")):
            shutil.copyfile(path, folder / "deeploy" / place / path.name)
    kernels = folder / "deeploy" / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    files = kernel_files(sources, [*search, targets / "kernels"])
    for name, path in files.items():
        shutil.copyfile(path, kernels / name)
    return sorted(files)


def kernel_files(sources: Iterable[str], search: Sequence[Path]) -> dict[str, Path]:
    """The kernel files that `sources` need: themselves, the headers that they include, and the sources beside those headers."""
    found: dict[str, Path] = {}
    wanted = sorted(set(sources))
    asked = set(wanted)
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        path = next((folder / name for folder in search if (folder / name).is_file()), None)
        if path is None:
            if name in asked:
                raise DefectError(f"the kernel file {name} is missing")
            continue  # a header of the runtime, or a header without a source
        found[name] = path
        wanted += _INCLUDE.findall(path.read_text())
        if name.endswith(".h"):
            wanted.append(f"{name[:-2]}.c")
        elif name.endswith(".c"):
            wanted.append(f"{name[:-2]}.h")
    return found
