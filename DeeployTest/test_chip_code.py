"""Code for the chip: what generated code takes of L2 against the planner's estimate, and the stack that kernels take."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from Deeploy.compiler import Graph, Options, compile_graphs, emit_project
from Deeploy.emit import Script
from Deeploy.errors import ToolMissingError
from Deeploy.plan.tables import generated_bytes
from Deeploy.platform.reader import targets_dir
from Deeploy.program.tensor import Level
from Deeploy.simulate.build import call_tool
from Deeploy.simulate.chip import FLAGS, find_toolchain
from DeeployTest.support import CORPUS, MODELS, NETWORKS

SHF_ALLOC = 2


def allocated(path: Path) -> int:
    """Bytes of the sections of a 32-bit ELF object that lie in memory."""
    data = path.read_bytes()
    assert data[:5] == b"\x7fELF\x01"
    (start,) = struct.unpack_from("<I", data, 0x20)
    size, count = struct.unpack_from("<HH", data, 0x2E)
    total = 0
    for k in range(count):
        _, _, flags, _, _, length, *_ = struct.unpack_from("<10I", data, start + k * size)
        total += length if flags & SHF_ALLOC else 0
    return total


@pytest.mark.parametrize(
    "graphs",
    [
        (NETWORKS / "quant_cnn",),
        (NETWORKS / "attention",),
        (NETWORKS / "quant_cnn", NETWORKS / "attention"),
        (MODELS / "microLlama/INT8/microLlama8",),
        (CORPUS / "training/resnet8/resnet8_train", CORPUS / "training/resnet8/resnet8_optimizer"),
    ],
    ids=lambda graphs: "+".join(path.name for path in graphs),
)
@pytest.mark.parametrize("home", ["auto", "L3"])
def test_estimate(tmp_path: Path, graphs: tuple[Path, ...], home: str) -> None:
    """Not less than the truth, and little more: what is too much is lost for data."""
    try:
        tools = find_toolchain()
    except ToolMissingError as error:
        pytest.skip(str(error))
    if not all(path.exists() for path in graphs):
        pytest.skip("the shared corpus is absent")
    names = [""] if len(graphs) == 1 else ["first", "second"]
    compiled = compile_graphs([Graph(path, name) for path, name in zip(graphs, names, strict=True)], Options("gap9", home=home))
    emit_project(compiled, tmp_path / "p", Script(), observe=False)
    include = [tmp_path / "p", targets_dir() / "runtime/include", targets_dir() / "runtime/pulp", targets_dir() / "kernels"]
    flags = [
        *FLAGS,
        "-DDP_L1_BYTES=131072",
        "-DDP_L3_BYTES=33554432",
        "-isystem",
        str(tools.headers),
        *(f"-I{folder}" for folder in include),
    ]
    call_tool([tools.clang, *flags, "-c", str(tmp_path / "p/Network.c"), "-o", str(tmp_path / "n.o")])
    storages = {id(t.storage): t.storage for p in compiled.project.programs for t in p.tensors}.values()
    arrays = sum(s.size for s in storages if s.content and s.home is Level.L2)
    actual, estimate = allocated(tmp_path / "n.o") - arrays, generated_bytes(compiled.project.programs)
    assert actual <= estimate <= 1.35 * actual + 4096


KERNELS = sorted((targets_dir() / "kernels").glob("*.c"))
FRAME = 400
"""Bytes of one function's stack frame in a kernel: workers have 704 bytes, and a kernel may call another function."""


@pytest.mark.parametrize("source", KERNELS, ids=lambda path: path.stem)
def test_frames_of_kernels(tmp_path: Path, source: Path) -> None:
    try:
        tools = find_toolchain()
    except ToolMissingError as error:
        pytest.skip(str(error))
    include = [f"-I{targets_dir() / folder}" for folder in ("runtime/include", "runtime/pulp", "kernels")]
    flags = [*FLAGS, "-DDP_L1_BYTES=131072", "-DDP_L3_BYTES=33554432", "-isystem", str(tools.headers), *include]
    call_tool([tools.clang, *flags, f"-Wframe-larger-than={FRAME}", "-c", str(source), "-o", str(tmp_path / "k.o")])
