"""Cycles measured on the simulated chip, per step and in all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from Deeploy.emit.manifest import Manifest
from Deeploy.simulate.gvsoc import StepCycles

PARTS = ("compute", "fork_join", "wait_l2", "wait_l3", "control")


@dataclass(frozen=True)
class StepTime:
    """One step: mean cycles of its runs. runs: in a round. compute: workers are busy; fork_join: they are sent and gathered; wait_l2,
    wait_l3: the controller waits for that DMA; control: it works itself."""

    step: int
    node: str
    operator: str
    macs: int
    forks: int
    cycles: int
    compute: int
    fork_join: int
    wait_l2: int
    wait_l3: int
    control: int
    runs: float = 1.0

    def json(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "node": self.node,
            "operator": self.operator,
            "macs": self.macs,
            "runs": self.runs,
            "forks": self.forks,
            "cycles": self.cycles,
            **{part: getattr(self, part) for part in PARTS},
            "macs_per_cycle": ratio(self.macs, self.cycles),
        }


@dataclass(frozen=True)
class Cycles:
    """One round, which is one run of a network or several calls: all cycles of the cluster, with what lies between the steps."""

    total: int
    steps: tuple[StepTime, ...]

    @property
    def macs(self) -> int:
        return round(sum(step.macs * step.runs for step in self.steps))

    def json(self) -> dict[str, Any]:
        split = {part: round(sum(getattr(step, part) * step.runs for step in self.steps)) for part in PARTS}
        return {"total": self.total, **split, "macs": self.macs, "macs_per_cycle": ratio(self.macs, self.total)}

    def text(self) -> str:
        head = ("step", "operator", "MACs", "cycles", "compute", "fork/join", "wait L2", "wait L3", "control", "MAC/cycle")
        rows: list[Sequence[str]] = [head]
        for s in self.steps:
            numbers = (s.macs, s.cycles, s.compute, s.fork_join, s.wait_l2, s.wait_l3, s.control)
            rows.append((str(s.step), s.operator, *(f"{n:,}" for n in numbers), f"{ratio(s.macs, s.cycles):.3f}"))
        whole = self.json()
        numbers = (self.macs, self.total, *(whole[part] for part in PARTS))
        rows.append(("", "all", *(f"{n:,}" for n in numbers), f"{whole['macs_per_cycle']:.3f}"))
        return "\n".join(_aligned(rows))


def ratio(macs: int, cycles: int) -> float:
    return round(macs / cycles, 4) if cycles else 0.0


def cycles_of(total: int, rounds: int, measured: Iterable[StepCycles], manifest: Manifest) -> Cycles:
    """Means over the runs of each step, and over the rounds."""
    runs: dict[int, list[StepCycles]] = {}
    for run in measured:
        runs.setdefault(run.step, []).append(run)
    steps = []
    for index, entry in enumerate(e for program in manifest.programs for e in program.steps):
        mine = runs.get(index, [])

        def mean(part: str, mine: list[StepCycles] = mine) -> int:
            return round(sum(getattr(run, part) for run in mine) / max(1, len(mine)))

        parts = {part: mean(part) for part in PARTS}
        steps.append(
            StepTime(index, entry.node, entry.operator, entry.macs, mean("forks"), mean("cycles"), **parts, runs=len(mine) / rounds)
        )
    return Cycles(round(total / rounds), tuple(steps))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(w) if column == 1 else cell.rjust(w) for column, (cell, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines
