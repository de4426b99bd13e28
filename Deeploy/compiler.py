"""The compiler as one function: a model file in, a project with its plans out. Command line and harness both stand on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from Deeploy import operators, passes
from Deeploy.emit import EmitOptions, Manifest, Script, emit
from Deeploy.errors import Problem, UsageError
from Deeploy.frontend import Model, bind_state, load
from Deeploy.frontend.source import model_file, read
from Deeploy.lower import Store, lower
from Deeploy.plan import Plan, PlanOptions, plan_programs
from Deeploy.platform import Platform
from Deeploy.platform import load as load_platform
from Deeploy.program.dtypes import DType
from Deeploy.program.program import Program, Project
from Deeploy.program.verify import verify
from Deeploy.sharing import share


@dataclass(frozen=True)
class Options:
    """What the command line decides about a compilation. Sizes in bytes; None takes the platform's."""

    platform: str
    l1: int | None = None
    l2: int | None = None
    l3: int | None = None
    cores: int | None = None
    home: str = "auto"
    buffering: str = "double"
    share: bool = True
    expand_constants: bool = False
    input_types: Mapping[str, DType] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    prefix: str = "Deeploy"
    dump: Path | None = None


@dataclass(frozen=True)
class Graph:
    """One network of a project. name: of its program, in its C functions and identifiers; "" for a project of one graph without a name."""

    path: Path
    name: str = ""

    @property
    def program(self) -> str:
        return self.name or "network"


def check_graphs(graphs: Sequence[Graph]) -> None:
    """Raises UsageError for names that cannot tell the programs of a project apart."""
    seen: set[str] = set()
    for graph in graphs:
        name = graph.name
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,15}", name):
            remedy = "use up to 16 letters, digits and _, a letter first"
            raise UsageError(Problem(f"--graph {name}={graph.path}: '{name}' cannot be part of C names", remedy=remedy))
        if name.lower() in seen:
            raise UsageError(Problem(f"two graphs are called '{name}'"))
        seen.add(name.lower())


@dataclass
class Compiled:
    """A compiled project, ready to be emitted. models: the graphs after all passes, one per program: their nodes are what the steps come
    from."""

    options: Options
    graphs: tuple[Graph, ...]
    platform: Platform
    models: list[Model]
    project: Project
    plans: list[Plan]

    @property
    def name(self) -> str:
        return " + ".join(model.name for model in self.models)

    @property
    def model(self) -> Model:
        """The model of a project of one graph."""
        (model,) = self.models
        return model


def compile_model(path: Path, options: Options, progress: Callable[[str], None] = lambda stage: None) -> Compiled:
    """Compiles the model at `path`, alone in its project. Raises DeeployError."""
    return compile_graphs([Graph(path)], options, progress)


def compile_graphs(graphs: Sequence[Graph], options: Options, progress: Callable[[str], None] = lambda stage: None) -> Compiled:
    """Compiles graphs to the programs of one project. `progress` is told each stage. Raises DeeployError."""
    operators.load_all()
    platform = load_platform(options.platform).with_overrides(l2=options.l2, l3=options.l3, cores=options.cores)
    progress("reading the model")
    models = load_graphs(graphs, options)
    progress("rewriting the graph")
    for model in models:
        passes.run_all(model, expand=options.expand_constants)
    progress("lowering")
    store = Store() if any(graph.name for graph in graphs) else None
    programs = [lower(model, graph.program, store) for model, graph in zip(models, graphs, strict=True)]
    readers = [replace(r, program=graph.program) for model, graph in zip(models, graphs, strict=True) for r in model.readers]
    notes = [note if store is None else f"{g.name}: {note}" for m, g in zip(models, graphs, strict=True) for note in m.notes]
    project = Project(programs, readers=readers, notes=notes)
    _check(options, "1-lowered", project)
    if options.share:
        share(project, exclude=frozenset(model.source_of.get(name, name) for model in models for name in model.overridable))
        _check(options, "2-shared", project)
    progress("planning")
    plan_options = PlanOptions(
        home=options.home, buffering=options.buffering, l1=options.l1, l2=options.l2, l3=options.l3, cores=options.cores
    )
    plans = plan_programs(programs, platform, plan_options)
    _check(options, "3-planned", project, plans)
    return Compiled(options, tuple(graphs), platform, models, project, plans)


def load_graphs(graphs: Sequence[Graph], options: Options) -> list[Model]:
    """The models as loaded, with what they know of each other: what one graph updates is state of all. Input types and dimensions go to the
    graphs that have them. Raises DeeployError."""
    if len(graphs) == 1:
        return [load(graphs[0].path, input_types=options.input_types, dims=options.dims)]
    named = bool(options.input_types or options.dims)
    known = [read(model_file(graph.path)[0]).input_keys() if named else set[str]() for graph in graphs]
    for option, names in (("--input-type", options.input_types), ("--dim", options.dims)):
        for name in names:
            if not any(name in keys for keys in known):
                raise UsageError(Problem(f"{option} {name}: no graph has it"))
    models = []
    for graph, keys in zip(graphs, known, strict=True):
        types = {name: dtype for name, dtype in options.input_types.items() if name in keys}
        models.append(load(graph.path, input_types=types, dims={n: size for n, size in options.dims.items() if n in keys}))
    bind_state(models, [graph.name for graph in graphs])
    return models


def _check(options: Options, stage: str, project: Project, plans: Sequence[Plan] | None = None) -> None:
    """Verifies every program after a stage, and writes it where --dump says."""
    for index, program in enumerate(project.programs):
        verify(program, homes=plans is not None)
        if options.dump is not None:
            name = stage if len(project.programs) == 1 else f"{program.name}-{stage}"
            _dump(options.dump, name, program, None if plans is None else plans[index])


def _dump(folder: Path, stage: str, program: Program, planned: Plan | None) -> None:
    from Deeploy.program.text import describe

    tiles = {id(s.step): f"outer {s.outer} inner {s.inner} order {s.order}" for s in planned.steps} if planned else {}
    text = describe(program, tiles)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{stage}.txt").write_text(text, encoding="utf-8")
    except OSError as error:
        what = f"the dump cannot be written to '{folder}'"
        raise UsageError(Problem(what, error.strerror or str(error), "give --dump a folder that can be made or written")) from None


def emit_project(compiled: Compiled, target: Path, script: Script, *, observe: bool) -> Manifest:
    """Writes the compiled project to the folder `target`, whole or not at all. `script`: what main.c does."""
    options = compiled.options
    settings = {
        "l1": options.l1,
        "l2": options.l2,
        "l3": options.l3,
        "cores": options.cores,
        "home": options.home,
        "buffering": options.buffering,
        "share": options.share,
        "expand_constants": options.expand_constants,
        "input_types": {name: str(dtype) for name, dtype in options.input_types.items()},
        "dims": dict(options.dims),
    }
    sha256 = "+".join(model.sha256 for model in compiled.models)
    emit_options = EmitOptions(prefix=options.prefix, share=options.share, observe=observe, model_sha256=sha256, settings=settings)
    return emit(compiled.project, compiled.plans, compiled.platform, emit_options, script, target)
