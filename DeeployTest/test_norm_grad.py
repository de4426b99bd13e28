"""The statistics of LayerNormalization and its gradient on the C kernels, against formulas and finite differences written here."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import Deeploy.operators.norm_grad  # noqa: F401
from DeeployTest.node_runner import make_node, run_node
from DeeployTest.one_node import Case, refused, run
from DeeployTest.oracles import onnxruntime_node
from DeeployTest.support import deeploy_json

QUICK = settings(max_examples=15, deadline=None)
EPSILON = 1e-3
STEP = 1e-6


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(0.3, 1.5, shape).astype(np.float32)


def statistics(x: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    line = tuple(range(axis, x.ndim))
    wide = x.astype(np.float64)
    return wide.mean(line, keepdims=True), 1 / np.sqrt(wide.var(line, keepdims=True) + EPSILON)


def gradients(dy: np.ndarray, x: np.ndarray, scale: np.ndarray, axis: int) -> list[np.ndarray]:
    """dX by finite differences of sum(dy * layernorm(x)) in every x; dScale and dBias by sums over the lines."""
    wide = x.astype(np.float64)
    mean, inverse = statistics(x, axis)
    lines = tuple(range(axis))

    def loss(x: np.ndarray) -> float:
        mean, inverse = statistics(x, axis)
        return float((dy * ((x - mean) * inverse * scale)).sum())

    dx = np.empty(x.size)
    for i in range(x.size):
        h = np.zeros(x.size)
        h[i] = STEP
        h = h.reshape(x.shape)
        dx[i] = (loss(wide + h) - loss(wide - h)) / (2 * STEP)
    return [dx.reshape(x.shape), (dy * (wide - mean) * inverse).sum(lines), dy.astype(np.float64).sum(lines)]


def problem(shape: list[int], seed: int) -> tuple[np.random.Generator, int, np.ndarray, np.ndarray, np.ndarray]:
    """Generator, axis, dY, X, scale."""
    rng = np.random.default_rng(seed)
    axis = int(rng.integers(0, len(shape)))
    return rng, axis, normal(rng, *shape), normal(rng, *shape), normal(rng, *shape[axis:])


def shuffled(rng: np.random.Generator, inputs: list[np.ndarray]) -> dict[int, list[int]]:
    return {slot: [int(i) for i in rng.permutation(array.ndim)] for slot, array in enumerate(inputs)}


SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@QUICK
@given(SHAPES, st.integers(0, 999))
def test_statistics_are_outputs(shape: list[int], seed: int) -> None:
    rng, axis, bias, x, scale = problem(shape, seed)
    inputs = [x, scale] if seed % 3 == 0 else [x, scale, normal(rng, *shape[axis:])]
    attributes = {"axis": axis - len(shape), "epsilon": EPSILON}
    outputs = 3 if seed % 2 else 2
    got = run(Case("LayerNormalization", inputs, attributes, outputs, layouts=shuffled(rng, inputs)), seed=seed)
    mean, inverse = statistics(x, axis)
    y = (x - mean) * inverse * scale + (inputs[2] if len(inputs) > 2 else 0)
    assert len(got.device) == outputs
    for device, reference, want in zip(got.device, got.reference, (y, mean, inverse), strict=False):
        np.testing.assert_allclose(reference, want, 1e-6, 1e-6)
        np.testing.assert_allclose(device, want, 1e-4, 1e-4)


def test_statistics_agree_with_onnxruntime_and_change_no_result() -> None:
    rng = np.random.default_rng(3)
    inputs = [normal(rng, 2, 3, 16), normal(rng, 16), normal(rng, 16)]
    got = run(Case("LayerNormalization", inputs, {}, 3)).device
    for device, want in zip(got, onnxruntime_node("LayerNormalization", inputs, {}, outputs=3), strict=True):
        np.testing.assert_allclose(device, want, 1e-4, 1e-5)
    assert run(Case("LayerNormalization", inputs, {})).device[0].tobytes() == got[0].tobytes()


def test_only_the_inverse_deviation_is_wanted() -> None:
    x, scale = normal(np.random.default_rng(4), 3, 8), np.ones(8, np.float32)
    operator, node = make_node("LayerNormalization", [x, scale], {"epsilon": EPSILON}, outputs=3)
    object.__setattr__(node, "outputs", ("y", "", "inverse"))
    got = run_node(operator, node, [x, scale], np.random.default_rng(0), 3)
    np.testing.assert_allclose(got[2], statistics(x, 1)[1], 1e-5)


@QUICK
@given(SHAPES, st.integers(0, 999))
def test_gradient_with_statistics(shape: list[int], seed: int) -> None:
    rng, axis, dy, x, scale = problem(shape, seed)
    mean, inverse = (s.astype(np.float32) for s in statistics(x, axis))
    inputs = [dy, x, scale, mean, inverse]
    attributes = {"axis": axis, "epsilon": 123.0}  # not needed: the statistics are given
    outputs = 1 + seed % 3
    constants = frozenset({2}) if seed % 5 == 0 else frozenset()
    layouts = {slot: order for slot, order in shuffled(rng, inputs).items() if slot not in constants}
    got = run(Case("LayerNormalizationGrad", inputs, attributes, outputs, constants, layouts), seed=seed)
    assert len(got.device) == outputs
    for device, reference, want in zip(got.device, got.reference, gradients(dy, x, scale, axis), strict=False):
        np.testing.assert_allclose(reference, want, 1e-4, 1e-4)
        np.testing.assert_allclose(device, reference, 1e-4, 1e-4)


@QUICK
@given(SHAPES, st.booleans(), st.integers(0, 999))
def test_gradient_that_computes_the_statistics(shape: list[int], biased: bool, seed: int) -> None:
    """Slot 3 of files in the Deeploy format is the bias, which no gradient depends on."""
    rng, axis, dy, x, scale = problem(shape, seed)
    inputs = [dy, x, scale, np.full(scale.shape, np.nan, np.float32)] if biased else [dy, x, scale]
    outputs = 1 + seed % 3
    attributes = {"axis": axis - len(shape), "epsilon": EPSILON}
    got = run(Case("LayerNormalizationGrad", inputs, attributes, outputs, layouts=shuffled(rng, inputs)), seed=seed)
    for device, reference, want in zip(got.device, got.reference, gradients(dy, x, scale, axis), strict=False):
        np.testing.assert_allclose(reference, want, 1e-4, 1e-4)
        np.testing.assert_allclose(device, reference, 1e-4, 1e-4)


def test_both_forms_of_the_gradient_agree_to_the_bit() -> None:
    rng = np.random.default_rng(5)
    dy, x, scale = normal(rng, 2, 7, 33), normal(rng, 2, 7, 33), normal(rng, 33)
    _, mean, inverse = run(Case("LayerNormalization", [x, scale], {}, 3)).device
    given_ = run(Case("LayerNormalizationGrad", [dy, x, scale, mean, inverse], {}, 3)).device
    computed = run(Case("LayerNormalizationGrad", [dy, x, scale], {}, 3)).device
    assert [a.tobytes() for a in given_] == [a.tobytes() for a in computed]


@pytest.mark.parametrize("names", [("", "", "db"), ("", "ds", ""), ("dx", "", "db"), ("", "ds", "db")])
def test_each_output_may_be_absent(names: tuple[str, ...]) -> None:
    rng = np.random.default_rng(6)
    inputs = [normal(rng, 5, 6), normal(rng, 5, 6), normal(rng, 6)]
    operator, node = make_node("LayerNormalizationGrad", inputs, {"epsilon": EPSILON}, outputs=3)
    object.__setattr__(node, "outputs", names)
    got = run_node(operator, node, inputs, np.random.default_rng(0), 3)
    for name, device, want in zip(names, got, gradients(*inputs, 1), strict=True):
        if name:
            np.testing.assert_allclose(device, want, 1e-4, 1e-4)


def test_the_sums_may_be_split_over_lines() -> None:
    rng = np.random.default_rng(7)
    inputs = [normal(rng, 4, 9, 5), normal(rng, 4, 9, 5), normal(rng, 5)]
    program = run(Case("LayerNormalizationGrad", inputs, {}, 3), trials=12).program
    sums = [s for s in program.steps if s.accumulator is not None]
    assert len(sums) == 2 and all(s.calls[0].kernel.splits_reduction for s in sums)


def test_views_whose_lines_do_not_join() -> None:
    """Three axes over the lines that no two operands have in one order, and lines of three axes."""
    rng = np.random.default_rng(9)
    for axis, scale_shape in ((3, (5,)), (1, (3, 4, 5))):
        inputs = [normal(rng, 2, 3, 4, 5), normal(rng, 2, 3, 4, 5), normal(rng, *scale_shape)]
        layouts = {0: (2, 1, 0, 3), 1: (1, 3, 2, 0)}
        got = run(Case("LayerNormalizationGrad", inputs, {"axis": axis, "epsilon": EPSILON}, 3, layouts=layouts), trials=6)
        for device, want in zip(got.device, gradients(*inputs, axis), strict=True):
            np.testing.assert_allclose(device, want, 1e-4, 1e-4)


def test_refusals() -> None:
    x, w = np.zeros((2, 3), np.float32), np.zeros(3, np.float32)
    m = np.zeros((2, 1), np.float32)
    op = "LayerNormalizationGrad"
    assert "input 2 is missing" in refused(Case(op, [x, x], {}))
    assert "shape [2, 3]" in refused(Case(op, [x[:1], x, w], {}))
    assert "int8" in refused(Case(op, [x.astype(np.int8), x, w], {}))
    assert "[3]" in refused(Case(op, [x, x, w[:1]], {}))
    assert "input 3" in refused(Case(op, [x, x, w, m], {}))
    assert "input 4" in refused(Case(op, [x, x, w, m, m[:1]], {}))
    assert "no mean" in refused(Case(op, [x, x, w, None, m], {}))
    assert "axis 5" in refused(Case(op, [x, x, w], {"axis": 5}))
    assert "stash_type" in refused(Case(op, [x, x, w], {"stash_type": 10}))
    assert "no elements" in refused(Case(op, [x[:0], x[:0], w], {}))


@pytest.mark.parametrize("read", [1, 3])
def test_a_graph_through_the_command_line(read: int, tmp_path: Path) -> None:
    """Forward and gradient in one graph, tiled through all levels; outputs of the gradient that nobody reads cost no step."""
    rng = np.random.default_rng(8)
    dy, x = normal(rng, 1, 40, 64), normal(rng, 1, 40, 64)
    scale, bias = normal(rng, 64), normal(rng, 64)
    mean, inverse = statistics(x, 2)
    y = ((x - mean) * inverse * scale + bias).astype(np.float32)
    g, unit = dy * scale.astype(np.float64), (x - mean) * inverse
    dx = inverse * (g - g.mean(-1, keepdims=True) - unit * (g * unit).mean(-1, keepdims=True))
    results = {"y": y, "dx": dx, "ds": (dy * unit).sum((0, 1)), "db": dy.astype(np.float64).sum((0, 1))}
    results = dict(list(results.items())[: 1 + read])
    attributes = {"axis": -1, "epsilon": EPSILON}
    float_info = functools.partial(helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT)
    graph = helper.make_graph(
        [
            helper.make_node("LayerNormalization", ["x", "s", "b"], ["y", "mean", "inv"], "forward", **attributes),
            helper.make_node(
                "LayerNormalizationGrad", ["dy", "x", "s", "mean", "inv"], ["dx", "ds", "db"], "back", domain="com.microsoft", **attributes
            ),
        ],
        "g",
        [float_info(name, shape=array.shape) for name, array in (("dy", dy), ("x", x))],
        [float_info(name, shape=array.shape) for name, array in results.items()],
        [numpy_helper.from_array(array, name) for name, array in (("s", scale), ("b", bias))],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "network.onnx")
    np.savez(tmp_path / "inputs.npz", dy=dy, x=x)
    np.savez(tmp_path / "outputs.npz", **{name: array.astype(np.float32) for name, array in results.items()})
    found = deeploy_json("run", tmp_path, "--platform", "gap9", "--l1", 4000, "--home", "L3", "--compare", "all", "--dump", tmp_path / "d")
    assert found, found
    text = "".join(p.read_text() for p in (tmp_path / "d").rglob("*") if p.is_file())
    assert ("dp_norm_scale_grad_f32" in text) == (read == 3)
