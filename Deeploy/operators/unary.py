"""Functions of one operand: Neg, Abs, Relu, Clip, Sqrt, Exp, ..., the activation functions, IsNaN and IsInf."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from Deeploy.errors import Problem
from Deeploy.operators.arithmetic import float_kernel, float_params, integer_kernel, integer_params
from Deeploy.operators.base import Exactness, Node, Operator, Value, bounds, register
from Deeploy.operators.elementwise import arithmetic_value, input_problems, lower_elementwise, to_float32, wrapped_value
from Deeploy.operators.lowering import Lowering
from Deeploy.program.dtypes import BOOL, FLOAT32
from Deeploy.program.step import Kernel

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

SELU_ALPHA = 1.67326319217681884765625
SELU_GAMMA = 1.05070102214813232421875
erf = np.vectorize(math.erf, otypes=[np.float64])


class FloatUnary(Operator):
    """Base of functions on float32. `parameters`: attributes with their defaults, at most two, in the order of the kernel."""

    domains: ClassVar[tuple[str, ...] | None] = ("",)
    keeps_axes = True
    symbol: ClassVar[str]
    cycles: ClassVar[float] = 4.0
    parameters: ClassVar[tuple[tuple[str, float], ...]] = ()

    def normalise(self, node: gs.Node, opset: int) -> None:
        node.attrs.pop("consumed_inputs", None)

    def problems(self, node: Node) -> list[Problem]:
        found = input_problems(node, 1)
        if not found and node.value(0).dtype != FLOAT32:
            what = f"it is not defined on {node.value(0).dtype.name}"
            why = "the network is in the integer format" if node.integers else ""
            found.append(node.problem(what, why, "cast its input to float first"))
        return found

    def infer(self, node: Node) -> list[Value]:
        return [Value(node.value(0).shape, FLOAT32)]

    def arguments(self, node: Node) -> list[float]:
        """The parameters as float32 numbers."""
        return [float(np.float32(node.float(name, default))) for name, default in self.parameters]

    def floats(self, x: np.ndarray, *parameters: float) -> np.ndarray:
        """The function on a float64 array."""
        raise NotImplementedError

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [to_float32(self.floats(np.asarray(inputs[0]).astype(np.float64), *self.arguments(node)))]

    def lower(self, node: Node, ctx: Lowering) -> None:
        kernel = float_kernel(self.symbol, self.cycles)
        lower_elementwise(ctx, kernel, [ctx.input(0)], ctx.output(0), float_params(*self.arguments(node)))

    def kernels(self) -> Sequence[Kernel]:
        return [float_kernel(self.symbol, self.cycles)]


def _float_function(
    op: str,
    symbol: str,
    cycles: float,
    function: Callable[..., np.ndarray],
    parameters: tuple[tuple[str, float], ...] = (),
    exactness: Exactness = Exactness.APPROXIMATE,
) -> type[Operator]:
    """Declares a function on float32 whose reference is `function(x, *parameters)` on float64."""
    body = {
        "__doc__": f"{op} on float32.",
        "names": (op,),
        "symbol": symbol,
        "cycles": cycles,
        "parameters": parameters,
        "exactness": exactness,
        "floats": lambda self, x, *arguments: function(x, *arguments),
    }
    return register(type(op, (FloatUnary,), body))


def sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


Sqrt = _float_function("Sqrt", "sqrt", 16.0, np.sqrt, exactness=Exactness.ROUNDED)
Exp = _float_function("Exp", "exp", 40.0, np.exp)
Log = _float_function("Log", "log", 40.0, np.log)
Reciprocal = _float_function("Reciprocal", "reciprocal", 12.0, lambda x: 1.0 / x, exactness=Exactness.ROUNDED)
Ceil = _float_function("Ceil", "ceil", 10.0, np.ceil, exactness=Exactness.ROUNDED)
Floor = _float_function("Floor", "floor", 10.0, np.floor, exactness=Exactness.ROUNDED)
Round = _float_function("Round", "round", 10.0, np.rint, exactness=Exactness.ROUNDED)
Erf = _float_function("Erf", "erf", 60.0, erf)
Sigmoid = _float_function("Sigmoid", "sigmoid", 55.0, sigmoid)
Tanh = _float_function("Tanh", "tanh", 60.0, np.tanh)
HardSwish = _float_function("HardSwish", "hard_swish", 10.0, lambda x: x * np.clip(x / 6.0 + 0.5, 0.0, 1.0))
HardSigmoid = _float_function(
    "HardSigmoid", "hard_sigmoid", 8.0, lambda x, a, b: np.clip(a * x + b, 0.0, 1.0), (("alpha", 0.2), ("beta", 0.5))
)
Swish = _float_function("Swish", "swish", 60.0, lambda x, a: x * sigmoid(a * x), (("alpha", 1.0),))
Silu = _float_function("Silu", "swish", 60.0, lambda x, a: x * sigmoid(a * x), (("alpha", 1.0),))
LeakyRelu = _float_function("LeakyRelu", "leaky_relu", 5.0, lambda x, a: np.where(x < 0, a * x, x), (("alpha", 0.01),), Exactness.ROUNDED)
Elu = _float_function("Elu", "elu", 40.0, lambda x, a: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x), (("alpha", 1.0),))
Selu = _float_function(
    "Selu",
    "selu",
    40.0,
    lambda x, a, g: g * np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
    (("alpha", SELU_ALPHA), ("gamma", SELU_GAMMA)),
)
Softplus = _float_function("Softplus", "softplus", 80.0, lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


@register
class Gelu(FloatUnary):
    """The attribute `approximate` decides: "none" (default) is the form with erf, "tanh" the other. com.microsoft's Gelu has erf."""

    names = ("Gelu",)
    domains = ("", "com.microsoft")
    symbol, cycles = "gelu", 70.0

    def problems(self, node: Node) -> list[Problem]:
        found = super().problems(node)
        kind = node.string("approximate", "none")
        if kind not in ("none", "tanh"):
            found.append(node.problem(f"'{kind}' is not supported", remedy='use "none" or "tanh"', attribute="approximate"))
        return found

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        function = gelu_tanh if node.string("approximate", "none") == "tanh" else gelu
        with np.errstate(all="ignore"):
            return [to_float32(function(np.asarray(inputs[0]).astype(np.float64)))]

    def lower(self, node: Node, ctx: Lowering) -> None:
        symbol = "gelu_tanh" if node.string("approximate", "none") == "tanh" else "gelu"
        lower_elementwise(ctx, float_kernel(symbol, self.cycles), [ctx.input(0)], ctx.output(0), float_params())

    def kernels(self) -> Sequence[Kernel]:
        return [float_kernel("gelu", self.cycles), float_kernel("gelu_tanh", self.cycles)]


