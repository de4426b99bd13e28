"""Storage types: which format the network is in, what its inputs are, and constants as the arrays that are really stored."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_graphsurgeon as gs
from onnx import TensorProto

from Deeploy.errors import Problem, UsageError
from Deeploy.frontend.names import NameSet
from Deeploy.frontend.source import Declared
from Deeploy.frontend.tensors import type_name
from Deeploy.operators import base
from Deeploy.operators.base import Operator
from Deeploy.program import dtypes
from Deeploy.program.dtypes import ONNX_OTHER_FLOATS, ONNX_TYPES, DType
from Deeploy.program.program import Reader

_NARROWED = frozenset((TensorProto.FLOAT, TensorProto.INT32, *ONNX_OTHER_FLOATS))
"""Element types that in the integer format say nothing about the storage."""


_QUANTISING = frozenset(("Quant", "QuantizeLinear", "Cast"))
"""Operators that make whole numbers of floats."""


def is_integer_format(graph: gs.Graph, inputs: Sequence[Declared], input_types: Mapping[str, DType]) -> str:
    """Why the network is in the integer format (floats declared, whole numbers meant); "" if it is not.

    An integer operator decides it, or an integer type asked for an input that is declared as a float.
    """
    for node in graph.nodes:
        operator = base.find(node.op, node.domain or "")
        if operator is not None and operator.integer_format:
            return f"it has {node.op} nodes"
    for declared in inputs:
        wanted = input_types.get(declared.name)
        if wanted is not None and wanted.is_integer and declared.elem_type in (TensorProto.FLOAT, *ONNX_OTHER_FLOATS):
            return f"input '{declared.name}' is {wanted}"
    return ""


def input_dtypes(
    graph: gs.Graph,
    inputs: Sequence[Declared],
    input_types: Mapping[str, DType],
    stored: Sequence[np.ndarray | None],
    integers: bool,
) -> tuple[list[tuple[DType, str]], list[Problem]]:
    """Per input its storage type and where it comes from, and the problems. Raises UsageError for wrong `input_types`."""
    names = [declared.name for declared in inputs]
    for name in input_types:
        if name not in names:
            listed = ", ".join(f"'{n}'" for n in names)
            raise UsageError(Problem(f"--input-type {name}: the model has no such input", why=f"its inputs are {listed}"))
    result: list[tuple[DType, str]] = []
    problems: list[Problem] = []
    for declared, array in zip(inputs, stored, strict=True):
        declared_type = ONNX_TYPES.get(declared.elem_type)
        wanted = input_types.get(declared.name)
        if wanted is not None:
            _check_wanted(declared, declared_type, wanted)
            result.append((wanted, "from --input-type"))
        elif integers and declared.elem_type in _NARROWED:
            result.append(_narrowest(declared, array, any(node.op in _QUANTISING for node in graph.nodes)))
        elif declared_type is not None:
            result.append((declared_type, "as declared"))
        else:
            if declared.elem_type != TensorProto.UNDEFINED:
                problems.append(_unsupported_type("input", declared))
            result.append((dtypes.FLOAT32, "assumed"))
    return result, problems


def output_problems(outputs: Sequence[Declared], integers: bool) -> list[Problem]:
    """Outputs whose declared type nothing can produce."""
    undecided = _NARROWED if integers else frozenset()
    known = {TensorProto.UNDEFINED, *ONNX_TYPES, *undecided}
    return [_unsupported_type("output", declared) for declared in outputs if declared.elem_type not in known]


def _unsupported_type(kind: str, declared: Declared) -> Problem:
    remedy = "convert the model to float32" if declared.elem_type in ONNX_OTHER_FLOATS else ""
    return Problem(
        f"{kind} '{declared.name}' has element type {type_name(declared.elem_type)}", why="no kernel computes with it", remedy=remedy
    )


def _check_wanted(declared: Declared, declared_type: DType | None, wanted: DType) -> None:
    if declared_type is None:
        return
    if wanted.is_float and not declared_type.is_float or (wanted is dtypes.BOOL) != (declared_type is dtypes.BOOL):
        raise UsageError(Problem(f"--input-type {declared.name}={wanted}: the model declares {declared_type} for this input"))


def _narrowest(declared: Declared, array: np.ndarray | None, quantises: bool) -> tuple[DType, str]:
    """The type of an input of an integer network; only one that quantises by itself may have fractions at an input."""
    if array is None:
        if declared.elem_type == TensorProto.INT32:
            return dtypes.INT32, "as declared"
        return dtypes.INT8, "assumed: no stored inputs"
    if array.size == 0:
        return dtypes.INT8, "assumed: the stored input is empty"
    whole = whole_numbers(array) if array.dtype.kind in "iubf" else None
    if whole is None and (array.dtype.kind != "f" or not quantises):
        what = f"the stored input '{declared.name}' ({array.dtype}) is not made of whole numbers"
        raise UsageError(Problem(what, "the network is in the integer format", "store the quantised input, or give --input-type"))
    if whole is None:
        return dtypes.FLOAT32, "from the stored inputs, which are not whole numbers"
    return dtypes.smallest_integer(int(whole.min()), int(whole.max())), "from the stored inputs"


def whole_numbers(array: np.ndarray) -> np.ndarray | None:
    """The array in an integer type, or None if it has something else than whole numbers of at most 64 bits."""
    if array.dtype.kind in "iu":
        return array
    if array.dtype.kind == "b":
        return array.astype(np.int8)
    if array.dtype.kind != "f":
        return None
    wide = np.asarray(array, np.float64)
    if wide.size and not (np.isfinite(wide).all() and (np.abs(wide) < 2.0**63).all()):
        return None
    whole = wide.astype(np.int64)
    return whole if np.array_equal(whole, wide) else None


def stored_array(operator: Operator | None, slot: int, array: np.ndarray, integers: bool) -> np.ndarray:
    """The array as it is stored for this reader. Raises ValueError (the fact and the reason) if it cannot be."""
    if not integers or operator is None:
        return array
    required = operator.integer_slots.get(slot)
    narrowed = array.dtype.kind == "f" or (array.dtype == np.int32 and array.ndim > 0)
    if (required is None and not narrowed) or (required is not None and required.is_float) or array.dtype == np.bool_:
        return array
    whole = whole_numbers(array)
    if whole is None:
        raise ValueError("is not made of whole numbers, which an integer network needs")
    lo, hi = (int(whole.min()), int(whole.max())) if whole.size else (0, 0)
    dtype = required if required is not None else dtypes.smallest_integer(lo, hi)
    if lo < dtype.lo or hi > dtype.hi:
        raise ValueError(f"has values from {lo} to {hi}, which do not fit {dtype}")
    if dtype.numpy == array.dtype:
        return array
    result = whole.astype(dtype.numpy)
    result.flags.writeable = False
    return result


def is_static(operator: Operator | None, slot: int, array: np.ndarray) -> bool:
    """Whether the slot takes a parameter of the operator (a shape, axes) and not a value that it computes with."""
    return operator is not None and array.dtype.kind in "iu" and any(slot == s for s, _ in operator.static_inputs)


def source_readers(graph: gs.Graph, integers: bool) -> list[Reader]:
    """Every (node, slot) that reads a constant, at the storage type; parameters are not counted. Values that cannot be stored are left out
    (`store_constants` reports them)."""
    readers = []
    digests: dict[tuple[str, str], str] = {}
    for node in graph.nodes:
        operator = base.find(node.op, node.domain or "")
        for slot, tensor in enumerate(node.inputs):
            if not isinstance(tensor, gs.Constant) or is_static(operator, slot, tensor.values):
                continue
            try:
                array = stored_array(operator, slot, tensor.values, integers)
            except ValueError:
                continue
            key = (tensor.name, array.dtype.name)
            if key not in digests:
                digests[key] = hashlib.sha256(array.tobytes()).hexdigest()
            readers.append(Reader(node.name, slot, tensor.name, array.nbytes, digests[key]))
    return readers


def store_constants(graph: gs.Graph, names: NameSet) -> tuple[dict[str, str], list[Problem]]:
    """Gives every constant of an integer network the storage type that its readers need: one tensor per type.

    Returns the source's name by name of each tensor that was added, and the problems.
    """
    problems = []
    variants: dict[tuple[str, str], gs.Constant] = {}
    kept: set[str] = set()
    for node in graph.nodes:
        operator = base.find(node.op, node.domain or "")
        static = () if operator is None else tuple(s for s, _ in operator.static_inputs)
        for slot, tensor in enumerate(node.inputs):
            if not isinstance(tensor, gs.Constant):
                continue
            if slot in static:
                kept.add(tensor.name)
                continue
            try:
                array = stored_array(operator, slot, tensor.values, integers=True)
            except ValueError as error:
                remedy = "" if operator is None or slot in operator.integer_slots else "quantise the constant"
                what = f"constant '{tensor.name}' at input {slot} {error}"
                problems.append(Problem(what, remedy=remedy, node=node.name, operator=node.op))
                continue
            if array is tensor.values:
                kept.add(tensor.name)
                continue
            key = (tensor.name, array.dtype.name)
            if key not in variants:
                variants[key] = gs.Constant(names.fresh(f"{tensor.name}_{array.dtype.name}"), array)
            node.inputs[slot] = variants[key]
    return _restore_names(variants, kept), problems


def _restore_names(variants: dict[tuple[str, str], gs.Constant], kept: set[str]) -> dict[str, str]:
    """The first variant takes the source's name where no reader kept the source's tensor; the others' names are returned."""
    origins: dict[str, str] = {}
    for (source, _), constant in variants.items():
        if source not in kept:
            kept.add(source)
            constant.name = source
        else:
            origins[constant.name] = source
    return origins
