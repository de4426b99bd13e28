"""What an operator declares, and the typed view of a graph node that declarations work on.

One operator is declared once, for all platforms, as a subclass of `Operator` registered with `@register`. Its methods see a `Node`:
attributes in the internal form, inputs and outputs as `Value`s (shape, storage type, proven range, constant).
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from Deeploy.errors import ModelError, Problem
from Deeploy.program.dtypes import DType

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from Deeploy.operators.lowering import Lowering
    from Deeploy.program.step import Kernel

LARGEST = 2**31 - 1
"""Bytes of the largest tensor, and its longest dimension: addresses have 32 bits, and sizes in generated code are int32."""

DOMAIN = "deeploy"
"""Domain of the operators that only our own passes make (merged forms)."""


@dataclass(frozen=True)
class Value:
    """What is known of a tensor at compile time.

    lo, hi:   proven range of an integer or boolean tensor; None for floats.
    constant: the array if it is known, else None.
    """

    shape: tuple[int, ...]
    dtype: DType
    lo: int | None = None
    hi: int | None = None
    constant: np.ndarray | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.size

    @staticmethod
    def integer(shape: Sequence[int], dtype: DType, lo: int, hi: int) -> Value:
        return Value(tuple(shape), dtype, lo, hi)

    @staticmethod
    def of(array: np.ndarray, dtype: DType) -> Value:
        """The value of a constant array."""
        lo = hi = None
        if not dtype.is_float:
            lo, hi = (int(array.min()), int(array.max())) if array.size else (0, 0)
        return Value(tuple(array.shape), dtype, lo, hi, array)

    def reshaped(self, shape: Sequence[int]) -> Value:
        constant = None if self.constant is None else self.constant.reshape(tuple(shape))
        return replace(self, shape=tuple(shape), constant=constant)


@dataclass(frozen=True)
class Node:
    """A graph node with the values around it.

    attributes: in the internal form (see `Operator.static_inputs`); use the accessors.
    inputs:     None for an absent optional input.
    outputs:    names of the outputs that exist ("" for an absent one).
    integers:   whether the network is in the integer format (floats declared, whole numbers meant).
    """

    name: str
    op: str
    domain: str
    attributes: Mapping[str, Any]
    inputs: tuple[Value | None, ...]
    outputs: tuple[str, ...]
    integers: bool = False

    def value(self, index: int) -> Value:
        """Input `index`, which must be there."""
        if index >= len(self.inputs) or (value := self.inputs[index]) is None:
            raise ModelError(self.problem(f"input {index} is missing"))
        return value

    def optional(self, index: int) -> Value | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def has(self, name: str) -> bool:
        return self.attributes.get(name) is not None

    def int(self, name: str, default: builtins.int | None = None) -> builtins.int:
        """An integer attribute; scalars and one-element lists or arrays of whole numbers are taken."""
        number = self.float(name, default)
        if not math.isfinite(number) or number != int(number):
            raise ModelError(self.problem(f"{number} is not a whole number", attribute=name))
        return int(number)

    def float(self, name: str, default: builtins.float | None = None) -> builtins.float:
        raw = self.attributes.get(name)
        if raw is None:
            if default is None:
                raise ModelError(self.problem("the attribute is missing", attribute=name))
            return default
        array = np.asarray(raw).reshape(-1)
        if array.size != 1:
            raise ModelError(self.problem(f"one number is needed, not {array.size}", attribute=name))
        number = array[0].item()
        if not isinstance(number, builtins.int | builtins.float):
            raise ModelError(self.problem(f"a number is needed, not {number!r}", attribute=name))
        return number

    def ints(self, name: str, default: Sequence[builtins.int] | None = None) -> tuple[builtins.int, ...]:
        raw = self.attributes.get(name)
        if raw is None:
            if default is None:
                raise ModelError(self.problem("the attribute is missing", attribute=name))
            return tuple(default)
        try:
            return tuple(int(v) for v in np.asarray(raw).reshape(-1))
        except (TypeError, ValueError, OverflowError):
            raise ModelError(self.problem(f"whole numbers are needed, not {raw!r}", attribute=name)) from None

    def string(self, name: str, default: str) -> str:
        raw = self.attributes.get(name, default)
        return raw.decode() if isinstance(raw, bytes) else str(raw)

    def problem(self, what: str, why: str = "", remedy: str = "", attribute: str = "") -> Problem:
        return Problem(what, why, remedy, node=self.name, operator=self.op, attribute=attribute)


def too_large(shape: Sequence[int], dtype: DType) -> str:
    """Why no tensor may have that shape and type; "" if one may."""
    size = math.prod(shape) * dtype.size
    if size > LARGEST:
        return f"has {size} bytes ({dtype} {list(shape)}), but a tensor can have at most {LARGEST}"
    if any(n > LARGEST for n in shape):
        return f"has the shape {list(shape)}, but a dimension can be at most {LARGEST}"
    return ""


def bounds(value: Value) -> tuple[int, int]:
    """The proven range of an integer or boolean value, or else its type's."""
    return (value.dtype.lo if value.lo is None else value.lo), (value.dtype.hi if value.hi is None else value.hi)


