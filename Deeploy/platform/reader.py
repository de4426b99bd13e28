"""Reads platform files into typed records, and finds the folder that they, the kernels and the runtimes live in."""

from __future__ import annotations

import sysconfig
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from Deeploy.errors import DefectError, Problem, UsageError
from Deeploy.platform.levels import Level


@dataclass(frozen=True)
class LevelSpec:
    """A memory level.

    bytes:         its size.
    reserved:      bytes that code, stacks and the runtime take.
    alignment:     every buffer begins at a multiple of it.
    read_rounding: a transfer from this level rounds the length of each row up to a multiple of it, so that it overwrites up to
                   read_rounding - 1 bytes past its end (1: none).
    limit:         bytes that the user leaves to a project's data; None: all that is free.
    """

    bytes: int
    reserved: int
    alignment: int
    read_rounding: int = 1
    limit: int | None = None

    @property
    def usable(self) -> int:
        """Bytes that a project's data may take."""
        free = max(0, self.bytes - self.reserved)
        return free if self.limit is None else min(free, self.limit)


@dataclass(frozen=True)
class Dma:
    """A transfer engine between two neighbouring levels. Cycles are cluster cycles.

    max_bytes:      of one command.
    alignment:      addresses on both sides, row lengths and strides must be multiples of it (1: any byte). The host runtime enforces it.
    setup_cycles:   the controller's work per command.
    latency_cycles: from issue to the first byte.
    read_, write_bytes_per_cycle: towards and away from the cores.
    """

    max_bytes: int
    alignment: int
    setup_cycles: float
    latency_cycles: float
    read_bytes_per_cycle: float
    write_bytes_per_cycle: float


@dataclass(frozen=True)
class Costs:
    """Cycles per fork, per tile (the controller's own work), and the clock."""

    fork_cycles: float
    tile_cycles: float
    frequency_mhz: float


@dataclass(frozen=True)
class Platform:
    """A chip. dma_l2 moves between L2 and L1, dma_l3 between L3 and L2; runtime names a folder of Targets/runtime.

    gvsoc_target: GVSoC's name for it, of a target in Targets/runtime or of GVSoC itself; empty if it cannot be simulated there.
    """

    name: str
    description: str
    runtime: str
    cores: int
    isa: str
    word_bytes: int
    levels: Mapping[Level, LevelSpec]
    dma_l2: Dma
    dma_l3: Dma
    costs: Costs
    gvsoc_target: str = ""

    def with_overrides(self, l1: int | None = None, l2: int | None = None, l3: int | None = None, cores: int | None = None) -> Platform:
        """The platform with other sizes: l1, l2, l3 are the bytes that data may use, what is reserved lies outside them. A size that
        would reach into the reserved bytes is cut down to what is free.

        Raises UsageError for a size below 1 or beyond what the chip has, or a number of cores that it does not have.
        """
        levels = dict(self.levels)
        for level, size in ((Level.L1, l1), (Level.L2, l2), (Level.L3, l3)):
            if size is None:
                continue
            if size < 1:
                raise UsageError(Problem(f"{level.name} of {size} bytes is not possible", remedy="give a positive number of bytes"))
            spec = levels[level]
            if size > spec.bytes:
                raise UsageError(
                    Problem(f"{level.name} of {size} bytes is not possible", f"{self.name} has {spec.bytes} bytes of {level.name}")
                )
            levels[level] = replace(spec, limit=size)
        if cores is not None and not 1 <= cores <= self.cores:
            raise UsageError(Problem(f"{cores} cores are not possible", f"{self.name} has {self.cores} worker cores"))
        return replace(self, levels=levels, cores=self.cores if cores is None else cores)

    def with_reserved(self, level: Level, more: int) -> Platform:
        """The platform with `more` bytes of a level that data may not have."""
        spec = self.levels[level]
        return replace(self, levels={**self.levels, level: replace(spec, reserved=spec.reserved + more)})


def targets_dir() -> Path:
    """The folder with platforms/, kernels/ and runtime/: beside the package in a checkout, else where setup.py installs it."""
    package = Path(__file__).resolve().parent.parent
    data = [sysconfig.get_path("data"), sysconfig.get_path("data", sysconfig.get_preferred_scheme("user"))]
    for candidate in (package.parent / "Targets", *(Path(folder) / "share/deeploy/Targets" for folder in data)):
        if (candidate / "platforms").is_dir():
            return candidate
    raise DefectError(Problem("the folder Targets is missing", "it belongs beside the Deeploy package", "install the project again"))


