"""File or folder -> Model: everything the later rooms rely on is decided here, and everything wrong is said at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from onnx import TensorProto

from Deeploy.errors import ModelError, Problem
from Deeploy.frontend.dims import fix_dims
from Deeploy.frontend.fixtures import INPUTS, entries
from Deeploy.frontend.model import Model, walk
from Deeploy.frontend.outputs import note_outputs
from Deeploy.frontend.schemas import check_nodes
from Deeploy.frontend.source import Source, model_file, read
from Deeploy.frontend.state import make_state, updated_roots
from Deeploy.frontend.storage import input_dtypes, is_integer_format, output_problems, source_readers, store_constants
from Deeploy.operators import base, load_all
from Deeploy.operators.base import Operator, Value
from Deeploy.program.dtypes import ONNX_TYPES, DType

LISTED = 8
"""Inputs of one origin up to which each has a note of its own."""
_NO_TYPES: Mapping[str, DType] = {}
_NO_DIMS: Mapping[str, int] = {}


def load(path: str | Path, *, input_types: Mapping[str, DType] = _NO_TYPES, dims: Mapping[str, int] = _NO_DIMS) -> Model:
    """Loads an .onnx file, or a folder with network.onnx and, if there, inputs.npz.

    input_types: storage type by input name. dims: size by dimension name, or by INPUT:AXIS.

    Raises UsageError (files or options are wrong) or ModelError (the model is not valid or not supported; with all problems).
    """
    load_all()
    file, folder = model_file(path)
    source = read(file)
    graph = source.graph
    problems = list(source.problems)
    problems += _unknown_operators(graph)
    reason = is_integer_format(graph, source.inputs, input_types)
    updated, more = updated_roots(graph)
    problems += more
    stored = _stored_inputs(folder, source, updated)
    readers = source_readers(graph, bool(reason))
    problems += _set_inputs(source, stored, input_types, dims, bool(reason))
    problems += output_problems(source.outputs, bool(reason))
    found, notes = check_nodes(graph, source.opset)
    problems += found
    source.notes += notes
    for node in graph.nodes:
        operator = base.find(node.op, node.domain or "")
        _declare_outputs(node, source)
        if operator is not None:
            problems += _normalise(node, operator, source.opset)
    _name_new_constants(source)
    origins: dict[str, str] = {}
    if reason:
        source.notes.append(f"the network is in the integer format: {reason}")
        origins, more = store_constants(graph, source.names)
        problems += more
    model = Model(
        name=(folder or file.with_suffix("")).resolve().name,
        graph=graph,
        integers=bool(reason),
        readers=readers,
        opset=source.opset,
        sha256=source.sha256,
        notes=source.notes,
        input_names=[d.name for d in source.inputs],
        output_names=[d.name for d in source.outputs],
        overridable=source.overridable | {name for name, origin in origins.items() if origin in source.overridable},
        source_of=origins,
    )
    model.state, model.updated = make_state(graph, updated), updated
    givens = [*graph.inputs, *(s.variable for s in model.state)]
    if all(tensor.shape is not None for tensor in givens):
        problems += walk(model, lambda node, operator: _static_inputs(model, node, operator), _fallback(source, bool(reason)))
    else:
        graph_inputs = {t.name for t in givens if t.shape is None}
        assert problems, graph_inputs
    if problems:
        raise ModelError(*dict.fromkeys(problems))
    _forget_parameters(model)
    note_outputs(model, source)
    return model


def _forget_parameters(model: Model) -> None:
    """Drops the values of tensors that are attributes now and that no node reads any more."""
    present = {t.name for t in (*model.graph.inputs, *model.graph.outputs, *(s.variable for s in model.state))}
    present.update(t.name for node in model.graph.nodes for t in (*node.inputs, *node.outputs))
    model.values = {name: value for name, value in model.values.items() if name in present}


def _declare_outputs(node: gs.Node, source: Source) -> None:
    """Lets the node's outputs say the shapes that the file declares: those of some gradients cannot be told from their inputs."""
    for tensor in node.outputs:
        declared = source.declared.get(tensor.name)
        if declared is not None and declared.dims is not None and tensor.shape is None:
            tensor.shape = list(declared.dims)


def _normalise(node: gs.Node, operator: Operator, opset: int) -> list[Problem]:
    """Brings the node to the internal form; what the declaration cannot digest is a problem of the node."""
    try:
        operator.normalise(node, opset)
    except ModelError as error:
        return list(error.problems)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        return [Problem("the node is malformed", why=f"{type(error).__name__}: {error}", node=node.name, operator=node.op)]
    return []


