"""Constant folding and the removal of quantisation pairs: what is folded, what must stay, and that the bytes never depend on a BLAS."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from Deeploy.frontend.model import Model
from Deeploy.operators import load_all
from Deeploy.operators.base import Value
from Deeploy.passes import constant_folding, dead_code, expand_constants, quant_dequant
from Deeploy.program import dtypes
from DeeployTest.pass_oracle import Builder, evaluate
from DeeployTest.test_passes import check_links, floats, ints, ops, same_values

load_all()


def fold(b: Builder, *outputs: str, integers: bool = False, overridable: str = "", expand: bool = False) -> Model:
    """Folds, checks the values, drops dead code."""
    model = b.model(*outputs, integers=integers)
    model.overridable |= {overridable} - {""}
    before = evaluate(model.graph, b.feeds)
    if expand:
        expand_constants.run(model)
    constant_folding.run(model)
    check_links(model)
    same_values(model, b.feeds, before)
    dead_code.run(model)
    check_links(model)
    same_values(model, b.feeds, before)
    return model


def test_chains_of_arithmetic_are_folded_and_noted() -> None:
    b = Builder(x=floats(4, 4))
    b.add("Mul", b.const("k", floats(4, 4)), b.const("s", floats(1)), out="p")
    b.add("Add", "p", b.const("o", floats(4)), out="q")
    b.add("Relu", "q", out="r")
    b.add("Add", "x", "r", out="y")
    b.add("Mul", "y", "r", out="z")
    model = fold(b, "z")
    assert ops(model) == ["Add", "Mul"]
    assert model.graph.nodes[0].inputs[1] is model.graph.nodes[1].inputs[1] and len(model.notes) == 3


def test_a_result_beside_constants_that_stay_is_not_folded() -> None:
    b = Builder(x=floats(4, 4))
    b.add("Mul", b.const("w", floats(4, 4)), "w", out="p")
    b.add("MatMul", "x", "p", out="y")
    b.add("MatMul", "y", "w", out="z")
    assert ops(fold(b, "z")) == ["Mul", "MatMul", "MatMul"]
    b = Builder(x=floats(4, 4))
    b.add("Mul", b.const("w", floats(4, 4)), "w", out="p")
    b.add("MatMul", "x", "p", out="y")
    assert ops(fold(b, "y")) == ["MatMul"]


def test_a_view_that_others_read_keeps_its_constant() -> None:
    for others in (False, True):
        b = Builder(x=floats(4, 4))
        b.add("Transpose", b.const("w", floats(4, 4)), out="t", perm=[1, 0])
        b.add("Relu", "t", out="r")
        b.add("MatMul", "x", "r", out="y")
        b.add("MatMul", "y", "t" if others else "x", out="z")
        assert ("Relu" in ops(fold(b, "z"))) == others


def test_views_stay_views() -> None:
    b = Builder(x=floats(4, 6))
    b.add("Transpose", b.const("w", floats(4, 6)), out="t", perm=[1, 0])
    b.add("MatMul", "x", "t", out="y")
    model = fold(b, "y")
    assert ops(model) == ["Transpose", "MatMul"]
    assert model.graph.nodes[0].inputs[0].name == "w"


@pytest.mark.parametrize(("size", "others", "folded"), [(15, False, True), (16, False, False), (15, True, False)])
def test_tiny_views(size: int, others: bool, folded: bool) -> None:
    b = Builder(x=floats(size))
    b.add("Reshape", b.const("w", floats(1, size)), out="t", shape=[size])
    b.add("Add", "x", "t", out="y")
    b.add("Add", "y", "w" if others else "x", out="z")
    assert ("Reshape" not in ops(fold(b, "z"))) == folded


def test_results_that_grow_stay_unless_they_are_splats() -> None:
    b = Builder(x=floats(8, 8))
    b.add("Add", b.const("a", floats(8, 1)), b.const("c", floats(1, 8)), out="t")
    b.add("Add", "x", "t", out="y")
    assert ops(fold(b, "y")) == ["Add", "Add"]
    b = Builder(x=floats(8, 8))
    b.add("Add", b.const("a", np.full((8, 1), 2, np.float32)), b.const("c", np.ones((1, 8), np.float32)), out="t")
    b.add("Add", "x", "t", out="y")
    model = fold(b, "y")
    assert ops(model) == ["Add"]
    assert model.graph.nodes[0].inputs[1].values.strides == (0, 0) and model.graph.nodes[0].inputs[1].values.shape == (8, 8)


def test_zeros_of_both_signs_are_no_splat() -> None:
    b = Builder(x=floats(8, 8))
    b.add("Mul", b.const("a", np.zeros((8, 1), np.float32)), b.const("c", np.tile(np.array([1, -1], np.float32), 4)[None]), out="t")
    b.add("Mul", "x", "t", out="y")
    assert ops(fold(b, "y")) == ["Mul", "Mul"]


@pytest.mark.parametrize("case", ["overridable", "expanded", "output", "libm", "nan"])
def test_what_must_not_be_folded(case: str) -> None:
    b = Builder(x=floats(4, 4))
    b.const("k", np.full((4, 4), np.inf, np.float32) if case == "nan" else floats(4, 4))
    b.const("s", floats(1) * (0 if case == "nan" else 1))
    b.add("Exp" if case == "libm" else "Mul", *(["k"] if case == "libm" else ["k", "s"]), out="p")
    b.add("Add", "x", "p", out="y")
    with np.errstate(all="ignore"):
        model = fold(
            b,
            "y",
            *(["p"] if case == "output" else []),
            overridable="k" if case == "overridable" else "",
            expand=case == "expanded",
        )
    assert len(ops(model)) == 2


def test_products_do_not_come_from_a_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    w, v, c = floats(6, 5), floats(5, 4), floats(4)
    b = Builder(x=floats(6, 4))
    b.add("Gemm", b.const("w", w), b.const("v", v), b.const("c", c), out="p")
    b.add("Add", "x", "p", out="y")
    model = b.model("y", integers=False)
    for name in ("matmul", "dot", "einsum", "tensordot"):
        monkeypatch.setattr(np, name, None)
    constant_folding.run(model)
    monkeypatch.undo()
    got = model.graph.nodes[0].inputs[1].values
    expected = np.zeros((6, 4))
    for i, j in np.ndindex(6, 4):
        total = 0.0
        for k in range(5):
            total += float(w[i, k]) * float(v[k, j])
        expected[i, j] = total + float(c[j])
    np.testing.assert_array_equal(got, expected.astype(np.float32))


def test_integer_arithmetic_is_folded_in_its_storage_type() -> None:
    b = Builder(x=ints(4, 4, dtype=np.int32))
    b.add("Mul", b.const("k", ints(4, 4, dtype=np.int32)), b.const("s", 3), out="p")
    b.add("Add", "x", "p", out="y")
    model = fold(b, "y", integers=True)
    assert ops(model) == ["Add"] and model.graph.nodes[0].inputs[1].values.dtype == np.int32


def test_shapes_are_folded() -> None:
    b = Builder(x=floats(4, 4, 1, 1, 1, 1, 1, 1, 1, 1))
    b.add("Shape", "x", out="s")
    b.add("Add", "s", b.const("k", np.arange(10)), out="y")
    model = fold(b, "y")
    assert ops(model) == ["Add"] and isinstance(model.graph.nodes[0].inputs[0], gs.Constant)


# ---- quantisation pairs


def pair(second_reader: bool = False, **changes: object) -> Model:
    """Dequant -> Quant -> output, the latter's attributes changed."""
    base = {"zero_point": 3.0, "bit_width": 8, "signed": 1}
    x = gs.Variable("x", np.int8, [4])
    f, q = gs.Variable("f", np.float32, [4]), gs.Variable("q", np.int8, [4])
    nodes = [
        gs.Node("Dequant", "d", {**base, "scale": 0.1}, [x], [f]),
        gs.Node("Quant", "e", {**base, "scale": 10.0, **changes}, [f], [q]),
        gs.Node("Relu", "r", {}, [q], [gs.Variable("y", np.int8, [4])]),
    ]
    outputs = [nodes[2].outputs[0]] + ([f] if second_reader else [])
    integer, real = Value.integer((4,), dtypes.INT8, -128, 127), Value((4,), dtypes.FLOAT32)
    model = Model("t", gs.Graph(nodes, [x], outputs))
    model.values = {"x": integer, "f": real, "q": integer, "y": integer}
    return model


def test_equal_pair_is_removed_and_other_readers_keep_the_dequant() -> None:
    model = pair()
    quant_dequant.run(model)
    check_links(model)
    assert ops(model) == ["Relu"] and model.graph.nodes[0].inputs[0].name == "x"
    model = pair(second_reader=True)
    quant_dequant.run(model)
    check_links(model)
    assert ops(model) == ["Dequant", "Relu"]


@pytest.mark.parametrize("changes", [{"scale": 9.0}, {"zero_point": 2.0}, {"bit_width": 4}, {"scale": 10.1}])
def test_pair_that_changes_values_stays(changes: dict[str, object]) -> None:
    model = pair(**changes)
    quant_dequant.run(model)
    assert ops(model) == ["Dequant", "Quant", "Relu"]
