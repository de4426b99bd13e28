"""ConvGrad against sums written out here, the adjoint identities and finite differences, under random tilings, loop orders and
core counts, and through whole projects on the host."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import Deeploy.operators.conv_grad  # noqa: F401
from Deeploy.lower.context import lower_node
from Deeploy.operators.base import Node, Operator, find
from Deeploy.plan.tiling import Budget, tile_step
from Deeploy.platform.reader import load
from Deeploy.program.step import AxisKind
from Deeploy.program.verify import verify
from DeeployTest.node_runner import run_node, run_on_views, value_of
from DeeployTest.support import CORPUS, deeploy_json, needs_corpus

PLATFORM = load("gap9")
RNG = np.random.default_rng(21)
Attributes = dict[str, Any]


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def make(
    inputs: Sequence[np.ndarray], attributes: Mapping[str, Any], outputs: Sequence[str] = ("dx", "dw", "db"), constants: Sequence[int] = ()
) -> tuple[Operator, Node]:
    operator = find("ConvGrad", "com.microsoft")
    assert operator is not None
    values = tuple(value_of(a, i in constants) for i, a in enumerate(inputs))
    return operator, Node("node", "ConvGrad", "com.microsoft", dict(attributes), values, tuple(outputs))


def pairs(x: Sequence[int], w: Sequence[int], attributes: Attributes):  # noqa: ANN201
    """Every (output index, input index, tap) at which the convolution multiplies, by definition; and the sizes of its output."""
    rank = len(x) - 2
    strides, dilations = attributes.get("strides", [1] * rank), attributes.get("dilations", [1] * rank)
    pads = attributes.get("pads", [0] * 2 * rank)
    axes, sizes = [], []
    for i in range(rank):
        size, taps = x[2 + i], w[2 + i]
        out = (size + pads[i] + pads[rank + i] - ((taps - 1) * dilations[i] + 1)) // strides[i] + 1
        found = [(o, o * strides[i] + k * dilations[i] - pads[i], k) for o in range(out) for k in range(taps)]
        axes.append([(o, h, k) for o, h, k in found if 0 <= h < size])
        sizes.append(out)
    return [tuple(zip(*point, strict=True)) for point in itertools.product(*axes)], sizes


def gradients(dy: np.ndarray, x: np.ndarray, w: np.ndarray, attributes: Attributes) -> list[np.ndarray]:
    """dX, dW, dB: the convolution's products one by one, in float64."""
    group = attributes.get("group", 1)
    each, depth = w.shape[0] // group, w.shape[1]
    dx, dw = np.zeros(x.shape), np.zeros(w.shape)
    a, b, c = dy.astype(np.float64), x.astype(np.float64), w.astype(np.float64)
    for out, at, tap in pairs(x.shape, w.shape, attributes)[0]:
        for g in range(group):
            oc, ic = slice(g * each, (g + 1) * each), slice(g * depth, (g + 1) * depth)
            up = a[(slice(None), oc, *out)]
            dx[(slice(None), ic, *at)] += up @ c[(oc, slice(None), *tap)]
            dw[(oc, slice(None), *tap)] += up.T @ b[(slice(None), ic, *at)]
    return [dx, dw, a.sum(axis=(0, *range(2, dy.ndim)))]


def forward(x: np.ndarray, w: np.ndarray, attributes: Attributes) -> np.ndarray:
    """The convolution in float64."""
    group = attributes.get("group", 1)
    each, depth = w.shape[0] // group, w.shape[1]
    points, sizes = pairs(x.shape, w.shape, attributes)
    y = np.zeros((x.shape[0], w.shape[0], *sizes))
    for out, at, tap in points:
        for g in range(group):
            oc, ic = slice(g * each, (g + 1) * each), slice(g * depth, (g + 1) * depth)
            y[(slice(None), oc, *out)] += x[(slice(None), ic, *at)].astype(np.float64) @ w[(oc, slice(None), *tap)].astype(np.float64).T
    return y


