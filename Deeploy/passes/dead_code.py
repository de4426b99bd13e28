"""Removes what nobody needs: nodes without readers, unread constants, and nodes that only pass their input on.

The names of graph outputs survive: an Identity between a constant (or a graph input) and a graph output stays.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from Deeploy.frontend.model import Model
from Deeploy.passes.edit import Uses, attribute, bypass, declaration, forget_unused, input_of, is_op, remove_nodes, uses_of


def run(model: Model) -> None:
    """The pass."""
    _drop_copies(model)
    uses = uses_of(model.graph)
    remove_nodes(model.graph, {id(n) for n in model.graph.nodes} - _needed(model.graph, uses))
    uses = uses_of(model.graph)
    for node in model.graph.nodes:
        _drop_optional_outputs(node, uses)
    forget_unused(model)


def _drop_copies(model: Model) -> None:
    """Bypasses the nodes whose first output equals their first input."""
    uses = uses_of(model.graph)
    dropped: set[int] = set()
    for node in model.graph.nodes:
        if _copies(model, node, uses) and bypass(uses, node, node.inputs[0]):
            dropped.add(id(node))
    remove_nodes(model.graph, dropped)


def _copies(model: Model, node: gs.Node, uses: Uses) -> bool:
    if is_op(node, "Identity"):
        return True
    if is_op(node, "Cast", "CastLike"):
        before, after = model.values.get(node.inputs[0].name), model.values.get(node.outputs[0].name)
        return before is not None and after is not None and before.dtype == after.dtype
    if is_op(node, "Dropout"):
        masks = [t.name for t in node.outputs[1:]]
        return not _training(node) and not any(m in uses.readers or m in uses.outputs for m in masks if m)
    return False


def _training(node: gs.Node) -> bool:
    """Whether a Dropout drops anything, or might."""
    mode = input_of(node, 2)
    if mode is not None:
        return not isinstance(mode, gs.Constant) or bool(np.any(mode.values))
    return bool(attribute(node, "training_mode", 0))


def _needed(graph: gs.Graph, uses: Uses) -> set[int]:
    """`id`s of the nodes from which a graph output or a state is reached."""
    todo = [uses.producers[name] for name in sorted(uses.outputs) if name in uses.producers]
    todo += [n for n in graph.nodes if (operator := declaration(n)) is None or operator.writes_state]
    needed: set[int] = set()
    while todo:
        node = todo.pop()
        if id(node) in needed:
            continue
        needed.add(id(node))
        todo += [uses.producers[t.name] for t in node.inputs if t.name in uses.producers]
    return needed


def _drop_optional_outputs(node: gs.Node, uses: Uses) -> None:
    operator = declaration(node)
    first = None if operator is None else operator.needed_outputs
    if first is None:
        return
    while len(node.outputs) > first and not (node.outputs[-1].name in uses.readers or node.outputs[-1].name in uses.outputs):
        node.outputs.pop()
