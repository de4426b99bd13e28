"""A project of two small programs over one store, for the tests of reports: training updates a matrix that inference reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from Deeploy.compiler import Graph, Options
from Deeploy.stored import generate

HOSTILE = "<script>alert('c')</script>&amp;\"\u202e\n\u8a9e"
"""The ONNX name of a constant that both programs read, and part of a node's."""
WEIGHT = np.linspace(-1, 1, 48, dtype=np.float32).reshape(8, 6)
COMMON = np.linspace(2, 3, 36, dtype=np.float32).reshape(6, 6)


def _save(
    folder: Path, nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Sequence[int]], outputs: Sequence[str], **constants: np.ndarray
) -> Path:
    """Saves a model of float tensors; the constant `common` gets the hostile name."""
    named = {HOSTILE if name == "common" else name: array for name, array in constants.items()}
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in named.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), folder / "network.onnx")
    return folder


def _node(op: str, inputs: Sequence[str], output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), [output], f"{op} {output} {HOSTILE}", **attributes)


def _train(folder: Path) -> Path:
    """w and v begin equal and are trained; common is read twice; start has the bytes of w, head the first bytes of common."""
    nodes = [
        _node("MatMul", ["x", "w"], "a"),
        _node("MatMul", ["x", "v"], "b"),
        _node("MatMul", ["a", HOSTILE], "c"),
        _node("MatMul", ["b", HOSTILE], "d"),
        _node("MatMul", ["x", "start"], "e"),
        _node("MatMul", ["e", "head"], "f"),
        _node("Add", ["c", "d"], "y"),
        _node("Transpose", ["x"], "t", perm=[1, 0]),
        _node("MatMul", ["t", "g"], "dw"),
        _node("SGD", ["w", "dw"], "w_updated", lr=0.5),
        _node("SGD", ["v", "dw"], "v_updated", lr=0.5),
    ]
    inputs = {"x": [4, 8], "g": [4, 6]}
    constants = {"w": WEIGHT, "v": WEIGHT.copy(), "start": WEIGHT.copy(), "head": COMMON[:3].reshape(6, 3)}
    return _save(folder, nodes, inputs, ["y", "f"], common=COMMON, **constants)


def _infer(folder: Path) -> Path:
    """Reads w, and common twice under another name."""
    nodes = [
        _node("MatMul", ["x", "w"], "a"),
        _node("MatMul", ["a", "same"], "b"),
        _node("Relu", ["b"], "r"),
        _node("MatMul", ["r", "same"], "y"),
    ]
    return _save(folder, nodes, {"x": [4, 8]}, ["y"], w=WEIGHT, same=COMMON.copy())


def two_programs(folder: Path, home: str = "L3", share: bool = True) -> Path:
    """Generates the project; returns its folder."""
    graphs = [Graph(_train(folder / "train"), "train"), Graph(_infer(folder / "infer"), "infer")]
    generate(graphs, Options("gap9", home=home, share=share), folder / "project")
    return folder / "project"
