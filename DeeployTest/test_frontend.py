"""Frontend: files, names, dimensions, storage types, static inputs, readers and all its refusals, on models built here.

The operators are small stand-ins declared here, so that nothing depends on the real declarations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from Deeploy.errors import DeeployError, DefectError, ExitCode, ModelError, UsageError
from Deeploy.frontend import infer, load, load_inputs, load_outputs, node_view
from Deeploy.operators import base, load_all
from Deeploy.operators.base import Node, Operator, Value
from Deeploy.program import dtypes

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class _Elementwise(Operator):
    """Broadcasting arithmetic; the type of the first input."""

    names = ("Add", "Mul", "Relu", "Identity")
    domains = ("",)
    integer_slots = {}

    def infer(self, node: Node) -> list[Value]:
        shape = np.broadcast_shapes(*(v.shape for v in node.inputs if v is not None))
        dtype = node.value(0).dtype
        return [Value(shape, dtype) if dtype.is_float else Value(shape, dtype, dtype.lo, dtype.hi)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        functions: dict[str, Callable[..., Any]] = {"Add": np.add, "Mul": np.multiply, "Identity": np.copy}
        return [functions[node.op](*inputs)]


class _Requant(Operator):
    names = ("RequantShift",)
    integer_format = True
    integer_slots = {1: dtypes.INT32, 2: dtypes.INT32}

    def infer(self, node: Node) -> list[Value]:
        return [Value.integer(node.value(0).shape, dtypes.INT8, -128, 127)]


class _MatMul(Operator):
    names = ("MatMul",)

    def infer(self, node: Node) -> list[Value]:
        a, b = node.value(0), node.value(1)
        shape = np.matmul(np.zeros(a.shape), np.zeros(b.shape)).shape
        return [Value.integer(shape, dtypes.INT32, -(2**31), 2**31 - 1) if node.integers else Value(shape, a.dtype)]


class _Reshape(Operator):
    names = ("Reshape",)
    static_inputs = ((1, "shape"),)

    def problems(self, node: Node) -> list[Any]:
        return [node.problem("allowzero is not supported", attribute="allowzero")] if node.int("allowzero", 0) else []

    def infer(self, node: Node) -> list[Value]:
        return [node.value(0).reshaped(np.zeros(node.value(0).shape).reshape(node.ints("shape")).shape)]


class _Squeeze(Operator):
    """Axes became an input in opset 13."""

    names = ("Squeeze",)
    static_inputs = ((1, "axes"),)

    def infer(self, node: Node) -> list[Value]:
        return [node.value(0).reshaped(np.squeeze(np.zeros(node.value(0).shape), node.ints("axes")).shape)]


class _Shapes(Operator):
    names = ("Gather", "Concat", "Unsqueeze")
    static_inputs = ()

    def infer(self, node: Node) -> list[Value]:
        result = self.reference(node, [np.zeros(v.shape, v.dtype.numpy) for v in node.inputs if v is not None])[0]
        return [Value(result.shape, dtypes.INT64, -(2**63), 2**63 - 1)]

    def reference(self, node: Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        arrays = [i for i in inputs if i is not None]
        if node.op == "Shape":
            return [np.array(arrays[0].shape, np.int64)]
        if node.op == "Gather":
            return [np.take(arrays[0], arrays[1])]
        return [np.concatenate(arrays) if node.op == "Concat" else arrays[0].reshape(1)]


class _Shape(_Shapes):
    names = ("Shape",)
    shape_only = True


class _Clip(Operator):
    """Bounds became inputs in opset 11: normalising makes constants of the attributes."""

    names = ("Clip",)

    def normalise(self, node: Any, opset: int) -> None:
        import onnx_graphsurgeon as gs

        if opset < 11:
            node.inputs.extend(gs.Constant("bound", np.asarray(node.attrs.pop(k), np.float32)) for k in ("min", "max"))

    def infer(self, node: Node) -> list[Value]:
        return [node.value(0)]


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    load_all()  # before the registry is replaced: the real declarations must not end up in the replacement
    monkeypatch.setattr(base, "_REGISTRY", {})
    for cls in (_Elementwise, _Requant, _MatMul, _Reshape, _Squeeze, _Shapes, _Shape, _Clip):
        base.register(cls)


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Any],
    outputs: Sequence[str] = ("y",),
    constants: dict[str, np.ndarray] | Sequence[onnx.TensorProto] = (),
    *,
    opset: int = 17,
    elem: int = FLOAT,
    out_elem: int = FLOAT,
) -> onnx.ModelProto:
    if isinstance(constants, dict):
        constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    infos = [helper.make_tensor_value_info(name, elem, shape) for name, shape in inputs.items()]
    outs = [helper.make_tensor_value_info(name, out_elem, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", infos, outs, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def save(folder: Path, proto: onnx.ModelProto, **arrays: np.ndarray) -> Path:
    (folder / "network.onnx").write_bytes(proto.SerializeToString())
    if arrays:
        np.savez(folder / "inputs.npz", **arrays)
    return folder


def refused(folder: Path, error: type[DeeployError], *texts: str, **options: Any) -> DeeployError:
    with pytest.raises(error) as info:
        load(folder, **options)
    for text in texts:
        assert text in str(info.value)
    return info.value


ADD = helper.make_node("Add", ["x", "k"], ["y"], "n")


def test_a_float_network(tmp_path: Path) -> None:
    k = np.arange(3, dtype=np.float32)
    save(tmp_path, model([ADD], {"x": [2, 3]}, constants={"k": k, "unread": np.zeros(7, np.float32)}))
    result = load(tmp_path)
    assert result.name == tmp_path.name and not result.integers and result.opset == 17
    assert (result.input_names, result.output_names) == (["x"], ["y"])
    assert result.values["y"] == Value((2, 3), dtypes.FLOAT32)
    assert result.values["k"].constant is not None and np.array_equal(result.values["k"].constant, k)
    assert result.sha256 == hashlib.sha256((tmp_path / "network.onnx").read_bytes()).hexdigest()
    assert any("input 'x': float32 [2, 3]" in note for note in result.notes) and any("'unread'" in note for note in result.notes)
    (reader,) = result.readers
    assert (reader.node, reader.slot, reader.tensor, reader.bytes) == ("n", 1, "k", 12)
    assert reader.content == hashlib.sha256(k.tobytes()).hexdigest()
    view = node_view(result, result.graph.nodes[0])
    assert view.op == "Add" and view.outputs == ("y",) and view.value(1).shape == (3,)
    infer(result)
    assert result.values["y"] == Value((2, 3), dtypes.FLOAT32)
    assert load(tmp_path / "network.onnx").name == "network"


def test_constants_cannot_be_changed(tmp_path: Path) -> None:
    save(tmp_path, model([ADD], {"x": [2]}, constants={"k": np.ones(2, np.float32)}))
    with pytest.raises(ValueError):
        load(tmp_path).graph.nodes[0].inputs[1].values[0] = 2


def test_names_of_nodes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["t"], "n"),
        helper.make_node("Relu", ["t"], ["u"], "n"),
        helper.make_node("Relu", ["u"], ["v"], ""),
        helper.make_node("Relu", ["v"], ["y"], "n_1"),
    ]
    save(tmp_path, model(nodes, {"x": [2]}))
    assert [n.name for n in load(tmp_path).graph.nodes] == ["n", "n_2", "Relu_2", "n_1"]


def test_unsorted_nodes_and_cycles(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", [a], [b], f"{a}{b}") for a, b in (("t", "u"), ("u", "y"), ("x", "t"))]
    save(tmp_path, model(nodes, {"x": [2]}))
    assert [n.name for n in load(tmp_path).graph.nodes] == ["xt", "tu", "uy"]
    nodes = [helper.make_node("Add", ["x", "u"], ["t"], "a"), helper.make_node("Relu", ["t"], ["u"], "b")]
    save(tmp_path, model(nodes, {"x": [2]}, ["u"]))
    refused(tmp_path, ModelError, "cycle")


def test_infer_sorts_what_passes_left(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", [a], [b], f"{a}{b}") for a, b in (("x", "t"), ("t", "u"), ("u", "y"))]
    result = load(save(tmp_path, model(nodes, {"x": [2]})))
    result.graph.nodes.reverse()
    infer(result)
    assert [n.name for n in result.graph.nodes] == ["xt", "tu", "uy"]
    result.graph.nodes[1].op = "Unknown"
    with pytest.raises(DefectError, match="'u' at node 'tu'"):
        infer(result)


def test_wiring(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "nowhere"], ["y"], "a"), helper.make_node("Relu", ["x"], ["y"], "b")]
    save(tmp_path, model(nodes, {"x": [2]}, ["y", "z"]))
    refused(tmp_path, ModelError, "'nowhere', which nothing writes", "'y' is written twice", "nothing writes output 'z'")


def test_outputs_are_written_by_nodes_of_their_own(tmp_path: Path) -> None:
    save(tmp_path, model([ADD], {"x": [2]}, ["y", "k", "x", "y"], {"k": np.ones(2, np.float32)}))
    result = load(tmp_path)
    assert result.output_names == ["y", "k", "x", "y"]
    assert len({t.name for t in result.graph.outputs}) == 4
    assert [t.inputs[0].op for t in result.graph.outputs] == ["Add", "Identity", "Identity", "Identity"]
    assert [r.tensor for r in result.readers] == ["k", "k"]  # the output's copy reads it, too


def test_dims(tmp_path: Path) -> None:
    proto = model([helper.make_node("Add", ["x", "z"], ["y"], "n")], {"x": ["N", 2], "z": ["N", 0]})
    save(tmp_path, proto, x=np.zeros((3, 2), np.float32), z=np.zeros((3, 1), np.float32))
    error = refused(tmp_path, ModelError, "'N'", "input 'x'", "--dim N=3", "input 'z'", "--dim z:1=1")
    assert error.exit_code is ExitCode.NOT_SUPPORTED and len(error.problems) == 3
    result = load(tmp_path, dims={"N": 4, "z:1": 1})
    assert result.values["y"].shape == (4, 2)
    assert load(tmp_path, dims={"x:0": 1, "N": 5, "z:1": 2}).values["y"].shape == (5, 2)
    refused(tmp_path, UsageError, "no input has such a dimension", "N, z:1", dims={"M": 1, "N": 1, "z:1": 1})
    refused(tmp_path, UsageError, "is 2 in the model", dims={"N": 4, "z:1": 1, "x:1": 3})
    refused(tmp_path, UsageError, "negative", dims={"N": -1, "z:1": 1})


def test_input_without_shape(tmp_path: Path) -> None:
    save(tmp_path, model([helper.make_node("Relu", ["x"], ["y"], "n")], {"x": None}), x=np.zeros((3, 2), np.float32))
    refused(tmp_path, ModelError, "declares no shape", "--dim x:0=3 --dim x:1=2")
    assert load(tmp_path, dims={"x:0": 4, "x:1": 5}).values["y"].shape == (4, 5)


def test_several_opset_entries(tmp_path: Path) -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"], "n")], {"x": [2]}, opset=12)
    proto.opset_import.extend([helper.make_opsetid("ai.onnx", 19), helper.make_opsetid("com.microsoft", 1)])
    assert load(save(tmp_path, proto)).opset == 19


def _constant(name: str, **value: Any) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], f"c_{name}", **value)


def test_static_inputs(tmp_path: Path) -> None:
    """The shape of a Reshape from an initializer, a Constant node and a shape computation; axes as attribute and as input."""
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["a"], "from_initializer"),
        _constant("c", value_ints=[4, 3]),
        helper.make_node("Reshape", ["a", "c"], ["b"], "from_constant"),
        helper.make_node("Shape", ["b"], ["shape"], "shape"),
        _constant("zero", value_int=0),
        helper.make_node("Gather", ["shape", "zero"], ["four"], "gather"),
        helper.make_node("Unsqueeze", ["four"], ["fours"], "unsqueeze"),
        _constant("rest", value=numpy_helper.from_array(np.array([-1, 1]))),
        helper.make_node("Concat", ["fours", "rest"], ["chain"], "concat", axis=0),
        helper.make_node("Reshape", ["b", "chain"], ["d"], "from_chain"),
        _constant("axes", value_ints=[-1]),
        helper.make_node("Squeeze", ["d", "axes"], ["y"], "squeeze"),
    ]
    save(tmp_path, model(nodes, {"x": [2, 6]}, constants={"s": np.array([3, 4])}))
    result = load(tmp_path)
    by_name = {n.name: n for n in result.graph.nodes}
    assert [by_name[f"from_{k}"].attrs["shape"] for k in ("initializer", "constant", "chain")] == [[3, 4], [4, 3], [4, -1, 1]]
    assert all(len(by_name[f"from_{k}"].inputs) == 1 for k in ("initializer", "constant", "chain"))
    assert by_name["squeeze"].attrs["axes"] == [-1] and result.values["y"].shape == (4, 3)
    assert [(r.node, r.tensor) for r in result.readers] == [("gather", "zero"), ("concat", "rest")]
    infer(result)
    assert result.values["y"].shape == (4, 3)


def test_static_input_at_run_time(tmp_path: Path) -> None:
    save(tmp_path, model([helper.make_node("Reshape", ["x", "s"], ["y"], "n")], {"x": [2], "s": [1]}, elem=INT64, out_elem=INT64))
    assert len(refused(tmp_path, ModelError, "node 'n'", "'s'", "must be a constant").problems) == 1


def test_constant_node_forms(tmp_path: Path) -> None:
    nodes = [
        _constant("a", value_float=2.0),
        _constant("b", value_floats=[1.0, 3.0]),
        helper.make_node("Mul", ["x", "a"], ["t"], "m"),
        helper.make_node("Add", ["t", "b"], ["y"], "n"),
    ]
    save(tmp_path, model(nodes, {"x": [2]}))
    result = load(tmp_path)
    assert len(result.graph.nodes) == 2 and [r.bytes for r in result.readers] == [4, 8]
    save(tmp_path, model([_constant("k", value_string="no"), ADD], {"x": [2]}))
    refused(tmp_path, ModelError, "value_string")


def test_wide_and_narrow_floats_of_constants(tmp_path: Path) -> None:
    half = helper.make_tensor("k", TensorProto.FLOAT16, [2], np.array([1.5, -2], np.float16).view(np.uint16), raw=False)
    half.ClearField("int32_data")
    half.int32_data.extend([0x3E00, 0xC000])
    bfloat = onnx.TensorProto(name="m", data_type=TensorProto.BFLOAT16, dims=[2], raw_data=np.array([0x3FC0, 0xC000], "<u2").tobytes())
    nodes = [ADD, helper.make_node("Add", ["y", "m"], ["z"], "p")]
    save(tmp_path, model(nodes, {"x": [2]}, ["z"], [half, bfloat]))
    result = load(tmp_path)
    for name in ("k", "m"):
        value = result.values[name]
        assert value.dtype is dtypes.FLOAT32 and value.constant is not None and value.constant.tolist() == [1.5, -2.0]
    assert any("'k' (float16)" in note for note in result.notes)


@pytest.mark.parametrize("elem", [TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16, TensorProto.STRING])
def test_unsupported_input_type(tmp_path: Path, elem: int) -> None:
    save(tmp_path, model([helper.make_node("Relu", ["x"], ["y"], "n")], {"x": [2]}, elem=elem))
    refused(tmp_path, ModelError, "input 'x' has element type " + TensorProto.DataType.Name(elem).lower())


def _external(name: str, shape: list[int], file: str, **entries: int) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, data_type=FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": file, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def test_external_data(tmp_path: Path) -> None:
    """Offset, one region read twice under two shapes, a part of it, and no length."""
    (tmp_path / "d.bin").write_bytes(bytes(64) + np.arange(1, 9, dtype="<f4").tobytes())
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"], "a"),
        helper.make_node("MatMul", ["t", "v"], ["u"], "b"),
        helper.make_node("Add", ["u", "p"], ["y"], "c"),
    ]
    constants = [
        _external("w", [2, 4], "d.bin", offset=64, length=32),
        _external("v", [4, 2], "d.bin", offset=64),
        _external("p", [2], "d.bin", offset=80, length=8),
    ]
    save(tmp_path, model(nodes, {"x": [1, 2]}, constants=constants))
    result = load(tmp_path)
    assert result.values["v"].constant is not None and result.values["v"].constant.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert result.values["p"].constant is not None and result.values["p"].constant.tolist() == [5, 6]
    assert result.readers[0].content == result.readers[1].content
    before = result.sha256
    (tmp_path / "d.bin").write_bytes(bytes(64) + np.arange(2, 10, dtype="<f4").tobytes())
    assert load(tmp_path).sha256 != before


def test_external_data_beyond_two_gigabytes(tmp_path: Path) -> None:
    with (tmp_path / "d.bin").open("wb") as file:
        file.seek(3 << 30)
        file.write(np.array([1, 2], "<f4").tobytes())
    save(tmp_path, model([ADD], {"x": [2]}, constants=[_external("k", [2], "d.bin", offset=3 << 30)]))
    constant = load(tmp_path).values["k"].constant
    assert constant is not None and constant.tolist() == [1, 2]
    save(tmp_path, model([ADD], {"x": [2]}, constants=[_external("k", [3 << 28], "d.bin")]))
    refused(tmp_path, ModelError, "'k'", "more than any target can hold")


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"file": "missing.bin"}, "cannot be read"),
        ({"file": "../d.bin"}, "outside the model's folder"),
        ({"file": "/etc/hostname"}, "outside the model's folder"),
        ({"file": "d.bin", "offset": 4}, "ends at byte 8"),
        ({"file": "d.bin", "offset": -4}, "offset of its external data is negative (-4)"),
        ({"file": "d.bin", "length": 4}, "has 4 bytes where its shape [2] needs 8"),
    ],
)
def test_bad_external_data(tmp_path: Path, entries: dict[str, Any], text: str) -> None:
    (tmp_path / "d.bin").write_bytes(bytes(8))
    save(tmp_path, model([ADD], {"x": [2]}, constants=[_external("k", [2], **entries)]))
    refused(tmp_path, ModelError, text, "'k'")


def test_bad_files(tmp_path: Path) -> None:
    refused(tmp_path / "nothing", UsageError, "there is no file or folder")
    refused(tmp_path, UsageError, "has no network.onnx")
    data = model([ADD], {"x": [2]}, constants={"k": np.ones(2, np.float32)}).SerializeToString()
    for content in (b"", b"not a model\n" * 20, data[: len(data) // 2], data[:-3], b"\x89PNG\r\n\x1a\n"):
        (tmp_path / "network.onnx").write_bytes(content)
        refused(tmp_path, ModelError, "is not an ONNX model, or it is truncated")


def test_damaged_models_never_end_in_a_traceback(tmp_path: Path) -> None:
    """Bytes changed at random: loaded or refused."""
    nodes = [_constant("c", value_ints=[2, 1]), ADD, helper.make_node("Reshape", ["y", "c"], ["z"], "r")]
    data = model(nodes, {"x": [2]}, ["z"], {"k": np.ones(2, np.float32)}).SerializeToString()
    random = np.random.default_rng(1)
    for _ in range(300):
        damaged = bytearray(data)
        for position in random.integers(0, len(data), random.integers(1, 4)):
            damaged[position] = random.integers(256)
        (tmp_path / "network.onnx").write_bytes(damaged)
        try:
            load(tmp_path)
        except ModelError as error:
            assert error.problems


def test_malformed_initializer(tmp_path: Path) -> None:
    bad = onnx.TensorProto(name="k", data_type=FLOAT, dims=[3], raw_data=b"12345678")
    save(tmp_path, model([ADD], {"x": [3]}, constants=[bad]))
    refused(tmp_path, ModelError, "constant 'k' cannot be used", "does not match its shape [3]")


def test_all_refusals_at_once(tmp_path: Path) -> None:
    """Sparse constants, subgraphs, unknown operators, an unsupported attribute and a dynamic dimension in one error."""
    body = helper.make_graph([], "body", [], [])
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], "f", domain="com.example"),
        helper.make_node("Frobnicate", ["a"], ["b"], "f2", domain="com.example"),
        helper.make_node("If", ["b"], ["c"], "i", then_branch=body, else_branch=body),
        helper.make_node("Reshape", ["z", "s"], ["d"], "r", allowzero=1),
        helper.make_node("Add", ["c", "d"], ["y"], "n"),
    ]
    proto = model(nodes, {"x": [2], "z": [2]}, constants={"s": np.array([2])})
    values, indices = numpy_helper.from_array(np.ones(1, np.float32), "sp"), numpy_helper.from_array(np.zeros(1, np.int64))
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    error = refused(
        save(tmp_path, proto),
        ModelError,
        "sparse constant 'sp'",
        "Frobnicate of domain com.example is not supported (and 1 more nodes)",
        "deeploy ops",
        "subgraph",
        "'then_branch'",
        "node 'r' (Reshape) attribute 'allowzero'",
    )
    assert error.exit_code is ExitCode.NOT_SUPPORTED


def test_sequence_input(tmp_path: Path) -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"], "n")], {"x": [2]})
    proto.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", FLOAT, [2]))
    refused(save(tmp_path, proto), ModelError, "input 'x' is a sequence")


def test_constants_made_by_normalising_get_unique_names(tmp_path: Path) -> None:
    nodes = [helper.make_node("Clip", [a], [b], f"n{a}", min=0.0, max=6.0) for a, b in (("x", "t"), ("t", "y"))]
    save(tmp_path, model(nodes, {"x": [2]}, opset=6))
    result = load(tmp_path)
    assert len({t.name for n in result.graph.nodes for t in n.inputs}) == 6


def test_overridable(tmp_path: Path) -> None:
    proto = model([ADD], {"x": [2], "k": [2]}, constants={"k": np.ones(2, np.float32)})
    result = load(save(tmp_path, proto))
    assert result.input_names == ["x"] and result.overridable == {"k"}
    assert any("cannot be overridden: 'k'" in note for note in result.notes)
    proto.ir_version = 3
    assert load(save(tmp_path, proto)).overridable == set()


REQUANT = helper.make_node("RequantShift", ["t", "mul", "add"], ["y"], "rq", domain="any", div=16.0, n_levels=256.0, signed=1)


def _integer_model(weight: np.ndarray, mul: np.ndarray, elem: int = FLOAT) -> onnx.ModelProto:
    constants = {"w": weight, "mul": mul, "add": np.zeros(1, np.float32)}
    return model([helper.make_node("MatMul", ["x", "w"], ["t"], "mm"), REQUANT], {"x": [1, 2]}, constants=constants, elem=elem)


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (np.array([[0, 255]]), dtypes.UINT8),
        (np.array([[0.0, 127.0]]), dtypes.INT8),
        (np.array([[-1, 200]], np.int32), dtypes.INT16),
        (np.zeros((1, 2)), dtypes.INT8),
        (None, dtypes.INT8),
    ],
)
def test_input_types_of_integer_networks(tmp_path: Path, array: np.ndarray | None, dtype: dtypes.DType) -> None:
    save(tmp_path, _integer_model(np.ones((2, 2), np.float32), np.float32([3])))
    if array is not None:
        np.savez(tmp_path / "inputs.npz", other_name=array, surplus=np.zeros(9))
    result = load(tmp_path)
    assert result.integers and result.values["x"].dtype is dtype
    assert any(f"input 'x': {dtype} [1, 2]" in note for note in result.notes)
    assert result.values["w"].dtype is dtypes.INT8 and result.values["mul"].dtype is dtypes.INT32
    assert [(r.node, r.slot, r.bytes) for r in result.readers] == [("mm", 1, 4), ("rq", 1, 4), ("rq", 2, 4)]
    assert load(tmp_path, input_types={"x": dtypes.INT16}).values["x"].dtype is dtypes.INT16


@pytest.mark.parametrize("array", [np.array([[0.5, 1]]), np.array([["no", "number"]])])
def test_stored_inputs_that_an_integer_network_cannot_read(tmp_path: Path, array: np.ndarray) -> None:
    """Without a node that quantises, fractions at an input are a mistake in the files."""
    save(tmp_path, _integer_model(np.ones((2, 2), np.float32), np.float32([3])), x=array)
    refused(tmp_path, UsageError, "'x'", "not made of whole numbers", "--input-type")
    assert load(tmp_path, input_types={"x": dtypes.INT16}).values["x"].dtype is dtypes.INT16


def test_one_constant_at_two_types(tmp_path: Path) -> None:
    nodes = [helper.make_node("RequantShift", ["x", "c", "c"], ["t"], "a"), helper.make_node("Add", ["t", "c"], ["y"], "b")]
    save(tmp_path, model(nodes, {"x": [2]}, constants={"c": np.float32([5, -200])}))
    result = load(tmp_path)
    first, second = result.graph.nodes
    assert first.inputs[1] is first.inputs[2] and first.inputs[1].values.dtype == np.int32 and first.inputs[1].name == "c"
    assert second.inputs[1].values.dtype == np.int16 and result.source_of == {second.inputs[1].name: "c"}
    assert [r.bytes for r in result.readers] == [8, 8, 4]


def test_constants_that_do_not_fit_an_integer_network(tmp_path: Path) -> None:
    save(tmp_path, _integer_model(np.float32([[1, 2], [3, 0.5]]), np.float32([2.0**40])))
    error = refused(tmp_path, ModelError, "node 'mm'", "'w' at input 1 is not made of whole numbers", "node 'rq'", "do not fit int32")
    assert len(error.problems) == 2


def test_input_type_option(tmp_path: Path) -> None:
    save(tmp_path, model([ADD], {"x": [2]}, constants={"k": np.ones(2, np.float32)}))
    refused(tmp_path, UsageError, "no such input", "'x'", input_types={"nope": dtypes.INT8})
    result = load(tmp_path, input_types={"x": dtypes.INT8})
    assert result.integers and result.values["y"].dtype is dtypes.INT8 and result.values["k"].dtype is dtypes.INT8
    save(tmp_path, model([helper.make_node("Relu", ["x"], ["y"], "n")], {"x": [2]}, elem=INT64, out_elem=INT64))
    assert load(tmp_path, input_types={"x": dtypes.INT32}).values["y"].dtype is dtypes.INT32
    refused(tmp_path, UsageError, "declares int64", input_types={"x": dtypes.FLOAT32})


def test_float_network_with_whole_constants_stays_float(tmp_path: Path) -> None:
    save(tmp_path, model([ADD], {"x": [2]}, constants={"k": np.zeros(2, np.float32)}), x=np.array([1, 2]))
    result = load(tmp_path)
    assert result.values["x"].dtype is dtypes.FLOAT32 and result.values["k"].dtype is dtypes.FLOAT32
    assert load_inputs(tmp_path, result)["x"].dtype == np.float32


def test_fixtures(tmp_path: Path) -> None:
    save(tmp_path, _integer_model(np.ones((2, 2), np.float32), np.float32([3])), a=np.array([[1.0, 2.0]]), b=np.zeros(1))
    np.savez(tmp_path / "outputs.npz", y=np.array([[1.0, 2.0]]))
    result = load(tmp_path)
    (array,) = load_inputs(tmp_path, result).values()
    assert array.dtype == np.int8 and array.tolist() == [[1, 2]]
    (golden,) = load_outputs(tmp_path, result)
    assert golden.dtype == np.int8 and golden.tolist() == [[1, 2]]
    np.savez(tmp_path / "outputs.npz", other=np.array([[1, 300]]))
    assert load_outputs(tmp_path, result)[0].tolist() == [[1, 300]]  # differs from every int8 result, and is not cut


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.zeros((2, 1)), "has shape [2, 1], the model needs [1, 2]"),
        (np.array([[1.5, 2]]), "not made of whole numbers"),
        (np.array([[0, 300]]), "do not fit int8. Give the input's type: --input-type x=int16"),
        (np.array([["a", "b"]]), "has type"),
    ],
)
def test_bad_inputs(tmp_path: Path, array: np.ndarray, text: str) -> None:
    save(tmp_path, _integer_model(np.ones((2, 2), np.float32), np.float32([3])))
    result = load(tmp_path)
    np.savez(tmp_path / "inputs.npz", x=array)
    with pytest.raises(UsageError, match="input 'x'") as info:
        load_inputs(tmp_path, result)
    assert text in str(info.value)


def test_unreadable_fixtures(tmp_path: Path) -> None:
    save(tmp_path, model([helper.make_node("Add", ["x", "z"], ["y"], "n")], {"x": [2], "z": [2]}))
    result = load(tmp_path)
    with pytest.raises(UsageError, match="No such file"):
        load_inputs(tmp_path, result)
    np.savez(tmp_path / "inputs.npz", x=np.zeros(2))
    with pytest.raises(UsageError, match="has 1 entries, but the model needs 2: x, z"):
        load_inputs(tmp_path, result)
    for content in (b"", b"junk" * 30, (tmp_path / "inputs.npz").read_bytes()[:100]):
        (tmp_path / "inputs.npz").write_bytes(content)
        with pytest.raises(UsageError, match="not an npz archive, or it is damaged"):
            load_inputs(tmp_path, result)
    np.savez(tmp_path / "inputs.npz", z=np.full(2, 1.0), x=np.full(2, 2.0))
    assert [a.tolist() for a in load_inputs(tmp_path, result).values()] == [[2, 2], [1, 1]]  # by name where all names are there
