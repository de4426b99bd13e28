"""Comparisons, boolean operators and Where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from Deeploy.errors import Problem
from Deeploy.operators.arithmetic import float_kernel, float_params, integer_kernel, integer_params
from Deeploy.operators.base import Exactness, Node, Operator, Value, bounds, register
from Deeploy.operators.elementwise import as_type, broadcast_shape, input_problems, lower_elementwise, type_problems
from Deeploy.operators.lowering import Lowering
from Deeploy.program.dtypes import BOOL, FLOAT32, smallest_integer
from Deeploy.program.step import Kernel


class Comparison(Operator):
    """Base of comparisons of two operands; the result is boolean."""

    domains = ("",)
    exactness = Exactness.ROUNDED
    symbol: ClassVar[str]
    function: ClassVar[Any]
    booleans: ClassVar[bool] = False

    def problems(self, node: Node) -> list[Problem]:
        found = input_problems(node, 2)
        if found:
            return found
        values = [node.value(0), node.value(1)]
        if self.booleans and all(v.dtype == BOOL for v in values):
            return []
        return type_problems(node, values)

    def infer(self, node: Node) -> list[Value]:
        return [Value.integer(broadcast_shape(node, [node.value(0), node.value(1)]), BOOL, 0, 1)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        return [type(self).function(np.asarray(inputs[0]), np.asarray(inputs[1]))]

    def lower(self, node: Node, ctx: Lowering) -> None:
        x, y, output = ctx.input(0), ctx.input(1), ctx.output(0)
        if x.dtype == FLOAT32:
            kernel, params = float_kernel(self.symbol, 6.0), float_params()
        else:
            kernel, params = integer_kernel(self.symbol, 16.0), integer_params(x.dtype, y.dtype, output.dtype)
        lower_elementwise(ctx, kernel, [x, y], output, params)

    def kernels(self) -> Sequence[Kernel]:
        return [float_kernel(self.symbol, 6.0), integer_kernel(self.symbol, 16.0)]


def _comparison(op: str, symbol: str, function: Callable[..., np.ndarray], booleans: bool = False) -> type[Operator]:
    body = {"__doc__": f"{op} of two numbers.", "names": (op,), "symbol": symbol, "function": function, "booleans": booleans}
    return register(type(op, (Comparison,), body))


Equal = _comparison("Equal", "equal", np.equal, True)
Greater = _comparison("Greater", "greater", np.greater)
GreaterOrEqual = _comparison("GreaterOrEqual", "greater_or_equal", np.greater_equal)
Less = _comparison("Less", "less", np.less)
LessOrEqual = _comparison("LessOrEqual", "less_or_equal", np.less_equal)


class Logical(Operator):
    """Base of operators on booleans."""

    domains = ("",)
    operands: ClassVar[int] = 2
    function: ClassVar[Any]
    kernel: ClassVar[Kernel]

    def problems(self, node: Node) -> list[Problem]:
        found = input_problems(node, self.operands)
        if found:
            return found
        kinds = [node.value(i).dtype for i in range(self.operands)]
        return [node.problem(f"an operand is {k.name}, not boolean", remedy="cast it to bool") for k in kinds if k != BOOL]

    def infer(self, node: Node) -> list[Value]:
        return [Value.integer(broadcast_shape(node, [node.value(i) for i in range(self.operands)]), BOOL, 0, 1)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        return [type(self).function(*(np.asarray(a).astype(bool) for a in inputs[: self.operands]))]

    def lower(self, node: Node, ctx: Lowering) -> None:
        lower_elementwise(ctx, self.kernel, [ctx.input(i) for i in range(self.operands)], ctx.output(0))

    def kernels(self) -> Sequence[Kernel]:
        return [self.kernel]


def _logical(op: str, function: Callable[..., np.ndarray], operands: int = 2) -> type[Operator]:
    kernel = Kernel(f"dp_{op.lower()}_b8", "logic.c", "dp_logic_cst", cycles_per_point=5.0)
    body = {"__doc__": f"{op} of booleans.", "names": (op,), "function": function, "kernel": kernel, "operands": operands}
    return register(type(op, (Logical,), body))


And = _logical("And", np.logical_and)
Or = _logical("Or", np.logical_or)
Xor = _logical("Xor", np.logical_xor)
Not = _logical("Not", np.logical_not, 1)

WHERE_KERNELS = {size: Kernel(f"dp_where_{size}", "logic.c", "dp_logic_cst", cycles_per_point=7.0) for size in (1, 2, 4, 8)}
"""Kernel by element size in bytes."""


@register
class Where(Operator):
    """condition ? x : y. In the integer format x and y may have different types; the result has the smallest that holds both."""

    names = ("Where",)
    domains = ("",)
    exactness = Exactness.COPIED
    elementwise = True

    def problems(self, node: Node) -> list[Problem]:
        found = input_problems(node, 3)
        if found:
            return found
        condition, x, y = (node.value(i) for i in range(3))
        if condition.dtype.size != 1:
            found.append(node.problem(f"its condition is {condition.dtype.name}, not boolean", remedy="cast it to bool"))
        mixable = node.integers and x.dtype.is_integer and y.dtype.is_integer
        if x.dtype != y.dtype and not mixable:
            found.append(node.problem(f"its operands have different types: {x.dtype.name} and {y.dtype.name}"))
        return found

    def infer(self, node: Node) -> list[Value]:
        x, y = node.value(1), node.value(2)
        shape = broadcast_shape(node, [node.value(0), x, y])
        if x.dtype == FLOAT32:
            return [Value(shape, FLOAT32)]
        lo, hi = min(bounds(x)[0], bounds(y)[0]), max(bounds(x)[1], bounds(y)[1])
        return [Value.integer(shape, x.dtype if x.dtype == y.dtype else smallest_integer(lo, hi), lo, hi)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        dtype = self.infer(node)[0].dtype.numpy
        condition, x, y = (np.asarray(a) for a in inputs[:3])
        return [np.where(condition.astype(bool), x.astype(dtype), y.astype(dtype))]

    def lower(self, node: Node, ctx: Lowering) -> None:
        output = ctx.output(0)
        x = as_type(ctx, ctx.input(1), output.dtype, "x")
        y = as_type(ctx, ctx.input(2), output.dtype, "y")
        lower_elementwise(ctx, WHERE_KERNELS[output.dtype.size], [ctx.input(0), x, y], output)

    def kernels(self) -> Sequence[Kernel]:
        return list(WHERE_KERNELS.values())
