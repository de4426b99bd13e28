"""Losses and their gradients: onnxruntime, ONNX's own tests, finite differences in float64, stored goldens; random tilings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Deeploy.operators.base import find
from DeeployTest.one_node import Case, Result, refused, run
from DeeployTest.oracles import CORPUS, corpus, onnxruntime_node

LOSS, GRADIENT = "SoftmaxCrossEntropyLoss", "SoftmaxCrossEntropyLossGrad"


def real(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def near(got: Result, want: list[np.ndarray], rtol: float = 1e-5, atol: float = 2e-6) -> None:
    assert len(got.device) == len(want)
    for results in (got.reference, got.device):
        for result, expected in zip(results, want, strict=True):
            assert result.shape == np.shape(expected)
            np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)


def log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x.astype(np.float64) - x.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def loss_of(x: np.ndarray, labels: np.ndarray, weights: np.ndarray | None, ignored: int | None, reduction: str) -> np.ndarray:
    """By definition, label by label."""
    log_prob, losses, total = log_softmax(x), np.zeros(labels.shape), 0.0
    for place in np.ndindex(*labels.shape):
        label = int(labels[place])
        if label == ignored:
            continue
        weight = 1.0 if weights is None else float(weights[label])
        losses[place] = -weight * log_prob[(place[0], label, *place[1:])]
        total += weight
    return losses if reduction == "none" else losses.sum() if reduction == "sum" else losses.sum() / total


def slopes(function: Callable[[np.ndarray], float], at: np.ndarray) -> np.ndarray:
    """Central differences in float64."""
    point, found = at.astype(np.float64), np.zeros(at.shape)
    for place in np.ndindex(*at.shape):
        kept = point[place]
        point[place] = kept + 1e-5
        above = function(point)
        point[place] = kept - 1e-5
        found[place] = (above - function(point)) / 2e-5
        point[place] = kept
    return found


@st.composite
def problems(draw: Any) -> dict[str, Any]:
    """Scores, labels of some type, weights or none, an ignored label or none, a reduction."""
    seed = draw(st.integers(0, 999))
    n, c = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    rest = draw(st.sampled_from([(), (), (3,), (2, 4), (2, 1, 3)]))
    rng = np.random.default_rng(seed)
    ignored = draw(st.sampled_from([None, None, 0, -1, 77]))
    labels = rng.integers(0, c, (n, *rest))
    if ignored is not None and labels.size > 1:
        labels.reshape(-1)[rng.integers(1, labels.size)] = ignored
        labels.reshape(-1)[0] = c - 1 if ignored == 0 else 0
    elif ignored == 0:
        ignored = -1
    if ignored == 0 and c == 1:
        ignored, labels = -1, np.zeros_like(labels)
    weights = np.abs(real(seed + 1, c)) + np.float32(0.1) if draw(st.booleans()) else None
    x = 3 * real(seed, n, c, *rest)
    dtype = draw(st.sampled_from([np.int64, np.int32]))
    reduction = draw(st.sampled_from(["mean", "mean", "sum", "none"]))
    return {"x": x, "labels": labels.astype(dtype), "weights": weights, "ignored": ignored, "reduction": reduction, "seed": seed}


def attributes_of(p: dict[str, Any]) -> dict[str, Any]:
    attributes = {"reduction": p["reduction"]}
    return attributes if p["ignored"] is None else {**attributes, "ignore_index": p["ignored"]}


@settings(max_examples=40, deadline=None)
@given(problems(), st.booleans(), st.booleans())
def test_loss(p: dict[str, Any], view: bool, splat: bool) -> None:
    x, labels, weights = p["x"], p["labels"], p["weights"]
    if splat and weights is not None:
        weights = np.full_like(weights, 0.5)
    layouts = {0: tuple(int(d) for d in np.random.default_rng(p["seed"]).permutation(x.ndim))} if view else None
    constants = frozenset({2} if splat and weights is not None else ())
    inputs = [x, labels] if weights is None else [x, labels, weights]
    got = run(Case(LOSS, inputs, {**attributes_of(p), "axis": 1}, 2, constants, layouts), seed=p["seed"])
    near(got, [loss_of(x, labels, weights, p["ignored"], p["reduction"]), log_softmax(x)], rtol=2e-5)
    alone = run(Case(LOSS, inputs, attributes_of(p), 2, absent=frozenset({1})))
    np.testing.assert_allclose(alone.device[0], got.device[0], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(1, 10), (64, 10), (3, 5, 4, 4)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [None, 2])
def test_loss_like_onnxruntime(reduction: str, shape: tuple[int, ...], weighted: bool, ignored: int | None) -> None:
    labels = np.random.default_rng(1).integers(0, shape[1], (shape[0], *shape[2:]))
    labels.reshape(-1)[0] = 1
    inputs = [4 * real(2, *shape), labels, *([np.abs(real(3, shape[1]))] if weighted else [])]
    attributes: dict[str, Any] = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
    want = onnxruntime_node(LOSS, inputs, attributes, opset=13, outputs=2)
    near(run(Case(LOSS, inputs, attributes, 2)), want, rtol=2e-5, atol=1e-5)


def test_onnx_node_tests() -> None:
    import onnx

    corpus(Path("onnx_node"))
    folders = sorted((CORPUS / "onnx_node").glob("test_sce_*"))
    assert len(folders) > 20
    for folder in folders:
        graph = onnx.load(folder / "network.onnx").graph
        (node,) = graph.node
        given_, wanted = np.load(folder / "inputs.npz"), np.load(folder / "outputs.npz")
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        attributes["declared_rank"] = len(graph.output[0].type.tensor_type.shape.dim)
        got = run(Case(LOSS, [given_[i] for i in node.input], attributes, len(node.output)), trials=2)
        near(got, [wanted[o] for o in node.output], rtol=1e-4, atol=1e-6)


def test_extreme_scores_and_labels_that_are_no_class() -> None:
    x = np.array([[1e4, -1e4, 0], [80, 90, 100], [-1e38, 1e38, 0]], np.float32)
    labels = np.array([0, 1, 1])
    near(run(Case(LOSS, [x, labels], {}, 2)), [np.float32(10.0000454 / 3), log_softmax(x)], rtol=1e-6)
    for label in (3, -1, 1 << 40):
        wrong = np.array([0, label, 1])
        got = run(Case(LOSS, [x, wrong], {"reduction": "none"}, 1))
        np.testing.assert_array_equal(np.isnan(got.device[0]), [False, True, False])
        np.testing.assert_array_equal(np.isnan(got.reference[0]), [False, True, False])
        got = run(Case(GRADIENT, [log_softmax(x).astype(np.float32), wrong], {}))
        np.testing.assert_array_equal(np.isnan(got.device[0]).all(1), [False, True, False])
        np.testing.assert_array_equal(np.isnan(got.device[0]), np.isnan(got.reference[0]))


@settings(max_examples=40, deadline=None)
@given(problems(), st.booleans())
def test_gradient_is_that_of_finite_differences(p: dict[str, Any], view: bool) -> None:
    """onnxruntime's form, in the internal order of inputs: log_prob, labels, gradient of the loss, weights."""
    x, labels, weights, ignored, reduction = (p[k] for k in ("x", "labels", "weights", "ignored", "reduction"))
    dy = real(p["seed"] + 5, *(labels.shape if reduction == "none" else ()))
    want = slopes(lambda v: float((dy * loss_of(v, labels, weights, ignored, reduction)).sum()), x)
    layouts = {0: tuple(int(d) for d in np.random.default_rng(p["seed"]).permutation(x.ndim))} if view else None
    inputs = [log_softmax(x).astype(np.float32), labels, dy, *([] if weights is None else [weights])]
    near(run(Case(GRADIENT, inputs, attributes_of(p), layouts=layouts), seed=p["seed"]), [want], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("labels", [1, 4])
def test_gradient_without_that_of_the_loss(labels: int) -> None:
    x, y = real(1, labels, 6), np.arange(labels)
    want = slopes(lambda v: float(loss_of(v, y, None, None, "mean")), x)
    log_prob = log_softmax(x).astype(np.float32)
    near(run(Case(GRADIENT, [log_prob, y], {"squared": 0})), [want], rtol=1e-4, atol=1e-6)
    near(run(Case(GRADIENT, [log_prob, y], {"squared": 1})), [want / labels], rtol=1e-4, atol=1e-6)
    near(run(Case(GRADIENT, [log_prob, y], {"reduction": "sum", "squared": 0})), [want * labels], rtol=1e-4, atol=1e-6)


def normalised(model: Any) -> list[Any]:
    """The nodes of a model in the internal form."""
    import onnx_graphsurgeon as gs

    nodes = [node for node in gs.import_onnx(model).nodes if node.op in (LOSS, GRADIENT)]
    for node in nodes:
        operator = find(node.op, node.domain or "")
        assert operator is not None
        operator.normalise(node, 13)
    return nodes


@pytest.mark.parametrize("op", [LOSS, GRADIENT])
def test_deeploy_goldens(op: str) -> None:
    """log_prob as the only output; division by N^2."""
    import onnx

    folder = corpus(Path("deeploy/Kernels/FP32/Softmax/CrossEntropy" + ("" if op == LOSS else "Grad")))
    (node,) = normalised(onnx.load(folder / "network.onnx"))
    given_, wanted = np.load(folder / "inputs.npz"), np.load(folder / "outputs.npz")
    got = run(Case(op, [given_[name] for name in given_.files[:2]], dict(node.attrs)))
    near(got, [wanted[wanted.files[0]]], rtol=1e-4, atol=1e-6)


def parsed(body: str) -> Any:
    """A model on scores x and labels y."""
    import onnx.parser

    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 13, "com.microsoft": 1]> g (float[4,6] x, int64[4] y) => {body}')