def case(shape: Sequence[int], weights: Sequence[int], attributes: Attributes) -> list[np.ndarray]:
    """Random dY, X, W of that convolution."""
    _, sizes = pairs(shape, weights, attributes)
    return [real(shape[0], weights[0], *sizes), real(*shape), real(*weights)]


def check(
    inputs: Sequence[np.ndarray], attributes: Attributes, expected: Sequence[np.ndarray], *, constants: Sequence[int] = (), seed: int = 0
) -> None:
    """infer, the reference and the kernels against `expected`; the bytes of all tilings are the same."""
    operator, node = make(inputs, attributes, constants=constants)
    assert not (found := operator.problems(node)), "\n".join(map(str, found))
    values = operator.infer(node)
    program, _, _ = lower_node(operator, node)
    verify(program)
    rng = np.random.default_rng(seed)
    untiled = run_node(operator, node, inputs, None)
    runs = [untiled] + [run_node(operator, node, inputs, rng, int(rng.integers(1, 9))) for _ in range(3)]
    for got, want, value in zip(operator.reference(node, inputs), expected, values, strict=True):
        assert got.shape == value.shape == want.shape and got.dtype == np.float32
        np.testing.assert_allclose(got, want, 1e-6, 1e-6)
    for number, run in enumerate(runs):
        for got, want, first in zip(run, expected, untiled, strict=True):
            np.testing.assert_allclose(got, want, 1e-4, 1e-4, err_msg=f"run {number}")
            assert got.tobytes() == first.tobytes(), "the tiling changes the result"


GEOMETRIES: list[tuple[tuple[int, ...], tuple[int, ...], Attributes]] = [
    ((1, 3, 7, 6), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 4, 9, 8), (6, 2, 3, 2), {"group": 2, "strides": [2, 3], "pads": [2, 0, 1, 3]}),
    ((1, 5, 8, 8), (5, 1, 3, 3), {"group": 5, "pads": [1, 1, 1, 1]}),
    ((1, 6, 12, 16), (6, 1, 3, 3), {"group": 6, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 3, 8, 9), (6, 1, 3, 3), {"group": 3, "strides": [2, 2], "pads": [0, 1, 1, 2]}),
    ((1, 2, 11, 12), (3, 2, 3, 4), {"dilations": [3, 2], "pads": [2, 3, 4, 1]}),
    ((1, 2, 12, 18), (3, 2, 3, 4), {"dilations": [2, 3], "strides": [4, 2], "pads": [2, 3, 4, 1]}),
    ((1, 2, 12, 18), (3, 2, 4, 3), {"dilations": [4, 2], "strides": [6, 3], "pads": [5, 3, 4, 1]}),
    ((1, 17, 5, 4), (9, 17, 1, 1), {}),
    ((2, 6, 6, 6), (3, 6, 1, 1), {"strides": [2, 2]}),
    ((1, 3, 5, 5), (4, 3, 5, 5), {}),
    ((1, 2, 3, 3), (2, 2, 3, 3), {"pads": [4, 4, 4, 4]}),
    ((2, 3, 13), (4, 3, 4), {"pads": [2, 1], "strides": [2]}),
    ((1, 4, 16), (8, 2, 3), {"group": 2, "dilations": [3], "pads": [3, 0]}),
    ((3, 6, 10), (6, 1, 5), {"group": 6, "pads": [2, 2], "strides": [2]}),
    ((1, 8, 9, 10), (12, 8, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 10, 8, 8), (18, 5, 3, 2), {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 2]}),
    ((1, 7, 7, 9), (17, 7, 3, 3), {"pads": [2, 2, 2, 2], "strides": [2, 3], "dilations": [2, 1]}),
    ((1, 1, 14, 10), (16, 1, 10, 4), {"strides": [2, 2]}),
]


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_gradients(geometry: tuple[Any, Any, Attributes]) -> None:
    shape, weights, attributes = geometry
    inputs = case(shape, weights, attributes)
    check(inputs, {**attributes, "kernel_shape": list(weights[2:])}, gradients(*inputs, attributes))
    check(inputs, attributes, gradients(*inputs, attributes), constants=(1, 2), seed=1)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_random_gradients(data: st.DataObject) -> None:
    small, group = st.integers(1, 3), data.draw(st.sampled_from((1, 1, 2, 5)))
    depth, each = data.draw(st.sampled_from((1, 2, 3, 4, 6))), data.draw(st.sampled_from((1, 2, 3, 4, 6)))
    rank = data.draw(st.integers(1, 2))
    sizes = [data.draw(st.integers(1, 12)) for _ in range(rank)]
    kernel = [data.draw(st.integers(1, 4)) for _ in range(rank)]
    attributes = {
        "group": group,
        "strides": [data.draw(st.integers(1, 4)) for _ in range(rank)],
        "dilations": [data.draw(small) for _ in range(rank)],
        "pads": [data.draw(st.integers(0, 4)) for _ in range(2 * rank)],
    }
    pads, dilations = attributes["pads"], attributes["dilations"]
    assume(all(sizes[i] + pads[i] + pads[rank + i] >= (kernel[i] - 1) * dilations[i] + 1 for i in range(rank)))
    inputs = case((data.draw(small), group * depth, *sizes), (group * each, depth, *kernel), attributes)
    check(inputs, attributes, gradients(*inputs, attributes), seed=data.draw(st.integers(0, 999)))


