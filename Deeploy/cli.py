"""The command line. Only argparse is imported here; everything heavy is imported by the command that needs it."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from Deeploy.errors import DeeployError, ExitCode, Problem, UsageError

_PLATFORM = "name of a file in Targets/platforms, without .toml"


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="deeploy",
        description="Compiles ONNX networks to C for microcontrollers with software-managed memories.",
        epilog="Exit codes: 0 good, 1 values differ, 2 wrong usage, 3 model not supported, 4 does not fit, 5 tool missing, "
        "6 run did not end well, 7 bound missed, 70 defect of deeploy.",
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    generate = commands.add_parser("generate", help="compile a model to a C project")
    _compile_options(generate)
    generate.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="folder of the project (replaced)")
    run = commands.add_parser("run", help="compile a model, run it on a simulator and compare the results")
    _compile_options(run)
    run.add_argument("--simulator", choices=("host", "gvsoc", "board"), default="host")
    run.add_argument("--checks", choices=("none", "lazy", "eager", "tsan", "all"), default="lazy", help="checks of the host simulator")
    run.add_argument("--compare", choices=("outputs", "all"), default="outputs", help="compare the outputs, or every operator as well")
    run.add_argument("--inputs", choices=("stored", "random"), default="stored")
    run.add_argument("--rounds", type=_positive, default=1, metavar="N", help="number of runs of the network")
    run.add_argument("--atol", type=_tolerance, default=None, help="absolute tolerance of floats (1e-4)")
    run.add_argument("--rtol", type=_tolerance, default=None, help="relative tolerance of floats (1e-5)")
    run.add_argument("--timeout", type=_positive, default=300, metavar="S", help="seconds for one simulation")
    run.add_argument("-o", "--output", type=Path, metavar="DIR", help="keep the project here")
    report = commands.add_parser("report", help="show what a generated project stores and moves")
    report.add_argument("dir", type=Path, metavar="DIR")
    report.add_argument("--json", action="store_true", help="print one JSON object")
    report.add_argument("--html", type=Path, metavar="FILE", help="also write it as one HTML file with a picture of each memory level")
    ops = commands.add_parser("ops", help="list the supported operators")
    ops.add_argument("--platform", metavar="P", help=f"{_PLATFORM}; only checked: the kernels are the same on every platform")
    ops.add_argument("--json", action="store_true", help="print one JSON object")
    doctor = commands.add_parser("doctor", help="check the tools that deeploy uses")
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    return top


def _compile_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "model", type=Path, metavar="MODEL", nargs="?", help=".onnx file, or folder with network.onnx [inputs.npz outputs.npz]"
    )
    command.add_argument(
        "--graph", action="append", default=[], metavar="NAME=MODEL", help="instead of MODEL, several times: graphs of one project"
    )
    command.add_argument("--platform", required=True, metavar="P", help=_PLATFORM)
    command.add_argument("--l1", type=_bytes, metavar="N", help="bytes of L1 for tiles, scratch and accumulators")
    command.add_argument("--l2", type=_bytes, metavar="N", help="bytes of L2")
    command.add_argument("--l3", type=_bytes, metavar="N", help="bytes of L3")
    command.add_argument("--cores", type=_positive, metavar="N", help="worker cores to use")
    command.add_argument("--home", choices=("auto", "L2", "L3"), default="auto", help="level of all storages")
    command.add_argument("--buffering", choices=("single", "double"), default="double")
    command.add_argument("--no-share", action="store_true", help="give every constant buffer its own storage")
    command.add_argument("--expand-constants", action="store_true", help="write element-wise constants out at full size")
    command.add_argument("--input-type", action="append", default=[], metavar="NAME=DTYPE", help="storage type of an input")
    command.add_argument("--dim", action="append", default=[], metavar="NAME=N", help="value of a dynamic dimension")
    command.add_argument("--residency", choices=("none",), default="none", help="copies that survive from call to call")
    command.add_argument("--fusion", choices=("none",), default="none", help="fusing of steps")
    command.add_argument("--prefix", default="Deeploy", metavar="P", help="prefix of all C symbols")
    command.add_argument("--dump", type=Path, metavar="DIR", help="write the program after each stage as text")
    command.add_argument("--json", action="store_true", help="print one JSON object")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive whole number")
    return int(text)


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number that is at least 0")
    return value


def _bytes(text: str) -> int:
    """A size in bytes; k and M stand for 1024 and 1024 * 1024."""
    factor = {"k": 1024, "K": 1024, "M": 1 << 20}.get(text[-1:], 1)
    return _positive(text[:-1] if factor > 1 else text) * factor


def _pairs(option: str, items: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for item in items:
        name, equals, value = item.rpartition("=")
        if not equals or not name or not value:
            raise UsageError(Problem(f"{option} {item} is not of the form NAME=VALUE"))
        pairs[name] = value
    return pairs


def _graphs(args: argparse.Namespace) -> list[Any]:
    """The graphs of the command: MODEL alone, or those of --graph."""
    from Deeploy.compiler import Graph, check_graphs

    if bool(args.graph) == (args.model is not None):
        raise UsageError(Problem("one MODEL is needed, or --graph NAME=MODEL for each graph of a project"))
    if args.model is not None:
        return [Graph(args.model)]
    graphs = []
    for item in args.graph:
        name, equals, path = item.partition("=")
        if not equals or not name or not path:
            raise UsageError(Problem(f"--graph {item} is not of the form NAME=MODEL"))
        graphs.append(Graph(Path(path), name))
    check_graphs(graphs)
    return graphs


def _options(args: argparse.Namespace) -> Any:
    from Deeploy.compiler import Options
    from Deeploy.emit import check_prefix
    from Deeploy.program.dtypes import ALL, from_name

    types = {}
    for name, value in _pairs("--input-type", args.input_type).items():
        try:
            types[name] = from_name(value)
        except KeyError:
            known = ", ".join(d.name for d in ALL)
            raise UsageError(Problem(f"--input-type {name}={value}: there is no such type", remedy=f"use one of {known}")) from None
    dims = {}
    for name, value in _pairs("--dim", args.dim).items():
        if not value.isdecimal():
            raise UsageError(Problem(f"--dim {name}={value}: a dimension is a whole number that is at least 0"))
        dims[name] = int(value)
    check_prefix(args.prefix)
    return Options(
        platform=args.platform,
        l1=args.l1,
        l2=args.l2,
        l3=args.l3,
        cores=args.cores,
        home=args.home,
        buffering=args.buffering,
        share=not args.no_share,
        expand_constants=args.expand_constants,
        input_types=types,
        dims=dims,
        prefix=args.prefix,
        dump=args.dump,
    )


def _progress() -> Callable[[str], None]:
    """Shows the stage on stderr if a terminal is attached."""
    if not sys.stderr.isatty():
        return lambda stage: None

    def show(stage: str) -> None:
        sys.stderr.write(f"\r\x1b[K{stage} ..." if stage else "\r\x1b[K")
        sys.stderr.flush()

    return show


def _generate(args: argparse.Namespace) -> ExitCode:
    from Deeploy.report import summary_of, text_of
    from Deeploy.stored import generate

    progress = _progress()
    generate(_graphs(args), _options(args), args.output, progress)
    progress("")
    _print(summary_of(args.output) if args.json else text_of(args.output), args.json)
    return ExitCode.GOOD


def _run(args: argparse.Namespace) -> ExitCode:
    from Deeploy.simulate.run import RunOptions, run

    progress = _progress()
    result = run(_graphs(args), _options(args), RunOptions.of(args), progress)
    progress("")
    _print(result.json() if args.json else result.text(), args.json)
    return ExitCode.GOOD if result.good else ExitCode.VALUES_DIFFER


def _report(args: argparse.Namespace) -> ExitCode:
    from Deeploy.report import html_of, summary_of, text_of

    if args.html is not None:
        _write(args.html, html_of(args.dir))
    _print(summary_of(args.dir) if args.json else text_of(args.dir), args.json)
    return ExitCode.GOOD


def _write(path: Path, text: str) -> None:
    """Writes a file that the user asked for. Raises UsageError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        what = f"'{path}' cannot be written"
        raise UsageError(Problem(what, error.strerror or str(error), "give a file in a folder that exists and can be written")) from None


