"""Element-wise operators on the C kernels under random tilings, against numpy written here, onnxruntime and stored goldens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Deeploy import operators
from Deeploy.errors import ModelError
from Deeploy.operators.base import find
from Deeploy.operators.broadcasting import merge_axes
from DeeployTest.one_node import Case, refused, run
from DeeployTest.oracles import onnxruntime_node

operators.load_all()

QUICK = settings(max_examples=15, deadline=None)
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def floats(rng: np.random.Generator, shape: Any, scale: float = 3.0) -> np.ndarray:
    return rng.normal(0, scale, shape).astype(np.float32)


def whole(rng: np.random.Generator, shape: Any, dtype: Any) -> np.ndarray:
    """Integers over the whole range of a type, its ends included."""
    info = np.iinfo(dtype)
    array = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    flat = array.reshape(-1)
    ends = [info.min, info.max, 0, 1]
    for i, value in zip(rng.permutation(flat.size)[:4], ends, strict=False):
        flat[i] = value
    return array


@st.composite
def broadcast_case(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Two shapes that broadcast to each other, and a seed."""
    full = draw(st.lists(st.integers(1, 4), min_size=0, max_size=6))
    shapes = []
    for _ in range(2):
        kept = [n if draw(st.booleans()) else 1 for n in full]
        shapes.append(tuple(kept[draw(st.integers(0, len(full))) :]))
    return shapes[0], shapes[1], draw(st.integers(0, 999))


# ---- iteration spaces


def test_dense_operands_have_one_axis() -> None:
    assert merge_axes((2, 3, 4), [(12, 4, 1), (12, 4, 1)]) == ([24], [[1], [1]])


def test_channels_and_scalars_need_few_axes() -> None:
    sizes, strides = merge_axes((1, 8, 5, 6), [(240, 30, 6, 1), (0, 1, 0, 0), (0, 0, 0, 0), (240, 30, 6, 1)])
    assert sizes == [8, 30] and strides == [[30, 1], [1, 0], [0, 0], [30, 1]]


