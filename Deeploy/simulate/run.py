"""`deeploy run`: compile, emit, simulate in every check mode, compare with an oracle, and optionally check every operator by itself."""

from __future__ import annotations

import argparse
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from Deeploy.compiler import Compiled, Options, compile_model, emit_project
from Deeploy.emit.manifest import Manifest
from Deeploy.errors import DefectError, Problem, ToolMissingError, UsageError
from Deeploy.frontend import Model, load
from Deeploy.report import l3_of
from Deeploy.simulate.chip import ChipBuilder
from Deeploy.simulate.compare import ATOL, RTOL, Comparison, Tolerance, compare
from Deeploy.simulate.cycles import Cycles, cycles_of
from Deeploy.simulate.every import NodeCheck, check_nodes
from Deeploy.simulate.gvsoc import Gvsoc, chip_sizes
from Deeploy.simulate.host import FLAVOURS, CheckMode, HostBuilder, HostRun, checks_named, run_program
from Deeploy.simulate.oracle import RANDOM_SEED, Golden, drawn, stored

HOPS = ("l3_to_l2", "l2_to_l3", "l2_to_l1", "l1_to_l2")


@dataclass(frozen=True)
class RunOptions:
    """What the command line decides about a run."""

    simulator: str = "host"
    checks: str = "lazy"
    compare: str = "outputs"
    inputs: str = "stored"
    rounds: int = 1
    tolerance: Tolerance = field(default_factory=Tolerance)
    timeout: float = 300.0
    output: Path | None = None

    @staticmethod
    def of(args: argparse.Namespace) -> RunOptions:
        tolerance = Tolerance(ATOL if args.atol is None else args.atol, RTOL if args.rtol is None else args.rtol)
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


def run(path: Path, options: Options, run_options: RunOptions, progress: Callable[[str], None] = lambda stage: None) -> RunResult:
    """Compiles, runs and compares. Raises DeeployError for everything but differing values."""
    return run_each(path, options, [run_options], progress)[0]


def run_each(
    path: Path, options: Options, runs: Sequence[RunOptions], progress: Callable[[str], None] = lambda stage: None
) -> list[RunResult]:
    """Like `run` for several runs of one project, which is compiled and built only once. They differ in inputs, checks and comparing."""
    first = runs[0]
    _check_simulator(runs)
    compiled = compile_model(path, options, progress)
    goldens = [_golden(path, load(path, input_types=options.input_types, dims=options.dims), r) for r in runs]
    with tempfile.TemporaryDirectory(prefix="deeploy-run-") as scratch:
        folder = first.output if first.output is not None else Path(scratch) / "project"
        progress("emitting")
        names = [t.source for t in compiled.project.programs[0].inputs]
        observe = first.simulator == "host"
        manifest = emit_project(compiled, folder, dict(zip(names, goldens[0].inputs, strict=True)), observe=observe)
        simulation = _SIMULATIONS[first.simulator](compiled, manifest, folder, Path(scratch))
        l3, l2 = l3_of(folder)
        results = []
        for golden, run_options in zip(goldens, runs, strict=True):
            modes = []
            for check in simulation.checks(run_options):
                progress(f"simulating with checks {check.value}")
                modes.append(simulation.run(check, golden, run_options))
            name, notes = compiled.model.name, compiled.project.notes
            results.append(RunResult(name, compiled.platform.name, run_options, golden.source, modes, l3, l2, notes))
    return results


def _golden(path: Path, model: Model, options: RunOptions) -> Golden:
    if options.inputs == "random":
        return drawn(path, model)
    return stored(path, model) or drawn(path, model)


def _check_simulator(runs: Sequence[RunOptions]) -> None:
    name = runs[0].simulator
    if name not in _SIMULATIONS:
        raise ToolMissingError(Problem(f"the simulator '{name}' is not available", remedy="use --simulator host or --simulator gvsoc"))
    if name != "host" and any(run.compare == "all" for run in runs):
        raise UsageError(Problem("--compare all watches every step, which only the host simulator can", remedy="use --simulator host"))


class _Simulation(ABC):
    """An emitted project that is run several times."""

    def __init__(self, compiled: Compiled, manifest: Manifest, folder: Path, scratch: Path) -> None:
        self.compiled, self.manifest, self.folder, self.scratch = compiled, manifest, folder, scratch
        self.count = 0

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
        program = self.manifest.programs[0]
        for path in (self.folder / "hex").iterdir():
            if path.name not in program.fixtures:
                (files / path.name).symlink_to(path.resolve())
        for name, tensor, array in zip(program.fixtures, self.compiled.project.programs[0].inputs, golden.inputs, strict=True):
            np.ascontiguousarray(array).astype(tensor.dtype.numpy).tofile(files / name)
        return files

    def outputs(self, work: Path, golden: Golden, options: RunOptions) -> list[Comparison]:
        """The files that the program has left, against the golden."""
        tensors = self.compiled.project.programs[0].outputs
        return [
            compare(t.source, np.fromfile(work / f"output_{k}.bin", t.dtype.numpy), expected, options.tolerance)
            for k, (t, expected) in enumerate(zip(tensors, golden.outputs, strict=True))
        ]


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
            trace = work / "trace.bin"
            seed = {"DP_RANDOM": str(RANDOM_SEED)} if options.inputs == "random" else {}
            start(1, {"DP_TRACE": str(trace), **seed})
            project = self.compiled.project.programs[0]
            result.nodes = check_nodes(self.compiled.model, project, self.manifest.programs[0], trace, options.tolerance)
            trace.unlink()
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
        self.programs: dict[int, Path] = {}

    def checks(self, options: RunOptions) -> Sequence[CheckMode]:
        return (CheckMode.NONE,)

    def run(self, check: CheckMode, golden: Golden, options: RunOptions) -> ModeResult:
        work = self.work_folder()
        files = self.files(work, golden)
        if options.rounds not in self.programs:
            target = self.scratch / f"program_{options.rounds}.elf"
            self.programs[options.rounds] = self.builder.build_project(self.folder, target, options.rounds)
        done = self.simulator.run(self.programs[options.rounds], files.iterdir(), work, options.timeout)
        result = _mode_result(check, self.outputs(work, golden, options), done.report, options.rounds)
        result.cycles = cycles_of(int(done.report["cycles"]), options.rounds, done.steps, self.manifest.programs[0])
        return result


_SIMULATIONS: Mapping[str, type[_Simulation]] = {"host": _HostSimulation, "gvsoc": _ChipSimulation}


def _mode_result(check: CheckMode, outputs: list[Comparison], report: Mapping[str, Any], rounds: int) -> ModeResult:
    traffic = {hop: int(report["traffic"][hop]) // rounds for hop in HOPS}
    loaded = {name: int(value) for name, value in report["l3"].items()}
    return ModeResult(check.value, outputs, traffic, int(report["forks"]) // rounds, loaded)


def _counters(done: HostRun) -> dict[str, Any]:
    if done.report is None:
        raise DefectError(f"the program printed no counters: {done.stdout[-300:]}")
    return done.report
