"""The report of a project as one HTML file: nothing is loaded from anywhere, and the same project gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from Deeploy.emit.manifest import Manifest, ProgramEntry, StorageEntry
from Deeploy.report.index import Index
from Deeploy.report.l3 import LevelReport
from Deeploy.report.markup import Markup, element
from Deeploy.report.pictures import Picture, is_bar, pictures, plural
from Deeploy.report.svg import SHOWN, svg
from Deeploy.report.tables import (
    PROGRAMS_NOTE,
    Table,
    figures_table,
    interface_table,
    kilobytes,
    levels_table,
    programs_table,
    state_table,
    steps_table,
)

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Tells the browser what is so anyway: nothing is loaded."""
KEY = {"tile": "tile buffer", "shared": "several readers share it", "read": "a step reads it", "write": "a step updates it"}
READING = (
    "A picture shows one level of one program, one rectangle per storage: the bytes behind one or more tensors. On top are constants "
    "and state, which live from Init to Free, one bar each, so a bar with several readers is a storage that they share: its readers are "
    "counted over the whole project, and its marks stand at the steps of this program that read or update it. Bars are as high as their "
    "bytes, but never lower than what can be seen. Below is the arena: the address (0 at the foot) over the step index; a result that is "
    "computed in place lies at the address of its operand and begins where that ends. A level with tile buffers shows them at their steps. "
    "The programs of a project use the same arenas, one after the other. The pointer on a rectangle shows its name, role, bytes, offset, "
    "lifetime and members; the table of storages has the same. KB are 1024 bytes."
)


def project_html(manifest: Manifest, reports: dict[str, LevelReport]) -> str:
    """The whole file. reports: of the levels, as `level_reports` gives them."""
    index = Index(manifest)
    names = ", ".join(p.name for p in manifest.programs)
    title = f"{names} on {manifest.platform}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"Memory report: {title}"),
        element("style", Markup("\n" + (Path(__file__).parent / "templates" / "report.css").read_text(encoding="utf-8"))),
    )
    parts = [element("h1", f"Memory report: {title}"), _about(manifest), _contents(manifest)]
    parts += _stored(index, reports)
    for number, program in enumerate(manifest.programs):
        parts += _program(index, number, program)
    if manifest.notes:
        parts += [_heading("Notes", "notes"), element("ul", (element("li", note) for note in manifest.notes))]
    body = element("body", (Markup(f"\n{p}") for p in parts), Markup("\n"))
    return f"<!DOCTYPE html>\n{element('html', head, Markup(chr(10)), body, lang='en')}\n"


def _heading(text: str, anchor: str) -> Markup:
    return element("h2", text, id=anchor)


def _about(manifest: Manifest) -> Markup:
    options = ", ".join(f"{k}={v}" for k, v in manifest.options.items() if v is not None and v != {})
    text = f"{manifest.tool} {manifest.version}; prefix {manifest.prefix}; model {manifest.model_sha256}; {options}"
    return element("p", text, class_="pale")


def _contents(manifest: Manifest) -> Markup:
    links = [("#stored", "What is stored")] + ([("#state", "State")] if manifest.state else [])
    links += [(f"#program{i}", f"Program {p.name}") for i, p in enumerate(manifest.programs)]
    links += [("#notes", "Notes")] if manifest.notes else []
    return element("nav", (element("a", text, href=href) for href, text in links))


def html_table(table: Table) -> Markup:
    """A table that scrolls by itself where the page is narrow."""

    def cells(tag: str, row: Sequence[object]) -> Iterable[Markup]:
        return (element(tag, str(c), class_="l" if i < table.left else None) for i, c in enumerate(row))

    head = element("thead", element("tr", cells("th", table.head)))
    rows = (Markup(f"\n{element('tr', cells('td', row))}") for row in table.rows)
    return element("div", element("table", head, element("tbody", rows)), class_="wide")


