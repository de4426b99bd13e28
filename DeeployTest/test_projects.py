"""Emitted projects: what sharing may and may not change, byte figures, reproducibility, compilers, two networks in one program."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from Deeploy.compiler import Graph, Options, compile_model, emit_project
from Deeploy.emit import Script
from Deeploy.frontend import load_inputs
from Deeploy.report import l3_of
from Deeploy.simulate.host import CheckMode, HostBuilder, run_program
from Deeploy.stored import generate
from DeeployTest.support import CORPUS, MODELS, NETWORKS, needs_corpus

OPTIONS = Options("gap9", home="L3")
EDGE = sorted(p.name for p in (CORPUS / "edge").iterdir()) if CORPUS.is_dir() else []
NOTHING_STORED = {"minus_zero": ("p", "q", "one"), "nan_payloads": ("zero",), "scalar_broadcast_two_sizes": ("k",)}
"""Edge cases whose constants are all splats, scalars or folded, and the tensors that the report must list as immediates."""
LIMITS = {
    "MLPerf/AnomalyDetection": 267_900,
    "MLPerf/KeywordSpotting": 22_600,
    "MLPerf/ImageClassification": 78_784,
    "CCT/FP32/CCT_2_32_32_128": 1_132_400,
}


def project(model: Path, folder: Path, **changes: Any) -> Path:
    generate([Graph(model)], dataclasses.replace(OPTIONS, **changes), folder)
    return folder


def text_between(text: str, begin: str, end: str) -> str:
    return text[text.index(begin) : text.index(end)]


# ---- sharing changes storages, Init and files, and nothing else --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["quant_cnn", "attention", "minus_zero_vectors", "nan_payload_vectors"])
@pytest.mark.parametrize("home", ["L3", "L2"])
def test_without_sharing_only_storages_differ(tmp_path: Path, name: str, home: str) -> None:
    shared = project(NETWORKS / name, tmp_path / "a", home=home)
    alone = project(NETWORKS / name, tmp_path / "b", home=home, share=False)
    a, b = ((f / "Network.c").read_text() for f in (shared, alone))
    steps = "/* ---- the steps", "/* ---- the interface"
    assert text_between(a, *steps) == text_between(b, *steps)
    assert "static void RunNetwork" in text_between(a, *steps)
    first, second = (json.loads((f / "deeploy.json").read_text()) for f in (shared, alone))
    (p,), (q,) = first["programs"], second["programs"]
    storage_of = [t.pop("storage") for t in p["tensors"]], [t.pop("storage") for t in q["tensors"]]
    assert p["tensors"] == q["tensors"]
    assert p["steps"] == q["steps"]
    assert len(set(storage_of[0])) <= len(set(storage_of[1]))


def test_sharing_saves_what_it_says(tmp_path: Path) -> None:
    """The pointwise weight and the tables of quant_cnn are read twice."""
    with_sharing, _ = l3_of(project(NETWORKS / "quant_cnn", tmp_path / "a"))
    without, _ = l3_of(project(NETWORKS / "quant_cnn", tmp_path / "b", share=False))
    saved = 16 * 16 + 4 * (4 * 16) + 4 * (4 * 16)  # one weight; mul and add tables are read by five nodes each
    assert without["stored"]["bytes"] - with_sharing["stored"]["bytes"] == saved
    twice = [g for g in with_sharing["groups"] if len(g["members"]) > 1]
    assert sorted((g["bytes"], len(g["members"])) for g in twice) == [(64, 5), (64, 5), (256, 2)]
    assert without["stored"] == {k: without["recount"][k] for k in ("allocations", "files", "bytes")}


def test_equal_bytes_of_other_signs_and_payloads(tmp_path: Path) -> None:
    l3, _ = l3_of(project(NETWORKS / "minus_zero_vectors", tmp_path / "a"))
    assert l3["stored"]["bytes"] == 64 and l3["stored"]["allocations"] == 2
    l3, _ = l3_of(project(NETWORKS / "nan_payload_vectors", tmp_path / "b"))
    assert l3["stored"]["bytes"] == 128 and l3["stored"]["allocations"] == 2
    assert [len(g["members"]) for g in l3["groups"] if len(g["members"]) > 1] == [2]


def test_an_overridable_weight_is_shared_with_its_own_readers_only(tmp_path: Path) -> None:
    """w is also a graph input; v has the same bytes. w's two readers share by identity, v keeps its own."""
    weight = np.arange(64, dtype=np.float32).reshape(8, 8)
    nodes = [helper.make_node("MatMul", [a, w], [b]) for a, w, b in (("x", "w", "t"), ("t", "w", "u"), ("u", "v", "y"))]
    infos = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 8]), ("w", [8, 8]), ("y", [2, 8]))}
    constants = [numpy_helper.from_array(weight, n) for n in ("w", "v")]
    graph = helper.make_graph(nodes, "g", [infos["x"], infos["w"]], [infos["y"]], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    l3, _ = l3_of(project(tmp_path / "m.onnx", tmp_path / "p"))
    assert l3["stored"]["allocations"] == 2 and l3["stored"]["bytes"] == 512
    assert [(n["tensor"], n["twin"]) for n in l3["not_shared"]] == [("v", "w")]


# ---- byte figures of the corpus -----------------------------------------------------------------------------------------------------


@needs_corpus
@pytest.mark.corpus
@pytest.mark.parametrize("case", EDGE)
def test_edge_case_bytes(tmp_path: Path, case: str) -> None:
    folder = CORPUS / "edge" / case
    expected = json.loads((folder / "expect.json").read_text())["constant_bytes"]
    l3, _ = l3_of(project(folder, tmp_path / "p"))
    assert l3["replicated"]["bytes"] == expected["copied_per_reader"]
    assert l3["stored"]["bytes"] == l3["recount"]["bytes"] == (0 if case in NOTHING_STORED else expected["equal_bytes_shared"])
    for tensor in NOTHING_STORED.get(case, ()):  # and the report says why
        assert any(i["tensor"].startswith(f"{tensor} (") for i in l3["immediates"])


@needs_corpus
@pytest.mark.corpus
@pytest.mark.parametrize("case", LIMITS)
def test_network_bytes(tmp_path: Path, case: str) -> None:
    l3, _ = l3_of(project(MODELS / case, tmp_path / "p"))
    assert l3["stored"]["bytes"] == l3["recount"]["bytes"] <= LIMITS[case]


# ---- the same bytes out ---------------------------------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("name", ["quant_cnn", "attention"])
def test_two_runs_give_the_same_bytes(tmp_path: Path, name: str) -> None:
    copy = tmp_path / "elsewhere/deep/down"
    shutil.copytree(NETWORKS / name, copy)
    first = contents(project(NETWORKS / name, tmp_path / "a"))
    second = contents(project(copy, tmp_path / "x/y/b"))
    manifest = json.loads(first.pop("deeploy.json")), json.loads(second.pop("deeploy.json"))
    assert first == second
    assert manifest[0] == manifest[1]
    assert not [n for n, c in first.items() if str(tmp_path).encode() in c]


# ---- compilers ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", ["gcc", "clang-19", "g++", "clang++-19"])
@pytest.mark.parametrize("name", ["quant_cnn", "attention"])
def test_generated_code_compiles_everywhere(tmp_path: Path, compiler: str, name: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    emit_project(compile_model(NETWORKS / name, OPTIONS), tmp_path / "p", Script(), observe=True)
    folder = tmp_path / "p"
    language = ["-x", "c++", "-std=c++17"] if "++" in compiler else ["-std=c11"]
    includes = [f"-I{folder / d}" for d in (".", "deeploy/include", "deeploy/kernels", "deeploy/host")]
    sources = [*folder.glob("*.c"), *(folder / "deeploy/common").glob("*.c"), *(folder / "deeploy/kernels").glob("*.c")]
    for source in sorted(sources):
        command = [compiler, *language, "-O2", "-Wall", "-Wextra", "-Werror", "-DDP_HOST", "-DDP_OBSERVE", *includes]
        command += ["-c", str(source), "-o", str(tmp_path / "object.o")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


# ---- the life of a program ----------------------------------------------------------------------------------------------------------

MAIN = """
#include <stdio.h>
#include <string.h>
#include "A/Network.h"
#include "B/Network.h"
#include "dp_host.h"
static union { uint8_t bytes[1 << 16]; uint64_t align; } data;
static int feed(int (*set)(uint32_t, const void *, uint32_t), const char *name, uint32_t bytes) {
  return dp_load_file_to_l2(data.bytes, name, bytes) || set(0, data.bytes, bytes);
}
static int show(int (*get)(uint32_t, void *, uint32_t), const char *name, uint32_t bytes) {
  FILE *file = fopen(name, "wb");
  return !file || get(0, data.bytes, bytes) || fwrite(data.bytes, 1, bytes, file) != bytes || fclose(file);
}
int main(void) {
  int round;
  for (round = 0; round < 2; round++) {
    char name[32];
    if (A_Init() || B_Init()) return 1;
    if (feed(A_SetInput, "input_a.bin", A_inputs[0].bytes) || feed(B_SetInput, "input_b.bin", B_inputs[0].bytes)) return 2;
    if (A_Run() || B_Run()) return 3;
    if (feed(A_SetInput, "input_a.bin", A_inputs[0].bytes) || A_Run()) return 4;
    sprintf(name, "a%d.bin", round);
    if (show(A_GetOutput, name, A_outputs[0].bytes)) return 5;
    sprintf(name, "b%d.bin", round);
    if (show(B_GetOutput, name, B_outputs[0].bytes)) return 6;
    A_Free();
    B_Free();
  }
  dp_host_report(stdout);
  dp_host_finish();
  return 0;
}
"""


@pytest.mark.parametrize("check", [CheckMode.LAZY, CheckMode.TSAN])
@pytest.mark.parametrize("home", ["L2", "L3"])
def test_two_networks_in_one_program(tmp_path: Path, check: CheckMode, home: str) -> None:
    """Both run, twice, in two lives; loads and allocations per life are one per storage, and the balance is zero (dp_host_finish)."""
    files = tmp_path / "files"
    files.mkdir()
    golden = {}
    storages = 0
    for prefix, name in (("A", "quant_cnn"), ("B", "attention")):
        options = dataclasses.replace(OPTIONS, home=home, prefix=prefix)
        compiled = compile_model(NETWORKS / name, options)
        emit_project(compiled, tmp_path / prefix, Script(), observe=False)
        l3, _ = l3_of(tmp_path / prefix)
        storages += l3["stored"]["allocations"]
        program = compiled.project.programs[0]
        (array,) = load_inputs(NETWORKS / name, compiled.model).values()
        array.astype(program.inputs[0].dtype.numpy).tofile(files / f"input_{prefix.lower()}.bin")
        for file in (tmp_path / prefix / "hex").iterdir():
            shutil.copy(file, files / file.name)
        stored = np.load(NETWORKS / name / "outputs.npz")
        golden[prefix] = stored[stored.files[0]].astype(program.outputs[0].dtype.numpy).reshape(-1)
    (tmp_path / "main.c").write_text(MAIN)
    sources = [tmp_path / "main.c", tmp_path / "A/Network.c", tmp_path / "B/Network.c"]
    executable = HostBuilder().build(sources, check, tmp_path / "both", include=(tmp_path,))
    done = run_program(executable, check, folder=tmp_path, files=files, timeout=120)
    for life in (0, 1):
        a = np.fromfile(tmp_path / f"a{life}.bin", golden["A"].dtype)
        b = np.fromfile(tmp_path / f"b{life}.bin", golden["B"].dtype)
        np.testing.assert_array_equal(a, golden["A"])
        np.testing.assert_allclose(b, golden["B"], atol=1e-4)
    report = done.report
    assert report is not None
    assert report["l3"]["allocations"] == report["l3"]["files"] == 2 * storages


@pytest.mark.parametrize("name", ["quant_cnn"])
def test_the_projects_own_makefile(tmp_path: Path, name: str) -> None:
    folder = project(NETWORKS / name, tmp_path / "p")
    done = subprocess.run(["make", "-C", str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run(["./network"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    golden = np.load(NETWORKS / name / "outputs.npz")["output"]
    np.testing.assert_array_equal(np.fromfile(folder / "output_0.bin", np.int8), golden.reshape(-1))
    assert re.search(r"output 0: output, 10 bytes", done.stdout)
