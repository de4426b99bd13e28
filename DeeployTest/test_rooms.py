"""The compiler's rooms: who may import whom, how long files and functions may be, and that no chip is named outside its platform file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "Deeploy"

ROOMS = (
    "errors",
    "platform",
    "program",
    "operators",
    "frontend",
    "passes",
    "lower",
    "sharing",
    "fusion",
    "plan",
    "emit",
    "report",
    "compiler",
    "stored",
    "simulate",
    "tune",
    "cli",
)
"""A room imports only from itself and from rooms before it.

`compiler` chains the stages up to `emit`, so it comes after them; `stored` adds what lies beside the models; simulation and tuning begin
by compiling. `report` comes before `simulate`, although it is about finished projects, because `run` shows the report's L3 figures beside
its own.
"""

LAST = "__main__"
"""Starts the command line; nobody imports it."""

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60

CHIP = re.compile(r"(?<![a-z0-9])(gap[-_ ]?[0-9]+|pulp[-_ ]?open)(?![a-z0-9])", re.IGNORECASE)
"""Also inside names: GAP9_SIZE, is_pulp_open."""

FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(), str(path)) for path in FILES}


def where(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def room_of(path: Path) -> str | None:
    """The room of a file; None for the package's own __init__.py, which belongs to no room and imports nothing."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return None if first == "__init__" else first


def imported(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """(line, room) of every import from Deeploy, wherever it stands. `package`: the names of the package that the file is in.

    `from Deeploy import x` names the room x, or something of the package itself, which is no room.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            modules = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for module in modules:
            parts = module.split(".")
            if parts[0] != "Deeploy":
                continue
            if len(parts) == 1:
                yield node.lineno, "the whole package"
            elif not parts[1].startswith("__") or parts[1] == LAST:
                yield node.lineno, parts[1]


def wrong_imports(path: Path, tree: ast.AST) -> list[str]:
    room = room_of(path)
    allowed = ROOMS if room == LAST else () if room is None else ROOMS[: ROOMS.index(room) + 1]
    package = ("Deeploy", *path.relative_to(PACKAGE).parts[:-1])
    return [f"{where(path)}:{line}: {room} imports {other}" for line, other in imported(tree, package) if other not in allowed]


def docstrings(tree: ast.AST) -> set[int]:
    """The ids of the string constants that stand alone as statements: they describe, nothing reads them."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


def chip_names(tree: ast.AST) -> list[str]:
    """Where a chip is named: in identifiers, names of modules and strings, docstrings and comments excepted."""
    exempt = docstrings(tree)
    found = []
    for node in ast.walk(tree):
        if id(node) in exempt:
            continue
        for _, value in ast.iter_fields(node):
            texts = value if isinstance(value, list) else [value]
            for text in texts:
                text = text.decode("latin-1") if isinstance(text, bytes) else text
                if isinstance(text, str) and CHIP.search(text.replace("_", " ")):
                    found.append(f"line {getattr(node, 'lineno', '?')}: {text!r}")
    return found


def long_functions(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            begin = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            lines = (node.end_lineno or node.lineno) - begin + 1
            if lines > MAX_FUNCTION_LINES:
                found.append(f"line {begin}: {node.name} has {lines} lines")
    return found


def test_every_file_has_a_room():
    """A new room gets its place in the list before it gets files."""
    assert {room_of(path) for path in FILES} <= {*ROOMS, LAST, None}


def test_a_room_imports_only_from_those_above():
    assert [fault for path, tree in TREES.items() for fault in wrong_imports(path, tree)] == []


def test_files_are_short():
    lengths = {where(path): len(path.read_text().splitlines()) for path in FILES}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_functions_are_short():
    assert [f"{where(path)}: {fault}" for path, tree in TREES.items() for fault in long_functions(tree)] == []


def test_no_chip_is_named():
    assert [f"{where(path)}: {fault}" for path, tree in TREES.items() for fault in chip_names(tree)] == []


@pytest.mark.parametrize(
    "line",
    [
        "from Deeploy.plan import plan",
        "from Deeploy import plan",
        "import Deeploy.plan.result as r",
        "from Deeploy.operators import base",
        "from Deeploy import __main__",
        "import Deeploy",
        "from ..plan.result import Plan",
        "from .. import plan",
        "def f():\n    from Deeploy.plan import plan",
        "if TYPE_CHECKING:\n    from Deeploy.plan import Plan",
    ],
)
def test_a_wrong_import_is_seen(line):
    assert len(wrong_imports(PACKAGE / "program" / "new.py", ast.parse(line))) == 1


def test_a_right_import_is_allowed():
    lines = "from Deeploy import __version__, errors\nfrom . import step\nfrom ..platform import load\nimport os, Deeploy.program.step"
    assert wrong_imports(PACKAGE / "program" / "new.py", ast.parse(lines)) == []


@pytest.mark.parametrize(
    "line",
    ["'gap9'", "f'on PULP-open {x}'", "GAP9_SIZE", "pulp_open = 1", "def is_gap9(): pass", "import x.gap9", "f(pulp_open=1)", "b'GAP8'"],
)
def test_a_chip_is_seen(line):
    assert chip_names(ast.parse(f"x = {line}" if line[-1] == "'" else line))
    assert chip_names(ast.parse(f'"""About gap9."""\ngap = "gaps, pulp, open"  # {line}')) == []


def test_a_long_function_is_seen():
    body = "def f():\n" + "    pass\n" * MAX_FUNCTION_LINES
    assert long_functions(ast.parse(body)) and not long_functions(ast.parse(body.removesuffix("    pass\n")))
