"""The passes: use counts, values before and after, names of graph outputs, what is shared and what must not be."""

from __future__ import annotations

import math

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from Deeploy.frontend.model import Model
from Deeploy.operators import load_all
from Deeploy.operators.base import Exactness, Operator, Value, View, all_operators
from Deeploy.passes import (
    batch_norm,
    dead_code,
    exact,
    expand_constants,
    requant_merge,
    requant_tables,
)
from Deeploy.passes.duplicate_constants import _duplicateConstants
from Deeploy.program import dtypes
from DeeployTest.pass_oracle import Builder, Feeds, evaluate

RNG = np.random.default_rng(7)


def ints(*shape: int, lo: int = -100, hi: int = 100, dtype: type = np.int8) -> np.ndarray:
    return RNG.integers(lo, hi, shape).astype(dtype)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ops(model: Model) -> list[str]:
    return [n.op for n in model.graph.nodes]


def check_links(model: Model) -> None:
    """graphsurgeon's links agree with the nodes of the graph, values are known for all tensors, names are unique."""
    nodes = {id(n) for n in model.graph.nodes}
    tensors: dict[str, int] = {}
    made: set[str] = {t.name for t in model.graph.inputs}
    for node in model.graph.nodes:
        for tensor in [*node.inputs, *node.outputs]:
            if tensor.name:
                assert tensors.setdefault(tensor.name, id(tensor)) == id(tensor), tensor.name
                assert tensor.name in model.values
                assert all(id(n) in nodes for n in [*tensor.inputs, *tensor.outputs]), tensor.name
        assert all(not t.name or isinstance(t, gs.Constant) or t.name in made for t in node.inputs), node.name
        made |= {t.name for t in node.outputs}
    assert len({n.name for n in model.graph.nodes}) == len(nodes)
    used = set(tensors) | {t.name for t in model.graph.inputs} | {t.name for t in model.graph.outputs}
    assert set(model.values) <= used


def same_values(model: Model, feeds: Feeds, before: dict[str, np.ndarray]) -> None:
    after = evaluate(model.graph, feeds)
    assert list(after) == list(before)
    for name, array in before.items():
        assert after[name].dtype == array.dtype and after[name].shape == array.shape
        np.testing.assert_array_equal(after[name], array)


def merge(model: Model, feeds: Feeds) -> list[str]:
    """Runs both requantisation passes, checks values and links, gives the operators."""
    before = evaluate(model.graph, feeds)
    requant_tables.run(model)
    requant_merge.run(model)
    check_links(model)
    same_values(model, feeds, before)
    return ops(model)


# ---- requantisation


@pytest.mark.parametrize("bias", [False, True])
def test_conv_requant_merges(bias: bool) -> None:
    b = Builder(x=ints(1, 3, 6, 5))
    inputs = ["x", b.const("w", ints(4, 3, 3, 3))] + ([b.const("b", ints(4, dtype=np.int32))] if bias else [])
    b.add("Conv", *inputs, out="t", kernel_shape=[3, 3], group=1)
    b.rq("t", b.const("m", [[[3]], [[5]], [[7]], [[2]]]), b.const("a", [[[30]], [[-5]], [[7]], [[2]]]), "y", signed=0)
    model = b.model("y")
    assert merge(model, b.feeds) == ["RequantizedConv"]
    node = model.graph.nodes[0]
    assert [t.name for t in node.inputs] == ["x", "w", "b" if bias else "", "m", "a"]
    assert node.domain == "deeploy" and node.attrs["kernel_shape"] == [3, 3]
    assert (node.attrs["div"], node.attrs["n_levels"], node.attrs["signed"]) == (16, 256, 0)


def test_levels_by_their_other_name_and_one_element_tensors() -> None:
    b = Builder(x=ints(2, 3), y=ints(3, 4))
    b.add("MatMul", "x", "y", out="t")
    b.rq("t", b.const("m", 1), b.const("a", 0), "z")
    model = b.model("z")
    node = model.graph.nodes[1]
    del node.attrs["n_levels"]
    node.attrs |= {"n_levels_out": np.array([16.0]), "div": gs.Constant("d", np.array(8.0))}
    requant_merge.run(model)
    attrs = model.graph.nodes[0].attrs
    assert (attrs["div"], attrs["n_levels"]) == (8, 16) and isinstance(attrs["div"], int)


