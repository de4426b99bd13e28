"""Data movement: views have the right values and cost no step, kernels agree with numpy, the ONNX node tests pass."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Deeploy.operators.base import find
from Deeploy.operators.views import reshape_strides
from Deeploy.program.tensor import dense_strides
from DeeployTest.one_node import Case, refused, run
from DeeployTest.oracles import CORPUS, corpus

QUICK = settings(max_examples=25, deadline=None)
TYPES = [np.int8, np.uint16, np.float32, np.int64]
shapes = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def numbers(rng: np.random.Generator, shape, dtype=np.float32) -> np.ndarray:  # noqa: ANN001
    return rng.integers(0, 100, shape).astype(dtype)


def order(rng: np.random.Generator, rank: int) -> list[int]:
    return [int(i) for i in rng.permutation(rank)]


def check(case: Case, want, seed: int = 0, steps: int | None = None) -> None:  # noqa: ANN001
    """The device and the reference give `want` (one array or several), exactly."""
    got = run(case, seed=seed)
    for device, reference, expected in zip(got.device, got.reference, want if isinstance(want, list) else [want], strict=True):
        np.testing.assert_array_equal(device, expected, strict=True)
        np.testing.assert_array_equal(reference, expected, strict=True)
    if steps is not None:
        assert len(got.program.steps) == steps


@QUICK
@given(shapes, st.integers(0, 9999))
def test_reshape_strides_against_numpy(shape: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    base = np.arange(math.prod(shape) * 4, dtype=np.int32)
    view = base[: math.prod(shape)].reshape(shape).transpose(order(rng, len(shape)))
    if seed % 3 == 0:
        view = view[tuple(slice(int(rng.integers(0, n)), None) for n in view.shape)]
    if seed % 5 == 0:
        view = np.broadcast_to(view[..., :1], view.shape)
    target = []
    left = view.size
    while left > 1:
        divisors = [d for d in range(1, left + 1) if left % d == 0]
        target.append(int(rng.choice(divisors)))
        left //= target[-1]
    strides = reshape_strides(view.shape, [s // 4 for s in view.strides], target)
    if strides is not None:
        seen = np.lib.stride_tricks.as_strided(view, target, [s * 4 for s in strides])
        np.testing.assert_array_equal(seen, view.reshape(target))
    else:
        copy = view.reshape(target)
        assert not np.shares_memory(copy, base) or 0 in view.strides


def test_reshape_strides_edges() -> None:
    assert reshape_strides((2, 3), (3, 1), (3, 2)) == (2, 1)
    assert reshape_strides((2, 3), (1, 2), (6,)) is None
    assert reshape_strides((), (), (1, 1)) == (0, 0)
    assert reshape_strides((1, 1), (7, 9), ()) == ()
    assert reshape_strides((0, 3), (3, 1), (3, 0)) == dense_strides((3, 0))
    assert reshape_strides((4, 6), (0, 0), (8, 3)) == (0, 0)


@pytest.mark.parametrize(
    ("shape", "wanted", "attributes"),
    [
        ((2, 3, 4), (0, -1), {}),
        ((2, 3, 4), (4, 6), {}),
        ((2, 3), (6,), {}),
        ((1,), (), {}),
        ((), (1, 1), {}),
        ((0, 3), (3, 0), {"allowzero": 1}),
    ],
)
def test_reshape(shape, wanted, attributes) -> None:  # noqa: ANN001
    x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    want = x.reshape((shape[0], -1) if wanted == (0, -1) else wanted)
    check(Case("Reshape", [x], {"shape": np.array(wanted, np.int64), **attributes}), want, steps=0)


@QUICK
@given(shapes, st.integers(0, 999))
def test_reshape_of_a_transposed_view_copies_only_if_needed(shape: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = numbers(rng, shape, TYPES[seed % 4])
    check(Case("Reshape", [x], {"shape": [-1]}, layouts={0: order(rng, len(shape))}), x.reshape(-1), seed)


def test_reshape_refusals() -> None:
    x = np.zeros((2, 3), np.float32)
    for shape, text in (([4], "reshape"), ([-1, -1], "no shape"), ([1, 1, 0], "copied"), ([-2, -3], "no shape"), ([4, -1], "reshape")):
        assert text in refused(Case("Reshape", [x], {"shape": shape}))
    assert "constant" in refused(Case("Reshape", [x, np.zeros(1, np.int64)], {}))


@pytest.mark.parametrize("axis", range(-3, 4))
def test_flatten(axis: int) -> None:
    x = np.arange(24, dtype=np.int8).reshape(2, 3, 4)
    check(Case("Flatten", [x], {"axis": axis}), x.reshape(math.prod(x.shape[: axis % 3 if axis < 0 else axis]), -1), steps=0)


def test_squeeze_and_unsqueeze() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 1, 3, 1)
    check(Case("Squeeze", [x], {}), x.reshape(2, 3), steps=0)
    check(Case("Squeeze", [x], {"axes": [0, -1]}), x.reshape(2, 1, 3), steps=0)
    check(Case("Squeeze", [x], {"axes": 2}), x.reshape(1, 2, 3, 1), steps=0)
    check(Case("Unsqueeze", [x.reshape(2, 3)], {"axes": [0, -1]}), x.reshape(1, 2, 3, 1), steps=0)
    check(Case("Unsqueeze", [np.float32(3)], {"axes": [0]}), np.full(1, 3, np.float32), steps=0)
    assert "length 2" in refused(Case("Squeeze", [x], {"axes": [1]}))
    assert "once each" in refused(Case("Unsqueeze", [x], {"axes": [0, 0]}))
    assert "axis 7" in refused(Case("Squeeze", [x], {"axes": [7]}))


@QUICK
@given(shapes, st.integers(0, 999))
def test_transpose(shape: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, perm = numbers(rng, shape), order(rng, len(shape))
    check(Case("Transpose", [x], {"perm": perm}, layouts={0: order(rng, len(shape))}), x.transpose(perm), seed, steps=0)
    check(Case("Transpose", [x], {}), x.transpose(), seed, steps=0)


def test_transpose_of_a_wrong_permutation_is_refused() -> None:
    assert "permutation" in refused(Case("Transpose", [np.zeros((2, 3), np.float32)], {"perm": [0, 0]}))


@QUICK
@given(shapes, st.integers(0, 9999))
def test_slice(shape: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = numbers(rng, shape, TYPES[seed % 4])
    axes = [int(a) - (len(shape) if rng.random() < 0.5 else 0) for a in rng.permutation(len(shape))[: int(rng.integers(1, len(shape) + 1))]]
    starts, ends = rng.integers(-7, 8, (2, len(axes)))
    steps = [int(s) for s in rng.choice([-2, -1, 1, 2, 3], len(axes))]
    cuts = [slice(None)] * len(shape)
    for a, start, end, step in zip(axes, starts, ends, steps, strict=True):
        cuts[a] = slice(int(start), int(end), step)
    attributes = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    check(Case("Slice", [x], attributes, layouts={0: order(rng, len(shape))}), x[tuple(cuts)], seed, steps=0 if min(steps) > 0 else None)


def test_slice_with_limits_of_int64_and_refusals() -> None:
    x = np.arange(10, dtype=np.int8)
    big = 2**63 - 1
    check(Case("Slice", [x], {"starts": [2], "ends": [big]}), x[2:], steps=0)
    check(Case("Slice", [x], {"starts": [big], "ends": [-big - 1], "steps": [-1]}), x[::-1], steps=1)
    assert "step is 0" in refused(Case("Slice", [x], {"starts": [0], "ends": [2], "steps": [0]}))
    assert "constant" in refused(Case("Slice", [x], {"starts": [0]}))
    assert "lengths" in refused(Case("Slice", [x], {"starts": [0], "ends": [2, 3]}))


@QUICK
@given(st.integers(0, 999))
def test_split_and_concat_are_inverse(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = numbers(rng, rng.integers(1, 5, 3), TYPES[seed % 4])
    axis = int(rng.integers(-3, 3))
    cuts = sorted(int(c) for c in rng.integers(0, x.shape[axis] + 1, 2))
    parts = [np.ascontiguousarray(p) for p in np.split(x, cuts, axis)]
    sizes = [p.shape[axis] for p in parts]
    layouts = {0: order(rng, 3)}
    check(Case("Split", [x], {"axis": axis, "split": sizes}, outputs=3, layouts=layouts), parts, seed, steps=0)
    check(Case("Concat", parts, {"axis": axis}, layouts=layouts, constants=frozenset({seed % 4})), x, seed)


def test_split_sizes() -> None:
    x = np.arange(7, dtype=np.float32)
    check(Case("Split", [x], {"num_outputs": 3}, outputs=3), [x[:3], x[3:6], x[6:]], steps=0)
    check(Case("Split", [x[:6]], {}, outputs=3), [x[:2], x[2:4], x[4:6]], steps=0)
    assert "equal" in refused(Case("Split", [x], {}, outputs=3))
    assert "do not make" in refused(Case("Split", [x], {"split": [3, 3]}, outputs=2))


def test_concat_of_the_same_tensor_types_and_empty_inputs() -> None:
    x = np.arange(6, dtype=np.int8).reshape(2, 3)
    check(Case("Concat", [x, x], {"axis": 1}), np.concatenate([x, x], 1))
    check(Case("Concat", [x[:, :0], x, x[:, :0]], {"axis": -1}), x)
    check(Case("Concat", [x[:, :0]], {"axis": -1}), x[:, :0])
    assert "uint8" in refused(Case("Concat", [x, x.astype(np.uint8)], {"axis": 0}))
    assert "join" in refused(Case("Concat", [x, x.T], {"axis": 0}))
    assert "missing" in refused(Case("Concat", [x], {}))


def test_concat_of_different_storage_types_in_the_integer_format() -> None:
    x, y = np.array([[-3, 4]], np.int8), np.array([[200, 1]], np.uint8)
    want = np.array([[-3, 4], [200, 1]], np.int16)
    check(Case("Concat", [x, y], {"axis": 0}, integers=True), want)
    check(Case("Concat", [x, y], {"axis": 0}, integers=True, constants=frozenset({1})), want)


def test_concat_range_is_the_union() -> None:
    x = np.zeros((2, 3), np.int8)
    value = run(Case("Concat", [x, x], {"axis": 0}, ranges={0: (-3, 0), 1: (0, 9)})).values[0]
    assert (value.lo, value.hi) == (-3, 9)


@QUICK
@given(st.integers(0, 9999), st.booleans())
def test_gather(seed: int, constant: bool) -> None:
    rng = np.random.default_rng(seed)
    shape = [int(n) for n in rng.integers(1, 5, int(rng.integers(1, 4)))]
    x, axis = numbers(rng, shape, TYPES[seed % 4]), int(rng.integers(-len(shape), len(shape)))
    index = rng.integers(-shape[axis], shape[axis], rng.integers(1, 4, int(rng.integers(0, 3)))).astype(
        [np.int8, np.int32, np.int64][seed % 3]
    )
    case = Case("Gather", [x, index], {"axis": axis}, constants=frozenset({1} if constant else ()), layouts={0: order(rng, len(shape))})
    check(case, np.take(x, index.astype(np.int64) % shape[axis], axis), seed)


@pytest.mark.parametrize(
    ("index", "steps"), [(1, 0), (-1, 0), ([1, 2, 3], 0), ([0, 2, 4], 0), ([[0, 1], [2, 3]], 0), ([3, 1], 1), ([2, 2], 1), ([-2, -1], 0)]
)
def test_gather_of_constant_indices_is_a_view_where_possible(index, steps: int) -> None:  # noqa: ANN001
    x = np.arange(30, dtype=np.float32).reshape(2, 5, 3)
    check(Case("Gather", [x, np.array(index, np.int64)], {"axis": 1}, constants=frozenset({1})), np.take(x, index, 1), steps=steps)


def test_gather_brings_run_time_indices_into_the_table() -> None:
    x = np.arange(5, dtype=np.int8)
    check(Case("Gather", [x, np.array([-9, 9, 2], np.int32)], {}), np.array([0, 4, 2], np.int8))
    assert "outside" in refused(Case("Gather", [x, np.array([5], np.int32)], {}, constants=frozenset({1})))
    assert "integers" in refused(Case("Gather", [x, np.array([5], np.float32)], {}))


@QUICK
@given(shapes, st.integers(0, 9999))
def test_pad(shape: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = numbers(rng, shape, TYPES[seed % 4])
    if seed % 7 == 0:
        x = np.full(shape, 3, x.dtype)
    pads = rng.integers(0, 4, (2, len(shape))) * rng.integers(0, 2, (2, len(shape)))
    value = [-7, 9, -np.inf, 2**40 + 3][seed % 4]
    want = np.pad(x, pads.T, constant_values=np.asarray(value).astype(x.dtype))
    case = Case(
        "Pad",
        [x],
        {"pads": pads.reshape(-1), "value": value},
        layouts={0: order(rng, len(shape))},
        constants=frozenset({0} if seed % 7 == 0 else ()),
    )
    check(case, want, seed)


def test_pad_axes_and_refusals() -> None:
    x = np.arange(6, dtype=np.int8).reshape(2, 3)
    check(Case("Pad", [x], {"pads": [1, 2], "axes": [-1]}), np.pad(x, [(0, 0), (1, 2)]))
    check(Case("Pad", [x], {"pads": [0] * 4}), x, steps=0)
    assert "reflect" in refused(Case("Pad", [x], {"pads": [1, 1, 1, 1], "mode": b"reflect"}))
    assert "negative" in refused(Case("Pad", [x], {"pads": [-1, 1, 1, 1]}))
    assert "fit" in refused(Case("Pad", [x], {"pads": [1, 1, 1, 1], "value": 128}))
    assert "constant" in refused(Case("Pad", [x], {}))


def test_expand_and_tile() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 1, 3)
    check(Case("Expand", [x], {"shape": [4, 1, 5, 1]}), np.broadcast_to(x, (4, 2, 5, 3)), steps=0)
    check(Case("Tile", [x], {"repeats": [1, 4, 1]}), np.tile(x, (1, 4, 1)), steps=0)
    check(Case("Tile", [x], {"repeats": [2, 3, 2]}, layouts={0: (2, 1, 0)}), np.tile(x, (2, 3, 2)), steps=1)
    y = np.arange(24, dtype=np.int8).reshape(2, 3, 2, 2)
    check(Case("Tile", [y], {"repeats": [2, 3, 2, 4]}, layouts={0: (1, 3, 0, 2)}), np.tile(y, (2, 3, 2, 4)))
    check(Case("Tile", [y], {"repeats": [2, 0, 2, 4]}), np.tile(y, (2, 0, 2, 4)), steps=0)
    assert "broadcast" in refused(Case("Expand", [x], {"shape": [3, 1, 3]}))
    assert "repeats" in refused(Case("Tile", [x], {"repeats": [2]}))


def test_shapes_are_known() -> None:
    x = np.zeros((2, 3, 4), np.float32)
    for op, attributes, want in (
        ("Shape", {}, np.array([2, 3, 4])),
        ("Shape", {"start": -2}, np.array([3, 4])),
        ("Shape", {"start": 0, "end": -1}, np.array([2, 3])),
        ("Size", {}, np.array(24)),
        ("ConstantOfShape", {"shape": [2, 2]}, np.zeros((2, 2), np.float32)),
        ("ConstantOfShape", {"shape": [3], "value": np.array([7], np.int64)}, np.full(3, 7)),
    ):
        case = Case(op, [x], attributes)
        value = find(op, "").infer(case.node())[0]
        np.testing.assert_array_equal(value.constant, want, strict=True)
        np.testing.assert_array_equal(find(op, "").reference(case.node(), [x])[0], want, strict=True)


NODE_TESTS = (
    "reshape flatten squeeze unsqueeze transpose slice split concat gather constant_pad expand tile softmax logsoftmax layer_normalization "
    "rms_normalization batchnorm instancenorm group_normalization reduce argmax argmin shape size constantofshape"
).split()
REFUSED = (
    "empty_set",
    "example_mask",
    "_uint8",
    "edge_pad",
    "reflect_pad",
    "wrap_pad",
    "gather_elements",
    "gathernd",
    "log_sum_exp",
    "training",
)


def node_tests() -> list[Path]:
    folder = CORPUS / "onnx_node"
    names = sorted(p.name for p in folder.glob("test_*")) if folder.exists() else []
    wanted = [n for n in names if n[5:].startswith(tuple(NODE_TESTS)) and not any(r in n for r in REFUSED) and "expanded" not in n]
    return [folder / n for n in wanted]


@pytest.mark.corpus
def test_onnx_node_tests() -> None:
    onnx = pytest.importorskip("onnx")
    corpus(Path("onnx_node"))
    skipped, done = [], 0
    for folder in node_tests():
        model = onnx.load(folder / "network.onnx")
        if len(model.graph.node) != 1:
            continue
        (node,) = model.graph.node
        operator = find(node.op_type, "")
        if operator is None:
            skipped.append(folder.name)
            continue
        given = dict(np.load(folder / "inputs.npz"))
        want = list(np.load(folder / "outputs.npz").values())
        given |= {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        attributes = {k: onnx.numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v for k, v in attributes.items()}
        inputs = [given[n] if n else None for n in node.input]
        for slot, name in operator.static_inputs:
            if slot < len(inputs):
                attributes[name], inputs[slot] = inputs[slot], None
        if (
            any(i is not None and i.dtype == np.float64 for i in inputs)
            or sum(bool(o) for o in node.output) > 1
            and node.op_type != "Split"
        ):
            skipped.append(folder.name)
            continue
        case = Case(node.op_type, inputs, attributes, outputs=len(node.output))
        device = (
            operator.reference(case.node(), inputs) if node.op_type in ("Shape", "Size", "ConstantOfShape") else run(case, trials=2).device
        )
        for got, expected in zip(device, want, strict=True):
            np.testing.assert_allclose(got, expected, 1e-3, 1e-5, err_msg=folder.name)
            assert got.shape == expected.shape and got.dtype == expected.dtype, folder.name
        done += 1
    print(f"{done} done, skipped: {skipped}")
    assert done > 100
