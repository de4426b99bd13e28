"""Graphs for the tests of the passes, and a numpy evaluator of them that shares nothing with the declarations of operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from Deeploy.frontend.model import Model
from Deeploy.operators import load_all
from Deeploy.operators.base import Value
from Deeploy.program import dtypes

Feeds = Mapping[str, np.ndarray]
load_all()


class Builder:
    """Builds a Model node by node: `add` returns the output's name; arrays become constants."""

    def __init__(self, **inputs: np.ndarray) -> None:
        self.feeds: dict[str, np.ndarray] = dict(inputs)
        self.tensors: dict[str, Any] = {n: gs.Variable(n, a.dtype, list(a.shape)) for n, a in inputs.items()}
        self.nodes: list[gs.Node] = []

    def const(self, name: str, array: Any, dtype: type = np.int32) -> str:
        values = array if isinstance(array, np.ndarray) else np.asarray(array, dtype)
        self.tensors[name] = gs.Constant(name, values)
        return name

    def add(self, op: str, *inputs: str, out: str, domain: str = "", **attrs: Any) -> str:
        self.tensors[out] = gs.Variable(out)
        sources = [self.tensors[i] if i else gs.Variable.empty() for i in inputs]
        self.nodes.append(gs.Node(op, f"n_{out}", attrs, sources, [self.tensors[out]], domain))
        return out

    def rq(self, x: str, mul: str, add: str, out: str, div: int = 16, signed: int = 1, n_levels: int = 256) -> str:
        return self.add("RequantShift", x, mul, add, out=out, domain="PACTOps", div=div, signed=signed, n_levels=n_levels)

    def model(self, *outputs: str, integers: bool = True) -> Model:
        graph = gs.Graph(self.nodes, [self.tensors[n] for n in self.feeds], [self.tensors[n] for n in outputs])
        model = Model("test", graph, integers=integers)
        set_values(model, self.feeds)
        return model


def set_values(model: Model, feeds: Feeds) -> None:
    """Values of every tensor from one evaluation; results of RequantShift are int8/uint8, other integers int32."""
    arrays = evaluate_all(model.graph, feeds)
    for name, array in arrays.items():
        dtype = dtypes.from_numpy(array.dtype)
        value = Value.of(array, dtype)
        constant = array if any(isinstance(t, gs.Constant) and t.name == name for n in model.graph.nodes for t in n.inputs) else None
        lo, hi = (None, None) if dtype.is_float else (dtype.lo, dtype.hi)
        model.values[name] = Value(value.shape, dtype, lo, hi) if constant is None else value


def evaluate(graph: gs.Graph, feeds: Feeds) -> dict[str, np.ndarray]:
    """The graph outputs."""
    arrays = evaluate_all(graph, feeds)
    return {t.name: arrays[t.name] for t in graph.outputs}


def evaluate_all(graph: gs.Graph, feeds: Feeds) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = dict(feeds)
    for node in graph.nodes:
        for tensor in node.inputs:
            if isinstance(tensor, gs.Constant):
                arrays[tensor.name] = tensor.values
        inputs = [arrays[t.name] if t.name else None for t in node.inputs]
        for tensor, result in zip(node.outputs, run(node.op, node.attrs, inputs), strict=False):
            arrays[tensor.name] = result
    for tensor in graph.outputs:
        if isinstance(tensor, gs.Constant):
            arrays[tensor.name] = tensor.values
    return arrays


