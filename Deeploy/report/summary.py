"""The report of a project folder: as text, as HTML, and as the JSON object of `deeploy report` and `deeploy generate`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from Deeploy.emit.manifest import ProgramEntry, read_manifest
from Deeploy.report.index import Index
from Deeploy.report.l3 import level_reports
from Deeploy.report.state import state_rows
from Deeploy.report.tables import project_text


def l3_of(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The l3 and the l2 object of a project. Raises DefectError if the emitted files do not hold what the manifest says."""
    reports = level_reports(read_manifest(folder), folder)
    return reports["l3"].json(), reports["l2"].json()


def text_of(folder: Path) -> str:
    """The tables of a project. Raises as `l3_of`."""
    manifest = read_manifest(folder)
    return project_text(manifest, level_reports(manifest, folder))


def html_of(folder: Path) -> str:
    """The report as one HTML file that needs nothing else. Raises as `l3_of`."""
    from Deeploy.report.html import project_html

    manifest = read_manifest(folder)
    return project_html(manifest, level_reports(manifest, folder))


def summary_of(folder: Path) -> dict[str, Any]:
    """Everything about a project as one JSON object. Raises as `l3_of`."""
    manifest = read_manifest(folder)
    reports = level_reports(manifest, folder)
    return {
        "platform": manifest.platform,
        "version": manifest.version,
        "prefix": manifest.prefix,
        "model_sha256": manifest.model_sha256,
        "options": manifest.options,
        "programs": [_program(p) for p in manifest.programs],
        "state": [dataclasses.asdict(s) for s in state_rows(Index(manifest))],
        "l3": reports["l3"].json(),
        "l2": reports["l2"].json(),
        "notes": manifest.notes,
    }


def _program(program: ProgramEntry) -> dict[str, Any]:
    tensors = {t.name: t for t in program.tensors}

    def interface(names: list[str]) -> list[dict[str, Any]]:
        return [{"name": tensors[n].source, "dtype": tensors[n].dtype, "shape": tensors[n].shape} for n in names]

    return {
        "name": program.name,
        "inputs": interface(program.inputs),
        "outputs": interface(program.outputs),
        "state": interface(program.state),
        "steps": [dataclasses.asdict(s) for s in program.steps],
        "arenas": [dataclasses.asdict(a) for a in program.arenas],
        "levels": [dataclasses.asdict(u) for u in program.use],
    }
