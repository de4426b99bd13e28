"""Project and plan as the manifest says them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from Deeploy import __version__
from Deeploy.emit.layout import Layout, has_pointer, home
from Deeploy.emit.manifest import (
    FORMAT,
    TOOL,
    AliasEntry,
    ArenaEntry,
    CostEntry,
    Manifest,
    NotSharedEntry,
    OperandEntry,
    ProgramEntry,
    ReaderEntry,
    StepEntry,
    StorageEntry,
    TensorEntry,
    UseEntry,
)
from Deeploy.plan.result import Plan, StepPlan
from Deeploy.platform import Platform
from Deeploy.program.program import Project
from Deeploy.program.step import AxisKind
from Deeploy.program.tensor import ConstantBuffer, Level, Storage, Tensor

if TYPE_CHECKING:
    from Deeploy.emit.emitter import EmitOptions


def describe(project: Project, plan: Plan, platform: Platform, layout: Layout, options: EmitOptions, fixtures: Sequence[str]) -> Manifest:
    """The manifest; the list of kernel files is still empty."""
    program = plan.program
    entry = ProgramEntry(
        name=program.name,
        inputs=[t.name for t in program.inputs],
        fixtures=list(fixtures),
        outputs=[t.name for t in program.outputs],
        state=[t.name for t in program.state],
        tensors=[_tensor(t) for t in layout.tensors],
        steps=[_step(s) for s in plan.steps],
        arenas=[ArenaEntry(level.name, plan.arenas[level].size, plan.arenas[level].bound) for level in Level if level in plan.arenas],
        use=[UseEntry(u.level.name, u.given, u.constants, u.arena, u.reserved) for u in plan.use],
    )
    return Manifest(
        format=FORMAT,
        tool=TOOL,
        version=__version__,
        options=dict(sorted(options.settings.items())),
        prefix=options.prefix,
        model_sha256=options.model_sha256,
        platform=platform.name,
        kernels=[],
        programs=[entry],
        storages=_storages(plan, layout),
        aliases=[AliasEntry(t.name, o.tensors[0].name) for o in layout.owned for t in o.tensors[1:]],
        readers=[ReaderEntry(r.node, r.slot, r.tensor, r.bytes, r.content) for r in project.readers],
        not_shared=[NotSharedEntry(n.tensor, n.twin, n.reason) for n in project.not_shared],
        notes=list(project.notes),
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


def _storages(plan: Plan, layout: Layout) -> list[StorageEntry]:
    owned = {id(o.storage): o for o in layout.owned}
    placements = {id(p.storage): p for a in plan.arenas.values() for p in a.placements}
    seen: dict[int, Storage] = {}
    for tensor in layout.tensors:
        if has_pointer(tensor):
            seen.setdefault(id(tensor.storage), tensor.storage)
    entries = []
    for key, s in seen.items():
        mine, place = owned.get(key), placements.get(key)
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
                offset=place.offset if place else None,
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
                l2_bytes=far.bytes if far else None,
                l2_copies=far.copies if far else None,
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
        scratch=plan.scratch.bytes if plan.scratch else 0,
        macs=int(step.macs),
        cost=CostEntry(**{f.name: int(getattr(plan.cost, f.name)) for f in dataclasses.fields(CostEntry)}),
    )
