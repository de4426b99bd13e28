"""Edits of a graph that every pass needs: who makes and who reads a tensor, replacing tensors, bypassing and removing nodes.

All edits keep the links of graphsurgeon consistent, keep `model.values` true for the tensors that remain, and never lose the name
of a graph output.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np
import onnx_graphsurgeon as gs

from Deeploy.frontend.model import Model
from Deeploy.operators.base import Operator, Value, find
from Deeploy.program import dtypes


@dataclass
class Uses:
    """Producers and readers of the tensors of a graph, by name, at one moment.

    producers: the node that writes it.
    readers:   every (node, slot) that reads it, in the order of the nodes.
    outputs:   names of the graph outputs; inputs: names of the graph inputs.
    """

    producers: dict[str, gs.Node] = field(default_factory=dict)
    readers: dict[str, list[tuple[gs.Node, int]]] = field(default_factory=dict)
    outputs: set[str] = field(default_factory=set)
    inputs: set[str] = field(default_factory=set)

    def only_reader(self, name: str) -> gs.Node | None:
        """The node that is the single reader, at a single slot, of a tensor that is no graph output; else None."""
        readers = self.readers.get(name, [])
        return readers[0][0] if len(readers) == 1 and name not in self.outputs else None

    def sole_producer(self, name: str) -> gs.Node | None:
        """The producer of a tensor that has one single reader and is no graph output; else None."""
        return self.producers.get(name) if self.only_reader(name) is not None else None


def uses_of(graph: gs.Graph) -> Uses:
    """Counts the uses in the graph as it is now."""
    uses = Uses(outputs={t.name for t in graph.outputs}, inputs={t.name for t in graph.inputs})
    for node in graph.nodes:
        for slot, tensor in enumerate(node.inputs):
            if tensor.name:
                uses.readers.setdefault(tensor.name, []).append((node, slot))
        for tensor in node.outputs:
            if tensor.name:
                uses.producers[tensor.name] = node
    return uses


def plain_domain(node: gs.Node) -> bool:
    """Whether the node is an operator of ai.onnx."""
    return node.domain in (None, "", "ai.onnx")


def is_op(node: gs.Node | None, *ops: str) -> TypeGuard[gs.Node]:
    """Whether the node is one of these operators of ai.onnx."""
    return node is not None and node.op in ops and plain_domain(node)


def declaration(node: gs.Node) -> Operator | None:
    """What is declared of the node's operator, None for an operator that nobody declares."""
    return find(node.op, node.domain or "")


def input_of(node: gs.Node, slot: int) -> gs.Variable | gs.Constant | None:
    """The tensor at an input slot, None if it is absent."""
    return node.inputs[slot] if slot < len(node.inputs) and node.inputs[slot].name else None


def foldable(model: Model, tensor: gs.Variable | gs.Constant | None) -> bool:
    """Whether the tensor is a constant whose bytes passes may use: no caller overrides it and it was not written out on purpose."""
    return isinstance(tensor, gs.Constant) and tensor.name not in model.overridable and tensor.name not in model.expanded


def attribute(node: gs.Node, name: str, default: Any = None) -> Any:
    """An attribute; tensors (arrays or graphsurgeon constants) and lists of one element become a number."""
    raw = node.attrs.get(name)
    if raw is None:
        return default
    if isinstance(raw, gs.Constant):
        raw = raw.values
    if isinstance(raw, (np.ndarray, np.generic)) and raw.size == 1:
        return raw.reshape(-1)[0].item()
    return raw[0] if isinstance(raw, (list, tuple)) and len(raw) == 1 else raw


def unique_name(wanted: str, taken: Collection[str]) -> str:
    """The wanted name, or that with the first free number."""
    if wanted not in taken:
        return wanted
    number = 1
    while f"{wanted}_{number}" in taken:
        number += 1
    return f"{wanted}_{number}"


def new_constant(model: Model, wanted: str, array: np.ndarray, source: str = "") -> gs.Constant:
    """A constant with a free name; its value and the initializer it comes from are recorded.

    `source` is the name of the constant it is made from, "" if there is no single one.
    """
    name = unique_name(wanted, model.values)
    model.values[name] = Value.of(array, dtypes.from_numpy(array.dtype))
    if source:
        model.source_of[name] = model.source_of.get(source, source)
    return gs.Constant(name, array)


def replace_input(node: gs.Node, slot: int, tensor: gs.Variable | gs.Constant) -> None:
    """Lets the node read `tensor` at `slot`, adding empty inputs up to it if needed."""
    while len(node.inputs) <= slot:
        node.inputs.append(gs.Variable.empty())
    node.inputs[slot] = tensor


def redirect(uses: Uses, old: str, new: gs.Variable | gs.Constant) -> None:
    """Lets every reader of `old` read `new` instead. `uses` is kept current."""
    moved = uses.readers.pop(old, [])
    for node, slot in moved:
        node.inputs[slot] = new
    uses.readers.setdefault(new.name, []).extend(moved)


def unlink(node: gs.Node) -> None:
    """Takes the node out of the links of all its tensors."""
    node.inputs.clear()
    node.outputs.clear()


def remove_nodes(graph: gs.Graph, dead: Collection[int]) -> None:
    """Drops the nodes with those `id`s from the graph and from the links of their tensors."""
    if dead:
        for node in graph.nodes:
            if id(node) in dead:
                unlink(node)
        graph.nodes[:] = [n for n in graph.nodes if id(n) not in dead]


def bypass(uses: Uses, node: gs.Node, source: gs.Variable | gs.Constant, output: int = 0) -> bool:
    """Lets everybody who reads the node's output read `source`, which holds the same values.

    If the output is a graph output its name must survive: then the producer of `source` writes it directly, which needs a producer and
    that `source` is no graph output itself. False if that is not possible; then nothing is changed. The node itself remains, unread,
    with no output of that name.
    """
    target = node.outputs[output]
    if target.name not in uses.outputs:
        redirect(uses, target.name, source)
        return True
    producer = uses.producers.get(source.name)
    if producer is None or source.name in uses.outputs or source.name in uses.inputs:
        return False
    position = next(i for i, t in enumerate(producer.outputs) if t.name == source.name)
    operator = declaration(producer)
    if operator is not None and position in operator.updates:
        return False  # a later update would write over the output
    node.outputs[output] = gs.Variable.empty()
    producer.outputs[position] = target
    uses.producers[target.name] = producer
    del uses.producers[source.name]
    redirect(uses, source.name, target)
    return True


def forget_unused(model: Model) -> None:
    """Drops the values of tensors that no longer exist."""
    alive = {t.name for t in (*model.graph.inputs, *model.graph.outputs, *(s.variable for s in model.state))}
    for node in model.graph.nodes:
        alive.update(t.name for t in node.inputs)
        alive.update(t.name for t in node.outputs)
    for name in [n for n in model.values if n not in alive]:
        del model.values[name]
