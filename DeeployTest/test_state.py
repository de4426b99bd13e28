"""State: updated in place, kept between calls, one storage per identity; several graphs over one store."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from Deeploy.compiler import Compiled, Graph, Options, compile_graphs, emit_project
from Deeploy.emit import Call, Script
from Deeploy.emit.script import project_state
from Deeploy.errors import DoesNotFitError, ModelError, UsageError
from Deeploy.frontend import load, order
from Deeploy.program.tensor import Role, Storage
from Deeploy.report import l3_of
from Deeploy.simulate.host import CheckMode, HostBuilder, run_program

OPTIONS = Options("gap9", home="L3")
LR = 0.5
MICROSOFT = "com.microsoft"


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), list(outputs), f"{op}_{outputs[0]}", domain=domain, **attributes)


def sgd(weight: str, gradient: str) -> onnx.NodeProto:
    return node("SGD", [weight, gradient], [f"{weight}_updated"], lr=LR)


def save(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int]],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
    bools: Sequence[str] = (),
) -> Path:
    """A model of float inputs (those in `bools` apart) and outputs of undeclared shape."""
    folder.mkdir(parents=True, exist_ok=True)
    types = {name: TensorProto.BOOL if name in bools else TensorProto.FLOAT for name in inputs}
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(name, types[name], list(shape)) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), folder / "network.onnx")
    return folder


@dataclass
class Outcome:
    """What calls and final state gave: outputs by (call, number), state by name."""

    compiled: Compiled
    outputs: dict[tuple[int, int], np.ndarray]
    state: dict[str, np.ndarray]


def simulate(
    folder: Path, graphs: Sequence[Graph], script: Script, options: Options = OPTIONS, check: CheckMode = CheckMode.LAZY, rounds: int = 1
) -> Outcome:
    """Compiles the graphs and lets main.c follow the script on the host."""
    compiled = compile_graphs(graphs, options)
    project = folder / "project"
    emit_project(compiled, project, dataclasses.replace(script, keep_state=True), observe=False)
    binary = HostBuilder().build_project(project, check, folder / "program")
    run_program(binary, check, arguments=[str(rounds)], folder=folder, files=project / "hex", timeout=120)
    outputs, single = {}, len(script.calls) == 1
    for number, call in enumerate(script.calls):
        program = compiled.project.programs[call.program]
        for k, tensor in enumerate(program.outputs):
            if call.outputs is None or k in call.outputs:
                file = folder / (f"output_{k}.bin" if single else f"output_{number}_{k}.bin")
                outputs[number, k] = np.fromfile(file, tensor.dtype.numpy).reshape(tensor.shape)
    state = {
        t.source: np.fromfile(folder / f"state_{k}.bin", t.dtype.numpy).reshape(t.shape)
        for k, t in enumerate(project_state(compiled.project))
    }
    return Outcome(compiled, outputs, state)


def storages(compiled: Compiled, role: Role) -> list[Storage]:
    found = {id(s): s for p in compiled.project.programs for t in p.tensors if (s := t.storage).role is role}
    return list(found.values())


# ---- one graph ----------------------------------------------------------------------------------------------------------------------


def twins(folder: Path) -> Path:
    """Two matrices that start as zeros with gradients of their own, and one matrix that two nodes read; updates come first in the file."""
    nodes = [
        sgd("a", "ga"),
        sgd("b", "gb"),
        sgd("m", "gm"),
        node("Transpose", ["x"], ["xt"], perm=[1, 0]),
        node("MatMul", ["xt", "da"], ["ga"]),
        node("MatMul", ["xt", "db"], ["gb"]),
        node("MatMul", ["x", "a"], ["ya"]),
        node("MatMul", ["x", "b"], ["yb"]),
        node("Add", ["ya", "yb"], ["y"]),
        node("Transpose", ["m"], ["mt"], perm=[1, 0]),
        node("MatMul", ["x", "m"], ["once"]),
        node("MatMul", ["once", "mt"], ["twice"]),
        node("MatMul", ["xt", "once"], ["gm"]),
    ]
    inputs = {"x": [2, 5], "da": [2, 3], "db": [2, 3]}
    zeros = np.zeros((5, 3), np.float32)
    matrix = np.linspace(-1, 1, 25, dtype=np.float32).reshape(5, 5)
    return save(folder, nodes, inputs, ["y", "twice", "a_updated", "m_updated"], {"a": zeros, "b": zeros.copy(), "m": matrix})


def twin_calls(rng: np.random.Generator) -> tuple[list[Call], list[list[np.ndarray]], dict[str, np.ndarray]]:
    """Three calls, their outputs and the state at the end, in numpy."""
    a = b = np.zeros((5, 3))
    m = np.linspace(-1, 1, 25, dtype=np.float32).astype(np.float64).reshape(5, 5)
    calls, outputs = [], []
    for _ in range(3):
        x, da, db = (rng.standard_normal(s).astype(np.float32) for s in ((2, 5), (2, 3), (2, 3)))
        calls.append(Call(0, {"x": x, "da": da, "db": db}))
        y, once = x @ a + x @ b, x @ m
        twice = once @ m.T
        a, b, m = a - LR * x.T @ da, b - LR * x.T @ db, m - LR * x.T @ once
        outputs.append([y, twice, a, m])
    return calls, outputs, {"a": a, "b": b, "m": m}


@pytest.mark.parametrize("home", ["L2", "L3"])
@pytest.mark.parametrize("check", [CheckMode.LAZY, CheckMode.TSAN])
def test_twins_stay_two_and_one_stays_one(tmp_path: Path, home: str, check: CheckMode) -> None:
    calls, outputs, state = twin_calls(np.random.default_rng(3))
    options = dataclasses.replace(OPTIONS, home=home, l1=2000)
    got = simulate(tmp_path, [Graph(twins(tmp_path / "net"))], Script(tuple(calls)), options, check)
    for (call, k), array in got.outputs.items():
        np.testing.assert_allclose(array, outputs[call][k], rtol=1e-4, atol=1e-4, err_msg=f"call {call}, output {k}")
    assert set(got.state) == {"a", "b", "m"}
    for name, array in got.state.items():
        np.testing.assert_allclose(array, state[name], rtol=1e-4, atol=1e-4, err_msg=name)
    assert len(storages(got.compiled, Role.STATE)) == 3
    l3, l2 = l3_of(tmp_path / "project")
    level = l3 if home == "L3" else l2
    assert level["stored"]["allocations"] == 3 and level["stored"]["bytes"] == 4 * (15 + 15 + 25)
    assert [n["reason"] for n in level["not_shared"]] == ["state is shared by identity, never by content"]


def test_every_round_begins_with_the_first_state(tmp_path: Path) -> None:
    calls, outputs, state = twin_calls(np.random.default_rng(4))
    got = simulate(tmp_path, [Graph(twins(tmp_path / "net"))], Script(tuple(calls)), rounds=3)
    for (call, k), array in got.outputs.items():
        np.testing.assert_allclose(array, outputs[call][k], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got.state["a"], state["a"], rtol=1e-4, atol=1e-4)


def test_readers_come_before_the_update_because_the_order_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of the test above can fail: without the rule, the file's order lets updates come first."""
    calls, outputs, _ = twin_calls(np.random.default_rng(3))
    monkeypatch.setattr(order, "_readers_before_updates", lambda graph: {})
    got = simulate(tmp_path, [Graph(twins(tmp_path / "net"))], Script(tuple(calls)))
    assert not np.allclose(got.outputs[0, 0], outputs[0][0], atol=1e-3)


