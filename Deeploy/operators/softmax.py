"""Softmax with its gradient, LogSoftmax, and the integer approximations iSoftmax, ITAMax and ITAPartialMax (docs: semantics, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from Deeploy.errors import ModelError, Problem
from Deeploy.operators.base import Node, Operator, Value, bounds, find, register
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.views import LineSpace, Strided, line_space
from Deeploy.program.dtypes import FLOAT32, INT8, INT16, INT32, UINT8, UINT16
from Deeploy.program.step import Kernel, KernelCall, Param
from Deeploy.program.tensor import Tensor

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

SOFTMAX = Kernel("dp_softmax_f32", "softmax.c", "dp_softmax_cst", cycles_per_point=60.0)
SOFTMAX_GRAD = Kernel("dp_softmax_grad_f32", "softmax.c", "dp_softmax_grad_cst", cycles_per_point=8.0)
DEEPLOY_FLOAT_OPERATORS = ("RMSNorm",)
"""Custom operators of float networks in the Deeploy format (integer ones declare `integer_format`)."""
LINE_TYPES = (INT8, UINT8, INT16, UINT16, INT32)
"""Input types of the integer kernels that work on lines."""
ISOFTMAX = {
    (dtype, bits): Kernel(
        f"dp_isoftmax_{dtype.short}_{bits}", "isoftmax.c", "dp_isoftmax_cst", cycles_per_point=90.0 if bits == 32 else 250.0
    )
    for dtype in LINE_TYPES
    for bits in (32, 64)
}
ITAMAX = {dtype: Kernel(f"dp_itamax_{dtype.short}", "isoftmax.c", "dp_itamax_cst", cycles_per_point=25.0) for dtype in LINE_TYPES}


def checked_axis(node: Node, axis: int, rank: int) -> int:
    """The axis counted from 0. Raises ModelError if there is no such axis."""
    if not -rank <= axis < rank:
        raise ModelError(node.problem(f"axis {axis} does not exist", f"the input has {rank} dimensions", attribute="axis"))
    return axis % rank


def axis_problems(node: Node, default: int) -> list[Problem]:
    try:
        checked_axis(node, node.int("axis", default), node.value(0).rank)
    except ModelError as error:
        return list(error.problems)
    return []


def accumulator_bits(*magnitudes: int) -> int | None:
    """32 or 64: the narrowest signed accumulator that holds all those magnitudes; None if 64 bits do not."""
    largest = max(magnitudes)
    return 32 if largest < 1 << 31 else 64 if largest < 1 << 63 else None


def same_shape_space(ctx: Lowering, line: Sequence[int]) -> LineSpace:
    """The line space of input 0 and output 0, which have one shape; input 0 is copied if its strides do not suit."""
    x, y = ctx.input(0), ctx.output(0)
    space = line_space(x.shape, line, Strided(x, x.strides), Strided(y, y.strides))
    if space is None:
        x = ctx.dense(x)
        space = line_space(x.shape, line, Strided(x, x.strides), Strided(y, y.strides))
    assert space is not None, x.name
    return space


def _in_deeploy_format(node: gs.Node) -> bool:
    """Whether the network of the node has custom operators of the Deeploy format.

    Such files are written with the defaults of the newest opset, whatever opset they declare.
    """
    seen, left = {id(node)}, [node]
    while left:
        one = left.pop()
        operator = find(one.op, one.domain or "")
        if one.op in DEEPLOY_FLOAT_OPERATORS or (operator is not None and operator.integer_format):
            return True
        for tensor in (*one.inputs, *one.outputs):
            for other in (*tensor.inputs, *tensor.outputs):
                if id(other) not in seen:
                    seen.add(id(other))
                    left.append(other)
    return False


class _FloatSoftmax(Operator):
    """Attributes: axis; coerce (internal): the line is all dimensions from `axis` on, as before opset 13; assumed (internal): the opset of
    a file whose missing axis was taken as -1 against the letter of that opset."""

    domains: ClassVar[tuple[str, ...] | None] = ("",)
    log = False

    def normalise(self, node: gs.Node, opset: int) -> None:
        if opset >= 13:
            node.attrs.setdefault("axis", -1)
        elif "axis" not in node.attrs and _in_deeploy_format(node):
            node.attrs["axis"] = -1
            node.attrs["assumed"] = opset
        else:
            node.attrs.setdefault("axis", 1)
            node.attrs["coerce"] = 1

    def problems(self, node: Node) -> list[Problem]:
        x = node.value(0)
        if not x.dtype.is_float:
            return [node.problem(f"the input has type {x.dtype}", "it works on float32", "use iSoftmax in integer networks")]
        if node.int("coerce", 0) and node.int("axis", -1) == x.rank:
            return []
        return axis_problems(node, -1)

    def infer(self, node: Node) -> list[Value]:
        return [Value(node.value(0).shape, FLOAT32)]

    def _line(self, node: Node) -> tuple[int, ...]:
        rank, axis = node.value(0).rank, node.int("axis", -1)
        if node.int("coerce", 0):
            return tuple(range(axis if axis >= 0 else axis + rank, rank))
        return (checked_axis(node, axis, rank),)

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x = np.asarray(inputs[0], np.float64)
        line = self._line(node)
        if x.size == 0:
            return [x.astype(np.float32)]
        with np.errstate(invalid="ignore", divide="ignore"):
            shifted = x - x.max(line, keepdims=True)
            total = np.exp(shifted).sum(line, keepdims=True)
            return [(shifted - np.log(total) if self.log else np.exp(shifted) / total).astype(np.float32)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        if node.has("assumed"):
            ctx.note(f"it has no axis: taken as the last one, as files with custom operators mean it (opset {node.int('assumed')} says 1)")
        space = same_shape_space(ctx, self._line(node))
        params = (Param("rank", space.rank), Param("log", int(self.log)))
        call = KernelCall(SOFTMAX, (0, 1), tuple(range(len(space.axes))), params)
        ctx.step(space.axes, space.operands, [call], in_place=space.in_place, macs=3 * node.value(0).elements)

    def kernels(self) -> Sequence[Kernel]:
        return (SOFTMAX,)


@register
class Softmax(_FloatSoftmax):
    names = ("Softmax",)


@register
class LogSoftmax(_FloatSoftmax):
    names = ("LogSoftmax",)
    log = True


@register
class SoftmaxGrad(_FloatSoftmax):
    """Inputs: the gradient of a Softmax's result, and that result. Output: dx = y * (dy - sum(dy * y)), the sum over the Softmax's line."""

    names = ("SoftmaxGrad", "SoftmaxGrad_13")
    domains = ("", "com.microsoft")

    def problems(self, node: Node) -> list[Problem]:
        dy, y = node.value(0), node.value(1)
        if dy.dtype != FLOAT32 or y.dtype != FLOAT32:
            return [node.problem(f"its inputs have the types {dy.dtype} and {y.dtype}", "it works on float32")]
        if dy.shape != y.shape:
            return [node.problem(f"the gradient of shape {list(dy.shape)} is not that of a result of shape {list(y.shape)}")]
        return super().problems(node)

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        dy, y = (np.asarray(v, np.float64) for v in inputs[:2])
        with np.errstate(invalid="ignore", over="ignore"):
            return [(y * (dy - (dy * y).sum(self._line(node), keepdims=True))).astype(np.float32)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        dx, line = ctx.output(0), self._line(node)

        def space(dy: Tensor, y: Tensor) -> LineSpace | None:
            return line_space(dx.shape, line, Strided(dy, dy.strides), Strided(dx, dx.strides), [Strided(y, y.strides)])

        dy, y = ctx.input(0), ctx.input(1)
        found = space(dy, y) or space(ctx.dense(dy), ctx.dense(y))
        if found is None:
            raise ModelError(node.problem("it needs too many loops", remedy="reduce the rank of its inputs"))
        call = KernelCall(SOFTMAX_GRAD, (0, 1, 2), tuple(range(len(found.axes))), (Param("rank", found.rank),))
        ctx.step(found.axes, found.operands, [call], in_place=found.in_place, macs=4 * node.value(0).elements)

    def kernels(self) -> Sequence[Kernel]:
        return (SOFTMAX_GRAD,)


class _IntegerLine(Operator):
    """Unsigned 8-bit results over the last axis of an integer tensor."""

    integer_format = True

    def _peak(self, node: Node) -> int:
        """The largest possible result."""
        return node.int("n_levels") - 1

    def _attributes(self) -> tuple[str, ...]:
        return ("n_levels",)

    def problems(self, node: Node) -> list[Problem]:
        x = node.value(0)
        problems: list[Problem] = []
        for name in self._attributes():
            try:
                node.int(name)
            except ModelError as error:
                problems += error.problems
        if x.dtype not in LINE_TYPES:
            problems.append(
                node.problem(
                    f"the input has type {x.dtype}", f"kernels take {', '.join(d.name for d in LINE_TYPES)}", "requantise the input"
                )
            )
        if x.rank == 0:
            problems.append(node.problem("the input is a scalar", "it works along the last axis"))
        if not problems:
            if not 2 <= node.int("n_levels") <= 256:
                problems.append(node.problem("n_levels must be 2 to 256", "results are stored as uint8", attribute="n_levels"))
            elif node.int("axis", -1) not in (-1, x.rank - 1):
                problems.append(node.problem("only the last axis is supported", remedy="transpose the input", attribute="axis"))
            else:
                problems += self._more_problems(node)
        return problems

    def _more_problems(self, node: Node) -> list[Problem]:
        return []

    def infer(self, node: Node) -> list[Value]:
        return [Value.integer(node.value(0).shape, UINT8, 0, self._peak(node))]

    def _lower(self, node: Node, ctx: Lowering, kernel: Kernel, params: Sequence[tuple[str, int]]) -> None:
        space = same_shape_space(ctx, (node.value(0).rank - 1,))
        fields = (Param("rank", space.rank), *(Param(name, value) for name, value in params))
        call = KernelCall(kernel, (0, 1), tuple(range(len(space.axes))), fields)
        ctx.step(space.axes, space.operands, [call], in_place=space.in_place, macs=4 * node.value(0).elements)


@register
class ISoftmax(_IntegerLine):
    """d = x - max; z = min(-tdiv(d, log2), 31); p = d + z*log2; e = (a*(p + b)^2 + c) >> z; y = e*(n_levels - 1) // sum(e)."""

    names = ("iSoftmax",)

    def _attributes(self) -> tuple[str, ...]:
        return ("coeffA", "coeffB", "coeffC", "log2", "n_levels")

    def _more_problems(self, node: Node) -> list[Problem]:
        a, b, c, log2 = (node.int(name) for name in ("coeffA", "coeffB", "coeffC", "log2"))
        if max(abs(v) for v in (a, b, c, log2)) >= 1 << 31:
            return [node.problem("a coefficient does not fit 32 bits", attribute="coeffA, coeffB, coeffC, log2")]
        if log2 <= 0:
            return [node.problem(f"log2 is {log2}", "it divides", "make it positive", attribute="log2")]
        if a < 0 or c < 0 or a * b * b + c <= 0:
            why = "the approximated exponential must be at least zero, and positive for the largest element"
            return [node.problem("the coefficients can give a zero or negative sum", why, attribute="coeffA, coeffB, coeffC")]
        if self._bits(node) is None:
            return [
                node.problem(
                    "intermediate values need more than 64 bits", "the input's range is too large", "requantise the input to 8 bits"
                )
            ]
        return []

    def _bits(self, node: Node) -> int | None:
        x = node.value(0)
        a, b, c, log2 = (node.int(name) for name in ("coeffA", "coeffB", "coeffC", "log2"))
        lo, hi = bounds(x)
        span = hi - lo
        lowest = min(-min(span, log2 - 1), 31 * log2 - span if span // log2 > 31 else 0)
        base = max(abs(lowest + b), abs(b))
        square = base * base  # a value of its own: with a = 0 the peak says nothing of it
        sums = (a * square + c) * max(x.shape[-1], node.int("n_levels") - 1)
        return accumulator_bits(span, 32 * log2, abs(lowest) + abs(b), square, sums, abs(lo), abs(hi))

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x = np.asarray(inputs[0]).astype(np.int64)
        if x.size == 0:
            return [x.astype(np.uint8)]
        a, b, c, log2, levels = (node.int(name) for name in self._attributes())
        d = x - x.max(-1, keepdims=True)
        z = np.minimum(-d // log2, 31)
        e = (a * (d + z * log2 + b) ** 2 + c) >> z
        return [(e * (levels - 1) // e.sum(-1, keepdims=True)).astype(np.uint8)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        bits = self._bits(node)
        assert bits is not None
        if bits == 64:
            ctx.note("intermediate values need 64 bits")
        params = [(field, node.int(name)) for field, name in zip("abc", ("coeffA", "coeffB", "coeffC"), strict=True)]
        params += [("log2", node.int("log2")), ("levels", node.int("n_levels") - 1)]
        self._lower(node, ctx, ISOFTMAX[node.value(0).dtype, bits], params)

    def kernels(self) -> Sequence[Kernel]:
        return tuple(ISOFTMAX.values())


def _ita_shift(distance: np.ndarray) -> np.ndarray:
    return np.minimum((distance + 16) >> 5, 31)


@register
class ITAMax(_IntegerLine):
    """s = (max - x + 16) >> 5; y = (((n_levels - 1) * 256) // sum(256 >> s)) >> s."""

    names = ("ITAMax",)

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x = np.asarray(inputs[0]).astype(np.int64)
        if x.size == 0:
            return [x.astype(np.uint8)]
        shift = _ita_shift(x.max(-1, keepdims=True) - x)
        inverse = self._peak(node) * 256 // (256 >> shift).sum(-1, keepdims=True)
        return [(inverse >> shift).astype(np.uint8)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        self._lower(node, ctx, ITAMAX[node.value(0).dtype], [("numerator", self._peak(node) * 256), ("group", 0)])

    def kernels(self) -> Sequence[Kernel]:
        return tuple(ITAMAX.values())


@register
class ITAPartialMax(_IntegerLine):
    """ITAMax whose maximum and sum are updated group by group; results go up to n_levels/2 - 1."""

    names = ("ITAPartialMax",)

    def _attributes(self) -> tuple[str, ...]:
        return ("n_levels", "group_width")

    def _peak(self, node: Node) -> int:
        return node.int("n_levels") // 2 - 1

    def _more_problems(self, node: Node) -> list[Problem]:
        x, group = node.value(0), node.int("group_width")
        if group <= 0 or x.shape[-1] % group:
            return [node.problem(f"the last axis ({x.shape[-1]}) is no multiple of group_width {group}", attribute="group_width")]
        if bounds(x)[0] < INT8.lo:
            return [node.problem("the input may be below -128", "the running maximum starts there", "requantise the input to int8")]
        return []

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x = np.asarray(inputs[0]).astype(np.int64)
        if x.size == 0:
            return [x.astype(np.uint8)]
        group = node.int("group_width")
        top = np.full((*x.shape[:-1], 1), INT8.lo, np.int64)
        total = np.zeros_like(top)
        for first in range(0, x.shape[-1], group):
            part = x[..., first : first + group]
            high = np.maximum(top, part.max(-1, keepdims=True))
            total >>= np.where(high > top, _ita_shift(high - top), 0)
            total += (256 >> _ita_shift(high - part)).sum(-1, keepdims=True)
            top = high
        inverse = self._peak(node) * 256 // total
        return [(inverse >> _ita_shift(top - x)).astype(np.uint8)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        params = [("numerator", self._peak(node) * 256), ("group", node.int("group_width"))]
        self._lower(node, ctx, ITAMAX[node.value(0).dtype], params)

    def kernels(self) -> Sequence[Kernel]:
        return tuple(ITAMAX.values())