def test_intermediate_that_is_a_graph_output_stays() -> None:
    b = Builder(x=ints(1, 3, 4, 4))
    b.add("Conv", "x", b.const("w", ints(2, 3, 1, 1)), out="t")
    b.rq("t", b.const("m", 3), b.const("a", 1), "y")
    assert merge(b.model("y", "t"), b.feeds) == ["Conv", "RequantShift"]


def test_intermediate_with_two_readers_stays() -> None:
    b = Builder(x=ints(4, 3))
    b.add("Gemm", "x", b.const("w", ints(3, 5)), out="t")
    b.rq("t", b.const("m", 3), b.const("a", 1), "y")
    b.rq("t", "m", "a", "z", signed=0)
    assert merge(b.model("y", "z"), b.feeds) == ["Gemm", "RequantShift", "RequantShift"]


def test_gemm_requant_per_row_and_factors() -> None:
    b = Builder(x=ints(4, 3))
    b.add("Gemm", "x", b.const("w", ints(5, 3)), b.const("c", ints(5, dtype=np.int32)), out="t", transB=1)
    b.rq("t", b.const("m", [[1], [2], [3], [4]]), b.const("a", [[0], [9], [8], [7]]), "y")
    model = b.model("y")
    assert merge(model, b.feeds) == ["RequantizedGemm"]
    assert model.graph.nodes[0].attrs["transB"] == 1
    b = Builder(x=ints(4, 3))
    b.add("Gemm", "x", b.const("w", ints(3, 5)), b.const("c", ints(5)), out="t", alpha=2.0, beta=3.0)
    b.rq("t", b.const("m", 1), b.const("a", 0), "y")
    model = b.model("y")
    assert merge(model, b.feeds) == ["RequantizedGemm"]
    assert (model.graph.nodes[0].attrs["alpha"], model.graph.nodes[0].attrs["beta"]) == (2.0, 3.0)
    b = Builder(x=ints(4, 3))
    b.add("Gemm", "x", b.const("w", ints(3, 5)), out="t", alpha=0.5)
    b.rq("t", b.const("m", 1), b.const("a", 0), "y")
    model = b.model("y")
    requant_merge.run(model)
    assert ops(model) == ["Gemm", "RequantShift"]


@pytest.mark.parametrize("constant_first", [False, True])
def test_matmul_bias_requant(constant_first: bool) -> None:
    b = Builder(x=ints(2, 4, 3))
    b.add("MatMul", "x", b.const("w", ints(3, 5)), out="t")
    pair = ["t", b.const("c", ints(5, lo=-999, hi=999, dtype=np.int32))]
    b.add("Add", *(reversed(pair) if constant_first else pair), out="u")
    b.rq("u", b.const("m", 3), b.const("a", 5), "y", div=64)
    model = b.model("y")
    assert merge(model, b.feeds) == ["RequantizedMatMul"]
    assert [t.name for t in model.graph.nodes[0].inputs] == ["x", "w", "c", "m", "a"]


def test_matmul_bias_that_enlarges_the_result_stays() -> None:
    b = Builder(x=ints(1, 3))
    b.add("MatMul", "x", b.const("w", ints(3, 5)), out="t")
    b.add("Add", "t", b.const("c", ints(4, 5, dtype=np.int32)), out="u")
    b.rq("u", b.const("m", 3), b.const("a", 5), "y")
    assert merge(b.model("y"), b.feeds) == ["MatMul", "RequantizedAdd"]


def test_matmul_with_bias_that_was_expanded_stays() -> None:
    b = Builder(x=ints(4, 3))
    b.add("MatMul", "x", b.const("w", ints(3, 5)), out="t")
    b.add("Add", "t", b.const("c", ints(5, dtype=np.int32)), out="u")
    b.rq("u", b.const("m", 3), b.const("a", 5), "y")
    model = b.model("y")
    expand_constants.run(model)
    assert merge(model, b.feeds) == ["MatMul", "Add", "RequantShift"]


