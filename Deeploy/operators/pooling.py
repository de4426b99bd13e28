"""Pooling: MaxPool (with indices), AveragePool, GlobalMaxPool, GlobalAveragePool.

One step per node. Iteration space (n, c, oh, ow | kh, kw); a global pooling is one whose window is the whole input. Maxima keep the type
of their input and ignore padding; averages are of floats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from Deeploy.errors import Problem
from Deeploy.operators.accumulation import dim
from Deeploy.operators.base import Node, Operator, Value, bounds, register
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.windows import IDENTITY, Window, WindowAxis, padded, tap, window_of, window_problems
from Deeploy.program.dtypes import FLOAT32, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64
from Deeploy.program.step import Access, Axis, AxisKind, DimMap, Kernel, KernelCall, Operand, Param
from Deeploy.program.tensor import Tensor


def _kernel(symbol: str, cycles: float, splits: bool = True) -> Kernel:
    return Kernel(symbol, "pool.c", "dp_pool_cst", cycles, splits_reduction=splits)


_MAX = {d: _kernel(f"dp_pool_max_{d.short}", 6.0) for d in (INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT32)}
_ARGMAX = {d: _kernel(f"dp_pool_argmax_{d.short}", 9.0, splits=False) for d in (INT8, UINT8, INT32, FLOAT32)}
_AVERAGE = _kernel("dp_pool_average_f32", 7.0)


def _operands(x: Tensor, outputs: Sequence[Tensor], window: Window) -> list[Operand]:
    """The written tensors' first as (n, c, oh, ow), x as (n, c, h, w), then the other written ones."""
    flat = len(window.axes) == 1
    height, width = window.height, window.width

    def written(y: Tensor) -> Operand:
        strides = (*y.strides[:2], 0 if flat else y.strides[2], y.strides[-1])
        sizes = (*y.shape[:2], height.output, width.output)
        return Operand(y, Access.WRITE, tuple(DimMap(n, s, ((a, 1),)) for a, (n, s) in enumerate(zip(sizes, strides, strict=True))))

    rows = DimMap(1, 0) if flat else dim(height.size, x.strides[2], (2, height.stride), (4, height.dilation), offset=-height.before)
    columns = dim(width.size, x.strides[-1], (3, width.stride), (5, width.dilation), offset=-width.before)
    dims = (dim(x.shape[0], x.strides[0], (0, 1)), dim(x.shape[1], x.strides[1], (1, 1)), rows, columns)
    first, *others = (written(y) for y in outputs)
    return [first, Operand(x, Access.READ, dims), *others]


def _step(ctx: Lowering, x: Tensor, outputs: Sequence[Tensor], window: Window, kernel: Kernel, flags: tuple[int, int]) -> None:
    """flags: include_pad, column_major."""
    height, width = window.height, window.width
    free = x.dtype is not FLOAT32 or kernel is not _AVERAGE
    axes = [
        Axis("n", x.shape[0]),
        Axis("c", x.shape[1]),
        Axis("oh", height.output),
        Axis("ow", width.output),
        Axis("kh", height.taps, AxisKind.REDUCED, kernel.splits_reduction),
        # A sum of floats keeps its order only if it is cut along its outer axis.
        Axis("kw", width.taps, AxisKind.REDUCED, kernel.splits_reduction and (free or height.taps == 1)),
    ]
    operands = _operands(x, outputs, window)
    numbers = {
        "channels": x.shape[1],
        "height": height.size,
        "width": width.size,
        "kernel_h": height.taps,
        "kernel_w": width.taps,
        "stride_h": height.stride,
        "stride_w": width.stride,
        "dilation_h": height.dilation,
        "dilation_w": width.dilation,
        "pad_top": height.before,
        "pad_left": width.before,
        "pad_bottom": height.after,
        "pad_right": width.after,
        "include_pad": flags[0],
        "column_major": flags[1],
    }
    call = KernelCall(kernel, tuple(range(len(operands))), tuple(range(6)), tuple(Param(k, v) for k, v in numbers.items()))
    accumulator = x.dtype if kernel.splits_reduction else None
    ctx.step(axes, operands, [call], accumulator=accumulator, macs=math.prod(a.size for a in axes))


