"""ConvGrad: the gradients of a float convolution, each its own step.

dX gathers, with the space (n, g, ic, h, w | oc): h and w are numbers (block, phase) of base stride, because rows of one phase meet the same
taps, and the rows of dY that a run of blocks meets are an interval. dW has the space (g, oc, ic, kh, kw | n, oh, ow), dB is a sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from Deeploy.errors import Problem
from Deeploy.operators.accumulation import dim
from Deeploy.operators.base import Node, Operator, Value, register
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.reduction import PLAIN, REDUCE
from Deeploy.operators.windows import Window, WindowAxis, padded, tap, window_of, window_problems
from Deeploy.program.dtypes import FLOAT32
from Deeploy.program.step import Access, Axis, AxisKind, DimMap, Kernel, KernelCall, Operand, Param
from Deeploy.program.tensor import Tensor

_LINES = 4
"""From that many channels (or outputs) on a kernel has lines of four sums that share an operand: conv_grad.c."""
_TERM, _POINT, _ROW_TERM, _ROW_POINT, _WEIGHT = 6.5, 120.0, 11.0, 60.0, 50.0
"""Cycles of one core, as measured on the simulated chip: of a term of a sum, and of all else about an element of dX, with lines and
without; of all else about an element of dW."""
_LONGEST = 16
"""Of a block of output channels: long inner loops against small tiles."""
_GRAD_X = Kernel("dp_conv_grad_x_f32", "conv_grad.c", "dp_conv_grad_x_cst", _TERM, splits_reduction=True)
"""Its points are (element of dX, output channel); `_lower_x` sets the cycles of one from the taps it has."""
_GRAD_W = Kernel("dp_conv_grad_w_f32", "conv_grad.c", "dp_conv_grad_w_cst", _TERM, splits_reduction=True)
_GRAD_B = REDUCE["sum", FLOAT32, FLOAT32]


@dataclass(frozen=True)
class _Geometry:
    """The convolution: its window over X, groups, and channels of a group."""

    window: Window
    group: int
    outputs: int
    depth: int

    @property
    def macs(self) -> int:
        """Of the convolution for one image, as of each of the gradients."""
        taps = math.prod(a.taps for a in self.window.axes)
        return self.group * self.outputs * self.depth * taps * math.prod(self.window.output)


def _geometry(node: Node) -> _Geometry:
    x, w, group = node.value(1), node.value(2), node.int("group", 1)
    return _Geometry(window_of(node, x.shape[2:], w.shape[2:]), group, w.shape[0] // group, w.shape[1])


def _problems(node: Node) -> list[Problem]:
    dy, x, w = node.value(0), node.value(1), node.value(2)
    if any(v.dtype is not FLOAT32 for v in (dy, x, w)):
        types = ", ".join(str(v.dtype) for v in (dy, x, w))
        return [node.problem(f"operand types {types} are not supported", "gradients are computed in float32")]
    if x.rank < 3 or w.rank != x.rank or dy.rank != x.rank:
        what = f"an input of rank {x.rank} with weights of rank {w.rank} and a gradient of rank {dy.rank}"
        return [node.problem(what, "all need two channel axes and the same spatial axes")]
    found, group = window_problems(node, x.shape[2:], w.shape[2:]), node.int("group", 1)
    if node.has("kernel_shape") and node.ints("kernel_shape") != w.shape[2:]:
        found.append(node.problem(f"{node.ints('kernel_shape')} differs from the weights' {w.shape[2:]}", attribute="kernel_shape"))
    if group < 1 or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        what = f"{group} groups of {w.shape[1]} channels with {x.shape[1]} input and {w.shape[0]} output channels"
        found.append(node.problem(what, "both must be divided by the groups", attribute="group"))
    if x.elements == 0 or w.elements == 0:
        found.append(node.problem("an operand has no elements", "there is nothing to convolve", "remove the node"))
    if not found and dy.shape != (forward := (x.shape[0], w.shape[0], *_geometry(node).window.output)):
        found.append(node.problem(f"the gradient has the shape {dy.shape}", f"the convolution's result has {forward}"))
    return found


# ---- lowering ----------------------------------------------------------------------------------------------------------------------


def _whole(size: int, stride: int) -> DimMap:
    """A dimension that every tile has all of."""
    return DimMap(1, 0) if size == 1 or stride == 0 else DimMap(size, stride, (), 0, size)


def _spatial(dims: Sequence[DimMap]) -> tuple[DimMap, ...]:
    """Height and width from one or two spatial dimensions."""
    return (DimMap(1, 0), *dims) if len(dims) == 1 else tuple(dims)


def _channels(tensor: Tensor, group: int, per: int, axes: tuple[int, int, int]) -> tuple[DimMap, ...]:
    """(n, g, c) of an activation whose channels are `group` times `per`, read along those axes."""
    batch, channel = tensor.strides[:2]
    n, g, c = axes
    return dim(tensor.shape[0], batch, (n, 1)), dim(group, channel * per, (g, 1)), dim(per, channel, (c, 1))


@dataclass(frozen=True)
class _Phases:
    """One spatial axis of dX as (block, phase), and the rows of dY that blocks meet: scale * first block + begin, `window` per block.

    If the axis is no multiple of the stride, it has one phase, and every tile has all of dY's axis (scale 0).
    """

    blocks: int
    phases: int
    scale: int
    begin: int
    window: int

    @staticmethod
    def of(axis: WindowAxis) -> _Phases:
        if axis.size % axis.stride:
            return _Phases(axis.size, 1, 0, 0, axis.output)
        begin = -((axis.extent - 1 - axis.before) // axis.stride)  # rounded up
        end = (axis.stride - 1 + axis.before) // axis.stride
        return _Phases(axis.size // axis.stride, axis.stride, 1, begin, end - begin + 1)

    def axes(self, name: str) -> list[Axis]:
        return [Axis(f"{name}b", self.blocks), Axis(f"{name}p", self.phases, tileable=False)]

    def written(self, axis: WindowAxis, stride: int, block: int) -> DimMap:
        return DimMap(axis.size, stride, ((block, self.phases), (block + 1, 1)))

    def read(self, axis: WindowAxis, stride: int, block: int) -> DimMap:
        """The dimension of dY."""
        if not self.scale or axis.output == 1 or stride == 0:
            return _whole(axis.output, stride)
        return DimMap(axis.output, stride, ((block, 1),), self.begin, self.window)


def _block(outputs: int, depth: int, taps: int) -> int:
    """How many output channels dX's sums take before the next tap: a divisor, so that tiles of whole blocks keep the order of additions.

    1 where it would change nothing, and where the kernel has too few channels for lines: then it takes several taps at once.
    """
    return 1 if taps == 1 or depth < _LINES else max(b for b in range(1, _LONGEST + 1) if outputs % b == 0)


def _x_params(height: WindowAxis, width: WindowAxis, rows: _Phases, columns: _Phases, block: int) -> tuple[Param, ...]:
    """The constant struct of dX's kernel."""
    axes, phases = (height, width), (rows, columns)
    common = [math.gcd(a.stride, a.dilation) for a in axes]
    fields = {
        "out": [a.output for a in axes],
        "taps": [a.taps for a in axes],
        "stride": [a.stride for a in axes],
        "dilation": [a.dilation for a in axes],
        "pad": [a.before for a in axes],
        "period": [a.stride // c for a, c in zip(axes, common, strict=True)],
        "drop": [a.dilation // c for a, c in zip(axes, common, strict=True)],
        "scale": [p.scale for p in phases],
        "begin": [p.begin for p in phases],
    }
    return (*(Param(name, tuple(values)) for name, values in fields.items()), Param("block", block))


def _lower_x(ctx: Lowering, geometry: _Geometry) -> None:
    dy, w, dx = ctx.input(0), ctx.input(2), ctx.output(0)
    group, outputs, depth = geometry.group, geometry.outputs, geometry.depth
    height, width = geometry.window.height, geometry.window.width
    rows, columns = _Phases.of(height), _Phases.of(width)
    flat = len(geometry.window.axes) == 1
    n, g, ic, hb, wb, oc = 0, 1, 2, 3, 5, 7
    axes = [Axis("n", dx.shape[0]), Axis("g", group), Axis("ic", depth), *rows.axes("h"), *columns.axes("w")]
    block = _block(outputs, depth, height.taps * width.taps)
    axes.append(Axis("oc", outputs, AxisKind.REDUCED, quantum=block))
    written = (
        DimMap(dx.shape[0], dx.strides[0], ((n, 1),)),
        DimMap(group, dx.strides[1] * depth, ((g, 1),)),
        DimMap(depth, dx.strides[1], ((ic, 1),)),
        rows.written(height, 0 if flat else dx.strides[2], hb),
        columns.written(width, dx.strides[-1], wb),
    )
    dy_dims = (
        *_channels(dy, group, outputs, (n, g, oc)),
        DimMap(1, 0) if flat else rows.read(height, dy.strides[2], hb),
        columns.read(width, dy.strides[-1], wb),
    )
    w_dims = (
        dim(group, w.strides[0] * outputs, (g, 1)),
        dim(outputs, w.strides[0], (oc, 1)),
        dim(depth, w.strides[1], (ic, 1)),
        *_spatial([_whole(a.taps, s) for a, s in zip(geometry.window.axes, w.strides[2:], strict=True)]),
    )
    operands = [Operand(dx, Access.WRITE, written), Operand(dy, Access.READ, dy_dims), Operand(w, Access.READ, w_dims)]
    terms = height.taps * width.taps / (height.stride * width.stride)
    term, point = (_TERM, _POINT) if depth >= _LINES else (_ROW_TERM, _ROW_POINT)
    kernel = replace(_GRAD_X, cycles_per_point=term * terms + point / outputs)
    ctx.step(
        axes,
        operands,
        [KernelCall(kernel, (0, 1, 2), tuple(range(8)), _x_params(height, width, rows, columns, block))],
        accumulator=FLOAT32,
        macs=dx.shape[0] * geometry.macs,
        suffix="dx",
    )


def _rows_first(batch: int, geometry: _Geometry) -> bool:
    """Whether the sum runs over rows before images: only the outer one of the two can be cut, so that which leaves the smaller tiles."""
    height, width = geometry.window.height, geometry.window.width
    if batch == 1 or height.output == 1:
        return False
    row = width.output + min(height.extent, height.size) * width.size
    return batch * row < height.output * width.output + height.size * width.size


def _lower_w(ctx: Lowering, geometry: _Geometry) -> None:
    dy, x, dw = ctx.input(0), ctx.input(1), ctx.output(1)
    group, outputs, depth, batch = geometry.group, geometry.outputs, geometry.depth, dy.shape[0]
    height, width = geometry.window.height, geometry.window.width
    flat = len(geometry.window.axes) == 1
    rows_first = _rows_first(batch, geometry)
    g, oc, ic, kh, kw, n, oh, ow = range(8)
    sums = {"n": batch, "oh": height.output, "ow": width.output}
    chain = ("oh", "n", "ow") if rows_first else ("n", "oh", "ow")
    # Floats may be cut along the outermost loop of the chain only: the sum keeps its order.
    cut = next((name for name in chain if sums[name] > 1), "n")
    axes = [Axis("g", group), Axis("oc", outputs), Axis("ic", depth), Axis("kh", height.taps), Axis("kw", width.taps)]
    axes += [Axis(name, size, AxisKind.REDUCED, tileable=name == cut) for name, size in sums.items()]
    w_strides = (0, *dw.strides[2:]) if flat else dw.strides[2:]
    written = (
        DimMap(group, dw.strides[0] * outputs, ((g, 1),)),
        DimMap(outputs, dw.strides[0], ((oc, 1),)),
        DimMap(depth, dw.strides[1], ((ic, 1),)),
        DimMap(height.taps, w_strides[0], ((kh, 1),)),
        DimMap(width.taps, w_strides[1], ((kw, 1),)),
    )
    dy_axes, x_axes = (oh, ow)[-len(dy.shape[2:]) :], ((oh, kh), (ow, kw))[-len(x.shape[2:]) :]
    dy_dims = [dim(a.output, s, (axis, 1)) for a, s, axis in zip(geometry.window.axes, dy.strides[2:], dy_axes, strict=True)]
    x_dims = [
        dim(a.size, s, (out, a.stride), (k, a.dilation), offset=-a.before)
        for a, s, (out, k) in zip(geometry.window.axes, x.strides[2:], x_axes, strict=True)
    ]
    operands = [
        Operand(dw, Access.WRITE, written),
        Operand(dy, Access.READ, (*_channels(dy, group, outputs, (n, g, oc)), *_spatial(dy_dims))),
        Operand(x, Access.READ, (*_channels(x, group, depth, (n, g, ic)), *_spatial(x_dims))),
    ]
    numbers = {
        "height": height.size,
        "width": width.size,
        "stride_h": height.stride,
        "stride_w": width.stride,
        "dilation_h": height.dilation,
        "dilation_w": width.dilation,
        "pad_h": height.before,
        "pad_w": width.before,
        "rows_first": int(rows_first),
    }
    term = _TERM if max(outputs, depth) >= _LINES else _ROW_TERM
    kernel = replace(_GRAD_W, cycles_per_point=term + _WEIGHT / math.prod(sums.values()))
    call = KernelCall(kernel, (0, 1, 2), tuple(range(8)), tuple(Param(k, v) for k, v in numbers.items()))
    ctx.step(axes, operands, [call], accumulator=FLOAT32, macs=batch * geometry.macs, suffix="dw")


def _lower_b(ctx: Lowering) -> None:
    """The sum over images and pixels of each channel."""
    dy, db = ctx.input(0), ctx.output(2)
    sums = [0, *range(2, len(dy.shape))]
    cut = next((d for d in sums if dy.shape[d] > 1), 0)
    axes = [Axis("c", dy.shape[1])]
    axes += [Axis(f"r{d}", dy.shape[d], AxisKind.REDUCED, tileable=d == cut) for d in sums]
    dims = [dim(dy.shape[d], dy.strides[d], (i, 1)) for i, d in enumerate((1, *sums))]
    operands = [Operand(dy, Access.READ, tuple(dims)), Operand(db, Access.WRITE, (DimMap(db.shape[0], db.strides[0], ((0, 1),)),))]
    numbers = {"rank": 1, "reduced": len(sums), "finish": PLAIN, "count": dy.elements // dy.shape[1], "out_bytes": FLOAT32.size}
    call = KernelCall(_GRAD_B, (0, 1), tuple(range(len(axes))), tuple(Param(k, v) for k, v in numbers.items()))
    ctx.step(axes, operands, [call], accumulator=FLOAT32, macs=dy.elements, suffix="db")


# ---- reference ---------------------------------------------------------------------------------------------------------------------


def _reference(geometry: _Geometry, dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """dX and dW in float64, tap by tap."""
    window, group, batch = geometry.window, geometry.group, x.shape[0]
    points = math.prod(window.output)
    source = padded(x.astype(np.float64), window, 0.0)
    dx, dw = np.zeros_like(source), np.zeros((group, geometry.outputs, geometry.depth, *w.shape[2:]))
    weights = w.astype(np.float64).reshape(dw.shape)
    g = dy.astype(np.float64).reshape(batch, group, geometry.outputs, points)
    for index in np.ndindex(*w.shape[2:]):
        at = (slice(None), slice(None), slice(None), *index)
        seen = tap(source, window, index).reshape(batch, group, geometry.depth, points)
        dw[at] = np.matmul(g, seen.swapaxes(2, 3)).sum(axis=0)
        part = np.matmul(weights[at].swapaxes(1, 2), g)
        tap(dx, window, index)[...] += part.reshape(batch, -1, *window.output)
    inside: list[Any] = [slice(a.before, a.before + a.size) for a in window.axes]
    return dx[(..., *inside)], dw.reshape(w.shape)


@register
class ConvGrad(Operator):
    """com.microsoft ConvGrad(dY, X, W) -> dX, dW, dB, each of them optional; the attributes are those of the Conv."""

    names = ("ConvGrad",)
    domains = ("com.microsoft",)
    needed_outputs = 0

    def problems(self, node: Node) -> list[Problem]:
        return _problems(node)

    def infer(self, node: Node) -> list[Value]:
        shapes = (node.value(1).shape, node.value(2).shape, (node.value(2).shape[0],))
        return [Value(shape, FLOAT32) for shape in shapes[: len(node.outputs)]]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        dy, x, w = inputs[0], inputs[1], inputs[2]
        assert dy is not None and x is not None and w is not None
        with np.errstate(all="ignore"):
            db = dy.astype(np.float64).sum(axis=(0, *range(2, dy.ndim)))
            results = (*_reference(_geometry(node), dy, x, w), db)
            return [r.astype(np.float32) for r in results[: len(node.outputs)]]

    def lower(self, node: Node, ctx: Lowering) -> None:
        geometry = _geometry(node)
        wanted = [i for i, name in enumerate(node.outputs) if name]
        if 0 in wanted:
            _lower_x(ctx, geometry)
        if 1 in wanted:
            _lower_w(ctx, geometry)
        if 2 in wanted:
            _lower_b(ctx)

    def kernels(self) -> Sequence[Kernel]:
        return (_GRAD_X, _GRAD_W, _GRAD_B)
