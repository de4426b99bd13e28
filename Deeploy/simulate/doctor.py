"""Which tools are here: compilers for the host simulator, onnxruntime as an oracle, compiler and simulator of the chip."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from dataclasses import asdict, dataclass
from typing import Any

from Deeploy.errors import ToolMissingError
from Deeploy.simulate.chip import find_toolchain
from Deeploy.simulate.gvsoc import find_gvsoc
from Deeploy.simulate.sdk import find_sdk


@dataclass(frozen=True)
class Finding:
    """One tool: whether it is here, what for, and what to do if it is not."""

    tool: str
    found: bool
    needed: bool
    purpose: str
    detail: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Examination:
    findings: tuple[Finding, ...]

    @property
    def good(self) -> bool:
        return all(f.found for f in self.findings if f.needed)

    def json(self) -> dict[str, Any]:
        return {"good": self.good, "tools": [asdict(f) for f in self.findings]}

    def text(self) -> str:
        lines = []
        for f in self.findings:
            state = "found" if f.found else "MISSING" if f.needed else "absent"
            lines.append(f"{f.tool:14} {state:8} {f.purpose}{': ' + f.detail if f.detail else ''}")
            if not f.found and f.remedy:
                lines.append(f"{'':23} {f.remedy}")
        return "\n".join(lines)


def examine() -> Examination:
    """Looks for every tool."""
    gcc = _compiler("gcc", True, "builds the host simulator", "install gcc (Debian: apt install gcc)")
    sanitizers = Finding(
        "sanitizers",
        gcc.found and _links(("-fsanitize=address,undefined",)) and _links(("-fsanitize=thread",)),
        True,
        "checks of the host simulator (AddressSanitizer, UndefinedBehaviorSanitizer, ThreadSanitizer)",
        remedy="install gcc's sanitizer libraries (Debian: apt install libasan8 libubsan1 libtsan2)",
    )
    clang = _compiler("clang", False, "second compiler of the tests", "apt install clang-19", ("clang", "clang-19"))
    runtime = Finding(
        "onnxruntime",
        importlib.util.find_spec("onnxruntime") is not None,
        False,
        "oracle of `deeploy run` without a stored golden",
        remedy="pip install onnxruntime",
    )
    return Examination((gcc, sanitizers, clang, runtime, *_chip()))


def _chip() -> tuple[Finding, ...]:
    """What `deeploy run --simulator gvsoc` and `--simulator board` use."""
    findings = []
    for tool, find, purpose in (
        ("chip compiler", lambda: find_toolchain().clang, "builds programs for the simulated chip"),
        ("gvsoc", lambda: str(find_gvsoc()), "simulates the chip, with cycles"),
        ("vendor SDK", lambda: str(find_sdk().home), "builds for boards and runs on them, and simulates with the vendor's model"),
    ):
        try:
            findings.append(Finding(tool, True, False, purpose, find()))
        except ToolMissingError as error:
            problem = error.problems[0]
            findings.append(Finding(tool, False, False, purpose, problem.what, problem.remedy))
    return tuple(findings)


def _compiler(tool: str, needed: bool, purpose: str, remedy: str, names: tuple[str, ...] = ()) -> Finding:
    path = next((p for p in map(shutil.which, names or (tool,)) if p), None)
    if path is None:
        return Finding(tool, False, needed, purpose, remedy=remedy)
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20)
    return Finding(tool, done.returncode == 0, needed, purpose, (done.stdout.splitlines() or [""])[0], remedy)


def _links(flags: tuple[str, ...]) -> bool:
    """Whether gcc can build a program with these flags."""
    command = ["gcc", *flags, "-x", "c", "-", "-o", "/dev/null"]
    return subprocess.run(command, input="int main(void){return 0;}", capture_output=True, text=True, timeout=60).returncode == 0
