"""Counts what a project asks of the device from its emitted files alone: Network.c and hex/. Imports nothing of what wrote them.

Any call, array or file that does not go together with the others is a fault and raises DefectError.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from Deeploy.errors import DefectError

_TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
_MALLOC = re.compile(r"\b(\w+)\s*=\s*cl_ram_malloc\s*\(\s*(\d+)u?\s*\)")
_LOAD = re.compile(r"\b(load_file_to_ram|dp_load_file_to_l2)\s*\(\s*(\w+)\s*,\s*\"(\d+)\"\s*,\s*(\d+)u?\s*\)")
_ARRAY = re.compile(r"^static const DP_ALIGN\(\d+\) (uint8_t|uint32_t) (\w+)\[(\d+)\] = \{([^{}]*)\};", re.M)
_ROOM = re.compile(r"^static DP_ALIGN\(\d+\) uint8_t (\w+)\[(\d+)\];", re.M)
_ALIGNED = re.compile(r"^static .*\bDP_ALIGN\(", re.M)


@dataclass(frozen=True)
class Count:
    """At one level: allocations (or arrays), files, bytes without padding, different contents."""

    allocations: int
    files: int
    bytes: int
    distinct_contents: int


@dataclass(frozen=True)
class Recount:
    """l3: cl_ram_malloc calls and their bytes; files and distinct_contents are of every .hex file of the project.
    l2: constant and state arrays of Network.c; files are those loaded into them."""

    l3: Count
    l2: Count


@dataclass(frozen=True)
class _Load:
    function: str
    target: str
    file: str
    bytes: int


def recount(folder: Path) -> Recount:
    """Counts the project in `folder`. Raises DefectError naming everything that does not add up."""
    try:
        source = (folder / "Network.c").read_text()
        files = {path.name: path.read_bytes() for path in sorted((folder / "hex").glob("*.hex"))}
    except OSError as error:
        raise DefectError(f"the project cannot be read: {error.strerror}") from None
    text, strings = _without_comments(source)
    faults: list[str] = []
    mallocs = [(m[1], int(m[2])) for m in _MALLOC.finditer(text)]
    loads = [_Load(m[1], m[2], strings[int(m[3])], int(m[4])) for m in _LOAD.finditer(text)]
    for name, understood in (
        ("cl_ram_malloc", len(mallocs)),
        ("load_file_to_ram", sum(x.function == "load_file_to_ram" for x in loads)),
        ("dp_load_file_to_l2", sum(x.function == "dp_load_file_to_l2" for x in loads)),
    ):
        calls = len(re.findall(rf"\b{name}\b", text))
        if calls != understood:
            faults.append(f"{calls} uses of {name}, of which {understood} are understood")
    arrays = _arrays(text, faults)
    rooms = [(m[1], int(m[2])) for m in _ROOM.finditer(text)]
    if len(_ALIGNED.findall(text)) != len(arrays) + len(rooms):
        faults.append("an aligned array is not understood")
    faults += _check_loads("load_file_to_ram", mallocs, loads, files)
    faults += _check_loads("dp_load_file_to_l2", rooms, loads, files)
    if faults:
        raise DefectError(*faults)
    l2_files = [x.file for x in loads if x.function == "dp_load_file_to_l2"]
    l3 = Count(len(mallocs), len(files), sum(n for _, n in mallocs), len(set(files.values())))
    contents = set(arrays) | {files[name] for name in l2_files}
    size = sum(map(len, arrays)) + sum(n for _, n in rooms)
    return Recount(l3, Count(len(arrays) + len(rooms), len(set(l2_files)), size, len(contents)))


def _without_comments(source: str) -> tuple[str, list[str]]:
    """The text without comments, each string literal replaced by its number in quotes; and the strings."""
    strings: list[str] = []

    def replace(match: re.Match[str]) -> str:
        token = match[0]
        if not token.startswith('"'):
            return " "
        strings.append(token[1:-1])
        return f'"{len(strings) - 1}"'

    return _TOKEN.sub(replace, source), strings


def _arrays(text: str, faults: list[str]) -> list[bytes]:
    """The bytes of every constant array."""
    contents = []
    for ctype, name, count, body in _ARRAY.findall(text):
        width = 4 if ctype == "uint32_t" else 1
        values = [int(v.rstrip("u"), 0) for v in body.replace("\n", "").replace(" ", "").split(",")]
        if len(values) != int(count):
            faults.append(f"array {name} says {count} elements and has {len(values)}")
        contents.append(b"".join(v.to_bytes(width, "little") for v in values))
    return contents


def _check_loads(function: str, places: list[tuple[str, int]], loads: list[_Load], files: dict[str, bytes]) -> list[str]:
    """Every place is filled by exactly one load of its own size, from a file of that size."""
    faults = []
    mine = [x for x in loads if x.function == function]
    sizes = dict(places)
    for name, times in Counter(name for name, _ in places).items():
        if times > 1:
            faults.append(f"{name} is allocated {times} times")
    for name, times in Counter(x.target for x in mine).items():
        if times > 1:
            faults.append(f"{name} is loaded {times} times")
    for name in sizes.keys() - {x.target for x in mine}:
        faults.append(f"{name} is never loaded by {function}")
    for x in mine:
        if x.target not in sizes:
            faults.append(f"{function} fills {x.target}, which is not allocated")
        elif sizes[x.target] != x.bytes:
            faults.append(f"{x.target} has {sizes[x.target]} bytes and {x.bytes} are loaded")
        if x.file not in files:
            faults.append(f"the file {x.file} is missing")
        elif len(files[x.file]) != x.bytes:
            faults.append(f"the file {x.file} has {len(files[x.file])} bytes and {x.bytes} are loaded")
    return sorted(faults)