class View(Enum):
    """Whether the outputs of an operator are other views of its input 0: no bytes are made, and constants stay shared."""

    NONE = "they are bytes of their own"
    RESHAPED = "of a dense tensor a dense view; of any other a copy"
    KEPT = "a view of any tensor, dense where that is"
    STRIDED = "a view of any tensor, in general not dense"


class Exactness(IntEnum):
    """How far float results of a reference are the same bytes on every machine."""

    APPROXIMATE = 0  # from libm, or from sums whose order is open
    ROUNDED = 1  # every result is exactly rounded; only which NaN comes out is open
    COPIED = 2  # elements of the inputs or attributes, NaNs included


class Operator:
    """Base of all declarations. Stateless: one instance per operator name.

    names:         ONNX operator types it stands for; domains: "" is ai.onnx; the custom operators of Deeploy-format files come with any
                   of several domains, so `domains` None takes all.
    static_inputs: (slot, attribute) pairs: inputs that must be known at compile time and are moved to that attribute by the frontend
                   (shapes, axes, pads). They are not counted as readers of constants.
    """

    names: ClassVar[tuple[str, ...]] = ()
    domains: ClassVar[tuple[str, ...] | None] = None
    static_inputs: ClassVar[tuple[tuple[int, str], ...]] = ()
    integer_format: ClassVar[bool] = False
    """Whether its presence says that the network is in the integer format."""
    integer_slots: ClassVar[Mapping[int, DType]] = {}
    """Storage types that constants at these input slots have in the integer format (int32 for biases and requantisation tables; float32
    for a slot whose constant stays a float). Other constants get the smallest integer type that holds them."""

    # What passes ask. The defaults are safe: a pass leaves an operator alone that says nothing.
    view: ClassVar[View] = View.NONE
    exactness: ClassVar[Exactness] = Exactness.APPROXIMATE
    """A constant result may be evaluated at compile time if it is at least ROUNDED. Integer results always are exact."""
    shape_only: ClassVar[bool] = False
    """The result depends on nothing but the shape of input 0; known at compile time, so no kernel computes it."""
    elementwise: ClassVar[bool] = False
    """Each output element depends on one element of each input, broadcast numpy-style (see `operand_shape`) to the output."""
    keeps_axes: ClassVar[bool] = False
    """Output 0 has the shape of input 0 and its axes mean the same (so do those of element-wise operators)."""
    channel_axis: ClassVar[int | None] = None
    """Axis of output 0 that holds what the operator counts as channels (1 after convolutions) or columns (-1 after products)."""
    table_slots: ClassVar[tuple[int, ...]] = ()
    """Inputs that are requantisation tables in the shapes of Deeploy-format files, which `passes/requant_tables` brings to numpy's."""
    index_slots: ClassVar[tuple[int, ...]] = ()
    """Inputs that are indices along the axis `axis` (default 0) of input 0."""
    needed_outputs: ClassVar[int | None] = None
    """Outputs from that number on are optional: left out when nobody reads them, so that no kernel computes them. None: all are made."""
    writes_state: ClassVar[bool] = False
    """It has an effect beyond its outputs: needed even if nobody reads them."""
    updates: ClassVar[Mapping[int, int]] = {}
    """Output index -> input slot: the output is that input, updated in place (one shape, one type, one storage)."""

    reset_slot: ClassVar[int | None] = None
    """Input that says whether an accumulation in place begins anew."""

    def normalise(self, node: gs.Node, opset: int) -> None:
        """Rewrites the node of a model of that ai.onnx opset to the internal form, in place. Default: nothing to do."""

    def operand_shape(self, node: Node, slot: int) -> tuple[int, ...]:
        """The shape under which an input of an element-wise operator broadcasts numpy-style."""
        return node.value(slot).shape

    def problems(self, node: Node) -> list[Problem]:
        """Everything about the node that is not supported. Called before `infer`."""
        return []

    def infer(self, node: Node) -> list[Value]:
        """Shape, storage type and range of every output."""
        raise NotImplementedError

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        """The outputs for these inputs, in numpy: the oracle of the device and the evaluator of constant folding.

        Inputs come in their storage types; outputs must be in the types that `infer` says, integers exact. Float results are computed
        in float64 and rounded once, unless the operator's definition says otherwise.
        """
        raise NotImplementedError

    def lower(self, node: Node, ctx: Lowering) -> None:
        """Makes the steps of the node, or declares its outputs to be views."""
        raise NotImplementedError

    def kernels(self) -> Sequence[Kernel]:
        """All kernels it may use, for `deeploy ops`."""
        return ()


_REGISTRY: dict[str, list[Operator]] = {}


def register(cls: type[Operator]) -> type[Operator]:
    """Class decorator: makes the declaration known under its names."""
    instance = cls()
    for name in cls.names:
        _REGISTRY.setdefault(name, []).append(instance)
    return cls


def find(op: str, domain: str) -> Operator | None:
    """The declaration for an operator type of a domain ("ai.onnx" and "" are the same), or None."""
    domain = "" if domain in ("", "ai.onnx", None) else domain
    for operator in _REGISTRY.get(op, []):
        if operator.domains is None or domain in operator.domains:
            return operator
    return None


def all_operators() -> list[Operator]:
    """Every declaration once, by name."""
    seen: dict[int, Operator] = {}
    for name in sorted(_REGISTRY):
        for operator in _REGISTRY[name]:
            seen.setdefault(id(operator), operator)
    return list(seen.values())
