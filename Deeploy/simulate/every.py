"""Checks every operator by itself: its numpy reference is fed with what the device read and compared with what the device wrote."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from Deeploy.emit.manifest import ProgramEntry
from Deeploy.frontend import Model, node_view
from Deeploy.operators.base import find
from Deeploy.program.program import Binding, Program
from Deeploy.program.step import Step
from Deeploy.program.tensor import ConstantBuffer, Tensor
from Deeploy.simulate.compare import Comparison, Tolerance, compare
from Deeploy.simulate.trace import StepTrace, step_traces

COPY_PREFIX = "dp_copy_"


@dataclass(frozen=True)
class NodeCheck:
    """One node (or one copy made by the lowering). checked: False if not all its tensors are materialised (views of others)."""

    node: str
    operator: str
    checked: bool
    outputs: tuple[Comparison, ...] = ()

    @property
    def errors(self) -> int:
        return sum(o.errors for o in self.outputs)

    def __str__(self) -> str:
        return f"{self.node} ({self.operator}): " + "; ".join(str(o) for o in self.outputs if o.errors)


def check_nodes(model: Model, program: Program, entry: ProgramEntry, trace: Path, tolerance: Tolerance) -> list[NodeCheck]:
    """One NodeCheck per graph node that has steps, and one per copy step."""
    runs = {t.step: t for t in step_traces(trace, entry) if t.round == 1}
    steps: dict[str, list[int]] = {}
    for index, step in enumerate(program.steps):
        steps.setdefault(step.node, []).append(index)
    nodes = {n.name: n for n in model.graph.nodes}
    checks = []
    for index, step in enumerate(program.steps):
        if step.calls[0].kernel.symbol.startswith(COPY_PREFIX):
            checks.append(_check_copy(step, runs[index], tolerance))
    for binding in program.bindings:
        if binding.node in steps:
            view = node_view(model, nodes[binding.node])
            checks.append(_check_node(view, binding, [runs[i] for i in steps[binding.node]], tolerance))
    return checks


def _check_copy(step: Step, run: StepTrace, tolerance: Tolerance) -> NodeCheck:
    """What a copy wrote is what it read, bit for bit, broadcast to the target."""
    source, target = (step.operands[i].tensor for i in step.calls[0].operands)
    read = _array(source, run.reads)
    if read is None or target.name not in run.writes:
        return NodeCheck(step.name, "Copy", False)
    written = run.writes[target.name]
    expected = np.broadcast_to(read, written.shape)
    if written.dtype.kind == "f":  # NaN payloads count: a copy moves bytes
        written, expected = np.ascontiguousarray(written).view(np.uint32), np.ascontiguousarray(expected).view(np.uint32)
    return NodeCheck(step.name, "Copy", True, (compare(target.name, written, expected, tolerance),))


def _check_node(view, binding: Binding, runs: list[StepTrace], tolerance: Tolerance) -> NodeCheck:  # noqa: ANN001
    operator = find(view.op, view.domain)
    assert operator is not None
    reads: dict[str, np.ndarray] = {}
    writes: dict[str, np.ndarray] = {}
    for run in runs:
        for name, value in run.reads.items():
            reads.setdefault(name, value)
        writes.update(run.writes)
    inputs: list[np.ndarray | None] = []
    for tensor in binding.inputs:
        array = None if tensor is None else _array(tensor, reads)
        if tensor is not None and array is None:
            return NodeCheck(binding.node, view.op, False)
        inputs.append(array)
    if any(t.name not in writes for t in binding.outputs):
        return NodeCheck(binding.node, view.op, False)
    expected = operator.reference(view, inputs)
    outputs = tuple(compare(t.source, writes[t.name], np.asarray(e), tolerance) for t, e in zip(binding.outputs, expected, strict=False))
    return NodeCheck(binding.node, view.op, True, outputs)


def _array(tensor: Tensor, read: dict[str, np.ndarray]) -> np.ndarray | None:
    if isinstance(tensor, ConstantBuffer):
        return tensor.value()
    return read.get(tensor.name)
