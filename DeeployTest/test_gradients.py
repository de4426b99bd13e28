"""Gradients of ReLU, GELU and softmax on the C kernels, against formulas and finite differences written here, and stored goldens."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import Deeploy.operators.gradients  # noqa: F401
from Deeploy.operators.base import find
from DeeployTest.one_node import Case, Result, refused, run
from DeeployTest.oracles import corpus

QUICK = settings(max_examples=15, deadline=None)
SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=4)
STEP = 1e-5
_erf = np.vectorize(math.erf, otypes=[np.float64])


def gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + _erf(x / math.sqrt(2))) / 2


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def softmax(x: np.ndarray, axis) -> np.ndarray:  # noqa: ANN001
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def shuffled(rng: np.random.Generator, rank: int) -> dict[int, list[int]]:
    """Both inputs as transposed views, each in an order of its own."""
    return {slot: [int(i) for i in rng.permutation(rank)] for slot in (0, 1)}


def near(got: Result, want: np.ndarray, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    np.testing.assert_allclose(got.reference[0], want, rtol / 10, atol / 10)
    np.testing.assert_allclose(got.device[0], want, rtol, atol)


@QUICK
@given(SHAPES, st.integers(0, 999))
def test_relu_grad(shape: list[int], seed: int) -> None:
    """X may be what went into Relu or what came out of it; at 0 there is no gradient."""
    rng = np.random.default_rng(seed)
    dy = rng.normal(size=shape).astype(np.float32)
    x = rng.integers(-2, 3, shape).astype(np.float32)
    x = np.maximum(x, 0) if seed % 2 else x
    got = run(Case("ReluGrad", [dy, x], {}, layouts=shuffled(rng, len(shape))), seed=seed)
    want = dy.copy()
    want[x <= 0] = 0
    np.testing.assert_array_equal(got.device[0], want)
    np.testing.assert_array_equal(got.reference[0], want)


def test_relu_grad_of_what_is_no_number_is_zero() -> None:
    x = np.array([np.nan, -np.inf, np.inf, -0.0, 1e-45], np.float32)
    got = run(Case("ReluGrad", [np.full(5, 7, np.float32), x], {}))
    np.testing.assert_array_equal(got.device[0], np.array([0, 0, 7, 0, 7], np.float32))
    np.testing.assert_array_equal(got.reference[0], got.device[0])


@QUICK
@given(SHAPES, st.sampled_from([None, "none", "tanh"]), st.integers(0, 999))
def test_gelu_grad_is_the_slope_of_gelu(shape: list[int], kind: str | None, seed: int) -> None:
    rng = np.random.default_rng(seed)
    dy = rng.normal(size=shape).astype(np.float32)
    x = rng.normal(0, 2.5, shape).astype(np.float32)
    function = gelu_tanh if kind == "tanh" else gelu
    wide = x.astype(np.float64)
    want = dy * (function(wide + STEP) - function(wide - STEP)) / (2 * STEP)
    attributes = {} if kind is None else {"approximate": kind}
    got = run(Case("GeluGrad", [dy, x], attributes, layouts=shuffled(rng, len(shape))), seed=seed)
    np.testing.assert_allclose(got.reference[0], want, 1e-6, 1e-7)
    np.testing.assert_allclose(got.device[0], want, 1e-5, 2e-6)


@pytest.mark.parametrize("kind", ["none", "tanh"])
def test_gelu_grad_far_from_zero(kind: str) -> None:
    x = np.array([-3e38, -1e20, -1e10, -200, -14, 0, 14, 200, 1e10, 1e20, 3e38], np.float32)
    want = np.array([0] * 5 + [0.5] + [1] * 5, np.float32)
    got = run(Case("GeluGrad", [np.ones(11, np.float32), x], {"approximate": kind}))
    np.testing.assert_allclose(got.device[0], want, atol=1e-6)
    np.testing.assert_allclose(got.reference[0], want, atol=1e-6)


def test_the_two_forms_of_gelu_differ() -> None:
    x = np.linspace(-3, 3, 101, dtype=np.float32)
    exact, tanh = (run(Case("GeluGrad", [np.ones_like(x), x], {"approximate": k})).device[0] for k in ("none", "tanh"))
    assert 1e-4 < np.abs(exact - tanh).max() < 2e-3


@pytest.mark.parametrize(
    ("own", "forward", "result"),
    [(None, "tanh", "tanh"), (None, None, None), ("none", "tanh", "none"), (None, "none", "none")],
)
def test_gelu_grad_follows_the_gelu_of_its_operand(own: str | None, forward: str | None, result: str | None) -> None:
    gs = pytest.importorskip("onnx_graphsurgeon")
    x, y, dy, dx = (gs.Variable(name, np.float32, (2, 3)) for name in ("x", "y", "dy", "dx"))
    gs.Node("Gelu", inputs=[x], outputs=[y], attrs={} if forward is None else {"approximate": forward})
    node = gs.Node("GeluGrad", inputs=[dy, x], outputs=[dx], attrs={} if own is None else {"approximate": own})
    operator = find("GeluGrad", "com.microsoft")
    assert operator is not None
    operator.normalise(node, 20)
    assert node.attrs.get("approximate") == result


@pytest.mark.parametrize("op", ["ReluGrad", "GeluGrad", "SoftmaxGrad"])
def test_a_constant_gradient_is_read_as_one_element(op: str) -> None:
    x = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    x = softmax(x, -1) if op == "SoftmaxGrad" else x
    dy = np.full((3, 5), 0.75, np.float32)
    splat = run(Case(op, [dy, x], {}, constants=frozenset({0})))
    np.testing.assert_array_equal(splat.device[0], run(Case(op, [dy, x], {})).device[0])


@pytest.mark.parametrize("op", ["ReluGrad", "GeluGrad", "SoftmaxGrad"])
def test_refusals(op: str) -> None:
    x = np.zeros((2, 3), np.float32)
    assert "int8" in refused(Case(op, [x, x.astype(np.int8)], {}))
    assert "shape [2, 3]" in refused(Case(op, [x, x[:1]], {}))
    if op == "GeluGrad":
        assert "sigmoid" in refused(Case(op, [x, x], {"approximate": "sigmoid"}))
    if op == "SoftmaxGrad":
        assert "axis 2" in refused(Case(op, [x, x], {"axis": 2}))


@QUICK
@given(SHAPES, st.integers(0, 999))
def test_softmax_grad(shape: list[int], seed: int) -> None:
    """The sum of dy * softmax(x), differentiated numerically with respect to every x."""
    rng = np.random.default_rng(seed)
    axis = int(rng.integers(-len(shape), len(shape)))
    x = rng.normal(0, 2, shape)
    dy = rng.normal(size=shape).astype(np.float32)
    y = softmax(x, axis).astype(np.float32)
    want = np.empty(x.size)
    for i in range(x.size):
        h = np.zeros(x.size)
        h[i] = STEP
        h = h.reshape(x.shape)
        want[i] = (dy * (softmax(x + h, axis) - softmax(x - h, axis))).sum() / (2 * STEP)
    got = run(Case("SoftmaxGrad", [dy, y], {"axis": axis}, layouts=shuffled(rng, len(shape))), seed=seed)
    near(got, want.reshape(x.shape), 1e-5, 1e-6)


def test_softmax_grad_before_opset_13_flattens() -> None:
    rng = np.random.default_rng(2)
    dy, y = rng.normal(size=(2, 3, 4)).astype(np.float32), softmax(rng.normal(size=(2, 12)), -1).reshape(2, 3, 4).astype(np.float32)
    want = y * (dy - (dy * y).sum((1, 2), keepdims=True))
    near(run(Case("SoftmaxGrad", [dy, y], {"axis": 1, "coerce": 1}, layouts={0: (2, 0, 1), 1: (1, 2, 0)})), want)


def test_softmax_grad_golden() -> None:
    folder = corpus(Path("deeploy/Kernels/FP32/Softmax/Grad"))
    inputs, outputs = (list(np.load(folder / f"{name}.npz").values()) for name in ("inputs", "outputs"))
    got = run(Case("SoftmaxGrad", inputs[:2], {"axis": -1}))
    np.testing.assert_allclose(got.device[0], outputs[0], 0, 1e-6)
