"""A planned project as a folder of C: Network.c/.h, main.c, Observe.c, Makefile, hex files, copies of runtime and kernels, the manifest."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from Deeploy.emit import literals
from Deeploy.emit.describe import describe
from Deeploy.emit.folder import copy_runtime, write_folder
from Deeploy.emit.layout import Layout, has_pointer, lay_out, observed
from Deeploy.emit.manifest import FILE_NAME, Manifest, read_manifest
from Deeploy.emit.steps import StepView, kernel_sources, view_step
from Deeploy.errors import DefectError, Problem, UsageError
from Deeploy.plan.result import Plan
from Deeploy.platform import Platform
from Deeploy.program.dtypes import ALL, Kind
from Deeploy.program.program import Project
from Deeploy.program.tensor import Level, Tensor

IO_RANK = 8
"""DP_IO_RANK in dp_io.h."""
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
    fixtures: Mapping[str, np.ndarray],
    target_dir: Path,
) -> Manifest:
    """Writes the project to `target_dir`, whole or not at all, and returns its manifest.

    fixtures: stored inputs in their storage types, by tensor name or by ONNX name; an input without one gets zeros from main.c.
    Raises UsageError if the folder cannot be written or is not ours, DefectError if the plan is inconsistent.
    """
    if len(plans) != 1:
        raise UsageError(Problem(f"{len(plans)} programs in one project are not supported", remedy="generate each graph on its own"))
    check_prefix(options.prefix)
    plan = plans[0]
    layout = lay_out(plan, options.share)
    steps = [view_step(i, s) for i, s in enumerate(plan.steps)]
    files = _hex_files(layout)
    names = _fixture_names(plan, fixtures, files)
    manifest = describe(project, plan, platform, layout, options, names)
    context = _context(plan, platform, options, layout, steps, names)

    def fill(folder: Path) -> None:
        for name in TEMPLATES + (("Observe.c",) if options.observe else ()):
            text = _templates().get_template(f"{name}.mako").render_unicode(**context)
            (folder / name).write_text(text)
        (folder / "hex").mkdir()
        for name, content in files.items():
            (folder / "hex" / name).write_bytes(content)
        copied = copy_runtime(folder, kernel_sources(plan.steps), options.kernel_path)
        (folder / FILE_NAME).write_text(replace(manifest, kernels=copied).to_json())

    write_folder(target_dir, fill)
    return read_manifest(Path(target_dir))


def check_prefix(prefix: str) -> None:
    """Raises UsageError if public C symbols cannot begin with `prefix`: it is no C identifier, or it is the runtime's own prefix."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", prefix):
        raise UsageError(Problem(f"the prefix '{prefix}' is not a C identifier", remedy="use letters, digits and _, a letter first"))
    if f"{prefix.lower()}_".startswith("dp_"):
        raise UsageError(Problem(f"the prefix '{prefix}' is that of the runtime's own symbols", remedy="choose one that is not dp"))


def _hex_files(layout: Layout) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for owned in layout.owned:
        if owned.file:
            content = owned.storage.content
            assert content is not None
            if files.setdefault(owned.file, content) != content:
                raise DefectError(f"two contents for the file {owned.file}")
    return files


def _fixture_names(plan: Plan, fixtures: Mapping[str, np.ndarray], files: dict[str, bytes]) -> list[str]:
    """The file of every input, "" if there is no fixture for it; adds the contents to `files`."""
    names = []
    for tensor in plan.program.inputs:
        array = fixtures.get(tensor.source, fixtures.get(tensor.name))
        if array is None:
            names.append("")
            continue
        kept = np.asarray(array).astype(tensor.dtype.numpy)
        if kept.size != tensor.elements or not np.array_equal(kept, array, equal_nan=tensor.dtype.is_float):
            raise UsageError(Problem(f"the stored input '{tensor.source}' does not fit {tensor.dtype} {list(tensor.shape)}"))
        name = f"input_{tensor.name}.hex"
        if name in files:
            raise DefectError(f"two contents for the file {name}")
        files[name] = kept.tobytes()
        names.append(name)
    return names


