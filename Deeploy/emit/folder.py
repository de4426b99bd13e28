"""The target folder: written beside its final place and moved there when complete; and the copies of runtime and kernels in it."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from Deeploy.emit.manifest import FILE_NAME
from Deeploy.errors import DefectError, Problem, UsageError
from Deeploy.platform import targets_dir

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def write_folder(target: Path, fill: Callable[[Path], None]) -> None:
    """Calls `fill` with an empty temporary folder beside `target` and renames it to `target`.

    A project that is there already is replaced; so is an empty folder. Raises UsageError if `target` is anything else, or cannot be
    written; then nothing has changed.
    """
    target = Path(os.path.abspath(target))
    try:
        _refuse_foreign(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    except OSError as error:
        raise UsageError(Problem(f"'{target.name}' cannot be written", error.strerror or str(error), "choose another folder")) from None
    try:
        fill(work)
        work.chmod(0o777 & ~_umask())
        _swap(work, target)
    except OSError as error:
        raise UsageError(Problem(f"'{target.name}' cannot be written", error.strerror or str(error), "choose another folder")) from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _refuse_foreign(target: Path) -> None:
    if not target.exists() and not target.is_symlink():
        return
    if not target.is_dir():
        raise UsageError(Problem(f"'{target.name}' exists and is no folder", remedy="choose another folder"))
    if not (target / FILE_NAME).is_file() and any(target.iterdir()):
        raise UsageError(
            Problem(f"'{target.name}' is not empty and was not made by this program", remedy="choose another folder, or empty that one")
        )


def _swap(work: Path, target: Path) -> None:
    """Moves `work` to `target`; what was there is put aside first and put back if that fails."""
    if not target.exists():
        os.rename(work, target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent))
    os.rename(target, aside / "old")
    try:
        os.rename(work, target)
    except OSError:
        os.rename(aside / "old", target)
        raise
    finally:
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
