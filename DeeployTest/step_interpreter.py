"""Runs a Step on numpy arrays, tile by tile, with the real C kernels: the test instrument of operators.

It is written from the definitions in Deeploy/program/step.py and dp_kernel.h and shares nothing with the planner, the emitter or
dp_tile.c. Tiles are gathered densely (padding absent), kernels are called through ctypes, written tiles are scattered back. Memory around
every tile, scratch and accumulator block is filled with a pattern that is checked after each call, so a kernel that writes outside is
caught.

Constant structs are packed from Params in their order, naturally aligned: an int Param is an int32_t, a float Param a float, a tuple an
array of them; a field whose name ends in "64" is an int64_t.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from Deeploy.program.step import MAX_AXES, MAX_OPERANDS, MAX_RANK, Access, AxisKind, KernelCall, Operand, Step
from Deeploy.program.tensor import ConstantBuffer, Storage, Tensor

ROOT = Path(__file__).resolve().parent.parent
GUARD = 32


class Tile(ctypes.Structure):
    _fields_ = [
        ("ptr", ctypes.c_void_p),
        ("ext", ctypes.c_int32 * MAX_RANK),
        ("str", ctypes.c_int32 * MAX_RANK),
        ("pad", ctypes.c_int32 * MAX_RANK),
        ("imm", ctypes.c_int64),
    ]


class Args(ctypes.Structure):
    _fields_ = [
        ("cst", ctypes.c_void_p),
        ("n", ctypes.c_int32 * MAX_AXES),
        ("lo", ctypes.c_int32 * MAX_AXES),
        ("t", Tile * MAX_OPERANDS),
        ("acc", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("first", ctypes.c_uint8),
        ("last", ctypes.c_uint8),
    ]


FLAGS = ["-std=gnu11", "-O2", "-g", "-fPIC", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-pthread"]


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"deeploy-test-kernels-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    return folder


def _build(command: list[str], target: Path) -> str:
    """Runs a compiler unless `target` exists; returns its complaints."""
    if target.exists():
        return ""
    building = target.with_name(f"{target.name}.{os.getpid()}")
    done = subprocess.run([*command, "-o", str(building)], capture_output=True, text=True)
    if done.returncode == 0:
        building.replace(target)
    return done.stderr if done.returncode else ""


@functools.cache
def _library(source: Path) -> ctypes.CDLL:
    """One file of kernels (or the threads) as a shared library, rebuilt when it or a header changes."""
    headers = sorted((ROOT / "Targets/kernels").glob("*.h")) + sorted((ROOT / "Targets/runtime/include").glob("*.h"))
    threads = ROOT / "DeeployTest/c/team_threads.c"
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in [threads, source, *headers]:
        digest.update(path.name.encode() + path.read_bytes())
    target = _folder() / f"{source.stem}-{digest.hexdigest()[:20]}.so"
    includes = [f"-I{ROOT / 'Targets/runtime/include'}", f"-I{ROOT / 'Targets/kernels'}"]
    complaints = _build(["gcc", *FLAGS, "-shared", *includes, str(threads), str(source), "-lm"], target)
    assert not complaints, f"{source.name} does not compile:\n{complaints}"
    loaded = ctypes.CDLL(str(target))
    loaded.test_fork.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Args)]
    loaded.test_fork.restype = None
    return loaded


def library(source: str) -> ctypes.CDLL:
    """The shared library of a kernel source file."""
    return _library(ROOT / "Targets/kernels" / source)


class Memory:
    """The bytes of storages, as numpy arrays."""

    def __init__(self) -> None:
        self._bytes: dict[int, np.ndarray] = {}

    def of(self, storage: Storage) -> np.ndarray:
        if id(storage) not in self._bytes:
            content = storage.content if storage.content is not None else bytes([0xA5]) * storage.size
            self._bytes[id(storage)] = np.frombuffer(content, np.uint8).copy()
        return self._bytes[id(storage)]

    def view(self, tensor: Tensor) -> np.ndarray:
        """The tensor as a writable strided array over its storage."""
        if isinstance(tensor, ConstantBuffer) and tensor.literal is not None:
            return tensor.value()
        raw = self.of(tensor.storage)
        return np.ndarray(tensor.shape, tensor.dtype.numpy, raw.data, tensor.offset, tuple(s * tensor.dtype.size for s in tensor.strides))

    def put(self, tensor: Tensor, array: np.ndarray) -> None:
        self.view(tensor)[...] = array

    def get(self, tensor: Tensor) -> np.ndarray:
        return np.array(self.view(tensor))


def _constant_struct(call: KernelCall) -> ctypes.Structure | None:
    if not call.kernel.constant_struct:
        return None
    fields: list[tuple[str, type]] = []
    for param in call.params:
        sample = param.value[0] if isinstance(param.value, tuple) else param.value
        base = ctypes.c_float if isinstance(sample, float) else ctypes.c_int64 if param.name.endswith("64") else ctypes.c_int32
        fields.append((param.name, base * len(param.value) if isinstance(param.value, tuple) else base))
    struct = type("Constant", (ctypes.Structure,), {"_fields_": fields})()
    for param in call.params:
        if isinstance(param.value, tuple):
            getattr(struct, param.name)[:] = param.value
        else:
            setattr(struct, param.name, param.value)
    return struct


class _Block:
    """Aligned bytes with guards on both sides."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.raw = np.full(size + 2 * GUARD + 16, 0xC3, np.uint8)
        self.begin = GUARD + (-(self.raw.ctypes.data + GUARD)) % 16
        self.raw[self.begin : self.begin + size] = 0xA5

    @property
    def address(self) -> int:
        return self.raw.ctypes.data + self.begin

    @property
    def bytes(self) -> np.ndarray:
        return self.raw[self.begin : self.begin + self.size]

    def check(self, what: str) -> None:
        outside = np.concatenate([self.raw[: self.begin], self.raw[self.begin + self.size :]])
        assert (outside == 0xC3).all(), f"the kernel wrote outside of {what}"