def _lowest(dtype: np.dtype) -> float | int:
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def _maximum(x: np.ndarray, window: Window) -> tuple[np.ndarray, np.ndarray]:
    """The maxima and the flat tap number (row-major over the window) of the first occurrence of each."""
    source = padded(x, window, _lowest(x.dtype))
    inside = padded(np.ones(x.shape, bool), window, False)
    best = np.full((*x.shape[:2], *window.output), _lowest(x.dtype), x.dtype)
    where = np.full(best.shape, -1, np.int64)
    for number, index in enumerate(np.ndindex(*(a.taps for a in window.axes))):
        seen, real = tap(source, window, index), tap(inside, window, index)
        better = real & ((seen > best) | (where < 0))
        best, where = np.where(better, seen, best), np.where(better, number, where)
    return best, where


def _average(x: np.ndarray, window: Window, include_pad: bool) -> np.ndarray:
    source = padded(x.astype(np.float64), window, 0.0)
    total = np.zeros((*x.shape[:2], *window.output))
    for index in np.ndindex(*(a.taps for a in window.axes)):
        total = total + tap(source, window, index)
    divisor = np.ones(window.output)
    for i, axis in enumerate(window.axes):
        counts = np.array([axis.inside(o, include_pad) for o in range(axis.output)], np.float64)
        divisor = divisor * counts.reshape([-1 if d == i else 1 for d in range(len(window.axes))])
    return total / divisor


class _Pool(Operator):
    """Pooling with a window."""

    domains = ("",)

    def _window(self, node: Node) -> Window:
        return window_of(node, node.value(0).shape[2:], node.ints("kernel_shape"), bool(node.int("ceil_mode", 0)))

    def problems(self, node: Node) -> list[Problem]:
        x = node.value(0)
        if x.rank < 3:
            return [node.problem(f"an input of rank {x.rank}", "batch, channel and spatial axes are needed")]
        if not node.has("kernel_shape"):
            return [node.problem("the attribute is missing", attribute="kernel_shape")]
        found = window_problems(node, x.shape[2:], node.ints("kernel_shape"), bool(node.int("ceil_mode", 0)))
        if x.elements == 0:
            found.append(node.problem("the input has no elements", "there is nothing to pool", "remove the node"))
        return found


