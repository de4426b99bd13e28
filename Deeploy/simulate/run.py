"""`deeploy run`: compile, emit, simulate in every check mode, compare with an oracle, and optionally check every operator by itself."""

from __future__ import annotations

import argparse
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from Deeploy.compiler import Compiled, Graph, Options, compile_graphs, emit_project, load_graphs
from Deeploy.emit.manifest import Manifest
from Deeploy.emit.script import project_state, script_files
from Deeploy.errors import DefectError, Problem, RunError, ToolMissingError, UsageError
from Deeploy.platform import Platform
from Deeploy.platform import load as load_platform
from Deeploy.program.tensor import Tensor
from Deeploy.report import l3_of
from Deeploy.simulate.chip import OBSERVE, OBSERVE_LINK, TRACE, ChipBuilder, find_toolchain
from Deeploy.simulate.compare import ATOL, RTOL, Comparison, Tolerance, compare
from Deeploy.simulate.cycles import Cycles, cycles_of
from Deeploy.simulate.every import NodeCheck, check_first_calls
from Deeploy.simulate.golden import Golden
from Deeploy.simulate.gvsoc import Gvsoc, GvsocRun, chip_sizes, find_gvsoc
from Deeploy.simulate.host import FLAVOURS, CheckMode, HostBuilder, HostRun, checks_named, run_program
from Deeploy.simulate.oracle import RANDOM_SEED, golden_of
from Deeploy.simulate.sdk import SdkRunner, find_sdk, glue_of

HOPS = ("l3_to_l2", "l2_to_l3", "l2_to_l1", "l1_to_l2")


@dataclass(frozen=True)
class RunOptions:
    """What the command line decides about a run. tolerance: of floats; None takes that of each golden."""

    simulator: str = "host"
    checks: str = "lazy"
    compare: str = "outputs"
    inputs: str = "stored"
    rounds: int = 1
    tolerance: Tolerance | None = None
    timeout: float = 300.0
    output: Path | None = None

    @staticmethod
    def of(args: argparse.Namespace) -> RunOptions:
        asked = args.atol is not None or args.rtol is not None
        tolerance = Tolerance(ATOL if args.atol is None else args.atol, RTOL if args.rtol is None else args.rtol) if asked else None
        return RunOptions(args.simulator, args.checks, args.compare, args.inputs, args.rounds, tolerance, float(args.timeout), args.output)


@dataclass
class ModeResult:
    """One check mode: the outputs against the golden, the counters per round, the operators checked by themselves.

    check: "none" on the chip. loaded: what Init took of L3 and loaded into it: allocations, bytes, files, file_bytes. cycles: of a round;
    None where the simulator does not know them.
    """

    check: str
    outputs: list[Comparison]
    traffic: dict[str, int]
    forks: int
    loaded: dict[str, int]
    nodes: list[NodeCheck] = field(default_factory=list)
    cycles: Cycles | None = None

    @property
    def errors(self) -> int:
        return sum(o.errors for o in self.outputs) + sum(n.errors for n in self.nodes)


@dataclass
class RunResult:
    """The outcome of `deeploy run`."""

    model: str
    platform: str
    options: RunOptions
    golden: str
    modes: list[ModeResult]
    l3: dict[str, Any]
    l2: dict[str, Any]
    notes: list[str]

    @property
    def good(self) -> bool:
        return all(mode.errors == 0 for mode in self.modes)

    def json(self) -> dict[str, Any]:
        first = self.modes[0]
        worst = max((o.max_abs_error for m in self.modes for o in m.outputs), default=0.0)
        return {
            "model": self.model,
            "platform": self.platform,
            "simulator": self.options.simulator,
            "checks": [m.check for m in self.modes],
            "golden": self.golden,
            "outputs": [_finite(asdict(o)) for o in first.outputs],
            "errors": sum(m.errors for m in self.modes),
            "max_abs_error": worst if np.isfinite(worst) else None,
            "cycles": first.cycles.total if first.cycles else None,
            "measured": first.cycles.json() if first.cycles else None,
            "steps": [s.json() for s in first.cycles.steps] if first.cycles else [],
            "loaded": first.loaded,
            "rounds": self.options.rounds,
            "traffic": first.traffic,
            "forks": first.forks,
            "nodes_checked": sum(1 for n in first.nodes if n.checked),
            "nodes_unchecked": [n.node for n in first.nodes if not n.checked],
            "failed_nodes": [_finite(asdict(n)) | {"text": str(n)} for m in self.modes for n in m.nodes if n.errors],
            "l3": self.l3,
            "l2": self.l2,
            "notes": self.notes,
        }

    def text(self) -> str:
        lines = [f"{self.model} on {self.platform}, simulator {self.options.simulator}, golden: {self.golden}"]
        lines += [f"  {note}" for note in self.notes]
        for mode in self.modes:
            state = "good" if mode.errors == 0 else "WRONG"
            moved = ", ".join(f"{name.replace('_to_', '->').upper()} {count}" for name, count in mode.traffic.items() if count)
            lines.append(f"checks {mode.check:6} {state}; bytes per round: {moved or 'none'}; {mode.forks} forks")
            lines += [f"  {o}" for o in mode.outputs]
            if mode.cycles:
                lines.append(mode.cycles.text())
            if mode.nodes:
                checked = [n for n in mode.nodes if n.checked]
                lines.append(f"  {len(checked)} operators checked one by one, {sum(1 for n in checked if n.errors)} wrong")
                unseen = [n.node for n in mode.nodes if not n.checked]
                if unseen:
                    lines.append(f"  {len(unseen)} not checked by themselves: {', '.join(unseen[:5])}{' ...' if len(unseen) > 5 else ''}")
                lines += [f"    {n}" for n in mode.nodes if n.errors][:20]
        stored_here = self.l3["stored"]
        lines.append(f"L3: {stored_here['bytes']} bytes of constants and state in {stored_here['allocations']} allocations")
        return "\n".join(lines)


