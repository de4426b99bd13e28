"""Graph outputs against what the file declares of them."""

from __future__ import annotations

from Deeploy.frontend.model import Model
from Deeploy.frontend.order import updates_of
from Deeploy.frontend.source import Source
from Deeploy.program.dtypes import ONNX_TYPES


def note_outputs(model: Model, source: Source) -> None:
    """Files may declare outputs wrongly (shape inference of some exporters is): what is computed holds, and the user is told.

    In the integer format a declared float says nothing about the storage. Flags of accumulators are declared that are the buffers here.
    """
    updated = {id(new) for node in model.graph.nodes for new, _ in updates_of(node)}
    if any(id(tensor) in updated for tensor in model.graph.outputs):
        model.notes.append("outputs that are updated state are read where the state is")
    for declared, tensor in zip(source.outputs, model.graph.outputs, strict=True):
        if id(tensor) in updated:
            continue
        value = model.values[tensor.name]
        fixed = declared.dims is not None and all(isinstance(d, int) for d in declared.dims)
        if fixed and declared.dims != value.shape:
            model.notes.append(f"output '{declared.name}': the file declares {list(declared.dims or ())}, computed is {list(value.shape)}")
        wanted = ONNX_TYPES.get(declared.elem_type)
        if wanted is not None and wanted is not value.dtype and not (model.integers and wanted.name in ("float32", "int32")):
            model.notes.append(f"output '{declared.name}': the file declares {wanted}, computed is {value.dtype}")