def test_a_chain_of_updates_is_one_storage(tmp_path: Path) -> None:
    """Accumulate, then step with what was accumulated, in one graph: two states, each updated once; the buffer is read after its update."""
    nodes = [
        node("InPlaceAccumulatorV2", ["buffer", "g", "reset"], ["sum"], MICROSOFT),
        node("SGD", ["w", "sum"], ["w_updated"], lr=LR),
        node("SGD", ["w_updated", "g"], ["w_twice"], lr=LR),
    ]
    inputs = {"w": [3, 7], "buffer": [3, 7], "g": [3, 7], "reset": [1]}
    folder = save(tmp_path / "net", nodes, inputs, ["w_twice", "sum"], bools=["reset"])
    rng = np.random.default_rng(0)
    w, buffer = (rng.standard_normal((3, 7)).astype(np.float32) for _ in range(2))
    gradients = [rng.standard_normal((3, 7)).astype(np.float32) for _ in range(3)]
    calls = [Call(0, {"g": g, "reset": np.array([k == 1])}) for k, g in enumerate(gradients)]
    got = simulate(tmp_path, [Graph(folder)], Script(tuple(calls), {"w": w, "buffer": buffer}))
    for k, g in enumerate(gradients):
        buffer = g if k == 1 else buffer + g
        w = w - np.float32(LR) * buffer - np.float32(LR) * g
        np.testing.assert_allclose(got.outputs[k, 0], w, atol=1e-5)
        np.testing.assert_allclose(got.outputs[k, 1], buffer, atol=1e-5)
    assert len(storages(got.compiled, Role.STATE)) == 2
    assert l3_of(tmp_path / "project")[0]["stored"]["bytes"] == 0  # the caller gives it


