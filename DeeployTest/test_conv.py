"""Convolutions against a direct numpy oracle (integers) and onnxruntime (floats), under random tilings, loop orders and core counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from Deeploy.program.dtypes import INT32, INT64
from DeeployTest.node_runner import check_node, make_node, run_on_views, with_onnxruntime

RNG = np.random.default_rng(11)
I8, U8 = np.int8, np.uint8


def whole(shape, dtype=I8, lo=None, hi=None) -> np.ndarray:  # noqa: ANN001
    info = np.iinfo(dtype)
    return RNG.integers(info.min if lo is None else lo, (info.max if hi is None else hi) + 1, shape).astype(dtype)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def convolve(x: np.ndarray, w: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    """Convolution by definition, point by point, in int64."""
    rank = x.ndim - 2
    strides, dilations = attributes.get("strides", [1] * rank), attributes.get("dilations", [1] * rank)
    pads, group = attributes.get("pads", [0] * (2 * rank)), attributes.get("group", 1)
    source = np.pad(x.astype(np.int64), [(0, 0), (0, 0), *((pads[i], pads[rank + i]) for i in range(rank))])
    extents = [(w.shape[2 + i] - 1) * dilations[i] + 1 for i in range(rank)]
    out = [(source.shape[2 + i] - extents[i]) // strides[i] + 1 for i in range(rank)]
    y = np.zeros((x.shape[0], w.shape[0], *out), np.int64)
    depth, each = w.shape[1], w.shape[0] // group
    for channel in range(w.shape[0]):
        first = channel // each * depth
        for point in np.ndindex(*out):
            cut = tuple(slice(p * s, p * s + e, d) for p, s, e, d in zip(point, strides, extents, dilations, strict=True))
            window = source[(slice(None), slice(first, first + depth), *cut)]
            y[(slice(None), channel, *point)] = (window * w[channel].astype(np.int64)).reshape(x.shape[0], -1).sum(axis=1)
    return y


def requantise(x: np.ndarray, mul: np.ndarray, add: np.ndarray, div: int, levels: int, signed: bool) -> np.ndarray:
    y = (x.astype(object) * mul.astype(object) + add.astype(object) + div // 2) // div
    lo, hi = (-(levels // 2), levels // 2 - 1) if signed else (0, levels - 1)
    return np.clip(y, lo, hi).astype(np.int8 if signed else np.uint8)


GEOMETRIES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 7, 6), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 4, 9, 8), (6, 2, 3, 2), {"group": 2, "strides": [2, 3], "pads": [2, 0, 1, 3]}),
    ((1, 5, 8, 8), (5, 1, 3, 3), {"group": 5, "pads": [1, 1, 1, 1]}),
    ((1, 3, 8, 9), (6, 1, 3, 3), {"group": 3, "strides": [2, 2], "pads": [0, 1, 1, 2]}),
    ((1, 2, 11, 12), (3, 2, 3, 4), {"dilations": [3, 2], "pads": [2, 3, 4, 1]}),
    ((1, 17, 5, 4), (9, 17, 1, 1), {}),
    ((1, 4, 6, 6), (3, 4, 1, 1), {"strides": [2, 2]}),
    ((1, 3, 5, 5), (4, 3, 5, 5), {}),
    ((1, 2, 3, 3), (2, 2, 3, 3), {"pads": [4, 4, 4, 4]}),
    ((2, 3, 13), (4, 3, 4), {"pads": [2, 1], "strides": [2]}),
    ((1, 4, 16), (8, 2, 3), {"group": 2, "dilations": [3], "pads": [3, 0]}),
    ((1, 6, 10), (6, 1, 5), {"group": 6, "pads": [2, 2]}),
]


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("kinds", [(I8, I8), (U8, I8), (I8, U8), (U8, U8)])
def test_integer_convolution(geometry: tuple[Any, Any, dict[str, Any]], kinds: tuple[type, type]) -> None:
    shape, weights, attributes = geometry
    x, w, bias = whole(shape, kinds[0]), whole(weights, kinds[1]), whole((weights[0],), np.int32, -9999, 9999)
    plain = convolve(x, w, attributes)
    if kinds == (I8, I8):
        check_node("Conv", [x, w], attributes, [plain.astype(np.int32)], integers=True, tilings=2)
    want = plain + bias.reshape(-1, *(1,) * (x.ndim - 2))
    program = check_node("Conv", [x, w, bias], attributes, [want.astype(np.int32)], constants=(1, 2), integers=True, tilings=2)
    assert program.steps[0].accumulator is INT32


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_float_convolution(geometry: tuple[Any, Any, dict[str, Any]]) -> None:
    shape, weights, attributes = geometry
    x, w, bias = real(*shape), real(*weights), real(weights[0])
    attributes = {**attributes, "kernel_shape": list(weights[2:])}
    check_node("Conv", [x, w], attributes, with_onnxruntime("Conv", [x, w], attributes), constants=(1,), tilings=3)
    check_node("Conv", [x, w, bias], attributes, with_onnxruntime("Conv", [x, w, bias], attributes), tilings=3)


@pytest.mark.parametrize("geometry", GEOMETRIES[::2])
@pytest.mark.parametrize("per", ["channel", "tensor", "batch"])
@pytest.mark.parametrize("signed", [True, False])
def test_requantized_convolution(geometry: tuple[Any, Any, dict[str, Any]], per: str, signed: bool) -> None:
    shape, weights, attributes = geometry
    rank = len(shape) - 2
    table = {"channel": (weights[0], *(1,) * rank), "tensor": (1,), "batch": (1, weights[0], *(1,) * rank)}[per]
    x, w, bias = whole(shape, U8), whole(weights), whole((weights[0],), np.int32, -9999, 9999)
    total = convolve(x, w, attributes) + bias.reshape(-1, *(1,) * rank)
    for largest, div, levels in ((200, 2**9, 256), (2**31 - 1, 2**38, 16)) if signed else ((200, 2**9, 256),):
        mul, add = whole(table, np.int32, -largest // 4, largest), whole(table, np.int32, -70000, 70000)
        numbers = {"div": div, "n_levels": levels, "signed": int(signed)}
        want = requantise(total, mul, add, div, levels, signed)
        inputs = [x, w, bias, mul, add]
        check_node("RequantizedConv", inputs, {**attributes, **numbers}, [want], constants=(1, 2, 3, 4), integers=True, tilings=2)


def test_wide_operands_and_wide_sums() -> None:
    x, w = whole((1, 3, 6, 5), np.int32), whole((2, 3, 3, 3))
    program = check_node("Conv", [x, w], {"pads": [1, 0, 0, 2]}, [convolve(x, w, {"pads": [1, 0, 0, 2]})], constants=(1,), integers=True)
    assert program.steps[0].accumulator is INT64
    x, bias = whole((1, 3, 6, 5)), np.array([2**31 - 1, -(2**31)], np.int32)
    want = convolve(x, w, {}) + bias.reshape(-1, 1, 1)
    check_node("Conv", [x, w, bias], {}, [want], constants=(1, 2), integers=True)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(("size", "kernel", "stride", "dilation"), [(6, 3, 2, 2), (7, 4, 1, 1), (8, 2, 3, 1), (9, 2, 2, 3)])
def test_auto_pad_counts_the_dilated_window(mode: str, size: int, kernel: int, stride: int, dilation: int) -> None:
    x, w = whole((1, 1, size, size + 1)), whole((1, 1, kernel, kernel))
    extent = (kernel - 1) * dilation + 1
    before, after = [], []
    for length in (size, size + 1):
        total = 0 if mode == "VALID" else max((-(-length // stride) - 1) * stride + extent - length, 0)
        less, more = total // 2, total - total // 2
        before.append(more if mode == "SAME_LOWER" else less)
        after.append(less if mode == "SAME_LOWER" else more)
    attributes = {"strides": [stride] * 2, "dilations": [dilation] * 2}
    want = convolve(x, w, {**attributes, "pads": [*before, *after]}).astype(np.int32)
    check_node("Conv", [x, w], {**attributes, "auto_pad": mode}, [want], constants=(1,), integers=True)


def test_splat_weights_and_bias_are_immediates() -> None:
    x, w, bias = whole((1, 4, 6, 6)), np.full((4, 2, 3, 3), 5, I8), np.full(4, -77, np.int32)
    attributes = {"group": 2, "pads": [1, 0, 1, 2]}
    want = (convolve(x, w, attributes) - 77).astype(np.int32)
    check_node("Conv", [x, w, bias], attributes, [want], constants=(1, 2), integers=True)
    x = np.full((1, 4, 6, 6), -3, I8)
    w = whole((4, 2, 3, 3))
    check_node("Conv", [x, w], attributes, [convolve(x, w, attributes).astype(np.int32)], constants=(0,), integers=True)


@pytest.mark.parametrize("orders", [{0: (0, 2, 3, 1)}, {0: (3, 1, 2, 0), 1: (2, 3, 0, 1)}, {1: (0, 2, 3, 1)}])
@pytest.mark.parametrize("constants", [(), (1,)])
def test_views_are_read_in_place(orders: dict[int, tuple[int, ...]], constants: tuple[int, ...]) -> None:
    x, w = whole((2, 4, 7, 6)), whole((6, 2, 3, 2))
    attributes = {"group": 2, "pads": [1, 2, 0, 1], "strides": [2, 1], "dilations": [1, 2]}
    operator, node = make_node("Conv", [x, w], attributes, constants=constants, integers=True)
    for cores in (1, 3, 8):
        (got,) = run_on_views(operator, node, [x, w], orders, RNG, cores)
        np.testing.assert_array_equal(got, convolve(x, w, attributes))


def test_refusals_name_the_reason() -> None:
    cases = [
        ([real(1, 2, 4, 4, 4), real(2, 2, 2, 2, 2)], {}, "3 spatial axes"),
        ([real(1, 3, 4, 4), real(2, 2, 2, 2)], {}, "groups"),
        ([real(1, 2, 4, 4), real(2, 2, 5, 5)], {}, "does not fit"),
        ([real(1, 2, 4, 4), real(2, 2, 2, 2)], {"kernel_shape": [3, 3]}, "differs"),
        ([real(1, 2, 4, 4), whole((2, 2, 2, 2))], {}, "do not go together"),
        ([real(1, 2, 4, 4), real(2, 2, 2, 2)], {"pads": [0, -1, 0, 0]}, "less than 0"),
        ([real(1, 2, 4, 4), real(2, 2, 2, 2)], {"strides": [1]}, "1 numbers"),
        ([real(1, 2, 4, 4), real(2, 2, 2, 2)], {"auto_pad": "MAYBE"}, "no padding mode"),
    ]
    for inputs, attributes, text in cases:
        operator, node = make_node("Conv", inputs, attributes)
        assert any(text in str(p) and "node" in str(p) for p in operator.problems(node)), (text, operator.problems(node))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_convolutions(data: st.DataObject) -> None:
    small, group = st.integers(1, 3), data.draw(st.integers(1, 3))
    depth, each = data.draw(small), data.draw(small)
    rank = data.draw(st.integers(1, 2))
    sizes = [data.draw(st.integers(1, 9)) for _ in range(rank)]
    kernel = [data.draw(st.integers(1, 4)) for _ in range(rank)]
    attributes = {
        "group": group,
        "strides": [data.draw(small) for _ in range(rank)],
        "dilations": [data.draw(small) for _ in range(rank)],
        "pads": [data.draw(st.integers(0, 4)) for _ in range(2 * rank)],
    }
    pads, dilations = attributes["pads"], attributes["dilations"]
    assume(all(sizes[i] + pads[i] + pads[rank + i] >= (kernel[i] - 1) * dilations[i] + 1 for i in range(rank)))
    seed = data.draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    x = rng.integers(-128, 128, (data.draw(small), group * depth, *sizes)).astype(I8)
    w = rng.integers(-128, 128, (group * each, depth, *kernel)).astype(I8)
    want = convolve(x, w, attributes)
    check_node("Conv", [x, w], attributes, [want.astype(np.int32)], integers=True, seed=seed, tilings=2)
    f, g = x.astype(np.float32) / 8, w.astype(np.float32) / 8
    check_node("Conv", [f, g], attributes, [(want / 64).astype(np.float32)], constants=(1,), seed=seed, tilings=2)
