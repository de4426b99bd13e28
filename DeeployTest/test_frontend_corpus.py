"""Frontend on the shared corpus, with the real operators: what the files of others look like."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from Deeploy.errors import DeeployError, ModelError
from Deeploy.frontend import infer, load, load_inputs, load_outputs
from Deeploy.program import dtypes

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus"
pytestmark = [pytest.mark.corpus, pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not here")]

EDGE = sorted(p.name for p in (CORPUS / "edge").glob("*") if p.is_dir())
MODELS = [
    *(f"MLPerf/{name}" for name in ("AnomalyDetection", "ImageClassification", "KeywordSpotting")),
    *("CNN_Linear1", "CNN_Linear2", "EEGFormer", "miniMobileNet", "microLlama/INT8/microLlama8"),
    *(f"CCT/FP32/{p.name}" for p in sorted((CORPUS / "deeploy/Models/CCT/FP32").glob("*"))),
]


@pytest.mark.parametrize("case", EDGE)
def test_readers_of_edge_cases(case: str) -> None:
    """The bytes of all readers are the bytes that a copy per reader would take."""
    folder = CORPUS / "edge" / case
    expected = json.loads((folder / "expect.json").read_text())["constant_bytes"]
    model = load(folder)
    assert sum(r.bytes for r in model.readers) == expected["copied_per_reader"]
    by_content = {r.content: r.bytes for r in model.readers}
    assert sum(by_content.values()) == expected["equal_bytes_shared"]
    assert not model.integers


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    """Every network loads; its fixtures go with its inferred inputs and outputs."""
    folder = CORPUS / "deeploy/Models" / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not in the corpus")
    model = load(folder)
    proto = onnx.load(folder / "network.onnx")
    assert model.output_names == [o.name for o in proto.graph.output]
    for declared, tensor in zip(proto.graph.output, model.graph.outputs, strict=True):
        shape = [d.dim_value for d in declared.type.tensor_type.shape.dim]
        assert list(model.values[tensor.name].shape) == shape
    inputs, outputs = list(load_inputs(folder, model).values()), load_outputs(folder, model)
    for array, tensor in zip(inputs, model.graph.inputs, strict=True):
        assert array.dtype == model.values[tensor.name].dtype.numpy
    for array, tensor in zip(outputs, model.graph.outputs, strict=True):
        assert array.dtype == model.values[tensor.name].dtype.numpy
    assert model.integers == ("FP32" not in name)
    before = dict(model.values)
    infer(model)
    assert {n: (v.shape, v.dtype, v.lo, v.hi) for n, v in before.items()} == {
        n: (v.shape, v.dtype, v.lo, v.hi) for n, v in model.values.items()
    }


@pytest.mark.parametrize("name", ["AnomalyDetection", "ImageClassification", "KeywordSpotting"])
def test_types_of_mlperf(name: str) -> None:
    """Input types are the smallest that hold the stored data, weights are one byte."""
    folder = CORPUS / "deeploy/Models/MLPerf" / name
    with np.load(folder / "inputs.npz") as archive:
        data = archive[archive.files[0]]
    wanted = dtypes.INT8 if data.min() >= -128 and data.max() <= 127 else dtypes.UINT8
    started = time.process_time()
    model = load(folder)
    assert time.process_time() - started < 0.5
    (tensor,) = model.graph.inputs
    assert model.values[tensor.name].dtype is wanted
    assert any(note.startswith(f"input '{tensor.name}': {wanted} {list(data.shape)}") for note in model.notes)
    for node in model.graph.nodes:
        if node.op in ("Conv", "Gemm", "MatMul"):
            assert model.values[node.inputs[1].name].dtype is dtypes.INT8
        if node.op == "RequantShift":
            assert all(model.values[t.name].dtype is dtypes.INT32 for t in node.inputs[1:])


def test_dynamic_dimension_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match="'N'.*input 'x'.*--dim N=3"):
        load(CORPUS / "reported/48")
    model = load(CORPUS / "reported/48", dims={"N": 3})
    assert model.values[model.graph.outputs[0].name].shape == (3, 1)
    model = load(CORPUS / "reported/19b", dims={"x:0": 0})
    assert model.values[model.graph.outputs[0].name].shape == (3, 0)


@pytest.mark.parametrize("part", ["reported", "third_party", "qdq", "deeploy", "training"])
def test_everything_loads_or_is_refused_with_words(part: str) -> None:
    for path in sorted((CORPUS / part).rglob("network.onnx")):
        try:
            model = load(path.parent)
        except DeeployError as error:
            assert error.exit_code == 3 and str(error), path
            assert not any("Error:" in p.why for p in error.problems), f"{path}: {error}"
        else:
            assert len({n.name for n in model.graph.nodes}) == len(model.graph.nodes), path