def add_model(left: bool, right: bool, **other: str) -> tuple[Builder, Model]:
    b = Builder(x=ints(2, 3, 4), z=ints(2, 1, 4))
    b.const("m", 3)
    b.const("a", 5)
    b.rq("x", "m", "a", "p", div=4, signed=0, n_levels=64)
    b.rq("z", b.const("m2", [[[2, 3, 1, 4]]]), "a", "q", div=2)
    b.add("Add", "p" if left else "x", "q" if right else "z", out="t")
    b.rq("t", "m", "a", "y", div=8)
    return b, b.model("y", *([] if left else ["p"]), *([] if right else ["q"]))


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_requantised_add(left: bool, right: bool) -> None:
    b, model = add_model(left, right)
    assert merge(model, b.feeds).count("RequantizedAdd") == 1
    node = next(n for n in model.graph.nodes if n.op == "RequantizedAdd")
    assert [t.name for t in node.inputs] == ["x", "z", *(["m", "a"] if left else ["", ""]), *(["m2", "a"] if right else ["", ""]), "m", "a"]
    assert ("div_a" in node.attrs, "div_b" in node.attrs) == (left, right)
    assert len(model.graph.nodes) == 3 - left - right


def test_requant_that_feeds_several_adds_stays() -> None:
    b = Builder(x=ints(3, 4), z=ints(3, 4))
    b.rq("x", b.const("m", 3), b.const("a", 5), "p")
    b.add("Add", "p", "z", out="t")
    b.rq("t", "m", "a", "y")
    b.add("Add", "p", "y", out="u")
    b.rq("u", "m", "a", "v")
    model = b.model("v")
    # the first Add is merged; its result has one reader, but a merged form is no RequantShift any more
    assert merge(model, b.feeds) == ["RequantShift", "RequantizedAdd", "RequantizedAdd"]


def test_add_of_one_tensor_with_itself_and_add_with_several_readers() -> None:
    b = Builder(x=ints(3, 4))
    b.rq("x", b.const("m", 3), b.const("a", 5), "p")
    b.add("Add", "p", "p", out="t")
    b.rq("t", "m", "a", "y")
    assert merge(b.model("y"), b.feeds) == ["RequantShift", "RequantizedAdd"]
    b = Builder(x=ints(3, 4), z=ints(3, 4))
    b.rq("x", b.const("m", 3), b.const("a", 5), "p")
    b.add("Add", "p", "z", out="t")
    b.rq("t", "m", "a", "y")
    b.add("Relu", "t", out="r")
    assert merge(b.model("y", "r"), b.feeds) == ["RequantShift", "Add", "RequantShift", "Relu"]


def test_convolution_takes_its_requant_before_an_add_does() -> None:
    b = Builder(x=ints(1, 3, 4, 4), z=ints(1, 2, 4, 4))
    b.add("Conv", "x", b.const("w", ints(2, 3, 1, 1)), out="c")
    b.rq("c", b.const("m", 3), b.const("a", 5), "p", div=64)
    b.rq("z", "m", "a", "q")
    b.add("Add", "p", "q", out="t")
    b.rq("t", "m", "a", "y")
    model = b.model("y")
    assert merge(model, b.feeds) == ["RequantizedConv", "RequantizedAdd"]
    assert "div_b" in model.graph.nodes[1].attrs and "div_a" not in model.graph.nodes[1].attrs


def test_float_networks_are_not_merged() -> None:
    b = Builder(x=floats(3, 4))
    b.add("MatMul", "x", b.const("w", floats(4, 2)), out="t")
    b.rq("t", b.const("m", 3), b.const("a", 5), "y")
    model = b.model("y")
    requant_merge.run(model)
    assert ops(model) == ["MatMul", "RequantShift"]