def _storage_view(memory: Memory, operand: Operand, begins: Sequence[int], extents: Sequence[int]) -> np.ndarray:
    """The region of an operand in its storage, as a strided array in the order of the operand's dims."""
    tensor = operand.tensor
    size = tensor.dtype.size
    offset = tensor.offset + size * (operand.offset + sum(b * d.stride for b, d in zip(begins, operand.dims, strict=True)))
    strides = tuple(d.stride * size for d in operand.dims)
    raw = memory.of(tensor.storage)
    if 0 in extents:
        return np.zeros(tuple(extents), tensor.dtype.numpy)
    last = offset + sum((e - 1) * s for e, s in zip(extents, strides, strict=True)) + size
    assert 0 <= offset and last <= raw.size, f"{tensor.name}: region outside of its storage"
    return np.ndarray(tuple(extents), tensor.dtype.numpy, raw.data, offset, strides)


def _fill_tile(
    tile: Tile, operand: Operand, memory: Memory, lo: Sequence[int], n: Sequence[int]
) -> tuple[_Block | None, np.ndarray | None, np.ndarray | None]:
    """Gathers the operand's tile. Returns its block, the dense tile and the region in storage it stands for."""
    tensor = operand.tensor
    if isinstance(tensor, ConstantBuffer) and tensor.literal is not None:
        ctypes.memmove(ctypes.addressof(tile) + Tile.imm.offset, tensor.literal, len(tensor.literal))
        tile.ptr = ctypes.addressof(tile) + Tile.imm.offset
        for d, dim in enumerate(operand.dims):
            _, extent, pad = dim.clipped(lo, n)
            tile.ext[d], tile.str[d], tile.pad[d] = min(extent, 1), 0, pad
        return None, None, None
    begins, extents, pads = [], [], []
    for dim in operand.dims:
        begin, extent, pad = dim.clipped(lo, n)
        begins.append(0 if dim.stride == 0 else begin)
        extents.append(min(extent, 1) if dim.stride == 0 else extent)
        pads.append(pad)
    region = _storage_view(memory, operand, begins, extents)
    block = _Block(region.size * tensor.dtype.size)
    order = operand.memory_order
    dense = (
        block.bytes.view(tensor.dtype.numpy)[: region.size].reshape([extents[d] for d in order])
        if region.size
        else np.zeros([extents[d] for d in order], tensor.dtype.numpy)
    )
    dense = dense.transpose(np.argsort(order)) if order else dense
    if operand.access is not Access.WRITE:
        dense[...] = region
    tile.ptr = block.address
    step = 1
    for d in reversed(order):
        tile.ext[d], tile.pad[d] = extents[d], pads[d]
        tile.str[d] = 0 if operand.dims[d].size == 1 or operand.dims[d].stride == 0 else step
        step *= extents[d]
    return block, dense, region


