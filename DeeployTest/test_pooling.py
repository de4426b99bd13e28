"""Pooling against onnxruntime and, where that has no kernel or is known to differ, numpy by definition; random tilings and core counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from DeeployTest.node_runner import check_node, make_node, run_on_views, with_onnxruntime

RNG = np.random.default_rng(13)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def counting(*shape: int) -> np.ndarray:
    return np.arange(1, int(np.prod(shape)) + 1, dtype=np.float32).reshape(shape)


def pooled(x: np.ndarray, attributes: dict[str, Any], average: bool) -> np.ndarray:
    """By definition, point by point; the pads beyond the declared ones that ceil_mode reaches are nothing at all."""
    rank = x.ndim - 2
    kernel = attributes["kernel_shape"]
    strides, dilations = attributes.get("strides", [1] * rank), attributes.get("dilations", [1] * rank)
    pads, ceil = attributes.get("pads", [0] * (2 * rank)), attributes.get("ceil_mode", 0)
    out = []
    for i, size in enumerate(x.shape[2:]):
        room = size + pads[i] + pads[rank + i] - (kernel[i] - 1) * dilations[i] - 1
        count = (-(-room // strides[i]) if ceil else room // strides[i]) + 1
        while ceil and (count - 1) * strides[i] >= size + pads[i]:
            count -= 1
        out.append(count)
    y = np.zeros((*x.shape[:2], *out), np.float64)
    for point in np.ndindex(*out):
        values, divisor = [], 0
        for tap in np.ndindex(*kernel):
            place = [p * s - pads[i] + t * d for i, (p, s, t, d) in enumerate(zip(point, strides, tap, dilations, strict=True))]
            if all(0 <= a < n for a, n in zip(place, x.shape[2:], strict=True)):
                values.append(x[(slice(None), slice(None), *place)].astype(np.float64))
                divisor += 1
            elif attributes.get("count_include_pad", 0):
                divisor += all(-pads[i] <= a < n + pads[rank + i] for i, (a, n) in enumerate(zip(place, x.shape[2:], strict=True)))
        y[(slice(None), slice(None), *point)] = sum(values) / divisor if average else np.max(values, axis=0)
    return y


GEOMETRIES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 7, 8), {"kernel_shape": [2, 3]}),
    ((2, 2, 9, 7), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 2, 8, 9), {"kernel_shape": [3, 2], "strides": [3, 2], "pads": [1, 0, 2, 1], "ceil_mode": 1}),
    ((1, 3, 10), {"kernel_shape": [3], "strides": [2], "pads": [0, 1]}),
    ((1, 2, 6, 6), {"kernel_shape": [6, 6]}),
    ((1, 2, 9, 9), {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 1, 1, 1], "strides": [2, 1]}),
]


@pytest.mark.parametrize(("shape", "attributes"), GEOMETRIES)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.float32])
def test_maximum(shape: tuple[int, ...], attributes: dict[str, Any], dtype: type) -> None:
    x = -np.abs(real(*shape)) if dtype is np.float32 else RNG.integers(0, 100, shape).astype(dtype) - dtype(0 if dtype is np.uint8 else 120)
    check_node("MaxPool", [x], attributes, [pooled(x, attributes, False).astype(dtype)], integers=dtype is not np.float32)


@pytest.mark.parametrize(("shape", "attributes"), [g for g in GEOMETRIES if "dilations" not in g[1]])
@pytest.mark.parametrize("include", [0, 1])
def test_average(shape: tuple[int, ...], attributes: dict[str, Any], include: int) -> None:
    attributes = {**attributes, "count_include_pad": include}
    x = real(*shape)
    want = pooled(x, attributes, True).astype(np.float32)
    check_node("AveragePool", [x], attributes, [want])
    np.testing.assert_allclose(with_onnxruntime("AveragePool", [x], attributes)[0], want, rtol=1e-5, atol=1e-6)


def test_average_with_dilation() -> None:
    shape, attributes = GEOMETRIES[-1]
    x = real(*shape)
    for include in (0, 1):
        attributes = {**attributes, "count_include_pad": include}
        check_node("AveragePool", [x], attributes, [pooled(x, attributes, True).astype(np.float32)])


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("shape", [(2, 3, 8, 7), (2, 3, 9)])
@pytest.mark.parametrize("dtype", [np.int8, np.float32])
def test_indices_count_in_the_whole_tensor(order: int, shape: tuple[int, ...], dtype: type) -> None:
    rank = len(shape) - 2
    attributes = {"kernel_shape": [3] * rank, "strides": [2] * rank, "pads": [1] * (2 * rank), "storage_order": order}
    x = real(*shape) if dtype is np.float32 else RNG.integers(-9, 9, shape).astype(dtype)
    check_node("MaxPool", [x], attributes, with_onnxruntime("MaxPool", [x], attributes, 2))


def test_last_window_must_start_inside_the_input() -> None:
    x = -counting(1, 1, 5)
    attributes = {"kernel_shape": [2], "strides": [2], "pads": [1, 1], "ceil_mode": 1}
    check_node("MaxPool", [x], attributes, [np.array([[[-1, -2, -4]]], np.float32)])


def test_divisor_does_not_count_beyond_the_padded_input() -> None:
    x = counting(1, 1, 4, 4)
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1, "count_include_pad": 1}
    want = np.array([14 / 9, 30 / 9, 2, 57 / 9, 11, 6, 4.5, 7.5, 4], np.float32).reshape(1, 1, 3, 3)
    check_node("AveragePool", [x], attributes, [want])


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_auto_pad(mode: str, op: str) -> None:
    x = real(1, 2, 7, 10)
    attributes = {"kernel_shape": [2, 4], "strides": [2, 3], "auto_pad": mode}
    check_node(op, [x], attributes, with_onnxruntime(op, [x], attributes))


@pytest.mark.parametrize("shape", [(2, 3, 7), (1, 4, 5, 6), (1, 2, 3, 4, 5)])
def test_global_pooling(shape: tuple[int, ...]) -> None:
    x = real(*shape)
    axes = tuple(range(2, len(shape)))
    check_node("GlobalMaxPool", [x], {}, [x.max(axis=axes, keepdims=True)])
    check_node("GlobalAveragePool", [x], {}, [x.astype(np.float64).mean(axis=axes, keepdims=True).astype(np.float32)])
    y = RNG.integers(-128, 127, shape).astype(np.int8)
    check_node("GlobalMaxPool", [y], {}, [y.max(axis=axes, keepdims=True)], integers=True)


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (3, 2, 1, 0)])
def test_views_are_read_in_place(order: tuple[int, ...]) -> None:
    x = real(2, 3, 7, 6)
    attributes = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}
    for op in ("MaxPool", "AveragePool"):
        operator, node = make_node(op, [x], attributes)
        (got,) = run_on_views(operator, node, [x], {0: order}, RNG, 3)
        np.testing.assert_allclose(got, pooled(x, attributes, op == "AveragePool"), rtol=1e-5, atol=1e-6)


def test_global_pooling_over_many_axes_of_a_view() -> None:
    x = real(2, 3, 4, 2, 5)
    operator, node = make_node("GlobalAveragePool", [x])
    (got,) = run_on_views(operator, node, [x], {0: (4, 1, 3, 0, 2)}, RNG, 8)
    np.testing.assert_allclose(got, x.astype(np.float64).mean(axis=(2, 3, 4), keepdims=True), rtol=1e-5, atol=1e-6)


def test_refusals_name_the_reason() -> None:
    cases = [
        ("MaxPool", [real(1, 1, 4, 4, 4)], {"kernel_shape": [2, 2, 2]}, "3 spatial axes"),
        ("MaxPool", [real(1, 1, 4, 4)], {}, "missing"),
        ("MaxPool", [real(1, 1, 4, 4)], {"kernel_shape": [5, 2]}, "does not fit"),
        ("AveragePool", [np.zeros((1, 1, 4, 4), np.int8)], {"kernel_shape": [2, 2]}, "not defined"),
        ("AveragePool", [real(1, 1, 4, 4)], {"kernel_shape": [2, 2], "pads": [2, 2, 2, 2]}, "padding alone"),
    ]
    for op, inputs, attributes, text in cases:
        operator, node = make_node(op, inputs, attributes)
        assert any(text in str(p) and "node" in str(p) for p in operator.problems(node)), text


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_random_pooling(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 2))
    kernel = [data.draw(st.integers(1, 4)) for _ in range(rank)]
    attributes = {
        "kernel_shape": kernel,
        "strides": [data.draw(st.integers(1, 3)) for _ in range(rank)],
        "pads": [data.draw(st.integers(0, kernel[i % rank] - 1)) for i in range(2 * rank)],
        "ceil_mode": data.draw(st.integers(0, 1)),
        "count_include_pad": data.draw(st.integers(0, 1)),
    }
    sizes = [data.draw(st.integers(1, 9)) for _ in range(rank)]
    pads = attributes["pads"]
    assume(all(sizes[i] + pads[i] + pads[rank + i] >= kernel[i] for i in range(rank)))
    seed = data.draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, 2, *sizes)).astype(np.float32)
    check_node("AveragePool", [x], attributes, [pooled(x, attributes, True).astype(np.float32)], seed=seed, tilings=2)
    y = rng.integers(-128, 128, (2, 2, *sizes)).astype(np.int8)
    attributes.pop("count_include_pad")
    check_node("MaxPool", [y], attributes, [pooled(y, attributes, False).astype(np.int8)], seed=seed, tilings=2, integers=True)
