"""Counts what a project asks of the device from its emitted files alone: Network.c and hex/. Imports nothing of what wrote them.

Any call, array or file that does not go together with the others is a fault and raises DefectError.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from Deeploy.errors import DefectError

_TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
_MALLOC = re.compile(r"\b(\w+)\s*=\s*cl_ram_malloc\s*\(\s*(\d+)u?\s*\)")
_LOAD = re.compile(r"\b(load_file_to_ram|dp_load_file_to_l2)\s*\(\s*(\w+)\s*,\s*\"(\d+)\"\s*,\s*(\d+)u?\s*\)")
_ARRAY = re.compile(r"^static const DP_ALIGN\(\d+\) (uint8_t|uint32_t) (\w+)\[(\d+)\] = \{([^{}]*)\};", re.M)
_ROOM = re.compile(r"^static DP_ALIGN\(\d+\) uint8_t (\w+)\[(\d+)\];", re.M)
_ALIGNED = re.compile(r"^static .*\bDP_ALIGN\(", re.M)
_FREE = re.compile(r"\bcl_ram_free\s*\(\s*(\w+)\s*,\s*(\d+)u?\s*\)")
_FUNCTION = re.compile(r"^\w[\w *]*?\b(\w+)\([^;{}]*\) \{$", re.M)
_ASSIGNED = re.compile(r"\b(t_\w+)\s*=(?!=)\s*([^;]*);")
_CHANGED = re.compile(r"\b(t_\w+)\s*(?:[-+*/%&|^]=|<<=|>>=|\+\+|--)|(?:\+\+|--)\s*(t_\w+)")
_OPENED = re.compile(r"\(uintptr_t\)dp_open_l([23])\(net\.state\.l([23]), (\d+)u, (\d+)u\)")
_MALLOCED = re.compile(r"cl_ram_malloc\b.*")
_POINTED = re.compile(r"\(uintptr_t\)(\w+)")
_COPIED = re.compile(r"t_\w+")


@dataclass(frozen=True)
class Count:
    """At one level: allocations (or arrays), files, bytes without padding, different contents."""

    allocations: int
    files: int
    bytes: int
    distinct_contents: int


@dataclass(frozen=True)
class Address:
    """A place that Network.c gives to pointers.

    kind:     "ram" (allocated), "array" (in Network.c) or "arena" (opened there).
    level:    "L2" or "L3".
    symbol:   of the array, else "".
    offset:   in the arena, else 0.
    bytes:    of the place.
    file:     loaded into it; "" for none.
    content:  SHA-256 of the bytes it begins with; "" for an arena.
    function: that sets the pointers.
    pointers: the first gets the address, the others are set to the first.
    """

    kind: str
    level: str
    symbol: str
    offset: int
    bytes: int
    file: str
    content: str
    function: str
    pointers: tuple[str, ...]


@dataclass(frozen=True)
class Recount:
    """l3: cl_ram_malloc calls and their bytes; files and distinct_contents are of every .hex file of the project.
    l2: constant and state arrays of Network.c; files are those loaded into them.
    addresses: what every pointer is set to; files: bytes of every .hex file."""

    l3: Count
    l2: Count
    addresses: tuple[Address, ...] = ()
    files: Mapping[str, int] = field(default_factory=dict)


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
    frees = [(m[1], int(m[2])) for m in _FREE.finditer(text)]
    if Counter(frees) != Counter(mallocs):
        faults.append("what cl_ram_malloc gets is not what cl_ram_free gives back")
    faults += _check_loads("load_file_to_ram", mallocs, loads, files)
    faults += _check_loads("dp_load_file_to_l2", rooms, loads, files)
    contents = {x.target: files.get(x.file, b"") for x in loads} | arrays
    addresses = _addresses(text, dict(rooms) | {n: len(a) for n, a in arrays.items()} | dict(mallocs), loads, contents, faults)
    if faults:
        raise DefectError(*faults)
    l2_files = [x.file for x in loads if x.function == "dp_load_file_to_l2"]
    l3 = Count(len(mallocs), len(files), sum(n for _, n in mallocs), len(set(files.values())))
    distinct = set(arrays.values()) | {files[name] for name in l2_files}
    size = sum(map(len, arrays.values())) + sum(n for _, n in rooms)
    l2 = Count(len(arrays) + len(rooms), len(set(l2_files)), size, len(distinct))
    return Recount(l3, l2, tuple(addresses), {name: len(content) for name, content in files.items()})


def _addresses(text: str, sizes: Mapping[str, int], loads: list[_Load], contents: Mapping[str, bytes], faults: list[str]) -> list[Address]:
    """What the pointers of Network.c are set to. sizes, contents: of arrays, and of allocations by their pointers."""
    functions = [(m.start(), m[1]) for m in _FUNCTION.finditer(text)]
    starts = [start for start, _ in functions]
    files = {x.target: x.file for x in loads}
    places: list[Address] = []
    pointers: list[list[str]] = []
    for m in _ASSIGNED.finditer(text):
        name, value = m[1], m[2].strip()
        at = bisect.bisect(starts, m.start()) - 1
        function = functions[at][1] if at >= 0 else ""
        if value == "0":
            continue
        if _COPIED.fullmatch(value):
            # The text sets a group of pointers together: the first to a place, the others to the first.
            if not pointers or pointers[-1][0] != value or places[-1].function != function:
                faults.append(f"{name} is set to {value} apart from where that is set")
            else:
                pointers[-1].append(name)
            continue
        place = _place(name, value, sizes, files, contents, function)
        if place is None:
            faults.append(f"{name} is set to something that is not understood")
        else:
            places.append(place)
            pointers.append([name])
    faults += [f"{m[1] or m[2]} is changed" for m in _CHANGED.finditer(text)]
    for name, times in Counter(n for group in pointers for n in group).items():
        if times > 1:
            faults.append(f"{name} is set {times} times")
    return [dataclasses.replace(place, pointers=tuple(group)) for place, group in zip(places, pointers, strict=True)]


def _place(
    pointer: str, value: str, sizes: Mapping[str, int], files: Mapping[str, str], contents: Mapping[str, bytes], function: str
) -> Address | None:
    """The place that an assignment gives to its pointer; None if it is none."""
    opened = _OPENED.fullmatch(value)
    if opened:
        level = f"L{opened[1]}" if opened[1] == opened[2] else ""
        return Address("arena", level, "", int(opened[3]), int(opened[4]), "", "", function, ())
    pointed = _POINTED.fullmatch(value)
    allocated = _MALLOCED.fullmatch(value)
    key = pointed[1] if pointed else pointer
    if not (pointed or allocated) or key not in sizes:
        return None
    content = hashlib.sha256(contents.get(key, b"")).hexdigest()
    kind, level = ("array", "L2") if pointed else ("ram", "L3")
    return Address(kind, level, key if pointed else "", 0, sizes[key], files.get(key, ""), content, function, ())


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


def _arrays(text: str, faults: list[str]) -> dict[str, bytes]:
    """The bytes of every constant array, by its name."""
    contents = {}
    for ctype, name, count, body in _ARRAY.findall(text):
        width = 4 if ctype == "uint32_t" else 1
        values = [int(v.rstrip("u"), 0) for v in body.replace("\n", "").replace(" ", "").split(",")]
        if len(values) != int(count):
            faults.append(f"array {name} says {count} elements and has {len(values)}")
        if name in contents:
            faults.append(f"there are two arrays {name}")
        contents[name] = b"".join(v.to_bytes(width, "little") for v in values)
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