def _finite(entry: Any) -> Any:
    """The same structure with null for what JSON has no number for."""
    if isinstance(entry, dict):
        return {k: _finite(v) for k, v in entry.items()}
    if isinstance(entry, (list, tuple)):
        return [_finite(v) for v in entry]
    return None if isinstance(entry, float) and not np.isfinite(entry) else entry


def run(
    graphs: Path | Sequence[Graph], options: Options, run_options: RunOptions, progress: Callable[[str], None] = lambda stage: None
) -> RunResult:
    """Compiles, runs and compares. Raises DeeployError for everything but differing values."""
    return run_each(graphs, options, [run_options], progress)[0]


def run_each(
    graphs: Path | Sequence[Graph], options: Options, runs: Sequence[RunOptions], progress: Callable[[str], None] = lambda stage: None
) -> list[RunResult]:
    """Like `run` for several runs of one project, which is compiled and built only once. They differ in inputs, checks and comparing."""
    graphs = [Graph(graphs)] if isinstance(graphs, Path) else graphs
    first = runs[0]
    chosen, warnings = _chosen(runs, load_platform(options.platform))
    compiled = compile_graphs(graphs, options, progress)
    goldens = [golden_of(graphs, load_graphs(graphs, options), r.inputs) for r in runs]
    with tempfile.TemporaryDirectory(prefix="deeploy-run-") as scratch:
        folder = first.output if first.output is not None else Path(scratch) / "project"
        progress("emitting")
        observe = first.simulator == "host" or any(r.compare == "all" for r in runs)
        manifest = emit_project(compiled, folder, goldens[0].script, observe=observe)
        simulation = chosen(compiled, manifest, folder, Path(scratch))
        l3, l2 = l3_of(folder)
        results = []
        for golden, run_options in zip(goldens, runs, strict=True):
            modes = []
            for check in simulation.checks(run_options):
                progress(f"simulating with checks {check.value}")
                modes.append(simulation.run(check, golden, run_options))
            name, notes = compiled.name, [*compiled.project.notes, *warnings, *simulation.notes]
            results.append(RunResult(name, compiled.platform.name, run_options, golden.source, modes, l3, l2, notes))
    return results


