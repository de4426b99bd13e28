"""The whole list of passes on real networks: every tensor that survives has the value it has in the original graph."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from Deeploy import passes
from Deeploy.frontend import load
from Deeploy.frontend.model import Model, node_view
from Deeploy.operators import base

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"
INTEGER = "deeploy/Kernels/Integer"
MODELS = "deeploy/Models"

pytestmark = [pytest.mark.corpus, pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not at ../shared/corpus")]

CASES = {
    f"{INTEGER}/Add/Regular_RQ": {"RequantizedAdd": 1},
    f"{INTEGER}/Conv/DW_2D_RQ": {"RequantizedConv": 1},
    f"{INTEGER}/Conv/Regular_1D_RQ": {"RequantizedConv": 1},
    f"{INTEGER}/Conv/Regular_2D_RQ": {"RequantizedConv": 1},
    f"{INTEGER}/GEMM/Regular_RQPerRow": {"RequantizedGemm": 1},
    f"{INTEGER}/GEMM/Batch_RQ": {"RequantizedMatMul": 1},
    f"{INTEGER}/MatMul/Regular_RQ": {"RequantizedMatMul": 1},
    f"{INTEGER}/Attention": {"RequantizedMatMul": 6},
    f"{MODELS}/CNN_Linear1": {"RequantizedConv": 4, "RequantizedMatMul": 1},
    f"{MODELS}/MLPerf/AnomalyDetection": {"RequantizedGemm": 10},
    f"{MODELS}/MLPerf/KeywordSpotting": {"RequantizedConv": 9},
    f"{MODELS}/MLPerf/ImageClassification": {"RequantizedAdd": 3, "RequantizedConv": 9},
    f"{MODELS}/CCT/Int/ICCT": {"RequantizedAdd": 2},
    f"{MODELS}/microLlama/INT8/microLlama8": {"RequantizedMatMul": 88, "RequantizedAdd": 24},
    f"{MODELS}/EEGFormer": {"RequantizedMatMul": 6},
}
"""Folders, and how many merged operators there are at least."""


def reference_tool() -> ModuleType:
    """tools/ref_eval.py of the corpus."""
    spec = importlib.util.spec_from_file_location("ref_eval", CORPUS / "tools" / "ref_eval.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def evaluate(model: Model, folder: Path) -> dict[str, np.ndarray]:
    """Every tensor by the operators' references."""
    stored = np.load(folder / "inputs.npz")
    arrays: dict[str, np.ndarray] = {}
    for index, tensor in enumerate(model.graph.inputs):
        array = stored[stored.files[index]] if tensor.name not in stored.files else stored[tensor.name]
        arrays[tensor.name] = array.reshape(tensor.shape).astype(tensor.dtype)
    for node in model.graph.nodes:
        inputs = [None if not t.name else t.values if isinstance(t, gs.Constant) else arrays[t.name] for t in node.inputs]
        operator = base.find(node.op, node.domain or "")
        assert operator is not None, node.op
        results = operator.reference(node_view(model, node), inputs)
        arrays.update({t.name: r for t, r in zip(node.outputs, results, strict=False) if t.name})
    return arrays


@pytest.mark.parametrize("expand", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_values_of_surviving_tensors(case: str, expand: bool) -> None:
    folder = CORPUS / case
    model = load(folder)
    names = [t.name for t in model.graph.outputs]
    passes.run_all(model, expand=expand)
    assert [t.name for t in model.graph.outputs] == names
    operators = [n.op for n in model.graph.nodes]
    if not expand:
        assert all(operators.count(op) >= count for op, count in CASES[case].items()), operators
    constants = [t.name for n in model.graph.nodes for t in n.inputs if isinstance(t, gs.Constant)]
    assert len(constants) == len(set(constants))
    tool = reference_tool()
    tool.run(str(folder))
    original = tool.run.T
    compared = 0
    for name, array in evaluate(model, folder).items():
        if name in original and original[name].size == array.size:
            np.testing.assert_array_equal(array.reshape(-1), original[name].reshape(-1), err_msg=name)
            compared += 1
    assert compared >= len(names)
