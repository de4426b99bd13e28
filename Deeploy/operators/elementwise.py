"""What all element-wise operators share: the step builder, ranges and result types.

The kernel interface is documented in Targets/kernels/dp_rows.h: axes of the constant struct's `rank`, inputs in order, the output last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from Deeploy.errors import ModelError, Problem
from Deeploy.operators.base import Node, Value, bounds
from Deeploy.operators.broadcasting import elementwise_space
from Deeploy.operators.lowering import Lowering
from Deeploy.program.dtypes import BOOL, FLOAT32, INT32, INT64, TYPE_CODES, UINT64, DType
from Deeploy.program.step import Kernel, KernelCall, Operand, Param
from Deeploy.program.tensor import Tensor, VariableBuffer

CAST_KERNEL = Kernel("dp_cast", "convert.c", "dp_convert_cst", cycles_per_point=8.0)


def lower_elementwise(
    ctx: Lowering,
    kernel: Kernel,
    inputs: Sequence[Tensor],
    output: Tensor,
    params: Sequence[Param] = (),
    *,
    owners: Sequence[Tensor] | None = None,
    suffix: str = "",
) -> None:
    """Makes the step output = kernel(inputs) with numpy broadcasting of every input to the output's shape.

    params: fields of the constant struct after its first one, `rank`.
    owners: the program's tensors behind `inputs`, where those are only other shapes of them.
    Inputs may be views of any strides, constants or literals. The result may be computed in place of an input that is read with the
    output's own map.
    """
    axes, operands = elementwise_space(inputs, output)
    operands = [replace(o, tensor=t) for o, t in zip(operands, [*(owners or inputs), output], strict=True)]
    written = len(inputs)
    call = KernelCall(kernel, tuple(range(len(operands))), tuple(range(len(axes))), (Param("rank", len(axes)), *params))
    in_place = [(written, i) for i in range(written) if _may_overwrite(operands, i)]
    ctx.step(axes, operands, [call], in_place=in_place, macs=output.elements, suffix=suffix)


def _may_overwrite(operands: Sequence[Operand], index: int) -> bool:
    """Whether the last operand may lie on operand `index`: equal maps, and no other operand reads that storage differently."""
    read, written = operands[index], operands[-1]
    if not isinstance(read.tensor, VariableBuffer) or read.tensor.dtype.size != written.tensor.dtype.size or read.dims != written.dims:
        return False
    place = (read.dims, read.tensor.offset, read.tensor.dtype.size)
    return all((o.dims, o.tensor.offset, o.tensor.dtype.size) == place for o in operands[:-1] if o.tensor.storage is read.tensor.storage)


def cast_params(source: DType, target: DType) -> tuple[Param, ...]:
    """Params of CAST_KERNEL after the rank."""
    return (
        Param("type_x", TYPE_CODES[source]),
        Param("type_y", TYPE_CODES[target]),
        Param("scale", 0.0),
        Param("zero", 0.0),
        Param("lo", 0),
        Param("hi", 0),
    )


def as_type(ctx: Lowering, tensor: Tensor, dtype: DType, name: str) -> Tensor:
    """The tensor itself, or a converted copy if it has another type."""
    if tensor.dtype == dtype:
        return tensor
    target = ctx.temporary(name, tensor.shape, dtype)
    lower_elementwise(ctx, CAST_KERNEL, [tensor], target, cast_params(tensor.dtype, dtype), suffix=name)
    return target


def arithmetic_value(node: Node, shape: Sequence[int], dtype: DType, lo: int, hi: int) -> Value:
    """The result of integer arithmetic with exact range [lo, hi].

    In the integer format: int32 if that holds the range, else int64 (ModelError if that is too narrow). Otherwise `dtype`, the operands'
    type, wrapping around.
    """
    if not node.integers:
        return wrapped_value(shape, dtype, lo, hi)
    for candidate in (INT32, INT64):
        if candidate.lo <= lo and hi <= candidate.hi:
            return Value.integer(shape, candidate, lo, hi)
    raise ModelError(node.problem(f"results in [{lo}, {hi}] do not fit 64 bits", remedy="requantise its inputs first"))


def wrapped_value(shape: Sequence[int], dtype: DType, lo: int, hi: int) -> Value:
    """A value of that type whose exact result is in [lo, hi]: the full range of the type if it may wrap around."""
    if dtype.lo <= lo and hi <= dtype.hi:
        return Value.integer(shape, dtype, lo, hi)
    return Value.integer(shape, dtype, dtype.lo, dtype.hi)


def corners(function: Callable[[int, int], int], a: Value, b: Value) -> tuple[int, int]:
    """Range of a function that is monotone in each argument."""
    results = [function(x, y) for x in bounds(a) for y in bounds(b)]
    return min(results), max(results)


def broadcast_shape(node: Node, values: Sequence[Value]) -> tuple[int, ...]:
    """The common numpy shape. Raises ModelError."""
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*[v.shape for v in values]))
    except ValueError:
        shapes = ", ".join(str(list(v.shape)) for v in values)
        raise ModelError(node.problem(f"the shapes {shapes} do not broadcast to each other")) from None


def input_problems(node: Node, count: int | None) -> list[Problem]:
    """Problems of missing inputs and of shapes that do not broadcast. count: inputs needed, None: at least one, any number."""
    needed = max(1, len(node.inputs)) if count is None else count
    missing = [node.problem(f"input {i} is missing") for i in range(needed) if node.optional(i) is None]
    if missing:
        return missing
    try:
        broadcast_shape(node, [node.value(i) for i in range(needed)])
    except ModelError as error:
        return list(error.problems)
    return []


def type_problems(node: Node, values: Sequence[Value]) -> list[Problem]:
    """Problems of operand types of arithmetic: mixtures of kinds, booleans, and outside of the integer format any mixture."""
    names = " and ".join(dict.fromkeys(v.dtype.name for v in values))
    types = {v.dtype for v in values}
    if BOOL in types:
        return [node.problem(f"it has operands of type {names}", "arithmetic on booleans is not defined", "cast them to numbers first")]
    mixed = len(types) > 1 and (not node.integers or FLOAT32 in types or UINT64 in types)
    if mixed:
        return [node.problem(f"its operands have different types: {names}", remedy="cast them to one type")]
    return []


def work_array(array: np.ndarray) -> np.ndarray:
    """An integer array in the type that references compute in: uint64 for itself, int64 for every other."""
    return array if array.dtype == np.uint64 else array.astype(np.int64)


def truncating_division(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quotients toward zero, 0 where the divisor is 0; arrays of one integer type, wrapping around."""
    with np.errstate(all="ignore"):
        safe = np.where(b == 0, np.ones_like(b), b)
        quotient = np.floor_divide(a, safe)
        rest = a - quotient * safe
        quotient = quotient + ((rest != 0) & ((a < 0) != (safe < 0))).astype(quotient.dtype)
    return np.where(b == 0, np.zeros_like(quotient), quotient)


def to_float32(array: np.ndarray) -> np.ndarray:
    """Rounded once; overflow becomes infinite without a warning."""
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(np.float32)
