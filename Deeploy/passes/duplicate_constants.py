"""Gives every (node, slot) that reads a constant a constant of its own.

A constant that operators with different tiles read has no single feasible geometry, so each reader needs its own descriptor. Only the
descriptor is duplicated: the copies share the array, and `sharing` later finds which bytes are equal. Views of constants (Transpose, Slice,
Reshape, ...) that several nodes read are duplicated in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_graphsurgeon as gs

from Deeploy.frontend.model import Model
from Deeploy.operators.base import View
from Deeploy.passes.edit import declaration, forget_unused, uses_of


def _duplicateConstants(model: Model) -> None:  # the name by which users of this flow know it
    """The pass. `model.source_of` says for every copy which initializer it comes from; copies of constants that a caller may override,
    or that were written out on purpose, are listed as such, too."""
    names = _Names(set(model.values) | {n.name for n in model.graph.nodes})
    _split_views(model, names)
    readers: dict[str, list[tuple[gs.Node, int]]] = {}
    for node in model.graph.nodes:
        for slot, tensor in enumerate(node.inputs):
            if isinstance(tensor, gs.Constant):
                readers.setdefault(tensor.name, []).append((node, slot))
    outputs = {t.name for t in model.graph.outputs}
    for name, places in readers.items():
        model.source_of.setdefault(name, name)
        if len(places) == 1 and name not in outputs:
            continue
        for node, slot in places:
            node.inputs[slot] = _copy(model, node.inputs[slot], names)
    forget_unused(model)
    for table in (model.overridable, model.expanded):
        table.intersection_update(model.values)


@dataclass
class _Names:
    """Names in use, and the next number of each that was copied."""

    used: set[str]
    numbers: dict[str, int] = field(default_factory=dict)

    def copy_of(self, name: str) -> str:
        """name__0, name__1, ...: the first that is free."""
        number = self.numbers.get(name, 0)
        while (fresh := f"{name}__{number}") in self.used:
            number += 1
        self.numbers[name] = number + 1
        self.used.add(fresh)
        return fresh


def _copy(model: Model, constant: gs.Constant, names: _Names) -> gs.Constant:
    """Another constant of the same array."""
    copy = gs.Constant(names.copy_of(constant.name), constant.values)
    model.values[copy.name] = model.values[constant.name]
    model.source_of[copy.name] = model.source_of.get(constant.name, constant.name)
    for table in (model.overridable, model.expanded):
        if constant.name in table:
            table.add(copy.name)
    return copy


def _split_views(model: Model, names: _Names) -> None:
    """Copies view nodes, last to first, so that each has one reader; a copy adds a reader to the view before it."""
    views = _views_of_constants(model)
    if not views:
        return
    readers = uses_of(model.graph).readers
    outputs = {t.name for t in model.graph.outputs}
    copies: dict[int, list[gs.Node]] = {}
    for node in reversed(views):
        tensor = node.outputs[0]
        places = readers.get(tensor.name, [])
        for reader, slot in places if tensor.name in outputs else places[1:]:
            output = gs.Variable(names.copy_of(tensor.name), tensor.dtype, tensor.shape)
            model.values[output.name] = model.values[tensor.name]
            copy = gs.Node(node.op, names.copy_of(node.name), dict(node.attrs), list(node.inputs), [output], node.domain)
            reader.inputs[slot] = output
            copies.setdefault(id(node), []).append(copy)
            for position, source in enumerate(copy.inputs):
                if source.name:
                    readers.setdefault(source.name, []).append((copy, position))
    if copies:
        model.graph.nodes[:] = [n for node in model.graph.nodes for n in (node, *copies.get(id(node), []))]


def _views_of_constants(model: Model) -> list[gs.Node]:
    """The nodes whose result is a view of a constant, in the order of the graph."""
    dense: dict[str, bool] = {}  # results that are views: whether they are row-major without gaps
    views = []
    for node in model.graph.nodes:
        operator = declaration(node)
        view = View.NONE if operator is None else operator.view
        if view is View.NONE or not node.inputs or len(node.outputs) != 1:
            continue
        source = node.inputs[0]
        source_dense = True if isinstance(source, gs.Constant) else dense.get(source.name)
        if source_dense is None or (view is View.RESHAPED and not source_dense):
            continue
        dense[node.outputs[0].name] = source_dense and view is not View.STRIDED
        views.append(node)
    return views
