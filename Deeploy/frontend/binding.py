"""What the graphs of a project know of each other: a tensor that one of them updates is state of all of them, bound by its name."""

from __future__ import annotations

from collections.abc import Sequence

from Deeploy.errors import ModelError, Problem
from Deeploy.frontend.model import Model, infer
from Deeploy.frontend.state import State, make_state


def bind_state(models: Sequence[Model], names: Sequence[str]) -> None:
    """Makes inputs and initializers state, in place, where another graph has state of that name. names: of the graphs, for messages.

    Raises ModelError if two graphs do not agree on shape, type or first value.
    """
    wanted = dict.fromkeys(s.variable.name for model in models for s in model.state)
    for model in models:
        own = {s.variable.name for s in model.state}
        more = make_state(model.graph, [name for name in wanted if name not in own])
        if more:
            model.state += more
            infer(model)
    problems: list[Problem] = []
    first: dict[str, tuple[str, Model, State]] = {}
    for model, name in zip(models, names, strict=True):
        for state in model.state:
            other = first.setdefault(state.variable.name, (name, model, state))
            if other[2] is not state:
                problems += _disagreement(other, (name, model, state))
                if other[2].initial is None:
                    first[state.variable.name] = (name, model, state)
    if problems:
        raise ModelError(*problems)


def _disagreement(a: tuple[str, Model, State], b: tuple[str, Model, State]) -> list[Problem]:
    (one, model, state), (two, twin_model, twin) = a, b
    name = state.variable.name
    value, other = model.values[name], twin_model.values[name]
    what = f"state '{name}' is not the same in the graphs {one} and {two}"
    remedy = "give it another name in one of them if it is another tensor"
    if (value.shape, value.dtype) != (other.shape, other.dtype):
        return [Problem(what, f"{value.dtype} {list(value.shape)} and {other.dtype} {list(other.shape)}", remedy)]
    if state.initial is not None and twin.initial is not None and state.initial.tobytes() != twin.initial.tobytes():
        return [Problem(what, "their initializers have different values", remedy)]
    return []
