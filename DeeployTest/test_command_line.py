"""The command line from outside: exit codes, messages, projects that appear whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from DeeployTest.support import NETWORKS, ROOT, deeploy, deeploy_json

QUANT = NETWORKS / "quant_cnn"


def model(folder: Path, nodes: list, inputs: list, outputs: list, constants: list | None = None) -> Path:
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants or [])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    path = folder / "network.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def info(name: str, shape: list, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr + done.stdout
    for word in words:
        assert word in done.stderr, done.stderr


def test_help_is_quick() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "Deeploy", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "generate" in done.stdout
    heavy = [m for m in ("numpy", "onnx", "mako", "onnx_graphsurgeon", "networkx") if f" {m}\n" in done.stderr]
    assert not heavy, f"--help imports {heavy}"


def test_generate_prints_tables_and_json(tmp_path: Path) -> None:
    done = deeploy("generate", QUANT, "--platform", "gap9", "--home", "L3", "-o", tmp_path / "p")
    assert done.returncode == 0, done.stderr
    assert "RequantizedConv" in done.stdout and "a copy per reader" in done.stdout and "recounted" in done.stdout
    assert done.stderr == ""
    summary = deeploy_json("report", tmp_path / "p")
    assert summary["l3"]["stored"]["bytes"] == summary["l3"]["recount"]["bytes"] < summary["l3"]["replicated"]["bytes"]


def test_wrong_usage() -> None:
    refused(deeploy("generate", QUANT), 2)
    refused(deeploy("generate", "no/such/folder", "--platform", "gap9", "-o", "x"), 2, "no/such/folder")
    refused(deeploy("generate", QUANT, "--platform", "gap10", "-o", "x"), 2, "gap9", "pulp-open")
    refused(deeploy("generate", QUANT, "--platform", "gap9", "-o", "x", "--input-type", "nobody=int8"), 2, "nobody", "input")
    refused(deeploy("generate", QUANT, "--platform", "gap9", "-o", "x", "--input-type", "input=int7"), 2, "int7")
    refused(deeploy("generate", QUANT, "--platform", "gap9", "-o", "x", "--dim", "N"), 2, "NAME=VALUE")
    refused(deeploy("generate", QUANT, "--platform", "gap9", "-o", "x", "--dim", "N=-1"), 2, "whole number")
    refused(deeploy("generate", QUANT, "--platform", "gap9", "-o", "x", "--prefix", "9p"), 2, "9p")
    for prefix in ("dp", "DP_x"):
        refused(deeploy("generate", QUANT, "--platform", "gap9", "-o", "x", "--prefix", prefix), 2, prefix, "prefix")
    assert not (ROOT / "x").exists()


@pytest.mark.parametrize("place", ["/dev/null", "/proc/x", "file/below"])
def test_dump_into_an_impossible_place(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    done = deeploy("generate", QUANT, "--platform", "gap9", "-o", tmp_path / "p", "--dump", tmp_path / place)
    refused(done, 2, "dump", place)
    assert not (tmp_path / "p").exists()


def test_not_onnx_and_truncated(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("this is no protobuf")
    refused(deeploy("generate", tmp_path / "text.onnx", "--platform", "gap9", "-o", tmp_path / "p"), 3, "text.onnx")
    whole = (QUANT / "network.onnx").read_bytes()
    (tmp_path / "cut.onnx").write_bytes(whole[: len(whole) // 2])
    refused(deeploy("generate", tmp_path / "cut.onnx", "--platform", "gap9", "-o", tmp_path / "p"), 3, "cut.onnx")
    (tmp_path / "empty.onnx").write_bytes(b"")
    refused(deeploy("generate", tmp_path / "empty.onnx", "--platform", "gap9", "-o", tmp_path / "p"), 3, "empty.onnx")
    assert not (tmp_path / "p").exists()


def test_missing_external_data(tmp_path: Path) -> None:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="weights.bin")
    path = model(tmp_path, [helper.make_node("Add", ["x", "w"], ["y"])], [info("x", [4])], [info("y", [4])], [weight])
    refused(deeploy("generate", path, "--platform", "gap9", "-o", tmp_path / "p"), 3, "weights.bin")


def test_all_refusals_at_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first", domain="com.example"),
        helper.make_node("Quux", ["a"], ["y"], name="second"),
    ]
    path = model(tmp_path, nodes, [info("x", [1, 4])], [info("y", [1, 4])])
    done = deeploy("generate", path, "--platform", "gap9", "-o", tmp_path / "p", "--json")
    refused(done, 3, "Frobnicate", "Quux", "first", "second")
    assert json.loads(done.stdout)["error"]["exit_code"] == 3
    assert not (tmp_path / "p").exists()


def test_unsupported_attribute(tmp_path: Path) -> None:
    node = helper.make_node("Pad", ["x", "p"], ["y"], name="mirror", mode="reflect")
    pads = helper.make_tensor("p", TensorProto.INT64, [4], [0, 1, 0, 1])
    path = model(tmp_path, [node], [info("x", [1, 4])], [info("y", [1, 6])], [pads])
    refused(deeploy("generate", path, "--platform", "gap9", "-o", tmp_path / "p"), 3, "mirror", "Pad", "mode")


def test_dynamic_dimension(tmp_path: Path) -> None:
    path = model(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], [info("x", ["N", 4])], [info("y", ["N", 4])])
    refused(deeploy("generate", path, "--platform", "gap9", "-o", tmp_path / "p"), 3, "N", "--dim")
    done = deeploy("generate", path, "--platform", "gap9", "-o", tmp_path / "p", "--dim", "N=3")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "array, words",
    [
        (np.zeros((1, 3, 16, 15), np.int64), ("[1, 3, 16, 15]", "[1, 3, 16, 16]")),
        (np.full((1, 3, 16, 16), 0.5, np.float32), ("input",)),
        (np.array(["a"]), ("input",)),
    ],
    ids=["shape", "fractions", "strings"],
)
def test_wrong_fixtures(tmp_path: Path, array: np.ndarray, words: tuple[str, ...]) -> None:
    (tmp_path / "network.onnx").write_bytes((QUANT / "network.onnx").read_bytes())
    np.savez(tmp_path / "inputs.npz", input=array)
    refused(deeploy("run", tmp_path, "--platform", "gap9"), 2, *words)


def test_fixtures_that_are_no_npz(tmp_path: Path) -> None:
    (tmp_path / "network.onnx").write_bytes((QUANT / "network.onnx").read_bytes())
    (tmp_path / "inputs.npz").write_text("no zip")
    refused(deeploy("run", tmp_path, "--platform", "gap9"), 2, "inputs.npz")


def test_wrong_golden_is_exit_1(tmp_path: Path) -> None:
    for name in ("network.onnx", "inputs.npz"):
        (tmp_path / name).write_bytes((QUANT / name).read_bytes())
    golden = dict(np.load(QUANT / "outputs.npz"))
    golden["output"] = golden["output"] + (np.arange(10) == 7)
    np.savez(tmp_path / "outputs.npz", **golden)
    done = deeploy("run", tmp_path, "--platform", "gap9", "--checks", "none")
    refused(done, 1)
    assert "1 of 10 elements differ" in done.stdout and "first at 7" in done.stdout


def test_too_small_l1_names_everything(tmp_path: Path) -> None:
    done = deeploy("generate", QUANT, "--platform", "gap9", "--l1", "100", "-o", tmp_path / "p")
    refused(done, 4, "L1", "100", "bytes")
    assert not (tmp_path / "p").exists()


def test_too_small_l2_and_l3(tmp_path: Path) -> None:
    refused(deeploy("generate", QUANT, "--platform", "gap9", "--home", "L3", "--l3", "2000", "-o", tmp_path / "p"), 4, "L3")
    refused(deeploy("generate", QUANT, "--platform", "gap9", "--home", "L2", "--l2", "1000", "-o", tmp_path / "p"), 4, "L2")


def test_output_folder_that_is_not_ours(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    refused(deeploy("generate", QUANT, "--platform", "gap9", "-o", mine), 2, "mine")
    assert (mine / "thesis.txt").read_text() == "years of work"
    blocked = tmp_path / "file"
    blocked.write_text("")
    refused(deeploy("generate", QUANT, "--platform", "gap9", "-o", blocked / "p"), 2)


def test_output_folder_with_somebodys_files(tmp_path: Path) -> None:
    target = tmp_path / "p"
    generate = ("generate", QUANT, "--platform", "gap9", "-o", target)
    assert deeploy(*generate).returncode == 0
    (target / "hex" / "mine.hex").write_text("measured for days")
    refused(deeploy(*generate), 2, "'hex/mine.hex'", "has not made")
    assert (target / "hex" / "mine.hex").read_text() == "measured for days"
    (target / "hex" / "mine.hex").unlink()
    assert deeploy(*generate).returncode == 0
    refused(deeploy("generate", QUANT, "--platform", "gap9", "-o", "."), 2, "the current folder")


def test_empty_outputs(tmp_path: Path) -> None:
    """Results of Slice, Gather, Split, Tile and Reshape without elements, as outputs beside one with elements."""
    tables = {"two": [2], "one": [1], "none": [], "sizes": [3, 0], "zero": [0], "shape": [0, 7]}
    constants = [helper.make_tensor(name, TensorProto.INT64, [len(values)], values) for name, values in tables.items()]
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Slice", ["x", "two", "one"], ["sliced"]),
        helper.make_node("Gather", ["x", "none"], ["gathered"]),
        helper.make_node("Split", ["x", "sizes"], ["all", "rest"]),
        helper.make_node("Tile", ["x", "zero"], ["tiled"]),
        helper.make_node("Reshape", ["sliced", "shape"], ["shaped"], allowzero=1),
    ]
    shapes = {"y": [3], "sliced": [0], "gathered": [0], "all": [3], "rest": [0], "tiled": [0], "shaped": [0, 7]}
    model(tmp_path, nodes, [info("x", [3])], [info(name, shape) for name, shape in shapes.items()], constants)
    x = np.array([-1, 2, 3], np.float32)
    np.savez(tmp_path / "inputs.npz", x=x)
    np.savez(tmp_path / "outputs.npz", **{n: {"y": np.maximum(x, 0), "all": x}.get(n, np.zeros(s, np.float32)) for n, s in shapes.items()})
    result = deeploy_json("run", tmp_path, "--platform", "gap9", "--compare", "all", "-o", tmp_path / "p")
    assert result["errors"] == 0 and [o["shape"] for o in result["outputs"]] == [[3], [0], [0], [3], [0], [0], [0]]
    done = deeploy("report", tmp_path / "p")
    assert done.returncode == 0, done.stderr


def test_scalar_inputs(tmp_path: Path) -> None:
    model(tmp_path, [helper.make_node("Add", ["a", "b"], ["y"])], [info("a", []), info("b", [3])], [info("y", [3])])
    b = np.array([1, 2, 3], np.float32)
    np.savez(tmp_path / "inputs.npz", a=np.array(0.5, np.float32), b=b)
    np.savez(tmp_path / "outputs.npz", y=b + np.float32(0.5))
    for inputs in ("stored", "random"):
        result = deeploy_json("run", tmp_path, "--platform", "gap9", "--compare", "all", "--inputs", inputs)
        assert result["errors"] == 0 and result["nodes_unchecked"] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_generate_leaves_nothing_beside_the_project(tmp_path: Path, number: signal.Signals) -> None:
    # The process stops itself in the middle of writing.
    script = (
        "import os, signal, shutil, sys; from Deeploy import cli; copy = shutil.copyfile\n"
        f"def stop(*args): copy(*args); os.kill(os.getpid(), {int(number)})\n"
        "shutil.copyfile = stop; cli.entry()"
    )
    command = [sys.executable, "-c", script, "generate", str(QUANT), "--platform", "gap9", "-o", str(tmp_path / "p")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    refused(done, 128 + number)
    assert not list(tmp_path.iterdir())


def test_a_killed_generate_leaves_nothing_or_the_old_project(tmp_path: Path) -> None:
    target = tmp_path / "p"
    assert deeploy("generate", QUANT, "--platform", "gap9", "-o", target).returncode == 0
    before = {p.relative_to(target): p.read_bytes() for p in sorted(target.rglob("*")) if p.is_file()}
    for delay in (0.3, 0.6, 0.9, 1.2):
        command = [sys.executable, "-m", "Deeploy", "generate", str(QUANT), "--platform", "gap9", "--home", "L3", "-o", str(target)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        process.kill()
        process.wait()
        assert (target / "deeploy.json").exists() and (target / "main.c").exists()
        now = {p.relative_to(target): p.read_bytes() for p in sorted(target.rglob("*")) if p.is_file()}
        if now != before:
            assert json.loads((target / "deeploy.json").read_text())["options"]["home"] == "L3"
            break


def test_json_is_one_object() -> None:
    result = deeploy_json("run", QUANT, "--platform", "gap9", "--home", "L3", "--checks", "none", "--rounds", "3")
    expected = {
        "model",
        "platform",
        "simulator",
        "checks",
        "outputs",
        "errors",
        "max_abs_error",
        "cycles",
        "rounds",
        "traffic",
        "forks",
        "l3",
    }
    assert expected <= set(result)
    assert result["errors"] == 0 and result["rounds"] == 3 and result["cycles"] is None
    once = deeploy_json("run", QUANT, "--platform", "gap9", "--home", "L3", "--checks", "none")
    assert once["traffic"] == result["traffic"], "bytes are per round"


def test_other_commands() -> None:
    ops = deeploy_json("ops")
    names = {n for o in ops["operators"] for n in o["names"]}
    assert {"Conv", "Gemm", "RequantShift", "iSoftmax", "LayerNormalization"} <= names
    assert "Conv" in deeploy("ops").stdout
    assert deeploy_json("ops", "--platform", "pulp-open") == ops | {"platform": "pulp-open"}
    assert deeploy("ops", "--platform", "gap10").returncode == 2
    doctor = deeploy("doctor", "--json")
    assert {t["tool"] for t in json.loads(doctor.stdout)["tools"]} >= {"gcc", "sanitizers", "onnxruntime"}


def test_missing_compiler_is_exit_5() -> None:
    env = dict(os.environ, PATH="/nonexistent")
    command = [sys.executable, "-m", "Deeploy", "run", str(QUANT), "--platform", "gap9"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env)
    refused(done, 5, "gcc")
