"""Hand-built programs and naive plans for the tests of emitted code: nothing of the frontend, the operators or the planner."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from Deeploy.emit import Call, EmitOptions, Manifest, Script, emit
from Deeploy.plan.result import Arena, Block, LevelUse, Placement, Plan, StepCost, StepPlan, TileBuffers
from Deeploy.platform import load
from Deeploy.program.dtypes import FLOAT32, INT8, INT32, DType
from Deeploy.program.program import Program, Project
from Deeploy.program.step import Access, Axis, AxisKind, DimMap, Kernel, KernelCall, Operand, Param, Step
from Deeploy.program.tensor import ConstantBuffer, Level, Role, Storage, Tensor, VariableBuffer
from Deeploy.sharing import share

KERNELS = Path(__file__).parent / "c"
MATMUL = Kernel("dp_test_matmul", "emit_kernels.c", splits_reduction=True)
BLEND = Kernel("dp_test_blend", "emit_kernels.c", "dp_test_cst")


def variable(name: str, shape: Sequence[int], dtype: DType, role: Role = Role.ACTIVATION, lo: int | None = None) -> VariableBuffer:
    storage = Storage(name, int(np.prod(shape)) * dtype.size, role)
    return VariableBuffer(name, f"onnx/{name}", tuple(shape), dtype, storage, lo=lo, hi=None if lo is None else -lo)


def constant(name: str, array: np.ndarray, dtype: DType, literal: bool = False) -> ConstantBuffer:
    content = array.tobytes()
    storage = Storage(name, 0 if literal else len(content), Role.CONSTANT, content=b"" if literal else content, members=[name])
    buffer = ConstantBuffer(name, f"onnx/{name}", array.shape, dtype, storage, strides=(0,) * array.ndim if literal else ())
    buffer.literal = content[: dtype.size] if literal else None
    return buffer


def _matmul(name: str, y: Tensor, a: Tensor, b: Tensor) -> Step:
    (m, k), n = a.shape, b.shape[1]
    axes = (Axis("m", m), Axis("n", n), Axis("k", k, AxisKind.REDUCED))

    def at(t: Tensor, access: Access, first: int, second: int) -> Operand:
        dims = tuple(DimMap(size, stride, ((axis, 1),)) for size, stride, axis in zip(t.shape, t.strides, (first, second), strict=True))
        return Operand(t, access, dims)

    operands = (at(y, Access.WRITE, 0, 1), at(a, Access.READ, 0, 2), at(b, Access.READ, 2, 1))
    return Step(name, name, "MatMul", axes, operands, (KernelCall(MATMUL, (0, 1, 2), (0, 1, 2)),), accumulator=INT32, macs=m * n * k)


def _blend(name: str, y: Tensor, a: Tensor, b: Tensor, scale: tuple[float, float]) -> Step:
    def at(t: Tensor, access: Access) -> Operand:
        return Operand(t, access, (DimMap(t.elements, 0 if t.strides == (0,) else 1, ((0, 1),)),))

    operands = (at(a, Access.READ), at(b, Access.READ), at(y, Access.WRITE))
    call = KernelCall(BLEND, (0, 1, 2), (0,), (Param("scale", scale), Param("rank", 1)))
    return Step(name, name, "Blend", (Axis("i", y.elements),), operands, (call,), macs=y.elements)


@dataclass
class Example:
    """A project with one program, its inputs, and what its outputs must be (computed in numpy)."""

    project: Project
    fixtures: dict[str, np.ndarray]
    expected: list[np.ndarray]
    plan: Plan = field(init=False)

    @property
    def program(self) -> Program:
        return self.project.programs[0]

    @property
    def script(self) -> Script:
        return Script((Call(0, self.fixtures),))


def example(seed: int = 0, shared: bool = True) -> Example:
    """(a @ w) @ w' with w' equal to w in bytes and w's transpose a view, and a blend of floats with a vector and with a literal."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-128, 128, (13, 10)).astype(np.int8)
    w = rng.integers(-128, 128, (10, 7)).astype(np.int8)
    f, v = rng.standard_normal(37).astype(np.float32), rng.standard_normal(37).astype(np.float32)
    third = np.float32(1 / 3)
    tx = variable("x", x.shape, INT8, Role.INPUT, lo=-128)
    tx.hi = 127
    tf = variable("f", f.shape, FLOAT32, Role.INPUT)
    w1, w2 = constant("w1", w, INT8), constant("w2", w, INT8)
    v1, v2 = constant("v1", v, FLOAT32), constant("v2", v, FLOAT32)
    lit = constant("third", np.full(37, third), FLOAT32, literal=True)
    y1 = variable("y1", (13, 7), INT32, Role.OUTPUT)
    y2 = variable("y2", (13, 7), INT32, Role.OUTPUT)
    h, g, z = variable("h", (37,), FLOAT32), variable("g", (37,), FLOAT32), variable("z", (37,), FLOAT32, Role.OUTPUT)
    steps = [
        _matmul("first", y1, tx, w1),
        _blend("second", h, tf, v1, (1.5, -2.0)),
        _matmul("third", y2, tx, w2),
        _blend("fourth", g, h, lit, (1.0, 0.1)),
        _blend("fifth", z, g, v2, (0.25, 3e-5)),
    ]
    program = Program("network", [tx, tf], [y1, y2, z], [], [tx, tf, w1, w2, v1, v2, lit, y1, y2, h, g, z], steps)
    project = Project([program])
    if shared:
        share(project)

    def blend(a: np.ndarray, b: np.ndarray, p: float, q: float) -> np.ndarray:
        return (np.float32(p) * a + np.float32(q) * b).astype(np.float32)

    product = x.astype(np.int32) @ w.astype(np.int32)
    end = blend(blend(blend(f, v, 1.5, -2.0), np.full(37, third), 1.0, 0.1), v, 0.25, 3e-5)
    return Example(project, {"onnx/x": x, "f": f}, [product, product, end])


