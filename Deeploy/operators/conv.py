"""Convolutions: Conv, and RequantizedConv, which passes make of a Conv and the requantisation behind it.

One step per node. Iteration space (n, g, oc, oh, ow | ic, kh, kw): channels are regrouped into (group, channel of the group) by strides,
so depthwise, grouped and dense convolutions are one kernel; a 1-D convolution has height 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from Deeploy.errors import Problem
from Deeploy.operators.accumulation import NARROW, Accumulated, align, dim, exact_integers, finish_sum, free_sum, weighted_sum
from Deeploy.operators.base import DOMAIN, Node, Operator, Value, bounds, register
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.requantisation import Requant, requant_params
from Deeploy.operators.windows import Window, padded, tap, window_of, window_problems
from Deeploy.program.dtypes import FLOAT32, INT32, INT64, TYPE_CODES, DType
from Deeploy.program.step import Access, Axis, AxisKind, DimMap, Kernel, KernelCall, Operand, Param
from Deeploy.program.tensor import Tensor

_SYMBOLS = {f"dp_conv_{x}_{w}": 10.0 for x in NARROW.values() for w in NARROW.values()}
KERNELS = {
    symbol: Kernel(symbol, "conv.c", "dp_conv_cst", cycles, splits_reduction=True)
    for symbol, cycles in {**_SYMBOLS, "dp_conv_any": 30.0, "dp_conv_f32": 8.0}.items()
}


def _kernel_shape(node: Node) -> tuple[int, ...]:
    return node.ints("kernel_shape", node.value(1).shape[2:])


def _window(node: Node) -> Window:
    return window_of(node, node.value(0).shape[2:], _kernel_shape(node))


def _accumulated(node: Node) -> Accumulated:
    """Ranges of an integer convolution, per output channel where the weights are constant."""
    x, w, bias = node.value(0), node.value(1), node.optional(2)
    rank = x.rank
    if bias is not None:
        bias = bias.reshaped((-1, *(1,) * (rank - 2))) if bias.constant is not None else bias
    absent = _window(node).touches_padding
    if w.constant is not None and w.constant.size:
        axes = tuple(range(1, rank))
        spans = [weighted_sum(w.constant, axes, bounds(x), zero) for zero in (absent, True)]
        # Weights are (M, 1, ...) after the sum: drop one axis, so that M is the channel axis of the output.
        exact, partial = (type(s)(s.lo.reshape((-1, *(1,) * (rank - 2))), s.hi.reshape((-1, *(1,) * (rank - 2)))) for s in spans)
    else:
        depth = int(np.prod(w.shape[1:]))
        exact, partial = (free_sum(depth, bounds(x), bounds(w), zero) for zero in (absent, True))
    return finish_sum(exact, partial, bias)


def _problems(node: Node) -> list[Problem]:
    x, w = node.value(0), node.value(1)
    if x.rank < 3 or w.rank != x.rank:
        what = f"an input of rank {x.rank} with weights of rank {w.rank}"
        return [node.problem(what, "both need two channel axes and the same spatial axes")]
    found = window_problems(node, x.shape[2:], _kernel_shape(node))
    group, bias = node.int("group", 1), node.optional(2)
    if _kernel_shape(node) != w.shape[2:]:
        found.append(node.problem(f"{_kernel_shape(node)} differs from the weights' {w.shape[2:]}", attribute="kernel_shape"))
    if group < 1 or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        what = f"{group} groups of {w.shape[1]} channels with {x.shape[1]} input and {w.shape[0]} output channels"
        found.append(node.problem(what, "both must be divided by the groups", attribute="group"))
    if x.elements == 0 or w.elements == 0:
        found.append(node.problem("an operand has no elements", "there is nothing to convolve", "remove the node"))
    if bias is not None and bias.shape != (w.shape[0],):
        found.append(node.problem(f"the bias has shape {bias.shape}", f"one value for each of {w.shape[0]} output channels is needed"))
    values = [v for v in (x, w, bias) if v is not None]
    if not (all(v.dtype is FLOAT32 for v in values) or all(v.dtype.is_integer for v in values)):
        found.append(node.problem("operand types " + ", ".join(str(v.dtype) for v in values) + " do not go together"))
    if not found and x.dtype.is_integer and not _accumulated(node).fits(INT64):
        found.append(node.problem("the sum may leave 64 bits", f"its range is {_accumulated(node).result.total}", "use narrower operands"))
    return found


def _output_shape(node: Node) -> tuple[int, ...]:
    return (node.value(0).shape[0], node.value(1).shape[0], *_window(node).output)


def _convolve(node: Node, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The sum without bias: int64 for integers, float64 for floats (one chain of additions, so no machine's library decides a byte)."""
    window, group, depth = _window(node), node.int("group", 1), w.shape[1]
    batch, outputs = x.shape[0], w.shape[0] // group
    points = int(np.prod(window.output))
    floats = x.dtype.kind == "f"
    exact = not floats and exact_integers(int(np.prod(w.shape[1:])), x, w)
    working = np.float64 if floats or exact else np.int64
    source = padded(x.astype(working), window, 0)
    weights = w.astype(working).reshape(group, outputs, depth, *w.shape[2:])
    total = np.zeros((batch, group, outputs, points), working)
    for index in np.ndindex(*w.shape[2:]):
        seen = tap(source, window, index).reshape(batch, group, depth, points)
        factor = weights[(slice(None), slice(None), slice(None), *index)]
        if exact:
            total += np.matmul(factor, seen)
            continue
        for channel in range(depth):
            total += factor[None, :, :, channel, None] * seen[:, :, None, channel]
    if exact:
        total = np.rint(total).astype(np.int64)
    return total.reshape(batch, group * outputs, *window.output)


