"""Oracles that the compiler did not produce: the shared corpus's numpy evaluator, and onnxruntime on one node."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus"


def corpus(path: Path) -> Path:
    """A folder of the shared corpus; skips the test if it is not there."""
    if not (CORPUS / path).exists():
        pytest.skip(f"the shared corpus has no {path} here")
    return CORPUS / path


def evaluate(op: str, inputs: Sequence[np.ndarray], attributes: Mapping[str, Any], opset: int = 13) -> np.ndarray:
    """The result of the corpus's evaluator (float64, exact for integers); skips if it is absent."""
    import onnx

    spec = importlib.util.spec_from_file_location("ref_eval", corpus(Path("tools/ref_eval.py")))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    plain = {k: np.asarray(v).reshape(-1)[0].item() if np.size(v) == 1 and k != "axes" else v for k, v in attributes.items()}
    node = onnx.helper.make_node(op, [f"x{i}" for i in range(len(inputs))], ["y"], **plain)
    with np.errstate(all="ignore"):
        return module.ev(node, [np.asarray(x, np.float64) for x in inputs], opset, 1)


def onnxruntime_node(
    op: str, inputs: Sequence[np.ndarray | None], attributes: Mapping[str, Any], opset: int = 18, outputs: int = 1
) -> list[np.ndarray]:
    """What onnxruntime computes for one node; skips if it is not installed."""
    runtime = pytest.importorskip("onnxruntime")
    import onnx
    from onnx import helper

    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    given = {n: np.asarray(x) for n, x in zip(names, inputs, strict=True) if x is not None}
    declared = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in given.items()]
    results = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, **attributes)], "g", declared, [onnx.ValueInfoProto(name=n) for n in results]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, given)
