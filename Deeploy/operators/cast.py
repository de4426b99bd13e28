"""Cast, Identity and Dropout at inference time: conversions and views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from Deeploy.errors import Problem
from Deeploy.operators.base import Exactness, Node, Operator, Value, View, bounds, register
from Deeploy.operators.elementwise import CAST_KERNEL, cast_params, lower_elementwise, to_float32, wrapped_value
from Deeploy.operators.lowering import Lowering
from Deeploy.program.dtypes import BOOL, FLOAT32, ONNX_OTHER_FLOATS, ONNX_TYPES, DType
from Deeploy.program.step import Kernel, Param

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

_OLD_NAMES = {"FLOAT": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7, "BOOL": 9, "DOUBLE": 11, "UINT32": 12}


@register
class Cast(Operator):
    """ONNX's conversions. float to integer truncates toward zero; values outside of the type, which ONNX leaves open, saturate.

    In the integer format a cast to a float type changes nothing: whole numbers keep their storage type.
    """

    names = ("Cast",)
    domains = ("",)
    exactness = Exactness.COPIED
    keeps_axes = True

    def normalise(self, node: gs.Node, opset: int) -> None:
        """`to` as a number: before opset 6 it was a name, and graphsurgeon may give a numpy type."""
        to = node.attrs.get("to")
        if isinstance(to, bytes | str):
            name = to.decode() if isinstance(to, bytes) else to
            node.attrs["to"] = _OLD_NAMES.get(name, to)
        elif isinstance(to, type | np.dtype):
            node.attrs["to"] = next((n for n, d in ONNX_TYPES.items() if d.numpy == np.dtype(to)), 11)

    def problems(self, node: Node) -> list[Problem]:
        if node.optional(0) is None:
            return [node.problem("input 0 is missing")]
        to = node.int("to")
        if to in ONNX_TYPES or node.integers and to in ONNX_OTHER_FLOATS:
            return []
        what = f"a cast to {ONNX_OTHER_FLOATS.get(to, f'type {to}')} is not supported"
        return [node.problem(what, remedy="use float32 or an integer type of at most 64 bits", attribute="to")]

    def target(self, node: Node) -> DType:
        to = node.int("to")
        if node.integers and (to == 1 or to in ONNX_OTHER_FLOATS):
            return node.value(0).dtype
        return ONNX_TYPES[to]

    def infer(self, node: Node) -> list[Value]:
        x, dtype = node.value(0), self.target(node)
        if dtype == FLOAT32:
            return [Value(x.shape, FLOAT32)]
        if x.dtype == FLOAT32 or dtype == BOOL:
            return [Value.integer(x.shape, dtype, dtype.lo, dtype.hi)]
        return [wrapped_value(x.shape, dtype, *bounds(x))]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x, dtype = np.asarray(inputs[0]), self.target(node)
        if dtype == BOOL:
            return [x != 0]
        if dtype == FLOAT32:
            return [to_float32(x)]
        if x.dtype.kind != "f":
            return [x.astype(dtype.numpy)]
        return [saturated(np.trunc(x.astype(np.float64)), dtype)]

    def lower(self, node: Node, ctx: Lowering) -> None:
        x, dtype = ctx.input(0), self.target(node)
        if x.dtype == dtype:
            ctx.view(0, x, x.shape, x.strides)
        else:
            lower_elementwise(ctx, CAST_KERNEL, [x], ctx.output(0), cast_params(x.dtype, dtype))

    def kernels(self) -> Sequence[Kernel]:
        return [CAST_KERNEL]


def saturated(whole: np.ndarray, dtype: DType) -> np.ndarray:
    """Whole numbers in float64 as integers of that type: limited to its range, 0 for not-a-number."""
    with np.errstate(all="ignore"):
        result = np.where(np.isnan(whole), 0.0, whole)
        below, above = result <= float(dtype.lo), result >= float(dtype.hi)
        inside = np.where(below | above, 0.0, result).astype(dtype.numpy)
    return np.where(below, dtype.numpy.type(dtype.lo), np.where(above, dtype.numpy.type(dtype.hi), inside)).astype(dtype.numpy)


@register
class Identity(Operator):
    names = ("Identity",)
    domains = ("",)
    view = View.KEPT
    exactness = Exactness.COPIED
    keeps_axes = True

    def problems(self, node: Node) -> list[Problem]:
        return [node.problem("input 0 is missing")] if node.optional(0) is None else []

    def infer(self, node: Node) -> list[Value]:
        return [node.value(0)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        return [np.asarray(inputs[0])]

    def lower(self, node: Node, ctx: Lowering) -> None:
        x = ctx.input(0)
        ctx.view(0, x, x.shape, x.strides)


_MASK_KERNEL = Kernel("dp_true_f32", "elementwise_float.c", "dp_elementwise_float_cst", cycles_per_point=3.0)


@register
class Dropout(Identity):
    """Inference only: the input itself; the mask, if it is wanted, is true everywhere. The ratio does not matter."""

    names = ("Dropout",)
    static_inputs = ((2, "training_mode"),)
    view = View.NONE  # the mask is none
    exactness = Exactness.APPROXIMATE  # never asked: without its mask it is bypassed
    needed_outputs = 1

    def normalise(self, node: gs.Node, opset: int) -> None:
        for name in ("consumed_inputs", "is_test"):
            node.attrs.pop(name, None)

    def problems(self, node: Node) -> list[Problem]:
        found = super().problems(node)
        if not found and self._has_mask(node) and node.value(0).dtype != FLOAT32:
            found.append(node.problem("a mask of integers is not supported", remedy="remove the reader of the mask"))
        if node.has("training_mode") and node.int("training_mode"):
            found.append(node.problem("training mode is not supported", remedy="export the model for inference", attribute="training_mode"))
        return found

    def _has_mask(self, node: Node) -> bool:
        return len(node.outputs) > 1 and node.outputs[1] != ""

    def infer(self, node: Node) -> list[Value]:
        mask = [Value.integer(node.value(0).shape, BOOL, 1, 1)] if len(node.outputs) > 1 else []
        return [node.value(0), *mask]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        x = np.asarray(inputs[0])
        return [x, np.ones(x.shape, np.bool_)][: max(1, len(node.outputs))]

    def lower(self, node: Node, ctx: Lowering) -> None:
        super().lower(node, ctx)
        if self._has_mask(node):
            lower_elementwise(ctx, _MASK_KERNEL, [ctx.input(0)], ctx.output(1), (Param("a", 0.0), Param("b", 0.0)), suffix="mask")

    def kernels(self) -> Sequence[Kernel]:
        return [_MASK_KERNEL]
