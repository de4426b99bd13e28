"""What is stored beside the models of a project, as the script that main.c follows: fixtures, and the protocol of a training project.

A training graph's archive says how many mini-batches there are, and after how many the optimizer graphs run. The first mini-batch of each
such window resets the accumulation buffers. All other graphs run once at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from Deeploy.compiler import Graph, Options, compile_graphs, emit_project
from Deeploy.emit import Call, Manifest, Script
from Deeploy.frontend import Model, load_inputs
from Deeploy.frontend.fixtures import INPUTS, MiniBatches, mini_batches
from Deeploy.frontend.order import updates_of
from Deeploy.operators.base import find


@dataclass(frozen=True)
class Protocol:
    """How a training project runs. train: index of the training graph; optimizers: of the graphs that have no inputs but state."""

    train: int
    batches: MiniBatches
    optimizers: tuple[int, ...]
    others: tuple[int, ...]


def stored_script(graphs: Sequence[Graph], models: Sequence[Model]) -> Script:
    """The script of a project. Inputs without a stored array are left to main.c, which gives zeros. Raises UsageError."""
    arrays = [_stored(graph.path, model) for graph, model in zip(graphs, models, strict=True)]
    state: dict[str, np.ndarray] = {}
    for mine, model in zip(arrays, models, strict=True):
        for kept in model.state:
            name = kept.variable.name
            if name in mine and kept.initial is None:
                state.setdefault(name, mine[name])
    inputs = [{t.name: mine[t.name] for t in m.graph.inputs if t.name in mine} for mine, m in zip(arrays, models, strict=True)]
    protocol = protocol_of(graphs, models) if len(models) > 1 else None
    if protocol is None:
        return Script(tuple(Call(i, mine) for i, mine in enumerate(inputs)), state, keep_state=any(m.state for m in models))
    return Script(tuple(_training_calls(models, protocol, inputs)), state, keep_state=True)


def generate(graphs: Sequence[Graph], options: Options, target: Path, progress: Callable[[str], None] = lambda stage: None) -> Manifest:
    """`deeploy generate`: compiles the graphs and writes the project, with what is stored beside them for main.c."""
    compiled = compile_graphs(graphs, options, progress)
    progress("emitting")
    return emit_project(compiled, target, stored_script(compiled.graphs, compiled.models), observe=False)


def protocol_of(graphs: Sequence[Graph], models: Sequence[Model]) -> Protocol | None:
    """The protocol of a project whose first graph with an archive of mini-batches is its training graph; None if it has none."""
    for index, (graph, model) in enumerate(zip(graphs, models, strict=True)):
        batches = mini_batches(graph.path, model)
        if batches is not None:
            rest = [i for i in range(len(models)) if i != index]
            optimizers = tuple(i for i in rest if models[i].updated and not models[i].graph.inputs)
            return Protocol(index, batches, optimizers, tuple(i for i in rest if i not in optimizers))
    return None


def _stored(path: Path, model: Model) -> dict[str, np.ndarray]:
    if not path.is_dir() or not (path / INPUTS).exists():
        return {}
    arrays = load_inputs(path, model)
    if mini_batches(path, model) is not None:  # the archive leaves out the accumulation buffers
        for kept in model.state:
            if kept.initial is None and kept.variable.name in model.updated:
                value = model.values[kept.variable.name]
                arrays.setdefault(kept.variable.name, np.zeros(value.shape, value.dtype.numpy))
    return arrays


def _training_calls(models: Sequence[Model], protocol: Protocol, inputs: Sequence[dict[str, np.ndarray]]) -> list[Call]:
    model = models[protocol.train]
    resets = reset_inputs(model)
    updated = updated_state(model)
    plain = tuple(k for k, t in enumerate(model.graph.outputs) if t.name not in updated)
    calls = []
    batches = protocol.batches
    for number, data in enumerate(batches.data):
        begins = number % batches.per_update == 0
        given = {**(inputs[protocol.train] if number == 0 else {}), **data}
        given |= {name: np.full(model.values[name].shape, begins, model.values[name].dtype.numpy) for name in resets}
        calls.append(Call(protocol.train, given, None if number == 0 else plain))
        if (number + 1) % batches.per_update == 0:
            first = number + 1 == batches.per_update
            calls += [Call(i, {}, None if first else ()) for i in protocol.optimizers]
    return calls + [Call(i, inputs[i]) for i in protocol.others]


def reset_inputs(model: Model) -> list[str]:
    """The inputs of the graph that say whether accumulation begins anew."""
    names = set()
    for node in model.graph.nodes:
        operator = find(node.op, node.domain or "")
        slot = None if operator is None else operator.reset_slot
        if slot is not None and slot < len(node.inputs):
            names.add(node.inputs[slot].name)
    return [t.name for t in model.graph.inputs if t.name in names]


def updated_state(model: Model) -> dict[str, str]:
    """By name of a tensor that is state after an update: the name of the state."""
    roots = {kept.variable.name: kept.variable.name for kept in model.state}
    for node in model.graph.nodes:
        for new, old in updates_of(node):
            roots[new.name] = roots[old.name]
    return {name: root for name, root in roots.items() if name != root}
