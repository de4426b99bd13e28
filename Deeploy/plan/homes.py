"""Which storage moves down to L3 next, when L2 is too full."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from Deeploy.plan.geometry import StepGeometry, is_literal, whole_bytes
from Deeploy.platform import Platform
from Deeploy.program.program import Program
from Deeploy.program.tensor import Role, Storage

NEARLY = 1.25
"""Values per byte up to this factor above the least count as equally low: among them the size decides."""


@dataclass(frozen=True)
class Excess:
    """The worst overflow of L2: bytes too many, and the step at which they are alive."""

    bytes: int
    step: int


def values(programs: Iterable[Program], platform: Platform) -> dict[Storage, float]:
    """Per storage the cycles per byte that a home in L2 saves: every use costs a transfer if the home is L3."""
    dma = platform.dma_l3
    saved: dict[Storage, float] = {}
    for step in (s for program in programs for s in program.steps):
        geometry = StepGeometry(step)
        for operand, shape in zip(step.operands, geometry.operands, strict=True):
            if is_literal(operand):
                continue
            size, fixed = whole_bytes(geometry, shape), dma.latency_cycles + dma.setup_cycles
            cycles = (size / dma.read_bytes_per_cycle + fixed) * shape.reads + (size / dma.write_bytes_per_cycle + fixed) * shape.writes
            saved[operand.tensor.storage] = saved.get(operand.tensor.storage, 0.0) + cycles
    return {storage: cycles / max(1, storage.size) for storage, cycles in saved.items()}


def next_to_move(candidates: Iterable[Storage], value: dict[Storage, float], excess: int) -> Storage | None:
    """The storage of least value per byte. Among nearly equal ones, weights first: the smallest that ends the excess, else the largest."""
    pool = list(candidates)
    if not pool:
        return None
    least = min(value.get(s, 0.0) for s in pool)
    pool = [s for s in pool if value.get(s, 0.0) <= least * NEARLY]
    weights = [s for s in pool if s.role is Role.CONSTANT]
    pool = weights or pool
    enough = [s for s in pool if s.size >= excess]
    return min(enough, key=lambda s: s.size) if enough else max(pool, key=lambda s: s.size)