def naive_plan(
    program: Program,
    home: Mapping[str, Level] | Level,
    outer: Mapping[str, Sequence[int]],
    inner: Mapping[str, Sequence[int]],
    copies: int = 2,
    cores: int = 8,
) -> Plan:
    """Everything side by side: no arena space is ever used twice. `home` by storage name (default L2), tiles by operator."""
    plan = Plan(program)
    offsets = {Level.L2: 0, Level.L3: 0}

    def take(level: Level, size: int) -> int:
        at = offsets[level]
        offsets[level] = at + (size + 3) // 4 * 4
        return at

    placements: dict[Level, list[Placement]] = {Level.L2: [], Level.L3: []}
    steps = program.steps
    for storage in program.storages:
        storage.home = home if isinstance(home, Level) else home.get(storage.name, Level.L2)
        if storage.content is None:
            users = [i for i, s in enumerate(steps) for o in s.operands if o.tensor.storage is storage]
            first = 0 if storage.role is Role.INPUT else min(users, default=0)
            last = len(steps) - 1 if storage.role is Role.OUTPUT else max(users, default=0)
            placements[storage.home].append(Placement(storage, take(storage.home, storage.size), first, last))
    l1 = 0
    for step in steps:
        sizes = [a.size for a in step.axes]
        out = tuple(min(t, n) for t, n in zip(outer.get(step.operator, sizes), sizes, strict=True))
        inn = tuple(min(t, n) for t, n in zip(inner.get(step.operator, out), out, strict=True))
        near: list[TileBuffers | None] = []
        far: list[TileBuffers | None] = []
        at = 0
        for operand in step.operands:
            literal = isinstance(operand.tensor, ConstantBuffer) and operand.tensor.literal is not None
            size, far_size = (_largest(step, operand, tile) for tile in (inn, out))
            near.append(None if literal else TileBuffers(size, tuple(at + c * ((size + 7) // 8 * 8) for c in range(copies))))
            at += 0 if literal else copies * ((size + 7) // 8 * 8)
            far_size = (far_size + 3 + 3) // 4 * 4  # a read overwrites up to 3 bytes past its end
            in_l3 = operand.tensor.storage.home is Level.L3 and not literal
            far.append(TileBuffers(far_size, tuple(take(Level.L2, far_size) for _ in range(copies))) if in_l3 else None)
        block = None
        if step.accumulator is not None:
            written = near[step.writes[0]]
            assert written is not None
            block = Block(written.bytes, at)
            at += written.bytes
        l1 = max(l1, at)
        order = tuple(sorted(range(len(sizes)), key=lambda a: step.axes[a].kind is AxisKind.REDUCED))
        cost = StepCost(100, 50, 25, 120, 4, 3, 2, 1)
        plan.steps.append(StepPlan(step, out, inn, order, tuple(near), tuple(far), block, None, cores, cost))
    plan.arenas = {level: Arena(level, offsets[level], offsets[level], tuple(placements[level])) for level in offsets}
    plan.arenas[Level.L1] = Arena(Level.L1, l1, l1)
    plan.use = [LevelUse(level, 100000, 0, plan.arenas[level].size, 0) for level in Level]
    return plan


def _largest(step: Step, operand: Operand, tile: Sequence[int]) -> int:
    """Bytes of the operand's largest dense tile."""
    largest = 0
    for first in itertools.product(*(range(0, max(1, a.size), max(1, t)) for a, t in zip(step.axes, tile, strict=True))):
        count = [min(t, a.size - f) for t, a, f in zip(tile, step.axes, first, strict=True)]
        elements = 1
        for dim in operand.dims:
            elements *= dim.clipped(first, count)[1]
        largest = max(largest, elements)
    return largest * operand.tensor.dtype.size


def write(example_: Example, plan: Plan, folder: Path, script: Script | None = None, **options: object) -> Manifest:
    """Emits the example; main.c runs it once with its fixtures unless `script` says something else."""
    settings = EmitOptions(kernel_path=(KERNELS,), **options)  # type: ignore[arg-type]
    return emit(example_.project, [plan], load("gap9"), settings, script or example_.script, folder)


def stateful() -> Example:
    """Two sums that are kept between calls, each updated with the input: s += x. Both begin with the same bytes; outputs copy them."""
    x = np.arange(21, dtype=np.float32) / 7
    start = np.linspace(-1, 1, 21).astype(np.float32)
    tx = variable("x", x.shape, FLOAT32, Role.INPUT)
    sums = [variable(name, x.shape, FLOAT32, Role.STATE) for name in ("s", "t")]
    for tensor in sums:
        tensor.storage.content = start.tobytes()
    results = [variable(name, x.shape, FLOAT32, Role.OUTPUT) for name in ("y", "z")]
    zero = constant("zero", np.zeros(21, np.float32), FLOAT32, literal=True)
    steps = []
    for tensor, result, times in zip(sums, results, (1.0, 2.0), strict=True):
        update = _blend(f"add_{tensor.name}", tensor, tx, tensor, (times, 1.0))
        read, _, written = update.operands
        updated = Operand(tensor, Access.UPDATE, written.dims)
        call = KernelCall(BLEND, (0, 1, 1), (0,), update.calls[0].params)
        steps.append(Step(update.name, update.node, "Update", update.axes, (read, updated), (call,)))
        steps.append(_blend(f"out_{tensor.name}", result, tensor, zero, (1.0, 1.0)))
    tensors: list[Tensor] = [tx, *sums, *results, zero]
    program = Program("network", [tx], list(results), list(sums), tensors, steps)
    return Example(Project([program]), {"x": x}, [start + 2 * x, start + 4 * x])
