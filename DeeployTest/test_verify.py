"""The invariants of programs: a good one passes, each injected fault is found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from Deeploy.errors import DefectError
from Deeploy.program.dtypes import FLOAT32
from Deeploy.program.program import Program
from Deeploy.program.step import Access, Axis, AxisKind, DimMap, Kernel, KernelCall, Operand, Step
from Deeploy.program.tensor import Role, Storage, VariableBuffer
from Deeploy.program.verify import verify


def variable(name: str, shape: tuple[int, ...], role: Role) -> VariableBuffer:
    size = 4
    for n in shape:
        size *= n
    return VariableBuffer(name, name, shape, FLOAT32, Storage(name, size, role))


def matmul_program() -> Program:
    a, b, y = variable("a", (5, 7), Role.INPUT), variable("b", (7, 3), Role.INPUT), variable("y", (5, 3), Role.OUTPUT)
    axes = (Axis("m", 5), Axis("n", 3), Axis("k", 7, AxisKind.REDUCED))
    operands = (
        Operand(a, Access.READ, (DimMap(5, 7, ((0, 1),)), DimMap(7, 1, ((2, 1),)))),
        Operand(b, Access.READ, (DimMap(7, 3, ((2, 1),)), DimMap(3, 1, ((1, 1),)))),
        Operand(y, Access.WRITE, (DimMap(5, 3, ((0, 1),)), DimMap(3, 1, ((1, 1),)))),
    )
    call = KernelCall(Kernel("dp_matmul", "gemm.c"), (0, 1, 2), (0, 1, 2))
    return Program("p", [a, b], [y], [], [a, b, y], [Step("s", "n", "MatMul", axes, operands, (call,))])


def with_output_dims(program: Program, dims: tuple[DimMap, ...]) -> None:
    step = program.steps[0]
    operands = (*step.operands[:2], dataclasses.replace(step.operands[2], dims=dims))
    program.steps[0] = dataclasses.replace(step, operands=operands)


def test_a_good_program_passes() -> None:
    verify(matmul_program())


def gap(p: Program) -> None:
    with_output_dims(p, (DimMap(5, 3, ((0, 2),)), DimMap(3, 1, ((1, 1),))))


def half(p: Program) -> None:
    with_output_dims(p, (DimMap(6, 3, ((0, 1),)), DimMap(3, 1, ((1, 1),))))


def written_along_reduced(p: Program) -> None:
    with_output_dims(p, (DimMap(5, 3, ((0, 1),)), DimMap(7, 1, ((2, 1),))))


def axis_missing(p: Program) -> None:
    with_output_dims(p, (DimMap(5, 3, ((0, 1),)), DimMap(3, 1, (), 0, 3)))


def out_of_storage(p: Program) -> None:
    p.tensors[0].storage.size -= 4


def twice(p: Program) -> None:
    p.tensors[1].name = "a"


def never_written(p: Program) -> None:
    p.inputs.pop()


def output_unwritten(p: Program) -> None:
    p.steps.clear()


def constant_written(p: Program) -> None:
    p.tensors[2].storage.role = Role.CONSTANT


def unknown_tensor(p: Program) -> None:
    p.tensors.pop(0)


def axis_not_there(p: Program) -> None:
    with_output_dims(p, (DimMap(5, 3, ((7, 1),)), DimMap(3, 1, ((1, 1),))))


@pytest.mark.parametrize(
    "fault",
    [
        gap,
        half,
        written_along_reduced,
        axis_missing,
        out_of_storage,
        twice,
        never_written,
        output_unwritten,
        constant_written,
        unknown_tensor,
        axis_not_there,
    ],
)
def test_each_fault_is_found(fault: Callable[[Program], None]) -> None:
    program = matmul_program()
    fault(program)
    with pytest.raises(DefectError):
        verify(program)


def test_homes() -> None:
    with pytest.raises(DefectError, match="has no home"):
        verify(matmul_program(), homes=True)