def test_state_without_a_value_is_not_run(tmp_path: Path) -> None:
    folder = save(tmp_path / "net", [sgd("w", "g")], {"w": [4], "g": [4]}, ["w_updated"])
    compiled = compile_graphs([Graph(folder)], OPTIONS)
    emit_project(compiled, tmp_path / "p", Script((Call(0, {"g": np.ones(4, np.float32)}),)), observe=False)
    main = tmp_path / "p" / "main.c"
    main.write_text(main.read_text().replace("if (set_state()) return 1;", "(void)set_state;"))
    binary = HostBuilder().build_project(tmp_path / "p", CheckMode.LAZY, tmp_path / "program")
    done = run_program(binary, CheckMode.LAZY, folder=tmp_path, files=tmp_path / "p/hex", accept=(0, 1))
    assert "Deeploy_Run: 4" in done.stdout  # NOT_READY


@pytest.mark.parametrize(
    "nodes, outputs, text",
    [
        ([sgd("w", "g"), node("SGD", ["w", "g"], ["other"], lr=LR)], ["w_updated", "other"], "both update 'w' in place"),
        ([node("Relu", ["g"], ["r"]), sgd("r", "g")], ["r_updated"], "updates 'r' in place, which another node computes"),
        ([sgd("w", "g"), node("Identity", ["w"], ["old"])], ["w_updated", "old"], "is the value of 'w' before it is updated"),
        ([sgd("w", "g"), node("Reshape", ["w", "shape"], ["old"])], ["w_updated", "old"], "is the value of 'w' before it is updated"),
        ([sgd("w", "g"), node("Add", ["w", "w_updated"], ["y"])], ["y"], "no order of the nodes is right"),
    ],
)
def test_what_cannot_be_done_in_place_is_refused(tmp_path: Path, nodes: list, outputs: list[str], text: str) -> None:
    folder = save(tmp_path, nodes, {"w": [4], "g": [4]}, outputs, {"shape": np.array([2, 2])})
    with pytest.raises(ModelError, match=text):
        compile_graphs([Graph(folder)], OPTIONS)


def test_updates_are_state_and_no_inputs(tmp_path: Path) -> None:
    folder = save(tmp_path, [sgd("w", "g"), sgd("v", "g")], {"w": [4], "g": [4]}, ["w_updated", "v_updated"], {"v": np.ones(4, np.float32)})
    model = load(folder)
    assert [t.name for t in model.graph.inputs] == ["g"] and model.input_names == ["w", "g"]
    assert [(s.variable.name, s.initial is None) for s in model.state] == [("w", True), ("v", False)]
    assert model.values["v"].constant is None


