"""The model: a graph in the internal form with everything that is known of its tensors, and the walk that finds it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import onnx_graphsurgeon as gs

from Deeploy.errors import DefectError, ModelError, Problem
from Deeploy.frontend.order import sort_nodes
from Deeploy.frontend.state import State
from Deeploy.operators import base
from Deeploy.operators.base import Node, Operator, Value, too_large
from Deeploy.program import dtypes

if TYPE_CHECKING:
    from Deeploy.program.program import Reader

SMALL = 64
"""Elements up to which a computation on constants is evaluated while shapes are inferred."""


@dataclass
class Model:
    """One network, in the internal form.

    graph:        nodes in topological order; tensor and node names are unique; dtypes are storage types; constants hold storage values.
    values:       by tensor name: shape, storage type, range, constant.
    integers:     whether the network is in the integer format.
    readers:      of the source graph, before any folding.
    opset:        the ai.onnx opset of the source.
    sha256:       of the file and the external data that was read.
    notes:        decisions worth telling the user.
    state:        what is kept from call to call (see frontend/state); no graph input and no constant.
    updated:      names of the state that this graph itself updates; other state is updated by other graphs of the project.
    input_names, output_names: the ONNX names in the order of the source: input_names with the inputs that have become state.
    overridable:  names of constants that the source also lists as inputs (a default that a caller could override).
    expanded:     names of constants that were written out at full size on purpose (--expand-constants).
    source_of:    by name of a constant that a pass made: the name of the initializer it comes from.
    """

    name: str
    graph: gs.Graph
    values: dict[str, Value] = field(default_factory=dict)
    integers: bool = False
    readers: list[Reader] = field(default_factory=list)
    opset: int = 0
    sha256: str = ""
    notes: list[str] = field(default_factory=list)
    state: list[State] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    input_names: list[str] = field(default_factory=list)
    output_names: list[str] = field(default_factory=list)
    overridable: set[str] = field(default_factory=set)
    expanded: set[str] = field(default_factory=set)
    source_of: dict[str, str] = field(default_factory=dict)


def node_view(model: Model, node: gs.Node) -> Node:
    """The node as operators see it. Raises KeyError if an input has no value yet."""
    inputs = tuple(model.values[tensor.name] if tensor.name else None for tensor in node.inputs)
    outputs = tuple(tensor.name for tensor in node.outputs)
    return Node(node.name, node.op, node.domain or "", node.attrs, inputs, outputs, model.integers)


def input_value(tensor: gs.Variable) -> Value:
    """What is known of a graph input: its whole type range."""
    dtype = dtypes.from_numpy(tensor.dtype)
    shape = tuple(int(n) for n in tensor.shape)
    return Value(shape, dtype) if dtype.is_float else Value(shape, dtype, dtype.lo, dtype.hi)


def constant_value(tensor: gs.Constant, known: Value | None = None) -> Value:
    """The value of a constant; `known` is reused if it is of the same array."""
    array = tensor.values
    if known is not None and known.constant is array:
        return known
    return Value.of(array, dtypes.from_numpy(array.dtype))


def infer(model: Model) -> None:
    """Sorts the graph and computes `model.values`, and dtype and shape of every variable.

    Raises ModelError with the problems of all nodes, DefectError if a pass left a graph that is not whole.
    """
    sort_nodes(model.graph)
    problems = walk(model)
    if problems:
        raise ModelError(*problems)
    for node in model.graph.nodes:
        for tensor in (*node.inputs, *node.outputs):
            if tensor.name and tensor.name not in model.values:
                raise DefectError(f"nothing is known of tensor '{tensor.name}' at node '{node.name}' ({node.op})")


def walk(
    model: Model,
    prepare: Callable[[gs.Node, Operator], list[Problem]] | None = None,
    fallback: Callable[[gs.Variable], Value | None] | None = None,
) -> list[Problem]:
    """`infer`, collecting problems.

    prepare:  called for every node before its view is made; may change the node's inputs and attributes. A node with problems is not
              inferred.
    fallback: what to assume of an output that cannot be inferred, so that the nodes behind it are checked, too.
    """
    known, model.values = model.values, {}
    problems: list[Problem] = []
    for tensor in [*model.graph.inputs, *(s.variable for s in model.state)]:
        given = input_value(tensor)
        if fact := too_large(given.shape, given.dtype):
            problems.append(Problem(f"input '{tensor.name}' {fact}"))
        else:
            model.values[tensor.name] = given
    for node in model.graph.nodes:
        for tensor in node.inputs:
            if isinstance(tensor, gs.Constant) and tensor.name not in model.values:
                fixed = constant_value(tensor, known.get(tensor.name))
                if fact := too_large(fixed.shape, fixed.dtype):
                    problems.append(Problem(f"constant '{tensor.name}' {fact}", node=node.name, operator=node.op))
                else:
                    model.values[tensor.name] = fixed
        found: list[Value] = []
        operator = base.find(node.op, node.domain or "")
        if operator is not None:
            refused = [] if prepare is None else prepare(node, operator)
            problems += refused
            if not refused and all(not t.name or t.name in model.values for t in node.inputs):
                found = _infer_node(model, node, operator, problems)
        for index, tensor in enumerate(node.outputs):
            value = found[index] if index < len(found) else None
            if value is None and fallback is not None:
                value = fallback(tensor)
                if value is not None and too_large(value.shape, value.dtype):
                    value = None
            if tensor.name and value is not None:
                model.values[tensor.name] = value
                tensor.dtype, tensor.shape = value.dtype.numpy, list(value.shape)
    for tensor in model.graph.outputs:
        if isinstance(tensor, gs.Constant) and tensor.name not in model.values:
            model.values[tensor.name] = constant_value(tensor, known.get(tensor.name))
    return problems


def _infer_node(model: Model, node: gs.Node, operator: Operator, problems: list[Problem]) -> list[Value]:
    """The values of the node's outputs; none if it has problems, which are appended."""
    view = node_view(model, node)
    try:
        refused = operator.problems(view)
        if refused:
            problems += refused
            return []
        values = operator.infer(view)
    except ModelError as error:
        problems += error.problems
        return []
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, MemoryError) as error:
        # A declaration that met a node it does not expect; the user must still learn which node it is.
        shapes = ", ".join("absent" if v is None else f"{v.dtype} {list(v.shape)}" for v in view.inputs)
        problems.append(view.problem(f"its inputs ({shapes}) and attributes do not go together", why=f"{type(error).__name__}: {error}"))
        return []
    if len(values) < len([t for t in node.outputs if t.name]):
        raise DefectError(f"the declaration of {node.op} infers {len(values)} outputs, node '{node.name}' has {len(node.outputs)}")
    large = [
        view.problem(f"its output '{tensor.name}' {fact}")
        for tensor, value in zip(node.outputs, values, strict=False)
        if tensor.name and (fact := too_large(value.shape, value.dtype))
    ]
    if large:
        problems += large
        return []
    return _folded(view, operator, values)


def _folded(view: Node, operator: Operator, values: list[Value]) -> list[Value]:
    """`values` with their constants, if the node is a small computation on integer constants (a shape computation)."""
    if any(v.elements > SMALL or v.dtype.is_float or v.constant is not None for v in values):
        return values
    arrays: list[np.ndarray | None] = []
    for value in view.inputs:
        if value is None:
            arrays.append(None)
        elif operator.shape_only:
            arrays.append(np.broadcast_to(np.zeros((), value.dtype.numpy), value.shape))
        elif value.constant is not None and value.elements <= SMALL:
            arrays.append(value.constant)
        else:
            return values
    if not arrays:
        return values
    try:
        with np.errstate(all="ignore"):
            results = operator.reference(view, arrays)
    except NotImplementedError:
        return values
    folded = []
    for value, result in zip(values, results, strict=False):
        array = np.ascontiguousarray(result, value.dtype.numpy).reshape(value.shape)
        array.flags.writeable = False
        constant = Value.of(array, value.dtype)
        folded.append(replace(value, constant=array, lo=constant.lo, hi=constant.hi))
    return folded + values[len(folded) :]
