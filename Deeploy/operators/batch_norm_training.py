"""Batch normalisation in training (BatchNormInternal) and its gradient (BatchNormalizationGrad).

Three steps each: sums over the positions of every image and channel (one chain per sum, in the order of the positions), a small step per
channel that merges the batch and makes a table of factors, and an element-wise step that reads the table. The kernels' contract:
Targets/kernels/batch_norm_training.h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from Deeploy.errors import Problem
from Deeploy.operators.base import Node, Operator, Value, register
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.normalization import float_problems
from Deeploy.operators.positions import along, positional, whole
from Deeploy.program.dtypes import FLOAT32
from Deeploy.program.step import Access, Axis, AxisKind, DimMap, Kernel, KernelCall, Operand, Param
from Deeploy.program.tensor import Tensor


def _kernel(name: str, cycles: float, constants: str = "", splits: bool = False) -> Kernel:
    return Kernel(f"dp_batch_norm_{name}_f32", "batch_norm_training.c", constants, cycles, splits_reduction=splits)


_CONSTANTS = "dp_batch_norm_training_cst"
SUMS = _kernel("sums", 6.0, splits=True)
FINISH = _kernel("finish", 80.0, _CONSTANTS)
APPLY = _kernel("apply", 6.0)
GRAD_SUMS = _kernel("grad_sums", 8.0, splits=True)
GRAD_FINISH = _kernel("grad_finish", 60.0, _CONSTANTS)
GRAD_APPLY = _kernel("grad_apply", 9.0)


def _positions(x: Value) -> int:
    return math.prod(x.shape[2:])


def _image(ctx: Lowering, tensor: Tensor, access: Access) -> Operand:
    """A tensor as (n, c, r) over axes 0, 1, 2."""
    return positional(ctx, tensor, access, (0, 1, 2))


def _channels(tensor: Tensor, access: Access, axis: int) -> Operand:
    """A tensor (c), or (c, k) with all of k, over that axis."""
    first = along(tensor.shape[0], tensor.strides[0], axis, access)
    return Operand(tensor, access, (first, *(whole(n, s) for n, s in zip(tensor.shape[1:], tensor.strides[1:], strict=True))))


def _sums(ctx: Lowering, x: Value, kept: int) -> Tensor:
    """The tensor (n, c, kept) between the first two steps."""
    return ctx.temporary("sums", (*x.shape[:2], kept), FLOAT32)


def _merged(tensor: Tensor) -> Operand:
    """Sums (n, c, k), all of n and k, over axis 0, the channels."""
    n, c, k = tensor.shape
    return Operand(tensor, Access.READ, (whole(n, tensor.strides[0]), along(c, tensor.strides[1], 0), whole(k, tensor.strides[2])))


def _sum_step(ctx: Lowering, kernel: Kernel, sums: Tensor, operands: Sequence[Operand], x: Value) -> None:
    n, c, kept = sums.shape
    steps = sums.strides
    written = Operand(sums, Access.WRITE, (DimMap(n, steps[0], ((0, 1),)), DimMap(c, steps[1], ((1, 1),)), whole(kept, steps[2])))
    axes = [Axis("n", n), Axis("c", c), Axis("r", _positions(x), AxisKind.REDUCED)]
    call = KernelCall(kernel, tuple(range(1 + len(operands))), (0, 1, 2))
    ctx.step(axes, [written, *operands], [call], accumulator=FLOAT32, macs=kept * x.elements, suffix="sums")


def _channel_step(ctx: Lowering, kernel: Kernel, operands: Sequence[Operand], x: Value, epsilon: float, momentum: float) -> None:
    params = (Param("batch", x.shape[0]), Param("count", _positions(x)), Param("epsilon", epsilon), Param("momentum", momentum))
    call = KernelCall(kernel, tuple(range(len(operands))), (0,), params)
    ctx.step([Axis("c", x.shape[1])], operands, [call], macs=x.shape[0] * x.shape[1], suffix="channels")


def _apply_step(ctx: Lowering, kernel: Kernel, images: Sequence[Operand], table: Tensor, y: Tensor, x: Value) -> None:
    """The element-wise step; y may take the place of any of `images`."""
    written = _image(ctx, y, Access.WRITE)
    operands = [*images, _channels(table, Access.READ, 1), written]
    axes = [Axis("n", x.shape[0]), Axis("c", x.shape[1]), Axis("r", _positions(x))]
    call = KernelCall(kernel, tuple(range(len(operands))), (0, 1, 2))
    last = len(operands) - 1
    storages = [image.tensor.storage for image in images]
    alone = [sum(s is storage for s in storages) == 1 for storage in storages]
    in_place = [(last, i) for i, image in enumerate(images) if image.dims == written.dims and alone[i]]
    ctx.step(axes, operands, [call], in_place=in_place, macs=x.elements, suffix="apply")


def _shape_problems(node: Node, x: Value, slots: Sequence[int]) -> list[Problem]:
    if x.rank < 2 or x.elements == 0:
        return [node.problem(f"an input of shape {list(x.shape)}", "batch and channels with elements are needed")]
    return [
        node.problem(f"input {slot} has shape {list(node.value(slot).shape)}", f"there are {x.shape[1]} channels")
        for slot in slots
        if node.value(slot).shape != (x.shape[1],)
    ]


def _per_channel(array: np.ndarray | None, rank: int) -> np.ndarray:
    return np.asarray(array, np.float64).reshape((1, -1) + (1,) * (rank - 2))


@register
class BatchNormInternal(Operator):
    """Batch normalisation by the statistics of the batch itself, which also update the running ones.

    Inputs: x (n, c, ...), scale, bias, running mean, running variance (c). Outputs: y, the running statistics (inputs 3 and 4, in place),
    and for the gradient the mean and 1 / sqrt(variance + epsilon) of the batch.

    As ONNX says for training_mode = 1: running = momentum * running + (1 - momentum) * of the batch, and all variances are those of the
    population (divided by the number of elements; PyTorch's running variance divides by one less).
    """

    names = ("BatchNormInternal",)
    domains = None
    channel_axis = 1
    writes_state = True
    updates = {1: 3, 2: 4}

    def problems(self, node: Node) -> list[Problem]:
        found = float_problems(node)
        if not node.int("training_mode", 1):
            what = "it is the training form, but the attribute asks for inference"
            found.append(node.problem(what, remedy="use BatchNormalization", attribute="training_mode"))
        if len(node.outputs) < 3 or not all(node.outputs[1:3]):
            found.append(node.problem("it has no outputs for the running statistics", "it updates them", "give it outputs 1 and 2"))
        return found + _shape_problems(node, node.value(0), range(1, 5))

    def infer(self, node: Node) -> list[Value]:
        x = node.value(0)
        return [Value(x.shape, FLOAT32), *[Value((x.shape[1],), FLOAT32)] * (len(node.outputs) - 1)]

    @staticmethod
    def _numbers(node: Node) -> tuple[float, float]:
        """epsilon and momentum as float32 values."""
        return float(np.float32(node.float("epsilon", 1e-5))), float(np.float32(node.float("momentum", 0.9)))

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x = np.asarray(inputs[0], np.float64)
        epsilon, momentum = self._numbers(node)
        over = (0, *range(2, x.ndim))
        mean = x.mean(over)
        variance = ((x - _per_channel(mean, x.ndim)) ** 2).mean(over)
        inverse = 1.0 / np.sqrt(variance + epsilon)
        scale, bias = (_per_channel(inputs[slot], x.ndim) for slot in (1, 2))
        y = (x - _per_channel(mean, x.ndim)) * _per_channel(inverse, x.ndim) * scale + bias
        running = [momentum * np.asarray(inputs[slot], np.float64) + (1.0 - momentum) * new for slot, new in ((3, mean), (4, variance))]
        return [a.astype(np.float32) for a in (y, *running, mean, inverse)][: len(node.outputs)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        x = node.value(0)
        channels = x.shape[1]
        sums = _sums(ctx, x, 3)
        image = _image(ctx, ctx.input(0), Access.READ)
        _sum_step(ctx, SUMS, sums, [image], x)
        kept = [
            ctx.output(i) if i < len(node.outputs) and node.outputs[i] else ctx.temporary(name, (channels,), FLOAT32)
            for i, name in ((3, "mean"), (4, "deviation"))
        ]
        table = ctx.temporary("table", (channels, 3), FLOAT32)
        operands = [
            _merged(sums),
            *(_channels(ctx.input(slot), Access.READ, 0) for slot in (1, 2)),
            *(_channels(ctx.update(i), Access.UPDATE, 0) for i in (1, 2)),
            *(_channels(tensor, Access.WRITE, 0) for tensor in (*kept, table)),
        ]
        _channel_step(ctx, FINISH, operands, x, *self._numbers(node))
        _apply_step(ctx, APPLY, [image], table, ctx.output(0), x)

    def kernels(self) -> Sequence[Kernel]:
        return (SUMS, FINISH, APPLY)


@register
class BatchNormalizationGrad(Operator):
    """The gradient of BatchNormInternal.

    Inputs: dy, x, scale, mean and 1 / sqrt(variance + epsilon) of the batch. Outputs: dx, dscale, dbias. With xh = (x - mean) * inverse and
    m elements per channel: dbias = sum(dy), dscale = sum(dy * xh), dx = scale * inverse * (dy - dbias / m - xh * dscale / m).
    """

    names = ("BatchNormalizationGrad",)
    domains = None
    channel_axis = 1

    def problems(self, node: Node) -> list[Problem]:
        found = float_problems(node)
        if node.value(0).shape != node.value(1).shape:
            found.append(node.problem(f"a gradient of shape {list(node.value(0).shape)} for an x of shape {list(node.value(1).shape)}"))
        return found + _shape_problems(node, node.value(1), (2, 3, 4))

    def infer(self, node: Node) -> list[Value]:
        x = node.value(1)
        return [Value(x.shape, FLOAT32), *[Value((x.shape[1],), FLOAT32)] * (len(node.outputs) - 1)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        dy, x = (np.asarray(a, np.float64) for a in inputs[:2])
        over = (0, *range(2, x.ndim))
        scale, mean, inverse = (_per_channel(a, x.ndim) for a in inputs[2:5])
        xh = (x - mean) * inverse
        dbias, dscale = dy.sum(over), (dy * xh).sum(over)
        count = x.size // x.shape[1]
        dx = scale * inverse * (dy - _per_channel(dbias, x.ndim) / count - xh * _per_channel(dscale, x.ndim) / count)
        return [a.astype(np.float32) for a in (dx, dscale, dbias)][: len(node.outputs)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        x = node.value(1)
        channels = x.shape[1]
        images = [_image(ctx, ctx.input(slot), Access.READ) for slot in (0, 1)]
        tables = [ctx.input(slot) for slot in (2, 3, 4)]
        sums = _sums(ctx, x, 2)
        _sum_step(ctx, GRAD_SUMS, sums, [*images, *(_channels(t, Access.READ, 1) for t in tables[1:])], x)
        made = [
            ctx.output(i) if i < len(node.outputs) and node.outputs[i] else ctx.temporary(name, (channels,), FLOAT32)
            for i, name in ((1, "dscale"), (2, "dbias"))
        ]
        table = ctx.temporary("table", (channels, 4), FLOAT32)
        operands = [
            _merged(sums),
            *(_channels(t, Access.READ, 0) for t in tables),
            *(_channels(t, Access.WRITE, 0) for t in (*made, table)),
        ]
        _channel_step(ctx, GRAD_FINISH, operands, x, 0.0, 0.0)
        if node.outputs[0]:
            _apply_step(ctx, GRAD_APPLY, images, table, ctx.output(0), x)

    def kernels(self) -> Sequence[Kernel]:
        return (GRAD_SUMS, GRAD_FINISH, GRAD_APPLY)
