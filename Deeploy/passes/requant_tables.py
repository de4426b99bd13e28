"""Brings the mul and add tables of RequantShift to shapes that broadcast numpy-style against the output.

Files of the Deeploy format store tables as scalar, [1], [C], [C,1,1], [1,C,1,1], [M,1] or [N]; what a shape means depends on the
operator before: after a convolution a bare [C] is per channel, after a matrix product it lies along the last axis; [C,1,1] is per channel
(axis 1) whatever the rank. After this pass operators need no such rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import onnx_graphsurgeon as gs

from Deeploy.errors import ModelError, Problem
from Deeploy.frontend.model import Model
from Deeploy.operators.broadcasting import broadcasts
from Deeploy.passes.edit import Uses, declaration, forget_unused, input_of, new_constant, uses_of


def run(model: Model) -> None:
    """The pass. A table that changes its shape becomes a new constant of the same bytes for this reader.

    Raises ModelError with every table that fits in no way.
    """
    uses = uses_of(model.graph)
    problems: list[Problem] = []
    changed = False
    for node in model.graph.nodes:
        operator = declaration(node)
        if operator is None or not operator.table_slots:
            continue
        shape = model.values[node.outputs[0].name].shape
        for slot in operator.table_slots:
            table = input_of(node, slot)
            if table is None:
                continue
            have = model.values[table.name].shape
            wanted = table_shape(have, shape, partial(_channels_last, uses, node))
            if wanted is None:
                problems.append(_misfit(node, have, shape))
            elif wanted != have:
                node.inputs[slot] = _reshaped(model, node, table, wanted)
                changed = True
    if problems:
        raise ModelError(*problems)
    if changed:
        forget_unused(model)


def table_shape(table: tuple[int, ...], output: tuple[int, ...], channels_last: Callable[[], bool | None]) -> tuple[int, ...] | None:
    """The shape under which a table broadcasts numpy-style against `output` with the meaning it has in the file; None if there is none.

    channels_last: says whether the channels of the output are its last axis (after a matrix product) or axis 1 (after a convolution);
                   None if that is not known: then numpy's rule goes first.
    """
    rank, size = len(output), math.prod(table)
    if size == 1:
        return table if len(table) <= rank else ()
    core = table
    while len(core) > 1 and core[0] == 1 and len(core) > rank:
        core = core[1:]
    per_channel = (size, *(1 for _ in output[2:])) if rank >= 2 and output[1] == size else None
    as_it_is = core if len(core) <= rank and broadcasts(core, output) else None
    last = (size,) if output and output[-1] == size else None
    if len(core) == 1:
        if channels_last() is False:
            return per_channel or as_it_is
        return as_it_is or per_channel
    if len(core) >= 3 and core[0] == size:
        return per_channel or as_it_is or last
    if as_it_is is None and size in core:  # one axis is not 1: the channels, with more or fewer axes than the output has
        return (last or per_channel) if channels_last() else (per_channel or last)
    return as_it_is


def _channels_last(uses: Uses, node: gs.Node) -> bool | None:
    """What the channels of the node's input are, from the operators before it.

    Operators that keep the meaning of the axes are looked through: a table after them is read as after the operator before them.
    """
    todo, seen = [node], {id(node)}
    while todo:
        here = todo.pop(0)
        operator = declaration(here)
        tables = () if operator is None else operator.table_slots
        for tensor in (t for slot, t in enumerate(here.inputs) if slot not in tables):
            before = uses.producers.get(tensor.name)
            if before is None or id(before) in seen:
                continue
            seen.add(id(before))
            operator = declaration(before)
            if operator is not None and operator.channel_axis is not None:
                return operator.channel_axis < 0
            if operator is not None and (operator.keeps_axes or operator.elementwise):
                todo.append(before)
    return None


def _reshaped(model: Model, node: gs.Node, table: gs.Variable | gs.Constant, shape: tuple[int, ...]) -> gs.Constant:
    if not isinstance(table, gs.Constant):
        what = f"the table '{table.name}' is computed, and its shape does not broadcast against the output"
        raise ModelError(Problem(what, remedy="store it as an initializer", node=node.name, operator=node.op))
    array: np.ndarray = table.values.reshape(shape)
    array.flags.writeable = False
    constant = new_constant(model, f"{table.name}_table", array, table.name)
    if table.name in model.overridable:
        model.overridable.add(constant.name)
    return constant


def _misfit(node: gs.Node, table: tuple[int, ...], output: tuple[int, ...]) -> Problem:
    return Problem(
        f"a table of shape {list(table)} does not fit the output of shape {list(output)}",
        remedy="use one value, one per channel, one per row or one per column",
        node=node.name,
        operator=node.op,
    )