@pytest.mark.parametrize("geometry", GEOMETRIES[:8])
def test_adjoint_identities_and_finite_differences(geometry: tuple[Any, Any, Attributes]) -> None:
    """<conv(x, w), dy> = <x, dX> = <w, dW>, and a step along X or W changes it as the gradient says."""
    shape, weights, attributes = geometry
    dy, x, w = case(shape, weights, attributes)
    operator, node = make([dy, x, w], attributes)
    dx, dw, db = (v.astype(np.float64) for v in run_node(operator, node, [dy, x, w], np.random.default_rng(5), 3))

    def loss(at: np.ndarray, weight: np.ndarray, bias: float = 0.0) -> float:
        return float(((forward(at, weight, attributes) + bias) * dy.astype(np.float64)).sum())

    value = loss(x, w)
    assert np.isclose((x * dx).sum(), value, 1e-4, 1e-3) and np.isclose((w * dw).sum(), value, 1e-4, 1e-3)
    step_x, step_w = real(*shape).astype(np.float64), real(*weights).astype(np.float64)
    assert np.isclose(loss(x + 0.5 * step_x, w) - loss(x - 0.5 * step_x, w), (step_x * dx).sum(), 1e-4, 1e-3)
    assert np.isclose(loss(x, w + 0.5 * step_w) - loss(x, w - 0.5 * step_w), (step_w * dw).sum(), 1e-4, 1e-3)
    assert np.isclose(loss(x, w, 1.0) - value, db.sum(), 1e-4, 1e-3)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(("size", "kernel", "stride", "dilation"), [(6, 3, 2, 2), (7, 4, 1, 1), (8, 2, 3, 1), (9, 2, 2, 3)])
