"""Stored goldens of convolutions, products and poolings: single kernels and reported failures, run on the C kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from DeeployTest.node_runner import make_node, run_node

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"
KERNELS = CORPUS / "deeploy" / "Kernels"
OURS = ("Conv", "Gemm", "MatMul", "MatMulInteger", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
FLOAT_CASES = [f"FP32/{c}" for c in ("Conv", "GEMM", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")]
INTEGER_CASES = [f"Integer/{c}" for c in ("Conv", "GEMM", "MatMul", "MaxPool")]
REPORTED = ["01", "03", "06", "07", "09", "10", "11", "12b"]


def _cases() -> list[Path]:
    found = [p.parent for part in FLOAT_CASES + INTEGER_CASES for p in sorted((KERNELS / part).rglob("network.onnx"))]
    return found + [p for c in REPORTED if (p := CORPUS / "reported" / c).is_dir()]


def _integer(array: np.ndarray, table: bool) -> np.ndarray:
    lo, hi = (array.min(), array.max()) if array.size else (0, 0)
    kinds = (np.int32,) if table else (np.int8, np.uint8, np.int32)
    return array.astype(next(k for k in kinds if np.iinfo(k).min <= lo and hi <= np.iinfo(k).max))


def _attributes(node: Any) -> dict[str, Any]:
    from onnx import AttributeProto, helper, numpy_helper

    return {
        a.name: numpy_helper.to_array(a.t) if a.type == AttributeProto.TENSOR else helper.get_attribute_value(a) for a in node.attribute
    }


class _Network:
    """A small graph, run node by node; a RequantShift (with an Add before it) is merged into the product before it."""

    def __init__(self, folder: Path, seed: int) -> None:
        import onnx
        from onnx import numpy_helper

        self.graph = onnx.load(folder / "network.onnx").graph
        self.rng = np.random.default_rng(seed)
        self.constants = {i.name: numpy_helper.to_array(i) for i in self.graph.initializer}
        self.integers = "Integer" in folder.parts
        for node in self.graph.node:
            if node.op_type == "Constant":
                self.constants[node.output[0]] = _attributes(node)["value"]
        self.values: dict[str, np.ndarray] = {}

    def run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        free = [i.name for i in self.graph.input if i.name not in self.constants]
        for name, array in zip(free, inputs, strict=False):
            self.values[name] = _integer(array, False) if self.integers else array
        nodes = [n for n in self.graph.node if n.op_type != "Constant"]
        while nodes:
            node = nodes.pop(0)
            assert node.op_type in OURS, node.op_type
            chain = [node]
            while nodes and nodes[0].op_type in ("Add", "RequantShift"):
                chain.append(nodes.pop(0))
            self._run_chain(chain)
        return [self.values[o.name] for o in self.graph.output]

    def _run_chain(self, chain: list[Any]) -> None:
        node, adds = chain[0], [n for n in chain if n.op_type == "Add"]
        requants = [n for n in chain if n.op_type == "RequantShift"]
        op, attributes = node.op_type, _attributes(node)
        names = list(node.input)
        if adds:
            names = [*names, adds[0].input[1]]
        if requants:
            op, extra = f"Requantized{op}", _attributes(requants[0])
            extra["n_levels"] = extra.pop("n_levels_out", extra.get("n_levels"))
            attributes, names = {**attributes, **extra}, [*names, *[""] * (3 - len(names)), *requants[0].input[1:]]
        elif adds:
            op = "Gemm"  # a product with an addend
        arrays = [self._array(name, slot, op) for slot, name in enumerate(names)]
        if requants:
            rank = arrays[0].ndim
            if op == "RequantizedConv":
                arrays[3:] = [t.reshape(-1, *(1,) * (rank - 2)) if t.size > 1 else t for t in arrays[3:]]
        constants = [i for i, name in enumerate(names) if name in self.constants]
        count = len(chain[-1].output)
        operator, view = make_node(op, arrays, attributes, constants=constants, outputs=count, integers=self.integers)
        assert not (found := operator.problems(view)), "\n".join(map(str, found))
        results = run_node(operator, view, arrays, self.rng, cores=3)
        for name, got, reference in zip(chain[-1].output, results, operator.reference(view, arrays), strict=True):
            np.testing.assert_allclose(got, reference, rtol=1e-5, atol=1e-4)
            self.values[name] = got

    def _array(self, name: str, slot: int, op: str) -> np.ndarray | None:
        if name in self.values:
            return self.values[name]
        if not name:
            return None
        array = self.constants[name]
        return _integer(array, slot >= 2) if self.integers and op not in ("MaxPool",) else array


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
@pytest.mark.parametrize("folder", _cases(), ids=lambda p: "/".join(p.parts[-3:]))
def test_golden(folder: Path) -> None:
    with np.load(folder / "inputs.npz") as stored:
        inputs = [stored[k] for k in stored.files]
    with np.load(folder / "outputs.npz") as stored:
        expected = [stored[k] for k in stored.files]
    got = _Network(folder, len(str(folder))).run(inputs)
    for have, want in zip(got, expected, strict=True):
        if have.dtype.kind == "f":
            np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-4)
        else:
            np.testing.assert_array_equal(have, want)
