"""Operators that only change how a tensor is seen: Reshape, Flatten, Squeeze, Unsqueeze, Transpose, Expand; Tile; and the operators about
shapes (Shape, Size, ConstantOfShape), whose results are known at compile time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from Deeploy.errors import ModelError, Problem
from Deeploy.operators.base import Exactness, Node, Operator, Value, View, register, too_large
from Deeploy.operators.broadcasting import broadcast_strides
from Deeploy.operators.copying import COPY_KERNELS
from Deeploy.operators.lowering import Lowering
from Deeploy.operators.softmax import checked_axis
from Deeploy.operators.views import join_axes, reshape, strided_operand
from Deeploy.program.dtypes import INT64, from_numpy, smallest_integer
from Deeploy.program.step import MAX_RANK, Access, Axis, Kernel, KernelCall, Param
from Deeploy.program.tensor import Tensor, VariableBuffer, dense_strides


def static_problem(node: Node, attribute: str) -> list[Problem]:
    """A problem if the attribute, which may come from a static input, is missing."""
    if node.has(attribute):
        return []
    what, why = f"its {attribute} are not known at compile time", "the generated code has fixed shapes"
    return [node.problem(what, why, "make that input a constant (fix dynamic dimensions with --dim)", attribute=attribute)]


class ShapeOperator(Operator):
    """An operator whose result has the values of its input at another shape. Subclasses say which, and may raise ModelError for it."""

    domains = ("",)
    needs: str = ""

    def shape(self, node: Node) -> tuple[int, ...]:
        raise NotImplementedError

    def problems(self, node: Node) -> list[Problem]:
        if self.needs and (missing := static_problem(node, self.needs)):
            return missing
        try:
            self.shape(node)
        except ModelError as error:
            return list(error.problems)
        return []

    def infer(self, node: Node) -> list[Value]:
        return [replace(node.value(0), shape=self.shape(node), constant=None)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        return [np.asarray(inputs[0]).reshape(self.shape(node))]

    def lower(self, node: Node, ctx: Lowering) -> None:
        reshape(ctx, 0, ctx.input(0), self.shape(node))


@register
class Reshape(ShapeOperator):
    names = ("Reshape",)
    static_inputs = ((1, "shape"),)
    needs = "shape"
    view = View.RESHAPED
    exactness = Exactness.COPIED

    def shape(self, node: Node) -> tuple[int, ...]:
        x, wanted = node.value(0), list(node.ints("shape"))
        if not node.int("allowzero", 0):
            for d, n in enumerate(wanted):
                if n == 0:
                    if d >= x.rank:
                        raise ModelError(node.problem(f"dimension {d} is 0 (copied), but the input has {x.rank}", attribute="shape"))
                    wanted[d] = x.shape[d]
        if any(n < -1 for n in wanted) or wanted.count(-1) > 1:
            raise ModelError(node.problem(f"{wanted} is no shape", attribute="shape"))
        if -1 in wanted:
            known = -math.prod(wanted)
            if known == 0:
                raise ModelError(node.problem(f"the unknown dimension of {wanted} cannot be found", attribute="shape"))
            wanted[wanted.index(-1)] = x.elements // known
        if math.prod(wanted) != x.elements:
            raise ModelError(node.problem(f"{list(x.shape)} does not reshape to {list(node.ints('shape'))}", attribute="shape"))
        return tuple(wanted)


@register
class Flatten(ShapeOperator):
    names = ("Flatten",)
    view = View.RESHAPED
    exactness = Exactness.COPIED

    def shape(self, node: Node) -> tuple[int, ...]:
        x, axis = node.value(0), node.int("axis", 1)
        if not -x.rank <= axis <= x.rank:
            raise ModelError(node.problem(f"axis {axis} does not exist", f"the input has {x.rank} dimensions", attribute="axis"))
        axis = axis + x.rank if axis < 0 else axis
        return math.prod(x.shape[:axis]), math.prod(x.shape[axis:])


@register
class Squeeze(ShapeOperator):
    """Without axes, all dimensions of length 1 go."""

    names = ("Squeeze",)
    static_inputs = ((1, "axes"),)
    view = View.KEPT
    exactness = Exactness.COPIED

    def shape(self, node: Node) -> tuple[int, ...]:
        x = node.value(0)
        if not node.has("axes"):
            return tuple(n for n in x.shape if n != 1)
        axes = {checked_axis(node, a, x.rank) for a in node.ints("axes")}
        for a in sorted(axes):
            if x.shape[a] != 1:
                raise ModelError(node.problem(f"dimension {a} has length {x.shape[a]}", "only length 1 can be removed", attribute="axes"))
        return tuple(n for d, n in enumerate(x.shape) if d not in axes)


@register
class Unsqueeze(ShapeOperator):
    """Axes count in the output's dimensions."""

    names = ("Unsqueeze",)
    static_inputs = ((1, "axes"),)
    needs = "axes"
    view = View.KEPT
    exactness = Exactness.COPIED

    def shape(self, node: Node) -> tuple[int, ...]:
        x, axes = node.value(0), node.ints("axes")
        rank = x.rank + len(axes)
        places = {a + rank if a < 0 else a for a in axes}
        if len(places) != len(axes) or any(not 0 <= a < rank for a in places):
            raise ModelError(node.problem(f"axes {list(axes)} do not exist once each in {rank} dimensions", attribute="axes"))
        kept = iter(x.shape)
        return tuple(1 if d in places else next(kept) for d in range(rank))


