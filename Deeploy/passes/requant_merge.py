"""Merges requantisation into the operator before it: Conv, Gemm, MatMul (with the Add of its bias) and Add.

A merged operator computes nothing but the composition, so integers stay equal bit for bit. Tensors between the parts must have one single
reader and be no graph output. Convolutions and products go first: what they take is narrow again before an Add could claim it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import onnx_graphsurgeon as gs

from Deeploy.frontend.model import Model
from Deeploy.operators.base import DOMAIN
from Deeploy.operators.requantisation import LEVELS, SIGNED
from Deeploy.passes.edit import Uses, attribute, forget_unused, input_of, is_op, unlink, uses_of

Slot: TypeAlias = Any
"""A tensor of graphsurgeon, None for an absent input."""


def run(model: Model) -> None:
    """The pass. Needs tables as `requant_tables` leaves them."""
    if not any(n.op == "RequantShift" for n in model.graph.nodes):
        return
    replaced: dict[int, gs.Node] = {}
    dead: set[int] = set()
    uses = uses_of(model.graph)
    for merge in (_merge_product, _merge_add):
        for node in list(model.graph.nodes):
            if node.op == "RequantShift" and id(node) not in dead:
                merged = merge(model, node, uses, dead)
                if merged is not None:
                    replaced[id(node)] = merged
    if replaced:
        model.graph.nodes[:] = [replaced.get(id(n), n) for n in model.graph.nodes if id(n) not in dead or id(n) in replaced]
        forget_unused(model)


def _merge_product(model: Model, requant: gs.Node, uses: Uses, dead: set[int]) -> gs.Node | None:
    """RequantizedConv, RequantizedGemm or RequantizedMatMul in the place of `requant`; None if its input comes from none of these."""
    before = _before(model, requant, uses)
    if is_op(before, "Conv", "Gemm") and _whole_factors(before):
        inputs: list[Slot] = [before.inputs[0], before.inputs[1], input_of(before, 2), *requant.inputs[1:3]]
        return _replace(before, requant, f"Requantized{before.op}", inputs, {**before.attrs, **_requant_attributes(requant)}, uses, dead)
    bias: Slot = None
    parts = [requant]
    product = before
    if is_op(before, "Add"):
        slot = _bias_slot(model, before, uses)
        if slot is None:
            return None
        parts, bias = [before, requant], before.inputs[slot]
        product = uses.sole_producer(before.inputs[1 - slot].name)
    if not is_op(product, "MatMul") or not _integers(model, product.outputs[0]):
        return None
    inputs = [product.inputs[0], product.inputs[1], bias, *requant.inputs[1:3]]
    merged = _replace(product, requant, "RequantizedMatMul", inputs, {**product.attrs, **_requant_attributes(requant)}, uses, dead)
    _discard(dead, *parts[:-1])
    return merged


def _bias_slot(model: Model, add: gs.Node, uses: Uses) -> int | None:
    """The slot of the constant in MatMul + constant; None if that is not what the Add is."""
    for slot in (0, 1):
        bias, other = add.inputs[slot], add.inputs[1 - slot]
        usable = isinstance(bias, gs.Constant) and bias.name not in model.expanded and model.values[bias.name].dtype.is_integer
        if usable and is_op(uses.sole_producer(other.name), "MatMul"):
            same = model.values[other.name].shape == model.values[add.outputs[0].name].shape
            return slot if same else None
    return None


def _merge_add(model: Model, requant: gs.Node, uses: Uses, dead: set[int]) -> gs.Node | None:
    """RequantizedAdd in the place of `requant`, with the RequantShifts before the Add that only the Add reads."""
    add = _before(model, requant, uses)
    if not is_op(add, "Add") or any(t.name in model.expanded for t in add.inputs):
        return None
    if not all(_integers(model, t) for t in add.inputs):
        return None
    operands: list[Slot] = []
    tables: list[Slot] = []
    attributes = _requant_attributes(requant)
    absorbed = []
    for slot, letter in enumerate("ab"):
        inner = uses.sole_producer(add.inputs[slot].name)
        if inner is not None and inner.op == "RequantShift" and id(inner) not in dead and _tables_constant(inner):
            operands.append(inner.inputs[0])
            tables += inner.inputs[1:3]
            attributes |= {f"{key}_{letter}": value for key, value in _requant_attributes(inner).items()}
            absorbed.append(inner)
        else:
            operands.append(add.inputs[slot])
            tables += [None, None]
    merged = _replace(add, requant, "RequantizedAdd", [*operands, *tables, *requant.inputs[1:3]], attributes, uses, dead)
    _discard(dead, *absorbed)
    return merged


def _before(model: Model, requant: gs.Node, uses: Uses) -> gs.Node | None:
    """The producer of a RequantShift's input, if that tensor is read by nothing else and holds integers."""
    if not _tables_constant(requant) or not _integers(model, requant.inputs[0]):
        return None
    return uses.sole_producer(requant.inputs[0].name)


def _tables_constant(requant: gs.Node) -> bool:
    return len(requant.inputs) == 3 and all(isinstance(t, gs.Constant) for t in requant.inputs[1:])


def _integers(model: Model, tensor: gs.Variable | gs.Constant) -> bool:
    return model.values[tensor.name].dtype.is_integer


def _whole_factors(node: gs.Node) -> bool:
    """Whether the factors of a Gemm are whole numbers, so that its sums are."""
    return node.op != "Gemm" or all(float(attribute(node, name, 1.0)).is_integer() for name in ("alpha", "beta"))


def _requant_attributes(node: gs.Node) -> dict[str, Any]:
    """div, n_levels and signed as whole numbers; whichever name the file gives the levels."""
    levels = attribute(node, "n_levels", attribute(node, "n_levels_out", LEVELS))
    return {"div": int(attribute(node, "div", 1)), "n_levels": int(levels), "signed": int(attribute(node, "signed", SIGNED))}


def _replace(
    first: gs.Node, requant: gs.Node, op: str, inputs: list[Slot], attributes: dict[str, Any], uses: Uses, dead: set[int]
) -> gs.Node:
    """A merged node that reads `inputs` and writes what `requant` wrote; the two nodes are taken out of the links."""
    output = requant.outputs[0]
    tensors = [gs.Variable.empty() if t is None else t for t in inputs]
    _discard(dead, first, requant)
    merged = gs.Node(op, first.name, attributes, tensors, [output], DOMAIN)
    uses.producers[output.name] = merged
    return merged


def _discard(dead: set[int], *nodes: gs.Node) -> None:
    for node in nodes:
        unlink(node)
        dead.add(id(node))
