"""The order of the nodes: producers before readers, and readers of a tensor before the node that updates it in place."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_graphsurgeon as gs

from Deeploy.errors import DefectError, ModelError, Problem
from Deeploy.operators import base
from Deeploy.operators.base import View


def updates_of(node: gs.Node) -> Iterator[tuple[gs.Variable, gs.Variable | gs.Constant]]:
    """(new, old) for every output that is an input updated in place."""
    operator = base.find(node.op, node.domain or "")
    for index, slot in () if operator is None else operator.updates.items():
        if index < len(node.outputs) and node.outputs[index].name and slot < len(node.inputs) and node.inputs[slot].name:
            yield node.outputs[index], node.inputs[slot]


def sort_nodes(graph: gs.Graph) -> None:
    """Brings the nodes into an order in which they can run; a node moves only before the first one that needs it.

    Raises ModelError if a node needs the old value of a tensor and what comes of its update, DefectError for any other cycle.
    """
    producers = {id(tensor): node for node in graph.nodes for tensor in node.outputs if tensor.name}
    before = _readers_before_updates(graph)
    done: set[int] = set()
    active: set[int] = set()
    order: list[gs.Node] = []
    for root in graph.nodes:
        stack = [root]
        while stack:
            node = stack[-1]
            wanted = [p for t in node.inputs if (p := producers.get(id(t))) is not None] + before.get(id(node), [])
            missing = [p for p in wanted if id(p) not in done]
            if id(node) not in done and missing:
                active.add(id(node))
                if any(id(p) in active for p in missing):
                    raise _cycle(node, before)
                stack.append(missing[0])
                continue
            if id(node) not in done:
                done.add(id(node))
                active.discard(id(node))
                order.append(node)
            stack.pop()
    if any(a is not b for a, b in zip(order, graph.nodes, strict=True)):
        graph.nodes[:] = order


def _cycle(node: gs.Node, before: dict[int, list[gs.Node]]) -> Exception:
    if not before:
        return DefectError(f"a cycle through node '{node.name}' ({node.op})")
    what = "no order of the nodes is right"
    why = "some node reads the value that a tensor has before it is updated in place, and depends on that update"
    remedy = "read the old value from a node that computes it anew (a Mul by 1); an Identity is no copy"
    return ModelError(Problem(what, why, remedy, node=node.name, operator=node.op))


def _readers_before_updates(graph: gs.Graph) -> dict[int, list[gs.Node]]:
    """By `id` of a node that updates tensors: the other readers of the old values, also through views of them."""
    readers = readers_of(graph)
    before: dict[int, list[gs.Node]] = {}
    for node in graph.nodes:
        seen = {id(node)}
        for _, old in updates_of(node):
            for reader in (r for tensor in with_views(old, readers) for r in readers.get(id(tensor), [])):
                if id(reader) not in seen:
                    seen.add(id(reader))
                    before.setdefault(id(node), []).append(reader)
    return before


def readers_of(graph: gs.Graph) -> dict[int, list[gs.Node]]:
    """By `id` of a tensor: the nodes that read it, once per slot, in the order of the nodes."""
    readers: dict[int, list[gs.Node]] = {}
    for node in graph.nodes:
        for tensor in node.inputs:
            if tensor.name:
                readers.setdefault(id(tensor), []).append(node)
    return readers


def with_views(tensor: gs.Tensor, readers: dict[int, list[gs.Node]]) -> list[gs.Tensor]:
    """The tensor and the results that are views of it, also of views. readers: of the graph."""
    found, seen = [tensor], {id(tensor)}
    for source in found:  # grows as views are found
        for reader in readers.get(id(source), []):
            operator = base.find(reader.op, reader.domain or "")
            if operator is not None and operator.view is not View.NONE and reader.inputs[0] is source:
                fresh = [t for t in reader.outputs if t.name and id(t) not in seen]
                seen |= {id(t) for t in fresh}
                found += fresh
    return found