@pytest.mark.parametrize(
    ("table", "output", "last", "wanted"),
    [
        ((), (1, 8, 4, 4), None, ()),
        ((1,), (1, 8), True, (1,)),
        ((1, 1, 1, 1), (1, 8), True, ()),
        ((8,), (1, 8, 4, 8), False, (8, 1, 1)),
        ((8,), (1, 8, 4, 8), True, (8,)),
        ((8,), (1, 8, 4, 8), None, (8,)),
        ((8,), (1, 8, 4, 5), None, (8, 1, 1)),
        ((8,), (1, 8, 16), False, (8, 1)),
        ((8, 1, 1), (1, 8, 4, 4), False, (8, 1, 1)),
        ((8, 1, 1), (1, 8, 16), False, (8, 1)),
        ((8, 1, 1), (1, 8), False, (8,)),
        ((8, 1, 1), (3, 8), True, (8,)),
        ((8, 1, 1), (1, 8, 2, 3, 4), False, (8, 1, 1, 1)),
        ((8, 1, 1), (1, 4, 8), True, (8,)),
        ((8, 1, 1), (8, 4, 2), None, (8, 1, 1)),
        ((8, 1, 1), (8, 8, 4), None, (8, 1)),
        ((8, 1, 1), (1, 8, 8, 3, 4), False, (8, 1, 1, 1)),
        ((1, 8, 1, 1), (1, 8, 4, 4), False, (1, 8, 1, 1)),
        ((1, 8, 1, 1), (1, 8, 16), False, (8, 1)),
        ((1, 8, 1, 1), (1, 8), True, (8,)),
        ((4, 1), (4, 8), True, (4, 1)),
        ((8, 1), (8, 8), True, (8, 1)),
        ((4, 1), (2, 4, 8), True, (4, 1)),
        ((7,), (1, 8, 4, 4), False, None),
        ((4, 8), (4, 8), True, (4, 8)),
    ],
)
def test_shapes_of_tables(table: tuple[int, ...], output: tuple[int, ...], last: bool | None, wanted: tuple[int, ...] | None) -> None:
    assert requant_tables.table_shape(table, output, lambda: last) == wanted
    if wanted is not None:
        assert np.broadcast_shapes(wanted, output) == output and math.prod(wanted) == math.prod(table)


def test_bare_table_is_per_channel_after_a_convolution_and_shares_its_array() -> None:
    b = Builder(x=ints(1, 3, 3, 3))
    b.add("Conv", "x", b.const("w", ints(3, 3, 1, 1)), out="t")
    b.add("Relu", "t", out="r")
    m = ints(3, lo=1, dtype=np.int32)
    b.rq("r", b.const("m", m), b.const("a", 0), "y")
    b.add("MatMul", "y", b.const("v", ints(3, 3)), out="u")
    b.rq("u", "m", "a", "z")
    model = b.model("z")
    model.overridable.add("m")
    requant_tables.run(model)
    check_links(model)
    assert len(model.overridable) == 2
    first, second = (n for n in model.graph.nodes if n.op == "RequantShift")
    assert first.inputs[1].values.shape == (3, 1, 1) and np.shares_memory(first.inputs[1].values, m)
    assert model.source_of[first.inputs[1].name] == "m"
    assert second.inputs[1].name == "m"


# ---- batch normalisation


def norm_constants(b: Builder, channels: int, prefix: str = "") -> list[str]:
    names = [f"{prefix}{n}" for n in ("s", "h", "mean", "var")]
    for name in names:
        b.const(name, np.abs(floats(channels)) + np.float32(0.1) if name.endswith("var") else floats(channels))
    return names


def close(model: Model, feeds: Feeds, before: dict[str, np.ndarray]) -> None:
    after = evaluate(model.graph, feeds)
    assert list(after) == list(before)
    for name, array in before.items():
        np.testing.assert_allclose(after[name], array, rtol=1e-4, atol=1e-5)


