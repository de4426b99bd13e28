"""Writes out the constant operands of element-wise operators at the full shape of the output, as other generators store them.

Then every constant is stored as it is: all are listed in `model.expanded` and are exempt from folding, merging of operators, literals and
filling.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from Deeploy.frontend.model import Model, node_view
from Deeploy.passes.edit import declaration, forget_unused, new_constant


def run(model: Model) -> None:
    """The pass. Two readers of one constant at one shape read one expanded constant."""
    made: dict[tuple[str, tuple[int, ...], tuple[int, ...]], gs.Constant] = {}
    for node in model.graph.nodes:
        operator = declaration(node)
        if operator is None or not operator.elementwise:
            continue
        view, shape = node_view(model, node), tuple(model.values[node.outputs[0].name].shape)
        for slot, tensor in enumerate(list(node.inputs)):
            if not isinstance(tensor, gs.Constant) or tensor.name in model.overridable:
                continue
            if tuple(tensor.values.shape) == shape:
                continue
            wanted = operator.operand_shape(view, slot)
            key = (tensor.name, wanted, shape)
            if key not in made:
                full = np.ascontiguousarray(np.broadcast_to(tensor.values.reshape(wanted), shape))
                made[key] = new_constant(model, f"{tensor.name}_expanded", full, tensor.name)
            node.inputs[slot] = made[key]
    if made:
        forget_unused(model)
    model.expanded |= {t.name for node in model.graph.nodes for t in node.inputs if isinstance(t, gs.Constant)} - model.overridable
