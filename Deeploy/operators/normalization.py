"""Float normalisations: LayerNormalization, RMS norms, InstanceNormalization, GroupNormalization and BatchNormalization (inference)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from Deeploy.errors import ModelError, Problem
from Deeploy.operators.base import Node, Operator, Value, register
from Deeploy.operators.broadcasting import broadcast_strides, broadcasts, merge_axes
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.softmax import axis_problems, checked_axis
from Deeploy.operators.views import LineSpace, Strided, line_space, strided_operand
from Deeploy.program.dtypes import FLOAT32
from Deeploy.program.step import MAX_RANK, Access, Axis, Kernel, KernelCall, Param
from Deeploy.program.tensor import Tensor

NORM = Kernel("dp_norm_f32", "norm.c", "dp_norm_cst", cycles_per_point=20.0)
BATCH_NORM = Kernel("dp_batch_norm_f32", "norm.c", "dp_batch_norm_cst", cycles_per_point=8.0)


def float_problems(node: Node) -> list[Problem]:
    """Inputs that are not float32."""
    return [
        node.problem(f"input {slot} has type {value.dtype}", "it works on float32", "use the integer form of the operator")
        for slot, value in enumerate(node.inputs)
        if value is not None and value.dtype != FLOAT32
    ]


def output_problems(node: Node) -> list[Problem]:
    """Outputs beyond the first, which are statistics for training."""
    if any(node.outputs[1:]):
        return [node.problem("only the first output is supported", "statistics are not kept", "remove the readers of the other outputs")]
    return []


def norm_step(node: Node, ctx: Lowering, space: LineSpace | None, *, centre: bool, extras: int, epsilon: float) -> None:
    """The step of dp_norm_f32. Raises ModelError if there is no space."""
    if space is None:
        raise ModelError(
            node.problem(
                "scale or bias broadcast within a line in a way that needs too many loops", remedy="expand them to the normalised shape"
            )
        )
    params = (
        Param("rank", space.rank),
        Param("centre", int(centre)),
        Param("scaled", int(extras > 0)),
        Param("biased", int(extras > 1)),
        Param("epsilon", float(epsilon)),
    )
    call = KernelCall(NORM, tuple(range(2 + extras)), tuple(range(len(space.axes))), params)
    ctx.step(space.axes, space.operands, [call], in_place=space.in_place, macs=4 * node.value(0).elements)


class _LineNorm(Operator):
    """Normalisation over the dimensions from `axis` on, with scale and optional bias that broadcast to the input."""

    domains: ClassVar[tuple[str, ...] | None] = None
    centre = True
    default_epsilon = 1e-5

    def problems(self, node: Node) -> list[Problem]:
        problems = float_problems(node) + output_problems(node) + axis_problems(node, -1)
        if node.int("stash_type", 1) != 1:
            problems.append(node.problem("only statistics in float32 are supported", attribute="stash_type"))
        x = node.value(0)
        for slot, value in enumerate(node.inputs[1:], 1):
            if value is not None and not broadcasts(value.shape, x.shape):
                problems.append(node.problem(f"input {slot} of shape {list(value.shape)} does not broadcast to {list(x.shape)}"))
        if len(node.inputs) > 2 and node.inputs[2] is not None and node.inputs[1] is None:
            problems.append(node.problem("it has a bias but no scale"))
        return problems

    def infer(self, node: Node) -> list[Value]:
        return [Value(node.value(0).shape, FLOAT32)] * len(node.outputs)

    def _epsilon(self, node: Node) -> float:
        return node.float("epsilon", node.float("eps", self.default_epsilon))

    def _line(self, node: Node) -> tuple[int, ...]:
        rank = node.value(0).rank
        return tuple(range(checked_axis(node, node.int("axis", -1), rank), rank))

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x, line = np.asarray(inputs[0], np.float64), self._line(node)
        if x.size == 0:
            return [x.astype(np.float32)]
        d = x - x.mean(line, keepdims=True) if self.centre else x
        y = d / np.sqrt((d * d).mean(line, keepdims=True) + np.float32(self._epsilon(node)).astype(np.float64))
        for operation, extra in zip((np.multiply, np.add), inputs[1:3], strict=False):
            y = y if extra is None else operation(y, extra.astype(np.float64))
        return [y.astype(np.float32)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        x, y = ctx.input(0), ctx.output(0)
        tensors = [t for t in (ctx.optional(1), ctx.optional(2)) if t is not None]

        def space(x: Tensor, tensors: Sequence[Tensor]) -> LineSpace | None:
            extras = [Strided(t, tuple(broadcast_strides(t, x.shape))) for t in tensors]
            return line_space(x.shape, self._line(node), Strided(x, x.strides), Strided(y, y.strides), extras, line_axes=2)

        found = space(x, tensors) or space(ctx.dense(x), [ctx.dense(t) for t in tensors])
        norm_step(node, ctx, found, centre=self.centre, extras=len(tensors), epsilon=self._epsilon(node))

    def kernels(self) -> Sequence[Kernel]:
        return (NORM,)


@register
class LayerNormalization(_LineNorm):
    names = ("LayerNormalization",)
    domains = ("",)
    needed_outputs = 1


@register
class RMSNorm(_LineNorm):
    """The custom operator of Deeploy-format files: attribute `eps`."""

    names = ("RMSNorm",)
    centre = False
    default_epsilon = 1e-6


@register
class RMSNormalization(_LineNorm):
    names = ("RMSNormalization", "SimplifiedLayerNormalization")
    domains = ("", "com.microsoft")
    centre = False


class _ChannelNorm(Operator):
    """Normalisation of groups of channels with their spatial dimensions; scale and bias per channel (or per group)."""

    domains = ("",)

    def _groups(self, node: Node) -> int:
        raise NotImplementedError

    def problems(self, node: Node) -> list[Problem]:
        problems = float_problems(node) + output_problems(node)
        x = node.value(0)
        if x.rank < 3:
            return [*problems, node.problem(f"the input has {x.rank} dimensions", "batch, channels and spatial dimensions are needed")]
        groups = self._groups(node)
        if groups <= 0 or x.shape[1] % groups:
            return [*problems, node.problem(f"{x.shape[1]} channels do not make {groups} groups", attribute="num_groups")]
        for slot in (1, 2):
            if node.value(slot).shape not in ((x.shape[1],), (groups,)):
                problems.append(node.problem(f"input {slot} of shape {list(node.value(slot).shape)} is neither per channel nor per group"))
        return problems

    def infer(self, node: Node) -> list[Value]:
        return [Value(node.value(0).shape, FLOAT32)] * len(node.outputs)

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x, groups = np.asarray(inputs[0], np.float64), self._groups(node)
        if x.size == 0:
            return [x.astype(np.float32)]
        g = x.reshape(x.shape[0], groups, -1)
        g = g - g.mean(-1, keepdims=True)
        epsilon = float(np.float32(node.float("epsilon", 1e-5)))
        y = (g / np.sqrt((g * g).mean(-1, keepdims=True) + epsilon)).reshape(x.shape)
        shape = (1, -1) + (1,) * (x.ndim - 2)
        tables = [np.asarray(v, np.float64) for v in inputs[1:3]]
        scale, bias = (np.repeat(t, x.shape[1] // t.size).reshape(shape) for t in tables)
        return [(y * scale + bias).astype(np.float32)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        groups, y = self._groups(node), ctx.output(0)
        channels = y.shape[1]
        per = channels // groups
        shape = (y.shape[0], groups, per, *y.shape[2:])

        def grouped(t: Tensor) -> Strided:
            return Strided(t, (t.strides[0], t.strides[1] * per, *t.strides[1:]))

        def per_channel(t: Tensor) -> Strided:
            stride = t.strides[0]
            outer, inner = (stride * per, stride) if t.shape[0] == channels else (stride, 0)
            return Strided(t, (0, outer, inner, *[0] * (len(shape) - 3)))

        def space(x: Tensor) -> LineSpace | None:
            extras = [per_channel(ctx.input(1)), per_channel(ctx.input(2))]
            return line_space(shape, range(2, len(shape)), grouped(x), grouped(y), extras, line_axes=2)

        found = space(ctx.input(0)) or space(ctx.dense(ctx.input(0)))
        norm_step(node, ctx, found, centre=True, extras=2, epsilon=node.float("epsilon", 1e-5))

    def kernels(self) -> Sequence[Kernel]:
        return (NORM,)


@register
class InstanceNormalization(_ChannelNorm):
    names = ("InstanceNormalization",)

    def _groups(self, node: Node) -> int:
        return node.value(0).shape[1]


@register
class GroupNormalization(_ChannelNorm):
    """Scale and bias per group (opset 18) or per channel (opset 21): their length says which."""

    names = ("GroupNormalization",)

    def _groups(self, node: Node) -> int:
        return node.int("num_groups")


@register
class BatchNormalization(Operator):
    """Inference: y = (x - mean) * (scale / sqrt(var + epsilon)) + bias, per channel."""

    names = ("BatchNormalization",)
    domains = ("",)
    channel_axis = 1
    needed_outputs = 1

    def problems(self, node: Node) -> list[Problem]:
        problems = float_problems(node) + output_problems(node)
        if node.int("training_mode", 0):
            problems.append(
                node.problem("training mode is not supported", remedy="export the model for inference", attribute="training_mode")
            )
        if not node.int("spatial", 1):
            problems.append(node.problem("statistics per element are not supported", attribute="spatial"))
        x = node.value(0)
        channels = x.shape[1] if x.rank > 1 else 1
        for slot in range(1, 5):
            if node.value(slot).elements != channels or node.value(slot).rank != 1:
                problems.append(node.problem(f"input {slot} has shape {list(node.value(slot).shape)}", f"there are {channels} channels"))
        return problems

    def infer(self, node: Node) -> list[Value]:
        return [Value(node.value(0).shape, FLOAT32)] * len(node.outputs)

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x = np.asarray(inputs[0], np.float64)
        shape = (1, -1) + (1,) * (x.ndim - 2) if x.ndim > 1 else (1,)
        scale, bias, mean, var = (np.asarray(v, np.float64).reshape(shape) for v in inputs[1:5])
        epsilon = float(np.float32(node.float("epsilon", 1e-5)))
        return [((x - mean) / np.sqrt(var + epsilon) * scale + bias).astype(np.float32)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        y = ctx.output(0)
        rank = len(y.shape)
        tables = [ctx.input(slot) for slot in range(1, 5)]
        rows = [[t.strides[0] if d == 1 and t.shape[0] > 1 else 0 for d in range(rank)] for t in tables]

        def merged(x: Tensor) -> tuple[list[int], list[list[int]]]:
            return merge_axes(y.shape, [list(x.strides), *rows, list(y.strides)])

        x = ctx.input(0)
        sizes, strides = merged(x)
        if len(sizes) > MAX_RANK:
            x = ctx.dense(x)
            sizes, strides = merged(x)
        tensors = [x, *tables, y]
        operands = [strided_operand(t, Access.WRITE if t is y else Access.READ, sizes, s) for t, s in zip(tensors, strides, strict=True)]
        axes = [Axis(f"e{i}", size) for i, size in enumerate(sizes)]
        params = (Param("rank", len(sizes) - 1), Param("epsilon", float(node.float("epsilon", 1e-5))))
        call = KernelCall(BATCH_NORM, tuple(range(6)), tuple(range(len(axes))), params)
        in_place = ((5, 0),) if operands[0].dims == operands[5].dims else ()
        ctx.step(axes, operands, [call], in_place=in_place, macs=node.value(0).elements)

    def kernels(self) -> Sequence[Kernel]:
        return (BATCH_NORM,)
