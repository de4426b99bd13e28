"""Gives every (node, slot) that reads a constant a constant of its own.

A constant that operators with different tiles read has no single feasible geometry, so each reader needs its own descriptor. Only the
descriptor is duplicated: the copies share the array, and `sharing` later finds which bytes are equal. A view of a constant (Transpose,
Slice, Reshape, ...) is one reader, whoever reads the view.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_graphsurgeon as gs

from Deeploy.frontend.model import Model
from Deeploy.passes.edit import forget_unused


def _duplicateConstants(model: Model) -> None:  # the name by which users of this flow know it
    """The pass. `model.source_of` says for every copy which initializer it comes from; copies of constants that a caller may override,
    or that were written out on purpose, are listed as such, too."""
    names = _Names(set(model.values) | {n.name for n in model.graph.nodes})
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
