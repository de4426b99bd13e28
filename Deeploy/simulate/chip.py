"""Builds projects for the bare chip: clang and lld of LLVM, C library and compiler support library of the RISC-V GCC packages, and the
image of the HyperFlash with the project's files."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from Deeploy.errors import DefectError, DoesNotFitError, Problem, ToolMissingError, UsageError
from Deeploy.platform.reader import targets_dir
from Deeploy.simulate.build import LibraryCache, call_tool, default_cache

LLVM_MIN = 17
"""The first clang with Zfinx: floats in the integer registers, as the cores have them."""
_VERSIONS = range(21, LLVM_MIN - 1, -1)
LLVM_REMEDY = "install clang and lld, version 17 or newer (Debian: apt install clang-19 lld-19)"
LIBRARY_REMEDY = "apt install picolibc-riscv64-unknown-elf gcc-riscv64-unknown-elf"
_MULTILIB = "rv32im/ilp32"
_PICOLIBC = (Path("/usr/lib/picolibc/riscv64-unknown-elf"), Path("/usr/riscv64-unknown-elf/picolibc"))

ARCHITECTURE = ("--target=riscv32-unknown-elf", "-march=rv32imc_zicsr_zfinx", "-mabi=ilp32")
FLAGS = (
    *ARCHITECTURE,
    "-std=c11",
    "-O2",
    "-g1",
    "-ffreestanding",
    "-fno-vectorize",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-ffunction-sections",
    "-fdata-sections",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-DDP_PROFILE",
    "-DDP_XPULP",
)

OBSERVE = ("-DDP_OBSERVE",)
OBSERVE_LINK = ("--wrap=dp_step_begin", "--wrap=dp_step_end")
TRACE = "trace.bin"
"""What an observed program (Observe.c) is compiled and linked with, and the file that it writes."""

FLASH_MAGIC = b"DPFLASH1"
FLASH_BYTES = 64 << 20
_ENTRY = struct.Struct("<64sII8x")
_HEAD = struct.Struct("<8sI4x")


@dataclass(frozen=True)
class Toolchain:
    """Paths of the tools and libraries for the chip's cores."""

    clang: str
    lld: str
    ar: str
    headers: Path
    libc: Path
    libgcc: Path


@dataclass(frozen=True)
class ChipSizes:
    """Memory that the chip has, in bytes."""

    l1: int
    l3: int


def find_toolchain() -> Toolchain:
    """Looks for everything. Raises ToolMissingError that says what to install."""
    clang = _llvm("clang", "clang")
    lld = _llvm("ld.lld", "lld")
    ar = next((p for p in map(shutil.which, [f"llvm-ar-{v}" for v in _VERSIONS] + ["llvm-ar", "ar"]) if p), None)
    if clang is None or lld is None or ar is None:
        missing = [name for name, path in (("clang", clang), ("ld.lld", lld), ("ar", ar)) if path is None]
        raise ToolMissingError(
            Problem(
                f"{' and '.join(missing)} of LLVM {LLVM_MIN} or newer not found", "programs for the chip are built with it", LLVM_REMEDY
            )
        )
    libc = next((base for base in _PICOLIBC if (base / "lib" / _MULTILIB / "libc.a").is_file()), None)
    if libc is None:
        raise ToolMissingError(Problem("picolibc for RISC-V is not installed", "programs for the chip are linked with it", LIBRARY_REMEDY))
    return Toolchain(clang, lld, ar, libc / "include", libc / "lib" / _MULTILIB / "libc.a", _libgcc())


def _llvm(command: str, name: str) -> str | None:
    """The newest tool of at least LLVM_MIN: with the version in its name, or plain and asked for it."""
    for version in _VERSIONS:
        if path := shutil.which(f"{command}-{version}"):
            return path
    path = shutil.which(command)
    if path is None:
        return None
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20)
    found = re.search(rf"{name}\D*(\d+)\.", done.stdout, re.IGNORECASE)
    return path if found and int(found[1]) >= LLVM_MIN else None


def _libgcc() -> Path:
    """libgcc for 32-bit cores without floats. Asking gcc for it with the exact architecture would give that for 64 bits."""
    gcc = shutil.which("riscv64-unknown-elf-gcc")
    why = "division of 64-bit integers and double precision are in it"
    if gcc is None:
        raise ToolMissingError(Problem("the RISC-V gcc is not installed", why, LIBRARY_REMEDY))
    path = Path(call_tool([gcc, "-march=rv32im", "-mabi=ilp32", "-print-libgcc-file-name"]).strip())
    if not path.is_file() or _MULTILIB not in str(path):
        raise ToolMissingError(Problem(f"the RISC-V gcc has no libgcc for {_MULTILIB}", why, LIBRARY_REMEDY))
    return path