def _context(
    plan: Plan, platform: Platform, options: EmitOptions, layout: Layout, steps: list[StepView], fixtures: list[str]
) -> dict[str, Any]:
    """Everything that the templates name."""
    from Deeploy import __version__

    program = plan.program
    arenas = {level.name: plan.arenas[level].size if level in plan.arenas else 0 for level in Level}
    last = max(len(steps) - 1, 0)
    opens: list[list[Any]] = [[] for _ in range(last + 1)]
    closes: list[list[Any]] = [[] for _ in range(last + 1)]
    for buffer in layout.buffers:
        if not buffer.is_input and not buffer.kept:
            opens[min(max(buffer.first, 0), last)].append(buffer)
        if not buffer.is_output and not buffer.kept:
            closes[min(max(buffer.last, 0), last)].append(buffer)
    consumed = {id(p.storage) for b in layout.buffers if not b.kept for p in b.placements}
    context: dict[str, Any] = {
        "version": __version__,
        "platform": literals.comment(platform.name),
        "title": literals.comment(program.name),
        "prefix": options.prefix,
        "headers": sorted({f"{source.rsplit('.', 1)[0]}.h" for source in kernel_sources(plan.steps)}),
        "owned": layout.owned,
        "buffers": layout.buffers,
        "pointers": _pointers(plan, layout),
        "steps": steps,
        "opens": opens,
        "closes": closes,
        "arenas": arenas,
        "limits": _limits(plan, platform, layout),
        "cores": platform.cores,
        "engines": [
            (2, platform.dma_l2, platform.levels[Level.L2].read_rounding),
            (3, platform.dma_l3, platform.levels[Level.L3].read_rounding),
        ],
        "inputs": program.inputs,
        "outputs": program.outputs,
        "state": program.state,
        "fixtures": fixtures,
        "consumed": [i for i, t in enumerate(program.inputs) if t.storage.size and id(t.storage) in consumed],
        "array": literals.array,
        "integer": literals.integer,
        "comment": literals.comment,
    }
    for name, tensors in (("input", program.inputs), ("output", program.outputs), ("state", program.state)):
        context[f"{name}_ios"] = [_io(t) for t in tensors]
    return context | _observed(plan, layout)


def _pointers(plan: Plan, layout: Layout) -> list[Tensor]:
    """The tensors that need a pointer variable: an empty one that no step names, like an empty output, has no address."""
    named = {id(o.tensor) for s in plan.steps for o in s.step.operands} | {id(t) for b in layout.buffers for t in b.tensors}
    return [t for t in layout.tensors if has_pointer(t) and (t.storage.size or id(t) in named)]


def _limits(plan: Plan, platform: Platform, layout: Layout) -> dict[str, int]:
    """Bytes that a simulator gives each level: what the platform leaves to data, less what arrays in L2 take."""
    taken = sum(o.storage.size for o in layout.owned if o.level is Level.L2)
    limits = {level.name: platform.levels[level].usable for level in Level}
    limits["L2"] = max(limits["L2"] - taken, 0)
    return limits


def _observed(plan: Plan, layout: Layout) -> dict[str, Any]:
    index = {id(t): i for i, t in enumerate(layout.tensors)}
    seen: dict[int, int] = {}
    tensors: list[Tensor] = []
    flat: list[int] = []
    begins = [0]
    for part in (part for step in observed(plan) for part in (step.fresh, step.read, step.written)):
        for tensor in part:
            if id(tensor) not in seen:
                seen[id(tensor)] = len(tensors)
                tensors.append(tensor)
            flat.append(seen[id(tensor)])
        begins.append(len(flat))
    ios = [(_io(t), index[id(t)], *(_bound(v) for v in _range(t))) for t in tensors]
    return {
        "observed": list(enumerate(tensors)),
        "observed_ios": ios,
        "observed_list": flat,
        "observed_begins": begins,
        "observed_bytes": [t.bytes for t in tensors],
    }


def _range(tensor: Tensor) -> tuple[int, int]:
    if tensor.dtype.is_float:
        return 0, 0
    low, high = tensor.dtype.lo, tensor.dtype.hi
    return max(low, low if tensor.lo is None else tensor.lo), min(high, high if tensor.hi is None else tensor.hi)


def _bound(value: int) -> str:
    """As int64_t, wrapped if it is larger."""
    return literals.integer(value - (1 << 64) if value >= 1 << 63 else value)


def _io(tensor: Tensor) -> str:
    """The fields of a dp_io, without the braces around them."""
    extents, strides = _merged(tensor)
    level = (tensor.storage.home or Level.L2).value
    code = [d.name for d in ALL].index(tensor.dtype.name if tensor.dtype.kind is not Kind.BOOL else "bool")
    numbers = f"{tensor.bytes}, {tensor.offset}, {code}, {tensor.dtype.size}, {level}, {len(extents)}"
    return f"{literals.string(tensor.source)}, {numbers}, {{{_list(extents)}}}, {{{_list(strides)}}}"


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values)) or "0"


def _merged(tensor: Tensor) -> tuple[list[int], list[int]]:
    """Extents and strides with dense neighbours merged and axes of length 1 left out."""
    extents: list[int] = []
    strides: list[int] = []
    for extent, stride in zip(tensor.shape, tensor.strides, strict=True):
        if extent == 1:
            continue
        if extents and strides[-1] == stride * extent:
            extents[-1] *= extent
            strides[-1] = stride
        else:
            extents.append(extent)
            strides.append(stride)
    if len(extents) > IO_RANK:
        raise DefectError(f"{tensor.name} needs {len(extents)} dimensions to be addressed")
    return extents, strides
