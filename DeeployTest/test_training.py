"""The training graphs of the shared corpus: results over the whole protocol, and what constants and state take in L3."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from Deeploy.compiler import Graph, Options, compile_graphs, emit_project, load_graphs
from Deeploy.frontend import Model, load
from Deeploy.program.tensor import Role
from Deeploy.report import l3_of
from Deeploy.simulate.compare import Tolerance, compare
from Deeploy.simulate.cycles import PARTS
from Deeploy.simulate.evaluate import evaluated
from Deeploy.simulate.oracle import golden_of
from Deeploy.simulate.run import RunOptions, RunResult, run
from Deeploy.stored import stored_script
from DeeployTest.support import CORPUS, MODELS, ROOT, needs_corpus, why_no_gvsoc

pytestmark = needs_corpus
TRAINING = CORPUS / "training"
NAMES = (
    "autoencoder",
    "cct",
    "cct_full",
    "cct_head",
    "cct_lora",
    "dscnn",
    "mlp_accum",
    "mobilenetv1",
    "resnet8",
    "resnet8_head",
    "resnet8_last",
    "resnet8_peft",
)
EXPANDED = {"expand_constants": True}
COPIED = {"expand_constants": True, "share": False}

FIGURES = {
    "resnet8": (2.6, 2.6, 2.6),
    "mobilenetv1": (21.4, 21.4, 21.4),
    "cct": (422.8, 326.8, 294.8),
    "resnet8_peft": (1281.3, 417.7, 305.7),
    "cct_lora": (2649.0, 1741.5, 1361.3),
    "cct_full": (128.0, 32.0, 0.0),
}
"""KB of constants and initialised state in L3: copied per reader and written out, shared, and at most by default. The first two
are what a published measurement of the technique has."""


def graphs(name: str, *more: Graph) -> list[Graph]:
    return [Graph(TRAINING / name / f"{name}_{part}", part) for part in ("train", "optimizer")] + list(more)


def stored(folder: Path, graph: Path, **options: Any) -> dict[str, Any]:
    """The l3 object of a project of one graph at home in L3."""
    compiled = compile_graphs([Graph(graph)], Options("gap9", home="L3", **options))
    emit_project(compiled, folder, stored_script(compiled.graphs, compiled.models), observe=False)
    return l3_of(folder)[0]


def good(result: RunResult) -> bool:
    return not [str(o) for mode in result.modes for o in mode.outputs if o.errors]


@pytest.mark.parametrize("name", NAMES)
def test_protocol(name: str) -> None:
    """All mini-batches and optimizer steps: losses, gradients of the first step, all state at the end."""
    result = run(graphs(name), Options("gap9", home="L3"), RunOptions())
    assert result.good, [str(o) for m in result.modes for o in m.outputs if o.errors]
    assert result.golden.startswith("step_outputs.npz, outputs.npz")
    names = {o.name for o in result.modes[0].outputs}
    weights = [n for n in np.load(TRAINING / name / f"{name}_train/outputs.npz").files if n != "loss"]
    assert weights and {f"state {n}" for n in weights} <= names


@pytest.mark.parametrize("name", ["mobilenetv1", "resnet8_last", "mlp_accum"])
def test_one_step(name: str) -> None:
    """The training graph alone: its outputs and its buffers after the first mini-batch, with the home that the planner chooses."""
    result = run(TRAINING / name / f"{name}_train", Options("gap9"), RunOptions())
    assert good(result) and result.golden == "step_outputs.npz"


def lost(name: str) -> tuple[int, int]:
    """How many weights show that the last optimizer call was lost, and how many there are."""
    project = graphs(name)

    def models() -> list[Model]:
        return load_graphs(project, Options("gap9"))

    golden = golden_of(project, models(), "stored")
    place = max(i for i, call in enumerate(golden.script.calls) if call.program == 1)
    script = replace(golden.script, calls=tuple(c for i, c in enumerate(golden.script.calls) if i != place))
    with_loss = {e.name: e.array for e in evaluated(models(), script).state}
    whole = {e.name: e.array for e in evaluated(models(), golden.script).state}
    weights = [e for e in golden.state if e.name in np.load(project[0].path / "outputs.npz").files]
    for e in weights:
        assert e.tolerance is not None and compare(e.name, whole[e.name], e.array, e.tolerance).errors == 0, e.name
    return sum(compare(e.name, with_loss[e.name], e.array, e.tolerance or Tolerance()).errors > 0 for e in weights), len(weights)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "mobilenetv1"])
def test_a_lost_update_is_seen(name: str) -> None:
    """The tolerance of weights is so narrow that each single optimizer step counts: without the last one, the golden is missed. (In
    mobilenetv1 rounding decides the second step, so there only the first is judged narrowly.)"""
    seen, count = lost(name)
    assert seen >= 0.85 * count


@pytest.mark.parametrize("name", NAMES)
def test_the_first_update_is_judged_by_what_it_changes(name: str) -> None:
    project = graphs(name)
    golden = golden_of(project, load_graphs(project, Options("gap9")), "stored")
    place = min(i for i, call in enumerate(golden.script.calls) if call.program == 1)
    before = golden.script.state
    updates = [e for e in golden.outputs if e.call == place]
    state = dict(enumerate(load(project[1].path).input_names[::2]))
    assert len(updates) == len(state) > 0
    seen = sum(compare("w", before[state[e.output]], e.array, e.tolerance or Tolerance()).errors > 0 for e in updates)
    assert seen >= 0.8 * len(updates)  # some gradients are zero by construction


@pytest.mark.parametrize("case", ["CCT_Train/CCT2_LP", "CCT_Train/CCT2_FT1", "CCT_Train/CCT2_LoRA2", "Transformer_Train"])
def test_graphs_that_update_by_themselves(case: str) -> None:
    result = run(MODELS / case, Options("gap9", home="L3"), RunOptions())
    assert good(result) and result.golden == "outputs.npz"


@pytest.mark.parametrize("name", FIGURES)
def test_l3_figures(tmp_path: Path, name: str) -> None:
    copied, shared, ours = FIGURES[name]
    train = TRAINING / name / f"{name}_train"
    first = stored(tmp_path / "copied", train, **COPIED)
    second = stored(tmp_path / "shared", train, **EXPANDED)
    third = stored(tmp_path / "default", train)
    assert round(first["stored"]["bytes"] / 1024, 1) == copied
    assert round(second["stored"]["bytes"] / 1024, 1) == shared
    assert third["stored"]["bytes"] / 1024 <= ours + 0.05
    if name == "resnet8_peft":
        assert (first["stored"]["allocations"], first["stored"]["files"]) == (83, 122)
        assert (second["stored"]["allocations"], second["stored"]["files"]) == (38, 77)
        assert first["recount"]["distinct_contents"] == second["recount"]["distinct_contents"] == 65


@pytest.mark.parametrize("case, most", [("CCT2_FT1", 1106.0), ("CCT2_LoRA2", 1154.0)])
def test_trained_initializers(tmp_path: Path, case: str, most: float) -> None:
    """Trained weights are initializers, and four LoRA matrices start equal: they stay four."""
    l3 = stored(tmp_path / "p", MODELS / "CCT_Train" / case)
    assert l3["stored"]["bytes"] / 1024 <= most
    if case == "CCT2_LoRA2":
        assert l3["stored"]["bytes"] / 1024 > 1148.5
        twins = [n for n in l3["not_shared"] if "identity" in n["reason"]]
        assert len(twins) >= 3


def test_training_optimizer_and_inference_share_one_store(tmp_path: Path) -> None:
    name = "cct"
    subprocess.run(
        [sys.executable, ROOT / "scripts/cut_inference.py", TRAINING / name / f"{name}_train", tmp_path / "infer"], check=True, cwd=ROOT
    )
    project = graphs(name, Graph(tmp_path / "infer", "infer"))
    options = Options("gap9", home="L3")
    result = run(project, options, RunOptions())
    assert good(result)
    together = compile_graphs(project, options)
    trained = np.load(project[0].path / "outputs.npz").files
    storages = {id(s): s for p in together.project.programs for t in p.tensors if (s := t.storage).role is Role.STATE}
    by_name = {t.source: t.storage for t in together.project.programs[0].state}
    assert len(storages) == len(by_name) == 2 * (len(trained) - 1)  # every weight once, every buffer once
    for program in together.project.programs[1:]:
        assert all(t.storage is by_name[t.source] for t in program.state)
    assert result.l3["stored"]["bytes"] == stored(tmp_path / "alone", project[0].path)["stored"]["bytes"]


GVSOC = why_no_gvsoc("gap9")


@pytest.mark.gvsoc
@pytest.mark.skipif(bool(GVSOC), reason=GVSOC)
def test_protocol_on_the_simulated_chip() -> None:
    result = run(graphs("mlp_accum"), Options("gap9", home="L3"), RunOptions(simulator="gvsoc"))
    assert good(result)
    cycles = result.modes[0].cycles
    assert cycles is not None
    parts = cycles.json()
    assert 0.5 * cycles.total < sum(parts[part] for part in PARTS) <= cycles.total
    assert {s.runs for s in cycles.steps} == {6.0, 2.0}  # mini-batches, and optimizer steps
    loaded, recount = result.modes[0].loaded, result.l3["recount"]
    assert loaded["allocations"] == recount["allocations"] and loaded["bytes"] == loaded["file_bytes"] == recount["bytes"]