@pytest.mark.parametrize(
    "read, attributes, more",
    [
        ("Gather", {"axis": 0}, {"i": np.array([2, 0])}),
        ("Expand", {}, {"i": np.array([2, 4, 3])}),
        ("Tile", {}, {"i": np.array([1, 1])}),
        ("Clip", {}, {}),
        ("Sum", {}, {}),
        ("Cast", {"to": TensorProto.FLOAT}, {}),
        ("Slice", {}, {"a": np.array([1]), "b": np.array([3])}),
        ("Transpose", {"perm": [1, 0]}, {}),
    ],
)
def test_whatever_reads_a_state_sees_the_old_value(tmp_path: Path, read: str, attributes: dict, more: dict) -> None:
    """Also what lies on the state's bytes without being declared a view."""
    nodes = [sgd("w", "g"), node(read, ["w", *more], ["r"], **attributes), node("Relu", ["r"], ["y"])]
    w = np.arange(12, dtype=np.float32).reshape(4, 3) - 5
    outputs = ["y", "w_updated", *(["r"] if read not in ("Slice", "Transpose") else [])]  # an output may not be a view of the old value
    folder = save(tmp_path / "net", nodes, {"g": [4, 3]}, outputs, {"w": w, **more})
    expected = {
        "Gather": w[[2, 0]],
        "Expand": np.broadcast_to(w, (2, 4, 3)),
        "Slice": w[1:3],
        "Transpose": w.T,
    }.get(read, w)
    g = np.full((4, 3), 100, np.float32)
    got = simulate(tmp_path, [Graph(folder)], Script((Call(0, {"g": g}),)))
    np.testing.assert_array_equal(got.outputs[0, 0], np.maximum(expected, 0))
    np.testing.assert_array_equal(got.outputs[0, 1], w - np.float32(LR) * g)
    if (0, 2) in got.outputs:
        np.testing.assert_array_equal(got.outputs[0, 2], expected)


@pytest.mark.parametrize("home", ["L2", "L3"])
def test_a_gradient_that_is_the_state_in_another_layout(tmp_path: Path, home: str) -> None:
    nodes = [node("Transpose", ["w"], ["t"], perm=[1, 0]), sgd("w", "t")]
    w = np.random.default_rng(0).standard_normal((24, 24)).astype(np.float32)
    folder = save(tmp_path / "net", nodes, {}, ["w_updated"], {"w": w})
    for check in (CheckMode.LAZY, CheckMode.TSAN):
        got = simulate(tmp_path, [Graph(folder)], Script(), dataclasses.replace(OPTIONS, home=home, l1=1000), check)
        np.testing.assert_allclose(got.outputs[0, 0], w - np.float32(LR) * w.T, rtol=1e-6)


def test_small_states_fit_where_the_plan_says_so(tmp_path: Path) -> None:
    """State without initial values lies behind the arena, at its own alignment: the least L2 that is accepted suffices at run time."""
    count = 20
    nodes = [sgd(f"w{k}", "g") for k in range(count)]
    folder = save(tmp_path / "net", nodes, {f"w{k}": [1] for k in range(count)} | {"g": [1]}, [f"w{k}_updated" for k in range(count)])
    script = Script((Call(0, {"g": np.ones(1, np.float32)}),), {f"w{k}": np.full(1, k, np.float32) for k in range(count)})
    for l2 in range(120, 260, 4):
        try:
            compile_graphs([Graph(folder)], Options("gap9", home="L2", l2=l2))
        except DoesNotFitError:
            continue
        got = simulate(tmp_path, [Graph(folder)], script, Options("gap9", home="L2", l2=l2))
        assert [float(got.state[f"w{k}"][0]) for k in range(count)] == [k - LR for k in range(count)]
        return
    raise AssertionError("no L2 of that size was accepted")


# ---- several graphs -----------------------------------------------------------------------------------------------------------------


def graphs(folder: Path) -> list[Graph]:
    """A linear layer: training (accumulated gradient of the sum of y * d), optimizer, inference; frozen bias in two of them."""
    bias = np.linspace(0, 1, 3, dtype=np.float32)
    train = [
        node("MatMul", ["x", "w"], ["xw"]),
        node("Add", ["xw", "bias"], ["y"]),
        node("Transpose", ["x"], ["xt"], perm=[1, 0]),
        node("MatMul", ["xt", "d"], ["g"]),
        node("InPlaceAccumulatorV2", ["buffer", "g", "reset"], ["sum"], MICROSOFT),
    ]
    inputs = {"x": [2, 5], "d": [2, 3], "w": [5, 3], "buffer": [5, 3], "reset": [1]}
    save(folder / "train", train, inputs, ["y", "sum"], {"bias": bias}, ["reset"])
    save(folder / "optimizer", [sgd("w", "buffer")], {"w": [5, 3], "buffer": [5, 3]}, ["w_updated"])
    infer = [node("MatMul", ["x", "w"], ["xw"]), node("Add", ["xw", "bias"], ["y"])]
    save(folder / "infer", infer, {"x": [2, 5], "w": [5, 3]}, ["y"], {"bias": bias})
    return [Graph(folder / name, name) for name in ("train", "optimizer", "infer")]