def _with_bias(node: Node, inputs: Sequence[np.ndarray | None]) -> np.ndarray:
    x, w, bias = inputs[0], inputs[1], inputs[2] if len(inputs) > 2 else None
    assert x is not None and w is not None
    total = _convolve(node, x, w)
    if bias is not None:
        total = total + bias.astype(total.dtype).reshape(-1, *(1,) * (x.ndim - 2))
    return total


def _reduced_axes(sizes: Sequence[int], names: Sequence[str], any_order: bool) -> list[Axis]:
    """Reduced axes in the order of the kernel's additions. Floats may be split along the first real one only: the sum keeps its order."""
    axes, inside = [], False
    for name, size in zip(names, sizes, strict=True):
        axes.append(Axis(name, size, AxisKind.REDUCED, any_order or not inside))
        inside = inside or size > 1
    return axes


def _spread(tensor: Tensor, shape: Sequence[int], groups: Sequence[int], access: Access) -> Operand:
    """An operand that broadcasts to the output `shape` (N, C, spatial), as (n, g, oc, oh, ow)."""
    strides = align(tensor, shape)
    channel = strides[1]
    spatial = (0, *strides[2:]) if len(shape) == 3 else strides[2:]
    sizes = (shape[0], groups[0], groups[1], *((1,) if len(shape) == 3 else ()), *shape[2:])
    steps = (strides[0], channel * groups[1], channel, *spatial)
    if access is Access.WRITE:
        return Operand(tensor, access, tuple(DimMap(n, s, ((a, 1),)) for a, (n, s) in enumerate(zip(sizes, steps, strict=True))))
    return Operand(tensor, access, tuple(dim(n, s, (a, 1)) for a, (n, s) in enumerate(zip(sizes, steps, strict=True))))


def _main_operands(x: Tensor, w: Tensor, window: Window, group: int, outputs: int) -> list[Operand]:
    """x as (n, g, ic, h, w) and the weights as (g, oc, ic, kh, kw)."""
    n, g, oc, oh, ow, ic, kh, kw = range(8)
    depth = w.shape[1]
    height, width = window.height, window.width
    flat = len(window.axes) == 1
    x_h = DimMap(1, 0) if flat else dim(height.size, x.strides[2], (oh, height.stride), (kh, height.dilation), offset=-height.before)
    x_dims = (
        dim(x.shape[0], x.strides[0], (n, 1)),
        dim(group, x.strides[1] * depth, (g, 1)),
        dim(depth, x.strides[1], (ic, 1)),
        x_h,
        dim(width.size, x.strides[-1], (ow, width.stride), (kw, width.dilation), offset=-width.before),
    )
    w_dims = (
        dim(group, w.strides[0] * outputs, (g, 1)),
        dim(outputs, w.strides[0], (oc, 1)),
        dim(depth, w.strides[1], (ic, 1)),
        DimMap(1, 0) if flat else dim(height.taps, w.strides[2], (kh, 1)),
        dim(width.taps, w.strides[-1], (kw, 1)),
    )
    return [Operand(x, Access.READ, x_dims), Operand(w, Access.READ, w_dims)]


