"""Gradients of poolings: MaxPoolGrad, GlobalAveragePoolGrad.

Neither has an input that says how large the pooled tensor was: it is taken from the shape that the file declares for the output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from Deeploy.errors import Problem
from Deeploy.operators.base import Node, Operator, Value, register
from Deeploy.operators.broadcasting import elementwise_space
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.positions import along, whole
from Deeploy.operators.windows import IDENTITY, Window, WindowAxis, window_of, window_problems
from Deeploy.program.dtypes import FLOAT32, TYPE_CODES, UINT64
from Deeploy.program.step import Access, Axis, DimMap, Kernel, KernelCall, Operand, Param
from Deeploy.program.tensor import Tensor

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

MAX_POOL_GRAD = Kernel("dp_max_pool_grad_f32", "pool_grad.c", "dp_max_pool_grad_cst", cycles_per_point=100.0)
GLOBAL_AVERAGE_GRAD = Kernel("dp_global_average_grad_f32", "pool_grad.c", "dp_average_grad_cst", cycles_per_point=3.0)


class _PoolGrad(Operator):
    """Input 0 is the gradient dy. Internal attribute output_shape: the shape of dx."""

    domains = None
    channel_axis = 1

    def normalise(self, node: gs.Node, opset: int) -> None:
        shape = node.outputs[0].shape
        if shape is not None and all(isinstance(n, int) for n in shape):
            node.attrs["output_shape"] = [int(n) for n in shape]

    def problems(self, node: Node) -> list[Problem]:
        dy = node.value(0)
        if dy.dtype != FLOAT32:
            return [node.problem(f"a gradient of type {dy.dtype}", "it works on float32")]
        if not node.has("output_shape"):
            what, why = "the shape of its output is not declared", "no input says how large the pooled tensor was"
            return [node.problem(what, why, "add the output to the graph's value_info with its shape")]
        shape = node.ints("output_shape")
        if len(shape) < 3 or len(shape) != dy.rank or shape[:2] != dy.shape[:2] or min(shape) < 1:
            return [node.problem(f"a gradient of shape {list(dy.shape)} for an output of shape {list(shape)}")]
        return []

    def infer(self, node: Node) -> list[Value]:
        return [Value(node.ints("output_shape"), FLOAT32)]


def _axis_operands(window: WindowAxis) -> tuple[int, int, int, int]:
    """(block, step, first, taps) for one spatial axis: a point q of the iteration space is rows [q * block, (q + 1) * block) of dx, whose
    windows are rows [q * step + first, q * step + first + taps) of dy.

    Blocks are as long as the stride, so that the windows advance by one. Where that does not divide the rows, one block holds them all.
    """
    if window.output == 1:
        return 1, 0, 0, 1
    if window.size % window.stride:
        return window.size, 0, 0, window.output
    first = -((window.extent - 1 - window.before) // window.stride)
    last = (window.before + window.stride - 1) // window.stride
    return window.stride, 1, first, last - first + 1


@register
class MaxPoolGrad(_PoolGrad):
    """The gradient of MaxPool: each dy goes to the element that was the maximum.

    Inputs: dy, and the indices that the MaxPool gave as its second output (flat, in the whole of its input). Attributes of that MaxPool.
    It is MaxPool that decides between equal elements: the first in window order has it all, as in onnxruntime and PyTorch.
    """

    names = ("MaxPoolGrad",)

    def _window(self, node: Node) -> Window:
        return window_of(node, node.ints("output_shape")[2:], node.ints("kernel_shape"), bool(node.int("ceil_mode", 0)))

    def problems(self, node: Node) -> list[Problem]:
        if found := super().problems(node):
            return found
        if not node.has("kernel_shape"):
            return [node.problem("the attribute is missing", attribute="kernel_shape")]
        sizes = node.ints("output_shape")[2:]
        if found := window_problems(node, sizes, node.ints("kernel_shape"), bool(node.int("ceil_mode", 0))):
            return found
        dy, indices, pooled = node.value(0), node.value(1), self._window(node).output
        if dy.shape[2:] != pooled:
            found.append(node.problem(f"a gradient of shape {list(dy.shape)}", f"pooling gives {list(pooled)} positions"))
        if indices.shape != dy.shape or not indices.dtype.is_integer or indices.dtype is UINT64:
            what = f"input 1 is {indices.dtype} {list(indices.shape)}"
            found.append(node.problem(what, "the indices of the maxima are needed, one for each gradient", "use output 1 of MaxPool"))
        return found

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        """Indices outside of the input are left out, and so are those of elements outside of their window: no window holds them."""
        shape, window = node.ints("output_shape"), self._window(node)
        dy, indices = np.asarray(inputs[0], np.float64), np.asarray(inputs[1]).astype(np.int64)
        planes = np.arange(shape[0] * shape[1]).reshape(*shape[:2], *(1,) * (dy.ndim - 2))
        inside = indices - planes * math.prod(shape[2:])
        valid = (inside >= 0) & (inside < math.prod(shape[2:]))
        sizes = shape[2:][::-1] if node.int("storage_order", 0) else shape[2:]
        places = list(np.unravel_index(np.where(valid, inside, 0), sizes))
        places = places[::-1] if node.int("storage_order", 0) else places
        for i, (axis, place) in enumerate(zip(window.axes, places, strict=True)):
            first = (np.arange(axis.output) * axis.stride - axis.before).reshape([-1 if d == i else 1 for d in range(len(window.axes))])
            valid = valid & (place >= first) & (place < first + axis.extent)
        dx = np.zeros((shape[0] * shape[1], *shape[2:]))
        where = (np.broadcast_to(planes, dy.shape)[valid], *(place[valid] for place in places))
        np.add.at(dx, where, dy[valid])
        return [dx.reshape(shape).astype(np.float32)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        dx, window = ctx.output(0), self._window(node)
        axes = window.axes if len(window.axes) == 2 else (IDENTITY, *window.axes)
        blocks = [_axis_operands(axis) for axis in axes]

        def four(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
            if len(tensor.shape) == 4:
                return tensor.shape, tensor.strides
            return (*tensor.shape[:2], 1, tensor.shape[2]), (*tensor.strides[:2], 0, tensor.strides[2])

        sizes, strides = four(dx)
        written = [DimMap(sizes[d], strides[d], ((d, 1),)) for d in (0, 1)]
        written += [DimMap(sizes[d], strides[d], ((d, blocks[d - 2][0]),), 0, blocks[d - 2][0]) for d in (2, 3)]
        operands = [Operand(dx, Access.WRITE, tuple(written))]
        for tensor in (ctx.input(0), ctx.input(1)):
            counts, steps = four(tensor)
            dims = [along(counts[d], steps[d], d) for d in (0, 1)]
            for d, (_, step, first, taps) in zip((2, 3), blocks, strict=True):
                moves = step and steps[d]
                dims.append(DimMap(counts[d], steps[d], ((d, 1),), first, taps) if moves else whole(counts[d], steps[d]))
            operands.append(Operand(tensor, Access.READ, tuple(dims)))
        loops = [Axis("n", sizes[0]), Axis("c", sizes[1])]
        loops += [Axis(name, sizes[d] // blocks[d - 2][0]) for d, name in ((2, "qh"), (3, "qw"))]
        call = KernelCall(MAX_POOL_GRAD, (0, 1, 2), (0, 1, 2, 3), self._params(node, sizes, axes, blocks))
        ctx.step(loops, operands, [call], macs=dx.elements)

    @staticmethod
    def _params(
        node: Node, sizes: Sequence[int], axes: Sequence[WindowAxis], blocks: Sequence[tuple[int, int, int, int]]
    ) -> tuple[Param, ...]:
        (block_h, step_h, first_h, _), (block_w, step_w, first_w, _) = blocks
        height, width = axes
        fields = {
            "type": TYPE_CODES[node.value(1).dtype],
            "channels": sizes[1],
            "height": sizes[2],
            "width": sizes[3],
            "block_h": block_h,
            "block_w": block_w,
            "out_h": height.output,
            "out_w": width.output,
            "stride_h": height.stride,
            "stride_w": width.stride,
            "extent_h": height.extent,
            "extent_w": width.extent,
            "pad_top": height.before,
            "pad_left": width.before,
            "first_h": first_h,
            "first_w": first_w,
            "step_h": step_h,
            "step_w": step_w,
            "column_major": int(node.int("storage_order", 0) and len(sizes) == 4),
        }
        return tuple(Param(k, v) for k, v in fields.items())

    def kernels(self) -> Sequence[Kernel]:
        return (MAX_POOL_GRAD,)


@register
class GlobalAveragePoolGrad(_PoolGrad):
    """dx = dy / positions, for every position; dy has spatial dimensions of length 1."""

    names = ("GlobalAveragePoolGrad",)

    def problems(self, node: Node) -> list[Problem]:
        if found := super().problems(node):
            return found
        if any(n != 1 for n in node.value(0).shape[2:]):
            return [node.problem(f"a gradient of shape {list(node.value(0).shape)}", "a global pooling gives one position")]
        return []

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        shape = node.ints("output_shape")
        dx = np.asarray(inputs[0], np.float64) / math.prod(shape[2:])
        return [np.broadcast_to(dx, shape).astype(np.float32)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        dx = ctx.output(0)
        axes, operands = elementwise_space([ctx.input(0)], dx)
        params = (Param("rank", len(axes)), Param("count", float(math.prod(dx.shape[2:]))))
        ctx.step(axes, operands, [KernelCall(GLOBAL_AVERAGE_GRAD, (0, 1), tuple(range(len(axes))), params)], macs=dx.elements)

    def kernels(self) -> Sequence[Kernel]:
        return (GLOBAL_AVERAGE_GRAD,)
