"""Which tensors of a graph are state: updated in place, or updated by another graph of the project, and kept from call to call.

State is an initializer (it brings its first value) or a graph input (the caller gives the first value, once). Its identity is its name, in
a graph and across the graphs of a project.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from Deeploy.errors import Problem
from Deeploy.frontend.order import readers_of, updates_of, with_views


@dataclass(frozen=True)
class State:
    """A state tensor. initial: its first value in storage type; None where the caller gives it (it is a graph input)."""

    variable: gs.Variable
    initial: np.ndarray | None


def updated_roots(graph: gs.Graph) -> tuple[list[str], list[Problem]]:
    """Names of the initializers and inputs that nodes update in place, in the order of the nodes; and what cannot be done so."""
    inputs = {id(t) for t in graph.inputs}
    roots: dict[int, gs.Tensor] = {}  # by id of an updated tensor: the initializer or input it lies on
    updated_by: dict[int, gs.Node] = {}
    names: dict[str, None] = {}
    problems = []
    for node in graph.nodes:
        for new, old in updates_of(node):
            root = roots.get(id(old), old)
            if not isinstance(root, gs.Constant) and id(root) not in inputs:
                problems.append(
                    Problem(
                        f"it updates '{old.name}' in place, which another node computes",
                        "only initializers, inputs of the graph and their updated values are kept from call to call",
                        "let it update an initializer or a graph input",
                        node=node.name,
                        operator=node.op,
                    )
                )
                continue
            other = updated_by.get(id(old))
            updated_by[id(old)] = node
            if other is not None:
                what = f"it and node '{other.name}' both update '{old.name}' in place"
                if other is node:
                    what = f"it updates '{old.name}' in place twice"
                remedy = "let one of them update the result of the other"
                problems.append(Problem(what, "their order is not said", remedy, node=node.name, operator=node.op))
                continue
            roots[id(new)] = root
            names.setdefault(root.name)
    return list(names), problems + _lost_outputs(graph, updated_by)


def _lost_outputs(graph: gs.Graph, updated_by: dict[int, gs.Node]) -> list[Problem]:
    """Graph outputs that would have to show a value which the same call overwrites."""
    readers = readers_of(graph)
    outputs = {id(t) for t in graph.outputs}
    problems = []
    for tensor in {id(t): t for node in graph.nodes for t in node.inputs if id(t) in updated_by}.values():
        node = updated_by[id(tensor)]
        for output in (t for t in with_views(tensor, readers) if id(t) in outputs):
            what = f"output '{output.name}' is the value of '{tensor.name}' before it is updated in place"
            remedy = "make the updated value the output"
            problems.append(Problem(what, "the update overwrites it", remedy, node=node.name, operator=node.op))
    return problems


def make_state(graph: gs.Graph, names: Collection[str]) -> list[State]:
    """Turns the initializers and inputs of those names into state, in place: variables that no node writes and that are no graph inputs.

    Names that the graph does not have are left out.
    """
    found: list[State] = []
    wanted = set(names)
    for tensor in [t for t in graph.inputs if t.name in wanted]:
        found.append(State(tensor, None))
    graph.inputs[:] = [t for t in graph.inputs if t.name not in wanted]
    variables: dict[str, gs.Variable] = {}
    for node in graph.nodes:
        for slot, tensor in enumerate(node.inputs):
            if isinstance(tensor, gs.Constant) and tensor.name in wanted:
                if tensor.name not in variables:
                    array = tensor.values
                    variables[tensor.name] = gs.Variable(tensor.name, array.dtype, list(array.shape))
                    found.append(State(variables[tensor.name], array))
                node.inputs[slot] = variables[tensor.name]
    return found
