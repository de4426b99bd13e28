"""Project and plan as the manifest says them."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

from Deeploy import __version__
from Deeploy.emit.layout import Layout, ProgramLayout, has_pointer, home
from Deeploy.emit.manifest import (
    FORMAT,
    TOOL,
    AliasEntry,
    ArenaEntry,
    CallEntry,
    CostEntry,
    Manifest,
    NotSharedEntry,
    OperandEntry,
    ProgramEntry,
    ReaderEntry,
    StateEntry,
    StepEntry,
    StorageEntry,
    TensorEntry,
    UseEntry,
)
from Deeploy.emit.script import ScriptFiles
from Deeploy.plan.result import StepPlan
from Deeploy.platform import Platform
from Deeploy.program.program import Project
from Deeploy.program.step import AxisKind
from Deeploy.program.tensor import ConstantBuffer, Level, Storage, Tensor

if TYPE_CHECKING:
    from Deeploy.emit.emitter import EmitOptions


def describe(project: Project, platform: Platform, layout: Layout, options: EmitOptions, given: ScriptFiles) -> Manifest:
    """The manifest; the list of kernel files is still empty."""
    return Manifest(
        format=FORMAT,
        tool=TOOL,
        version=__version__,
        options=dict(sorted(options.settings.items())),
        prefix=options.prefix,
        model_sha256=options.model_sha256,
        platform=platform.name,
        kernels=[],
        programs=[_program(p) for p in layout.programs],
        state=[
            StateEntry(t.name, t.source, t.storage.name, t.storage.content is None, file)
            for t, file in zip(layout.state, given.state, strict=True)
        ],
        calls=[CallEntry(c.program, list(c.files), list(c.outputs)) for c in given.calls],
        storages=_storages(layout),
        aliases=[AliasEntry(t.name, o.tensors[0].name) for o in layout.owned for t in o.tensors[1:]],
        readers=[ReaderEntry(r.program, r.node, r.slot, r.tensor, r.bytes, r.content) for r in project.readers],
        not_shared=[NotSharedEntry(n.tensor, n.twin, n.reason) for n in project.not_shared],
        notes=list(project.notes),
    )


def _program(layout: ProgramLayout) -> ProgramEntry:
    program, plan = layout.program, layout.plan
    return ProgramEntry(
        name=program.name,
        base=layout.base,
        inputs=[t.name for t in program.inputs],
        outputs=[t.name for t in program.outputs],
        state=[t.name for t in program.state],
        tensors=[_tensor(t) for t in layout.tensors],
        steps=[_step(s) for s in plan.steps],
        arenas=[ArenaEntry(level.name, plan.arenas[level].size, plan.arenas[level].bound) for level in Level if level in plan.arenas],
        use=[UseEntry(u.level.name, u.given, u.constants, u.arena, u.reserved) for u in plan.use],
    )


def _tensor(t: Tensor) -> TensorEntry:
    constant = isinstance(t, ConstantBuffer)
    return TensorEntry(
        name=t.name,
        source=t.source,
        kind="constant" if constant else "variable",
        shape=list(t.shape),
        dtype=t.dtype.name,
        storage=t.storage.name,
        offset=t.offset,
        strides=list(t.strides),
        lo=t.lo,
        hi=t.hi,
        literal=t.literal.hex() if isinstance(t, ConstantBuffer) and t.literal is not None else None,
        reader=t.reader if isinstance(t, ConstantBuffer) else "",
    )


def _storages(layout: Layout) -> list[StorageEntry]:
    owned = {id(o.storage): o for o in layout.owned}
    placements = {id(q.storage): q for p in layout.programs for a in p.plan.arenas.values() for q in a.placements}
    kept = {id(t.storage): b for b in layout.kept for t in b.tensors}
    seen: dict[int, Storage] = {}
    for tensor in layout.tensors:
        if has_pointer(tensor):
            seen.setdefault(id(tensor.storage), tensor.storage)
    entries = []
    for key, s in seen.items():
        mine, place, behind = owned.get(key), placements.get(key), kept.get(key)
        entries.append(
            StorageEntry(
                name=s.name,
                role=s.role.value,
                size=s.size,
                alignment=s.alignment,
                home=home(s).name,
                symbol=mine.symbol if mine else "",
                file=mine.file if mine else "",
                content=hashlib.sha256(s.content).hexdigest() if s.content else "",
                members=[t.name for t in mine.tensors] if mine else list(s.members),
                offset=place.offset if place else behind.offset if behind else None,
                first=place.first if place else None,
                last=place.last if place else None,
            )
        )
    return entries


def _step(plan: StepPlan) -> StepEntry:
    step = plan.step
    operands = []
    for o, near, far in zip(step.operands, plan.l1, plan.l2, strict=True):
        operands.append(
            OperandEntry(
                tensor=o.tensor.name,
                access=o.access.value,
                home=home(o.tensor.storage).name if has_pointer(o.tensor) else "immediate",
                l1_bytes=near.bytes if near else None,
                l1_copies=near.copies if near else None,
                l1_offsets=list(near.offsets) if near else None,
                l2_bytes=far.bytes if far else None,
                l2_copies=far.copies if far else None,
                l2_offsets=list(far.offsets) if far else None,
            )
        )
    return StepEntry(
        name=step.name,
        node=step.node,
        operator=step.operator,
        axes=[a.name for a in step.axes],
        sizes=[a.size for a in step.axes],
        reduced=[a.kind is AxisKind.REDUCED for a in step.axes],
        outer=list(plan.outer),
        inner=list(plan.inner),
        order=list(plan.order),
        operands=operands,
        kernels=[c.kernel.symbol for c in step.calls],
        cores=plan.cores,
        accumulator=plan.accumulator.bytes if plan.accumulator else 0,
        accumulator_offset=plan.accumulator.offset if plan.accumulator else None,
        scratch=plan.scratch.bytes if plan.scratch else 0,
        scratch_offset=plan.scratch.offset if plan.scratch else None,
        macs=int(step.macs),
        cost=CostEntry(**{f.name: int(getattr(plan.cost, f.name)) for f in dataclasses.fields(CostEntry)}),
    )
