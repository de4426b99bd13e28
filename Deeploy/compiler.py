"""The compiler as one function: a model file in, a project with its plans out. Command line and harness both stand on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from Deeploy import operators, passes
from Deeploy.emit import EmitOptions, Manifest, emit
from Deeploy.errors import Problem, UsageError
from Deeploy.frontend import Model, load, load_inputs
from Deeploy.lower import lower
from Deeploy.plan import Plan, PlanOptions, plan
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


@dataclass
class Compiled:
    """A compiled project, ready to be emitted. `model` is the graph after all passes: its nodes are what the steps come from."""

    options: Options
    platform: Platform
    model: Model
    project: Project
    plans: list[Plan]


def compile_model(path: Path, options: Options, progress: Callable[[str], None] = lambda stage: None) -> Compiled:
    """Compiles the model at `path`. `progress` is told each stage. Raises DeeployError."""
    operators.load_all()
    platform = load_platform(options.platform).with_overrides(l2=options.l2, l3=options.l3, cores=options.cores)
    progress("reading the model")
    model = load(path, input_types=options.input_types, dims=options.dims)
    progress("rewriting the graph")
    passes.run_all(model, expand=options.expand_constants)
    progress("lowering")
    program = lower(model)
    verify(program)
    _dump(options, "1-lowered", program)
    project = Project([program], readers=model.readers, notes=model.notes)
    if options.share:
        share(project, exclude=frozenset(model.source_of.get(name, name) for name in model.overridable))
        verify(program)
        _dump(options, "2-shared", program)
    progress("planning")
    plan_options = PlanOptions(
        home=options.home, buffering=options.buffering, l1=options.l1, l2=options.l2, l3=options.l3, cores=options.cores
    )
    plans = [plan(p, platform, plan_options) for p in project.programs]
    for p in project.programs:
        verify(p, homes=True)
    _dump(options, "3-planned", program, plans[0])
    return Compiled(options, platform, model, project, plans)


def _dump(options: Options, stage: str, program: Program, planned: Plan | None = None) -> None:
    if options.dump is not None:
        from Deeploy.program.text import describe

        tiles = {id(s.step): f"outer {s.outer} inner {s.inner} order {s.order}" for s in planned.steps} if planned else {}
        text = describe(program, tiles)
        try:
            options.dump.mkdir(parents=True, exist_ok=True)
            (options.dump / f"{stage}.txt").write_text(text, encoding="utf-8")
        except OSError as error:
            what = f"the dump cannot be written to '{options.dump}'"
            raise UsageError(Problem(what, error.strerror or str(error), "give --dump a folder that can be made or written")) from None


def emit_project(compiled: Compiled, target: Path, fixtures: Mapping[str, np.ndarray], *, observe: bool) -> Manifest:
    """Writes the compiled project to the folder `target`, whole or not at all. `fixtures`: input arrays by ONNX name."""
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
    emit_options = EmitOptions(
        prefix=options.prefix, share=options.share, observe=observe, model_sha256=compiled.model.sha256, settings=settings
    )
    return emit(compiled.project, compiled.plans, compiled.platform, emit_options, fixtures, target)


def generate(path: Path, options: Options, target: Path, progress: Callable[[str], None] = lambda stage: None) -> Manifest:
    """`deeploy generate`: compiles the model and writes the project, with the stored inputs beside the model as fixtures."""
    compiled = compile_model(path, options, progress)
    fixtures: dict[str, np.ndarray] = {}
    if path.is_dir() and (path / "inputs.npz").exists():
        fixtures = dict(zip((v.name for v in compiled.model.graph.inputs), load_inputs(path, compiled.model), strict=True))
    progress("emitting")
    return emit_project(compiled, target, fixtures, observe=False)
