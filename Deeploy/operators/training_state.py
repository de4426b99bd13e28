"""Updates of trained state in place: accumulation of gradients (InPlaceAccumulatorV2) and gradient descent (SGD)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from Deeploy.errors import Problem
from Deeploy.operators.base import Node, Operator, Value, register
from Deeploy.operators.broadcasting import elementwise_space
from Deeploy.operators.lowering import Lowering
from Deeploy.program.dtypes import BOOL, FLOAT32
from Deeploy.program.step import Access, Kernel, KernelCall, Param
from Deeploy.program.tensor import Tensor

ACCUMULATE = Kernel("dp_gradient_accumulate_f32", "training_state.c", "dp_gradient_accumulate_cst", cycles_per_point=4.0)
SGD_STEP = Kernel("dp_sgd_f32", "training_state.c", "dp_sgd_cst", cycles_per_point=5.0)


def _update_step(ctx: Lowering, kernel: Kernel, inputs: Sequence[Tensor], params: Sequence[Param]) -> None:
    """The step that changes output 0, the state, element by element; the kernel's operands are `inputs` and the state."""
    state = ctx.update(0)
    # An operand that is the state in another layout would be read where other tiles have been updated already.
    inputs = [ctx.dense(t) if t.storage is state.storage else t for t in inputs]
    axes, operands = elementwise_space(inputs, state)
    operands[-1] = replace(operands[-1], access=Access.UPDATE)
    call = KernelCall(kernel, tuple(range(len(operands))), tuple(range(len(axes))), (Param("rank", len(axes)), *params))
    ctx.step(axes, operands, [call], macs=state.elements)


class _Update(Operator):
    """Input 0 is the state and output 0 the same after the update; input 1 is a gradient of the same shape."""

    writes_state = True
    updates = {0: 0}

    def problems(self, node: Node) -> list[Problem]:
        state, gradient = node.value(0), node.value(1)
        found = [
            node.problem(f"input {slot} has type {value.dtype}", "trained state and gradients are float32")
            for slot, value in enumerate((state, gradient))
            if value.dtype != FLOAT32
        ]
        if state.shape != gradient.shape:
            found.append(node.problem(f"a gradient of shape {list(gradient.shape)} for a state of shape {list(state.shape)}"))
        if any(node.outputs[1:]):
            found.append(node.problem("only the first output is supported", "the state is updated in place", "read the first output"))
        return found

    def infer(self, node: Node) -> list[Value]:
        return [Value(node.value(0).shape, FLOAT32)] * len(node.outputs)


@register
class InPlaceAccumulatorV2(_Update):
    """buffer = gradient where the flag (input 2, bool, absent: never) is set, else buffer + gradient.

    onnxruntime's output 0 is a flag that says that the update was done. Nothing computes with it; here it is the buffer.
    """

    names = ("InPlaceAccumulatorV2",)
    reset_slot = 2
    domains = None

    def problems(self, node: Node) -> list[Problem]:
        found = super().problems(node)
        flag = node.optional(2)
        if flag is not None and (flag.dtype != BOOL or flag.elements != 1):
            found.append(node.problem(f"the reset flag is {flag.dtype} {list(flag.shape)}", "one boolean is needed"))
        return found

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        buffer, gradient = np.asarray(inputs[0]), np.asarray(inputs[1])
        flag = inputs[2] if len(inputs) > 2 else None
        if flag is not None and bool(np.asarray(flag).reshape(-1)[0]):
            return [gradient.copy()]
        with np.errstate(all="ignore"):
            return [buffer + gradient]

    def lower(self, node: Node, ctx: Lowering) -> None:
        flag = ctx.optional(2)
        inputs = [ctx.input(1)] if flag is None else [ctx.input(1), flag]
        _update_step(ctx, ACCUMULATE, inputs, [Param("flagged", int(flag is not None))])

    def kernels(self) -> Sequence[Kernel]:
        return (ACCUMULATE,)


@register
class SGD(_Update):
    """weight - lr * gradient, in float32 with both roundings; attribute lr."""

    names = ("SGD",)
    domains = None

    def problems(self, node: Node) -> list[Problem]:
        found = super().problems(node)
        if not node.has("lr"):
            found.append(node.problem("the attribute is missing", remedy="give the step size as an attribute", attribute="lr"))
        elif not math.isfinite(node.float("lr")):
            found.append(node.problem(f"the step size is {node.float('lr')}", remedy="give a finite number", attribute="lr"))
        if any(value is not None for value in node.inputs[2:]):
            found.append(node.problem("it has more than two inputs", "a weight and a gradient are supported", "give lr as an attribute"))
        return found

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [np.asarray(inputs[0]) - np.float32(node.float("lr")) * np.asarray(inputs[1])]

    def lower(self, node: Node, ctx: Lowering) -> None:
        _update_step(ctx, SGD_STEP, [ctx.input(1)], [Param("rate", float(node.float("lr")))])

    def kernels(self) -> Sequence[Kernel]:
        return (SGD_STEP,)