def test_shared_weight_keeps_its_values_for_the_other_reader() -> None:
    b = Builder(x=floats(1, 1, 2, 2), z=floats(1, 1, 2, 2))
    w = np.array([1, 2], np.float32).reshape(2, 1, 1, 1)
    b.add("Conv", "x", b.const("w", w), out="t")
    b.add("BatchNormalization", "t", *norm_constants(b, 2), out="y")
    b.add("Conv", "z", "w", out="u")
    model = b.model("y", "u", integers=False)
    before = evaluate(model.graph, b.feeds)
    batch_norm.run(model)
    check_links(model)
    assert ops(model) == ["Conv", "Conv"]
    close(model, b.feeds, before)
    assert model.graph.nodes[1].inputs[1].values is w and w.reshape(-1).tolist() == [1, 2]
    folded = model.graph.nodes[0].inputs[1]
    assert folded.values.dtype == np.float32 and model.source_of[folded.name] == "w"


@pytest.mark.parametrize("readers", ["output", "reader", "variable", "overridable"])
def test_batch_norm_that_must_stay(readers: str) -> None:
    b = Builder(x=floats(1, 2, 2, 2), v=floats(3, 2, 1, 1))
    b.const("w", floats(3, 2, 1, 1))
    b.add("Conv", "x", "v" if readers == "variable" else "w", out="t")
    b.add("BatchNormalization", "t", *norm_constants(b, 3), out="y")
    b.add("Relu", "t" if readers == "reader" else "x", out="r")
    model = b.model("y", "r", *(["t"] if readers == "output" else []), integers=False)
    if readers == "overridable":
        model.overridable.add("w")
    batch_norm.run(model)
    assert "BatchNormalization" in ops(model)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_into_conv_and_conv_transpose(groups: int, bias: bool) -> None:
    for op, shape in (("Conv", (6, 4 // groups, 2)), ("ConvTranspose", (4, 6 // groups, 2))):
        b = Builder(x=floats(2, 4, 5))
        extra = [b.const("b", floats(6))] if bias else []
        b.add(op, "x", b.const("w", floats(*shape)), *extra, out="t", group=groups)
        b.add("BatchNormalization", "t", *norm_constants(b, 6), out="y", epsilon=1e-3)
        model = b.model("y", integers=False)
        before = evaluate(model.graph, b.feeds)
        batch_norm.run(model)
        check_links(model)
        assert ops(model) == [op]
        close(model, b.feeds, before)


@pytest.mark.parametrize("trans", [0, 1])
def test_batch_norm_into_gemm_with_factors(trans: int) -> None:
    b = Builder(x=floats(3, 4))
    b.add(
        "Gemm",
        "x",
        b.const("w", floats(*((5, 4) if trans else (4, 5)))),
        b.const("c", floats(3, 1)),
        out="t",
        transB=trans,
        alpha=0.5,
        beta=3.0,
    )
    b.add("BatchNormalization", "t", *norm_constants(b, 5), out="y")
    model = b.model("y", integers=False)
    before = evaluate(model.graph, b.feeds)
    batch_norm.run(model)
    check_links(model)
    assert ops(model) == ["Gemm"]
    close(model, b.feeds, before)


# ---- dead code


def test_dead_nodes_copies_and_names_of_outputs() -> None:
    b = Builder(x=floats(2, 2))
    b.add("Identity", "x", out="i")
    b.add("Relu", "i", out="r")
    b.add("Identity", "r", out="y")
    b.add("Mul", "r", b.const("k", floats(1)), out="m")
    b.add("Add", "m", b.const("unused", floats(1)), out="dead")
    b.add("Identity", b.const("c", floats(2)), out="z")
    b.add("Identity", "x", out="v")
    b.add("Cast", "m", out="n", dtype=np.float32)
    b.add("Cast", "n", out="o", dtype=np.int32)
    model = b.model("y", "m", "z", "v", "o", integers=False)
    before = evaluate(model.graph, b.feeds)
    dead_code.run(model)
    check_links(model)
    same_values(model, b.feeds, before)
    assert ops(model) == ["Relu", "Mul", "Identity", "Identity", "Cast"]
    assert "unused" not in model.values


def test_two_graph_outputs_with_one_value_stay_apart() -> None:
    b = Builder(x=floats(2, 2))
    b.add("Relu", "x", out="r")
    b.add("Identity", "r", out="y")
    model = b.model("r", "y", integers=False)
    dead_code.run(model)
    check_links(model)
    assert ops(model) == ["Relu", "Identity"]


def test_dropout_and_optional_outputs() -> None:
    b = Builder(x=floats(1, 1, 4, 4))
    b.add("Dropout", "x", out="d")
    b.add("MaxPool", "d", out="y", kernel_shape=[2, 2])
    for node, name in zip(b.nodes, ("mask", "indices"), strict=True):
        node.outputs.append(gs.Variable(name))
    graph = gs.Graph(b.nodes, [b.tensors["x"]], [b.tensors["y"]])
    model = Model("test", graph)
    dead_code.run(model)
    assert ops(model) == ["MaxPool"] and len(model.graph.nodes[0].outputs) == 1
    assert model.graph.nodes[0].inputs[0].name == "x"


# ---- expanded and duplicated constants


def test_expanded_constants() -> None:
    b = Builder(x=floats(2, 3, 4))
    b.const("k", floats(3, 1))
    b.add("Mul", "x", "k", out="a")
    b.add("Add", "k", "a", out="c")
    b.add("MatMul", "c", b.const("w", floats(4, 4)), out="y")
    model = b.model("y", integers=False)
    before = evaluate(model.graph, b.feeds)
    expand_constants.run(model)
    check_links(model)
    same_values(model, b.feeds, before)
    made = model.graph.nodes[0].inputs[1]
    assert made.values.shape == (2, 3, 4) and made.values.flags.c_contiguous and made is model.graph.nodes[1].inputs[0]
    assert model.expanded == {made.name, "w"} and model.source_of[made.name] == "k"
    _duplicateConstants(model)
    check_links(model)
    assert model.expanded == {t.name for n in model.graph.nodes for t in n.inputs if isinstance(t, gs.Constant)}


def test_constants_of_full_size_and_of_other_operators_stay_as_they_are() -> None:
    b = Builder(x=floats(2, 3))
    b.add("Mul", "x", b.const("k", np.full((2, 3), -0.0, np.float32)), out="a")
    b.add("Relu", "a", out="r")
    b.add("MatMul", "r", b.const("w", floats(3, 3)), out="y")
    model = b.model("y", integers=False)
    expand_constants.run(model)
    assert model.graph.nodes[0].inputs[1].name == "k" and model.expanded == {"k", "w"}


def test_what_is_expanded_is_declared() -> None:
    b = Builder(x=ints(2, 3, 3, dtype=np.int32), c=np.ones((2, 3, 3), np.bool_))
    b.add("Where", "c", "x", b.const("k", 1), out="a")
    b.add("PRelu", "a", b.const("s", ints(3, dtype=np.int32)), out="p", per_channel=1)
    b.rq("p", b.const("m", 3), b.const("d", 1), "q")
    b.add("Clip", "q", b.const("lo", 0, np.int8), out="y")
    model = Model("test", gs.Graph(b.nodes, [b.tensors["x"], b.tensors["c"]], [b.tensors["y"]]), integers=True)
    for name, tensor in b.tensors.items():
        constant = isinstance(tensor, gs.Constant)
        array = tensor.values if constant else np.zeros((2, 3, 3), np.int32)
        model.values[name] = Value.of(array, dtypes.from_numpy(array.dtype))
    slope = model.graph.nodes[1].inputs[1].values
    expand_constants.run(model)
    assert {"k_expanded", "s_expanded", "m", "d"} <= model.expanded and "k" not in model.expanded
    np.testing.assert_array_equal(model.graph.nodes[1].inputs[1].values, np.broadcast_to(slope.reshape(3, 1), (2, 3, 3)))


def test_every_flag_for_passes_is_declared_by_somebody() -> None:
    """Safe defaults, and the operators that the passes have always known."""
    flags = {
        "view": {"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Split", "Identity"},
        "shape_only": {"Shape", "Size"},
        "table_slots": {"RequantShift"},
        "index_slots": {"Gather", "SoftmaxCrossEntropyLoss", "SoftmaxCrossEntropyLossGrad"},
        "elementwise": {"Add", "Sum", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Where", "PRelu", "GeluGrad", "ReluGrad"},
        "needed_outputs": {"MaxPool", "Dropout", "LayerNormalization", "BatchNormalization", "ConvGrad", "LayerNormalizationGrad"},
    }
    load_all()
    for flag, names in flags.items():
        found = {n for o in all_operators() for n in o.names if getattr(o, flag) != getattr(Operator, flag)}
        assert found == names, flag
    for operator in all_operators():  # views copy, and what is copied is exact
        assert operator.view is View.NONE or operator.exactness is Exactness.COPIED, operator.names


def duplicated(model: Model, feeds: Feeds) -> list[str]:
    """Runs the pass, checks values and that every constant has one reader; gives the constants' names."""
    before = evaluate(model.graph, feeds)
    _duplicateConstants(model)
    check_links(model)
    same_values(model, feeds, before)
    names = [t.name for n in model.graph.nodes for t in n.inputs if isinstance(t, gs.Constant)]
    assert len(names) == len(set(names))
    return names


def test_every_slot_gets_its_own_constant() -> None:
    b = Builder(x=floats(3, 3))
    b.const("w", floats(3, 3))
    b.const("w__0", floats(3, 3))
    b.add("Mul", "w", "w", out="a")
    b.add("Add", "a", "w", out="c")
    b.add("Gemm", "x", "w__0", "c", out="y")
    model = b.model("y", integers=False)
    array = b.tensors["w"].values
    names = duplicated(model, b.feeds)
    assert names == ["w__1", "w__2", "w__3", "w__0"]
    assert all(t.values is array for n in model.graph.nodes for t in n.inputs if t.name in names[:3])
    assert [model.source_of[n] for n in names] == ["w", "w", "w", "w__0"]


def test_constant_that_is_a_graph_output_stays_one() -> None:
    b = Builder(x=floats(3))
    b.const("w", floats(3))
    b.add("Add", "x", "w", out="y")
    model = b.model("y", "w", integers=False)
    model.overridable.add("w")
    assert duplicated(model, b.feeds) == ["w__0"]
    assert model.graph.outputs[1].name == "w" and model.overridable == {"w", "w__0"}


def test_a_view_of_a_constant_is_one_reader() -> None:
    b = Builder(x=floats(4, 4))
    b.const("w", floats(4, 4))
    b.add("Transpose", "w", out="t", perm=[1, 0])
    b.add("Slice", "t", out="s", starts=[0], ends=[2])
    b.add("Reshape", "t", out="r", shape=[2, 8])  # of a transposed view: a copy
    b.add("MatMul", "x", "t", out="a")
    b.add("MatMul", "s", "a", out="c")
    b.add("MatMul", "c", "t", out="d")
    b.add("MatMul", "s", "x", out="e")
    b.add("Reshape", "r", out="f", shape=[4, 4])
    b.add("Add", "f", "a", out="g")
    b.add("Mul", "f", "g", out="h")
    model = b.model("d", "e", "h", integers=False)
    names = duplicated(model, b.feeds)
    counts = {op: ops(model).count(op) for op in ("Transpose", "Slice", "Reshape")}
    assert counts == {"Transpose": 1, "Slice": 1, "Reshape": 2}
    assert names == ["w"]


# ---- exact arithmetic


def test_exact_products_are_sums_in_order() -> None:
    a, b = floats(2, 3, 5), floats(5, 4)
    expected = np.zeros((2, 3, 4))
    for index in np.ndindex(2, 3, 4):
        total = 0.0
        for k in range(5):
            total += float(a[index[0], index[1], k]) * float(b[k, index[2]])
        expected[index] = total
    np.testing.assert_array_equal(exact.matmul(a, b), expected)
    c = floats(4)
    got = exact.gemm(a[0], b.T.copy(), c, 0.5, 2.0, False, True)
    np.testing.assert_array_equal(got, 0.5 * expected[0] + 2.0 * c.astype(np.float64))