def requant(x: np.ndarray, mul: Any, add: Any, attrs: Mapping[str, Any], suffix: str = "") -> np.ndarray:
    """semantics.md section 1 for tables that broadcast numpy-style."""
    div, levels, signed = (int(attrs[k + suffix]) for k in ("div", "n_levels", "signed"))
    shift = div.bit_length() - 1
    y = (x.astype(np.int64) * mul.astype(np.int64) + add.astype(np.int64) + (div // 2 if shift else 0)) >> shift
    return np.clip(y, -levels // 2, levels // 2 - 1).astype(np.int8) if signed else np.clip(y, 0, levels - 1).astype(np.uint8)


def conv(x: np.ndarray, w: np.ndarray, b: np.ndarray | None, groups: int = 1) -> np.ndarray:
    """Stride 1, no padding, any number of spatial dimensions."""
    k = w.shape[2:]
    out = np.zeros((x.shape[0], w.shape[0], *(n - m + 1 for n, m in zip(x.shape[2:], k, strict=True))), x.dtype)
    per, outs = w.shape[1], w.shape[0] // groups
    for o in range(w.shape[0]):
        for c in range(per):
            for place in np.ndindex(*k):
                part = x[(slice(None), o // outs * per + c, *(slice(p, p + n) for p, n in zip(place, out.shape[2:], strict=True)))]
                out[:, o] += part * w[(o, c, *place)]
    return out if b is None else out + b.reshape(1, -1, *(1 for _ in k))


def conv_transpose(x: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
    """Stride 1, no padding, one spatial dimension."""
    ins, outs = x.shape[1] // groups, w.shape[1]
    y = np.zeros((x.shape[0], outs * groups, x.shape[2] + w.shape[2] - 1))
    for c in range(x.shape[1]):
        for o in range(outs):
            for k in range(w.shape[2]):
                y[:, c // ins * outs + o, k : k + x.shape[2]] += x[:, c] * w[c, o, k]
    return y


def wide(a: np.ndarray | None) -> Any:
    return None if a is None else a.astype(np.float64 if a.dtype.kind == "f" else np.int64)


def run(op: str, attrs: Mapping[str, Any], inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """One node. Integer results other than requantised ones are int32, float results float32."""
    x = [wide(a) for a in inputs]
    first: Any = inputs[0]
    if op in ("Transpose", "Reshape", "Identity", "Slice"):
        return [move(op, attrs, first)]
    if op == "Shape":
        return [np.asarray(first.shape, np.int64)]
    if op == "Cast":
        return [first.astype(attrs["dtype"])]
    if op == "RequantShift":
        return [requant(first, x[1], x[2], attrs)]
    if op.startswith("Requantized"):
        return [merged(op, attrs, inputs, x)]
    y = arithmetic(op, attrs, x)
    return [np.asarray(y, np.float32 if first.dtype.kind == "f" else np.int32)]


def move(op: str, attrs: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    if op == "Transpose":
        return x.transpose(attrs.get("perm"))
    if op == "Slice":
        return x[attrs["starts"][0] : attrs["ends"][0]]
    return x.reshape(attrs["shape"]) if op == "Reshape" else x


def merged(op: str, attrs: Mapping[str, Any], inputs: Sequence[np.ndarray | None], x: Sequence[Any]) -> np.ndarray:
    """The composition that a merged operator stands for."""
    if op == "RequantizedAdd":
        a = x[0] if x[2] is None else wide(requant(x[0], x[2], x[3], attrs, "_a"))
        b = x[1] if x[4] is None else wide(requant(x[1], x[4], x[5], attrs, "_b"))
        return requant(a + b, x[6], x[7], attrs)
    plain = op.removeprefix("Requantized")
    y = arithmetic(plain, attrs, x[:2] if plain == "MatMul" else x[:3])
    if plain == "MatMul" and x[2] is not None:
        y = y + x[2]
    return requant(y, x[3], x[4], attrs)


def arithmetic(op: str, attrs: Mapping[str, Any], x: Sequence[Any]) -> np.ndarray:
    if op in ("Add", "Sub", "Mul"):
        return {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[op](x[0], x[1])
    if op == "Relu":
        return np.maximum(x[0], 0)
    if op == "Exp":
        return np.exp(x[0])
    if op == "MatMul":
        return x[0] @ x[1]
    if op == "Gemm":
        a = x[0].T if attrs.get("transA") else x[0]
        b = x[1].T if attrs.get("transB") else x[1]
        y = attrs.get("alpha", 1) * (a @ b)
        return y + attrs.get("beta", 1) * x[2] if len(x) > 2 and x[2] is not None else y
    if op == "Conv":
        return conv(x[0], x[1], x[2] if len(x) > 2 else None, attrs.get("group", 1))
    if op == "ConvTranspose":
        y = conv_transpose(x[0], x[1], attrs.get("group", 1))
        return y + x[2].reshape(1, -1, 1) if len(x) > 2 and x[2] is not None else y
    if op == "BatchNormalization":
        shape = (1, -1, *(1 for _ in x[0].shape[2:]))
        s, b, m, v = (t.reshape(shape) for t in x[1:5])
        return (x[0] - m) / np.sqrt(v + attrs.get("epsilon", 1e-5)) * s + b
    raise NotImplementedError(op)