def _stored(index: Index, reports: dict[str, LevelReport]) -> list[Markup]:
    parts = [_heading("What is stored", "stored")]
    several = len(index.manifest.programs) > 1
    shown = [(level, r) for level, r in reports.items() if level == "l3" or r.stored.allocations]
    for level, report in shown:
        name = level.upper()
        parts += [element("h3", f"Replicated and stored in {name}"), html_table(figures_table(level, report))]
        if several:
            parts += [html_table(programs_table(level, report)), element("p", PROGRAMS_NOTE, class_="pale")]
        parts += _groups(name, report)
        if report.not_shared:
            rows = [(n.tensor, n.twin, n.reason) for n in report.not_shared]
            parts += [
                element("h3", f"Near misses in {name}: equal contents that are not shared"),
                html_table(Table(("tensor", "twin", "reason"), rows, left=3)),
            ]
    immediates = reports["l3"].immediates
    if immediates:
        spared = sum(i.bytes for i in immediates)
        lines = [(i.tensor, f"{i.bytes:,}") for i in immediates]
        parts += [
            element("h3", "Scalars and splats: values in their steps, stored nowhere"),
            element("p", f"{plural(len(lines), 'constant')}; as bytes: {spared:,} ({kilobytes(spared)} KB)."),
            html_table(Table(("constant", "bytes spared"), lines)),
        ]
    if index.manifest.state:
        parts += [_heading("State", "state"), html_table(state_table(index))]
    return parts


def _groups(name: str, report: LevelReport) -> list[Markup]:
    if not report.groups:
        return []
    saved = sum(g.bytes * (len(g.members) - 1) for g in report.groups)
    rows = [(", ".join(g.members), len(g.members), f"{g.bytes:,}", f"{g.bytes * (len(g.members) - 1):,}") for g in report.groups]
    return [
        element("h3", f"Shared contents in {name}"),
        element("p", f"{plural(len(rows), 'content')} shared; saved: {saved:,} bytes ({kilobytes(saved)} KB)."),
        html_table(Table(("members", "readers", "bytes", "saved bytes"), rows)),
    ]


def _program(index: Index, number: int, program: ProgramEntry) -> list[Markup]:
    parts = [_heading(f"Program {program.name}", f"program{number}"), html_table(interface_table(program))]
    parts += [element("h3", "Levels: used and given"), html_table(levels_table(program))]
    drawn = pictures(index, program)
    if drawn:
        parts += [element("h3", "Pictures"), element("p", READING, class_="pale") if number == 0 else Markup("")]
    for picture in drawn:
        caption = element("figcaption", element("h3", f"{picture.level} of {program.name}"), _key(picture))
        drawing, tall = svg(picture)
        parts.append(element("figure", caption, element("div", drawing, class_="wide"), class_="tall" if tall else None))
    parts += [element("h3", "Storages"), html_table(_storages(index, program))]
    parts += [element("h3", "Steps"), html_table(steps_table(program))]
    return [p for p in parts if p]


def _key(picture: Picture) -> Markup:
    """What the colours of a picture mean: those that it has."""
    kinds = {b.kind for b in picture.bars} | {b.kind for b in picture.boxes}
    present = [k for k in SHOWN if k in kinds]
    present += ["shared"] if any(b.shared for b in picture.bars) else []
    present += ["read"] if any(b.reads for b in picture.bars) else []
    present += ["write"] if any(b.writes for b in picture.bars) else []
    return element("p", (element("span", element("i", class_=k), KEY.get(k, k)) for k in present), class_="key")


def _storages(index: Index, program: ProgramEntry) -> Table:
    """What the pictures show, for paper and for those who cannot point."""
    rows = [_storage(index, program, s) for s in index.of_program(program) if s.size]
    head = ("storage", "role", "members", "used by steps (* writes)", "home", "alive", "offset", "bytes")
    return Table(head, rows, left=6)


def _storage(index: Index, program: ProgramEntry, storage: StorageEntry) -> list[str]:
    steps = ", ".join(f"{u.step}*" if u.writes else str(u.step) for u in index.uses[storage.name] if u.program == program.name)
    alive = "always" if is_bar(storage) else f"{storage.first}-{storage.last}"
    offset = "" if storage.offset is None else f"{storage.offset:,}"
    members = ", ".join(index.members(storage))
    return [storage.name, storage.role, members, steps or "-", storage.home, alive, offset, f"{storage.size:,}"]
