"""Text tables of a project: steps, memory levels, and the byte report of constants. KB are 1024 bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from Deeploy.emit.manifest import Manifest, OperandEntry, ProgramEntry, StepEntry, TensorEntry
from Deeploy.report.l3 import Figures, LevelReport
from Deeploy.report.recount import Count

MAX_LISTED = 12
"""Groups, near misses and immediates that a text report lists; JSON has all."""


def table(head: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> str:
    """Aligned columns: the first `left` to the left, the others to the right."""
    lines = [list(head)] + [[str(cell) for cell in row] for row in rows]
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


def steps_table(program: ProgramEntry) -> str:
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
    return table(head, rows, left=6)


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


def levels_table(program: ProgramEntry) -> str:
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
    return table(("level", "given KB", "used KB", "used", "constants KB", "arena KB", "lower bound KB"), rows)


def constants_table(level: str, report: LevelReport) -> str:
    """The byte report of a level."""
    lines: list[tuple[str, Figures | Count]] = [
        ("a copy per reader", report.replicated),
        ("stored", report.stored),
        ("recounted", report.recount),
    ]
    rows = [(name, f.allocations, f.files, f"{f.bytes:,}", kilobytes(f.bytes)) for name, f in lines]
    parts = [table((f"constants in {level.upper()}", "allocations", "files", "bytes", "KB"), rows)]
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
    if len(lines) <= MAX_LISTED:
        return lines
    return [*lines[:MAX_LISTED], f"  and {len(lines) - MAX_LISTED} more (--json lists all)"]


def project_text(manifest: Manifest, reports: dict[str, LevelReport]) -> str:
    """The whole text report of a project."""
    parts = []
    for program in manifest.programs:
        tensors = {t.name: t for t in program.tensors}
        for what, names in (("input", program.inputs), ("output", program.outputs), ("state", program.state)):
            parts.append("\n".join(f"{what} {tensors[n].source}: {tensors[n].dtype} {tensors[n].shape}" for n in names))
        parts += [steps_table(program), levels_table(program)]
    parts.append(constants_table("l3", reports["l3"]))
    if reports["l2"].stored.allocations:
        parts.append(constants_table("l2", reports["l2"]))
    parts.append("\n".join(f"note: {note}" for note in manifest.notes))
    return "\n\n".join(part for part in parts if part)
