"""A planned project as a folder of C: Network.c/.h, main.c, Observe.c, Makefile, hex files, copies of runtime and kernels, the manifest."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from Deeploy.emit.context import template_context
from Deeploy.emit.describe import describe
from Deeploy.emit.folder import copy_runtime, write_folder
from Deeploy.emit.layout import Layout, lay_out
from Deeploy.emit.manifest import FILE_NAME, Manifest, read_manifest
from Deeploy.emit.script import Script, ScriptFiles, script_files
from Deeploy.emit.steps import kernel_sources, view_step
from Deeploy.errors import DefectError, Problem, UsageError
from Deeploy.plan.result import Plan
from Deeploy.platform import Platform
from Deeploy.program.program import Project

TEMPLATES = ("Network.c", "Network.h", "main.c", "Makefile")


@dataclass(frozen=True)
class EmitOptions:
    """prefix: of all public C symbols. share: equal contents are one file. observe: write Observe.c. settings, model_sha256: for the
    manifest. kernel_path: folders looked in for kernel files before Targets/kernels."""

    prefix: str = "Deeploy"
    share: bool = True
    observe: bool = True
    model_sha256: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    kernel_path: tuple[Path, ...] = ()


@functools.cache
def _templates() -> Any:
    from mako.lookup import TemplateLookup

    return TemplateLookup(directories=[str(Path(__file__).parent / "templates")], strict_undefined=True)


def emit(
    project: Project,
    plans: Sequence[Plan],
    platform: Platform,
    options: EmitOptions,
    script: Script,
    target_dir: Path,
) -> Manifest:
    """Writes the project to `target_dir`, whole or not at all, and returns its manifest.

    script: what main.c does, with the arrays that it gives to inputs and state.
    Raises UsageError if the folder cannot be written or is not ours, DefectError if the plan is inconsistent.
    """
    check_prefix(options.prefix)
    layout = lay_out(project, plans, options.share)
    steps = [[view_step(p.base + i, s) for i, s in enumerate(p.plan.steps)] for p in layout.programs]
    given = script_files(project, script)
    files = _hex_files(layout, given)
    manifest = describe(project, platform, layout, options, given)
    context = template_context(platform, options, layout, steps, given, script.keep_state)

    def fill(folder: Path) -> None:
        for name in TEMPLATES + (("Observe.c",) if options.observe else ()):
            text = _templates().get_template(f"{name}.mako").render_unicode(**context)
            (folder / name).write_text(text)
        (folder / "hex").mkdir()
        for name, content in files.items():
            (folder / "hex" / name).write_bytes(content)
        copied = copy_runtime(folder, kernel_sources([s for plan in plans for s in plan.steps]), options.kernel_path)
        (folder / FILE_NAME).write_text(replace(manifest, kernels=copied).to_json())

    write_folder(target_dir, fill)
    return read_manifest(Path(target_dir))


def check_prefix(prefix: str) -> None:
    """Raises UsageError if public C symbols cannot begin with `prefix`: it is no C identifier, or it is the runtime's own prefix."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", prefix):
        raise UsageError(Problem(f"the prefix '{prefix}' is not a C identifier", remedy="use letters, digits and _, a letter first"))
    if f"{prefix.lower()}_".startswith("dp_"):
        raise UsageError(Problem(f"the prefix '{prefix}' is that of the runtime's own symbols", remedy="choose one that is not dp"))


def _hex_files(layout: Layout, given: ScriptFiles) -> dict[str, bytes]:
    files: dict[str, bytes] = dict(given.contents)
    for owned in layout.owned:
        if owned.file:
            content = owned.storage.content
            assert content is not None
            if files.setdefault(owned.file, content) != content:
                raise DefectError(f"two contents for the file {owned.file}")
    return files
