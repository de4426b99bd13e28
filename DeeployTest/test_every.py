"""Checking operators one by one: what must be found, and that nothing is left unseen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from Deeploy import operators, passes
from Deeploy.compiler import Options
from Deeploy.frontend import load, node_view
from Deeploy.lower import lower
from Deeploy.program.program import Binding, Program
from Deeploy.simulate.every import check_addresses
from Deeploy.simulate.run import RunOptions, run


def save(folder: Path, nodes: list, inputs: dict, outputs: dict, constants: dict | None = None) -> Path:
    def infos(shapes: dict) -> list:
        return [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in shapes.items()]

    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", infos(inputs), infos(outputs), tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    path = folder / "network.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def moving(folder: Path) -> Path:
    """Transpose, Split, Concat of pieces in place, Reshape of a transposed view, Slice, Squeeze, Tile."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[1, 0]),
        helper.make_node("Reshape", ["t", "flat"], ["f"]),
        helper.make_node("Split", ["r"], ["a", "b"], axis=0),
        helper.make_node("Neg", ["a"], ["na"]),
        helper.make_node("Neg", ["b"], ["nb"]),
        helper.make_node("Concat", ["nb", "na", "b"], ["c"], axis=0),
        helper.make_node("Slice", ["c", "begin", "end"], ["s"]),
        helper.make_node("Tile", ["s", "twice"], ["y"]),
        helper.make_node("Add", ["f", "one"], ["z"]),
    ]
    constants = {
        "flat": np.array([-1], np.int64),
        "begin": np.array([1], np.int64),
        "end": np.array([5], np.int64),
        "twice": np.array([2, 3], np.int64),
        "one": np.float32(1),
    }
    return save(folder, nodes, {"x": [4, 8]}, {"y": [8, 24], "z": [32]}, constants)


def test_every_node_of_a_graph_that_moves_data_is_checked(tmp_path: Path) -> None:
    path = moving(tmp_path)
    result = run(path, Options("gap9", home="L3"), RunOptions(checks="lazy", compare="all", inputs="random"))
    assert result.good, result.text()
    nodes = result.modes[0].nodes
    assert all(n.checked for n in nodes), [n.node for n in nodes if not n.checked]
    assert {"Transpose", "Reshape", "Split", "Concat", "Slice", "Tile", "Neg", "Relu", "Add"} <= {n.operator for n in nodes}


def test_a_view_of_a_shared_constant_is_where_the_constant_is(tmp_path: Path) -> None:
    """The constant has two readers, whose contents become one; one of them is the view alone, which no step reads."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["a", "wt"], ["y"]),
    ]
    weights = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
    path = save(tmp_path, nodes, {"x": [4, 8]}, {"y": [4, 8]}, {"w": weights})
    result = run(path, Options("gap9"), RunOptions(checks="none", compare="all"))
    assert result.good, result.text()
    assert "Transpose" in {n.operator for n in result.modes[0].nodes if n.checked}


def lowered(tmp_path: Path) -> tuple[object, Program]:
    operators.load_all()
    model = load(moving(tmp_path), input_types={}, dims={})
    passes.run_all(model)
    return model, lower(model)


@pytest.mark.parametrize("operator", ["Transpose", "Split", "Slice", "Concat"])
def test_a_view_in_the_wrong_place_is_found(tmp_path: Path, operator: str) -> None:
    model, program = lowered(tmp_path)
    (node,) = [n for n in model.graph.nodes if n.op == operator]
    (binding,) = [b for b in program.bindings if b.node == node.name]
    copies = [s for s in program.steps if s.node == node.name]
    view = node_view(model, node)
    assert check_addresses(view, binding, copies).errors == 0
    if operator == "Concat":  # two pieces have changed places
        wrong = Binding(binding.node, (binding.inputs[1], binding.inputs[0], binding.inputs[2]), binding.outputs)
    elif operator == "Split":
        wrong = Binding(binding.node, binding.inputs, tuple(reversed(binding.outputs)))
    else:
        output = binding.outputs[0]
        output.offset += output.dtype.size
        wrong = binding
    check = check_addresses(view, wrong, copies)
    assert check.errors > 0, str(check)
