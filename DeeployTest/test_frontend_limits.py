"""The frontend with the real operators: sizes that nothing can address, what ONNX does not know, outputs known at compile time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from Deeploy import passes
from Deeploy.errors import DeeployError, DoesNotFitError, ModelError, UsageError
from Deeploy.frontend import load, load_inputs
from Deeploy.lower import lower
from Deeploy.plan import PlanOptions, plan
from Deeploy.platform import load as load_platform
from Deeploy.simulate.evaluate import evaluate

NODE = helper.make_node


def save(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[int]],
    constants: dict[str, np.ndarray] | None = None,
    *,
    out: int = TensorProto.FLOAT,
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
) -> Path:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    outs = [helper.make_tensor_value_info(name, out, None) for name in outputs]
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "g", infos, outs, initializers)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    (folder / "network.onnx").write_bytes(proto.SerializeToString())
    return folder


def refused(folder: Path, error: type[DeeployError], *texts: str, **options: Any) -> None:
    with pytest.raises(error) as info:
        load(folder, **options)
    for text in texts:
        assert text in str(info.value)
    assert "MemoryError" not in str(info.value)


RELU = NODE("Relu", ["x"], ["y"], "r")


@pytest.mark.parametrize("shape", [[2**31, 2**31], [2**62], [2**63 - 1], [2**29]])
def test_huge_inputs(tmp_path: Path, shape: list[int]) -> None:
    size = 4 * int(np.prod(shape, dtype=object))
    refused(save(tmp_path, [RELU], {"x": shape}), ModelError, "input 'x'", f"{size} bytes", "at most 2147483647")


def test_an_empty_tensor_with_a_huge_dimension(tmp_path: Path) -> None:
    nodes = [NODE("Reshape", ["x", "s"], ["t"], "r", allowzero=1), NODE("Relu", ["t"], ["y"], "n")]
    save(tmp_path, nodes, {"x": [0]}, {"s": np.int64([0, 2**40])})
    refused(tmp_path, ModelError, "'t' has the shape [0, 1099511627776]", dims={"x:0": 0})


@pytest.mark.parametrize(
    ("op", "constants", "size"),
    [
        ("ConstantOfShape", {"s": [2**20, 2**20]}, 2**42),
        ("ConstantOfShape", {"s": [65536, 65536]}, 2**34),
        ("Expand", {"s": [2**40]}, 2**42),
        ("Tile", {"s": [2**40]}, 2**42),
        ("Pad", {"s": [2**40, 2**61]}, 4 * (2**40 + 2**61 + 1)),
    ],
)
@pytest.mark.parametrize("source", ["x", "k"])
def test_huge_results(tmp_path: Path, op: str, constants: dict[str, list[int]], size: int, source: str) -> None:
    inputs = ["s"] if op == "ConstantOfShape" else [source, "s"]
    nodes = [NODE(op, inputs, ["c"], "c"), NODE("Exp", ["c"], ["e"], "e"), NODE("Add", ["e", "x"], ["y"], "a")]
    arrays = {name: np.int64(value) for name, value in constants.items()}
    save(tmp_path, nodes, {"x": [1]}, {**arrays, "k": np.float32([2])})
    refused(tmp_path, ModelError, "node 'c'", f"{size} bytes")


def test_large_results_are_not_folded_and_do_not_fit_quickly(tmp_path: Path) -> None:
    """1.6 GB could be addressed, but neither is it computed here, nor are tiles searched for it."""
    nodes = [NODE("ConstantOfShape", ["s"], ["c"], "c"), NODE("Add", ["k", "c"], ["d"], "a"), NODE("Mul", ["d", "x"], ["y"], "m")]
    save(tmp_path, nodes, {"x": [1]}, {"s": np.int64([20000, 20000]), "k": np.float32([3])})
    start = time.process_time()
    model = load(tmp_path)
    passes.run_all(model)
    program = lower(model)
    for home in ("auto", "L2", "L3"):
        with pytest.raises(DoesNotFitError, match="1600000000 bytes"):
            plan(program, load_platform("gap9"), PlanOptions(home=home))
    assert time.process_time() - start < 5


def test_a_dimension_of_zero(tmp_path: Path) -> None:
    save(tmp_path, [RELU], {"x": [0, 3]})
    refused(tmp_path, ModelError, "--dim x:0=N")
    np.savez(tmp_path / "inputs.npz", x=np.zeros((0, 3), np.float32))
    refused(tmp_path, ModelError, "--dim x:0=0")
    assert load(tmp_path, dims={"x:0": 0}).values["y"].shape == (0, 3)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([NODE("Shape", ["x"], ["y"], "s")], [2, 3]),
        ([NODE("Size", ["x"], ["y"], "s")], 6),
        ([NODE("ConstantOfShape", ["k"], ["y"], "s", value=numpy_helper.from_array(np.int64([7])))], [[7, 7, 7]] * 2),
        ([NODE("Shape", ["x"], ["t"], "s"), NODE("Identity", ["t"], ["y"], "i")], [2, 3]),
    ],
)
def test_outputs_known_at_compile_time(tmp_path: Path, nodes: list[onnx.NodeProto], expected: Any) -> None:
    """Beside an output that is computed, and with another reader."""
    more = [NODE("Cast", ["y"], ["f"], "f", to=1), NODE("ReduceSum", ["f"], ["g"], "g", keepdims=0), NODE("Add", ["x", "g"], ["z"], "a")]
    folder = save(tmp_path, [*nodes, *more], {"x": [2, 3]}, {"k": np.int64([2, 3])}, outputs=["y", "z"], out=TensorProto.UNDEFINED)
    model = load(folder)
    passes.run_all(model)
    program = lower(model)
    plan(program, load_platform("gap9"))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (y, z), _ = evaluate(model, {model.graph.inputs[0].name: x}, {})
    assert y.dtype == np.int64 and np.array_equal(y, expected) and np.array_equal(z, x + np.sum(expected))
    assert len(program.outputs) == 2


def test_attributes_and_inputs_that_onnx_does_not_know(tmp_path: Path) -> None:
    nodes = [NODE("Relu", ["x", "x", "x"], ["t"], "a"), NODE("Relu", ["t"], ["y"], "b", foo=7)]
    texts = ("node 'a'", "it has 3 inputs", "at most 1", "node 'b'", "'foo'", "no such attribute in ONNX opset 17")
    refused(save(tmp_path, nodes, {"x": [2]}), ModelError, *texts)


def test_attributes_of_other_opsets_and_of_files_with_own_operators_are_noted(tmp_path: Path) -> None:
    save(tmp_path, [NODE("Unsqueeze", ["x"], ["t"], "u", axes=[0]), NODE("Relu", ["t"], ["y"], "r", consumed_inputs=[0])], {"x": [2]})
    model = load(tmp_path)
    assert model.values["y"].shape == (1, 2) and any("'consumed_inputs' of Relu" in note for note in model.notes)
    own = NODE("RMSNorm", ["x", "k"], ["t"], "n", eps=1e-5, domain="any")
    save(tmp_path, [own, NODE("Relu", ["t"], ["y"], "r", description="text")], {"x": [1, 2]}, {"k": np.ones(2, np.float32)})
    assert any("'description' of Relu" in note for note in load(tmp_path).notes)


@pytest.mark.parametrize("node", [NODE("Softmax", ["x"], ["y"], "n", axis="foo"), NODE("Transpose", ["x"], ["y"], "n", perm="foo")])
def test_attributes_of_a_wrong_type(tmp_path: Path, node: onnx.NodeProto) -> None:
    refused(save(tmp_path, [node], {"x": [2, 3]}), ModelError, "node 'n'", f"attribute '{node.attribute[0].name}'", "'foo'")


def test_stored_inputs_beyond_float32(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    model = load(save(tmp_path, [RELU], {"x": [2]}))
    np.savez(tmp_path / "inputs.npz", x=np.array([1e300, 1]))
    with pytest.raises(UsageError, match="'x' has values beyond the range of float32"):
        load_inputs(tmp_path, model)
    np.savez(tmp_path / "inputs.npz", x=np.array([np.inf, np.nan]))
    assert load_inputs(tmp_path, model)["x"][0] == np.inf
    assert not recwarn.list


def test_references_and_folding_do_not_warn(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    nodes = [NODE("Div", ["k", "l"], ["d"], "d"), NODE("Exp", ["x"], ["e"], "e"), NODE("Sub", ["e", "d"], ["y"], "s")]
    save(tmp_path, nodes, {"x": [2]}, {"k": np.float32([1, 1e38]), "l": np.float32([0, 1e-30])})
    model = load(tmp_path)
    evaluate(model, {"x": np.float32([1000, np.inf])}, {})
    passes.run_all(model)
    assert not recwarn.list


def test_outputs_declared_with_another_type(tmp_path: Path) -> None:
    model = load(save(tmp_path, [RELU], {"x": [2]}, out=TensorProto.INT32))
    assert "output 'y': the file declares int32, computed is float32" in model.notes
    assert not any("declares" in note for note in load(save(tmp_path, [RELU], {"x": [2]})).notes)
