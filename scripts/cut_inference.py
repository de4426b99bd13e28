"""Cuts the inference graph out of a training graph: python scripts/cut_inference.py TRAIN_FOLDER OUT_FOLDER

What the loss is computed from becomes the output; losses, gradients and accumulators go. Batch normalisation by batch statistics becomes
normalisation by the running ones. Names stay, so that a project binds trained weights and running statistics of both graphs:

    deeploy generate --graph train=TRAIN --graph optimizer=OPTIMIZER --graph infer=OUT ...
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

LOSSES = ("SoftmaxCrossEntropyLoss", "MSELoss")
KEPT_OUTPUTS = {"MaxPool": 1, "LayerNormalization": 1, "BatchNormalization": 1}
"""Operators whose further outputs only gradients read."""


def cut(model: onnx.ModelProto) -> onnx.ModelProto:
    """The inference graph of a training graph with one loss. Raises ValueError if there is no such loss."""
    graph = model.graph
    losses = [n for n in graph.node if n.op_type in LOSSES]
    if len(losses) != 1:
        raise ValueError(f"the graph has {len(losses)} losses, not 1")
    result = losses[0].input[0]
    producers = {name: node for node in graph.node for name in node.output}
    needed: dict[str, onnx.NodeProto] = {}
    todo = [result]
    while todo:
        node = producers.get(todo.pop())
        if node is not None and node.output[0] not in needed:
            needed[node.output[0]] = node
            todo += node.input
    nodes = [_inference(node) for node in graph.node if node.output and node.output[0] in needed]
    read = {name for node in nodes for name in node.input}
    types = {v.name: v for v in (*graph.value_info, *graph.output, *graph.input)}
    output = helper.make_tensor_value_info(result, onnx.TensorProto.FLOAT, _shape(types.get(result)))
    inputs = [v for v in graph.input if v.name in read]
    initializers = [t for t in graph.initializer if t.name in read]
    made = helper.make_graph(nodes, f"{graph.name}_inference", inputs, [output], initializers)
    return helper.make_model(made, opset_imports=model.opset_import, ir_version=model.ir_version)


def _inference(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    if copy.op_type == "BatchNormInternal":
        epsilon = [a for a in copy.attribute if a.name == "epsilon"]
        copy.op_type, copy.domain = "BatchNormalization", ""
        del copy.attribute[:]
        copy.attribute.extend(epsilon)
    del copy.output[KEPT_OUTPUTS.get(copy.op_type, len(copy.output)) :]
    return copy


def _shape(info: onnx.ValueInfoProto | None) -> list[int] | None:
    return None if info is None else [d.dim_value for d in info.type.tensor_type.shape.dim]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path, metavar="TRAIN_FOLDER")
    parser.add_argument("out", type=Path, metavar="OUT_FOLDER")
    args = parser.parse_args()
    source, target = args.train, args.out
    for name in ("network.onnx", "inputs.npz"):
        if not (source / name).is_file():
            parser.error(f"there is no {source / name}")
    training = onnx.load(source / "network.onnx")
    model = cut(training)
    target.mkdir(parents=True, exist_ok=True)
    onnx.save(model, target / "network.onnx")
    buffers = {n.input[0] for n in training.graph.node if n.op_type == "InPlaceAccumulatorV2"}
    names = [v.name for v in training.graph.input if v.name not in buffers]
    wanted = {v.name for v in model.graph.input}
    with np.load(source / "inputs.npz") as stored:
        np.savez(target / "inputs.npz", **{name: stored[key] for name, key in zip(names, stored.files, strict=False) if name in wanted})


if __name__ == "__main__":
    main()
