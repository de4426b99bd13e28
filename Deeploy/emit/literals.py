"""Numbers and bytes as C source, exactly."""

from __future__ import annotations

import math

import numpy as np

from Deeploy.program.step import Param

PER_LINE_WORDS = 10
PER_LINE_BYTES = 24


def integer(value: int) -> str:
    """A C constant of that value, of a type that holds it."""
    if value == -(1 << 63):
        return "(-9223372036854775807LL - 1)"
    if value == -(1 << 31):
        return "(-2147483647 - 1)"
    if value >= 1 << 63:
        return f"{value}ULL"
    return str(value) if -(1 << 31) < value < (1 << 31) else f"{value}LL"


def real(value: float) -> str:
    """A C constant of type float: exact for every float32 (9 significant digits decide one)."""
    single = np.float32(value)
    if math.isnan(single):
        return "NAN"
    if math.isinf(single):
        return "INFINITY" if single > 0 else "-INFINITY"
    text = f"{float(single):.9g}"
    return f"{text}f" if any(c in text for c in ".e") else f"{text}.0f"


def param(value: int | float | tuple[int, ...] | tuple[float, ...]) -> str:
    """The initialiser of one struct field; a tuple becomes an array. Fields that are floats must come as Python floats."""
    if isinstance(value, tuple):
        return "{" + ", ".join(param(v) for v in value) + "}"
    if isinstance(value, (float, np.floating)):
        return real(float(value))
    return integer(int(value))


def params(fields: tuple[Param, ...]) -> str:
    """The initialiser of a constant struct, in the order of its fields."""
    return ", ".join(f"/* {p.name} */ {param(p.value)}" for p in fields)


def string(text: str) -> str:
    """A C string literal; what is not plain ASCII is escaped byte by byte in octal."""
    out = []
    for byte in text.encode():
        char = chr(byte)
        out.append(char if 32 <= byte < 127 and char not in '"\\?' else f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def comment(text: str) -> str:
    """Text that cannot end a comment."""
    return "".join(c if c.isprintable() and c.isascii() else "?" for c in text).replace("*/", "* /").replace("/*", "/ *")


def array(content: bytes) -> tuple[str, int, str]:
    """(element type, elements, initialiser lines) of an array of exactly these bytes on a little-endian machine."""
    if len(content) % 4 == 0:
        numbers = np.frombuffer(content, "<u4").tolist()
        width, ctype, form = PER_LINE_WORDS, "uint32_t", "0x%xu"
    else:
        numbers = list(content)
        width, ctype, form = PER_LINE_BYTES, "uint8_t", "%d"
    full = ",".join([form] * width)
    lines = [full % tuple(numbers[i : i + width]) for i in range(0, len(numbers) - width + 1, width)]
    rest = numbers[len(numbers) // width * width :]
    if rest:
        lines.append(",".join([form] * len(rest)) % tuple(rest))
    return ctype, len(numbers), ",\n  ".join(lines)
