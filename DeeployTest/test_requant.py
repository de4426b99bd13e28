"""Requantisation and the integer activations on the C kernels, against exact numpy written here, and stored goldens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Deeploy import operators
from Deeploy.operators.accumulation import Span
from Deeploy.operators.base import Value
from Deeploy.operators.requantisation import Requant
from Deeploy.program.dtypes import INT8, INT32, INT64
from DeeployTest.node_runner import check_node, make_node
from DeeployTest.one_node import Case, refused, run
from DeeployTest.oracles import corpus

operators.load_all()

QUICK = settings(max_examples=15, deadline=None)


def requant(x: np.ndarray, mul: Any, add: Any, div: int, levels: int, signed: bool) -> np.ndarray:
    """y = floor((x * mul + add) / div + 1/2), clamped; with Python integers."""
    x, mul, add = np.broadcast_arrays(*(np.asarray(a).astype(object) for a in (x, mul, add)))
    lo, hi = (-(levels // 2), levels // 2 - 1) if signed else (0, levels - 1)
    flat = [(int(a) * int(m) + int(b) + (div // 2)) // div for a, m, b in zip(x.flat, mul.flat, add.flat, strict=True)]
    return np.array([min(max(v, lo), hi) for v in flat], np.int64).reshape(x.shape).astype(np.int8 if signed else np.uint8)


def numbers(rng: np.random.Generator, shape: Any, dtype: Any, bits: int = 64) -> np.ndarray:
    info = np.iinfo(dtype)
    lo, hi = max(info.min, -(1 << (bits - 1))), min(info.max, (1 << (bits - 1)) - 1)
    return rng.integers(lo, hi, shape, np.int64, endpoint=True).astype(dtype)


def table(numbers: list[int]) -> Value:
    """A constant table along the last axis."""
    return Value.of(np.array(numbers, np.int32), INT32)


TABLES = [(), (1,), (3, 1, 1), (1, 3, 1, 1), (5,), (4, 1)]


@QUICK
@given(
    st.sampled_from([np.int8, np.uint8, np.int16, np.int32, np.int64]),
    st.sampled_from(TABLES),
    st.sampled_from(TABLES),
    st.sampled_from([1, 2, 256, 1 << 16, 1 << 31]),
    st.sampled_from([2, 16, 256]),
    st.booleans(),
    st.integers(0, 999),
)
def test_requant_shift(dtype: Any, mul_shape: Any, add_shape: Any, div: int, levels: int, signed: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = numbers(rng, (2, 3, 4, 5), dtype, 40)
    mul, add = numbers(rng, mul_shape, np.int32, 20 if seed % 2 else 8), numbers(rng, add_shape, np.int32, 24)
    attributes = {"div": np.array([float(div)]), "n_levels_out": np.array([levels]), "signed": np.array(signed, np.float32)}
    ranges = {0: (int(x.min()), int(x.max()))}
    constants = frozenset({1, 2}) if seed % 3 else frozenset({1})
    ranges |= {2: (int(add.min()), int(add.max()))}
    case = Case("RequantShift", [x, mul, add], attributes, constants=constants, ranges=ranges, integers=True, layouts={0: (0, 2, 3, 1)})
    got = run(case, seed=seed)
    want = requant(x, mul, add, div, levels, signed)
    np.testing.assert_array_equal(got.device[0], want)
    np.testing.assert_array_equal(got.reference[0], want)


@QUICK
@given(
    st.integers(-300, 300),
    st.integers(0, 300),
    st.lists(st.tuples(st.integers(-9, 9), st.integers(-900, 900)), min_size=1),
    st.integers(0, 6),
)
def test_ranges_are_exact(lo: int, span: int, pairs: list[tuple[int, int]], shift: int) -> None:
    q = Requant(shift, -128, 127)
    everything = [min(max((x * m + a + ((1 << shift) >> 1)) >> shift, -128), 127) for x in range(lo, lo + span + 1) for m, a in pairs]
    mul, add = (table([pair[i] for pair in pairs]) for i in (0, 1))
    assert q.range(Span.of(lo, lo + span), mul, add) == (min(everything), max(everything))
    assert q.fits(Span.of(lo, lo + span), mul, add, INT32)


def test_tables_of_rows_and_columns_meet_in_every_pair() -> None:
    q = Requant(0, -128, 127)
    mul = Value.of(np.array([[1], [5]], np.int32), INT32)
    assert q.range(Span.of(-1, 1), mul, table([0, 100])) == (-5, 105)


def test_width_is_proven() -> None:
    q = Requant(16, -128, 127)
    edge, one, zero = (1 << 31) - 1 - q.half, table([1]), table([0])
    assert q.fits(Span.of(0, edge), one, zero, INT32)
    assert not q.fits(Span.of(0, edge + 1), one, zero, INT32) and q.fits(Span.of(0, edge + 1), one, zero, INT64)
    assert not Requant(32, -128, 127).fits(Span.of(0, 1), one, zero, INT32)
    assert not q.fits(Span.of(-(1 << 40), 1 << 40), table([1 << 25]), zero, INT64)
    assert "64 bits" in str(_wide_problem())


def _wide_problem() -> Exception:
    operator, node = make_node(
        "RequantShift", [np.array([1 << 40], np.int64), np.array(1 << 25, np.int32), np.array(0, np.int32)], {"div": 2}
    )
    with pytest.raises(Exception) as caught:
        operator.infer(node)
    return caught.value


def test_scalars_are_immediates_and_refusals() -> None:
    x, one = np.arange(-8, 8).astype(np.int8), np.array(3, np.int32)
    got = run(Case("RequantShift", [x, one, one], {"div": 4, "n_levels": 256, "signed": 1}, constants=frozenset({1, 2}), integers=True))
    (step,) = got.program.steps
    assert len(step.axes) == 1 and [o.tensor.storage.size for o in step.operands[1:3]] == [0, 0] and step.in_place == ((3, 0),)
    assert "power of two" in refused(Case("RequantShift", [x, one, one], {"div": 3}))
    assert "attribute 'div'" in refused(Case("RequantShift", [x, one, one], {}))
    assert "levels" in refused(Case("RequantShift", [x, one, one], {"div": 4, "n_levels": 512}))
    assert "odd" in refused(Case("RequantShift", [x, one, one], {"div": 4, "n_levels": 255}))
    assert "tables are int32" in refused(Case("RequantShift", [x, one.astype(np.int64), one], {"div": 4}))
    assert "(add) is missing" in refused(Case("RequantShift", [x, one], {"div": 4}))
    got = run(Case("RequantShift", [x, one, one], {"div": 1, "n_levels": 7, "signed": 0}, integers=True))
    np.testing.assert_array_equal(got.device[0], np.clip(x.astype(np.int64) * 3 + 3, 0, 6))
    assert "not an integer" in refused(Case("RequantShift", [x.astype(np.float32), one, one], {"div": 4}))


@QUICK
@given(
    st.sampled_from([np.int8, np.uint8, np.int32]),
    st.sampled_from([np.int8, np.uint8, np.int64]),
    st.sampled_from([None, (), (3, 1)]),
    st.sampled_from([None, (), (4,)]),
    st.sampled_from([(), (3, 1)]),
    st.integers(0, 999),
)
def test_requantized_add(first: Any, second: Any, own_a: Any, own_b: Any, table: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = numbers(rng, (2, 3, 4), first, 20), numbers(rng, (1, 3, 4) if seed % 2 else (4,), second, 40 if seed % 5 == 0 else 20)
    inputs: list[np.ndarray | None] = [a, b]
    attributes: dict[str, Any] = {"div": 256, "n_levels": 256, "signed": seed % 3 > 0}
    total: Any = 0
    for letter, x, shape in (("a", a, own_a), ("b", b, own_b)):
        if shape is None:
            inputs += [None, None]
            total = total + x.astype(np.int64)
            continue
        mul, add = numbers(rng, shape, np.int32, 12), numbers(rng, shape, np.int32, 20)
        inputs += [mul, add]
        own = {"div": 1 << 10, "n_levels": 256 if seed % 2 else 128, "signed": seed % 2 == 0}
        attributes |= {f"{k}_{letter}": v for k, v in own.items()}
        total = total + requant(x, mul, add, own["div"], own["n_levels"], own["signed"]).astype(np.int64)
    mul, add = numbers(rng, table, np.int32, 10), numbers(rng, table, np.int32, 16)
    want = requant(total, mul, add, 256, 256, bool(attributes["signed"]))
    check_node("RequantizedAdd", [*inputs, mul, add], attributes, [want], constants=range(2, 8), integers=True, seed=seed, tilings=2)


def test_requantized_add_with_scalars_is_one_step() -> None:
    rng = np.random.default_rng(0)
    one = np.array(7, np.int32)
    inputs = [numbers(rng, (2, 8), np.int8), numbers(rng, (2, 8), np.int8), one, one, None, None, one, one]
    attributes = {"div_a": 8, "n_levels_a": 256, "signed_a": 1, "div": 4, "n_levels": 256, "signed": 1}
    a = requant(inputs[0], 7, 7, 8, 256, True).astype(np.int64)
    want = requant(a + inputs[1].astype(np.int64), 7, 7, 4, 256, True)
    program = check_node("RequantizedAdd", inputs, attributes, [want], constants=range(2, 8), integers=True)
    (step,) = program.steps
    assert len(step.axes) == 1 and step.calls[0].kernel.symbol == "dp_requantized_add_i8_i8" and (4, 0) in step.in_place


# ---- integer activations


def igelu(x: int, b: int, one: int) -> int:
    q = min(abs(x), -b)
    sign = (x > 0) - (x < 0)
    return x * ((one + sign * (one - (q + b) ** 2)) // 2)


def ihardswish(x: int, three: int, six: int, sixth: int) -> int:
    return x * (min(max(x + three, 0), six) * sixth)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
def test_activations_on_every_value(dtype: Any) -> None:
    x = (
        np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1).astype(dtype)
        if dtype != np.int32
        else np.arange(-99999, 99999, 7, np.int32)
    )
    for op, attributes, function in (
        ("iGELU", {"b": -40, "one": 1743}, lambda v: igelu(v, -40, 1743)),
        ("iHardswish", {"one_over_six": 33, "six": 1530, "three": 765}, lambda v: ihardswish(v, 765, 1530, 33)),
    ):
        got = run(Case(op, [x], attributes, integers=True, ranges={0: (int(x.min()), int(x.max()))}))
        want = np.array([function(int(v)) for v in x], np.int64)
        np.testing.assert_array_equal(got.device[0], want)
        np.testing.assert_array_equal(got.reference[0], want)
        if dtype != np.int32:
            assert (got.values[0].lo, got.values[0].hi) == (want.min(), want.max())
            assert got.device[0].dtype == np.int32
    assert "positive" in refused(Case("iGELU", [x], {"b": 40, "one": 1}))
    assert "attribute 'three'" in refused(Case("iHardswish", [x], {"six": 1, "one_over_six": 1}))


@pytest.mark.parametrize("attributes", [{"Delta": 16384, "eps": 1, "eta": 200000, "y": 2}, {"Delta": 3, "eps": 0, "eta": 1, "y": -7}])
def test_true_integer_div_by_an_attribute(attributes: dict[str, int]) -> None:
    x = numbers(np.random.default_rng(0), (3, 50), np.int32, 24)
    n, d = attributes["Delta"] * attributes["eta"], attributes["eta"] * attributes["y"] + attributes["eps"]
    want = np.array([int(v) * n // d for v in x.flat], np.int64).reshape(x.shape)
    got = run(Case("TrueIntegerDiv", [x], attributes, integers=True, ranges={0: (int(x.min()), int(x.max()))}))
    np.testing.assert_array_equal(got.device[0], want)
    np.testing.assert_array_equal(got.reference[0], want)
    assert "64 bits" in _overflow(attributes | {"Delta": 1 << 44})


def _overflow(attributes: dict[str, int]) -> str:
    operator, node = make_node("TrueIntegerDiv", [np.array([1 << 30], np.int64)], attributes, integers=True)
    with pytest.raises(Exception) as caught:
        operator.infer(node)
    return str(caught.value)


@pytest.mark.parametrize("op", ["TrueIntegerDiv", "IntegerDiv"])
def test_divisions_of_tensors(op: str) -> None:
    rng = np.random.default_rng(1)
    x, y = numbers(rng, (2, 3, 40), np.int8), numbers(rng, (3, 1), np.int8)
    y[0] = 0
    delta, eps, eta = 13, 0, 3
    want = np.zeros(x.shape, np.int64)
    for index, value in np.ndenumerate(x):
        n, d = delta * eta * int(value), eta * int(y[index[1], 0]) + eps
        if d and op == "TrueIntegerDiv":
            want[index] = n // d
        elif d:
            n += (d >> 1) if n >= 0 else -(d >> 1)
            want[index] = abs(n) // abs(d) * (1 if (n < 0) == (d < 0) else -1)
    got = run(Case(op, [x, y], {"Delta": delta, "eps": eps, "eta": eta}, integers=True))
    np.testing.assert_array_equal(got.device[0], want)
    np.testing.assert_array_equal(got.reference[0], want)


def test_inonorm() -> None:
    rng = np.random.default_rng(2)
    x, weight, bias = numbers(rng, (2, 5, 8), np.int8), numbers(rng, (8,), np.int8), numbers(rng, (8,), np.int32, 16)
    got = run(Case("iNoNorm", [x, weight, bias], {"D": np.array([65536.0]), "mul": 425.0}, constants=frozenset({1, 2}), integers=True))
    exact = ((x.astype(np.int64) * weight + bias) * 425) >> 16
    np.testing.assert_array_equal(got.device[0], np.clip(exact, -128, 127))
    np.testing.assert_array_equal(got.reference[0], np.clip(exact, -128, 127))


# ---- stored goldens of single operators

KERNELS = Path("deeploy/Kernels")
GOLDENS = [
    "FP32/Add/Large",
    "FP32/Add/Regular",
    "FP32/Add/Scalar",
    "FP32/Ceil",
    "FP32/Clip",
    "FP32/Div/Scalar",
    "FP32/Exp",
    "FP32/Floor",
    "FP32/HardSigmoid",
    "FP32/Hardswish",
    "FP32/Mul/Scalar",
    "FP32/Pow/Vector",
    "FP32/ReLU",
    "FP32/Sigmoid",
    "FP32/Sqrt",
    "FP32/Swish",
    "Integer/Hardswish/Regular",
    "Integer/iNoNorm",
    "Integer/Sub",
    "Integer/Add/Regular_RQ",
]


@pytest.mark.corpus
@pytest.mark.parametrize("case", GOLDENS)
def test_goldens(case: str) -> None:
    """Graphs of element-wise nodes alone, walked node by node on the C kernels."""
    import onnx
    from onnx import numpy_helper

    folder = corpus(KERNELS / case)
    model = onnx.load(folder / "network.onnx")
    integers = case.startswith("Integer")
    known = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    constants = set(known)
    with np.load(folder / "inputs.npz") as stored:
        arrays = [stored[name] for name in stored.files]
    known |= {v.name: a for v, a in zip([v for v in model.graph.input if v.name not in constants], arrays, strict=False)}
    for node in model.graph.node:
        attributes = {a.name: _attribute(a) for a in node.attribute}
        if node.op_type == "Constant":
            known[node.output[0]] = attributes["value"]
            constants.add(node.output[0])
            continue
        slots = [_stored(known[name], integers, name in constants, i, node.op_type) if name else None for i, name in enumerate(node.input)]
        fixed = frozenset(i for i, name in enumerate(node.input) if name in constants)
        got = run(Case(node.op_type, slots, attributes, constants=fixed, integers=integers))
        known[node.output[0]] = got.device[0]
        np.testing.assert_allclose(got.device[0], got.reference[0], 1e-5, 1e-5)
    with np.load(folder / "outputs.npz") as stored:
        (golden,) = (stored[name] for name in stored.files)
    result = known[model.graph.output[0].name].reshape(golden.shape)
    if integers:
        np.testing.assert_array_equal(result, golden)
    else:
        np.testing.assert_allclose(result, golden, 1e-5, 1e-4)


def _attribute(attribute: Any) -> Any:
    import onnx

    value = onnx.helper.get_attribute_value(attribute)
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _stored(array: np.ndarray, integers: bool, constant: bool, slot: int, op: str) -> np.ndarray:
    """The array in its storage type."""
    from Deeploy.program.dtypes import smallest_integer

    if array.dtype == np.float64 and not integers:
        return array.astype(np.float32)
    if not integers or array.dtype in (np.int8, np.uint8, np.int32):
        return array
    if constant and slot and op in ("RequantShift", "iNoNorm") and not (op == "iNoNorm" and slot == 1):
        return array.astype(np.int32)
    return array.astype(smallest_integer(int(array.min()), int(array.max())).numpy)


def test_values_of_the_integer_format() -> None:
    operator, node = make_node("Add", [np.array([1], np.int8), np.array([1], np.int8)], integers=True)
    assert operator.infer(node) == [Value.integer((1,), INT32, 2, 2)]
    assert INT8.size == 1
