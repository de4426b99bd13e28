"""What the generated code takes of L2 beside data: the constant tables of the steps, the variables, and the code that is written per step.

The sizes are those of the structures in Targets/runtime/include on a 32-bit machine. Tables with equal content are one (see emit), across
the programs of a project. It is an estimate for the planner, made before tiles are known: never less than what is needed, and little more.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from Deeploy.plan.geometry import is_literal
from Deeploy.program.program import Program
from Deeploy.program.step import Operand, Param, Step

AXIS, DIM, TERM, OPERAND, STEP_OPERAND, CALL, STEP, IO = 16, 24, 8, 20, 52, 28, 60, 80
"""Bytes of dp_axis, dp_dim, dp_term, dp_operand, dp_step_operand, dp_call, dp_step and dp_io."""
STEP_CODE, TENSOR_CODE = 40, 16
"""Bytes of code per step, and per tensor that is opened, closed or assigned."""
FIXED = 6 * 1024
"""Bytes of a network's interface and of its working state."""


def generated_bytes(programs: Iterable[Program]) -> int:
    """Bytes of L2 that the generated code of a project takes."""
    seen: set[Hashable] = set()
    total = FIXED
    for program in programs:
        total += sum(_step(step, seen) for step in program.steps)
        total += (4 + TENSOR_CODE) * len(program.tensors)
        total += sum(IO + len(t.source.encode()) + 1 for t in (*program.inputs, *program.outputs, *program.state))
    return total


def _step(step: Step, seen: set[Hashable]) -> int:
    total = STEP + STEP_CODE + AXIS * len(step.axes) + STEP_OPERAND * len(step.operands) + CALL * len(step.calls)
    total += sum(_operand(operand, seen) for operand in step.operands)
    for call in step.calls:
        if call.kernel.constant_struct:
            total += _once((call.kernel.constant_struct, call.params), seen, sum(map(_param, call.params)))
    return total


def _operand(operand: Operand, seen: set[Hashable]) -> int:
    dims = tuple((d.size, 0 if is_literal(operand) else d.stride, d.offset, d.window, d.terms) for d in operand.dims)
    terms = tuple(t for d in operand.dims for t in d.terms)
    total = _once(("dims", dims), seen, DIM * len(dims)) + _once(("terms", terms), seen, TERM * len(terms))
    return total + _once((dims, operand.memory_order, operand.tensor.dtype.size), seen, OPERAND)


def _param(param: Param) -> int:
    size = 8 if param.name.endswith("64") else 4
    return size * (len(param.value) if isinstance(param.value, tuple) else 1)


def _once(key: Hashable, seen: set[Hashable], size: int) -> int:
    if key in seen:
        return 0
    seen.add(key)
    return size
