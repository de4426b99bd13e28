"""Losses and their gradients: SoftmaxCrossEntropyLoss, SoftmaxCrossEntropyLossGrad, MSELoss, MSELossGrad.

Class tensors are (n, c, ...), labels (n, ...) of any integer type. A label that is neither a class nor the ignored one makes the loss and
its gradient NaN. Sums over labels are one chain in their order. The kernels' contract: Targets/kernels/loss.h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from Deeploy.errors import ModelError, Problem
from Deeploy.operators.arithmetic import float_kernel
from Deeploy.operators.base import Node, Operator, Value, register
from Deeploy.operators.broadcasting import elementwise_space
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.normalization import float_problems
from Deeploy.operators.positions import positional, whole
from Deeploy.operators.softmax import SOFTMAX
from Deeploy.operators.views import Strided, join_axes, line_space, reduced_axes
from Deeploy.program.dtypes import FLOAT32, TYPE_CODES, UINT64
from Deeploy.program.step import Access, Axis, AxisKind, DimMap, Kernel, KernelCall, Operand, Param
from Deeploy.program.tensor import Tensor

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

LOSS, GRADIENT = "SoftmaxCrossEntropyLoss", "SoftmaxCrossEntropyLossGrad"
NLL_EACH = Kernel("dp_nll_each_f32", "loss.c", "dp_nll_cst", cycles_per_point=20.0)
NLL_SUM = Kernel("dp_nll_sum_f32", "loss.c", "dp_nll_cst", cycles_per_point=20.0, splits_reduction=True)
CROSS_ENTROPY_GRAD = Kernel("dp_cross_entropy_grad_f32", "loss.c", "dp_cross_entropy_grad_cst", cycles_per_point=70.0)
MSE = Kernel("dp_mse_f32", "loss.c", "dp_mse_cst", cycles_per_point=6.0, splits_reduction=True)
MSE_GRAD = Kernel("dp_mse_grad_f32", "loss.c", "dp_mse_cst", cycles_per_point=15.0)
DIVIDE = float_kernel("div", 20.0)


class _CrossEntropy(Operator):
    """What the loss and its gradient share: inputs 0 (n, c, ...) and 1 (labels), and weights per class.

    Attributes: reduction, ignore_index; `axis` (internal) is that of the classes, which the labels index.
    """

    index_slots = (1,)
    weights_slot = 2

    def problems(self, node: Node) -> list[Problem]:
        x, labels, weights = node.value(0), node.value(1), node.optional(self.weights_slot)
        found = [p for p in float_problems(node) if not p.what.startswith("input 1 ")]
        if not labels.dtype.is_integer or labels.dtype is UINT64:
            found.append(node.problem(f"the labels have type {labels.dtype}", "integers are needed"))
        if x.rank < 2 or x.elements == 0:
            found.append(node.problem(f"scores of shape {list(x.shape)}", "batch and classes with elements are needed"))
        elif labels.shape != (x.shape[0], *x.shape[2:]):
            found.append(node.problem(f"labels of shape {list(labels.shape)} for scores of shape {list(x.shape)}"))
        if weights is not None and x.rank > 1 and weights.shape != (x.shape[1],):
            found.append(node.problem(f"the weights have shape {list(weights.shape)}", f"there are {x.shape[1]} classes"))
        if self._reduction(node) not in ("mean", "sum", "none"):
            found.append(node.problem(f"'{self._reduction(node)}' is no reduction", remedy="use mean, sum or none", attribute="reduction"))
        return found

    @staticmethod
    def _reduction(node: Node) -> str:
        return node.string("reduction", "mean")

    def _counts_weights(self, node: Node) -> bool:
        """Whether the mean is over a sum of weights that is only known at run time."""
        return self._reduction(node) == "mean" and (node.optional(self.weights_slot) is not None or node.has("ignore_index"))

    def _common(self, node: Node) -> dict[str, int]:
        return {
            "type": TYPE_CODES[node.value(1).dtype],
            "classes": node.value(0).shape[1],
            "weighted": int(node.optional(self.weights_slot) is not None),
        }

    @staticmethod
    def _ignored(node: Node) -> tuple[int, int]:
        """Whether a label is ignored, and which."""
        return int(node.has("ignore_index")), node.int("ignore_index", 0)

    def _sum_step(self, node: Node, ctx: Lowering, sums: Tensor, lane: int, log_prob: Tensor, count: int) -> None:
        """Sums over all labels from number `lane` on (0: losses, 1: weights) into the vector `sums`, or a scalar."""
        lanes = sums.elements
        labels = positional(ctx, ctx.input(1), Access.READ, (1, 2))
        sizes = (node.value(0).shape[0], math.prod(node.value(0).shape[2:]))
        written = DimMap(lanes, 1, ((0, 1),)) if lanes > 1 else DimMap(1, 0)
        scores = positional(ctx, log_prob, Access.READ, (1, None, 2))
        operands = [Operand(sums, Access.WRITE, (written,)), labels, scores]
        weights = ctx.optional(self.weights_slot)
        if weights is not None:
            operands.append(Operand(weights, Access.READ, (whole(weights.shape[0], weights.strides[0]),)))
        # A chain keeps its order only if it is cut along the outermost axis that is longer than 1.
        first = 0 if sizes[0] > 1 else 1
        axes = [Axis("k", lanes)]
        axes += [Axis(name, size, AxisKind.REDUCED, tileable=i == first) for i, (name, size) in enumerate(zip("nd", sizes, strict=True))]
        ignores, ignored = self._ignored(node)
        fields = {**self._common(node), "lane": lane, "ignores": ignores, "count": float(count), "ignored64": ignored}
        call = KernelCall(NLL_SUM, tuple(range(len(operands))), (0, 1, 2), tuple(Param(k, v) for k, v in fields.items()))
        ctx.step(axes, operands, [call], accumulator=FLOAT32, macs=lanes * math.prod(sizes), suffix="sum")

    def _label_weights(self, node: Node, labels: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """(labels that index the classes, the weight of each label: 0 if ignored, NaN if it is no class)."""
        classes = node.value(0).shape[1]
        outside = (labels < 0) | (labels >= classes)
        safe = np.where(outside, 0, labels)
        weight = np.ones(labels.shape) if weights is None else weights.astype(np.float64)[safe]
        weight = np.where(outside, np.nan, weight)
        ignores, ignored = self._ignored(node)
        return safe, np.where(labels == ignored, 0.0, weight) if ignores else weight


@register
class SoftmaxCrossEntropyLoss(_CrossEntropy):
    """ai.onnx: outputs loss and, optional, log_prob = LogSoftmax(x, axis 1); inputs x, labels, weights per class.

    In files of the Deeploy format a single output is log_prob, in ONNX it is the loss. The rank that the file declares for the output says
    which: log_prob has the rank of x, the loss less (it is a scalar, or has the labels' shape). If the file declares none, it is log_prob
    where a SoftmaxCrossEntropyLossGrad reads it. Internal attributes: declared_rank, read_by_gradient.
    """

    names = (LOSS,)
    domains = ("",)

    def normalise(self, node: gs.Node, opset: int) -> None:
        node.attrs["axis"] = 1
        shape = node.outputs[0].shape
        if shape is not None:
            node.attrs["declared_rank"] = len(shape)
        node.attrs["read_by_gradient"] = int(any(reader.op == GRADIENT for reader in node.outputs[0].outputs))

    @staticmethod
    def _places(node: Node) -> tuple[int | None, int | None]:
        """The numbers of the outputs loss and log_prob."""
        names = node.outputs
        if len(names) > 1:
            return (0 if names[0] else None), (1 if names[1] else None)
        if node.has("declared_rank"):
            only_log_prob = node.int("declared_rank") == node.value(0).rank
        else:
            only_log_prob = bool(node.int("read_by_gradient", 0))
        return (None, 0) if only_log_prob else (0, None)

    def infer(self, node: Node) -> list[Value]:
        x, labels = node.value(0), node.value(1)
        loss = Value(labels.shape if self._reduction(node) == "none" else (), FLOAT32)
        log_prob = Value(x.shape, FLOAT32)
        if len(node.outputs) > 1:
            return [loss, log_prob]
        return [loss if self._places(node)[0] == 0 else log_prob]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x, labels = np.asarray(inputs[0], np.float64), np.asarray(inputs[1]).astype(np.int64)
        with np.errstate(all="ignore"):
            shifted = x - x.max(1, keepdims=True)
            log_prob = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
            safe, weight = self._label_weights(node, labels, inputs[2] if len(inputs) > 2 else None)
            losses = np.where(weight == 0.0, 0.0, -weight * np.take_along_axis(log_prob, safe[:, None], 1)[:, 0])
            loss = losses if self._reduction(node) == "none" else np.asarray(losses.sum())
            if self._reduction(node) == "mean":
                loss = loss / weight.sum()
            results = [np.asarray(loss, np.float32), log_prob.astype(np.float32)]
        return results if len(node.outputs) > 1 else [results[0 if self._places(node)[0] == 0 else 1]]

    def lower(self, node: Node, ctx: Lowering) -> None:
        loss, place = self._places(node)
        x = ctx.input(0)
        log_prob = ctx.output(place) if place is not None else ctx.temporary("log_prob", x.shape, FLOAT32)
        if len(node.outputs) == 1 and loss is None:
            ctx.note("its only output is log_prob, not the loss: so its shape or its reader says")
        self._log_softmax(node, ctx, x, log_prob)
        if loss is None:
            return
        if self._reduction(node) == "none":
            self._each(node, ctx, log_prob, ctx.output(loss))
            return
        if not self._counts_weights(node):
            count = node.value(1).elements if self._reduction(node) == "mean" else 1
            self._sum_step(node, ctx, ctx.output(loss), 0, log_prob, count)
            return
        sums = ctx.temporary("sums", (2,), FLOAT32)
        self._sum_step(node, ctx, sums, 0, log_prob, 1)
        one = (DimMap(1, 0),)
        operands = [Operand(sums, Access.READ, one, 0), Operand(sums, Access.READ, one, 1), Operand(ctx.output(loss), Access.WRITE, one)]
        call = KernelCall(DIVIDE, (0, 1, 2), (0,), (Param("rank", 1), Param("a", 0.0), Param("b", 0.0)))
        ctx.step([Axis("e0", 1)], operands, [call], macs=1, suffix="mean")

    @staticmethod
    def _log_softmax(node: Node, ctx: Lowering, x: Tensor, log_prob: Tensor) -> None:
        y = Strided(log_prob, log_prob.strides)
        space = line_space(x.shape, (1,), Strided(x, x.strides), y)
        if space is None:
            x = ctx.dense(x)
            space = line_space(x.shape, (1,), Strided(x, x.strides), y)
        if space is None:
            raise ModelError(node.problem("the strides of its scores need too many loops", remedy="reduce their rank"))
        params = (Param("rank", space.rank), Param("log", 1))
        call = KernelCall(SOFTMAX, (0, 1), tuple(range(len(space.axes))), params)
        ctx.step(space.axes, space.operands, [call], in_place=space.in_place, macs=3 * node.value(0).elements, suffix="log_prob")

    def _each(self, node: Node, ctx: Lowering, log_prob: Tensor, loss: Tensor) -> None:
        operands = [
            positional(ctx, loss, Access.WRITE, (0, 1)),
            positional(ctx, ctx.input(1), Access.READ, (0, 1)),
            positional(ctx, log_prob, Access.READ, (0, None, 1)),
        ]
        if (weights := ctx.optional(2)) is not None:
            operands.append(Operand(weights, Access.READ, (whole(weights.shape[0], weights.strides[0]),)))
        ignores, ignored = self._ignored(node)
        fields = {**self._common(node), "lane": 0, "ignores": ignores, "count": 1.0, "ignored64": ignored}
        axes = [Axis("n", loss.shape[0]), Axis("d", math.prod(loss.shape[1:]))]
        call = KernelCall(NLL_EACH, tuple(range(len(operands))), (0, 1), tuple(Param(k, v) for k, v in fields.items()))
        ctx.step(axes, operands, [call], macs=loss.elements, suffix="loss")

    def kernels(self) -> Sequence[Kernel]:
        return (SOFTMAX, NLL_EACH, NLL_SUM, DIVIDE)


@register
class SoftmaxCrossEntropyLossGrad(_CrossEntropy):
    """dx = (exp(log_prob) - onehot(labels)) * dy * weights[labels], for a mean divided by the number of labels (or sum of their weights).

    Three and four inputs are onnxruntime's form: dy, log_prob, labels, weights. With two inputs, log_prob and labels, dy is understood.
    Two kinds of files have that form: where log_prob comes from a SoftmaxCrossEntropyLoss that also gives the loss, dy is 1 and dx is
    divided by the number N of labels. Where the forward node gives log_prob alone, or is not in the graph, the file is one of the Deeploy
    format, which takes dy for 1/N already: divided by N^2. Both are the same for one label.

    Internal form: inputs log_prob, labels, dy or absent, weights or absent; attribute `squared`.
    """

    names = (GRADIENT,)
    domains = ("", "com.microsoft")
    weights_slot = 3

    def normalise(self, node: gs.Node, opset: int) -> None:
        node.attrs["axis"] = 1
        if len(node.inputs) > 4:
            raise ModelError(Problem("it has more than four inputs", node=node.name, operator=node.op))
        if len(node.inputs) >= 3:
            gradient, log_prob, labels, *weights = node.inputs
            node.inputs = [log_prob, labels, gradient, *weights]
            return
        forward = node.inputs[0].inputs[0] if node.inputs[0].inputs else None
        loss_given = forward is not None and forward.op == LOSS and len([t for t in forward.outputs if t.name]) > 1
        node.attrs["squared"] = int(not loss_given)

    def problems(self, node: Node) -> list[Problem]:
        found = super().problems(node)
        given, labels, reduction = node.optional(2), node.value(1), self._reduction(node)
        if given is None and reduction != "mean" and not (reduction == "sum" and not node.int("squared", 0)):
            remedy = "give it the gradient of the loss (inputs dy, log_prob, labels)"
            found.append(node.problem("it has no gradient of the loss, and the loss is no mean", remedy=remedy, attribute="reduction"))
        if given is not None and (given.shape != labels.shape if reduction == "none" else given.elements != 1):
            found.append(node.problem(f"a gradient of shape {list(given.shape)} for a loss with reduction '{reduction}'"))
        return found

    def infer(self, node: Node) -> list[Value]:
        return [Value(node.value(0).shape, FLOAT32)]

    def _count(self, node: Node) -> int:
        """What the gradient is divided by, as far as it is known."""
        if self._reduction(node) != "mean":
            return 1
        labels = node.value(1).elements
        return (1 if self._counts_weights(node) else labels) * (labels if node.int("squared", 0) else 1)

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        log_prob, labels = np.asarray(inputs[0], np.float64), np.asarray(inputs[1]).astype(np.int64)
        given, weights = (inputs[slot] if len(inputs) > slot else None for slot in (2, 3))
        safe, weight = self._label_weights(node, labels, weights)
        onehot = np.zeros(log_prob.shape)
        np.put_along_axis(onehot, safe[:, None], 1.0, 1)
        factor = weight if given is None else weight * np.asarray(given, np.float64).reshape(labels.shape if given.size > 1 else ())
        with np.errstate(all="ignore"):
            if self._counts_weights(node):
                factor = factor / weight.sum()
            dx = np.where(weight[:, None] == 0.0, 0.0, (np.exp(log_prob) - onehot) * factor[:, None] / self._count(node))
        return [dx.astype(np.float32)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        labels = node.value(1).elements
        if ctx.optional(2) is None and labels > 1:
            squared = bool(node.int("squared", 0))
            divisor, reason = (f"{labels}^2", "gives no loss") if squared else (f"{labels}", "gives the loss, too")
            ctx.note(f"it has no gradient of the loss: divided by {divisor} for {labels} labels, as the forward node {reason}")
        log_prob, dx = ctx.input(0), ctx.output(0)
        total = None
        if self._counts_weights(node):
            total = ctx.temporary("total", (), FLOAT32)
            self._sum_step(node, ctx, total, 1, log_prob, 1)
        one = (DimMap(1, 0),)
        operands = [
            positional(ctx, log_prob, Access.READ, (0, 1, 2)),
            positional(ctx, ctx.input(1), Access.READ, (0, 2)),
            positional(ctx, dx, Access.WRITE, (0, 1, 2)),
        ]
        given, weights = ctx.optional(2), ctx.optional(3)
        if given is not None:
            single = Operand(given, Access.READ, one * 2)
            operands.append(single if given.elements == 1 else positional(ctx, given, Access.READ, (0, 2)))
        if weights is not None:
            operands.append(Operand(weights, Access.READ, (whole(weights.shape[0], weights.strides[0]),)))
        if total is not None:
            operands.append(Operand(total, Access.READ, one))
        ignores, ignored = self._ignored(node)
        flags = {"ignores": ignores, "scaled": int(given is not None), "totalled": int(total is not None)}
        fields = {**self._common(node), **flags, "count": float(self._count(node)), "ignored64": ignored}
        call = KernelCall(CROSS_ENTROPY_GRAD, tuple(range(len(operands))), (0, 1, 2), tuple(Param(k, v) for k, v in fields.items()))
        x = node.value(0)
        axes = [Axis("n", x.shape[0]), Axis("c", x.shape[1]), Axis("d", math.prod(x.shape[2:]))]
        in_place = ((2, 0),) if operands[0].dims == operands[2].dims else ()
        ctx.step(axes, operands, [call], in_place=in_place, macs=x.elements)

    def kernels(self) -> Sequence[Kernel]:
        return (NLL_SUM, CROSS_ENTROPY_GRAD)


class _SquaredError(Operator):
    """Inputs: prediction, target, of one shape; the loss is the mean over all elements."""

    domains = None

    def problems(self, node: Node) -> list[Problem]:
        found, a, b = float_problems(node), node.value(0), node.value(1)
        if a.shape != b.shape or a.elements == 0:
            found.append(node.problem(f"shapes {list(a.shape)} and {list(b.shape)}", "prediction and target of one shape are needed"))
        if any(value is not None for value in node.inputs[2:]):
            found.append(node.problem("it has more than two inputs", "the gradient of the loss is understood to be 1"))
        if node.string("reduction", "mean") != "mean":
            found.append(node.problem("only the mean is supported", attribute="reduction"))
        return found


@register
class MSELoss(_SquaredError):
    """mean((prediction - target)^2), a scalar: one chain over all elements."""

    names = ("MSELoss",)

    def infer(self, node: Node) -> list[Value]:
        return [Value((), FLOAT32)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        a, b = (np.asarray(x, np.float64) for x in inputs[:2])
        return [np.asarray(((a - b) ** 2).mean(), np.float32)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        a, b = ctx.input(0), ctx.input(1)
        sizes, steps = join_axes(a.shape, [a.strides, b.strides])
        if len(sizes) > 1:
            a, b = ctx.dense(a), ctx.dense(b)
            sizes, steps = join_axes(a.shape, [a.strides, b.strides])
        assert len(sizes) <= 1, node.name
        operands = [Operand(ctx.output(0), Access.WRITE, (DimMap(1, 0),))]
        for tensor, step in zip((a, b), steps, strict=True):
            moves = bool(step and step[0])
            operands.append(Operand(tensor, Access.READ, (DimMap(sizes[0], step[0], ((0, 1),)) if moves else DimMap(1, 0),)))
        params = (Param("rank", 0), Param("count", float(node.value(0).elements)))
        call = KernelCall(MSE, (0, 1, 2), (0,), params)
        ctx.step(reduced_axes(sizes or [1], False), operands, [call], accumulator=FLOAT32, macs=2 * node.value(0).elements)

    def kernels(self) -> Sequence[Kernel]:
        return (MSE,)


@register
class MSELossGrad(_SquaredError):
    """The gradient for the prediction: 2 * (prediction - target) / elements."""

    names = ("MSELossGrad",)

    def infer(self, node: Node) -> list[Value]:
        return [Value(node.value(0).shape, FLOAT32)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        a, b = (np.asarray(x, np.float64) for x in inputs[:2])
        return [(2.0 * (a - b) / a.size).astype(np.float32)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        inputs = [ctx.input(0), ctx.input(1)]
        axes, operands = elementwise_space(inputs, ctx.output(0))
        params = (Param("rank", len(axes)), Param("count", float(node.value(0).elements)))
        call = KernelCall(MSE_GRAD, (0, 1, 2), tuple(range(len(axes))), params)
        ctx.step(axes, operands, [call], macs=2 * node.value(0).elements)

    def kernels(self) -> Sequence[Kernel]:
        return (MSE_GRAD,)
