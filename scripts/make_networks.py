#!/usr/bin/env python3
"""Makes the small networks in DeeployTest/networks, with inputs and golden outputs.

Goldens do not come from the compiler: float networks are evaluated by onnxruntime, the integer network by the plain loops below. The
result is the same on every machine (seeded; no timestamps in the npz files).

usage: make_networks.py [FOLDER]
"""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 17


def save(folder: Path, nodes: list, inputs: dict, outputs: dict, constants: dict, golden: dict | None = None, opset: int = OPSET) -> None:
    """Writes network.onnx, inputs.npz and outputs.npz. `inputs`: arrays by name; `outputs`: shapes by name (float32) or (dtype, shape)."""
    folder.mkdir(parents=True, exist_ok=True)

    def info(name: str, dtype: str, shape: tuple) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)

    declared_in = [info(n, "float32" if golden else a.dtype.name, a.shape) for n, a in inputs.items()]
    declared_out = [info(n, *(s if isinstance(s[0], str) else ("float32", s))) for n, s in outputs.items()]
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, folder.name, declared_in, declared_out, tensors)
    imports = [helper.make_opsetid("", opset)]
    if golden:
        imports.append(helper.make_opsetid("PACTOps", 1))
    model = helper.make_model(graph, opset_imports=imports, producer_name="make_networks")
    model.ir_version = 8
    (folder / "network.onnx").write_bytes(model.SerializeToString(deterministic=True))
    if golden is None:
        import onnxruntime as ort

        session = ort.InferenceSession(str(folder / "network.onnx"), providers=["CPUExecutionProvider"])
        golden = dict(zip(outputs, session.run(list(outputs), inputs), strict=True))
    write_npz(folder / "inputs.npz", inputs)
    write_npz(folder / "outputs.npz", golden)


