"""Softmax and its integer approximations on the C kernels, against numpy written here, onnxruntime and stored goldens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Deeploy.operators.base import find
from DeeployTest.one_node import Case, refused, run
from DeeployTest.oracles import corpus, evaluate

QUICK = settings(max_examples=12, deadline=None)


def softmax(x: np.ndarray, axis) -> np.ndarray:  # noqa: ANN001
    x = x.astype(np.float64)
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@QUICK
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 99), st.booleans())
def test_softmax_any_axis_and_layout(shape: list[int], seed: int, log: bool) -> None:
    rng = np.random.default_rng(seed)
    axis = int(rng.integers(-len(shape), len(shape)))
    x = rng.normal(0, 4, shape).astype(np.float32)
    layouts = {0: [int(i) for i in rng.permutation(len(shape))]}
    got = run(Case("LogSoftmax" if log else "Softmax", [x], {"axis": axis}, layouts=layouts), seed=seed)
    want = softmax(x, axis)
    want = np.log(want) if log else want
    np.testing.assert_allclose(got.device[0], want, 2e-5, 1e-6)
    np.testing.assert_allclose(got.reference[0], want, 1e-6, 1e-7)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_before_opset_13_flattens(op: str) -> None:
    x = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
    want = softmax(x.reshape(2, 12), 1).reshape(x.shape)
    got = run(Case(op, [x], {"axis": 1, "coerce": 1}, layouts={0: (2, 0, 1)}))
    np.testing.assert_allclose(got.device[0], np.log(want) if op == "LogSoftmax" else want, 2e-5, 1e-6)


@pytest.mark.parametrize(
    ("opset", "other", "attributes"),
    [
        (11, "Relu", {"axis": 1, "coerce": 1}),
        (13, "Relu", {"axis": -1}),
        (10, "RMSNorm", {"axis": -1, "assumed": 10}),
        (10, "iSoftmax", {"axis": -1, "assumed": 10}),
    ],
)
def test_softmax_default_axis(opset: int, other: str, attributes: dict) -> None:
    """Files in the Deeploy format mean the last axis whatever opset they declare."""
    gs = pytest.importorskip("onnx_graphsurgeon")
    x, y, z = (gs.Variable(name, np.float32, (2, 3)) for name in "xyz")
    nodes = [gs.Node(other, inputs=[x], outputs=[y]), gs.Node("Softmax", inputs=[y], outputs=[z])]
    find("Softmax", "").normalise(nodes[1], opset)
    assert nodes[1].attrs == attributes
    explicit = gs.Node("Softmax", attrs={"axis": 0}, inputs=[y], outputs=[z])
    find("Softmax", "").normalise(explicit, opset)
    assert explicit.attrs["axis"] == 0 and "assumed" not in explicit.attrs


def test_softmax_large_values_do_not_overflow() -> None:
    x = np.array([[1e4, -1e4, 1e4], [-np.inf, 0.0, 1.0]], np.float32)
    np.testing.assert_allclose(run(Case("Softmax", [x], {"axis": -1})).device[0], softmax(x, -1), 1e-5)


def test_softmax_of_integers_is_refused() -> None:
    assert "float32" in refused(Case("Softmax", [np.zeros((2, 3), np.int8)], {"axis": -1}))
    assert "axis 2" in refused(Case("Softmax", [np.zeros((2, 3), np.float32)], {"axis": 2}))


ISOFTMAX = {"coeffA": np.float32(1), "coeffB": np.array([68.0]), "coeffC": 2418.0, "log2": 50.0, "n_levels": 256.0}


@QUICK
@given(st.sampled_from([np.int8, np.uint8, np.int16, np.int32]), st.integers(0, 99))
def test_isoftmax(dtype, seed: int) -> None:  # noqa: ANN001
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 7, 3))
    limit = np.iinfo(dtype) if dtype != np.int32 else np.iinfo(np.int16)
    x = rng.integers(limit.min, limit.max + 1, shape).astype(dtype)
    ranges = {0: (-40000, 40000)} if dtype == np.int32 else None
    attributes = ISOFTMAX if seed % 2 else ISOFTMAX | {"coeffB": 13, "coeffC": 85, "log2": 9}
    got = run(Case("iSoftmax", [x], attributes, ranges=ranges, integers=True, layouts={0: (1, 2, 0)}), seed=seed)
    assert got.device[0].dtype == np.uint8
    np.testing.assert_array_equal(got.device[0], evaluate("iSoftmax", [x], attributes))
    np.testing.assert_array_equal(got.reference[0], got.device[0])


def test_isoftmax_widens_when_the_range_asks_for_it() -> None:
    x = np.array([[-3_000_000, 5, 7]], np.int32)
    narrow = run(Case("iSoftmax", [np.maximum(x, -2000)], ISOFTMAX, ranges={0: (-2000, 2000)}, integers=True))
    wide = run(Case("iSoftmax", [x], ISOFTMAX, ranges={0: (-3_000_000, 3_000_000)}, integers=True))
    assert narrow.program.steps[0].calls[0].kernel.symbol.endswith("i32_32")
    assert wide.program.steps[0].calls[0].kernel.symbol.endswith("i32_64")
    np.testing.assert_array_equal(wide.device[0], wide.reference[0])


def test_isoftmax_squares_count_where_their_factor_is_zero() -> None:
    x = np.array([[0, -7, 40]], np.int8)
    for b, symbol in ((46000, "i8_32"), (46341, "i8_64"), (1 << 30, "i8_64")):
        attributes = {"coeffA": 0, "coeffB": b, "coeffC": 100, "log2": 5, "n_levels": 256}
        got = run(Case("iSoftmax", [x], attributes, integers=True))
        assert got.program.steps[0].calls[0].kernel.symbol.endswith(symbol)
        np.testing.assert_array_equal(got.device[0], got.reference[0])
    wide = {"coeffA": 0, "coeffB": 1 << 30, "coeffC": 1, "log2": 1 << 30, "n_levels": 256}
    assert "64 bits" in refused(Case("iSoftmax", [x.astype(np.int32)], wide | {"coeffB": -(1 << 31) + 1}, integers=True))


def test_isoftmax_refusals() -> None:
    x = np.zeros((2, 4), np.int32)
    assert "64 bits" in refused(Case("iSoftmax", [x], ISOFTMAX | {"coeffA": 2**20, "log2": 2**30}, integers=True))
    assert "log2" in refused(Case("iSoftmax", [x.astype(np.int8)], ISOFTMAX | {"log2": 0}, integers=True))
    assert "sum" in refused(Case("iSoftmax", [x.astype(np.int8)], ISOFTMAX | {"coeffC": -9}, integers=True))
    assert "n_levels" in refused(Case("iSoftmax", [x.astype(np.int8)], ISOFTMAX | {"n_levels": 512}, integers=True))
    assert "missing" in refused(Case("iSoftmax", [x.astype(np.int8)], {"n_levels": 256}, integers=True))


@QUICK
@given(st.sampled_from([np.int8, np.uint8, np.int16, np.int32]), st.booleans(), st.integers(0, 99))
def test_ita_max(dtype, partial: bool, seed: int) -> None:  # noqa: ANN001
    rng = np.random.default_rng(seed)
    group = int(rng.integers(1, 5))
    limit = np.iinfo(dtype)
    low = max(limit.min, -128) if partial else limit.min
    x = rng.integers(low, limit.max + 1, (*rng.integers(1, 4, 2), group * int(rng.integers(1, 4))), dtype=np.int64).astype(dtype)
    attributes = {"n_levels": 256, "group_width": group} if partial else {"n_levels": 256}
    op = "ITAPartialMax" if partial else "ITAMax"
    got = run(Case(op, [x], attributes, ranges={0: (low, int(limit.max))}, integers=True, layouts={0: (2, 0, 1)}), seed=seed)
    np.testing.assert_array_equal(got.device[0], evaluate(op, [x], attributes))
    np.testing.assert_array_equal(got.reference[0], got.device[0])


def test_ita_partial_max_refusals() -> None:
    x = np.zeros((2, 6), np.int16)
    assert "multiple" in refused(Case("ITAPartialMax", [x], {"n_levels": 256, "group_width": 4}, integers=True))
    assert "-128" in refused(Case("ITAPartialMax", [x], {"n_levels": 256, "group_width": 3}, integers=True))


@pytest.mark.corpus
def test_stored_golden_isoftmax() -> None:
    onnx = pytest.importorskip("onnx")
    folder = corpus(Path("deeploy/Kernels/Integer/Softmax"))
    found = sorted(folder.rglob("network.onnx"))
    assert found
    for path in found:
        (node,) = onnx.load(path).graph.node
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        attributes = {k: onnx.numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v for k, v in attributes.items()}
        x, y = (next(iter(np.load(path.parent / f"{name}.npz").values())) for name in ("inputs", "outputs"))
        x = x.astype(np.int8 if x.min() >= -128 and x.max() < 128 else np.uint8)
        np.testing.assert_array_equal(run(Case(node.op_type, [x], attributes, integers=True)).device[0].ravel(), y.ravel())