def test_auto_pad(mode: str, size: int, kernel: int, stride: int, dilation: int) -> None:
    extent = (kernel - 1) * dilation + 1
    total = 0 if mode == "VALID" else max((-(-size // stride) - 1) * stride + extent - size, 0)
    less, more = total // 2, total - total // 2
    before, after = (more, less) if mode == "SAME_LOWER" else (less, more)
    attributes = {"strides": [stride] * 2, "dilations": [dilation] * 2}
    padded = {**attributes, "pads": [before, before, after, after]}
    inputs = case((1, 2, size, size), (2, 2, kernel, kernel), padded)
    check(inputs, {**attributes, "auto_pad": mode}, gradients(*inputs, padded))


@pytest.mark.parametrize("orders", [{0: (0, 2, 3, 1), 1: (0, 2, 3, 1)}, {0: (3, 1, 2, 0), 2: (2, 3, 0, 1)}, {1: (3, 1, 0, 2)}])
def test_views_are_read_in_place(orders: dict[int, tuple[int, ...]]) -> None:
    attributes = {"group": 2, "pads": [1, 2, 0, 1], "strides": [2, 1], "dilations": [1, 2]}
    inputs = case((2, 8, 8, 6), (6, 4, 3, 2), attributes)
    operator, node = make(inputs, attributes)
    for cores in (1, 3, 8):
        for got, want in zip(run_on_views(operator, node, inputs, orders, RNG, cores), gradients(*inputs, attributes), strict=True):
            np.testing.assert_allclose(got, want, 1e-4, 1e-4)


def test_splats_are_immediates() -> None:
    attributes = {"pads": [1, 1, 1, 1], "strides": [2, 2]}
    dy, x, w = case((1, 4, 6, 6), (5, 4, 3, 3), attributes)
    for slot in range(3):
        inputs = [np.full_like(a, 0.75) if i == slot else a for i, a in enumerate((dy, x, w))]
        check(inputs, attributes, gradients(*inputs, attributes), constants=(slot,))


@pytest.mark.parametrize("present", [(1,), (0,), (0, 1), (2,), (0, 2)])
def test_only_wanted_outputs_are_computed(present: tuple[int, ...]) -> None:
    attributes: Attributes = {"pads": [1, 1, 1, 1]}
    inputs = case((1, 2, 5, 5), (3, 2, 3, 3), attributes)
    operator, node = make(inputs, attributes, [f"d{i}" if i in present else "" for i in range(max(present) + 1)])
    assert len(operator.infer(node)) == max(present) + 1
    program, _, _ = lower_node(operator, node)
    assert [s.name for s in program.steps] == [f"node_{('dx', 'dw', 'db')[i]}" for i in present]
    got, want = run_node(operator, node, inputs, RNG, 4), gradients(*inputs, attributes)
    for i in present:
        np.testing.assert_allclose(got[i], want[i], 1e-4, 1e-4)


def test_every_sum_can_be_cut() -> None:
    """Large images: dW can be cut along rows for one image or a few, along images for many small ones; dX along pixels and channels."""
    cuts = {(1, 48): "oh", (2, 48): "oh", (64, 4): "n"}
    for (batch, size), name in cuts.items():
        dy, x, w = (np.zeros(s, np.float32) for s in ((batch, 8, size, size), (batch, 3, size, size), (8, 3, 3, 3)))
        program, _, _ = lower_node(*make([dy, x, w], {"pads": [1, 1, 1, 1]}))
        assert [a.name for a in program.steps[1].axes if a.kind is AxisKind.REDUCED and a.tileable] == [name]
    dy, x, w = (np.zeros(s, np.float32) for s in ((1, 16, 24, 24), (1, 16, 48, 48), (16, 1, 3, 3)))
    program, _, _ = lower_node(*make([dy, x, w], {"pads": [1, 1, 1, 1], "strides": [2, 2], "group": 16}))
    step = program.steps[0]
    assert {a.name for a in step.axes if a.tileable and a.size > 1} == {"g", "hb", "wb"}
    first, count = [0] * 8, [1, 1, 1, 1, 2, 24, 2, 1]  # two rows of dX meet two rows of dY
    assert [d.clipped(first, count)[1] for d in step.operands[1].dims] == [1, 1, 1, 2, 24]


def test_refusals_name_the_reason() -> None:
    dy, x, w = real(1, 2, 3, 3), real(1, 2, 4, 4), real(2, 2, 2, 2)
    cases: list[tuple[list[np.ndarray], Attributes, str]] = [
        ([real(1, 2, 3, 3, 3), real(1, 2, 4, 4, 4), real(2, 2, 2, 2, 2)], {}, "3 spatial axes"),
        ([dy, real(1, 3, 4, 4), w], {}, "groups"),
        ([dy, x, real(2, 2, 5, 5)], {}, "does not fit"),
        ([dy, x, w], {"kernel_shape": [3, 3]}, "differs"),
        ([real(1, 2, 4, 4), x, w], {}, "the convolution's result has (1, 2, 3, 3)"),
        ([dy.astype(np.int8), x, w], {}, "float32"),
        ([real(1, 2, 3), x, w], {}, "rank"),
        ([dy, x, w], {"strides": [1]}, "1 numbers"),
        ([dy, x, w], {"auto_pad": "MAYBE"}, "no padding mode"),
    ]
    for inputs, attributes, text in cases:
        operator, node = make(inputs, attributes)
        assert any(text in str(p) and "node" in str(p) for p in operator.problems(node)), (text, operator.problems(node))


def corpus_nodes() -> list[tuple[tuple[tuple[int, ...], ...], tuple[str, ...], Attributes]]:
    """(input shapes, outputs, attributes) of every ConvGrad of the training corpus, each once."""
    import onnx

    found = {}
    for path in sorted(CORPUS.glob("training/*/*_train/network.onnx")):
        graph = onnx.load(path, load_external_data=False).graph
        shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in (*graph.value_info, *graph.input)}
        shapes |= {i.name: tuple(i.dims) for i in graph.initializer}
        for node in graph.node:
            if node.op_type == "ConvGrad":
                attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
                sizes = tuple(shapes[n] for n in node.input)
                outputs = tuple(f"d{i}" if name else "" for i, name in enumerate(node.output))
                found[sizes, outputs, str(attributes)] = (sizes, outputs, attributes)
    return list(found.values())


@needs_corpus
def test_the_corpus_fits_small_memories() -> None:
    nodes = corpus_nodes()
    assert len(nodes) > 40
    for shapes, outputs, attributes in nodes:
        program, _, _ = lower_node(*make([np.zeros(s, np.float32) for s in shapes], attributes, outputs))
        verify(program)
        for step in program.steps:
            tiling = tile_step(step, [True] * 3, Budget(8_000, 400_000, 8, True), PLATFORM)
            assert tiling.l1_bytes <= 8_000, (shapes, step.name)


@pytest.mark.parametrize(
    ("shape", "weights", "attributes", "outputs"),
    [
        ((2, 8, 24, 24), (8, 1, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2], "group": 8}, ["dx", "dw", "db"]),
        ((1, 8, 15, 16), (16, 4, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2], "group": 2}, ["dx", "dw"]),
        ((1, 3, 32, 32), (8, 3, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}, ["", "dw"]),
    ],
)
def test_a_whole_project(
    shape: tuple[int, ...], weights: tuple[int, ...], attributes: Attributes, outputs: list[str], tmp_path: Path
) -> None:
    import onnx
    from onnx import helper

    dy, x, w = case(shape, weights, attributes)
    arrays = {"dy": dy, "x": x, "w": w}
    results = dict(zip(("dx", "dw", "db"), gradients(dy, x, w, attributes), strict=True))
    graph = helper.make_graph(
        [helper.make_node("ConvGrad", list(arrays), outputs, domain="com.microsoft", **attributes)],
        "g",
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, a.shape) for n, a in arrays.items()],
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, results[n].shape) for n in outputs if n],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "network.onnx")
    np.savez(tmp_path / "inputs.npz", **arrays)
    np.savez(tmp_path / "outputs.npz", **{n: results[n].astype(np.float32) for n in outputs if n})
    report = deeploy_json("run", tmp_path, "--platform", "gap9", "--checks", "all", "--l1", 5000, "--home", "L3")
    assert report["errors"] == 0 and report["max_abs_error"] < 1e-4, report
