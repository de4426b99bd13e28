"""Batch normalisation in training and its gradient: float64 numpy by definition, onnxruntime, finite differences; random tilings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Deeploy.program.step import Access
from DeeployTest.one_node import Case, Result, refused, run
from DeeployTest.oracles import corpus, onnxruntime_node

EPSILON, MOMENTUM = 1e-5, 0.9


def real(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def forward_inputs(seed: int, shape: tuple[int, ...]) -> list[np.ndarray]:
    c = shape[1]
    return [real(seed, *shape), real(seed + 1, c), real(seed + 2, c), real(seed + 3, c), np.abs(real(seed + 4, c))]


def by_definition(x: np.ndarray, scale, bias, mean, var, momentum: float = MOMENTUM) -> list[np.ndarray]:  # noqa: ANN001
    """y, running mean, running variance, mean, inverse deviation: channel by channel in float64."""
    y, stats = np.zeros(x.shape), []
    for c in range(x.shape[1]):
        part = x[:, c].astype(np.float64)
        m = part.sum() / part.size
        v = ((part - m) ** 2).sum() / part.size
        inverse = 1 / np.sqrt(v + EPSILON)
        y[:, c] = (part - m) * inverse * scale[c] + bias[c]
        stats.append((momentum * mean[c] + (1 - momentum) * m, momentum * var[c] + (1 - momentum) * v, m, inverse))
    return [y, *np.array(stats).T]


def near(got: Result, want: list[np.ndarray], rtol: float = 1e-5, atol: float = 1e-5) -> None:
    assert len(got.device) == len(want)
    for results in (got.reference, got.device):
        for result, expected in zip(results, want, strict=True):
            np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)


SHAPES = st.one_of(
    st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 7), st.integers(1, 7)),
    st.tuples(st.integers(2, 5), st.integers(1, 6)),
    st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(2, 12)),
    st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(2, 3)),
)


def order(seed: int, rank: int) -> tuple[int, ...]:
    return tuple(int(d) for d in np.random.default_rng(seed).permutation(rank))


@settings(max_examples=30, deadline=None)
@given(SHAPES, st.sampled_from([0.9, 0.5, 1.0, 0.0]), st.booleans(), st.integers(0, 99))
def test_forward(shape: tuple[int, ...], momentum: float, view: bool, seed: int) -> None:
    inputs = forward_inputs(seed, shape)
    layouts = {0: order(seed, len(shape))} if view else None
    attributes = {"epsilon": EPSILON, "momentum": momentum, "training_mode": 1}
    got = run(Case("BatchNormInternal", inputs, attributes, 5, layouts=layouts), seed=seed)
    # With two equal elements in a channel the variance can be about 0, where 1 / sqrt(v + epsilon) magnifies a rounding by a hundred.
    near(got, by_definition(*inputs, momentum), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("shape", [(1, 16, 32, 32), (2, 8, 24, 24), (3, 5, 7, 9)])
def test_forward_like_onnxruntime(shape: tuple[int, ...]) -> None:
    inputs = forward_inputs(5, shape)
    attributes = {"epsilon": EPSILON, "momentum": MOMENTUM, "training_mode": 1}
    want = onnxruntime_node("BatchNormalization", inputs, attributes, opset=15, outputs=3)
    got = run(Case("BatchNormInternal", inputs, attributes, 3))
    near(got, want, atol=1e-5)
    all_of_them = by_definition(*inputs)
    for ours, theirs in zip(all_of_them[:3], want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["test_batchnorm_example_training_mode", "test_batchnorm_epsilon_training_mode"])
def test_forward_like_onnx(name: str) -> None:
    import onnx

    folder = corpus(Path("onnx_node") / name)
    (node,) = onnx.load(folder / "network.onnx").graph.node
    given_, wanted = np.load(folder / "inputs.npz"), np.load(folder / "outputs.npz")
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    got = run(Case("BatchNormInternal", [given_[i] for i in node.input], attributes, 3))
    near(got, [wanted[o] for o in node.output], rtol=1e-4)


def test_running_statistics_are_updated_in_place() -> None:
    inputs = forward_inputs(1, (2, 3, 4, 4))
    got = run(Case("BatchNormInternal", inputs, {}, 5))
    writers = {id(o.tensor.storage): o.access for s in got.program.steps for o in s.operands if o.access is not Access.READ}
    assert [writers[id(got.tensors[i].storage)] for i in (1, 2)] == [Access.UPDATE, Access.UPDATE]
    assert sum(o.access is Access.UPDATE for s in got.program.steps for o in s.operands) == 2


@pytest.mark.parametrize("offset", [1e3, -3e4])
def test_large_means_do_not_cancel(offset: float) -> None:
    """Against float64 on the same float32 data: sums of x and x^2 would have lost all of the variance."""
    inputs = forward_inputs(3, (2, 4, 16, 16))
    inputs[0] = (inputs[0] + np.float32(offset)).astype(np.float32)
    want = by_definition(*inputs)
    got = run(Case("BatchNormInternal", inputs, {}, 5))
    np.testing.assert_allclose(got.device[4], want[4], rtol=1e-5)
    np.testing.assert_allclose(got.device[3], want[3], rtol=1e-6)


def test_an_outlier_first_and_channels_without_variance() -> None:
    inputs = forward_inputs(3, (2, 3, 30, 30))
    inputs[0][0, 0, 0, 0] = 1e4
    inputs[0][:, 1] = 3.7
    inputs[0][0, 2], inputs[0][1, 2] = -5.0, 5.0
    want = by_definition(*inputs)
    got = run(Case("BatchNormInternal", inputs, {}, 5))
    np.testing.assert_allclose(got.device[4], want[4], rtol=1e-3)
    assert (np.abs(got.device[3] - want[3]) * want[4] < 1e-5).all()  # of the channel's deviation
    np.testing.assert_allclose(got.device[0][:, 1], np.broadcast_to(inputs[2][1], (2, 30, 30)), atol=1e-3)
    np.testing.assert_allclose(got.device[0][:, 2], want[0][:, 2], rtol=1e-5)


def test_constants_and_few_outputs() -> None:
    inputs = forward_inputs(4, (1, 6, 5, 5))
    inputs[1], inputs[2] = np.ones(6, np.float32), np.zeros(6, np.float32)
    want = by_definition(*inputs)
    near(run(Case("BatchNormInternal", inputs, {}, 5, constants=frozenset({1, 2}))), want, atol=2e-5)
    near(run(Case("BatchNormInternal", inputs, {}, 3)), want[:3], atol=2e-5)


def gradients(dy: np.ndarray, x: np.ndarray, scale: np.ndarray) -> list[np.ndarray]:
    """By central differences of sum(dy * y) in float64."""
    x64, scale64 = x.astype(np.float64), scale.astype(np.float64)
    none = np.zeros(x.shape[1])

    def loss(x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> float:
        return float((dy * by_definition(x, scale, bias, none, none)[0]).sum())

    arguments = [x64, scale64, none.copy()]
    found = []
    for argument in arguments:
        slope = np.zeros(argument.shape)
        for place in np.ndindex(*argument.shape):
            kept, step = argument[place], 1e-5
            argument[place] = kept + step
            above = loss(*arguments)
            argument[place] = kept - step
            slope[place] = (above - loss(*arguments)) / (2 * step)
            argument[place] = kept
        found.append(slope)
    return found


@pytest.mark.parametrize("shape", [(1, 3, 4, 5), (2, 2, 3, 3), (6, 3), (2, 2, 7)])
def test_gradient_is_that_of_finite_differences(shape: tuple[int, ...]) -> None:
    dy, (x, scale, *_) = real(9, *shape), forward_inputs(2, shape)
    none = np.zeros(shape[1])
    _, _, _, mean, inverse = (a.astype(np.float32) for a in by_definition(x, scale, none, none, none))
    got = run(Case("BatchNormalizationGrad", [dy, x, scale, mean, inverse], {"epsilon": EPSILON}, 3))
    near(got, gradients(dy, x, scale), rtol=1e-4, atol=2e-4)


@settings(max_examples=30, deadline=None)
@given(SHAPES, st.booleans(), st.integers(0, 99))
def test_gradient(shape: tuple[int, ...], view: bool, seed: int) -> None:
    """By the formula of its definition, written with matrices: dx = scale * inverse * (I - 1 1' / m - xh xh' / m) dy."""
    dy, (x, scale, *_) = real(seed + 20, *shape), forward_inputs(seed, shape)
    none = np.zeros(shape[1])
    _, _, _, mean, inverse = (a.astype(np.float32) for a in by_definition(x, scale, none, none, none))
    dx, dscale, dbias = np.zeros(shape), np.zeros(shape[1]), np.zeros(shape[1])
    for c in range(shape[1]):
        g, xh = dy[:, c].astype(np.float64).reshape(-1), (x[:, c].astype(np.float64).reshape(-1) - mean[c]) * inverse[c]
        m = g.size
        projection = np.eye(m) - np.full((m, m), 1 / m) - np.outer(xh, xh) / m
        dx[:, c] = (scale[c] * np.float64(inverse[c]) * projection @ g).reshape(dx[:, c].shape)
        dscale[c], dbias[c] = g @ xh, g.sum()
    layouts = {0: order(seed, len(shape)), 1: order(seed + 1, len(shape))} if view else None
    got = run(Case("BatchNormalizationGrad", [dy, x, scale, mean, inverse], {}, 3, layouts=layouts), seed=seed)
    for results in (got.reference, got.device):
        for result, want in zip(results, (dx, dscale, dbias), strict=True):
            np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5 * max(1.0, np.abs(want).max()))


def test_gradient_of_one_tensor_twice_and_without_dx() -> None:
    x = real(1, 2, 3, 4)
    inputs = [x, x, real(2, 3), real(3, 3), np.abs(real(4, 3))]
    want = run(Case("BatchNormalizationGrad", inputs, {}, 3)).device
    got = run(Case("BatchNormalizationGrad", inputs, {}, 3, absent=frozenset({0})))
    for a, b in zip(got.device[1:], want[1:], strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(got.program.steps) == 2


def test_refusals() -> None:
    inputs = forward_inputs(0, (2, 3, 4, 4))
    assert "training_mode" in refused(Case("BatchNormInternal", inputs, {"training_mode": 0}, 5))
    assert "running statistics" in refused(Case("BatchNormInternal", inputs, {}, 1))
    assert "running statistics" in refused(Case("BatchNormInternal", inputs, {}, 5, absent=frozenset({2})))
    assert "3 channels" in refused(Case("BatchNormInternal", [inputs[0], real(0, 4), *inputs[2:]], {}, 5))
    assert "float32" in refused(Case("BatchNormInternal", [inputs[0].astype(np.int32), *inputs[1:]], {}, 5))
    assert "gradient of shape" in refused(Case("BatchNormalizationGrad", [real(0, 2, 3, 4), *inputs[:4]], {}, 3))