def names() -> list[str]:
    """The names that `load` knows, sorted."""
    return sorted(path.stem for path in (targets_dir() / "platforms").glob("*.toml"))


def load(name: str) -> Platform:
    """The platform of that name. Raises UsageError listing the names that there are."""
    if name not in names():
        raise UsageError(Problem(f"platform '{name}' is not known", remedy=f"use one of: {', '.join(names())}"))
    return read(targets_dir() / "platforms" / f"{name}.toml")


def read(path: Path) -> Platform:
    """Reads one platform file. Raises UsageError for a file that is not TOML, lacks a key, or has one that is not known."""
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise UsageError(Problem(f"platform file {path.name} cannot be read", error.strerror or str(error))) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(Problem(f"platform file {path.name} is not TOML", str(error))) from error
    top = _Table(path.name, "", document)
    levels, dma, costs = top.table("levels"), top.table("dma"), top.table("costs")
    platform = Platform(
        name=top.text("name"),
        description=top.text("description"),
        runtime=top.text("runtime"),
        cores=top.integer("cores", 1),
        isa=top.text("isa"),
        word_bytes=top.integer("word_bytes", 1),
        levels={level: _level(levels.table(level.name)) for level in Level},
        dma_l2=_dma(dma.table("l2")),
        dma_l3=_dma(dma.table("l3")),
        costs=Costs(costs.number("fork_cycles"), costs.number("tile_cycles"), costs.number("frequency_mhz")),
        gvsoc_target=top.text("gvsoc_target", ""),
    )
    for table in (levels, dma, costs, top):
        table.finish()
    return platform


class _Table:
    """A table of a platform file that must hold exactly the keys that are asked for."""

    def __init__(self, file: str, path: str, content: Mapping[str, Any]) -> None:
        self._file, self._path, self._content = file, path, content
        self._asked: set[str] = set()

    def _get(self, key: str, kinds: tuple[type, ...], kind: str, default: Any = None) -> Any:
        self._asked.add(key)
        value = self._content.get(key, default)
        if value is None:
            raise UsageError(Problem(f"{self._file}: key '{self._path}{key}' is missing"))
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise UsageError(Problem(f"{self._file}: key '{self._path}{key}' must be {kind}, not {value!r}"))
        return value

    def has(self, key: str) -> bool:
        return key in self._content

    def table(self, key: str) -> _Table:
        return _Table(self._file, f"{self._path}{key}.", self._get(key, (dict,), "a table"))

    def text(self, key: str, default: str | None = None) -> str:
        return self._get(key, (str,), "text", default)

    def integer(self, key: str, least: int, default: int | None = None) -> int:
        value = self._get(key, (int,), "a whole number", default)
        if value < least:
            raise UsageError(Problem(f"{self._file}: key '{self._path}{key}' is {value}, at least {least} is needed"))
        return value

    def number(self, key: str, positive: bool = False) -> float:
        value = float(self._get(key, (int, float), "a number"))
        if value < 0 or (positive and value == 0):
            raise UsageError(Problem(f"{self._file}: key '{self._path}{key}' must be {'above' if positive else 'at least'} 0"))
        return value

    def finish(self) -> None:
        unknown = sorted(set(self._content) - self._asked)
        if unknown:
            keys = ", ".join(f"'{self._path}{key}'" for key in unknown)
            raise UsageError(Problem(f"{self._file}: not known: {keys}", remedy=f"known here: {', '.join(sorted(self._asked))}"))


def _level(table: _Table) -> LevelSpec:
    spec = LevelSpec(
        table.integer("bytes", 1), table.integer("reserved", 0), table.integer("alignment", 1), table.integer("read_rounding", 1, 1)
    )
    table.finish()
    return spec


def _dma(table: _Table) -> Dma:
    if table.has("bytes_per_cycle"):
        read = write = table.number("bytes_per_cycle", positive=True)
    else:
        read, write = table.number("read_bytes_per_cycle", True), table.number("write_bytes_per_cycle", True)
    dma = Dma(
        table.integer("max_bytes", 1),
        table.integer("alignment", 1),
        table.number("setup_cycles"),
        table.number("latency_cycles"),
        read,
        write,
    )
    table.finish()
    return dma