class _Simulation(ABC):
    """An emitted project that is run several times."""

    def __init__(self, compiled: Compiled, manifest: Manifest, folder: Path, scratch: Path) -> None:
        self.compiled, self.manifest, self.folder, self.scratch = compiled, manifest, folder, scratch
        self.count = 0
        self.notes: list[str] = []

    @abstractmethod
    def checks(self, options: RunOptions) -> Sequence[CheckMode]:
        """The check modes to run."""

    @abstractmethod
    def run(self, check: CheckMode, golden: Golden, options: RunOptions) -> ModeResult:
        """One run."""

    def work_folder(self) -> Path:
        self.count += 1
        work = self.scratch / f"run{self.count}"
        work.mkdir()
        return work

    def files(self, work: Path, golden: Golden) -> Path:
        """A folder with the project's data files and these inputs."""
        files = work / "files"
        files.mkdir()
        given = script_files(self.compiled.project, golden.script).contents
        for path in (self.folder / "hex").iterdir():
            if path.name not in given:
                (files / path.name).symlink_to(path.resolve())
        for name, content in given.items():
            (files / name).write_bytes(content)
        return files

    def nodes(self, trace: Path, golden: Golden, options: RunOptions) -> list[NodeCheck]:
        """The operators by themselves; removes the trace."""
        checks = check_first_calls(self.compiled, self.manifest, golden.script, trace, options.tolerance or Tolerance())
        trace.unlink()
        return checks

    def outputs(self, work: Path, golden: Golden, options: RunOptions) -> list[Comparison]:
        """The files that the program has left, against the golden."""
        project, calls = self.compiled.project, golden.script.calls
        several = len(calls) > 1
        results = []
        for e in golden.outputs:
            tensor = project.programs[calls[e.call].program].outputs[e.output]
            name = f"call {e.call}: {tensor.source}" if several else tensor.source
            file = f"output_{e.call}_{e.output}.bin" if several else f"output_{e.output}.bin"
            results.append(self._compared(name, work / file, tensor, e.array, e.tolerance, options))
        places = {t.source: (k, t) for k, t in enumerate(project_state(project))}
        for s in golden.state:
            number, tensor = places[s.name]
            results.append(self._compared(f"state {s.name}", work / f"state_{number}.bin", tensor, s.array, s.tolerance, options))
        return results

    @staticmethod
    def _compared(
        name: str, file: Path, tensor: Tensor, expected: np.ndarray, tolerance: Tolerance | None, options: RunOptions
    ) -> Comparison:
        if not file.is_file():
            raise RunError(Problem(f"the program has left no {file.name}", f"it should hold {name}"))
        return compare(name, np.fromfile(file, tensor.dtype.numpy), expected, options.tolerance or tolerance or Tolerance())


class _HostSimulation(_Simulation):
    """On the host; programs are built once per way of compiling."""

    def __init__(self, compiled: Compiled, manifest: Manifest, folder: Path, scratch: Path) -> None:
        super().__init__(compiled, manifest, folder, scratch)
        self.builder = HostBuilder()
        self.programs: dict[str, Path] = {}

    def checks(self, options: RunOptions) -> Sequence[CheckMode]:
        return checks_named(options.checks)

    def run(self, check: CheckMode, golden: Golden, options: RunOptions) -> ModeResult:
        """Runs one check mode; with `--compare all` once more, watched step by step."""
        program = self._program(check)
        work = self.work_folder()
        files = self.files(work, golden)

        def start(rounds: int, environment: dict[str, str]) -> HostRun:
            arguments = [str(rounds)]
            return run_program(
                program, check, arguments=arguments, folder=work, files=files, timeout=options.timeout, environment=environment
            )

        done = start(options.rounds, {})
        outputs = self.outputs(work, golden, options)
        result = _mode_result(check, outputs, _counters(done), options.rounds)
        if options.compare == "all":
            trace = work / TRACE
            seed = {"DP_RANDOM": str(RANDOM_SEED)} if options.inputs == "random" else {}
            start(1, {"DP_TRACE": str(trace), **seed})
            result.nodes = self.nodes(trace, golden, options)
        return result

    def _program(self, check: CheckMode) -> Path:
        flavour = FLAVOURS[check].name
        if flavour not in self.programs:
            target = self.scratch / f"program_{flavour}"
            self.programs[flavour] = self.builder.build_project(self.folder, check, target, flags=("-DDP_OBSERVE",))
        return self.programs[flavour]


