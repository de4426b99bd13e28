"""Float normalisations: LayerNormalization (with its statistics, if asked for), RMS norms, InstanceNormalization, GroupNormalization and
BatchNormalization (inference)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from Deeploy.errors import ModelError, Problem
from Deeploy.operators.base import Node, Operator, Value, register
from Deeploy.operators.broadcasting import broadcast_strides, broadcasts, merge_axes
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.softmax import axis_problems, checked_axis
from Deeploy.operators.views import LineSpace, Strided, join_axes, line_space, strided_operand
from Deeploy.program.dtypes import FLOAT32
from Deeploy.program.step import MAX_RANK, Access, Axis, AxisKind, Kernel, KernelCall, Param
from Deeploy.program.tensor import Tensor

NORM = Kernel("dp_norm_f32", "norm.c", "dp_norm_cst", cycles_per_point=20.0)
STATISTICS = Kernel("dp_norm_stats_f32", "norm.c", "dp_norm_stats_cst", cycles_per_point=10.0)
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


def norm_step(
    node: Node, ctx: Lowering, space: LineSpace | None, *, centre: bool, extras: int, epsilon: float, given: bool = False
) -> None:
    """The step of dp_norm_f32; `given`: its last two operands are the statistics. Raises ModelError if there is no space."""
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
        Param("given", int(given)),
        Param("epsilon", float(epsilon)),
    )
    call = KernelCall(NORM, tuple(range(len(space.operands))), tuple(range(len(space.axes))), params)
    ctx.step(space.axes, space.operands, [call], in_place=space.in_place, macs=4 * node.value(0).elements)


def statistics_shape(shape: Sequence[int], line: Sequence[int]) -> tuple[int, ...]:
    """The shape of the statistics of lines along those dimensions."""
    return tuple(1 if d in line else n for d, n in enumerate(shape))


def statistics_step(
    node: Node, ctx: Lowering, x: Tensor, line: Sequence[int], outputs: tuple[Tensor | None, Tensor | None], epsilon: float
) -> tuple[Tensor, Tensor]:
    """The step that makes mean and 1 / sqrt(var + epsilon) of the lines of x; an output that is None goes to a temporary. Returns both."""
    shape = statistics_shape(x.shape, line)
    mean = ctx.temporary("mean", shape, FLOAT32) if outputs[0] is None else outputs[0]
    inverse = ctx.temporary("inverse", shape, FLOAT32) if outputs[1] is None else outputs[1]
    kept, over = [d for d in range(len(shape)) if d not in line], list(line)

    def space(x: Tensor) -> tuple[list[int], list[list[int]], list[int], list[int]]:
        rows = [[t.strides[d] for d in kept] for t in (x, mean, inverse)]
        sizes, strides = merge_axes([x.shape[d] for d in kept], rows)
        ends, (inner,) = join_axes([x.shape[d] for d in over], [[x.strides[d] for d in over]])
        return sizes, strides, ends, inner

    sizes, strides, ends, inner = space(x)
    if len(ends) > 2 or len(sizes) + 2 > MAX_RANK:
        x = ctx.dense(x)
        sizes, strides, ends, inner = space(x)
    missing = 2 - len(ends)
    ends, inner = [1] * missing + ends, [0] * missing + inner
    operands = [strided_operand(x, Access.READ, [*sizes, *ends], [*strides[0], *inner])]
    operands += [strided_operand(t, Access.WRITE, sizes, s) for t, s in zip((mean, inverse), strides[1:], strict=True)]
    axes = [Axis(f"p{i}", size) for i, size in enumerate(sizes)]
    axes += [Axis(f"l{i}", size, AxisKind.REDUCED, tileable=False) for i, size in enumerate(ends)]
    call = KernelCall(STATISTICS, (0, 1, 2), tuple(range(len(axes))), (Param("rank", len(sizes)), Param("epsilon", float(epsilon))))
    ctx.step(axes, operands, [call], macs=3 * x.elements, suffix="statistics")
    return mean, inverse


class _LineNorm(Operator):
    """Normalisation over the dimensions from `axis` on, with scale and optional bias that broadcast to the input."""

    domains: ClassVar[tuple[str, ...] | None] = None
    centre = True
    default_epsilon = 1e-5

    def problems(self, node: Node) -> list[Problem]:
        problems = float_problems(node) + self._output_problems(node) + axis_problems(node, -1)
        if node.int("stash_type", 1) != 1:
            problems.append(node.problem("only statistics in float32 are supported", attribute="stash_type"))
        x = node.value(0)
        for slot, value in enumerate(node.inputs[1:], 1):
            if value is not None and not broadcasts(value.shape, x.shape):
                problems.append(node.problem(f"input {slot} of shape {list(value.shape)} does not broadcast to {list(x.shape)}"))
        if len(node.inputs) > 2 and node.inputs[2] is not None and node.inputs[1] is None:
            problems.append(node.problem("it has a bias but no scale"))
        return problems

    def _output_problems(self, node: Node) -> list[Problem]:
        return output_problems(node)

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
        extras, statistics = len(tensors), self._statistics(node, ctx)
        tensors += statistics

        def space(x: Tensor, tensors: Sequence[Tensor]) -> LineSpace | None:
            extras = [Strided(t, tuple(broadcast_strides(t, x.shape))) for t in tensors]
            return line_space(x.shape, self._line(node), Strided(x, x.strides), Strided(y, y.strides), extras, line_axes=2)

        found = space(x, tensors) or space(ctx.dense(x), [ctx.dense(t) for t in tensors])
        given = bool(statistics)
        norm_step(node, ctx, found, centre=self.centre, extras=extras, epsilon=self._epsilon(node), given=given)

    def _statistics(self, node: Node, ctx: Lowering) -> Sequence[Tensor]:
        """Mean and inverse deviation, if the node has them as outputs and so a step of their own makes them."""
        return ()

    def kernels(self) -> Sequence[Kernel]:
        return (NORM,)


@register
class LayerNormalization(_LineNorm):
    """The optional outputs 1 and 2 are the mean and 1 / sqrt(var + epsilon) of every line, for its gradient."""

    names = ("LayerNormalization",)
    domains = ("",)
    needed_outputs = 1

    def _output_problems(self, node: Node) -> list[Problem]:
        if any(node.outputs[1:]) and node.value(0).elements == 0:
            return [node.problem("the input has no elements", "its lines have no statistics", "remove the node")]
        return []

    def infer(self, node: Node) -> list[Value]:
        shape = node.value(0).shape
        statistics = Value(statistics_shape(shape, self._line(node)), FLOAT32)
        return [Value(shape, FLOAT32), statistics, statistics][: len(node.outputs)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        results = super().reference(node, inputs)
        if len(node.outputs) > 1:
            x, line = np.asarray(inputs[0], np.float64), self._line(node)
            epsilon = float(np.float32(self._epsilon(node)))
            mean = x.mean(line, keepdims=True)
            results += [mean.astype(np.float32), (1.0 / np.sqrt(x.var(line, keepdims=True) + epsilon)).astype(np.float32)]
        return results[: len(node.outputs)]

    def _statistics(self, node: Node, ctx: Lowering) -> Sequence[Tensor]:
        wanted = [len(node.outputs) > slot and node.outputs[slot] != "" for slot in (1, 2)]
        if not any(wanted):
            return ()
        mean, inverse = (ctx.output(slot) if there else None for slot, there in zip((1, 2), wanted, strict=True))
        return statistics_step(node, ctx, ctx.input(0), self._line(node), (mean, inverse), self._epsilon(node))

    def kernels(self) -> Sequence[Kernel]:
        return (NORM, STATISTICS)


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
