"""Steps and programs built by hand, and a slow simulation of tile loops: the oracle of the planner's tests."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from Deeploy.operators.lowering import operand
from Deeploy.program.dtypes import FLOAT32, INT8, INT32, DType
from Deeploy.program.program import Program
from Deeploy.program.step import Access, Axis, AxisKind, DimMap, Kernel, KernelCall, Operand, Step
from Deeploy.program.tensor import ConstantBuffer, Role, Storage, Tensor, VariableBuffer

READ, WRITE = Access.READ, Access.WRITE
REDUCED = AxisKind.REDUCED


def variable(name: str, shape: Sequence[int], dtype: DType = INT8, role: Role = Role.ACTIVATION) -> VariableBuffer:
    return VariableBuffer(name, name, tuple(shape), dtype, Storage(name, math.prod(shape) * dtype.size, role))


def constant(name: str, shape: Sequence[int], dtype: DType = INT8) -> ConstantBuffer:
    size = math.prod(shape) * dtype.size
    return ConstantBuffer(name, name, tuple(shape), dtype, Storage(name, size, Role.CONSTANT, content=bytes(size), members=[name]))


def literal(name: str, shape: Sequence[int], dtype: DType = INT32) -> ConstantBuffer:
    strides = (0,) * len(shape)
    return ConstantBuffer(name, name, tuple(shape), dtype, Storage(name, 0, Role.CONSTANT), 0, strides, literal=bytes(dtype.size))


def call(operands: int, axes: int, **kernel: object) -> KernelCall:
    return KernelCall(Kernel("dp_any", "any.c", **kernel), tuple(range(operands)), tuple(range(axes)))  # type: ignore[arg-type]


def matmul(a: Tensor, b: Tensor, c: Tensor, name: str = "mm", split: bool = True) -> Step:
    (m, k), (_, n) = a.shape, b.shape
    return Step(
        name,
        name,
        "MatMul",
        (Axis("m", m), Axis("n", n), Axis("k", k, REDUCED)),
        (operand(a, READ, (0, 2)), operand(b, READ, (2, 1)), operand(c, WRITE, (0, 1))),
        (call(3, 3, splits_reduction=split),),
        accumulator=INT32 if split else None,
        macs=m * n * k,
    )


def conv(x: Tensor, w: Tensor, y: Tensor, stride: int = 1, pad: int = 1, dilation: int = 1, name: str = "cv", split: bool = True) -> Step:
    (c, h, width), (o, _, kh, kw), (_, oh, ow) = x.shape, w.shape, y.shape
    rows = DimMap(h, width, ((1, stride), (4, dilation)), -pad)
    columns = DimMap(width, 1, ((2, stride), (5, dilation)), -pad)
    image = Operand(x, READ, (DimMap(c, h * width, ((3, 1),)), rows, columns))
    axes = (Axis("o", o), Axis("y", oh), Axis("x", ow), Axis("c", c, REDUCED), Axis("kh", kh, REDUCED), Axis("kw", kw, REDUCED))
    return Step(
        name,
        name,
        "Conv",
        axes,
        (image, operand(w, READ, (0, 3, 4, 5)), operand(y, WRITE, (0, 1, 2))),
        (call(3, 6, splits_reduction=split),),
        accumulator=INT32 if split else None,
    )


def elementwise(inputs: Sequence[Tensor], out: Tensor, name: str = "ew", in_place: bool = True) -> Step:
    """All axes parallel; inputs are broadcast numpy-style where they are shorter."""
    rank = len(out.shape)
    reads = [operand(t, READ, tuple(range(rank - len(t.shape), rank))) for t in inputs]
    count = len(inputs)
    pairs = tuple((count, i) for i in range(count)) if in_place else ()
    axes = tuple(Axis(f"d{i}", n) for i, n in enumerate(out.shape))
    return Step(name, name, "Add", axes, (*reads, operand(out, WRITE, tuple(range(rank)))), (call(count + 1, rank),), in_place=pairs)


def softmax(x: Tensor, y: Tensor, name: str = "sm", scratch: bool = False) -> Step:
    rows, length = x.shape
    rule = (lambda n, cores: 8 * n[1] * cores) if scratch else None
    return Step(
        name,
        name,
        "Softmax",
        (Axis("r", rows), Axis("l", length, tileable=False)),
        (operand(x, READ, (0, 1)), operand(y, WRITE, (0, 1))),
        (call(2, 2, scratch=rule, cycles_per_point=20.0),),
    )


def program(steps: Sequence[Step], outputs: Sequence[VariableBuffer] = ()) -> Program:
    result = Program("test")
    seen: dict[int, Tensor] = {}
    for step in steps:
        for o in step.operands:
            seen.setdefault(id(o.tensor), o.tensor)
    result.steps = list(steps)
    result.tensors = list(seen.values())
    variables = [t for t in result.tensors if isinstance(t, VariableBuffer)]
    result.inputs = [t for t in variables if t.storage.role is Role.INPUT]
    result.outputs = [t for t in variables if t.storage.role is Role.OUTPUT or t in outputs]
    result.state = [t for t in variables if t.storage.role is Role.STATE]
    return result


def network(layers: int = 4, channels: int = 16, size: int = 16) -> Program:
    """Convolutions, each followed by a rectifier and every second one by a residual addition; then a product."""
    steps: list[Step] = []
    x = variable("x", (channels, size, size), role=Role.INPUT)
    before = x
    for i in range(layers):
        w = constant(f"w{i}", (channels, channels, 3, 3))
        y, z = variable(f"y{i}", x.shape), variable(f"z{i}", x.shape)
        steps += [conv(x, w, y, name=f"conv{i}"), elementwise([y], z, name=f"relu{i}")]
        x = z
        if i % 2:
            s = variable(f"s{i}", x.shape)
            steps.append(elementwise([x, before], s, name=f"add{i}"))
            x = before = s
    flat = VariableBuffer("flat", "flat", (1, channels * size * size), INT8, x.storage)
    out = variable("out", (1, 10), INT32, Role.OUTPUT)
    steps.append(matmul(flat, constant("fc", (channels * size * size, 10)), out, name="fc"))
    return program(steps)


def some_steps() -> list[Step]:
    """One of each kind, small enough to simulate."""
    f = FLOAT32
    return [
        matmul(variable("a", (13, 22)), variable("b", (22, 9)), variable("c", (13, 9), INT32)),
        conv(variable("x", (5, 11, 9)), constant("w", (6, 5, 3, 3)), variable("y", (6, 11, 9))),
        conv(variable("x", (3, 14, 10)), constant("w", (4, 3, 3, 3)), variable("y", (4, 6, 4)), stride=2, pad=0),
        conv(variable("x", (2, 12, 12)), constant("w", (3, 2, 3, 3)), variable("y", (3, 10, 10)), pad=1, dilation=2, split=False),
        elementwise([variable("a", (6, 7, 8), f), variable("b", (7, 1), f), literal("l", ())], variable("o", (6, 7, 8), f)),
        elementwise([variable("a", (40,), INT32), variable("b", (40,), INT32)], variable("o", (40,), INT32)),
        softmax(variable("a", (17, 12), f), variable("o", (17, 12), f)),
    ]


# ---- a slow simulation of the loops that generated code runs -----------------------------------------------------------------------

Box = tuple[tuple[int, ...], tuple[int, ...]]


def boxes(lo: Sequence[int], n: Sequence[int], tile: Sequence[int], order: Sequence[int]) -> Iterator[Box]:
    """All boxes of a loop over the box (lo, n), in order."""
    if not order:
        yield tuple(lo), tuple(n)
        return
    axis = order[0]
    for at in range(0, n[axis], tile[axis]):
        first, count = list(lo), list(n)
        first[axis], count[axis] = lo[axis] + at, min(tile[axis], n[axis] - at)
        yield from boxes(first, count, tile, order[1:])


def region_bytes(o: Operand, box: Box) -> int:
    result = o.tensor.dtype.size
    for dim in o.dims:
        extent = dim.clipped(*box)[1]
        result *= min(extent, 1) if dim.stride == 0 else extent
    return result


def moved(o: Operand, a: Box, b: Box) -> bool:
    return any(a[0][x] != b[0][x] or a[1][x] != b[1][x] for dim in o.dims for x, _ in dim.terms)


def loads(o: Operand, sequence: Sequence[Box]) -> int:
    """Bytes loaded for an operand over a sequence of boxes: for the first, then whenever it moves."""
    total = region_bytes(o, sequence[0])
    return total + sum(region_bytes(o, b) for a, b in zip(sequence, sequence[1:], strict=False) if moved(o, a, b))


def stores(step: Step, o: Operand, sequence: Sequence[Box]) -> int:
    """Bytes stored: at the last box of every reduction."""
    reduced = [i for i, a in enumerate(step.axes) if a.kind is REDUCED]
    return sum(region_bytes(o, b) for b in sequence if all(b[0][a] + b[1][a] == step.axes[a].size for a in reduced))
