"""Everything that the templates of a project name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from Deeploy.emit import literals
from Deeploy.emit.layout import Buffer, Layout, ProgramLayout, has_pointer, observed
from Deeploy.emit.script import ScriptFiles
from Deeploy.emit.steps import StepView, Tables, kernel_sources
from Deeploy.errors import DefectError
from Deeploy.plan.tables import generated_bytes
from Deeploy.platform import Platform
from Deeploy.program.dtypes import ALL, Kind
from Deeploy.program.tensor import Level, Tensor, VariableBuffer

if TYPE_CHECKING:
    from Deeploy.emit.emitter import EmitOptions

IO_RANK = 8
"""DP_IO_RANK in dp_io.h."""


@dataclass(frozen=True)
class Interface:
    """Tensors that the caller reads or writes, with the initialisers of their dp_io."""

    tensors: Sequence[VariableBuffer]
    ios: list[str]

    @staticmethod
    def of(tensors: Sequence[VariableBuffer]) -> Interface:
        return Interface(tensors, [_io(t) for t in tensors])


@dataclass(frozen=True)
class ProgramView:
    """One program.

    suffix: of its C functions and tables; title: behind `Run` in its function of steps. opens, closes: per step the buffers that begin
    before it and end behind it. consumed: inputs whose memory a run uses for other data. state: its tensors in the project's table.
    """

    index: int
    suffix: str
    title: str
    name: str
    base: int
    steps: list[StepView]
    buffers: list[Buffer]
    opens: list[list[Buffer]]
    closes: list[list[Buffer]]
    inputs: Interface
    outputs: Interface
    consumed: list[int]
    state: list[int]


def template_context(
    platform: Platform, options: EmitOptions, layout: Layout, steps: list[list[StepView]], given: ScriptFiles, keep_state: bool
) -> dict[str, Any]:
    """The names of all templates."""
    from Deeploy import __version__

    plans = [p.plan for p in layout.programs]
    programs = [_program(p, mine, layout) for p, mine in zip(layout.programs, steps, strict=True)]
    state = Interface.of(layout.state)
    context: dict[str, Any] = {
        "version": __version__,
        "platform": literals.comment(platform.name),
        "title": literals.comment(", ".join(p.program.name for p in layout.programs)),
        "prefix": options.prefix,
        "headers": sorted({f"{source.rsplit('.', 1)[0]}.h" for source in kernel_sources([s for p in plans for s in p.steps])}),
        "owned": layout.owned,
        "kept": layout.kept + [b for p in layout.programs for b in p.buffers if b.kept],
        "pointers": _pointers(layout),
        "programs": programs,
        "steps": [s for mine in steps for s in mine],
        "define": Tables().define,
        "state": state,
        "given_state": [i for i, t in enumerate(state.tensors) if t.storage.content is None and t.storage.size],
        "state_files": _state_files(layout, given),
        "arenas": {level.name: size for level, size in layout.arenas.items()},
        "limits": _limits(platform, layout),
        "cores": platform.cores,
        "engines": [
            (2, platform.dma_l2, platform.levels[Level.L2].read_rounding),
            (3, platform.dma_l3, platform.levels[Level.L3].read_rounding),
        ],
        "calls": given.calls,
        "keep_state": keep_state and bool(layout.state),
        "array": literals.array,
        "integer": literals.integer,
        "comment": literals.comment,
    }
    return context | _observed(layout)


def _program(layout: ProgramLayout, steps: list[StepView], project: Layout) -> ProgramView:
    last = max(len(steps) - 1, 0)
    opens: list[list[Buffer]] = [[] for _ in range(last + 1)]
    closes: list[list[Buffer]] = [[] for _ in range(last + 1)]
    for buffer in layout.buffers:
        if not buffer.is_input and not buffer.kept:
            opens[min(max(buffer.first, 0), last)].append(buffer)
        if not buffer.is_output and not buffer.kept:
            closes[min(max(buffer.last, 0), last)].append(buffer)
    taken = {id(p.storage) for b in layout.buffers if not b.kept for p in b.placements}
    program = layout.program
    mine = {id(t.storage) for t in program.state}
    return ProgramView(
        index=layout.index,
        suffix=program.suffix,
        title=layout.title,
        name=literals.comment(program.name),
        base=layout.base,
        steps=steps,
        buffers=layout.buffers,
        opens=opens,
        closes=closes,
        inputs=Interface.of(program.inputs),
        outputs=Interface.of(program.outputs),
        consumed=[i for i, t in enumerate(program.inputs) if t.storage.size and id(t.storage) in taken],
        state=[i for i, t in enumerate(project.state) if id(t.storage) in mine],
    )


def _pointers(layout: Layout) -> list[Tensor]:
    """The tensors that need a pointer variable: an empty one that no step names, like an empty output, has no address."""
    named = {id(o.tensor) for p in layout.programs for s in p.plan.steps for o in s.step.operands}
    named |= {id(t) for p in layout.programs for b in p.buffers for t in b.tensors}
    return [t for t in layout.tensors if has_pointer(t) and (t.storage.size or id(t) in named)]


def _state_files(layout: Layout, given: ScriptFiles) -> list[str]:
    """Per state the file that it begins with: the caller's, or the one that Init loads; "" for zeros."""
    owned = {id(o.storage): o.file for o in layout.owned}
    return [mine or owned.get(id(t.storage), "") for mine, t in zip(given.state, layout.state, strict=True)]


def _limits(platform: Platform, layout: Layout) -> dict[str, int]:
    """Bytes that a simulator gives each level: what the platform and the generated code leave to data, less what arrays in L2 take."""
    taken = sum(o.storage.size for o in layout.owned if o.level is Level.L2)
    free = platform.with_reserved(Level.L2, generated_bytes(p.program for p in layout.programs))
    limits = {level.name: free.levels[level].usable for level in Level}
    limits["L2"] = max(limits["L2"] - taken, 0)
    return limits


def _observed(layout: Layout) -> dict[str, Any]:
    index = {id(t): i for i, t in enumerate(layout.tensors)}
    seen: dict[int, int] = {}
    tensors: list[Tensor] = []
    flat: list[int] = []
    begins = [0]
    watched = [step for p in layout.programs for step in observed(p.plan)]
    for part in (part for step in watched for part in (step.fresh, step.read, step.written)):
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
