"""The invariants of a program, checked after every stage that makes or changes one. A violation is a defect of ours."""

from __future__ import annotations

from Deeploy.errors import DefectError
from Deeploy.program.program import Program
from Deeploy.program.step import Access, AxisKind, Operand, Step
from Deeploy.program.tensor import ConstantBuffer, Level, Role


def verify(program: Program, *, homes: bool = False) -> None:
    """Raises DefectError unless every tensor has a storage, every access stays inside it, every read is of something written, names
    are unique, and every step covers what it writes exactly once. With `homes`, every storage must have one."""
    faults = _names(program) + _reads_after_writes(program)
    for step in program.steps:
        faults += _step(step)
    if homes:
        faults += [f"storage {s.name} has no home" for s in program.storages if s.size and s.home not in (Level.L2, Level.L3)]
    if faults:
        raise DefectError(*faults)


def _names(program: Program) -> list[str]:
    faults = []
    for what, names in (("tensor", [t.name for t in program.tensors]), ("step", [s.name for s in program.steps])):
        seen: set[str] = set()
        for name in names:
            if name in seen:
                faults.append(f"two {what}s are called {name}")
            seen.add(name)
    known = {id(t) for t in program.tensors}
    for step in program.steps:
        faults += [f"{step.name}: tensor {o.tensor.name} is not in the program" for o in step.operands if id(o.tensor) not in known]
    return faults


def _reads_after_writes(program: Program) -> list[str]:
    written = {id(t.storage) for t in program.inputs + program.state}
    faults = []
    for step in program.steps:
        for operand in step.operands:
            storage = operand.tensor.storage
            if operand.access is not Access.WRITE and storage.role is not Role.CONSTANT and id(storage) not in written:
                faults.append(f"{step.name} reads {operand.tensor.name} before anything has written it")
            if operand.access is not Access.READ and storage.role is Role.CONSTANT:
                faults.append(f"{step.name} writes the constant {operand.tensor.name}")
        written |= {id(step.operands[w].tensor.storage) for w in step.writes}
    faults += [f"output {t.name} is never written" for t in program.outputs if t.elements and id(t.storage) not in written]
    return faults


def _step(step: Step) -> list[str]:
    faults = []
    axes = len(step.axes)
    for operand in step.operands:
        if any(a >= axes or c <= 0 for d in operand.dims for a, c in d.terms):
            faults.append(f"{step.name}: {operand.tensor.name} is mapped to an axis that is not there, or backwards")
            continue
        faults += _bounds(step, operand)
        if operand.access is not Access.READ:
            faults += _covered_once(step, operand)
    for call in step.calls:
        if any(i >= len(step.operands) for i in call.operands) or sorted(call.axes) != list(range(axes)):
            faults.append(f"{step.name}: the call of {call.kernel.symbol} names operands or axes that are not there")
    return faults


def _bounds(step: Step, operand: Operand) -> list[str]:
    """The farthest element of the operand lies inside its storage."""
    tensor = operand.tensor
    if isinstance(tensor, ConstantBuffer) and tensor.literal is not None:
        return []
    if any(d.size == 0 for d in operand.dims):
        return []
    last = tensor.offset + tensor.dtype.size * (operand.offset + sum((d.size - 1) * d.stride for d in operand.dims) + 1)
    if tensor.offset + tensor.dtype.size * operand.offset < 0 or last > tensor.storage.size:
        return [f"{step.name}: {tensor.name} reaches byte {last} of a storage of {tensor.storage.size}"]
    return []


def _covered_once(step: Step, operand: Operand) -> list[str]:
    """Each parallel axis appears in exactly one dimension, each dimension is a mixed-radix number of its axes that fills it exactly."""
    faults = []
    where = f"{step.name}: {operand.tensor.name}"
    seen: list[int] = []
    for dim in operand.dims:
        seen += [a for a, _ in dim.terms]
        filled = dim.window
        for axis, coefficient in sorted(dim.terms, key=lambda t: t[1]):
            if step.axes[axis].kind is not AxisKind.PARALLEL:
                faults.append(f"{where} is written along the reduced axis {step.axes[axis].name}")
            if coefficient != filled and step.axes[axis].size > 1:
                faults.append(f"{where} is written with gaps or twice along {step.axes[axis].name}")
            filled = max(filled, coefficient * (step.axes[axis].size - 1) + filled)
        if dim.offset != 0 or filled != dim.size:
            faults.append(f"{where}: a dimension of {dim.size} is written from {dim.offset} to {dim.offset + filled}")
    missing = [a.name for i, a in enumerate(step.axes) if a.kind is AxisKind.PARALLEL and a.size > 1 and i not in seen]
    if missing or len(seen) != len(set(seen)):
        faults.append(f"{where} does not depend on axis {missing} or depends on one twice")
    return faults