class _ChipSimulation(_Simulation):
    """On the simulated chip."""

    def __init__(self, compiled: Compiled, manifest: Manifest, folder: Path, scratch: Path) -> None:
        super().__init__(compiled, manifest, folder, scratch)
        self.simulator = Gvsoc(compiled.platform)
        self.builder = ChipBuilder(chip_sizes(compiled.platform))
        self.programs: dict[tuple[int, tuple[str, ...]], Path] = {}

    def checks(self, options: RunOptions) -> Sequence[CheckMode]:
        return (CheckMode.NONE,)

    def run(self, check: CheckMode, golden: Golden, options: RunOptions) -> ModeResult:
        """Runs and measures; with `--compare all` once more, watched step by step."""
        work, done = self._start(golden, options, options.rounds)
        result = _mode_result(check, self.outputs(work, golden, options), done.report, options.rounds)
        result.cycles = cycles_of(int(done.report["cycles"]), options.rounds, done.steps, self.manifest)
        if options.compare == "all":
            seed = (f"-DDP_RANDOM={RANDOM_SEED}",) if options.inputs == "random" else ()
            work, _ = self._start(golden, options, 1, (*OBSERVE, *seed), OBSERVE_LINK)
            result.nodes = self.nodes(work / TRACE, golden, options)
        return result

    def _start(
        self, golden: Golden, options: RunOptions, rounds: int, flags: tuple[str, ...] = (), link: tuple[str, ...] = ()
    ) -> tuple[Path, GvsocRun]:
        """One run, and the folder in which it was."""
        if (rounds, flags) not in self.programs:
            target = self.scratch / f"program{len(self.programs)}.elf"
            self.programs[rounds, flags] = self.builder.build_project(self.folder, target, rounds, flags, link)
        work = self.work_folder()
        files = self.files(work, golden)
        return work, self.simulator.run(self.programs[rounds, flags], files.iterdir(), work, options.timeout)


class _SdkSimulation(_Simulation):
    """On the vendor's own simulator, by the vendor's SDK."""

    board = False

    def __init__(self, compiled: Compiled, manifest: Manifest, folder: Path, scratch: Path) -> None:
        super().__init__(compiled, manifest, folder, scratch)
        self.runner = SdkRunner(compiled.platform, self.board)
        self.notes = [f"built and run with the SDK in {self.runner.sdk.home}"]

    def checks(self, options: RunOptions) -> Sequence[CheckMode]:
        return (CheckMode.NONE,)

    def run(self, check: CheckMode, golden: Golden, options: RunOptions) -> ModeResult:
        work = self.work_folder()
        files = self.files(work, golden)
        build = self.scratch / f"sdk_{options.rounds}"
        steps = sum(len(program.steps) for program in self.manifest.programs)
        self.runner.build(self.folder, files, build, options.rounds, steps)
        done = self.runner.run(build, work, options.timeout)
        result = _mode_result(check, self.outputs(work, golden, options), done.report, options.rounds)
        result.cycles = cycles_of(int(done.report["cycles"]), options.rounds, done.steps, self.manifest)
        return result


class _BoardSimulation(_SdkSimulation):
    """No simulation: on a board."""

    board = True


_SIMULATIONS: Mapping[str, type[_Simulation]] = {"host": _HostSimulation, "gvsoc": _ChipSimulation, "board": _BoardSimulation}


def _chosen(runs: Sequence[RunOptions], platform: Platform) -> tuple[type[_Simulation], list[str]]:
    """The simulation for the runs, and notes on the choice. Raises what can be known without compiling: a tool that is not there.

    For the simulated chip the SDK, if it is installed and knows the platform, because it has the vendor's own model of it; but only the
    bare chip can be watched.
    """
    name = runs[0].simulator
    if name not in _SIMULATIONS:
        raise ToolMissingError(Problem(f"the simulator '{name}' is not available", remedy="use --simulator host or --simulator gvsoc"))
    watched = any(run.compare == "all" for run in runs)
    if name not in ("host", "gvsoc") and watched:
        what = "--compare all watches every step, which only the simulators host and gvsoc can"
        raise UsageError(Problem(what, remedy="use --simulator host or --simulator gvsoc"))
    notes = []
    if name == "board":
        SdkRunner(platform, board=True)
    if name == "gvsoc":
        if glue_of(platform) is not None and not watched:
            try:
                find_sdk()
                return _SdkSimulation, []
            except ToolMissingError as error:
                if os.environ.get("GAP_SDK_HOME"):
                    notes.append(f"on the bare chip, without the SDK: {error}")
        home = find_gvsoc()
        find_toolchain()
        named = os.environ.get("GVSOC_HOME")
        if named and Path(named).absolute() != home:
            notes.append(f"GVSOC_HOME has no GVSoC; used is {home}")
    return _SIMULATIONS[name], notes


def _mode_result(check: CheckMode, outputs: list[Comparison], report: Mapping[str, Any], rounds: int) -> ModeResult:
    traffic = {hop: int(report["traffic"][hop]) // rounds for hop in HOPS}
    loaded = {name: int(value) for name, value in report["l3"].items()}
    return ModeResult(check.value, outputs, traffic, int(report["forks"]) // rounds, loaded)


def _counters(done: HostRun) -> dict[str, Any]:
    if done.report is None:
        raise DefectError(f"the program printed no counters: {done.stdout[-300:]}")
    return done.report
