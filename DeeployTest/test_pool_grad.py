"""Gradients of poolings: scattering by definition, finite differences, the indices of onnxruntime's MaxPool; random tilings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from Deeploy.operators.base import find
from DeeployTest.one_node import Case, refused, run
from DeeployTest.oracles import onnxruntime_node


def real(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def scattered(dy: np.ndarray, indices: np.ndarray, shape: tuple[int, ...], column_major: bool = False) -> np.ndarray:
    dx = np.zeros(int(np.prod(shape)))
    for value, index in zip(dy.reshape(-1).astype(np.float64), indices.reshape(-1), strict=True):
        dx[index] += value
    return dx.reshape(*shape[:2], *shape[2:][::-1]).swapaxes(2, 3) if column_major else dx.reshape(shape)


GEOMETRIES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 4, 32, 32), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((2, 3, 8, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ((1, 2, 9, 7), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 2, 9, 8), {"kernel_shape": [3, 2], "strides": [3, 2], "pads": [1, 0, 2, 1], "ceil_mode": 1}),
    ((1, 2, 12, 12), {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 1, 1, 1], "strides": [2, 1]}),
    ((2, 2, 10), {"kernel_shape": [3], "strides": [2], "pads": [0, 1]}),
    ((1, 2, 6, 6), {"kernel_shape": [6, 6]}),
    ((1, 2, 8, 8), {"kernel_shape": [2, 2], "strides": [4, 4]}),
    ((1, 2, 7, 8), {"kernel_shape": [2, 3], "auto_pad": "SAME_UPPER", "strides": [1, 2]}),
    ((1, 2, 6, 8), {"kernel_shape": [3, 3], "strides": [3, 2], "pads": [2, 2, 2, 2]}),
]


@pytest.mark.parametrize(("shape", "attributes"), GEOMETRIES)
@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize("ties", [False, True])
def test_max_pool(shape: tuple[int, ...], attributes: dict[str, Any], storage_order: int, ties: bool) -> None:
    x = real(1, *shape)
    if ties:
        x = np.maximum(np.round(x), 0)
    if storage_order and len(shape) == 3:
        pytest.skip("one spatial axis has no order")
    attributes = {**attributes, "storage_order": storage_order}
    y, indices = onnxruntime_node("MaxPool", [x], attributes, opset=12, outputs=2)
    dy = real(2, *y.shape)
    want = scattered(dy, indices, shape, bool(storage_order))
    got = run(Case("MaxPoolGrad", [dy, indices], {**attributes, "output_shape": list(shape)}), trials=5)
    for result in (got.reference[0], got.device[0]):
        np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-6)


@st.composite
def axes(draw: Any) -> tuple[int, int, int, int, int, int]:
    """size, taps, stride, dilation, padding before and after."""
    taps, stride, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 2))
    before, after = draw(st.integers(0, taps - 1)), draw(st.integers(0, taps - 1))
    size = stride * draw(st.integers(1, 5)) if draw(st.booleans()) else draw(st.integers(1, 13))
    return size, taps, stride, dilation, before, after


@settings(max_examples=40, deadline=None)
@given(st.tuples(axes(), axes()), st.booleans(), st.integers(0, 99))
def test_max_pool_of_any_geometry(plane: tuple[tuple[int, ...], ...], view: bool, seed: int) -> None:
    """Indices and gradients from our own MaxPool, whose first maximum in window order counts; ties on purpose."""
    for size, taps, _, dilation, before, after in plane:
        assume(size + before + after > (taps - 1) * dilation)
    names = ("kernel_shape", "strides", "dilations")
    attributes: dict[str, Any] = {name: [axis[i] for axis in plane] for name, i in zip(names, (1, 2, 3), strict=True)}
    attributes["pads"] = [axis[i] for i in (4, 5) for axis in plane]
    shape = (2, 2, plane[0][0], plane[1][0])
    x = np.round(2 * real(seed, *shape))
    case = Case("MaxPool", [x], attributes, 2)
    operator = find("MaxPool", "")
    assert operator is not None
    assume(not operator.problems(case.node()))
    _, indices = run(case, trials=1).device
    dy = real(seed + 1, *indices.shape)
    layouts = {0: (1, 3, 2, 0), 1: (0, 2, 3, 1)} if view else None
    got = run(Case("MaxPoolGrad", [dy, indices], {**attributes, "output_shape": list(shape)}, layouts=layouts), seed=seed)
    for result in (got.reference[0], got.device[0]):
        np.testing.assert_allclose(result, scattered(dy, indices, shape), rtol=1e-5, atol=1e-6)


def test_max_pool_is_tiled_where_the_stride_divides() -> None:
    dy, indices = real(0, 1, 2, 16, 16), np.zeros((1, 2, 16, 16), np.int64)
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "output_shape": [1, 2, 32, 32]}
    (step,) = run(Case("MaxPoolGrad", [dy, indices], attributes)).program.steps
    assert [axis.size for axis in step.axes] == [1, 2, 16, 16]
    whole, pooled = step.operands[0], step.operands[1]
    assert [whole.dims[2].interval((0, 0, q, 0), (1, 1, 2, 1)) for q in (0, 5)] == [(0, 4), (10, 14)]
    assert [pooled.dims[2].clipped((0, 0, q, 0), (1, 1, 2, 1)) for q in (0, 14)] == [(0, 3, 0), (14, 2, 0)]


@pytest.mark.parametrize("shape", [(1, 16, 8, 8), (2, 5, 3, 7), (1, 3, 9), (1, 4, 1, 1), (2, 3, 2, 3, 4)])
def test_global_average_pool(shape: tuple[int, ...]) -> None:
    dy = real(1, *shape[:2], *[1] * (len(shape) - 2))
    want = np.broadcast_to(dy.astype(np.float64) / np.prod(shape[2:]), shape)
    for layouts in (None, {0: (1, 0, *range(2, len(shape)))}):
        got = run(Case("GlobalAveragePoolGrad", [dy], {"output_shape": list(shape)}, layouts=layouts))
        for result in (got.reference[0], got.device[0]):
            np.testing.assert_allclose(result, want, rtol=1e-6)


def test_the_declared_shape_counts() -> None:
    import onnx.parser
    import onnx_graphsurgeon as gs

    head = '<ir_version: 8, opset_import: ["": 13]> g (float[1,3,1,1] dy) => '
    model = onnx.parser.parse_model(head + "(float[1,3,4,5] dx) { dx = Relu(dy) }")
    model.graph.node[0].op_type = "GlobalAveragePoolGrad"
    (node,) = gs.import_onnx(model).nodes
    operator = find("GlobalAveragePoolGrad", "")
    assert operator is not None
    operator.normalise(node, 13)
    assert node.attrs["output_shape"] == [1, 3, 4, 5]
    node.attrs.clear()
    node.outputs[0].shape = [1, "C", 4, 5]
    operator.normalise(node, 13)
    assert not node.attrs


def test_refusals() -> None:
    dy, indices = real(0, 1, 2, 4, 4), np.zeros((1, 2, 4, 4), np.int64)
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    assert "not declared" in refused(Case("MaxPoolGrad", [dy, indices], pool))
    assert "not declared" in refused(Case("GlobalAveragePoolGrad", [real(0, 1, 2, 1, 1)], {}))
    assert "one position" in refused(Case("GlobalAveragePoolGrad", [dy], {"output_shape": [1, 2, 8, 8]}))
    assert "output of shape" in refused(Case("GlobalAveragePoolGrad", [real(0, 1, 2, 1, 1)], {"output_shape": [1, 3, 8, 8]}))
    assert "pooling gives [5, 4]" in refused(Case("MaxPoolGrad", [dy, indices], {**pool, "output_shape": [1, 2, 10, 8]}))
    assert "indices" in refused(Case("MaxPoolGrad", [dy, dy], {**pool, "output_shape": [1, 2, 8, 8]}))
    assert "kernel_shape" in refused(Case("MaxPoolGrad", [dy, indices], {"output_shape": [1, 2, 8, 8]}))