def run_step(step: Step, memory: Memory, tiles: Sequence[int] | None = None, cores: int = 1, order: Sequence[int] | None = None) -> None:
    """Runs the step with those tile sizes per axis (None: untiled), loop order (outermost first) and cores."""
    tiles = list(tiles) if tiles is not None else [a.size for a in step.axes]
    parallel = [i for i, a in enumerate(step.axes) if a.kind is AxisKind.PARALLEL]
    reduced = [i for i, a in enumerate(step.axes) if a.kind is AxisKind.REDUCED]
    order = list(order) if order is not None else parallel + reduced
    assert sorted(order) == list(range(len(step.axes))) and all(a in order[: len(parallel)] for a in parallel)
    split = any(tiles[a] < step.axes[a].size for a in reduced)
    assert not split or step.accumulator is not None, "this step's reduction may not be split"
    outer = [range(0, step.axes[a].size, max(1, tiles[a])) for a in order[: len(parallel)]]
    inner = [range(0, step.axes[a].size, max(1, tiles[a])) for a in order[len(parallel) :]]
    if any(a.size == 0 for a in step.axes if a.kind is AxisKind.PARALLEL):
        return
    lo = [0] * len(step.axes)
    for point in itertools.product(*outer):
        for a, v in zip(order, point, strict=False):
            lo[a] = v
        _run_output_tile(step, memory, lo, tiles, order[len(parallel) :], inner, split, cores)


def _run_output_tile(step, memory, lo, tiles, reduced, ranges, split, cores) -> None:  # noqa: ANN001
    accumulator: _Block | None = None
    outputs: dict[int, tuple] = {}
    points = list(itertools.product(*ranges)) or [()]
    for point in points:
        for a, v in zip(reduced, point, strict=False):
            lo[a] = v
        n = [min(t, axis.size - first) if axis.size else 0 for t, axis, first in zip(tiles, step.axes, lo, strict=True)]
        first, last = point == points[0], point == points[-1]
        for call in step.calls:
            args = Args()
            blocks = []
            for slot, index in enumerate(call.operands):
                operand = step.operands[index]
                if index in outputs:
                    kept = outputs[index]
                    ctypes.memmove(ctypes.byref(args.t[slot]), ctypes.byref(kept[0]), ctypes.sizeof(Tile))
                    continue
                block, dense, region = _fill_tile(args.t[slot], operand, memory, lo, n)
                if block is not None:
                    blocks.append((block, operand.tensor.name))
                if operand.access is not Access.READ:
                    kept_tile = Tile()
                    ctypes.memmove(ctypes.byref(kept_tile), ctypes.byref(args.t[slot]), ctypes.sizeof(Tile))
                    outputs[index] = (kept_tile, block, dense, region)
            if split and accumulator is None:
                elements = outputs[step.writes[0]][2].size
                accumulator = _Block(elements * step.accumulator.size)
            _call(call, args, n, lo, accumulator, first, last, cores, blocks)
    for index in step.writes:
        _, block, dense, region = outputs[index]
        block.check(step.operands[index].tensor.name)
        region[...] = dense


def _call(call, args, n, lo, accumulator, first, last, cores, blocks) -> None:  # noqa: ANN001
    for slot, axis in enumerate(call.axes):
        args.n[slot], args.lo[slot] = n[axis], lo[axis]
    constant = _constant_struct(call)
    args.cst = ctypes.addressof(constant) if constant is not None else None
    args.acc = accumulator.address if accumulator is not None else None
    scratch = None
    if call.kernel.scratch is not None:
        scratch = _Block(int(call.kernel.scratch([n[a] for a in call.axes], cores)))
        args.scratch = scratch.address
    args.first, args.last = int(first), int(last)
    loaded = library(call.kernel.source)
    loaded.test_fork(cores, ctypes.cast(getattr(loaded, call.kernel.symbol), ctypes.c_void_p), ctypes.byref(args))
    for block, name in blocks:
        block.check(name)
    if accumulator is not None:
        accumulator.check("the accumulators")
    if scratch is not None:
        scratch.check("its scratch")


def random_tiling(step: Step, rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """A random legal (tiles, order) for the step."""
    tiles = []
    for axis in step.axes:
        free = axis.tileable and axis.size > 0 and (axis.kind is AxisKind.PARALLEL or step.accumulator is not None)
        size = axis.size if not free or rng.random() < 0.3 else int(rng.integers(1, axis.size + 1))
        tiles.append(min(axis.size, -(-size // axis.quantum) * axis.quantum))
    parallel = [i for i, a in enumerate(step.axes) if a.kind is AxisKind.PARALLEL]
    reduced = [i for i, a in enumerate(step.axes) if a.kind is AxisKind.REDUCED]
    order = [int(i) for i in rng.permutation(parallel)] + [int(i) for i in rng.permutation(reduced)]
    return tiles, order
