"""Gradients of element-wise functions: dX = dY * f'(X), element by element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from Deeploy.errors import Problem
from Deeploy.operators.arithmetic import float_kernel, float_params
from Deeploy.operators.base import Exactness, Node, Operator, Value, register
from Deeploy.operators.elementwise import input_problems, lower_elementwise, to_float32
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.unary import erf
from Deeploy.program.dtypes import FLOAT32
from Deeploy.program.step import Kernel

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs


class ElementwiseGradient(Operator):
    """Base of gradients with the inputs dY and X, float32 of one shape; the output dX has that shape too."""

    domains: ClassVar[tuple[str, ...] | None] = ("", "com.microsoft")
    elementwise = True
    symbol: ClassVar[str]
    cycles: ClassVar[float] = 5.0

    def problems(self, node: Node) -> list[Problem]:
        found = input_problems(node, 2)
        if found:
            return found
        dy, x = node.value(0), node.value(1)
        if dy.dtype != FLOAT32 or x.dtype != FLOAT32:
            found.append(node.problem(f"its inputs have the types {dy.dtype} and {x.dtype}", "it works on float32"))
        if dy.shape != x.shape:
            found.append(node.problem(f"the gradient of shape {list(dy.shape)} is not that of a tensor of shape {list(x.shape)}"))
        return found

    def infer(self, node: Node) -> list[Value]:
        return [Value(node.value(0).shape, FLOAT32)]

    def gradient(self, node: Node, dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        """dX from float64 arrays."""
        raise NotImplementedError

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [to_float32(self.gradient(node, *(np.asarray(v).astype(np.float64) for v in inputs[:2])))]

    def chosen(self, node: Node) -> str:
        """The kernel's operation."""
        return self.symbol

    def lower(self, node: Node, ctx: Lowering) -> None:
        kernel = float_kernel(self.chosen(node), self.cycles)
        lower_elementwise(ctx, kernel, [ctx.input(0), ctx.input(1)], ctx.output(0), float_params())

    def kernels(self) -> Sequence[Kernel]:
        return [float_kernel(self.symbol, self.cycles)]


@register
class ReluGrad(ElementwiseGradient):
    """X may be the operand of Relu or its result: both are positive at the same elements. At 0 and at NaN the gradient is 0."""

    names = ("ReluGrad",)
    symbol = "relu_grad"
    exactness = Exactness.ROUNDED

    def gradient(self, node: Node, dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.where(x > 0, dy, 0.0)


def gelu_slope(x: np.ndarray) -> np.ndarray:
    """Derivative of x * P(x), P the integral of the normal distribution."""
    return 0.5 * (1.0 + erf(x / math.sqrt(2.0))) + x * np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def gelu_tanh_slope(x: np.ndarray) -> np.ndarray:
    """Derivative of 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))."""
    scale = math.sqrt(2.0 / math.pi)
    t = np.tanh(scale * (x + 0.044715 * x**3))
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * scale * (1.0 + 3 * 0.044715 * x * x)


@register
class GeluGrad(ElementwiseGradient):
    """The attribute `approximate` ("none": with erf, "tanh") decides; where it is missing, that of the Gelu which reads the same X."""

    names = ("GeluGrad",)
    symbol, cycles = "gelu_grad", 120.0

    def normalise(self, node: gs.Node, opset: int) -> None:
        if "approximate" in node.attrs or len(node.inputs) < 2:
            return
        kinds = {r.attrs["approximate"] for r in node.inputs[1].outputs if r.op == "Gelu" and "approximate" in r.attrs}
        if len(kinds) == 1:
            node.attrs["approximate"] = kinds.pop()

    def problems(self, node: Node) -> list[Problem]:
        found = super().problems(node)
        kind = node.string("approximate", "none")
        if kind not in ("none", "tanh"):
            found.append(node.problem(f"'{kind}' is not supported", remedy='use "none" or "tanh"', attribute="approximate"))
        return found

    def chosen(self, node: Node) -> str:
        return "gelu_tanh_grad" if node.string("approximate", "none") == "tanh" else "gelu_grad"

    def gradient(self, node: Node, dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return dy * (gelu_slope(x) if self.chosen(node) == "gelu_grad" else gelu_tanh_slope(x))

    def kernels(self) -> Sequence[Kernel]:
        return [float_kernel("gelu_grad", self.cycles), float_kernel("gelu_tanh_grad", self.cycles)]
