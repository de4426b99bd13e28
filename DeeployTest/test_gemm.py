"""Matrix products against numpy (integers) and onnxruntime (floats), under random tilings, loop orders and core counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Deeploy.program.dtypes import FLOAT32, INT32, INT64
from DeeployTest.node_runner import check_node, make_node, run_node, run_on_views, with_onnxruntime

RNG = np.random.default_rng(7)
I8, U8 = np.int8, np.uint8


def whole(shape, dtype=I8, lo=None, hi=None) -> np.ndarray:  # noqa: ANN001
    info = np.iinfo(dtype)
    return RNG.integers(info.min if lo is None else lo, (info.max if hi is None else hi) + 1, shape).astype(dtype)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.matmul(a.astype(np.int64), b.astype(np.int64))


def requantise(x: np.ndarray, mul: np.ndarray, add: np.ndarray, div: int, levels: int, signed: bool) -> np.ndarray:
    """docs: y = floor((x * mul + add) / div + 1/2), clamped; in Python integers."""
    half = div // 2
    y = (x.astype(object) * mul.astype(object) + add.astype(object) + half) // div
    lo, hi = (-(levels // 2), levels // 2 - 1) if signed else (0, levels - 1)
    return np.clip(y, lo, hi).astype(np.int8 if signed else np.uint8)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((5, 7), (7, 6)),
        ((1, 33), (33, 9)),
        ((2, 3, 4, 5), (2, 3, 5, 6)),
        ((2, 1, 4, 5), (1, 3, 5, 6)),
        ((2, 3, 4, 5), (5, 6)),
        ((4, 5), (3, 5, 2)),
        ((2, 1, 3, 4, 5), (4, 1, 5, 2)),
        ((7,), (7,)),
        ((7,), (3, 7, 2)),
        ((2, 3, 7), (7,)),
        ((1, 1), (1, 1)),
        ((3, 1, 5), (3, 5, 4)),
    ],
)
@pytest.mark.parametrize("kinds", [(I8, I8), (U8, I8), (I8, U8), (U8, U8)])
def test_matmul_of_integers(a: tuple[int, ...], b: tuple[int, ...], kinds: tuple[type, type]) -> None:
    x, w = whole(a, kinds[0]), whole(b, kinds[1])
    for constants in ((), (1,), (0,)) if kinds == (I8, U8) else ((1,),):
        program = check_node("MatMul", [x, w], {}, [product(x, w).astype(np.int32)], constants=constants, integers=True, tilings=2)
        assert program.steps[0].accumulator is INT32


FLOAT_SHAPES = [((5, 7), (7, 6)), ((2, 3, 4, 5), (5, 6)), ((2, 1, 4, 5), (3, 5, 6)), ((7,), (7,)), ((7,), (7, 2)), ((3, 7), (7,))]


@pytest.mark.parametrize(("a", "b"), FLOAT_SHAPES)
def test_matmul_of_floats(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, w = real(*a), real(*b)
    program = check_node("MatMul", [x, w], {}, with_onnxruntime("MatMul", [x, w], {}), constants=(1,))
    assert program.steps[0].accumulator is FLOAT32


def test_matmul_of_float_network_integers_keeps_their_type_and_wraps() -> None:
    x, w = whole((3, 40), np.int32), whole((40, 5), np.int32)
    with np.errstate(all="ignore"):
        check_node("MatMul", [x, w], {}, [np.matmul(x, w)])


def test_products_of_wide_integers_have_wide_accumulators() -> None:
    x, w = whole((3, 9), np.int32, -(10**6), 10**6), whole((9, 5), np.int32, -(10**5), 10**5)
    program = check_node("MatMul", [x, w], {}, [product(x, w)], constants=(1,), integers=True)
    assert program.steps[0].accumulator is INT64


def test_accumulators_are_widened_only_where_the_range_needs_it() -> None:
    x = whole((2, 4), I8)
    small, large = whole((4,), np.int32, -(2**20), 2**20), np.full(4, 2**31 - 5, np.int32)
    for c, dtype in ((small, INT32), (large, INT64)):
        w = whole((4, 4), I8)
        want = product(x, w) + c.astype(np.int64)
        want = want.astype(np.int32) if dtype is INT32 else want
        program = check_node("Gemm", [x, w, c], {}, [want], constants=(1, 2), integers=True)
        assert program.steps[0].accumulator is dtype


C_SHAPES = [None, (), (1,), (6,), (1, 6), (5, 1), (5, 6), (1, 1)]


@pytest.mark.parametrize("c_shape", C_SHAPES)
@pytest.mark.parametrize("trans", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_gemm_with_every_c(c_shape: tuple[int, ...] | None, trans: tuple[int, int]) -> None:
    m, k, n = 5, 7, 6
    attributes = {"transA": trans[0], "transB": trans[1], "alpha": 0.75, "beta": -1.5}
    a, b = real(*((k, m) if trans[0] else (m, k))), real(*((n, k) if trans[1] else (k, n)))
    c = None if c_shape is None else real(*c_shape)
    check_node("Gemm", [a, b, c], attributes, with_onnxruntime("Gemm", [a, b, c], attributes), constants=(1, 2))
    x, w = whole(a.shape), whole(b.shape)
    d = None if c_shape is None else whole(c_shape, np.int32, -1000, 1000)
    want = 2 * product(x.T if trans[0] else x, w.T if trans[1] else w) + (0 if d is None else 3 * d.astype(np.int64))
    attributes = {"transA": trans[0], "transB": trans[1], "alpha": 2.0, "beta": 3.0}
    check_node("Gemm", [x, w, d], attributes, [want.astype(np.int32)], constants=(1, 2), integers=True)


def test_gemm_of_more_than_two_axes_multiplies_the_last_two() -> None:
    a, b, c = real(2, 6, 4), real(1, 5, 6), real(5)
    want = np.swapaxes(a.astype(np.float64), 1, 2) @ np.swapaxes(b.astype(np.float64), 1, 2) + c
    check_node("Gemm", [a, b, c], {"transA": 1, "transB": 1}, [want.astype(np.float32)])


def test_gemm_with_beta_zero_does_not_read_c() -> None:
    a, b, c = real(3, 4), real(4, 2), np.full((2,), np.nan, np.float32)
    check_node("Gemm", [a, b, c], {"beta": 0.0}, [(a.astype(np.float64) @ b).astype(np.float32)])


TABLES = [(), (1,), (6,), (5, 1), (5, 6), (1, 6)]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("signed", [True, False])
def test_requantized_gemm(table: tuple[int, ...], signed: bool) -> None:
    a, b = whole((7, 5), U8), whole((6, 7))
    c = whole((6,), np.int32, -5000, 5000)
    mul, add = whole(table, np.int32, -300, 900), whole(table, np.int32, -70000, 70000)
    attributes = {"transA": 1, "transB": 1, "alpha": 1.0, "beta": 2.0, "div": 2**12, "n_levels": 256, "signed": int(signed)}
    want = requantise(product(a.T, b.T) + 2 * c, mul, add, 2**12, 256, signed)
    check_node("RequantizedGemm", [a, b, c, mul, add], attributes, [want], constants=(1, 2, 3, 4), integers=True)
    wide = whole(table, np.int32, 2**28, 2**30)
    attributes = {**attributes, "div": 2**36, "n_levels": 16}
    want = requantise(product(a.T, b.T) + 2 * c, wide, add, 2**36, 16, signed)
    check_node("RequantizedGemm", [a, b, c, wide, add], attributes, [want], constants=(1, 2, 3, 4), integers=True)


@pytest.mark.parametrize("bias", [None, (6,), (4, 1), (2, 1, 4, 6), (3, 1, 1)])
def test_requantized_matmul(bias: tuple[int, ...] | None) -> None:
    a, b = whole((2, 3, 4, 5)), whole((3, 5, 6), U8)
    c = None if bias is None else whole(bias, np.int32, -5000, 5000)
    mul, add = whole((4, 1), np.int32, 1, 40), whole((1,), np.int32, -100, 100)
    want = requantise(product(a, b) + (0 if c is None else c), mul, add, 1024, 255, False)
    attributes = {"div": np.array([1024.0], np.float32), "n_levels": np.array([255.0]), "signed": np.array([0.0])}
    check_node("RequantizedMatMul", [a, b, c, mul, add], attributes, [want], constants=(2, 3, 4), integers=True)
    operator, node = make_node("RequantizedMatMul", [a, b, c, mul, add], {**attributes, "signed": 1}, constants=(2, 3, 4), integers=True)
    assert "odd" in str(operator.problems(node)[0])


@pytest.mark.parametrize(("a_zero", "b_zero"), [(None, None), ((), ()), ((1,), (6,)), ((5,), (1,)), ((5, 1), (1, 6)), (None, (6,))])
def test_matmul_integer(a_zero: tuple[int, ...] | None, b_zero: tuple[int, ...] | None) -> None:
    a, b = whole((5, 7), U8), whole((7, 6))
    az = None if a_zero is None else whole(a_zero, U8)
    bz = None if b_zero is None else whole(b_zero, I8)
    left = a.astype(np.int64) - (0 if az is None else az.astype(np.int64).reshape(-1, 1))
    right = b.astype(np.int64) - (0 if bz is None else bz.astype(np.int64))
    want = (left @ right).astype(np.int32)
    for constants in ((), (1, 2, 3)):
        check_node("MatMulInteger", [a, b, az, bz], {}, [want], constants=constants)


def test_splats_are_read_with_stride_zero() -> None:
    x = whole((4, 9))
    w, c = np.full((9, 5), -3, I8), np.full((4, 5), 11, np.int32)
    check_node("Gemm", [x, w, c], {}, [(product(x, w) + c).astype(np.int32)], constants=(1, 2), integers=True)
    mul, add = np.full((5,), 3, np.int32), np.full((5,), -7, np.int32)
    attributes = {"div": 8, "n_levels": 256, "signed": 1}
    want = requantise(product(x, w) + c, mul, add, 8, 256, True)
    check_node("RequantizedMatMul", [x, w, c, mul, add], attributes, [want], constants=(1, 2, 3, 4), integers=True)


def test_rows_of_all_batches_are_one_axis_where_the_weights_are_shared() -> None:
    program = check_node("MatMul", [x := whole((2, 3, 4, 5)), w := whole((5, 6))], {}, [product(x, w).astype(np.int32)], integers=True)
    sizes = {axis.name: axis.size for axis in program.steps[0].axes}
    assert sizes == {"b0": 1, "b1": 1, "b2": 1, "m": 24, "n": 6, "k": 5}


@pytest.mark.parametrize("orders", [{0: (1, 0)}, {1: (1, 0)}, {0: (1, 0), 1: (1, 0)}])
@pytest.mark.parametrize("constants", [(), (1,)])
def test_views_are_read_in_place(orders: dict[int, tuple[int, ...]], constants: tuple[int, ...]) -> None:
    x, w = whole((5, 9)), whole((9, 6))
    operator, node = make_node("MatMul", [x, w], constants=constants, integers=True)
    for cores in (1, 3, 8):
        (got,) = run_on_views(operator, node, [x, w], orders, RNG, cores)
        np.testing.assert_array_equal(got, product(x, w))


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (3, 1, 5, 0, 4, 2), (5, 4, 3, 2, 1, 0)])
def test_batch_axes_of_views_that_cannot_be_joined_are_copied(order: tuple[int, ...]) -> None:
    x, w = whole((2, 3, 2, 3, 4, 5)), whole((2, 3, 2, 3, 5, 2), U8)
    operator, node = make_node("MatMul", [x, w], integers=True)
    (got,) = run_on_views(operator, node, [x, w], {0: order}, RNG, 3)
    np.testing.assert_array_equal(got, product(x, w))


def test_refusals_name_the_reason() -> None:
    cases = [
        ("MatMul", [real(2, 3), real(4, 5)], {}, "do not multiply"),
        ("MatMul", [real(2, 3, 3), real(4, 3, 5)], {}, "do not broadcast"),
        ("MatMul", [real(2, 3), whole((3, 5))], {}, "do not go together"),
        ("Gemm", [whole((2, 3)), whole((3, 5))], {"alpha": 0.5}, "not a whole number"),
        ("Gemm", [real(2, 3), real(3, 5), real(3)], {}, "does not broadcast"),
        ("MatMul", [real(2, 1, 2, 1, 2, 3), real(1, 2, 1, 2, 3, 5)], {}, "cannot be joined"),
    ]
    for op, inputs, attributes, text in cases:
        operator, node = make_node(op, inputs, attributes, integers=True)
        assert any(text in str(p) and "node" in str(p) for p in operator.problems(node)), text


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_products(data: st.DataObject) -> None:
    size = st.integers(1, 9)
    batch = [data.draw(st.integers(1, 3)) for _ in range(data.draw(st.integers(0, 3)))]
    m, n, k, seed = data.draw(size), data.draw(size), data.draw(st.integers(1, 40)), data.draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)

    def cut(shape: list[int]) -> tuple[int, ...]:
        shape = [1 if rng.random() < 0.3 else s for s in shape]
        return tuple(shape[int(rng.integers(0, len(shape) + 1)) :])

    a, b = cut(batch) + (m, k), cut(batch) + (k, n)
    x, w = rng.integers(-128, 128, a).astype(I8), rng.integers(0, 256, b).astype(U8)
    check_node("MatMul", [x, w], {}, [product(x, w).astype(np.int32)], integers=True, seed=seed, tilings=2)
    p, q = rng.standard_normal(a).astype(np.float32), rng.standard_normal(b).astype(np.float32)
    want = np.matmul(p.astype(np.float64), q.astype(np.float64)).astype(np.float32)
    check_node("MatMul", [p, q], {}, [want], seed=seed, tilings=2, atol=1e-4)


def test_zero_rows_make_no_step() -> None:
    operator, node = make_node("MatMul", [real(0, 3), real(3, 2)])
    assert not operator.problems(node)
    assert run_node(operator, node, [real(0, 3), real(3, 2)], None)[0].shape == (0, 2)