def write_npz(path: Path, arrays: dict) -> None:
    """np.savez without the time of day."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.asarray(array))
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), buffer.getvalue())


# ---- the integer network ------------------------------------------------------------------------------------------------------------


def conv(x: np.ndarray, w: np.ndarray, stride: int, pad: int, group: int = 1) -> np.ndarray:
    """Plain loops over the kernel; x [1, C, H, W], w [O, C/group, K, K], int64."""
    channels, height, width = x.shape[1:]
    out, _, k, _ = w.shape
    rows, columns = (height + 2 * pad - k) // stride + 1, (width + 2 * pad - k) // stride + 1
    padded = np.zeros((channels, height + 2 * pad, width + 2 * pad), np.int64)
    padded[:, pad : pad + height, pad : pad + width] = x[0]
    y = np.zeros((1, out, rows, columns), np.int64)
    per_group, each = channels // group, out // group
    for o in range(out):
        for c in range(per_group):
            plane = padded[(o // each) * per_group + c]
            for i in range(k):
                for j in range(k):
                    part = plane[i : i + (rows - 1) * stride + 1 : stride, j : j + (columns - 1) * stride + 1 : stride]
                    y[0, o] += int(w[o, c, i, j]) * part
    return y


def requant(x: np.ndarray, mul: np.ndarray, add: np.ndarray, shift: int, signed: bool) -> np.ndarray:
    y = (x * mul + add + (1 << (shift - 1))) >> shift
    return np.clip(y, -128, 127) if signed else np.clip(y, 0, 255)


def quant_cnn(folder: Path) -> None:
    """An int8 network in the Deeploy format: convolutions of three kinds, a residual sum, pooling, a classifier. Two blocks use one set of
    requantisation tables and one pointwise weight twice, so there is something to share."""
    rng = np.random.default_rng(1)
    weight = {
        "stem": rng.integers(-30, 30, (16, 3, 3, 3)),
        "dw1": rng.integers(-60, 60, (16, 1, 3, 3)),
        "pw": rng.integers(-40, 40, (16, 16, 1, 1)),
        "dw2": rng.integers(-60, 60, (16, 1, 3, 3)),
        "head": rng.integers(-20, 20, (10, 16 * 4 * 4)),
    }
    mul, add = rng.integers(200, 900, (16, 1, 1)), rng.integers(-40000, 40000, (16, 1, 1))
    bias = rng.integers(-500, 500, (10,))
    x = rng.integers(0, 256, (1, 3, 16, 16))
    nodes, constants = [], {}
    for name, array in {**weight, "mul": mul, "add": add, "bias": bias}.items():
        constants[name] = array.astype(np.float32)
    constants["one"], constants["zero"] = np.float32(20000), np.float32(0)
    constants["flat"] = np.array([1, -1], np.int64)

    def rq(source: str, result: str, tables: tuple[str, str], signed: bool) -> None:
        attributes = dict(div=65536.0, n_levels_out=[256.0], signed=[float(signed)])
        nodes.append(helper.make_node("RequantShift", [source, *tables], [result], domain="PACTOps", **attributes))

    def convolution(source: str, name: str, result: str, stride: int, pad: int, group: int) -> None:
        k = weight[name].shape[2]
        attributes = dict(strides=[stride] * 2, pads=[pad] * 4, group=group, kernel_shape=[k, k], dilations=[1, 1])
        nodes.append(helper.make_node("Conv", [source, name], [result], **attributes))

    convolution("input", "stem", "c0", 2, 1, 1)
    rq("c0", "a0", ("mul", "add"), False)
    convolution("a0", "dw1", "c1", 1, 1, 16)
    rq("c1", "a1", ("mul", "add"), False)
    convolution("a1", "pw", "c2", 1, 0, 1)
    rq("c2", "a2", ("mul", "add"), True)
    rq("a0", "s0", ("one", "zero"), True)
    nodes.append(helper.make_node("Add", ["s0", "a2"], ["sum"]))
    rq("sum", "a3", ("one", "zero"), False)
    convolution("a3", "dw2", "c3", 1, 1, 16)
    rq("c3", "a4", ("mul", "add"), False)
    convolution("a4", "pw", "c4", 1, 0, 1)
    rq("c4", "a5", ("mul", "add"), True)
    nodes.append(helper.make_node("MaxPool", ["a5"], ["p"], kernel_shape=[2, 2], strides=[2, 2]))
    nodes.append(helper.make_node("Reshape", ["p", "flat"], ["f"]))
    nodes.append(helper.make_node("Gemm", ["f", "head", "bias"], ["g"], transB=1))
    rq("g", "output", ("one", "zero"), True)

    a0 = requant(conv(x, weight["stem"], 2, 1), mul, add, 16, False)
    a1 = requant(conv(a0, weight["dw1"], 1, 1, 16), mul, add, 16, False)
    a2 = requant(conv(a1, weight["pw"], 1, 0), mul, add, 16, True)
    a3 = requant(requant(a0, 20000, 0, 16, True) + a2, 20000, 0, 16, False)
    a4 = requant(conv(a3, weight["dw2"], 1, 1, 16), mul, add, 16, False)
    a5 = requant(conv(a4, weight["pw"], 1, 0), mul, add, 16, True)
    pooled = a5.reshape(1, 16, 4, 2, 4, 2).max((3, 5)).reshape(1, -1)
    output = requant(pooled @ weight["head"].T + bias, 20000, 0, 16, True)
    save(folder, nodes, {"input": x}, {"output": output.shape}, constants, {"output": output}, opset=10)


# ---- float networks -----------------------------------------------------------------------------------------------------------------


def attention(folder: Path) -> None:
    """A small transformer block: layer norm, attention with two heads, GELU feed-forward. One norm is used twice; the output projection
    is read straight and transposed."""
    rng = np.random.default_rng(2)
    tokens, width, heads = 17, 24, 2
    constants = {n: (rng.standard_normal((width, width)) / 5).astype(np.float32) for n in ("wq", "wk", "wv", "wo")}
    constants |= {
        "w1": (rng.standard_normal((width, 40)) / 5).astype(np.float32),
        "w2": (rng.standard_normal((40, width)) / 5).astype(np.float32),
    }
    constants |= {"g": rng.standard_normal(width).astype(np.float32), "b": rng.standard_normal(width).astype(np.float32)}
    constants |= {"scale": np.float32((width // heads) ** -0.5), "split": np.array([0, 0, heads, width // heads], np.int64)}
    constants["join"] = np.array([0, 0, width], np.int64)
    nodes = [helper.make_node("LayerNormalization", ["x", "g", "b"], ["n"], epsilon=1e-5)]
    for part, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes.append(helper.make_node("MatMul", ["n", f"w{part}"], [f"{part}0"]))
        nodes.append(helper.make_node("Reshape", [f"{part}0", "split"], [f"{part}1"]))
        nodes.append(helper.make_node("Transpose", [f"{part}1"], [part], perm=perm))
    nodes += [
        helper.make_node("MatMul", ["q", "k"], ["qk"]),
        helper.make_node("Mul", ["qk", "scale"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["a0"]),
        helper.make_node("Transpose", ["a0"], ["a1"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["a1", "join"], ["a2"]),
        helper.make_node("MatMul", ["a2", "wo"], ["a3"]),
        helper.make_node("Add", ["x", "a3"], ["r"]),
        helper.make_node("LayerNormalization", ["r", "g", "b"], ["m"], epsilon=1e-5),
        helper.make_node("MatMul", ["m", "w1"], ["h"]),
        helper.make_node("Relu", ["h"], ["hr"]),
        helper.make_node("MatMul", ["hr", "w2"], ["d"]),
        helper.make_node("Add", ["r", "d"], ["e"]),
        helper.make_node("Transpose", ["wo"], ["wot"], perm=[1, 0]),
        helper.make_node("MatMul", ["e", "wot"], ["y"]),
    ]
    x = rng.standard_normal((1, tokens, width)).astype(np.float32)
    save(folder, nodes, {"x": x}, {"y": (1, tokens, width)}, constants)


def minus_zero_vectors(folder: Path) -> None:
    """Two vectors that are equal as numbers and differ in the sign of their zeros: they are no splats and must not share."""
    values = np.array([1, 0, 2, 0, 3, 0, 4, 0], np.float32)
    other = np.array([1, -0.0, 2, -0.0, 3, -0.0, 4, -0.0], np.float32)
    nodes = [
        helper.make_node("Mul", ["x", "p"], ["a"]),
        helper.make_node("Mul", ["x", "q"], ["b"]),
        helper.make_node("Div", ["one", "a"], ["ya"]),
        helper.make_node("Div", ["one", "b"], ["yb"]),
    ]
    x = np.arange(1, 9, dtype=np.float32)
    save(folder, nodes, {"x": x}, {"ya": (8,), "yb": (8,)}, {"p": values, "q": other, "one": np.float32(1)})


def nan_payload_vectors(folder: Path) -> None:
    """Three NaN vectors: two with the same payloads (one content), one with others (a content of its own)."""
    bits = np.arange(0x7FC00001, 0x7FC00011, dtype=np.uint32)
    p, q, r = bits.view(np.float32), bits.copy().view(np.float32), (bits + 64).view(np.float32)
    nodes = [
        helper.make_node("Where", ["m", "x", "p"], ["a"]),
        helper.make_node("Where", ["m", "x", "q"], ["b"]),
        helper.make_node("Where", ["m", "x", "r"], ["c"]),
        helper.make_node("Add", ["a", "b"], ["s"]),
        helper.make_node("Add", ["s", "c"], ["y"]),
    ]
    mask = np.arange(16) % 3 == 0
    save(folder, nodes, {"x": np.arange(16, dtype=np.float32), "m": mask}, {"y": (16,)}, {"p": p, "q": q, "r": r})


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / "DeeployTest/networks"
    for make in (quant_cnn, attention, minus_zero_vectors, nan_payload_vectors):
        make(target / make.__name__)
        print(target / make.__name__)


if __name__ == "__main__":
    main()
