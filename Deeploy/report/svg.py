"""Pictures of memory levels as inline SVG. Lengths are in units of a drawing that is 960 wide and scales with the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from Deeploy.report.markup import Markup, element, escaped
from Deeploy.report.pictures import Bar, Box, Picture

WIDTH = 960.0
LEFT, RIGHT = 70.0, 8.0
PLOT = WIDTH - LEFT - RIGHT
BARS, ARENA = 260.0, 320.0
"""Heights: of all bars together if the small ones did not have a least height; of the arena."""
GAP, FOOT = 22.0, 30.0
LABELLED, THIN = 15.0, 4.0
"""Least heights of bars, with and without a label."""
FEW = 24
"""So many bars all have labels."""
TICK = 4.0
LETTER = 5.6
"""Width that a letter of a label is taken to have."""
SHOWN = ("constant", "state", "input", "output", "activation", "tile", "accumulator", "scratch")


TALL = 600.0
"""Higher than this, a drawing is printed on a page of its own, upright."""


def svg(picture: Picture) -> tuple[Markup, bool]:
    """The drawing: bars of constants and state on top, the arena below, step numbers at its foot; and whether it is tall."""
    parts: list[Markup] = []
    y = 14.0
    if picture.bars:
        parts.append(_text(LEFT, y - 4, "constants and state, one bar per storage; marks: the steps that read or update it", "head"))
        drawn, y = _bars(picture, y)
        parts += drawn
        y += GAP
    if picture.boxes:
        parts.append(_text(LEFT, y - 4, f"arena of {picture.level}: address over step", "head"))
        parts += _arena(picture, y)
        y += ARENA
    parts += _steps(picture, y)
    label = f"{picture.level} of {picture.program}: {len(picture.bars)} constants and states, {len(picture.boxes)} buffers in the arena"
    return element("svg", parts, viewBox=f"0 0 {number(WIDTH)} {number(y + FOOT)}", role="img", aria_label=label), y + FOOT > TALL


def number(value: float) -> str:
    """With at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _text(x: float, y: float, text: str, class_: str) -> Markup:
    return element("text", text, x=number(x), y=number(y), class_=class_)


def _rectangle(x: float, y: float, width: float, height: float, title: Sequence[str], **attributes: object) -> Markup:
    lines = Markup("\n".join(escaped(line) for line in title))
    size = {"x": number(x), "y": number(y), "width": number(width), "height": number(height)}
    return element("rect", element("title", lines), **size, **attributes)


def _column(picture: Picture, step: int) -> float:
    return LEFT + PLOT * step / picture.steps


def _fit(text: str, width: float) -> str:
    """As much of the text as the width takes; "" if that is nothing to speak of."""
    room = int(width / LETTER)
    if len(text) <= room:
        return text
    return text[: room - 1] + "…" if room > 3 else ""


def _bars(picture: Picture, y: float) -> tuple[list[Markup], float]:
    """The bars from `y` downwards, and where they end."""
    total = sum(b.bytes for b in picture.bars)
    parts = []
    for bar in picture.bars:
        least = LABELLED if bar.shared or bar.kind == "state" or len(picture.bars) <= FEW else THIN
        height = max(least, BARS * bar.bytes / total)
        classes = f"{bar.kind} shared" if bar.shared else bar.kind
        data = {"data-storage": bar.storage, "data-readers": bar.readers}
        parts.append(_rectangle(LEFT, y, PLOT, height - 1, bar.title, class_=classes, **data))
        high = height - 1 if height < LABELLED else TICK
        parts += _marks(picture, bar.reads, "read", y + height - 1 - high, high)
        parts += _marks(picture, bar.writes, "write", y + height - 1 - high, high)
        if height >= LABELLED:
            parts.append(_text(LEFT + 4, y + min(height, 40) / 2 + 1.5, _label(bar), "label strong" if bar.shared else "label"))
            parts.append(element("text", f"{bar.bytes:,}", x=number(LEFT - 5), y=number(y + min(height, 40) / 2 + 1.5), class_="left"))
        y += height
    return parts, y


def _label(bar: Bar) -> str:
    name, behind = bar.label
    return f"{_fit(name, PLOT - 8 - LETTER * len(behind)) or '…'}{behind}"


def _marks(picture: Picture, steps: Iterable[int], class_: str, y: float, height: float) -> list[Markup]:
    """One path with a mark in every one of the columns."""
    width = max(1.5, PLOT / picture.steps - 1)
    path = "".join(f"M{number(_column(picture, s))} {number(y)}h{number(width)}v{number(height)}h-{number(width)}z" for s in steps)
    return [element("path", d=path, class_=class_)] if path else []


def _arena(picture: Picture, y: float) -> list[Markup]:
    """The arena, address 0 at its foot."""
    scale = ARENA / max(1, picture.size)
    foot = y + ARENA
    parts = []
    for address in _round_numbers(picture.size):
        at = number(foot - address * scale)
        parts.append(element("line", x1=number(LEFT), x2=number(LEFT + PLOT), y1=at, y2=at, class_="grid"))
        parts.append(_text(LEFT - 5, foot - address * scale + 3, _address(address), "left"))
    for box in picture.boxes:
        parts += _box(picture, box, foot, scale)
    if 0 < picture.bound < picture.size:
        at = number(foot - picture.bound * scale)
        title = element("title", f"lower bound: {picture.bound:,} bytes")
        parts.append(element("line", title, x1=number(LEFT), x2=number(LEFT + PLOT), y1=at, y2=at, class_="bound"))
    return parts


def _box(picture: Picture, box: Box, foot: float, scale: float) -> list[Markup]:
    x, right = _column(picture, box.first), _column(picture, box.last + 1)
    top, height = foot - (box.offset + box.bytes) * scale, box.bytes * scale
    data: dict[str, object] = {"data-storage": box.storage} if box.storage else {}
    parts = [_rectangle(x, top, right - x, height, box.title, class_=box.kind, **data)]
    label = _fit(box.label, right - x - 6)
    if label and height >= 11:
        parts.append(_text(x + 3, top + min(height / 2 + 3.5, 12), label, "label"))
    return parts


def _steps(picture: Picture, y: float) -> list[Markup]:
    """Step numbers below the columns."""
    every = next(n for n in _round_numbers_up() if PLOT / picture.steps * n >= 26)
    parts = [
        element("text", str(s), x=number(_column(picture, s) + PLOT / picture.steps / 2), y=number(y + 12), class_="middle")
        for s in range(0, picture.steps, every)
    ]
    return [*parts, element("text", "step", x=number(LEFT + PLOT / 2), y=number(y + 25), class_="middle")]


def _round_numbers_up() -> Iterable[int]:
    power = 1
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10


def _round_numbers(size: int) -> list[int]:
    """Some addresses from 0 to `size`, a power of two apart."""
    apart = 1
    while size > 6 * apart:
        apart *= 2
    return list(range(0, size + 1, apart))


def _address(address: int) -> str:
    return f"{address // 1024:,} KB" if address and address % 1024 == 0 else f"{address:,}"