TRAIN, OPTIMIZER, INFER = range(3)


@pytest.mark.parametrize("home", ["L2", "L3", "auto"])
@pytest.mark.parametrize("check", [CheckMode.LAZY, CheckMode.EAGER, CheckMode.TSAN])
def test_graphs_share_one_store(tmp_path: Path, home: str, check: CheckMode) -> None:
    rng = np.random.default_rng(7)
    w = rng.standard_normal((5, 3)).astype(np.float32)
    bias, buffer = np.linspace(0, 1, 3, dtype=np.float32), np.zeros((5, 3), np.float32)
    script = Script(state={"w": w, "buffer": buffer})
    calls, expected = [], []
    for k in range(4):
        x, d = rng.standard_normal((2, 5)).astype(np.float32), rng.standard_normal((2, 3)).astype(np.float32)
        calls.append(Call(TRAIN, {"x": x, "d": d, "reset": np.array([k % 2 == 0])}))
        g = x.T @ d
        buffer = g if k % 2 == 0 else buffer + g
        expected.append([x @ w + bias, buffer])
        if k % 2:
            calls.append(Call(OPTIMIZER))
            w = w - np.float32(LR) * buffer
            expected.append([w])
        calls.append(Call(INFER, {"x": x}))
        expected.append([x @ w + bias])
    script = dataclasses.replace(script, calls=tuple(calls))
    got = simulate(tmp_path, graphs(tmp_path), script, dataclasses.replace(OPTIONS, home=home, l1=1000), check)
    for (call, k), array in got.outputs.items():
        np.testing.assert_allclose(array, expected[call][k], atol=1e-4, err_msg=f"call {call}, output {k}")
    np.testing.assert_allclose(got.state["w"], w, atol=1e-4)
    state = storages(got.compiled, Role.STATE)
    assert sorted(s.size for s in state) == [60, 60]
    constants = [s for s in storages(got.compiled, Role.CONSTANT) if s.size]
    assert [s.size for s in constants] == [12] and len(constants[0].members) == 2


def test_graphs_may_not_disagree_about_state(tmp_path: Path) -> None:
    def project(**other: object) -> list[Graph]:
        save(tmp_path / "a", [sgd("w", "g")], {"g": [4]}, ["w_updated"], {"w": np.ones(4, np.float32)})
        save(tmp_path / "b", [node("Relu", ["w"], ["y"])], **other)  # type: ignore[arg-type]
        return [Graph(tmp_path / "a", "a"), Graph(tmp_path / "b", "b")]

    with pytest.raises(ModelError, match=r"state 'w' is not the same in the graphs a and b.*float32 \[4\] and float32 \[5\]"):
        compile_graphs(project(inputs={"w": [5]}, outputs=["y"]), OPTIONS)
    with pytest.raises(ModelError, match="initializers have different values"):
        compile_graphs(project(inputs={}, outputs=["y"], constants={"w": np.zeros(4, np.float32)}), OPTIONS)
    same = compile_graphs(project(inputs={}, outputs=["y"], constants={"w": np.ones(4, np.float32)}), OPTIONS)
    assert [s.size for s in storages(same, Role.STATE)] == [16] and not storages(same, Role.CONSTANT)
    given = compile_graphs(project(inputs={"w": [4]}, outputs=["y"]), OPTIONS)
    assert [s.content for s in storages(given, Role.STATE)] == [np.ones(4, np.float32).tobytes()]


def test_overridable_constants_of_one_name_with_different_bytes(tmp_path: Path) -> None:
    """Each graph has its own default."""

    def graph(name: str, value: float) -> Graph:
        k = (np.full(3, value) + np.arange(3)).astype(np.float32)
        folder = save(tmp_path / name, [node("Add", ["x", "k"], ["y"])], {"x": [3]}, ["y"], {"k": k})
        model = onnx.load(folder / "network.onnx")
        model.graph.input.append(helper.make_tensor_value_info("k", TensorProto.FLOAT, [3]))
        onnx.save(model, folder / "network.onnx")
        return Graph(folder, name)

    x = np.ones(3, np.float32)
    got = simulate(tmp_path, [graph("a", 10), graph("b", 400)], Script((Call(0, {"x": x}), Call(1, {"x": x}))))
    assert got.outputs[0, 0].tolist() == [11, 12, 13] and got.outputs[1, 0].tolist() == [401, 402, 403]


