"""Tensors and files in parts: dp_io over any strides against numpy, the public interface of projects, main.c with tensors that are larger
than its buffer, the runtime's files on the host and on the simulated chip."""

from __future__ import annotations

import ctypes
import dataclasses
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Deeploy.compiler import Graph, Options, compile_graphs, emit_project
from Deeploy.emit import Script
from Deeploy.platform.reader import load
from Deeploy.simulate.chip import ChipBuilder
from Deeploy.simulate.gvsoc import Gvsoc, chip_sizes
from Deeploy.simulate.host import CheckMode, HostBuilder, run_program
from Deeploy.simulate.run import RunOptions, run
from DeeployTest.support import ROOT, why_no_gvsoc
from DeeployTest.test_state import node, save, sgd

OPTIONS = Options("gap9", home="L3")
RUNTIME = ROOT / "Targets/runtime"
BASE = 0x40000000
ROOM = 4096  # of main.c's buffer, bytes
WHY_NOT = why_no_gvsoc("gap9")
needs_gvsoc = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

# ---- dp_io --------------------------------------------------------------------------------------------------------------------------


class Io(ctypes.Structure):
    """dp_io of dp_io.h."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("bytes", ctypes.c_uint32),
        ("offset", ctypes.c_uint32),
        ("dtype", ctypes.c_uint8),
        ("elem", ctypes.c_uint8),
        ("level", ctypes.c_uint8),
        ("rank", ctypes.c_uint8),
        ("ext", ctypes.c_int32 * 8),
        ("stride", ctypes.c_int32 * 8),
    ]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    output = tmp_path_factory.mktemp("io") / "io.so"
    sources = [RUNTIME / "common/dp_io.c", ROOT / "DeeployTest/c/io_parts.c"]
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-DDP_HOST", f"-I{RUNTIME / 'include'}"]
    subprocess.run(["gcc", *flags, f"-I{ROOT / 'Targets/kernels'}", *map(str, sources), "-o", str(output)], check=True)
    return ctypes.CDLL(str(output))


@dataclasses.dataclass
class Strided:
    """A tensor in a memory full of random bytes. dense: where each byte of its dense array lies there."""

    io: Io
    memory: np.ndarray
    dense: np.ndarray


@st.composite
def tensors(draw: st.DrawFn) -> Strided:
    """Any order of the dimensions, gaps, some strides negative, elements of 1 to 8 bytes."""
    extents = draw(st.lists(st.integers(1, 5), max_size=4))
    elem, level = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from([2, 3]))
    strides, low, step = [0] * len(extents), 0, 1
    for d in draw(st.permutations(range(len(extents)))):
        strides[d] = step * draw(st.sampled_from([1, 1, 1, -1]))
        low += min(0, strides[d] * (extents[d] - 1))
        step = abs(strides[d]) * (extents[d] + draw(st.integers(0, 1)))
    first = draw(st.integers(0, 3)) - low
    index = np.full(extents, first, np.int64)
    for d, (extent, stride) in enumerate(zip(extents, strides, strict=True)):
        index += (np.arange(extent) * stride).reshape([-1 if k == d else 1 for k in range(len(extents))])
    dense = (index.reshape(-1, 1) * elem + np.arange(elem)).reshape(-1)
    memory = np.random.default_rng(dense.size).integers(0, 256, int(dense.max()) + 9).astype(np.uint8)
    io = Io(b"t", dense.size, first * elem, 0, elem, level, len(extents), (*extents, *[0] * (8 - len(extents))), ())
    for d, stride in enumerate(strides):
        io.stride[d] = stride
    return Strided(io, memory, dense)


def cuts(total: int, draw: st.DataObject) -> list[tuple[int, int]]:
    """Parts (offset, bytes) that make the whole, in order; some are empty."""
    places = sorted(draw.draw(st.lists(st.integers(0, total), max_size=5)))
    return [(a, b - a) for a, b in zip([0, *places], [*places, total], strict=True)]


@settings(max_examples=150, deadline=None)
@given(tensors(), st.data())
def test_any_part_of_any_tensor(library: ctypes.CDLL, tensor: Strided, data: st.DataObject) -> None:
    """Reading changes nothing behind the part's end, writing no byte that is not the part's."""
    memory, io, total = tensor.memory, tensor.io, tensor.dense.size
    library.set_memory(memory.ctypes.data_as(ctypes.c_void_p), memory.size)
    address = ctypes.c_size_t(memory.ctypes.data if io.level == 2 else BASE)
    before = memory.copy()
    for offset, count in cuts(total, data):
        got = np.full(count + 8, 0xEE, np.uint8)
        library.dp_io_get(ctypes.byref(io), address, offset, got.ctypes.data_as(ctypes.c_void_p), count)
        np.testing.assert_array_equal(got, [*before[tensor.dense[offset : offset + count]], *[0xEE] * 8])
    np.testing.assert_array_equal(memory, before)
    wanted, fresh = before.copy(), np.random.default_rng(1).integers(0, 256, total).astype(np.uint8)
    for offset, count in cuts(total, data):
        part = fresh[offset : offset + count].copy()
        wanted[tensor.dense[offset : offset + count]] = part
        library.dp_io_set(ctypes.byref(io), address, offset, part.ctypes.data_as(ctypes.c_void_p), count)
        np.testing.assert_array_equal(memory, wanted)
    assert library.was_outside() == 0


def test_which_parts_there_are(library: ctypes.CDLL) -> None:
    for total, offset, count, there in (
        (12, 0, 12, 1), (12, 0, 0, 1), (12, 12, 0, 1), (12, 5, 7, 1), (12, 5, 8, 0), (12, 13, 0, 0), (12, 0, 13, 0),
        (12, 1, 2**32 - 1, 0), (12, 2**32 - 1, 2, 0), (0, 0, 0, 1), (0, 0, 1, 0),
    ):  # fmt: skip
        assert library.dp_io_within(ctypes.byref(Io(b"t", total)), ctypes.c_uint32(offset), ctypes.c_uint32(count)) == there


# ---- the interface ------------------------------------------------------------------------------------------------------------------

PARTS = """
#include <stdio.h>
#include <string.h>
#include "Network.h"
#include "dp_host.h"
#define CHECK(condition) do { if (!(condition)) { printf("line %d: %s\\n", __LINE__, #condition); return 1; } } while (0)
enum { BAD = Deeploy_BAD_ARGUMENT, NOT_READY = Deeploy_NOT_READY };
static uint8_t x[420], d[24], w[60], whole[700], part[700], guard[8];
static void fill(uint8_t *to, uint32_t bytes, float by) {
  uint32_t i;
  for (i = 0; i < bytes / 4; i++) { const float v = by * (float)(i % 23u) - 1.0f; memcpy(to + 4 * i, &v, 4); }
}
typedef int (*setter)(uint32_t, uint32_t, const void *, uint32_t);
typedef int (*getter)(uint32_t, uint32_t, void *, uint32_t);
static int set(setter f, uint32_t index, const uint8_t *from, uint32_t bytes, uint32_t each) {
  uint32_t at, now;
  for (at = 0; at < bytes; at += now) {
    now = bytes - at < each ? bytes - at : each;
    if (f(index, at, from + at, now)) return 1;
    if (now < bytes - at && f(index, at + now + 1, from, 1) != BAD) return 1;
  }
  return f(index, bytes, from, 0) || f(index, bytes, from, 1) != BAD || f(index, bytes + 1, from, 0) != BAD;
}
/* From the last part to the first, and nothing beside it. */
static int get(getter f, uint32_t index, uint32_t bytes, uint32_t each) {
  uint32_t at = (bytes - 1) / each * each + each, now;
  memset(part, 0xEE, sizeof part);
  while (at) {
    at -= each;
    now = bytes - at < each ? bytes - at : each;
    memset(guard, 0x77, sizeof guard);
    if (f(index, at, part + at, now) || (now < 7 && (f(index, at, guard, now) || guard[now] != 0x77))) return 1;
  }
  return part[bytes] != 0xEE || memcmp(part, whole, bytes) || f(index, bytes, part, 1) != BAD || f(index, 0, part, bytes + 1) != BAD;
}
static int keep(uint32_t number, uint32_t bytes) {
  char name[32];
  FILE *file;
  sprintf(name, "o%u.bin", (unsigned)number);
  file = fopen(name, "wb");
  return !file || fwrite(part, 1, bytes, file) != bytes || fclose(file);
}
int main(void) {
  static const uint32_t each[] = {1, 3, 7, 64, 419, 1000};
  uint32_t k, i;
  dp_host_configure(128 << 10, 1 << 20, 1 << 20, 8);
  fill(x, 420, 0.25f); fill(d, 24, 0.5f); fill(w, 60, 0.125f);
  CHECK(Deeploy_SetInputPart(0, 0, x, 1) == NOT_READY && Deeploy_GetStatePart(0, 0, part, 1) == NOT_READY);
  CHECK(Deeploy_Init() == 0);
  for (k = 0; k < sizeof each / sizeof *each; k++) {
    CHECK(Deeploy_GetOutputPart(0, 0, part, 1) == (k ? 0 : NOT_READY));
    CHECK(Deeploy_SetInputPart(9, 0, x, 1) == BAD && Deeploy_SetInputPart(0, 4, x, 4) == BAD && Deeploy_SetInput(0, x, 419) == BAD);
    CHECK(Deeploy_SetStatePart(9, 0, x, 1) == BAD && Deeploy_SetStatePart(0, 0, x, 61) == BAD);
    CHECK(set(Deeploy_SetInputPart, 0, x, 420, each[k]) == 0 && set(Deeploy_SetInputPart, 1, d, 24, each[k]) == 0);
    /* the state, not whole at first, then begun anew */
    CHECK(Deeploy_SetStatePart(0, 0, w, 59) == 0 && Deeploy_Run() == NOT_READY);
    CHECK(set(Deeploy_SetStatePart, 0, w, 60, each[k]) == 0 && Deeploy_GetState(0, whole, 60) == 0);
    CHECK(memcmp(w, whole, 60) == 0 && get(Deeploy_GetStatePart, 0, 60, each[k]) == 0);
    /* an input begun anew is not set */
    CHECK(Deeploy_SetInputPart(0, 0, x, 7) == 0 && Deeploy_Run() == NOT_READY);
    CHECK(Deeploy_SetInputPart(0, 7, x + 7, 412) == 0 && Deeploy_Run() == NOT_READY);
    CHECK(Deeploy_SetInputPart(0, 419, x + 419, 1) == 0 && Deeploy_Run() == 0);
    for (i = 0; i < Deeploy_OUTPUTS; i++) {
      CHECK(Deeploy_GetOutput(i, whole, Deeploy_outputs[i].bytes) == 0);
      CHECK(get(Deeploy_GetOutputPart, i, Deeploy_outputs[i].bytes, each[k]) == 0);
      if (k == 0) CHECK(keep(i, Deeploy_outputs[i].bytes) == 0);
    }
    CHECK(Deeploy_GetOutputPart(Deeploy_OUTPUTS, 0, part, 0) == BAD);
  }
  Deeploy_Free();
  CHECK(Deeploy_GetOutputPart(0, 0, part, 1) == NOT_READY);
  dp_host_finish();
  return 0;
}
"""


def ramp(count: int, by: float) -> np.ndarray:
    return np.float32(by) * (np.arange(count) % 23).astype(np.float32) - np.float32(1)


def updating(folder: Path) -> Path:
    """Outputs that are transposed and sliced, and a weight that the caller gives and the network updates."""
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[2, 0, 1]),
        node("Slice", ["r", "begin", "end", "axes"], ["s"]),
        node("MatMul", ["d", "w"], ["y"]),
        node("MatMul", ["dt", "y"], ["g"]),
        node("Transpose", ["d"], ["dt"], perm=[1, 0]),
        sgd("w", "g"),
    ]
    bounds = {"begin": np.array([1, 0]), "end": np.array([4, 5]), "axes": np.array([1, 2])}
    return save(folder, nodes, {"x": [3, 5, 7], "d": [2, 3], "w": [3, 5]}, ["t", "s", "y"], bounds)


@pytest.mark.parametrize("home,check", [("L2", CheckMode.LAZY), ("L3", CheckMode.LAZY), ("L3", CheckMode.EAGER)])
def test_parts_are_the_whole(tmp_path: Path, home: str, check: CheckMode) -> None:
    compiled = compile_graphs([Graph(updating(tmp_path / "net"))], dataclasses.replace(OPTIONS, home=home))
    emit_project(compiled, tmp_path / "p", Script(), observe=False)
    (tmp_path / "p/main.c").write_text(PARTS)
    program = HostBuilder().build_project(tmp_path / "p", check, tmp_path / "program")
    run_program(program, check, folder=tmp_path, files=tmp_path / "p/hex")
    x, d, w = ramp(105, 0.25).reshape(3, 5, 7), ramp(6, 0.5).reshape(2, 3), ramp(15, 0.125).reshape(3, 5)
    r = np.maximum(x, 0)
    for k, wanted in enumerate((r.transpose(2, 0, 1), r[:, 1:4, 0:5], d @ w)):
        got = np.fromfile(tmp_path / f"o{k}.bin", np.float32)
        np.testing.assert_allclose(got, wanted.reshape(-1), rtol=1e-5, atol=1e-6)


# ---- main.c -------------------------------------------------------------------------------------------------------------------------


def large(folder: Path) -> Path:
    """Inputs and outputs of several buffers and of exactly one."""
    rng = np.random.default_rng(5)
    nodes = [node("Relu", ["a"], ["r"]), node("Transpose", ["r"], ["t"], perm=[1, 0]), node("Neg", ["b"], ["n"])]
    save(folder, nodes, {"a": [37, 61], "b": [ROOM // 4]}, ["t", "n"])
    a, b = rng.standard_normal((37, 61)).astype(np.float32), rng.standard_normal(ROOM // 4).astype(np.float32)
    np.savez(folder / "inputs.npz", a=a, b=b)
    np.savez(folder / "outputs.npz", t=np.maximum(a, 0).T, n=-b)
    return folder


@pytest.mark.parametrize("home", ["L2", "L3"])
def test_tensors_larger_than_the_buffer(tmp_path: Path, home: str) -> None:
    result = run(large(tmp_path / "net"), dataclasses.replace(OPTIONS, home=home), RunOptions(checks="lazy", rounds=2))
    assert result.good and len(result.modes[0].outputs) == 2, result.text()


def test_main_takes_little_memory(tmp_path: Path) -> None:
    """Whatever the tensors: it runs beside a network that may have all of L2. A file in parts counts once, with all of its bytes."""
    folder = large(tmp_path / "net")
    run(folder, OPTIONS, RunOptions(checks="none", output=tmp_path / "p"))
    includes = [f"-I{tmp_path / 'p' / d}" for d in (".", "deeploy/include", "deeploy/kernels")]
    subprocess.run(["gcc", "-O2", *includes, "-c", str(tmp_path / "p/main.c"), "-o", str(tmp_path / "main.o")], check=True)
    sizes = subprocess.run(["size", "-A", str(tmp_path / "main.o")], check=True, capture_output=True, text=True).stdout
    assert sum(int(n) for n in re.findall(r"^\.(?:bss|data)\S*\s+(\d+)", sizes, re.M)) <= ROOM + 64
    program = HostBuilder().build_project(tmp_path / "p", CheckMode.NONE, tmp_path / "program")
    report = run_program(program, CheckMode.NONE, folder=tmp_path, files=tmp_path / "p/hex").report
    assert report is not None and report["l2"] == {"files": 2, "file_bytes": 37 * 61 * 4 + ROOM}


@needs_gvsoc
@pytest.mark.gvsoc
def test_tensors_larger_than_the_buffer_on_the_chip(tmp_path: Path) -> None:
    result = run(large(tmp_path / "net"), dataclasses.replace(OPTIONS, home="auto"), RunOptions(simulator="gvsoc", timeout=120))
    assert result.good and len(result.modes[0].outputs) == 2, result.text()


# ---- files --------------------------------------------------------------------------------------------------------------------------

FILES = """
#include <stdio.h>
#include <string.h>
#include "dp_files.h"
#include "dp_runtime.h"
#ifdef DP_HOST
#include "dp_host.h"
#else
#include "dp_pulp.h"
#endif
static DP_ALIGN(8) uint8_t got[9100];
static int failed;
static void part(uint32_t offset, uint32_t bytes, uint32_t at) {
  uint32_t i;
  int bad;
  memset(got, 0xEE, sizeof got);
  bad = dp_load_part_to_l2(got + at, "long.hex", 9001, offset, bytes) != 0;
  for (i = 0; i < bytes; i++) bad |= got[at + i] != (uint8_t)((offset + i) % 253u);
  bad |= got[at + bytes] != 0xEE || (at && got[at - 1] != 0xEE);
  if (bad) printf("part %u %u %u\\n", (unsigned)offset, (unsigned)bytes, (unsigned)at);
  failed |= bad;
}
int main(void) {
  static const uint32_t offsets[] = {0, 4096, 8192, 1, 2, 3, 8996, 9000}, counts[] = {0, 1, 2, 3, 4, 5, 6, 7, 100, 809, 4097};
  uint32_t i, j;
  for (i = 0; i < sizeof offsets / sizeof *offsets; i++)
    for (j = 0; j < sizeof counts / sizeof *counts; j++)
      if (offsets[i] + counts[j] <= 9001) part(offsets[i], counts[j], i % 4u);
  failed |= dp_load_part_to_l2(got, "long.hex", 9001, 9001, 1) == 0 || dp_load_part_to_l2(got, "long.hex", 9001, 9002, 0) == 0;
  failed |= dp_load_part_to_l2(got, "long.hex", 9000, 0, 4) == 0 || dp_load_part_to_l2(got, "none.hex", 4, 0, 4) == 0;
  failed |= dp_load_part_to_l2(got, "long.hex", 9001, 2, 4294967295u) == 0;
  failed |= dp_load_file_to_l2(got, "seven.hex", 7) || memcmp(got, "0123456", 7) || dp_load_file_to_l2(got, "long.hex", 9001);
  for (i = 0; i < 2; i++) { /* anew each time */
    failed |= dp_write_part("made.bin", 0, got, 5) || dp_write_part("made.bin", 5, got + 5, 1) || dp_write_part("made.bin", 6, got, 0);
    failed |= dp_write_part("made.bin", 6, got + 6, 8995);
  }
  failed |= dp_write_part("empty.bin", 0, got, 0);
#ifdef DP_HOST
  failed |= dp_write_part("made.bin", 5, got, 1) == 0; /* not in order */
  printf("%u\\n", (unsigned)dp_host_count()->l2_files);
#endif
  printf("failed %d\\n", failed);
  return failed;
}
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "seven.hex").write_bytes(b"0123456")
    (folder / "long.hex").write_bytes(bytes(i % 253 for i in range(9001)))
    (tmp_path / "project").mkdir()
    (tmp_path / "project/main.c").write_text(FILES)
    return folder


def check_made(folder: Path, files: Path) -> None:
    assert (folder / "made.bin").read_bytes() == (files / "long.hex").read_bytes()
    assert (folder / "empty.bin").read_bytes() == b""


def test_files_in_parts(files: Path, tmp_path: Path) -> None:
    program = HostBuilder().build_project(tmp_path / "project", CheckMode.LAZY, tmp_path / "program")
    done = run_program(program, CheckMode.LAZY, folder=tmp_path, files=files)
    check_made(tmp_path, files)
    assert done.stdout.splitlines()[0] == str(11 + 2)  # the parts at the begin, and two whole files


@needs_gvsoc
@pytest.mark.gvsoc
def test_files_in_parts_on_the_chip(files: Path, tmp_path: Path) -> None:
    platform = load("pulp-open")
    program = ChipBuilder(chip_sizes(platform)).build_project(tmp_path / "project", tmp_path / "program.elf")
    (tmp_path / "run").mkdir()
    done = Gvsoc(platform).run(program, sorted(files.iterdir()), tmp_path / "run", 120)
    check_made(tmp_path / "run", files)
    assert done.report["l2"]["files"] == 11 + 2
