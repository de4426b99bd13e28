"""Names: unique ones inside a graph, and C identifiers that can also name files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

LONGEST = 48
"""Characters of a C name: with a prefix it stays within what C guarantees to be significant (63)."""

_KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await co_return co_yield
    compl concept const const_cast consteval constexpr constinit continue decltype default delete do double dynamic_cast else enum explicit
    export extern false float for friend goto if import inline int long module mutable namespace new noexcept not not_eq nullptr operator or
    or_eq private protected public register reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast
    struct switch template this thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using virtual void
    volatile wchar_t while xor xor_eq fortran final override
    main null eof errno assert linux unix nan infinity i complex imaginary stdin stdout stderr size_t ptrdiff_t offsetof
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t
    con prn aux nul com1 com2 com3 com4 com5 com6 com7 com8 com9 lpt1 lpt2 lpt3 lpt4 lpt5 lpt6 lpt7 lpt8 lpt9
    """.split()
)
"""Words that are no names in C or C++, usual macros of their headers, and file names that some systems keep for devices."""

_VALID = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")


@dataclass
class NameSet:
    """Names in use, and fresh ones beside them."""

    used: set[str] = field(default_factory=set)

    def fresh(self, wanted: str) -> str:
        """`wanted`, or `wanted` with the lowest free number; reserves what it returns."""
        name, number = wanted, 0
        while name in self.used:
            number += 1
            name = f"{wanted}_{number}"
        self.used.add(name)
        return name


def _is_valid(name: str) -> bool:
    return len(name) <= LONGEST and _VALID.match(name) is not None and name.lower() not in _KEYWORDS


def _candidate(name: str) -> str:
    text = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9]", "_", name)).strip("_")
    if not text:
        text = "t"
    if text[0].isdigit() or text.lower() in _KEYWORDS:
        text = f"t_{text}"
    return text[:LONGEST].rstrip("_")


def c_names(names: Sequence[str] | Iterable[str]) -> dict[str, str]:
    """A valid C identifier for every name.

    Unique even where case is ignored (they name files), at most `LONGEST` characters, never a word of C or C++. Names that are
    identifiers already are kept; of two that differ in case only, the first. The result depends on nothing but `names` and their order.
    """
    ordered = list(dict.fromkeys(names))
    result: dict[str, str] = {}
    used: set[str] = set()
    for name in ordered:
        if _is_valid(name) and name.lower() not in used:
            result[name] = name
            used.add(name.lower())
    counters: dict[str, int] = {}
    for name in ordered:
        if name in result:
            continue
        base = _candidate(name)
        text, number = base, counters.get(base.lower(), 0)
        while text.lower() in used:
            number += 1
            suffix = f"_{number}"
            text = base[: LONGEST - len(suffix)].rstrip("_") + suffix
        counters[base.lower()] = number
        result[name] = text
        used.add(text.lower())
    return {name: result[name] for name in ordered}
