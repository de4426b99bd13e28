"""The tables of a project: steps, memory levels, state, and the byte report of constants. KB are 1024 bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from Deeploy.emit.manifest import Manifest, OperandEntry, ProgramEntry, StepEntry, TensorEntry
from Deeploy.report.index import Index
from Deeploy.report.l3 import Figures, LevelReport
from Deeploy.report.markup import visible
from Deeploy.report.recount import Count
from Deeploy.report.state import state_rows

MAX_LISTED = 12
"""Groups, near misses and immediates that a text report lists; JSON and HTML have all."""


@dataclass(frozen=True)
class Table:
    """Cells in columns: the first `left` to the left, the others to the right."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    left: int = 1

    def text(self) -> str:
        return table(self.head, self.rows, self.left)


def table(head: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> str:
    """Aligned columns: the first `left` to the left, the others to the right."""
    lines = [list(head)] + [[visible(str(cell)) for cell in row] for row in rows]
    widths = [max(len(line[c]) for line in lines) for c in range(len(head))]
    texts = []
    for line in lines:
        cells = [cell.ljust(w) if c < left else cell.rjust(w) for c, (cell, w) in enumerate(zip(line, widths, strict=True))]
        texts.append("  ".join(cells).rstrip())
    texts.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(texts)


def kilobytes(count: int) -> str:
    """Bytes as KB of 1024 with one decimal."""
    return f"{count / 1024:,.1f}"


def steps_table(program: ProgramEntry) -> Table:
    """Per step: operator, shape and type of the result, homes, tiles, buffers, operations, estimated cycles, bytes per hop."""
    tensors = {t.name: t for t in program.tensors}
    head = ("step", "operator", "result", "home", "tile", "buffers", "MACs", "cycles", "L3>L2", "L2>L3", "L2>L1", "L1>L2")
    rows: list[Sequence[object]] = [_step_row(i, step, tensors) for i, step in enumerate(program.steps)]
    costs = [s.cost for s in program.steps]
    total = ["", "all", "", "", "", "", f"{sum(s.macs for s in program.steps):,}", f"{sum(c.total for c in costs):,}"]
    moved = [
        sum(c.l3_to_l2 for c in costs),
        sum(c.l2_to_l3 for c in costs),
        sum(c.l2_to_l1 for c in costs),
        sum(c.l1_to_l2 for c in costs),
    ]
    rows.append([*total, *(f"{m:,}" for m in moved)])
    return Table(head, rows, left=6)


def _step_row(index: int, step: StepEntry, tensors: dict[str, TensorEntry]) -> list[str]:
    written = next(tensors[o.tensor] for o in step.operands if o.access != "read")
    shape = "x".join(map(str, written.shape)) or "scalar"
    homes = "/".join(o.home.replace("immediate", "-") for o in step.operands)
    tile = " ".join(f"{name}={n}" for name, n, size in zip(step.axes, step.inner, step.sizes, strict=True) if size > 1) or "1"
    if step.outer != step.sizes:
        outer = " ".join(f"{name}={n}" for name, n, size in zip(step.axes, step.outer, step.sizes, strict=True) if n < size)
        tile += f" (L2: {outer})"
    buffers = "/".join(_buffers(o) for o in step.operands)
    cost = step.cost
    numbers = (step.macs, cost.total, cost.l3_to_l2, cost.l2_to_l3, cost.l2_to_l1, cost.l1_to_l2)
    return [str(index), step.operator, f"{written.dtype} {shape}", homes, tile, buffers, *(f"{n:,}" for n in numbers)]


def _buffers(operand: OperandEntry) -> str:
    """Copies of the tile buffers in L1, and in L2 where there are any."""
    if operand.l1_copies is None:
        return "-"
    return f"{operand.l1_copies}+{operand.l2_copies}" if operand.l2_copies else str(operand.l1_copies)


def levels_table(program: ProgramEntry) -> Table:
    """Bytes used and given per level, and how far each arena is from its lower bound."""
    arenas = {a.level: a for a in program.arenas}
    rows = []
    for use in program.use:
        used = use.constants + use.arena
        share = f"{100 * used / use.given:.1f} %" if use.given else "-"
        bound = arenas[use.level].bound if use.level in arenas else 0
        rows.append(
            (use.level, kilobytes(use.given), kilobytes(used), share, kilobytes(use.constants), kilobytes(use.arena), kilobytes(bound))
        )
    return Table(("level", "given KB", "used KB", "used", "constants KB", "arena KB", "lower bound KB"), rows)


def interface_table(program: ProgramEntry) -> Table:
    """Inputs and outputs of a program. Its state is in the table of the project's state."""
    tensors = {t.name: t for t in program.tensors}
    both = [("input", n) for n in program.inputs] + [("output", n) for n in program.outputs]
    rows = [(what, tensors[n].source, tensors[n].dtype, str(tensors[n].shape), tensors[n].storage) for what, n in both]
    return Table(("", "name", "type", "shape", "storage"), rows, left=5)


def state_table(index: Index) -> Table:
    """All state of a project."""
    head = ("state", "type", "shape", "home", "first value", "read by (steps)", "updated by (steps)", "bytes")
    rows = [
        (s.name, s.dtype, str(s.shape), s.home, s.origin, _counted(s.reads), _counted(s.updates), f"{s.bytes:,}") for s in state_rows(index)
    ]
    return Table(head, rows, left=7)


def _counted(steps: Mapping[str, int]) -> str:
    return ", ".join(f"{program} ({count})" for program, count in steps.items()) or "-"


def figures_table(level: str, report: LevelReport) -> Table:
    """The byte report of a level."""
    lines: list[tuple[str, Figures | Count]] = [
        ("a copy per reader", report.replicated),
        ("stored", report.stored),
        ("recounted", report.recount),
    ]
    rows = [(name, f.allocations, f.files, f"{f.bytes:,}", kilobytes(f.bytes)) for name, f in lines]
    return Table((f"constants in {level.upper()}", "allocations", "files", "bytes", "KB"), rows)


def programs_table(level: str, report: LevelReport) -> Table:
    """A copy per reader -> stored, per program and for the project."""
    lines = [(p.name, p.replicated, p.stored) for p in report.programs] + [("the project", report.replicated, report.stored)]
    head = (f"constants in {level.upper()}", *("allocations", "files", "KB"), "->", *("allocations", "files", "KB"), "saved KB")
    rows = [
        (
            *(name, a.allocations, a.files, kilobytes(a.bytes), "->"),
            *(b.allocations, b.files, kilobytes(b.bytes), kilobytes(a.bytes - b.bytes)),
        )
        for name, a, b in lines
    ]
    return Table(head, rows)


PROGRAMS_NOTE = "(left: a copy per reader; right: stored. What several programs use counts in each of them, and once for the project.)"


def constants_text(level: str, report: LevelReport) -> str:
    """The byte report of a level with its groups, near misses and immediates."""
    parts = [figures_table(level, report).text()]
    if len(report.programs) > 1:
        parts += ["", programs_table(level, report).text(), PROGRAMS_NOTE, ""]
    shared = sum(g.bytes * (len(g.members) - 1) for g in report.groups)
    if report.groups:
        parts.append(f"{len(report.groups)} contents are shared and save {shared:,} bytes ({kilobytes(shared)} KB):")
        parts += _listed([f"  {g.bytes:,} bytes: {', '.join(g.members)}" for g in report.groups])
    if report.not_shared:
        parts.append(f"{len(report.not_shared)} equal contents are not shared:")
        parts += _listed([f"  {n.tensor} and {n.twin}: {n.reason}" for n in report.not_shared])
    if report.immediates:
        spared = sum(i.bytes for i in report.immediates)
        parts.append(f"{len(report.immediates)} scalars and splats are values in their steps and store nothing ({spared:,} bytes):")
        parts += _listed([f"  {i.tensor}: {i.bytes:,} bytes" for i in report.immediates])
    return "\n".join(parts)


def _listed(lines: list[str]) -> list[str]:
    lines = [visible(line) for line in lines]
    if len(lines) <= MAX_LISTED:
        return lines
    return [*lines[:MAX_LISTED], f"  and {len(lines) - MAX_LISTED} more (--json lists all)"]


def project_text(manifest: Manifest, reports: dict[str, LevelReport]) -> str:
    """The whole text report of a project."""
    parts = []
    for program in manifest.programs:
        tensors = {t.name: t for t in program.tensors}
        if len(manifest.programs) > 1:
            parts.append(f"program {program.name}")
        for what, names in (("input", program.inputs), ("output", program.outputs)):
            parts.append("\n".join(visible(f"{what} {tensors[n].source}: {tensors[n].dtype} {tensors[n].shape}") for n in names))
        parts += [steps_table(program).text(), levels_table(program).text()]
    if manifest.state:
        parts.append(state_table(Index(manifest)).text())
    parts.append(constants_text("l3", reports["l3"]))
    if reports["l2"].stored.allocations:
        parts.append(constants_text("l2", reports["l2"]))
    parts.append("\n".join(visible(f"note: {note}") for note in manifest.notes))
    return "\n\n".join(part for part in parts if part)