FORWARD, BACK = f"{LOSS}(x, y)", f"dx = com.microsoft.{GRADIENT}"
FORMS = [
    (f"(float[4,6] out) {{ out = {FORWARD} }}", (4, 6), None),
    (f"(float out) {{ out = {FORWARD} }}", (), None),
    (f"(float[4] out) {{ out = {LOSS} <reduction = 'none'> (x, y) }}".replace("'", '"'), (4,), None),
    (f"(float[4,6] dx) {{ out = {FORWARD} {BACK}(out, y) }}", (4, 6), 1),
    (f"(float[4,6] dx) <float[4,6] out> {{ out = {FORWARD} {BACK}(out, y) }}", (4, 6), 1),
    (f"(float loss, float[4,6] dx) {{ loss, out = {FORWARD} {BACK}(out, y) }}", (), 0),
    (f"(float loss, float[4,6] dx) {{ loss, out = {FORWARD} g = Constant <value_float = 1.0> () {BACK}(g, out, y) }}", (), None),
    (f"(float[4,6] dx) {{ {BACK}(x, y) }}", None, 1),
]


@pytest.mark.parametrize(("body", "shape", "squared"), FORMS)
def test_which_form_a_file_has(body: str, shape: tuple[int, ...] | None, squared: int | None) -> None:
    """The rank of a single output, or else its reader, says what it is; the forward node says what the gradient is divided by."""
    scores, labels = real(0, 4, 6), np.zeros(4, np.int64)
    for node in normalised(parsed(body)):
        if node.op == LOSS:
            case = Case(LOSS, [scores, labels], dict(node.attrs), len(node.outputs))
            assert run(case, trials=1).values[0].shape == shape
        else:
            assert node.attrs.get("squared") == squared
            assert [t.name for t in node.inputs] == [*(["x"] if shape is None else ["out"]), "y", *(["g"] if squared is None else [])]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 6), max_size=3), st.booleans(), st.integers(0, 99))