def test_the_caller_of_one_program_ends_the_inputs_of_the_others(tmp_path: Path) -> None:
    """They use the same memory, so a run must not take what another has overwritten."""
    compiled = compile_graphs(graphs(tmp_path), OPTIONS)
    emit_project(compiled, tmp_path / "p", Script(), observe=False)
    (tmp_path / "p/main.c").write_text(
        """
#include <stdio.h>
#include "Network.h"
#include "dp_host.h"
static const float zeros[16];
static const uint8_t reset[1] = {1};
int main(void) {
  dp_host_configure(128 << 10, 1 << 20, 1 << 20, 8);
  if (Deeploy_Init()) return 2;
  if (Deeploy_SetState(0, zeros, 60) || Deeploy_SetState(1, zeros, 60)) return 3;
  if (Deeploy_SetInput_train(0, zeros, 40) || Deeploy_SetInput_train(1, zeros, 24) || Deeploy_SetInput_train(2, reset, 1)) return 4;
  if (Deeploy_SetInput_infer(0, zeros, 40) || Deeploy_Run_infer()) return 5;
  printf("train %d\\n", Deeploy_Run_train());
  printf("infer's output %d\\n", Deeploy_GetOutput_infer(0, data(), 24));
  Deeploy_Free();
  dp_host_finish();
  return 0;
}
""".replace("data()", "(float[6]){0}")
    )
    binary = HostBuilder().build_project(tmp_path / "p", CheckMode.LAZY, tmp_path / "program")
    done = run_program(binary, CheckMode.LAZY, folder=tmp_path, files=tmp_path / "p/hex")
    assert done.stdout.splitlines()[:2] == ["train 4", "infer's output 0"]


@pytest.mark.parametrize("home", ["L2", "L3"])
def test_two_lives_of_a_project(tmp_path: Path, home: str) -> None:
    """init, run, run, free, init, run, free: one load per content and life, state begins anew, the balance is zero (dp_host_finish)."""
    folder = twins(tmp_path / "net")
    compiled = compile_graphs([Graph(folder)], dataclasses.replace(OPTIONS, home=home))
    emit_project(compiled, tmp_path / "p", Script(), observe=False)
    (tmp_path / "p/main.c").write_text(
        """
#include <stdio.h>
#include <stdlib.h>
#include "Network.h"
#include "dp_host.h"
static float x[10], d[6], m[25];
static int once(void) {
  if (Deeploy_SetInput(0, x, 40) || Deeploy_SetInput(1, d, 24) || Deeploy_SetInput(2, d, 24)) return 1;
  return Deeploy_Run() || Deeploy_GetState(2, m, 100);
}
static void show(void) { printf("%.9g %.9g\\n", (double)m[0], (double)m[24]); }
int main(void) {
  int i;
  for (i = 0; i < 10; i++) x[i] = 0.1f * (float)i;
  dp_host_configure(128 << 10, 1 << 20, 1 << 20, 8);
  if (Deeploy_Init() || once()) return 1;
  show();
  if (once()) return 2;
  show();
  Deeploy_Free();
  if (Deeploy_Init() || once()) return 3;
  show();
  Deeploy_Free();
  dp_host_report(stdout);
  dp_host_finish();
  return 0;
}
"""
    )
    binary = HostBuilder().build_project(tmp_path / "p", CheckMode.LAZY, tmp_path / "program")
    done = run_program(binary, CheckMode.LAZY, folder=tmp_path, files=tmp_path / "p/hex")
    first, second, third = done.stdout.splitlines()[:3]
    assert first == third != second
    assert done.report is not None
    stored = l3_of(tmp_path / "p")[0]["stored"]
    assert done.report["l3"]["allocations"] == done.report["l3"]["files"] == 2 * stored["allocations"]


def test_names_of_graphs(tmp_path: Path) -> None:
    from Deeploy.compiler import check_graphs

    for names, text in ((("a-b",), "cannot be part of C names"), (("x" * 17,), "cannot be"), (("a", "A"), "two graphs are called")):
        with pytest.raises(UsageError, match=text):
            check_graphs([Graph(tmp_path, name) for name in names])