@register
class MaxPool(_Pool):
    """ai.onnx MaxPool; the second output (flat indices) for int8, uint8, int32 and float32."""

    names = ("MaxPool",)
    channel_axis = 1
    needed_outputs = 1

    def problems(self, node: Node) -> list[Problem]:
        found = super().problems(node)
        dtype = node.value(0).dtype
        if dtype not in _MAX:
            found.append(node.problem(f"inputs of type {dtype} are not supported", remedy="cast the input to an integer type or float32"))
        if not found and self._indices(node):
            if dtype not in _ARGMAX:
                found.append(node.problem(f"indices of {dtype} inputs are not supported", remedy="use int8, uint8, int32 or float32"))
            if any(a.has_empty for a in self._window(node).axes):
                found.append(node.problem("a window lies in the padding alone and has no index", attribute="pads"))
        return found

    @staticmethod
    def _indices(node: Node) -> bool:
        return len(node.outputs) > 1 and node.outputs[1] != ""

    def infer(self, node: Node) -> list[Value]:
        x, window = node.value(0), self._window(node)
        shape = (*x.shape[:2], *window.output)
        if x.dtype.is_float:
            values = [Value(shape, FLOAT32)]
        else:
            lo, hi = bounds(x)
            empty = any(a.has_empty for a in window.axes)
            values = [Value.integer(shape, x.dtype, x.dtype.lo if empty else lo, hi)]
        if len(node.outputs) > 1:
            values.append(Value.integer(shape, INT64, 0, max(0, x.elements - 1)))
        return values

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x, window = inputs[0], self._window(node)
        assert x is not None
        best, where = _maximum(x, window)
        if len(node.outputs) < 2:
            return [best]
        # From tap numbers to absolute positions, axis by axis.
        taps = np.unravel_index(np.maximum(where, 0), tuple(a.taps for a in window.axes))
        places = []
        for i, axis in enumerate(window.axes):
            first = (np.arange(axis.output) * axis.stride - axis.before).reshape([-1 if d == i else 1 for d in range(len(window.axes))])
            places.append(first + taps[i] * axis.dilation)
        sizes = [a.size for a in window.axes]
        if node.int("storage_order", 0):
            places, sizes = places[::-1], sizes[::-1]
        flat = np.zeros(best.shape, np.int64)
        for place, size in zip(places, sizes, strict=True):
            flat = flat * size + place
        planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * len(window.axes))
        return [best, (flat + planes * math.prod(sizes)).astype(np.int64)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        x = ctx.input(0)
        indices = self._indices(node)
        outputs = [ctx.output(0), ctx.output(1)] if indices else [ctx.output(0)]
        kernel = (_ARGMAX if indices else _MAX)[x.dtype]
        _step(ctx, x, outputs, self._window(node), kernel, (0, node.int("storage_order", 0)))

    def kernels(self) -> Sequence[Kernel]:
        return (*_MAX.values(), *_ARGMAX.values())


def _average_problems(node: Node) -> list[Problem]:
    dtype = node.value(0).dtype
    if dtype is FLOAT32:
        return []
    return [node.problem(f"the average of {dtype} is not defined", "only float32 is supported", "use an integer mean (ReduceMean)")]


@register
class AveragePool(_Pool):
    """ai.onnx AveragePool of floats. The divisor counts the taps inside the input, or, with count_include_pad, inside the padded input."""

    names = ("AveragePool",)
    channel_axis = 1

    def problems(self, node: Node) -> list[Problem]:
        found = super().problems(node) + _average_problems(node)
        if not found and not node.int("count_include_pad", 0) and any(a.has_empty for a in self._window(node).axes):
            found.append(node.problem("a window lies in the padding alone", "its average is 0 / 0", "pad less", "pads"))
        return found

    def infer(self, node: Node) -> list[Value]:
        return [Value((*node.value(0).shape[:2], *self._window(node).output), FLOAT32)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x = inputs[0]
        assert x is not None
        return [_average(x, self._window(node), bool(node.int("count_include_pad", 0))).astype(np.float32)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        _step(ctx, ctx.input(0), [ctx.output(0)], self._window(node), _AVERAGE, (node.int("count_include_pad", 0), 0))

    def kernels(self) -> Sequence[Kernel]:
        return (_AVERAGE,)


class _Global(Operator):
    """Pooling over all spatial axes, any number of them."""

    domains = ("",)
    channel_axis = 1

    @staticmethod
    def _window(sizes: Sequence[int]) -> Window:
        return Window(tuple(WindowAxis(n, n, 1, 1, 0, 0, 1) for n in sizes))

    def problems(self, node: Node) -> list[Problem]:
        x = node.value(0)
        if x.rank < 3 or x.elements == 0:
            return [node.problem(f"an input of shape {x.shape}", "batch, channel and spatial axes with elements are needed")]
        return []

    def _lower(self, ctx: Lowering, kernel: Kernel) -> None:
        x = ctx.input(0)
        sizes = x.shape[2:]
        if len(sizes) > 2:
            # The spatial axes of a dense tensor are one line.
            x = ctx.dense(x)
            window = Window((IDENTITY, *self._window((math.prod(sizes),)).axes))
        else:
            window = self._window(sizes)
        _step(ctx, x, [ctx.output(0)], window, kernel, (0, 0))

    @staticmethod
    def _shape(node: Node) -> tuple[int, ...]:
        x = node.value(0)
        return (*x.shape[:2], *(1,) * (x.rank - 2))


@register
class GlobalMaxPool(_Global):
    """ai.onnx GlobalMaxPool."""

    names = ("GlobalMaxPool",)

    def problems(self, node: Node) -> list[Problem]:
        found = super().problems(node)
        if node.value(0).dtype not in _MAX:
            found.append(node.problem(f"inputs of type {node.value(0).dtype} are not supported", remedy="cast the input"))
        return found

    def infer(self, node: Node) -> list[Value]:
        x = node.value(0)
        return [Value(self._shape(node), FLOAT32) if x.dtype.is_float else Value.integer(self._shape(node), x.dtype, *bounds(x))]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x = inputs[0]
        assert x is not None
        return [x.max(axis=tuple(range(2, x.ndim)), keepdims=True)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        self._lower(ctx, _MAX[node.value(0).dtype])

    def kernels(self) -> Sequence[Kernel]:
        return tuple(_MAX.values())


@register
class GlobalAveragePool(_Global):
    """ai.onnx GlobalAveragePool of floats."""

    names = ("GlobalAveragePool",)

    def problems(self, node: Node) -> list[Problem]:
        return super().problems(node) + _average_problems(node)

    def infer(self, node: Node) -> list[Value]:
        return [Value(self._shape(node), FLOAT32)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x = inputs[0]
        assert x is not None
        flat = x.astype(np.float64).reshape(*x.shape[:2], -1)
        total = np.zeros(x.shape[:2])
        for i in range(flat.shape[-1]):  # one chain of additions, so that no machine's summation decides a byte
            total = total + flat[..., i]
        return [(total / flat.shape[-1]).astype(np.float32).reshape(self._shape(node))]

    def lower(self, node: Node, ctx: Lowering) -> None:
        self._lower(ctx, _AVERAGE)

    def kernels(self) -> Sequence[Kernel]:
        return (_AVERAGE,)
