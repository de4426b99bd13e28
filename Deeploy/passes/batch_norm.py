"""Folds BatchNormalization (inference) into the Conv, ConvTranspose or Gemm before it.

The new weights are computed in float64 with exactly rounded operations and rounded once, so they are the same on every machine. They are
new constants for this reader: a weight tensor that others read is never changed.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from Deeploy.frontend.model import Model
from Deeploy.passes import exact
from Deeploy.passes.edit import (
    Uses,
    attribute,
    foldable,
    forget_unused,
    input_of,
    is_op,
    new_constant,
    remove_nodes,
    replace_input,
    uses_of,
)

EPSILON = 1e-5
"""ONNX default."""


def run(model: Model) -> None:
    """The pass. Only where the result before the normalisation has a single reader and is no graph output."""
    uses = uses_of(model.graph)
    dead: set[int] = set()
    for node in model.graph.nodes:
        if not _is_inference(node):
            continue
        before = uses.sole_producer(node.inputs[0].name)
        if before is not None and is_op(before, "Conv", "ConvTranspose", "Gemm") and _fold(model, before, node, uses):
            dead.add(id(node))
    if dead:
        remove_nodes(model.graph, dead)
        forget_unused(model)


def _is_inference(node: gs.Node) -> bool:
    return is_op(node, "BatchNormalization") and not attribute(node, "training_mode", 0) and not any(t.name for t in node.outputs[1:])


def _fold(model: Model, before: gs.Node, norm: gs.Node, uses: Uses) -> bool:
    """Folds one pair; False if their constants do not allow it, and nothing is changed."""
    weight, bias = input_of(before, 1), input_of(before, 2)
    constants = [weight, *norm.inputs[1:5], *([bias] if bias is not None else [])]
    if not all(foldable(model, t) and t.values.dtype == np.float32 for t in constants if t is not None) or weight is None:
        return False
    scale, shift, mean, variance = (t.values.astype(np.float64) for t in norm.inputs[1:5])
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = scale / np.sqrt(variance + float(attribute(norm, "epsilon", EPSILON)))
    old = np.zeros(1) if bias is None else bias.values.astype(np.float64)
    if before.op == "Gemm":
        old = old * float(attribute(before, "beta", 1.0))
        if model.values[norm.inputs[0].name].rank != 2:
            return False
    new_weight = exact.rounded(weight.values * _along_outputs(before, factor, weight.values.shape))
    new_bias = exact.rounded((old - mean) * factor + shift)
    if not (np.isfinite(new_weight).all() and np.isfinite(new_bias).all()):
        return False
    replace_input(before, 1, new_constant(model, f"{weight.name}_bn", new_weight, weight.name))
    name = f"{weight.name}_bn_bias" if bias is None else f"{bias.name}_bn"
    replace_input(before, 2, new_constant(model, name, new_bias, norm.inputs[2].name if bias is None else bias.name))
    if before.op == "Gemm":
        before.attrs["beta"] = 1.0
    output = norm.outputs[0]
    norm.outputs.clear()
    before.outputs[0] = output
    uses.producers[output.name] = before
    model.notes.append(f"folded BatchNormalization '{norm.name}' into {before.op} '{before.name}'")
    return True


def _along_outputs(node: gs.Node, factor: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The factors of the output channels, in a shape that broadcasts against the weights (float64)."""
    if node.op == "Gemm":
        return factor[:, None] if attribute(node, "transB", 0) else factor[None, :]
    if node.op == "Conv":
        return factor.reshape(-1, *(1 for _ in shape[1:]))
    groups = int(attribute(node, "group", 1))  # ConvTranspose: weights are [inputs, outputs of a group, ...]
    per_input = np.repeat(factor.reshape(groups, shape[1]), shape[0] // groups, axis=0)
    return per_input.reshape(*shape[:2], *(1 for _ in shape[2:]))
