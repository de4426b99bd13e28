"""Checks every operator by itself: its numpy reference is fed with what the device read and compared with what the device wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from Deeploy.compiler import Compiled
from Deeploy.emit import Manifest, Script
from Deeploy.frontend import Model, node_view
from Deeploy.operators.base import Node, find
from Deeploy.program.dtypes import BOOL
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


def check_first_calls(compiled: Compiled, manifest: Manifest, script: Script, trace: Path, tolerance: Tolerance) -> list[NodeCheck]:
    """The checks of every program's nodes, in its first call."""
    traces = list(step_traces(trace, manifest))
    checks = []
    for index, (model, program) in enumerate(zip(compiled.models, compiled.project.programs, strict=True)):
        with_steps = [c.program for c in script.calls if manifest.programs[c.program].steps]
        if index in with_steps:
            number = with_steps.index(index) + 1
            base = manifest.programs[index].base
            checks += check_nodes(model, program, {t.step - base: t for t in traces if t.round == number}, tolerance)
    return checks


def check_nodes(model: Model, program: Program, runs: Mapping[int, StepTrace], tolerance: Tolerance) -> list[NodeCheck]:
    """One NodeCheck per graph node, and one per copy step.

    Nodes that only move data without computing (views, and concatenations that are written in place or copied together) have no values of
    their own on the device: their addresses are checked instead.
    """
    steps: dict[str, list[int]] = {}
    for index, step in enumerate(program.steps):
        steps.setdefault(step.node, []).append(index)
    nodes = {n.name: n for n in model.graph.nodes}
    checks = []
    for index, step in enumerate(program.steps):
        if _is_copy(step):
            checks += _check_copy(step, runs[index], tolerance)
    for binding in program.bindings:
        view, own = node_view(model, nodes[binding.node]), steps.get(binding.node, [])
        if all(t is None or t.elements == 0 for t in binding.outputs):
            continue
        check = _check_node(view, binding, [runs[i] for i in own], tolerance) if own else None
        if (check is None or not check.checked) and all(_is_copy(program.steps[i]) for i in own):
            check = check_addresses(view, binding, [program.steps[i] for i in own])
        assert check is not None
        checks.append(check)
    return checks


def _is_copy(step: Step) -> bool:
    return all(c.kernel.symbol.startswith(COPY_PREFIX) for c in step.calls)


def _check_copy(step: Step, run: StepTrace, tolerance: Tolerance) -> list[NodeCheck]:
    """What a copy wrote is what it read, bit for bit, broadcast to the target. Nothing for copies that repeat or pick elements."""
    source, target = (step.operands[i].tensor for i in step.calls[0].operands)
    shape = (1,) * (len(target.shape) - len(source.shape)) + source.shape
    if len(shape) != len(target.shape) or any(n not in (1, m) for n, m in zip(shape, target.shape, strict=True)):
        return []
    read = _array(source, run.reads)
    if read is None or target.name not in run.writes:
        return [NodeCheck(step.name, "Copy", False)]
    written = run.writes[target.name]
    expected = np.broadcast_to(read, written.shape)
    if written.dtype.kind == "f":  # NaN payloads count: a copy moves bytes
        written, expected = np.ascontiguousarray(written).view(np.uint32), np.ascontiguousarray(expected).view(np.uint32)
    return [NodeCheck(step.name, "Copy", True, (compare(target.name, written, expected, tolerance),))]


