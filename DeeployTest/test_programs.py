"""Whole networks through frontend, passes and lowering, run by the step interpreter under random tilings: no planner, no emitter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from Deeploy import operators, passes
from Deeploy.frontend import load, load_inputs, load_outputs
from Deeploy.lower import lower
from Deeploy.program.program import Program, Project
from Deeploy.program.verify import verify
from Deeploy.sharing import share
from Deeploy.simulate.compare import Tolerance, compare
from DeeployTest.step_interpreter import Memory, random_tiling, run_step

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT.parent / "shared/corpus"
SMALL = sorted(p for p in (ROOT / "DeeployTest/networks").iterdir() if p.is_dir())
CORPUS_CASES = [
    "deeploy/Models/MLPerf/ImageClassification",
    "deeploy/Models/MLPerf/KeywordSpotting",
    "deeploy/Models/MLPerf/AnomalyDetection",
    "deeploy/Models/miniMobileNet",
    "deeploy/Models/CNN_Linear1",
    "deeploy/Models/CNN_Linear2",
    "deeploy/Models/EEGFormer",
    "deeploy/Models/CCT/FP32/CCT_1_16_16_32",
    "deeploy/Models/microLlama/INT8/microLlama8",
]


def interpret(program: Program, inputs: list[np.ndarray], rng: np.random.Generator | None, cores: int) -> list[np.ndarray]:
    memory = Memory()
    for tensor, array in zip(program.inputs, inputs, strict=True):
        memory.put(tensor, array.reshape(tensor.shape))
    for step in program.steps:
        tiles, order = random_tiling(step, rng) if rng is not None else (None, None)
        if tiles is not None:  # few tiles: this is about right results, not about time
            tiles = [max(t, -(-a.size // 3)) if a.tileable else t for t, a in zip(tiles, step.axes, strict=True)]
        run_step(step, memory, tiles, cores, order)
    return [memory.get(t) for t in program.outputs]


def check(folder: Path, *, seeds: tuple[int | None, ...]) -> None:
    operators.load_all()
    model = load(folder, input_types={}, dims={})
    inputs, goldens = list(load_inputs(folder, model).values()), load_outputs(folder, model)
    passes.run_all(model)
    program = lower(model)
    share(Project([program]))
    verify(program)
    for seed in seeds:
        rng = None if seed is None else np.random.default_rng(seed)
        outputs = interpret(program, inputs, rng, 1 if seed is None else 1 + seed % 8)
        for tensor, got, golden in zip(program.outputs, outputs, goldens, strict=True):
            result = compare(tensor.source, got, golden, Tolerance())
            assert result.errors == 0, str(result)


@pytest.mark.parametrize("folder", SMALL, ids=lambda p: p.name)
def test_networks_of_the_repository(folder: Path) -> None:
    check(folder, seeds=(None, 1, 2, 7))


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is absent")
@pytest.mark.parametrize("case", CORPUS_CASES)
def test_networks_of_the_corpus(case: str) -> None:
    check(CORPUS / case, seeds=(None, 2))


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is absent")
@pytest.mark.parametrize("case", sorted(p.name for p in (CORPUS / "edge").iterdir()) if CORPUS.is_dir() else [])
def test_edge_cases(case: str) -> None:
    check(CORPUS / "edge" / case, seeds=(None, 3))