class ChipBuilder:
    """Compiles projects against the bare-metal runtime.

    cache: folder of libraries; targets: the folder Targets; defaults as for the host simulator.
    """

    def __init__(self, sizes: ChipSizes, cache: Path | None = None, targets: Path | None = None) -> None:
        self.tools = find_toolchain()
        self.targets = targets if targets is not None else targets_dir()
        self.runtime = self.targets / "runtime" / "pulp"
        self.sizes = (f"-DDP_L1_BYTES={sizes.l1}", f"-DDP_L3_BYTES={sizes.l3}")
        self.flags = (*FLAGS, *self.sizes, "-isystem", str(self.tools.headers))
        include = (self.targets / "runtime" / "include", self.runtime, self.targets / "kernels")
        common = self.targets / "runtime" / "common"
        self._objects = LibraryCache(
            self.tools.clang, self.tools.ar, self.flags, include, cache if cache is not None else default_cache(), (common,)
        )

    def library(self) -> Path:
        """The static library of runtime and kernels, compiled unless it is in the cache."""
        folders = (self.targets / "runtime" / "common", self.runtime, self.targets / "kernels")
        sources = [source for folder in folders for source in sorted(folder.rglob("*.[cS]"))]
        return self._objects.library("chip", [(source, ()) for source in sources])

    def build_project(self, project: Path, output: Path, rounds: int = 1, flags: Sequence[str] = (), link: Sequence[str] = ()) -> Path:
        """Compiles and links all C files directly in the folder `project` to the ELF file `output`. `rounds`: what main is told; flags,
        link: more options of compiler and linker.

        Raises DoesNotFitError if code and constants are larger than the memory.
        """
        sources = sorted(project.glob("*.c"))
        if not sources:
            raise UsageError(Problem(f"there is no C file in '{project}'", remedy="give a folder that `deeploy generate` wrote"))
        library = self.library()
        include = [f"-I{path}" for path in (project, *self._objects.include)]
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=".build-") as folder:
            work = Path(folder)
            objects = []
            for source in sources:
                objects.append(str(work / f"{source.stem}.o"))
                call_tool([self.tools.clang, *self.flags, *flags, *include, "-c", str(source), "-o", objects[-1]])
            self._link(objects, library, work, rounds, link)
            os.replace(work / "program", output)
        return output

    def _link(self, objects: list[str], library: Path, work: Path, rounds: int, options: Sequence[str]) -> None:
        tools, script = self.tools, work / "link.ld"
        text = call_tool([tools.clang, "-E", "-P", "-x", "c", *self.sizes, f"-I{self.runtime}", str(self.runtime / "link.ld")])
        script.write_text(text)
        # Floats are printed nowhere, so printf does without them.
        symbols = [f"--defsym=__rounds={rounds}", "--defsym=vfprintf=__i_vfprintf", "-u", "_start"]
        libraries = [str(library), str(tools.libc), str(tools.libgcc)]
        try:
            call_tool(
                [tools.lld, "-T", str(script), "--gc-sections", *symbols, *options, *objects, *libraries, "-o", str(work / "program")]
            )
        except DefectError as error:
            full = re.search(r"will not fit in region '(\w+)': overflowed by (\d+) bytes", str(error))
            if full is None:
                raise
            remedy = "store constants in L3 (--home L3), or give the data less memory (--l2)"
            raise DoesNotFitError(Problem(f"the program is {full[2]} bytes too large for {full[1]}", remedy=remedy)) from None


def write_flash(image: Path, files: Iterable[Path]) -> None:
    """Writes the image of the HyperFlash (see dp_pulp_memory.c), padded to the size of the chip with a hole in the file.

    Raises DoesNotFitError if the files are too large for it.
    """
    listed = sorted(files, key=lambda path: path.name)
    at = _HEAD.size + _ENTRY.size * len(listed)
    directory = [_HEAD.pack(FLASH_MAGIC, len(listed))]
    places = []
    for path in listed:
        size, name = path.stat().st_size, path.name.encode()
        assert len(name) < 64, name
        directory.append(_ENTRY.pack(name, at, size))
        places.append(at)
        at += (size + 3) & ~3
    if at > FLASH_BYTES:
        raise DoesNotFitError(Problem(f"the project's files take {at} bytes, the flash has {FLASH_BYTES}"))
    with image.open("wb") as out:
        out.write(b"".join(directory))
        for path, place in zip(listed, places, strict=True):
            out.seek(place)
            out.write(path.read_bytes())
        out.truncate(FLASH_BYTES)
