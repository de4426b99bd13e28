"""Writes out the constant operands of element-wise operators at the full shape of the output, as other generators store them.

What it makes is listed in `model.expanded` and exempt from folding, merging of operators, literals and filling.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from Deeploy.frontend.model import Model
from Deeploy.passes.edit import forget_unused, is_op, new_constant

ELEMENT_WISE = ("Add", "Sub", "Mul", "Div", "Pow")


def run(model: Model) -> None:
    """The pass. Two readers of one constant at one shape read one expanded constant."""
    made: dict[tuple[str, tuple[int, ...]], gs.Constant] = {}
    for node in model.graph.nodes:
        if not is_op(node, *ELEMENT_WISE):
            continue
        shape = tuple(model.values[node.outputs[0].name].shape)
        for slot, tensor in enumerate(list(node.inputs)):
            if not isinstance(tensor, gs.Constant) or tensor.name in model.overridable or tuple(tensor.values.shape) == shape:
                continue
            key = (tensor.name, shape)
            if key not in made:
                full = np.ascontiguousarray(np.broadcast_to(tensor.values, shape))
                made[key] = new_constant(model, f"{tensor.name}_expanded", full, tensor.name)
                model.expanded.add(made[key].name)
            node.inputs[slot] = made[key]
    if made:
        forget_unused(model)