@QUICK
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(0, 999))
def test_merging_visits_the_same_elements(shape: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(shape))
    dense = np.arange(math.prod(shape)).reshape([shape[d] for d in order]).transpose(np.argsort(order))
    other = np.broadcast_to(np.arange(math.prod(shape)).reshape(shape)[..., :1], shape)
    plain = np.arange(math.prod(shape)).reshape(shape)
    arrays = [dense, other, plain]
    sizes, strides = merge_axes(shape, [[s // a.itemsize for s in a.strides] for a in arrays])
    visited = [sorted(zip(*(a.reshape(-1).tolist() for a in arrays), strict=True))]
    points = np.indices(sizes).reshape(len(sizes), -1).T
    visited.append(sorted(tuple(int(p @ np.array(s)) for s in strides) for p in points))
    offsets = [{int(a.flat[0]) for a in arrays}]
    assert offsets == [{0}] and visited[0] == visited[1]


# ---- arithmetic

BINARY = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Min": np.minimum, "Max": np.maximum}


@QUICK
@given(broadcast_case(), st.sampled_from(sorted(BINARY)), st.booleans(), st.booleans())
def test_float_arithmetic_broadcasts(case: tuple, op: str, first_constant: bool, views: bool) -> None:
    a_shape, b_shape, seed = case
    rng = np.random.default_rng(seed)
    a, b = floats(rng, a_shape), floats(rng, b_shape) + np.float32(0.1)
    layouts = {i: [int(d) for d in rng.permutation(x.ndim)] for i, x in enumerate((a, b)) if x.ndim} if views else {}
    constants = frozenset({0} if first_constant else {1} if seed % 2 else ())
    got = run(Case(op, [a, b], {}, constants=constants, layouts=layouts), seed=seed)
    want = BINARY[op](a.astype(np.float64), b.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(got.device[0], want)
    np.testing.assert_array_equal(got.reference[0], want)


@QUICK
@given(broadcast_case(), st.sampled_from(["Add", "Sub", "Mul", "Min", "Max"]), st.sampled_from(INTEGERS))
def test_true_integers_wrap_around(case: tuple, op: str, dtype: Any) -> None:
    a_shape, b_shape, seed = case
    rng = np.random.default_rng(seed)
    a, b = whole(rng, a_shape, dtype), whole(rng, b_shape, dtype)
    got = run(Case(op, [a, b], {}), seed=seed)
    with np.errstate(all="ignore"):
        want = np.asarray(BINARY[op](a, b))
    assert want.dtype == dtype
    np.testing.assert_array_equal(got.device[0], want)
    np.testing.assert_array_equal(got.reference[0], want)


@QUICK
@given(
    broadcast_case(),
    st.sampled_from(["Add", "Sub", "Mul", "Min", "Max"]),
    st.sampled_from(INTEGERS[:5]),
    st.sampled_from(INTEGERS[:5]),
)
def test_integer_format_is_exact(case: tuple, op: str, first: Any, second: Any) -> None:
    a_shape, b_shape, seed = case
    rng = np.random.default_rng(seed)
    a, b = whole(rng, a_shape, first), whole(rng, b_shape, second)
    got = run(Case(op, [a, b], {}, integers=True), seed=seed)
    want = BINARY[op](a.astype(object), b.astype(object)) if a.ndim + b.ndim else BINARY[op](int(a), int(b))
    assert np.array_equal(got.device[0].astype(object), want) and np.array_equal(got.reference[0].astype(object), want)
    narrow = got.values[0].lo >= -(1 << 31) and got.values[0].hi < 1 << 31
    if op in ("Add", "Sub", "Mul"):
        assert got.device[0].dtype == (np.int32 if narrow else np.int64)


@QUICK
@given(st.sampled_from(INTEGERS), st.integers(0, 99))
def test_integer_division_truncates_and_never_traps(dtype: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = whole(rng, (5, 7), dtype), whole(rng, (7,), dtype)
    if np.iinfo(dtype).min < 0:
        a[0, 0], b[0] = np.iinfo(dtype).min, -1
    got = run(Case("Div", [a, b], {}), seed=seed)
    bits = 8 * np.dtype(dtype).itemsize
    want = np.zeros(a.shape, dtype)
    for (i, j), n in np.ndenumerate(a):
        n, d = int(n), int(b[j])
        q = 0 if d == 0 else abs(n) // abs(d) * (1 if (n < 0) == (d < 0) else -1)
        want[i, j] = np.array([q & ((1 << bits) - 1)], np.uint64).astype(dtype)[0]
    np.testing.assert_array_equal(got.device[0], want)
    np.testing.assert_array_equal(got.reference[0], want)


def test_integer_powers() -> None:
    x, e = np.array([-3, -1, 0, 1, 2, 7], np.int64), np.array([[0], [1], [5], [33]], np.int64)
    want = np.array([[int(v) ** int(p) for v in x] for p in e[:, 0]], object)
    want = (want & ((1 << 64) - 1)).astype(np.uint64).astype(np.int64)
    got = run(Case("Pow", [x, e], {}))
    np.testing.assert_array_equal(got.device[0], want)
    np.testing.assert_array_equal(got.reference[0], want)


@pytest.mark.parametrize("exponent", [np.float32(2), np.float32(0.5), np.int64(3), np.int32(-1)])
def test_float_powers(exponent: Any) -> None:
    x = np.abs(floats(np.random.default_rng(0), (3, 5))) + np.float32(0.1)
    got = run(Case("Pow", [x, np.asarray(exponent)], {}, constants=frozenset({1})))
    np.testing.assert_allclose(got.device[0], x.astype(np.float64) ** float(exponent), 1e-6)


def test_whole_float_exponents_of_integers() -> None:
    x = np.array([-3, 2, 5], np.int32)
    got = run(Case("Pow", [x, np.array([3.0], np.float32)], {}, constants=frozenset({1})))
    np.testing.assert_array_equal(got.device[0], x**3)
    assert "whole" in refused(Case("Pow", [x, np.array([0.5], np.float32)], {}, constants=frozenset({1})))
    assert "whole" in refused(Case("Pow", [x, np.array([3.0], np.float32)], {}))


@pytest.mark.parametrize("op", ["Min", "Max", "Sum"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_variadic(op: str, count: int) -> None:
    rng = np.random.default_rng(count)
    arrays = [floats(rng, s) for s in [(2, 3, 4), (3, 1), (4,), (2, 1, 1)][:count]]
    got = run(Case(op, arrays, {}))
    (want,) = onnxruntime_node(op, arrays, {})
    np.testing.assert_allclose(got.device[0], want, 1e-6, 1e-6)
    np.testing.assert_allclose(got.reference[0], want, 1e-6, 1e-6)


def test_not_a_number_is_propagated() -> None:
    x = np.array([np.nan, 1, np.nan, -np.inf, np.inf], np.float32)
    y = np.array([0, np.nan, np.nan, 1, 1], np.float32)
    for op in ("Min", "Max"):
        np.testing.assert_array_equal(run(Case(op, [x, y], {})).device[0], BINARY[op](x, y))
    np.testing.assert_array_equal(run(Case("Relu", [x], {})).device[0], np.maximum(x, 0))
    np.testing.assert_array_equal(run(Case("Clip", [x], {"min": 0.0, "max": 3.0})).device[0], np.clip(x, 0, 3))


def test_same_tensor_twice_in_place_pairs() -> None:
    """A scalar operand is no candidate for computing in place, a dense one is."""
    rng = np.random.default_rng(0)
    step = run(Case("Add", [floats(rng, (4, 5)), floats(rng, (5,))], {})).program.steps[0]
    assert step.in_place == ((2, 0),)
    dense = run(Case("Add", [floats(rng, (4, 5)), floats(rng, (4, 5))], {})).program.steps[0]
    assert dense.in_place == ((2, 0), (2, 1)) and len(dense.axes) == 1
    turned = run(Case("Add", [floats(rng, (4, 5)), floats(rng, (4, 5))], {}, layouts={1: (1, 0)})).program.steps[0]
    assert turned.in_place == ((2, 0),)
    widened = run(Case("Add", [whole(rng, (9,), np.int8), whole(rng, (9,), np.int32)], {}, integers=True)).program.steps[0]
    assert all(widened.operands[r].tensor.dtype.size == widened.operands[2].tensor.dtype.size for _, r in widened.in_place)


# ---- one operand

FLOAT_OPS: list[tuple[str, dict[str, Any]]] = [
    ("Neg", {}),
    ("Abs", {}),
    ("Relu", {}),
    ("LeakyRelu", {"alpha": 0.2}),
    ("Sqrt", {}),
    ("Exp", {}),
    ("Log", {}),
    ("Reciprocal", {}),
    ("Ceil", {}),
    ("Floor", {}),
    ("Round", {}),
    ("Sign", {}),
    ("Erf", {}),
    ("Sigmoid", {}),
    ("Tanh", {}),
    ("HardSigmoid", {}),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    ("HardSwish", {}),
    ("Elu", {"alpha": 1.5}),
    ("Selu", {}),
    ("Softplus", {}),
    ("IsNaN", {}),
]


@pytest.mark.parametrize(("op", "attributes"), FLOAT_OPS, ids=lambda v: v if isinstance(v, str) else "")
def test_float_functions(op: str, attributes: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([floats(rng, (50,)), [0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 88.0, -88.0, 100.0, -100.0]]).astype(np.float32)
    x = np.abs(x) + np.float32(1e-3) if op in ("Sqrt", "Log", "Reciprocal") else x
    x = x.reshape(3, 4, 5)
    got = run(Case(op, [x], attributes, layouts={0: (2, 0, 1)}))
    (want,) = onnxruntime_node(op, [x], attributes)
    np.testing.assert_allclose(got.device[0], want, 2e-5, 1e-6)
    np.testing.assert_allclose(got.reference[0], want, 2e-5, 1e-6)
    assert len(run(Case(op, [x], attributes)).program.steps[0].axes) == 1


def test_gelu_swish_and_isinf() -> None:
    x = floats(np.random.default_rng(3), (7, 9))
    wide = x.astype(np.float64)
    erf = np.array([math.erf(v / math.sqrt(2)) for v in wide.reshape(-1)]).reshape(x.shape)
    cases = [
        ("Gelu", {}, 0.5 * wide * (1 + erf)),
        ("Gelu", {"approximate": "tanh"}, 0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))),
        ("Swish", {"alpha": 1.1}, wide / (1 + np.exp(-1.1 * wide))),
        ("Silu", {}, wide / (1 + np.exp(-wide))),
    ]
    for op, attributes, want in cases:
        got = run(Case(op, [x], attributes))
        np.testing.assert_allclose(got.device[0], want, 1e-5, 1e-6)
        np.testing.assert_allclose(got.reference[0], want, 1e-6, 1e-6)
    special = np.array([np.inf, -np.inf, np.nan, 0, 3e38], np.float32)
    np.testing.assert_array_equal(run(Case("IsInf", [special], {})).device[0], np.isinf(special))
    np.testing.assert_array_equal(run(Case("IsInf", [special], {"detect_negative": 0})).device[0], np.isposinf(special))
    assert "approximate" in refused(Case("Gelu", [x], {"approximate": "fast"}))


@QUICK
@given(st.sampled_from(["Neg", "Abs", "Relu", "Sign"]), st.sampled_from(INTEGERS), st.booleans(), st.integers(0, 99))
def test_integer_functions(op: str, dtype: Any, integers: bool, seed: int) -> None:
    if integers and dtype in (np.int64, np.uint64):
        return
    x = whole(np.random.default_rng(seed), (3, 11), dtype)
    got = run(Case(op, [x], {}, integers=integers), seed=seed)
    function = {"Neg": lambda v: -v, "Abs": abs, "Relu": lambda v: max(v, 0), "Sign": lambda v: (v > 0) - (v < 0)}[op]
    exact = np.array([[function(int(v)) for v in row] for row in x], object)
    result = got.device[0].dtype
    want = (exact & ((1 << 64) - 1)).astype(np.uint64).astype(result)
    np.testing.assert_array_equal(got.device[0], want)
    np.testing.assert_array_equal(got.reference[0], want)
    if integers:
        assert np.array_equal(want.astype(object), exact)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint64, np.int64])
@pytest.mark.parametrize(("low", "high"), [(2, 9), (2, None), (None, 9), (None, None), (9, 2)])
def test_clip(dtype: Any, low: int | None, high: int | None, known: bool) -> None:
    x = np.arange(24).reshape(4, 6).astype(dtype)
    limits = [None if v is None else np.array(v, dtype) for v in (low, high)]
    got = run(Case("Clip", [x, *limits], {}, constants=frozenset({1, 2}) if known else frozenset()))
    want = x if low is None else np.maximum(x, limits[0])
    want = want if high is None else np.minimum(want, limits[1])
    np.testing.assert_array_equal(got.device[0], want)
    np.testing.assert_array_equal(got.reference[0], want)


def test_clip_attributes_and_integer_format() -> None:
    x = np.arange(-128, 128).astype(np.int8)
    got = run(Case("Clip", [x], {"min": 0.0, "max": 255.0}, integers=True))
    np.testing.assert_array_equal(got.device[0], np.clip(x, 0, 127))
    assert (got.values[0].lo, got.values[0].hi) == (0, 127)
    limits = [np.array(0, np.int8), np.array(200, np.uint8)]
    got = run(Case("Clip", [x, *limits], {}, constants=frozenset({1, 2}), integers=True))
    np.testing.assert_array_equal(got.device[0], np.clip(x, 0, 127))
    infinite = np.array([-np.inf, np.inf, 3], np.float32)
    got = run(Case("Clip", [infinite, np.array(-np.inf, np.float32), None], {}, constants=frozenset({1})))
    np.testing.assert_array_equal(got.device[0], infinite)
    assert "whole number" in refused(Case("Clip", [x], {"min": 0.5}, integers=True))


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_prelu(dtype: Any) -> None:
    rng = np.random.default_rng(5)
    x, slope = rng.integers(-50, 50, (2, 3, 4)).astype(dtype), rng.integers(-3, 4, (3, 1)).astype(dtype)
    got = run(Case("PRelu", [x, slope], {}, constants=frozenset({1})))
    np.testing.assert_array_equal(got.device[0], np.where(x < 0, x * slope, x))
    assert "broadcast" in refused(Case("PRelu", [slope, x], {}))
    square, slopes = x[:, :, :3], slope.reshape(3)
    got = run(Case("PRelu", [square, slopes], {"per_channel": 1}, layouts={0: (2, 0, 1)}))
    np.testing.assert_array_equal(got.device[0], np.where(square < 0, square * slope, square))
    got = run(Case("PRelu", [square, slopes], {}))
    np.testing.assert_array_equal(got.device[0], np.where(square < 0, square * slopes, square))


# ---- comparisons, booleans, selection

COMPARE = {
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
}


@QUICK
@given(broadcast_case(), st.sampled_from(sorted(COMPARE)), st.sampled_from([np.float32, *INTEGERS]))
def test_comparisons(case: tuple, op: str, dtype: Any) -> None:
    a_shape, b_shape, seed = case
    rng = np.random.default_rng(seed)
    info = None if dtype is np.float32 else np.iinfo(dtype)
    a, b = (rng.integers(0, 3, s).astype(dtype) if info is None or seed % 2 else whole(rng, s, dtype) for s in (a_shape, b_shape))
    got = run(Case(op, [a, b], {}), seed=seed)
    np.testing.assert_array_equal(got.device[0], COMPARE[op](a, b))
    np.testing.assert_array_equal(got.reference[0], COMPARE[op](a, b))


@pytest.mark.parametrize("op", ["And", "Or", "Xor", "Not"])
def test_logic(op: str) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.random((3, 1, 5)) < 0.5, rng.random((4, 1)) < 0.5][: 1 if op == "Not" else 2]
    want = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor, "Not": np.logical_not}[op](*arrays)
    got = run(Case(op, arrays, {}))
    np.testing.assert_array_equal(got.device[0], want)
    assert "boolean" in refused(Case(op, [np.zeros(3, np.int32)] * len(arrays), {}))


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.int16, np.int64, np.bool_])
def test_where(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    condition, x, y = rng.random((3, 1)) < 0.5, rng.integers(0, 9, (2, 1, 4)).astype(dtype), rng.integers(0, 9, (4,)).astype(dtype)
    got = run(Case("Where", [condition, x, y], {}, constants=frozenset({2})))
    np.testing.assert_array_equal(got.device[0], np.where(condition, x, y))


def test_where_of_different_integers() -> None:
    condition, x, y = np.array([True, False]), np.array([-5, 3], np.int8), np.array([1, 200], np.uint8)
    got = run(Case("Where", [condition, x, y], {}, integers=True))
    np.testing.assert_array_equal(got.device[0], [-5, 200])


# ---- conversions

NUMPY_TYPES = (np.float32, np.uint8, np.int8, np.uint16, np.int16, np.int32, np.int64, np.bool_, np.uint32, np.uint64)
ONNX_NUMBER = dict(zip(NUMPY_TYPES, (1, 2, 3, 4, 5, 6, 7, 9, 12, 13), strict=True))


@QUICK
@given(st.sampled_from(list(ONNX_NUMBER)), st.sampled_from(list(ONNX_NUMBER)), st.integers(0, 99))
def test_cast(source: Any, target: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    if source is np.float32:
        limit = 1e3 if target in (np.float32, np.bool_) else min(float(np.iinfo(target).max), 1e15)
        x = (rng.random(40) * limit * (1 if np.dtype(target).kind == "u" else rng.choice([-1, 1], 40)) * 0.99).astype(np.float32)
        x[:3] = 0.0, 0.9, 1.5
    elif source is np.bool_:
        x = rng.random(40) < 0.5
    else:
        x = whole(rng, 40, source)
    got = run(Case("Cast", [x], {"to": ONNX_NUMBER[target]}), seed=seed)
    want = x.astype(target)
    np.testing.assert_array_equal(got.device[0], want)
    np.testing.assert_array_equal(got.reference[0], want)


@pytest.mark.parametrize("target", INTEGERS)
def test_cast_saturates(target: Any) -> None:
    info = np.iinfo(target)
    x = np.array([1e30, -1e30, np.inf, -np.inf, np.nan, -0.9, float(info.max), float(info.min)], np.float32)
    got = run(Case("Cast", [x], {"to": ONNX_NUMBER[target]}))
    want = np.array([info.max, info.min, info.max, info.min, 0, 0, info.max, info.min], target)
    np.testing.assert_array_equal(got.device[0], want)
    np.testing.assert_array_equal(got.reference[0], want)


def test_views_make_no_steps() -> None:
    x = floats(np.random.default_rng(0), (3, 4))
    for op, attributes in (("Identity", {}), ("Dropout", {"ratio": 0.3}), ("Cast", {"to": 1}), ("Max", {})):
        got = run(Case(op, [x], attributes))
        np.testing.assert_array_equal(got.device[0], x)
        assert not got.program.steps
    got = run(Case("Dropout", [x], {}, outputs=2))
    assert got.device[1].dtype == np.bool_ and got.device[1].all() and got.reference[1].all()
    assert "training" in refused(Case("Dropout", [x], {"training_mode": 1}))
    assert "double" in refused(Case("Cast", [x], {"to": 11}))


def test_quant_rounds_half_away_from_zero() -> None:
    x = np.array([0.5, -0.5, 1.5, -1.5, 0.49999997, 300, -300, 127.4, 2.5], np.float32)
    got = run(Case("Quant", [x], {"scale": 1.0, "zero_point": 0.0, "bit_width": 8, "signed": 1}))
    want = np.array([1, -1, 2, -2, 0, 127, -128, 127, 3], np.int8)
    np.testing.assert_array_equal(got.device[0], want)
    np.testing.assert_array_equal(got.reference[0], want)
    got = run(Case("Quant", [x], {"scale": 2.0, "zero_point": 3.0, "bit_width": 4, "signed": 0}))
    np.testing.assert_array_equal(got.device[0], np.array([4, 2, 6, 0, 4, 15, 0, 15, 8], np.uint8))


@QUICK
@given(st.floats(0.0625, 50, width=32), st.integers(-20, 20), st.sampled_from([4, 8, 16, 32]), st.booleans(), st.integers(0, 99))
def test_quant_and_dequant_agree_with_float32(scale: float, zero: int, bits: int, signed: bool, seed: int) -> None:
    if bits == 32 and not signed:
        return
    x = floats(np.random.default_rng(seed), (5, 13), 20.0)
    attributes = {"scale": scale, "zero_point": float(zero), "bit_width": bits, "signed": int(signed)}
    got = run(Case("Quant", [x], attributes), seed=seed)
    np.testing.assert_array_equal(got.device[0], got.reference[0])
    back = run(Case("Dequant", [got.device[0]], {"scale": 0.25, "zero_point": float(zero)}), seed=seed)
    want = (got.device[0].astype(np.float32) - np.float32(zero)) * np.float32(0.25)
    np.testing.assert_array_equal(back.device[0], want)
    np.testing.assert_array_equal(back.reference[0], want)


# ---- refusals


def test_refusals_name_the_cause() -> None:
    x, n = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int32)
    assert "do not broadcast" in refused(Case("Add", [x, np.zeros((4,), np.float32)], {}))
    assert "different types" in refused(Case("Mul", [x, n], {}))
    assert "is missing" in refused(Case("Sub", [x, None], {}))
    assert "booleans" in refused(Case("Add", [x > 0, x > 0], {}))
    assert "not defined on int32" in refused(Case("Exp", [n], {}))
    assert "IntegerDiv" in refused(Case("Div", [n, n + 1], {}, integers=True))
    assert "attribute 'axis'" in refused(Case("Add", [x, x], {"axis": 1}))
    with pytest.raises(ModelError, match="loops after merging"):
        shape = (2, 1) * 8
        run(Case("Add", [np.zeros(shape, np.float32), np.zeros(tuple(3 - n for n in shape), np.float32)], {}))


def test_every_kernel_is_in_the_library() -> None:
    from DeeployTest.step_interpreter import library

    for op in ("Add", "Div", "Min", "Pow", "PRelu", "Relu", "Clip", "Equal", "Where", "And", "Cast", "Quant", "RequantShift", "Gelu"):
        operator = find(op, "")
        assert operator is not None and operator.kernels()
        for kernel in operator.kernels():
            assert hasattr(library(kernel.source), kernel.symbol), kernel.symbol


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@QUICK
@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_copies_between_any_strides(size: int, shape: list[int], seed: int) -> None:
    from Deeploy.operators.copying import copy_parts
    from Deeploy.program.dtypes import from_numpy
    from Deeploy.program.step import Step
    from Deeploy.program.tensor import Role, Storage, VariableBuffer, dense_strides
    from DeeployTest.step_interpreter import Memory, random_tiling, run_step

    rng = np.random.default_rng(seed)
    dtype = from_numpy({1: np.int8, 2: np.int16, 4: np.float32, 8: np.int64}[size])
    tensors = []
    for name in ("source", "target"):  # a permuted window of a larger storage
        order = rng.permutation(len(shape))
        outer = [shape[d] + int(rng.integers(0, 3)) for d in order]
        inner = dense_strides(tuple(outer))
        strides = tuple(inner[list(order).index(d)] for d in range(len(shape)))
        storage = Storage(name, math.prod(outer) * size, Role.ACTIVATION)
        tensors.append(VariableBuffer(name, name, tuple(shape), dtype, storage, 0, strides))
    axes, operands, calls = copy_parts(*tensors)
    step = Step("copy", "n", "Copy", tuple(axes), tuple(operands), tuple(calls))
    memory = Memory()
    memory.put(tensors[0], rng.integers(-100, 100, shape).astype(dtype.numpy))
    before = memory.of(tensors[1].storage).copy()
    tiles, loop = random_tiling(step, rng)
    run_step(step, memory, tiles, int(rng.integers(1, 9)), loop)
    np.testing.assert_array_equal(memory.get(tensors[1]), memory.get(tensors[0]))
    changed = int((memory.of(tensors[1].storage) != before).sum())
    assert changed <= math.prod(shape) * size
