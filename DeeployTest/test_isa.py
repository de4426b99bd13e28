"""The intrinsics of dp_isa.h: their C model against numpy; the simulated instructions and the vendor's builtins against the model."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from Deeploy.platform.reader import load
from Deeploy.simulate.chip import ChipBuilder
from Deeploy.simulate.gvsoc import Gvsoc, chip_sizes
from DeeployTest.support import ROOT, why_no_gvsoc

PROBE = ROOT / "DeeployTest/c/isa_probe.c"
MOCK = ROOT / "DeeployTest/c/pulp_builtins.h"
HEADER = ROOT / "Targets/kernels/dp_isa.h"
INCLUDE = (f"-I{ROOT / 'Targets/kernels'}", f"-I{ROOT / 'Targets/runtime/include'}")
WARNINGS = ("-Wall", "-Wextra", "-Werror")
UBSAN = ("-fsanitize=undefined", "-fno-sanitize-recover=all")
COMPILERS = [("gcc", ("-std=c11", "-O2", *UBSAN)), ("clang-19", ("-std=c11", "-O1")), ("g++", ("-x", "c++", "-O0"))]
VENDOR = ("-D__pulp__", "-include", str(MOCK))

Streams = dict[str, np.ndarray]
Ints = np.ndarray


WHY_NOT = why_no_gvsoc("pulp-open")


def streams(folder: Path) -> Streams:
    return {path.stem: np.fromfile(path, np.uint32) for path in sorted(folder.glob("*.bin"))}


def on_host(compiler: str, flags: tuple[str, ...], folder: Path) -> Streams:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    program = folder / "program"
    subprocess.run([compiler, *WARNINGS, *flags, *INCLUDE, str(PROBE), "-o", str(program)], check=True)
    (folder / "run").mkdir()
    subprocess.run([str(program)], cwd=folder / "run", check=True, timeout=60)
    return streams(folder / "run")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Streams:
    return on_host(*COMPILERS[0], tmp_path_factory.mktemp("model"))


def first_difference(name: str, got: Streams, wanted: Streams) -> str:
    """Empty if the stream is the same in both."""
    if got[name].shape != wanted[name].shape:
        return f"{name}: {got[name].size} results instead of {wanted[name].size}"
    differ = np.flatnonzero(got[name] != wanted[name])
    if not differ.size:
        return ""
    k = int(differ[0])
    operands = [f"{o} {wanted[o][k]:08x}" for o in ("a", "b", "c") if k < wanted[o].size] or [f"x {wanted['x'][k]:08x}"]
    return f"{name}: {differ.size} differ, first {k}: {got[name][k]:08x} instead of {wanted[name][k]:08x}, {' '.join(operands)}"


def assert_same(got: Streams, wanted: Streams) -> None:
    assert got.keys() == wanted.keys()
    differences = [text for name in wanted if (text := first_difference(name, got, wanted))]
    assert not differences, "\n".join(differences)


# ---- numpy --------------------------------------------------------------------------------------------------------------------------


def lanes(words: Ints, dtype: str) -> Ints:
    """One row a word, lane 0 first, in int64."""
    return words.astype("<u4").view(dtype).reshape(words.size, -1).astype(np.int64)


def packed(values: Ints) -> Ints:
    return np.ascontiguousarray(values.astype(np.uint8)).view("<u4").reshape(-1)


def dot(left: str, right: str, accumulate: bool) -> Callable[[Ints, Ints, Ints], Ints]:
    """Products of halves may fill 33 bits; int64 holds them all, and the caller wraps."""
    return lambda a, b, c: (lanes(a, left) * lanes(b, right)).sum(1) + (c.astype(np.int64) if accumulate else 0)


def per_lane(dtype: str, of: Callable[[Ints, Ints], Ints]) -> Callable[[Ints, Ints, Ints], Ints]:
    return lambda a, b, c: packed(of(lanes(a, dtype), lanes(b, dtype)))


def signed(words: Ints) -> Ints:
    return words.astype(np.uint32).view(np.int32).astype(np.int64)


def highest_one(words: Ints) -> Ints:
    """floor(log2), -1 for 0: exact, as 32 bits fit a double."""
    return np.frexp(words.astype(np.float64))[1].astype(np.int64) - 1


def leading(words: Ints) -> Ints:
    x = signed(words)
    return np.where(x == 0, 0, 30 - highest_one(np.where(x < 0, ~x, x)))


BINARY: dict[str, Callable[[Ints, Ints, Ints], Ints]] = {
    f"{'s' if accumulate else ''}dot{kind}{4 if bits == 8 else 2}": dot(f"<{left}{bits // 8}", f"<{right}{bits // 8}", accumulate)
    for accumulate in (False, True)
    for bits in (8, 16)
    for kind, left, right in (("sp", "i", "i"), ("up", "u", "u"), ("usp", "u", "i"))
} | {
    "add4": per_lane("u1", np.add),
    "sub4": per_lane("u1", np.subtract),
    "min4": per_lane("i1", np.minimum),
    "max4": per_lane("i1", np.maximum),
    "maxu4": per_lane("u1", np.maximum),
    "avgu4": per_lane("u1", lambda a, b: (a + b) % 256 // 2),
    "shuffle4": lambda a, b, c: packed(np.take_along_axis(lanes(c, "u1"), lanes(a ^ b, "u1") % 4, 1)),
    "pack2": lambda a, b, c: (a % 65536) + (b % 65536) * np.int64(65536),
    "mac": lambda a, b, c: c + a * b,
    "msu": lambda a, b, c: c - a * b,
    "mins": lambda a, b, c: np.minimum(signed(a), signed(b)),
    "maxs": lambda a, b, c: np.maximum(signed(a), signed(b)),
    "minu": lambda a, b, c: np.minimum(a, b),
    "maxu": lambda a, b, c: np.maximum(a, b),
    "clipr_small": lambda a, b, c: np.clip(a.astype(np.uint16).view(np.int16).astype(np.int64), -signed(b % 2**15) - 1, signed(b % 2**15)),
    "clipr": lambda a, b, c: np.clip(signed(a), -signed(b % 2**31) - 1, signed(b % 2**31)),
}
UNARY: dict[str, Callable[[Ints], Ints]] = {
    **{f"clip_{n}": lambda x, n=n: np.clip(signed(x), -(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in (1, 8, 16, 31)},
    **{f"clipu_{n}": lambda x, n=n: np.clip(signed(x), 0, 2 ** (n - 1) - 1) for n in (1, 9, 16, 31)},
    "abs": lambda x: np.abs(signed(x)),
    "ff1": lambda x: np.where(x == 0, 32, highest_one(x & (~x + np.uint32(1)))),
    "fl1": lambda x: np.where(x == 0, 32, highest_one(x)),
    "clb": leading,
    "cnt": lambda x: np.unpackbits(x.view(np.uint8).reshape(-1, 4), axis=1).sum(1),
    "exths": lambda x: x.astype(np.uint16).view(np.int16),
    "exthz": lambda x: x % 65536,
    "extbs": lambda x: x.astype(np.uint8).view(np.int8),
    "extbz": lambda x: x % 256,
}


def test_the_model_is_what_numpy_says(model: Streams) -> None:
    a, b, c, x = (model[name] for name in "abcx")
    oracle = {name: f(a, b, c) for name, f in BINARY.items()}
    oracle |= {name: f(x[: model[name].size]) for name, f in UNARY.items()}
    wanted = {name: values.astype(np.int64).astype(np.uint32) for name, values in oracle.items()}
    assert model.keys() - wanted.keys() == {"a", "b", "c", "x"}
    assert_same({name: model[name] for name in wanted} | {o: model[o] for o in "abcx"}, wanted | {o: model[o] for o in "abcx"})


def test_the_vectors_cover_what_is_small(model: Streams) -> None:
    a, b, x = model["a"], model["b"], model["x"]
    pairs = lanes(a[:16384], "u1") * 256 + lanes(b[:16384], "u1")
    assert np.unique(pairs).size == 65536
    assert np.unique(lanes(a ^ b, "u1")[:, 0] % 4).size == 4
    assert np.array_equal(np.sort(signed(x[-65536:])), np.arange(-32768, 32768))
    for special in (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        assert special in a and special in b and special in model["c"]


def branches() -> tuple[str, str, str]:
    """The header's parts: for XpulpV2, for the vendor's compiler, and C."""
    xpulp, _, rest = HEADER.read_text().partition("#elif DP_ISA_BUILTINS")
    vendor, _, model = rest.partition("#else")
    return xpulp, vendor, model


def test_every_intrinsic_is_probed(model: Streams) -> None:
    """Those that the header documents, has for XpulpV2, and has in C."""
    xpulp, _, others = branches()
    declared = set(re.findall(r"DP_ISA_R+\(\w+, dp_(\w+),", xpulp)) | {"clip", "clipu", "pack2"}
    declared.remove("pack2_high_first")
    assert declared == {re.sub(r"_(\d+|small)$", "", name) for name in model} - {"a", "b", "c", "x"}
    written = set(re.findall(r"\bdp_(\w+)\(", others)) | {f"{s}dot{k}" for s in ("", "s") for k in re.findall(r"DOT\(\w+, (\w+)", others)}
    written |= set(re.findall(r"LANES\(dp_(\w+)", others))
    assert declared <= written


@pytest.mark.parametrize("compiler,flags", COMPILERS[1:], ids=[name for name, _ in COMPILERS[1:]])
def test_compilers_agree(compiler: str, flags: tuple[str, ...], model: Streams, tmp_path: Path) -> None:
    assert_same(on_host(compiler, flags, tmp_path), model)


# ---- the vendor's compiler, as a mock -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiler,flags", COMPILERS, ids=[name for name, _ in COMPILERS])
def test_the_builtins_do_what_the_model_says(compiler: str, flags: tuple[str, ...], model: Streams, tmp_path: Path) -> None:
    assert_same(on_host(compiler, (*flags, *VENDOR), tmp_path), model)


@pytest.mark.parametrize(
    "flags,builtins",
    [
        ((), False),
        (("-D__pulp__",), True),
        (("-D__gap9__",), True),
        (("-D__pulp__", "-DDP_ISA_BUILTINS=0"), False),
        (("-DDP_ISA_BUILTINS=1",), True),
        (("-D__pulp__", "-DDP_XPULP"), False),
    ],
)
def test_the_compiler_decides_for_the_builtins(flags: tuple[str, ...], builtins: bool) -> None:
    done = subprocess.run(["gcc", "-E", *flags, *INCLUDE, "-xc", str(HEADER)], check=True, capture_output=True, text=True)
    assert ("__builtin_pulp_" in done.stdout) == builtins


@pytest.mark.parametrize(
    "good,bad",
    [
        ("(V)a, (V)b, (int)acc", "(V)b, (V)a, (int)acc"),
        ("dot##name((V)a, (V)b)", "dot##name((V)b, (V)a)"),
        ("(dp_isa_v4)a, (dp_isa_v4)b", "(dp_isa_v4)b, (dp_isa_v4)a"),
        ("(dp_isa_v4)a, (dp_isa_v4)s", "(dp_isa_v4)s, (dp_isa_v4)a"),
        ("(int16_t)lo, (int16_t)hi", "(int16_t)hi, (int16_t)lo"),
        ("__builtin_pulp_mac((int)a, (int)b, (int)acc)", "__builtin_pulp_mac((int)acc, (int)a, (int)b)"),
        ("__builtin_pulp_msu((int)a, (int)b, (int)acc)", "__builtin_pulp_msu((int)acc, (int)a, (int)b)"),
        ("dp_minu, minusi", "dp_minu, minsi"),
        ("(int)a, (int)b); }\n/* The", "(int)b, (int)a); }\n/* The"),
        ("-DP_ISA_TOP(n) - 1, DP_ISA_TOP(n)", "-DP_ISA_TOP(n), DP_ISA_TOP(n)"),
        ("0, DP_ISA_TOP(n)", "DP_ISA_TOP(n), 0"),
        ("1u << ((n) - 1)", "1u << (n)"),
        ("(n) < 31", "(n) < 32"),
        ("x ? (int32_t)__builtin_pulp_clb((int)x) : 0", "(int32_t)__builtin_pulp_clb((int)x)"),
    ],
)
def test_a_wrong_call_of_a_builtin_is_found(good: str, bad: str, model: Streams, tmp_path: Path) -> None:
    """By other results, or by the checks that the compiler makes too."""
    _, vendor, _ = branches()
    text = HEADER.read_text()
    assert good in vendor
    (tmp_path / "dp_isa.h").write_text(text.replace(vendor, vendor.replace(good, bad)))
    program = tmp_path / "program"
    subprocess.run(["gcc", "-O0", "-w", *VENDOR, f"-I{tmp_path}", *INCLUDE, str(PROBE), "-o", str(program)], check=True)
    (tmp_path / "run").mkdir()
    done = subprocess.run([str(program)], cwd=tmp_path / "run", timeout=60)
    got = streams(tmp_path / "run")
    assert done.returncode != 0 or any(first_difference(name, got, model) for name in model)


# ---- the simulated chip -------------------------------------------------------------------------------------------------------------


@pytest.mark.gvsoc
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_the_chip_does_what_the_model_says(model: Streams, tmp_path: Path) -> None:
    platform = load("pulp-open")
    for name in ("project", "run"):
        (tmp_path / name).mkdir()
    (tmp_path / "project/main.c").write_text(PROBE.read_text())
    program = ChipBuilder(chip_sizes(platform)).build_project(tmp_path / "project", tmp_path / "program.elf")
    Gvsoc(platform).run(program, [], tmp_path / "run", timeout=120)
    # The runtime leaves its own files there too.
    chip = {name: values for name, values in streams(tmp_path / "run").items() if name in model}
    assert_same(chip, model)