def _ops(args: argparse.Namespace) -> ExitCode:
    from Deeploy.report.ops import operators_json, operators_text

    _print(operators_json(args.platform) if args.json else operators_text(args.platform), args.json)
    return ExitCode.GOOD


def _doctor(args: argparse.Namespace) -> ExitCode:
    from Deeploy.simulate.doctor import examine

    examination = examine()
    _print(examination.json() if args.json else examination.text(), args.json)
    return ExitCode.GOOD if examination.good else ExitCode.TOOL_MISSING


def _print(what: Any, as_json: bool) -> None:
    print(json.dumps(what, indent=1, sort_keys=False, allow_nan=False) if as_json else what)


_COMMANDS = {"generate": _generate, "run": _run, "report": _report, "ops": _ops, "doctor": _doctor}


class _Ended(BaseException):
    """The process was asked to end by the signal `number`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """While it is open, a signal that would end the process raises _Ended, so that temporary folders and child processes go as well."""

    def end(number: int, frame: object) -> None:
        raise _Ended(number)

    changed = []
    if threading.current_thread() is threading.main_thread():
        # A signal that is ignored, or that somebody else handles, stays as it is.
        changed = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) is signal.SIG_DFL]
    for number in changed:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code: 128 + the signal's number if one has ended it. argparse ends wrong usage itself with 2."""
    args = parser().parse_args(arguments)
    try:
        with _ending_in_order():
            return int(_COMMANDS[args.command](args))
    except DeeployError as error:
        return _fail(args, error.exit_code, [str(p) for p in error.problems])
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.GOOD)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except _Ended as ended:
        return 128 + ended.number
    except Exception as error:
        if os.environ.get("DEEPLOY_DEBUG"):
            raise
        return _fail(
            args, ExitCode.DEFECT, [f"{type(error).__name__}: {error}; set DEEPLOY_DEBUG=1 for the traceback and please report it"]
        )


def _fail(args: argparse.Namespace, code: ExitCode, lines: Sequence[str]) -> int:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    for line in lines:
        print(f"deeploy: {line}", file=sys.stderr)
    if getattr(args, "json", False):
        print(json.dumps({"error": {"exit_code": int(code), "problems": list(lines)}}, indent=1))
    return int(code)


def entry() -> None:
    """The `deeploy` command."""
    sys.exit(main())