def _unknown_operators(graph: gs.Graph) -> list[Problem]:
    """One problem per unknown operator type, with the nodes that have it."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for node in graph.nodes:
        if base.find(node.op, node.domain or "") is None:
            nodes.setdefault((node.domain or "", node.op), []).append(node.name)
    problems = []
    for (domain, op), names in nodes.items():
        count = "" if len(names) == 1 else f" (and {len(names) - 1} more nodes)"
        what = f"operator {op}{f' of domain {domain}' if domain else ''} is not supported{count}"
        problems.append(Problem(what, remedy="'deeploy ops' lists the operators that are", node=names[0], operator=op))
    return problems


def _stored_inputs(folder: Path | None, source: Source, state: list[str]) -> list[np.ndarray | None]:
    if folder is None or not (folder / INPUTS).is_file():
        return [None] * len(source.inputs)
    return entries(folder / INPUTS, [d.name for d in source.inputs], missing_ok=True, state=state)


def _set_inputs(
    source: Source, stored: list[np.ndarray | None], input_types: Mapping[str, DType], dims: Mapping[str, int], integers: bool
) -> list[Problem]:
    """Gives the graph's inputs their shape and storage type, and notes them."""
    types, problems = input_dtypes(source.graph, source.inputs, input_types, stored, integers)
    shapes, more, notes = fix_dims(source.inputs, dims, [None if a is None else a.shape for a in stored])
    source.notes.extend(notes)
    said: dict[str, list[str]] = {}
    for tensor, (dtype, origin), shape in zip(source.graph.inputs, types, shapes, strict=True):
        tensor.dtype = dtype.numpy
        if shape is not None:
            tensor.shape = list(shape)
            said.setdefault(origin, []).append(f"'{tensor.name}': {dtype} {list(shape)}")
    for origin, inputs in said.items():
        shown = inputs if len(inputs) <= LISTED else inputs[: LISTED // 2]
        source.notes += [f"input {one}, {origin}" for one in shown]
        if len(shown) < len(inputs):
            source.notes.append(f"and {len(inputs) - len(shown)} more inputs {origin}")
    return problems + more


def _name_new_constants(source: Source) -> None:
    """Normalising may add constants; their names become unique, too."""
    owners: dict[str, gs.Tensor] = {t.name: t for t in source.graph.inputs}
    for node in source.graph.nodes:
        for tensor in (*node.inputs, *node.outputs):
            if tensor.name and owners.setdefault(tensor.name, tensor) is not tensor:
                tensor.name = source.names.fresh(tensor.name)
                owners[tensor.name] = tensor
            elif tensor.name:
                source.names.used.add(tensor.name)


def _static_inputs(model: Model, node: gs.Node, operator: Operator) -> list[Problem]:
    """Moves the inputs that must be known at compile time to attributes."""
    problems = []
    for slot, attribute in operator.static_inputs:
        if slot >= len(node.inputs) or not node.inputs[slot].name:
            continue
        value = model.values.get(node.inputs[slot].name)
        if value is None:
            continue  # what it depends on has a problem of its own
        if value.constant is None:
            problems.append(
                Problem(
                    f"input {slot} ('{node.inputs[slot].name}') must be a constant, but it is computed or given at run time",
                    why="it decides sizes and addresses in the generated code",
                    remedy="make it a constant of the model (an initializer, or computed from shapes)",
                    node=node.name,
                    operator=node.op,
                    attribute=attribute,
                )
            )
            continue
        node.attrs[attribute] = _attribute_value(value.constant)
        node.inputs[slot] = gs.Variable.empty()
    while node.inputs and not node.inputs[-1].name:
        node.inputs.pop()
    return problems


def _attribute_value(array: np.ndarray) -> Any:
    return array.tolist() if array.ndim <= 1 else array


def _fallback(source: Source, integers: bool) -> Callable[[gs.Variable], Value | None]:
    """What the file declares of a tensor that could not be inferred, for checking the nodes behind it."""

    def declared_value(tensor: gs.Variable) -> Value | None:
        declared = source.declared.get(tensor.name)
        if declared is None or declared.dims is None or declared.elem_type not in ONNX_TYPES:
            return None
        if integers and declared.elem_type == TensorProto.FLOAT or not all(isinstance(d, int) for d in declared.dims):
            return None
        dtype = ONNX_TYPES[declared.elem_type]
        shape = tuple(int(d) for d in declared.dims if isinstance(d, int))
        return Value(shape, dtype) if dtype.is_float else Value(shape, dtype, dtype.lo, dtype.hi)

    return declared_value
