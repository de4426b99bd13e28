"""The oracle of last resort: source graphs evaluated node by node with the numpy references of their operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from Deeploy.emit import Script
from Deeploy.frontend import Model, node_view
from Deeploy.frontend.order import updates_of
from Deeploy.operators.base import find
from Deeploy.passes import requant_tables
from Deeploy.simulate.golden import Expected, ExpectedState, Golden


def evaluated(models: Sequence[Model], script: Script) -> Golden:
    """All outputs of all calls, and the state at the end, from the references of the operators on the source graphs."""
    state = {s.variable.name: s.initial for m in models for s in m.state if s.initial is not None} | dict(script.state)
    latest: dict[int, dict[str, np.ndarray]] = {}
    outputs = []
    for number, call in enumerate(script.calls):
        given = latest.setdefault(call.program, {})
        given.update(call.inputs)
        arrays, changed = evaluate(models[call.program], given, state)
        state |= changed
        wanted = range(len(arrays)) if call.outputs is None else call.outputs
        outputs += [Expected(number, k, arrays[k]) for k in wanted]
    final = tuple(ExpectedState(name, array) for name, array in state.items())
    return Golden(script, tuple(outputs), final, "the operators' numpy references on the source graphs")


def evaluate(
    model: Model, inputs: Mapping[str, np.ndarray], state: Mapping[str, np.ndarray]
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """The graph's outputs by the references of its operators, node by node, and the new values of the state that it updates.

    Requantisation tables are brought to their broadcastable form first (in place): the references know no other.
    """
    requant_tables.run(model)
    arrays: dict[str, np.ndarray] = {t.name: inputs[t.name] for t in model.graph.inputs}
    arrays |= {s.variable.name: state[s.variable.name] for s in model.state}
    roots = {s.variable.name: s.variable.name for s in model.state}
    changed: dict[str, np.ndarray] = {}
    for node in model.graph.nodes:
        view = node_view(model, node)
        operator = find(view.op, view.domain)
        assert operator is not None, view.op
        slots = [_array(model, arrays, v.name) for v in node.inputs]
        with np.errstate(all="ignore"):
            results = operator.reference(view, slots)
        for variable, array in zip(node.outputs, results, strict=False):
            arrays[variable.name] = array
        for new, old in updates_of(node):
            roots[new.name] = roots[old.name]
            changed[roots[new.name]] = arrays[new.name]
    return [_present(_array(model, arrays, v.name)) for v in model.graph.outputs], changed


def _array(model: Model, arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray | None:
    if not name:
        return None
    return arrays[name] if name in arrays else model.values[name].constant


def _present(array: np.ndarray | None) -> np.ndarray:
    assert array is not None
    return array