class NumberUnary(FloatUnary):
    """Base of functions on float32 and on integers; their results keep the type."""

    def problems(self, node: Node) -> list[Problem]:
        found = input_problems(node, 1)
        if not found and node.value(0).dtype == BOOL:
            found.append(node.problem("it is not defined on booleans", remedy="cast its input to a number first"))
        return found

    def infer(self, node: Node) -> list[Value]:
        x = node.value(0)
        return [Value(x.shape, FLOAT32)] if x.dtype == FLOAT32 else [self.integer_value(node, x)]

    def integer_value(self, node: Node, x: Value) -> Value:
        """Type and range of the function of an integer."""
        raise NotImplementedError

    def integers(self, x: np.ndarray) -> np.ndarray:
        """The function on an array of int64 or uint64, wrapping around."""
        return self.floats(x)

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        if node.value(0).dtype == FLOAT32:
            return super().reference(node, inputs)
        x = np.asarray(inputs[0])
        with np.errstate(all="ignore"):
            result = self.integers(x if x.dtype == np.uint64 else x.astype(np.int64))
        return [result.astype(self.infer(node)[0].dtype.numpy)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        x, y = ctx.input(0), ctx.output(0)
        if y.dtype == FLOAT32:
            super().lower(node, ctx)
        else:
            kernel = integer_kernel(self.symbol, 12.0)
            lower_elementwise(ctx, kernel, [x], y, integer_params(x.dtype, x.dtype, y.dtype))

    def kernels(self) -> Sequence[Kernel]:
        return [float_kernel(self.symbol, self.cycles), integer_kernel(self.symbol, 12.0)]


@register
class Neg(NumberUnary):
    names, symbol = ("Neg",), "neg"
    exactness = Exactness.ROUNDED

    def integer_value(self, node: Node, x: Value) -> Value:
        lo, hi = bounds(x)
        return arithmetic_value(node, x.shape, x.dtype, -hi, -lo)

    def floats(self, x: np.ndarray, *parameters: float) -> np.ndarray:
        return np.negative(x)


@register
class Abs(NumberUnary):
    names, symbol = ("Abs",), "abs"
    exactness = Exactness.ROUNDED

    def integer_value(self, node: Node, x: Value) -> Value:
        lo, hi = bounds(x)
        lowest = 0 if lo <= 0 <= hi else min(abs(lo), abs(hi))
        return arithmetic_value(node, x.shape, x.dtype, lowest, max(abs(lo), abs(hi)))

    def floats(self, x: np.ndarray, *parameters: float) -> np.ndarray:
        return np.abs(x)


@register
class Relu(NumberUnary):
    names, symbol = ("Relu",), "relu"
    exactness = Exactness.ROUNDED

    def integer_value(self, node: Node, x: Value) -> Value:
        lo, hi = bounds(x)
        return wrapped_value(x.shape, x.dtype, max(lo, 0), max(hi, 0))

    def floats(self, x: np.ndarray, *parameters: float) -> np.ndarray:
        return np.maximum(x, x.dtype.type(0))


@register
class Sign(NumberUnary):
    names, symbol = ("Sign",), "sign"
    exactness = Exactness.ROUNDED

    def integer_value(self, node: Node, x: Value) -> Value:
        lo, hi = bounds(x)
        return wrapped_value(x.shape, x.dtype, (lo > 0) - (lo < 0), (hi > 0) - (hi < 0))

    def floats(self, x: np.ndarray, *parameters: float) -> np.ndarray:
        return np.sign(x)


@register
class IsNaN(Operator):
    names = ("IsNaN",)
    domains = ("",)
    symbol: ClassVar[str] = "isnan"
    exactness = Exactness.ROUNDED

    def problems(self, node: Node) -> list[Problem]:
        found = input_problems(node, 1)
        if not found and node.value(0).dtype != FLOAT32:
            found.append(node.problem(f"it is not defined on {node.value(0).dtype.name}"))
        return found

    def infer(self, node: Node) -> list[Value]:
        return [Value.integer(node.value(0).shape, BOOL, 0, 1)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        return [np.isnan(np.asarray(inputs[0]))]

    def arguments(self, node: Node) -> tuple[float, ...]:
        return ()

    def lower(self, node: Node, ctx: Lowering) -> None:
        kernel = float_kernel(self.symbol, 5.0)
        lower_elementwise(ctx, kernel, [ctx.input(0)], ctx.output(0), float_params(*self.arguments(node)))

    def kernels(self) -> Sequence[Kernel]:
        return [float_kernel(self.symbol, 5.0)]


@register
class IsInf(IsNaN):
    names = ("IsInf",)
    symbol = "isinf"

    def arguments(self, node: Node) -> tuple[float, ...]:
        return float(node.int("detect_negative", 1) != 0), float(node.int("detect_positive", 1) != 0)

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x = np.asarray(inputs[0])
        negative, positive = self.arguments(node)
        return [(np.isneginf(x) & bool(negative)) | (np.isposinf(x) & bool(positive))]
