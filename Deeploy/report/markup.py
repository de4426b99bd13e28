"""HTML and SVG elements as text that is escaped by construction: whatever is not Markup is escaped where it is put in."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

_HIDDEN = re.compile("[\0-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff0-\uffff]")
"""What has no picture, changes the direction of the text around it, or is no character."""

VOID = frozenset({"meta", "br"})


class Markup(str):
    """Text that is markup already."""


def visible(text: str) -> str:
    """`text` with hidden characters written as \\uXXXX."""
    return _HIDDEN.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def element(tag: str, *children: str | Iterable[str], **attributes: object) -> Markup:
    """<tag attributes>children</tag>. Attribute names: a trailing _ is dropped, others become -. None and False leave an attribute out."""
    parts = [f"<{tag}"]
    for name, value in attributes.items():
        if value is not None and value is not False:
            parts.append(f' {name.rstrip("_").replace("_", "-")}="{html.escape(visible(str(value)))}"')
    parts.append(">")
    if tag not in VOID:
        for child in children:
            parts += [escaped(c) for c in ([child] if isinstance(child, str) else child)]
        parts.append(f"</{tag}>")
    return Markup("".join(parts))


def escaped(text: str) -> Markup:
    """`text` as markup: itself if it is that already."""
    return text if isinstance(text, Markup) else Markup(html.escape(visible(text)))
