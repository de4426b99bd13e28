"""Float and integer normalisations on the C kernels, against numpy written here, onnxruntime and stored goldens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from DeeployTest.one_node import Case, refused, run
from DeeployTest.oracles import corpus, evaluate, onnxruntime_node

QUICK = settings(max_examples=12, deadline=None)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(0.3, 1.5, shape).astype(np.float32)


@QUICK
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 999))
def test_layer_and_rms_normalization(shape: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    axis = int(rng.integers(0, len(shape)))
    x = normal(rng, *shape)
    scale, bias = normal(rng, *shape[axis:]), normal(rng, *shape[axis:])
    line = tuple(range(axis, len(shape)))
    kind = seed % 4
    d = x.astype(np.float64)
    d = d if kind >= 2 else d - d.mean(line, keepdims=True)
    want = d / np.sqrt((d * d).mean(line, keepdims=True) + 1e-3) * scale
    inputs, op, attributes = [x, scale], "LayerNormalization", {"axis": axis - len(shape), "epsilon": 1e-3}
    if kind == 0:
        inputs, want = [x, scale, bias], want + bias
    elif kind == 2:
        op = "RMSNormalization"
    elif kind == 3:
        op, attributes = "RMSNorm", {"axis": axis, "eps": 1e-3}
    constants = frozenset(range(1, len(inputs))) if seed % 3 else frozenset()
    got = run(Case(op, inputs, attributes, constants=constants, layouts={0: [int(i) for i in rng.permutation(len(shape))]}), seed=seed)
    np.testing.assert_allclose(got.device[0], want, 1e-4, 1e-4)
    np.testing.assert_allclose(got.reference[0], want, 1e-6, 1e-6)


def test_layer_normalization_agrees_with_onnxruntime_and_defaults() -> None:
    rng = np.random.default_rng(3)
    inputs = [normal(rng, 2, 3, 16), normal(rng, 16), normal(rng, 16)]
    want = onnxruntime_node("LayerNormalization", inputs, {})[0]
    np.testing.assert_allclose(run(Case("LayerNormalization", inputs, {})).device[0], want, 1e-4, 1e-5)


def test_rms_norm_default_epsilon_differs_by_name() -> None:
    x, w = np.full((1, 4), 1e-3, np.float32), np.ones(4, np.float32)
    custom = run(Case("RMSNorm", [x, w], {})).device[0]
    standard = run(Case("RMSNormalization", [x, w], {})).device[0]
    np.testing.assert_allclose(custom, x / np.sqrt(2e-6), 1e-5)
    np.testing.assert_allclose(standard, x / np.sqrt(1.1e-5), 1e-5)


def test_splat_scale_is_an_immediate() -> None:
    x = normal(np.random.default_rng(0), 3, 8)
    inputs = [x, np.full(8, 2, np.float32), np.zeros(8, np.float32)]
    got = run(Case("LayerNormalization", inputs, {}, constants=frozenset({1, 2})))
    d = x - x.mean(-1, keepdims=True)
    np.testing.assert_allclose(got.device[0], 2 * d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5), 1e-4, 1e-5)


def test_layer_normalization_refusals() -> None:
    x, w = np.zeros((2, 3), np.float32), np.zeros(3, np.float32)
    assert "first output" in refused(Case("RMSNormalization", [x, w], {}, outputs=2))
    assert "no elements" in refused(Case("LayerNormalization", [x[:, :0], w[:0]], {}, outputs=3))
    assert "axis 5" in refused(Case("LayerNormalization", [x, w], {"axis": 5}))
    assert "broadcast" in refused(Case("LayerNormalization", [x, np.zeros(2, np.float32)], {}))
    assert "int8" in refused(Case("LayerNormalization", [x.astype(np.int8), w], {}))


@QUICK
@given(st.integers(0, 999))
def test_channel_norms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups, per = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    x = normal(rng, int(rng.integers(1, 3)), groups * per, *rng.integers(1, 5, int(rng.integers(1, 3))))
    instance = bool(seed % 3 == 0)
    size = groups if seed % 3 == 1 else groups * per
    scale, bias = normal(rng, size), normal(rng, size)
    parts = groups * per if instance else groups
    g = x.astype(np.float64).reshape(x.shape[0], parts, -1)
    y = ((g - g.mean(-1, keepdims=True)) / np.sqrt(g.var(-1, keepdims=True) + 1e-2)).reshape(x.shape)
    shape = (-1,) + (1,) * (x.ndim - 2)
    want = y * np.repeat(scale, x.shape[1] // size).reshape(shape) + np.repeat(bias, x.shape[1] // size).reshape(shape)
    op, attributes = ("InstanceNormalization", {}) if instance else ("GroupNormalization", {"num_groups": groups})
    layouts = {0: [int(i) for i in rng.permutation(x.ndim)]}
    got = run(Case(op, [x, scale, bias], attributes | {"epsilon": 1e-2}, layouts=layouts), seed=seed)
    np.testing.assert_allclose(got.device[0], want, 1e-4, 1e-4)
    np.testing.assert_allclose(got.reference[0], want, 1e-5, 1e-5)


@QUICK
@given(st.integers(0, 999))
def test_batch_normalization(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = normal(rng, *rng.integers(1, 5, int(rng.integers(2, 5))))
    c = x.shape[1]
    tables = [normal(rng, c), normal(rng, c), normal(rng, c), np.abs(normal(rng, c))]
    shape = (-1,) + (1,) * (x.ndim - 2)
    s, b, m, v = (t.reshape(shape) for t in tables)
    layouts = {0: [int(i) for i in rng.permutation(x.ndim)]}
    constants = frozenset(range(1, 5)) if seed % 2 else frozenset()
    got = run(Case("BatchNormalization", [x, *tables], {"epsilon": 1e-3}, layouts=layouts, constants=constants), seed=seed)
    np.testing.assert_allclose(got.device[0], (x - m) / np.sqrt(v + 1e-3) * s + b, 1e-4, 1e-4)


def test_batch_normalization_training_mode_is_refused() -> None:
    x, t = np.zeros((1, 2, 3), np.float32), np.zeros(2, np.float32)
    assert "training" in refused(Case("BatchNormalization", [x, t, t, t, t], {"training_mode": 1}))


@QUICK
@given(st.sampled_from([np.int8, np.uint8, np.int16, np.int32]), st.booleans(), st.integers(0, 999))
def test_integer_norms(dtype, centre: bool, seed: int) -> None:  # noqa: ANN001
    rng = np.random.default_rng(seed)
    length = int(rng.integers(1, 40))
    shape = (*rng.integers(1, 4, 2), length)
    limit = np.iinfo(dtype) if dtype != np.int32 else np.iinfo(np.int16)
    x = rng.integers(limit.min, limit.max + 1, shape).astype(dtype)
    w = rng.integers(-30000, 30000, length).astype(np.int32)
    inputs = [x, w, rng.integers(-(2**20), 2**20, length).astype(np.int32)] if centre else [x, w]
    op, attributes = ("iLayerNorm" if centre else "iRMSNorm"), {"D": np.float32(2**16), "n_levels": 256.0}
    ranges = {0: (-(2**27), 2**27) if seed % 2 else (-(2**15), 2**15)} if dtype == np.int32 else None
    constants = frozenset({1, 2}) if centre else frozenset({1})
    case = Case(op, inputs, attributes, ranges=ranges, integers=True, constants=constants, layouts={0: (2, 0, 1)})
    got = run(case, seed=seed)
    want = evaluate(op, inputs, attributes)
    want = want.astype(np.int64).astype(np.int8)
    assert got.device[0].dtype == np.int8
    np.testing.assert_array_equal(got.device[0], want)
    np.testing.assert_array_equal(got.reference[0], want)


def test_integer_layer_norm_wraps_alike_without_a_clamp() -> None:
    x = np.array([[100, -100, 3, 7]], np.int8)
    w, b = np.full(4, 700, np.int32), np.array([0, 5, -900, 9], np.int32)
    got = run(Case("iLayerNorm", [x, w, b], {"D": 2}, integers=True, constants=frozenset({1, 2})))
    exact = evaluate("iLayerNorm", [x, w, b], {"D": 2}).astype(np.int64)
    assert np.abs(exact).max() > 127
    np.testing.assert_array_equal(got.device[0], exact.astype(np.int8))
    np.testing.assert_array_equal(got.reference[0], exact.astype(np.int8))


def test_integer_norm_proves_its_range() -> None:
    x = np.zeros((1, 4), np.int8)
    w, b = np.array([1, 2, 3, 4], np.int32), np.array([-7, 0, 0, 9], np.int32)
    got = run(Case("iLayerNorm", [x, w, b], {"D": 256}, integers=True, constants=frozenset({1, 2})))
    assert (got.values[0].lo, got.values[0].hi) == ((-255 * 4 - 7) >> 8, (255 * 4 + 9) >> 8)


def test_integer_norm_refusals() -> None:
    x, w = np.zeros((1, 4), np.int8), np.zeros(4, np.int32)
    assert "power of two" in refused(Case("iRMSNorm", [x, w], {"D": 3}, integers=True))
    assert "int32" in refused(Case("iRMSNorm", [x, w.astype(np.int8)], {"D": 2}, integers=True))
    assert "64 bits" in refused(Case("iRMSNorm", [x.astype(np.int32), w], {"D": 2}, integers=True))
    assert "missing" in refused(Case("iRMSNorm", [x, w], {}, integers=True))


@pytest.mark.corpus
@pytest.mark.parametrize("folder", ["FP32/RMSNorm/single_fused_op", "FP32/GroupNorm", "FP32/InstanceNorm", "FP32/Softmax"])
def test_stored_goldens(folder: str) -> None:
    onnx = pytest.importorskip("onnx")
    found = sorted(corpus(Path("deeploy/Kernels") / folder).rglob("network.onnx"))
    assert found
    for path in found:
        graph = onnx.load(path).graph
        node = graph.node[0]
        if len(graph.node) != 1 or node.op_type.endswith(("Loss", "Grad")):
            continue
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        known = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
        files = list(np.load(path.parent / "inputs.npz").values())
        shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in graph.input}
        names = [n for n in node.input]
        given = iter(files)
        inputs = [known[n] if n in known else next(given).astype(np.float32).reshape(shapes[n]) for n in names]
        want = next(iter(np.load(path.parent / "outputs.npz").values()))
        constants = frozenset(i for i, n in enumerate(names) if n in known)
        got = run(Case(node.op_type, inputs, attributes, constants=constants))
        np.testing.assert_allclose(got.device[0].ravel(), want.ravel(), 1e-5, 1e-4)