def _lower(node: Node, ctx: Lowering, requant: Requant | None) -> None:
    x, w, bias = ctx.input(0), ctx.input(1), ctx.optional(2)
    y = ctx.output(0)
    window, group = _window(node), node.int("group", 1)
    outputs, depth = w.shape[0] // group, w.shape[1]
    height, width = window.height, window.width
    kernel, accumulator, wide = _choose(node, requant)
    axes = [
        Axis("n", x.shape[0]),
        Axis("g", group),
        Axis("oc", outputs),
        Axis("oh", height.output),
        Axis("ow", width.output),
        *_reduced_axes((depth, height.taps, width.taps), ("ic", "kh", "kw"), accumulator is not FLOAT32),
    ]
    operands = [_spread(y, y.shape, (group, outputs), Access.WRITE), *_main_operands(x, w, window, group, outputs)]
    slots = {"bias": -1, "mul": -1, "add": -1}
    for name, tensor in (("bias", bias), *((("mul", ctx.input(3)), ("add", ctx.input(4))) if requant else ())):
        if tensor is None:
            continue
        slots[name] = len(operands)
        if name == "bias":
            one, step = DimMap(1, 0), tensor.strides[0]
            dims = (one, dim(group, step * outputs, (1, 1)), dim(outputs, step, (2, 1)), one, one)
            operands.append(Operand(tensor, Access.READ, dims))
        else:
            operands.append(_spread(tensor, y.shape, (group, outputs), Access.READ))
    numbers: list[tuple[str, int]] = [
        ("height", height.size),
        ("width", width.size),
        ("stride_h", height.stride),
        ("stride_w", width.stride),
        ("dilation_h", height.dilation),
        ("dilation_w", width.dilation),
        ("pad_h", height.before),
        ("pad_w", width.before),
        ("x_type", TYPE_CODES[x.dtype]),
        ("w_type", TYPE_CODES[w.dtype]),
        ("bias_type", 0 if bias is None else TYPE_CODES[bias.dtype]),
        ("y_type", TYPE_CODES[y.dtype]),
        *slots.items(),
        *requant_params(requant, wide),
    ]
    call = KernelCall(kernel, tuple(range(len(operands))), tuple(range(8)), tuple(Param(k, v) for k, v in numbers))
    ctx.step(axes, operands, [call], accumulator=accumulator, macs=int(np.prod([a.size for a in axes])))


def _choose(node: Node, requant: Requant | None) -> tuple[Kernel, DType, bool]:
    """The kernel, its accumulator type, and whether requantisation needs 64 bits."""
    x, w = node.value(0), node.value(1)
    if x.dtype is FLOAT32:
        return KERNELS["dp_conv_f32"], FLOAT32, False
    ranges = _accumulated(node)
    wide = requant is not None and not requant.fits(ranges.result, node.value(3), node.value(4), INT32)
    if x.dtype in NARROW and w.dtype in NARROW and ranges.fits(INT32):
        return KERNELS[f"dp_conv_{NARROW[x.dtype]}_{NARROW[w.dtype]}"], INT32, wide
    return KERNELS["dp_conv_any"], INT64, wide


@register
class Conv(Operator):
    """ai.onnx Conv with one or two spatial axes; auto_pad is resolved where the geometry is read."""

    names = ("Conv",)
    domains = ("",)
    integer_slots: ClassVar[Mapping[int, DType]] = {2: INT32}
    channel_axis = 1

    def problems(self, node: Node) -> list[Problem]:
        return _problems(node)

    def infer(self, node: Node) -> list[Value]:
        shape = _output_shape(node)
        if node.value(0).dtype is FLOAT32:
            return [Value(shape, FLOAT32)]
        result = _accumulated(node).result
        return [Value.integer(shape, INT32 if result.fits(INT32) else INT64, *result.total)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [_with_bias(node, inputs).astype(self.infer(node)[0].dtype.numpy)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        _lower(node, ctx, None)

    def kernels(self) -> Sequence[Kernel]:
        return tuple(KERNELS.values())


@register
class RequantizedConv(Operator):
    """Conv followed by RequantShift: x, w, bias or absent, mul, add; attributes of Conv and div, n_levels, signed."""

    names = ("RequantizedConv",)
    domains = (DOMAIN,)
    integer_slots: ClassVar[Mapping[int, DType]] = {2: INT32, 3: INT32, 4: INT32}

    def problems(self, node: Node) -> list[Problem]:
        found = _problems(node) + Requant.problems(node, 3, 4)
        if not found and not node.value(0).dtype.is_integer:
            found.append(node.problem("a float convolution cannot be requantised"))
        if not found and not Requant.of(node).fits(_accumulated(node).result, node.value(3), node.value(4), INT64):
            found.append(node.problem("requantisation may leave 64 bits", remedy="use smaller mul and add"))
        return found

    def infer(self, node: Node) -> list[Value]:
        requant = Requant.of(node)
        return [Value.integer(_output_shape(node), requant.dtype, *requant.range(_accumulated(node).result, node.value(3), node.value(4)))]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        mul, add = inputs[3], inputs[4]
        assert mul is not None and add is not None
        return [Requant.of(node).reference(_with_bias(node, inputs[:3]), mul, add)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        _lower(node, ctx, Requant.of(node))

    def kernels(self) -> Sequence[Kernel]:
        return tuple(k for s, k in KERNELS.items() if s != "dp_conv_f32")