def check_addresses(view: Node, binding: Binding, copies: list[Step]) -> NodeCheck:
    """Whether the outputs of a node that only moves data lie where its reference, applied to the addresses of the inputs' elements, puts
    them. An input that a copy step reads counts as lying where the copy is.

    The reference is fed with the addresses digit by digit, in the inputs' own types, so that it may convert its results to them.
    """
    operator = find(view.op, view.domain)
    assert operator is not None
    moved: dict[int, list[Tensor]] = {}
    for step in copies:
        source, target = (step.operands[k].tensor for k in step.calls[0].operands)
        moved.setdefault(id(source), []).append(target)
    # An input that is there twice is copied twice, in the order of the inputs.
    inputs = [None if t is None else moved[id(t)].pop(0) if moved.get(id(t)) else t for t in binding.inputs]
    outputs = [t for t in binding.outputs if t is not None]
    assert len(outputs) == len(binding.outputs), f"{binding.node}: a node that moves data and leaves out an output"
    tensors = [t for t in [*inputs, *outputs] if t is not None]
    if any(isinstance(t, ConstantBuffer) and t.literal is not None for t in tensors):
        return NodeCheck(binding.node, view.op, True)  # an immediate has no address; every element is the same
    storages = {_memory(t): i for i, t in enumerate(tensors)}
    base = 1 << max(t.storage.size for t in tensors).bit_length()

    def addresses(tensor: Tensor) -> np.ndarray:
        index = np.zeros(tensor.shape, np.int64)
        for axis, (n, stride) in enumerate(zip(tensor.shape, tensor.strides, strict=True)):
            steps = np.arange(n, dtype=np.int64) * (stride * tensor.dtype.size)
            index += steps.reshape((-1,) + (1,) * (len(tensor.shape) - 1 - axis))
        return index + tensor.offset + storages[_memory(tensor)] * base

    homes = {_memory(t) for t in outputs}
    given = [t.value() if isinstance(t, ConstantBuffer) and _memory(t) not in homes else None for t in inputs]  # indices
    remaining = [None if t is None or v is not None else addresses(t) for t, v in zip(inputs, given, strict=True)]
    expected = [np.zeros(t.shape, np.int64) for t in outputs]
    radix, weight = (2 if any(t.dtype is BOOL for t in tensors) else 100), 1
    while any(a is not None and a.any() for a in remaining):
        digits = [
            v if a is None or t is None else (a % radix).astype(t.dtype.numpy) for a, t, v in zip(remaining, inputs, given, strict=True)
        ]
        with np.errstate(all="ignore"):
            parts = operator.reference(view, digits)
        for k, part in enumerate(parts[: len(expected)]):
            if part.shape != expected[k].shape:
                return NodeCheck(binding.node, view.op, True, (_misplaced(outputs[k]),))
            expected[k] += part.astype(np.int64) * weight
        remaining = [None if a is None else a // radix for a in remaining]
        weight *= radix
    compared = [compare(f"addresses of {t.source}", addresses(t), e, Tolerance()) for t, e in zip(outputs, expected, strict=True)]
    return NodeCheck(binding.node, view.op, True, tuple(compared))


def _memory(tensor: Tensor) -> int | bytes:
    """What is the same for tensors in one memory. A constant that only views read is not told when its content becomes shared, so
    for constants it is the content."""
    content = tensor.storage.content
    return content if isinstance(tensor, ConstantBuffer) and content is not None else id(tensor.storage)


def _misplaced(tensor: Tensor) -> Comparison:
    count = tensor.elements
    return Comparison(f"addresses of {tensor.source}", str(tensor.dtype), tensor.shape, count, count, float("inf"), 0)


def _check_node(view: Node, binding: Binding, runs: list[StepTrace], tolerance: Tolerance) -> NodeCheck:
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
        array = None if tensor is None else _array(_as_read(tensor, binding, reads), reads)
        if tensor is not None and array is None:
            return NodeCheck(binding.node, view.op, False)
        inputs.append(array)
    if any(t is not None and t.name not in writes for t in binding.outputs):
        return NodeCheck(binding.node, view.op, False)
    with np.errstate(all="ignore"):
        expected = operator.reference(view, inputs)
    pairs = [(t, e) for t, e in zip(binding.outputs, expected, strict=False) if t is not None]
    outputs = tuple(compare(t.source, writes[t.name], np.asarray(e), tolerance) for t, e in pairs)
    return NodeCheck(binding.node, view.op, True, outputs)


def _as_read(tensor: Tensor, binding: Binding, reads: Mapping[str, np.ndarray]) -> Tensor:
    """The tensor under which the device has read it: the output that updates it in place, if no step names the tensor itself."""
    if tensor.name not in reads:
        for output in (t for t in binding.outputs if t is not None):
            same = output.storage is tensor.storage and output.offset == tensor.offset and output.shape == tensor.shape
            if same and output.name in reads:
                return output
    return tensor


def _array(tensor: Tensor, read: dict[str, np.ndarray]) -> np.ndarray | None:
    if isinstance(tensor, ConstantBuffer):
        return tensor.value()
    return read.get(tensor.name)