def test_squared_error(shape: list[int], view: bool, seed: int) -> None:
    a, b = real(seed, *shape), real(seed + 1, *shape)
    layouts = {1: tuple(reversed(range(len(shape))))} if view else None
    d = a.astype(np.float64) - b
    near(run(Case("MSELoss", [a, b], {}, layouts=layouts), seed=seed), [np.mean(d * d)])
    near(run(Case("MSELossGrad", [a, b], {}, layouts=layouts), seed=seed), [slopes(lambda v: float(np.mean((v - b) ** 2)), a)], rtol=1e-4)


def test_squared_error_of_constants_and_many() -> None:
    a, b = real(0, 3, 5000), np.full((3, 5000), 0.25, np.float32)
    want = np.mean((a.astype(np.float64) - 0.25) ** 2)
    near(run(Case("MSELoss", [a, b], {}, constants=frozenset({1}))), [want], rtol=1e-5)
    near(run(Case("MSELossGrad", [a, b], {}, constants=frozenset({1}))), [2 * (a - 0.25) / a.size])


def test_refusals() -> None:
    x, y = real(0, 4, 6), np.zeros(4, np.int64)
    assert "labels of shape [3]" in refused(Case(LOSS, [x, y[:3]], {}, 2))
    assert "labels have type float32" in refused(Case(LOSS, [x, real(0, 4)], {}, 2))
    assert "6 classes" in refused(Case(LOSS, [x, y, real(0, 5)], {}, 2))
    assert "no reduction" in refused(Case(LOSS, [x, y], {"reduction": "max"}, 2))
    assert "type int32" in refused(Case(LOSS, [x.astype(np.int32), y], {}, 2))
    assert "gradient of the loss" in refused(Case(GRADIENT, [x, y], {"reduction": "none", "squared": 0}))
    assert "gradient of the loss" in refused(Case(GRADIENT, [x, y], {"reduction": "sum", "squared": 1}))
    assert "gradient of shape [4]" in refused(Case(GRADIENT, [x, y, real(0, 4)], {"reduction": "mean"}))
    assert "one shape" in refused(Case("MSELoss", [x, real(0, 4, 1)], {}))
    assert "reduction" in refused(Case("MSELossGrad", [x, x], {"reduction": "sum"}))