@register
class Transpose(Operator):
    """A view with permuted strides. Without `perm` the dimensions are reversed."""

    names = ("Transpose",)
    domains = ("",)
    view = View.STRIDED
    exactness = Exactness.COPIED

    def _perm(self, node: Node) -> tuple[int, ...]:
        rank = node.value(0).rank
        return node.ints("perm", tuple(range(rank))[::-1])

    def problems(self, node: Node) -> list[Problem]:
        perm, rank = self._perm(node), node.value(0).rank
        if sorted(perm) != list(range(rank)):
            return [node.problem(f"{list(perm)} is no permutation of {rank} dimensions", attribute="perm")]
        return []

    def infer(self, node: Node) -> list[Value]:
        x = node.value(0)
        return [replace(x, shape=tuple(x.shape[d] for d in self._perm(node)), constant=None)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        return [np.asarray(inputs[0]).transpose(self._perm(node))]

    def lower(self, node: Node, ctx: Lowering) -> None:
        x, perm = ctx.input(0), self._perm(node)
        ctx.view(0, x, [x.shape[d] for d in perm], [x.strides[d] for d in perm])


@register
class Expand(ShapeOperator):
    """A view whose broadcast dimensions have stride 0."""

    names = ("Expand",)
    static_inputs = ((1, "shape"),)
    needs = "shape"
    exactness = Exactness.COPIED

    def shape(self, node: Node) -> tuple[int, ...]:
        x, wanted = node.value(0), node.ints("shape")
        try:
            return tuple(int(n) for n in np.broadcast_shapes(x.shape, wanted))
        except ValueError:
            raise ModelError(node.problem(f"{list(x.shape)} does not broadcast with {list(wanted)}", attribute="shape")) from None

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        return [np.broadcast_to(np.asarray(inputs[0]), self.shape(node)).copy()]

    def lower(self, node: Node, ctx: Lowering) -> None:
        x, shape = ctx.input(0), self.shape(node)
        ctx.view(0, x, shape, broadcast_strides(x, shape))


@register
class Tile(ShapeOperator):
    """Repeats along the dimensions: a view if only dimensions of length 1 are repeated, else a copy."""

    names = ("Tile",)
    static_inputs = ((1, "repeats"),)
    needs = "repeats"
    exactness = Exactness.COPIED

    def shape(self, node: Node) -> tuple[int, ...]:
        x, repeats = node.value(0), node.ints("repeats")
        if len(repeats) != x.rank or any(r < 0 for r in repeats):
            raise ModelError(node.problem(f"repeats {list(repeats)} do not fit {x.rank} dimensions", attribute="repeats"))
        return tuple(n * r for n, r in zip(x.shape, repeats, strict=True))

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        return [np.tile(np.asarray(inputs[0]), node.ints("repeats"))]

    def lower(self, node: Node, ctx: Lowering) -> None:
        x, repeats, shape = ctx.input(0), node.ints("repeats"), self.shape(node)
        if all(n == 1 or r == 1 for n, r in zip(x.shape, repeats, strict=True)):
            ctx.view(0, x, shape, broadcast_strides(x, shape))
            return
        if not math.prod(shape):
            ctx.output(0)
            return
        if _tile_space(x, repeats) is None:
            # Too many loops for one step: the dimensions are repeated one after the other, the last ones first.
            for d in [d for d, r in enumerate(repeats) if r != 1][:0:-1]:
                alone = tuple(r if i == d else 1 for i, r in enumerate(repeats))
                target = ctx.temporary(f"repeated_{d}", tuple(n * r for n, r in zip(x.shape, alone, strict=True)), x.dtype)
                target.lo, target.hi = x.lo, x.hi
                x = self._repeat(node, ctx, x, alone, target, f"repeat_{d}")
            repeats = tuple(n // have for n, have in zip(shape, x.shape, strict=True))
        self._repeat(node, ctx, x, repeats, ctx.output(0), "")

    def _repeat(self, node: Node, ctx: Lowering, x: Tensor, repeats: Sequence[int], y: VariableBuffer, suffix: str) -> VariableBuffer:
        """The step that writes x, repeated, to y; x is made dense if its strides need too many loops."""
        space = _tile_space(x, repeats)
        if space is None:
            x = ctx.dense(x)
            space = _tile_space(x, repeats)
        if space is None:
            raise ModelError(node.problem(f"it needs more than {MAX_RANK} loops", remedy="reduce the rank of its input"))
        sizes, (read, written) = space
        axes = [Axis(f"e{i}", size) for i, size in enumerate(sizes)]
        operands = [strided_operand(x, Access.READ, sizes, read), strided_operand(y, Access.WRITE, sizes, written)]
        call = KernelCall(COPY_KERNELS[x.dtype.size], (0, 1), tuple(range(len(axes))), (Param("rank", len(axes)),))
        ctx.step(axes, operands, [call], macs=y.elements, suffix=suffix)
        return y

    def kernels(self) -> Sequence[Kernel]:
        return tuple(COPY_KERNELS.values())


def _tile_space(x: Tensor, repeats: Sequence[int]) -> tuple[list[int], list[list[int]]] | None:
    """Loop sizes, and the strides of x and of the dense result; every dimension is seen as (repetition, position). None: too many."""
    split = [size for pair in zip(repeats, x.shape, strict=True) for size in pair]
    read = [step for stride in x.strides for step in (0, stride)]
    sizes, strides = join_axes(split, [read, dense_strides(tuple(split))])
    return (sizes or [1], strides if sizes else [[0], [0]]) if len(sizes) <= MAX_RANK else None


class _Known(Operator):
    """An operator whose result does not depend on values: it is always folded."""

    domains = ("",)

    def result(self, node: Node) -> np.ndarray:
        raise NotImplementedError

    def infer(self, node: Node) -> list[Value]:
        return [Value.of(self.result(node), INT64)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        return [self.result(node)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        raise ModelError(node.problem("it was not folded", "its result is known at compile time"))


@register
class Shape(_Known):
    names = ("Shape",)
    shape_only = True

    def result(self, node: Node) -> np.ndarray:
        shape = node.value(0).shape
        return np.array(shape[slice(node.int("start", 0), node.int("end", len(shape)))], np.int64)


@register
class Size(_Known):
    names = ("Size",)
    shape_only = True

    def result(self, node: Node) -> np.ndarray:
        return np.array(node.value(0).elements, np.int64)


@register
class ConstantOfShape(_Known):
    """Attributes: value (one element; float32 zero if absent); shape, from the input."""

    names = ("ConstantOfShape",)
    static_inputs = ((0, "shape"),)
    exactness = Exactness.COPIED

    def problems(self, node: Node) -> list[Problem]:
        problems = static_problem(node, "shape")
        if not problems and any(n < 0 for n in node.ints("shape")):
            problems.append(node.problem(f"{list(node.ints('shape'))} is no shape", attribute="shape"))
        try:
            from_numpy(self._value(node).dtype)
        except KeyError:
            problems.append(node.problem(f"type {self._value(node).dtype} is not supported", attribute="value"))
        if not problems and (fact := too_large(node.ints("shape"), from_numpy(self._value(node).dtype))):
            problems.append(node.problem(f"its output {fact}"))
        return problems

    def _value(self, node: Node) -> np.ndarray:
        raw = node.attributes.get("value")
        raw = getattr(raw, "values", raw)
        value = np.zeros(1, np.float32) if raw is None else np.asarray(raw).reshape(-1)
        if node.integers and value.dtype.kind == "f" and value.size and np.isfinite(value[0]) and value[0] == int(value[0]):
            value = value.astype(smallest_integer(int(value[0]), int(value[0])).numpy)
        return value

    def result(self, node: Node) -> np.ndarray:
        return np.broadcast_to(self._value(node)[0], node.ints("shape"))

    def infer(self, node: Node) -> list[Value]:
        result = self.result(node)
        dtype = from_numpy(result.dtype)
        return [replace(Value.of(self._value(node)[:1], dtype), shape=result.shape, constant=result)]
