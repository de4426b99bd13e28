"""Reductions on the C kernels, split in any way, against numpy written here, onnxruntime and stored goldens."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Deeploy.errors import Problem
from Deeploy.operators.base import find
from Deeploy.program.dtypes import INT32, INT64
from DeeployTest.one_node import Case, refused, run
from DeeployTest.oracles import corpus, evaluate, onnxruntime_node

QUICK = settings(max_examples=25, deadline=None)
FLOAT_OPS = {
    "ReduceSum": lambda x, a: x.sum(a, keepdims=True),
    "ReduceMean": lambda x, a: x.mean(a, keepdims=True),
    "ReduceMax": lambda x, a: x.max(a, keepdims=True),
    "ReduceMin": lambda x, a: x.min(a, keepdims=True),
    "ReduceProd": lambda x, a: x.prod(a, keepdims=True),
    "ReduceL1": lambda x, a: np.abs(x).sum(a, keepdims=True),
    "ReduceL2": lambda x, a: np.sqrt((x * x).sum(a, keepdims=True)),
    "ReduceSumSquare": lambda x, a: (x * x).sum(a, keepdims=True),
    "ReduceLogSum": lambda x, a: np.log(x.sum(a, keepdims=True)),
}


def chosen(rng: np.random.Generator, rank: int) -> list[int]:
    """Some axes, some of them negative."""
    axes = rng.permutation(rank)[: int(rng.integers(1, rank + 1))]
    return [int(a) - (rank if rng.random() < 0.5 else 0) for a in axes]


@QUICK
@given(st.sampled_from(sorted(FLOAT_OPS)), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 999))
def test_float_reductions(op: str, shape: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = (np.abs(rng.normal(0, 1, shape)) + 0.1).astype(np.float32)
    axes = chosen(rng, len(shape))
    case = Case(op, [x], {"axes": axes, "keepdims": seed % 2}, layouts={0: [int(i) for i in rng.permutation(len(shape))]})
    got = run(case, trials=4, seed=seed)
    want = FLOAT_OPS[op](x.astype(np.float64), tuple(axes))
    want = want if seed % 2 else want.squeeze(tuple(axes))
    np.testing.assert_allclose(got.device[0], want, 1e-4, 1e-5)
    np.testing.assert_allclose(got.reference[0], want, 1e-6, 1e-6)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_extremes_keep_nan_and_infinities(op: str) -> None:
    x = np.array([[1, np.nan, 3], [-np.inf, 2, np.inf], [-np.inf] * 3], np.float32)
    want = (np.max if op == "ReduceMax" else np.min)(x, 1, keepdims=True)
    np.testing.assert_array_equal(run(Case(op, [x], {"axes": [1]}), trials=5).device[0], want)


@QUICK
@given(
    st.sampled_from(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceSumSquare", "IntegerMean"]),
    st.sampled_from([np.int8, np.uint8, np.int16, np.uint16, np.int32]),
    st.integers(0, 999),
)
def test_integer_format_reductions(op: str, dtype, seed: int) -> None:  # noqa: ANN001
    rng = np.random.default_rng(seed)
    shape = [int(n) for n in rng.integers(1, 5, int(rng.integers(1, 4)))]
    limit = np.iinfo(dtype)
    largest = {"ReduceProd": 3 if math.prod(shape) < 40 else 1, "ReduceSumSquare": 1 << 28}.get(op, 1 << 31)  # within 64 bits
    bounds = (max(-largest, int(limit.min)), min(largest, int(limit.max)))
    x = rng.integers(bounds[0], bounds[1] + 1, shape, dtype=np.int64).astype(dtype)
    axes = chosen(rng, len(shape))
    case = Case(op, [x], {"axes": axes}, ranges={0: bounds}, integers=True, layouts={0: [int(i) for i in rng.permutation(len(shape))]})
    got = run(case, trials=4, seed=seed)
    exact = x.astype(np.int64)
    if "Mean" in op:
        count = int(np.prod([shape[a] for a in axes]))
        total = exact.sum(tuple(axes), keepdims=True)
        half_up = np.floor(total / count + 0.5)
        away = np.trunc((total + np.where(total >= 0, 1, -1) * (count // 2)) / count)
        want = half_up if count & (count - 1) == 0 else away
    else:
        want = FLOAT_OPS[op](exact, tuple(axes))
    np.testing.assert_array_equal(got.device[0].astype(np.int64), want.astype(np.int64))
    np.testing.assert_array_equal(got.reference[0], got.device[0])


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "IntegerMean", "ReduceSumSquare", "ReduceProd", "ReduceL1"])
def test_integers_that_may_leave_64_bits_are_refused(op: str) -> None:
    x = np.zeros((8192,), np.int64)
    assert "64 bits" in refused(Case(op, [x], {"axes": [0]}, ranges={0: (-(1 << 61), 1 << 61)}, integers=True))
    limit = {"ReduceProd": 1, "ReduceSumSquare": 1 << 24}.get(op, 1 << 49)
    assert not problems(Case(op, [x], {"axes": [0]}, ranges={0: (-limit, limit)}, integers=True))


def test_means_count_their_half_and_sums_of_integer_tensors_wrap_as_onnx_says() -> None:
    x = np.zeros((4,), np.int64)
    top = ((1 << 63) - 1) // 4  # four of them leave room for 3, a half takes 2
    assert not problems(Case("ReduceMean", [x], {"axes": [0]}, ranges={0: (0, top)}, integers=True))
    assert not problems(Case("ReduceSum", [x], {"axes": [0]}, ranges={0: (-(1 << 61), top)}, integers=True))
    assert "64 bits" in refused(Case("ReduceMean", [x], {"axes": [0]}, ranges={0: (-(1 << 61), top)}, integers=True))
    assert not problems(Case("ReduceMean", [x], {"axes": [0]}, ranges={0: (-(1 << 61), top)}))
    assert "64 bits" in refused(Case("ReduceMean", [x], {"axes": [0]}))
    assert not problems(Case("ReduceSum", [x], {"axes": [0]})) and not problems(Case("ReduceMean", [x.astype(np.uint32)], {"axes": [0]}))
    assert not problems(Case("ReduceMean", [x], {"axes": [], "noop_with_empty_axes": 1}))


def problems(case: Case) -> list[Problem]:
    operator = find(case.op, "")
    assert operator is not None
    return operator.problems(case.node())


def test_integer_mean_agrees_with_the_corpus_oracle() -> None:
    x = np.random.default_rng(2).integers(-128, 128, (2, 7, 5)).astype(np.int8)
    got = run(Case("IntegerMean", [x], {"axes": [1], "keepdims": 0}, integers=True)).device[0]
    np.testing.assert_array_equal(got, evaluate("IntegerMean", [x], {"axes": [1], "keepdims": 0}))


def test_sums_widen_by_range() -> None:
    x = np.full((1, 4), 2**30, np.int32)
    wide = run(Case("ReduceSum", [x], {"axes": [1]}, integers=True))
    assert wide.values[0].dtype == INT64 and wide.device[0].item() == 2**32
    narrow = run(Case("ReduceSum", [x // 4], {"axes": [1]}, ranges={0: (0, 2**28)}, integers=True))
    assert narrow.values[0].dtype == INT32 and narrow.program.steps[0].accumulator == INT32
    mean = run(Case("ReduceMean", [x], {"axes": [1]}, integers=True))
    assert mean.program.steps[0].accumulator == INT64 and mean.device[0].item() == 2**30


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_true_integers_wrap_around_as_in_onnx(dtype) -> None:  # noqa: ANN001
    x = np.full((2, 3), np.iinfo(dtype).max - 5, dtype)
    with np.errstate(over="ignore"):
        want = x.sum(1, dtype=dtype)
    got = run(Case("ReduceSum", [x], {"axes": [1], "keepdims": 0}))
    assert got.device[0].dtype == dtype
    np.testing.assert_array_equal(got.device[0], want)
    np.testing.assert_array_equal(got.reference[0], want)


def test_true_integer_mean_as_onnxruntime() -> None:
    x = np.array([[-7, 0, 0, 0], [7, 0, 0, 0], [-8, -8, 1, 0]], np.int32)
    want = onnxruntime_node("ReduceMean", [x], {"axes": [1]}, opset=13)[0]
    got = run(Case("ReduceMean", [x], {"axes": [1]}))
    np.testing.assert_array_equal(got.device[0], want)
    np.testing.assert_array_equal(got.reference[0], want)


def test_float_sums_follow_one_chain() -> None:
    rng = np.random.default_rng(5)
    x = (rng.normal(size=(3, 40, 7)) * 10.0 ** rng.integers(-4, 5, (3, 40, 7))).astype(np.float32)
    got = run(Case("ReduceSum", [x], {"axes": [0, 2], "keepdims": 0}), trials=6).device[0]
    want = np.zeros(40, np.float32)
    for i in range(3):
        for k in range(7):
            want += x[i, :, k]
    np.testing.assert_array_equal(got, want)


def test_no_axes() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert run(Case("ReduceSum", [x], {})).device[0].item() == 15
    assert run(Case("ReduceSum", [x], {"axes": []})).device[0].item() == 15
    for attributes in ({"noop_with_empty_axes": 1}, {"axes": np.zeros(0, np.int64), "noop_with_empty_axes": 1}):
        same = run(Case("ReduceSum", [x], attributes))
        assert not same.program.steps
        np.testing.assert_array_equal(same.device[0], x)


def test_refusals() -> None:
    x = np.zeros((2, 0), np.float32)
    assert "length 0" in refused(Case("ReduceMean", [x], {"axes": [1]}))
    assert "axis 3" in refused(Case("ReduceMean", [x], {"axes": [3]}))
    assert "uint64" in refused(Case("ReduceSum", [np.zeros((2, 2), np.uint64)], {"axes": [1]}))
    assert "int8" in refused(Case("ReduceL2", [np.zeros((2, 2), np.int8)], {"axes": [1]}))


@QUICK
@given(st.sampled_from([np.float32, np.int8, np.uint8, np.int32, np.int64]), st.booleans(), st.integers(0, 999))
def test_arg_max_and_min(dtype, smallest: bool, seed: int) -> None:  # noqa: ANN001
    rng = np.random.default_rng(seed)
    shape = [int(n) for n in rng.integers(1, 6, int(rng.integers(1, 4)))]
    x = rng.integers(0, 4, shape).astype(dtype)
    axis, last = int(rng.integers(-len(shape), len(shape))), seed % 2
    find = np.argmin if smallest else np.argmax
    want = x.shape[axis] - 1 - find(np.flip(x, axis), axis) if last else find(x, axis)
    attributes = {"axis": axis, "keepdims": seed % 3 % 2, "select_last_index": last}
    layouts = {0: [int(i) for i in rng.permutation(len(shape))]}
    got = run(Case("ArgMin" if smallest else "ArgMax", [x], attributes, layouts=layouts), seed=seed)
    assert got.device[0].dtype == np.int64
    np.testing.assert_array_equal(got.device[0].ravel(), want.ravel())
    np.testing.assert_array_equal(got.reference[0], got.device[0])


@pytest.mark.corpus
@pytest.mark.parametrize("kind", ["Integer", "FP32"])
def test_stored_goldens(kind: str) -> None:
    onnx = pytest.importorskip("onnx")
    found = sorted(corpus(Path("deeploy/Kernels") / kind / "ReduceMean").rglob("network.onnx"))
    assert found
    for path in found:
        graph = onnx.load(path).graph
        nodes = [n for n in graph.node if n.op_type != "Constant"]
        if len(nodes) != 1:
            continue
        (node,) = nodes
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        known = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
        if len(node.input) > 1:
            attributes["axes"] = known[node.input[1]]
        x, y = (next(iter(np.load(path.parent / f"{name}.npz").values())) for name in ("inputs", "outputs"))
        x = x.astype(np.float32 if kind == "FP32" else np.int8)
        got = run(Case(node.op_type, [x], attributes, integers=kind == "Integer")).device[0]
        if kind == "Integer":
            np.testing.assert_array_equal(got.ravel(), np.floor(y.ravel() + 0.5))
        else:
            np.testing.assert_allclose(got.ravel(), y.ravel(), 1e-5, 1e-5)
