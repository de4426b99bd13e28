"""Lowers a whole graph: constants and inputs become tensors, every node is lowered by its operator, outputs get storages of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from Deeploy.errors import DeeployError, ModelError, Problem
from Deeploy.frontend.model import Model, node_view
from Deeploy.frontend.names import c_names
from Deeploy.frontend.state import State
from Deeploy.lower.context import Builder, Context
from Deeploy.operators.base import find
from Deeploy.program.program import Binding, Program
from Deeploy.program.tensor import Role, Storage, Tensor, VariableBuffer


@dataclass
class Store:
    """What the programs of one project have in common: the storages of state by ONNX name, and the C identifiers in use (in lower case)."""

    state: dict[str, Storage] = field(default_factory=dict)
    identifiers: set[str] = field(default_factory=set)


def lower(model: Model, program_name: str = "network", store: Store | None = None) -> Program:
    """The program of a model. Raises ModelError with all problems found.

    store: of the project, if it has several programs: state of one name is one storage. Their identifiers begin with the program's name.
    """
    program = Program(program_name, suffix="" if store is None else f"_{program_name}")
    prefix, store = ("", Store()) if store is None else (f"{program_name}_", store)
    builder = Builder(program, _namer(model, prefix, store.identifiers))
    for state in model.state:
        kept = _state(builder, model, state, store)
        program.state.append(kept)
        builder.by_name[state.variable.name] = kept
    for variable in model.graph.inputs:
        given = builder.new_variable(variable.name, model.values[variable.name], Role.INPUT)
        program.inputs.append(given)
        builder.by_name[variable.name] = given
    problems: list[Problem] = []
    for node in model.graph.nodes:
        view = node_view(model, node)
        operator = find(view.op, view.domain)
        assert operator is not None, view.op
        inputs = [_input(builder, model, variable, f"{node.name}:{slot}") for slot, variable in enumerate(node.inputs)]
        context = Context(builder, view, inputs, [model.values[o.name] if o.name else None for o in node.outputs])
        try:
            operator.lower(view, context)
        except DeeployError as error:
            problems += error.problems
        outputs = context.finish()
        for variable, made in zip(node.outputs, outputs, strict=True):
            if made is not None:
                builder.by_name[variable.name] = made
        program.bindings.append(Binding(node.name, tuple(inputs), tuple(outputs)))
    if problems:
        raise ModelError(*problems)
    for variable in model.graph.outputs:
        program.outputs.append(_output(builder, model, variable.name))
    _drop_unused(program)
    model.notes += builder.notes
    return program


def _state(builder: Builder, model: Model, state: State, store: Store) -> VariableBuffer:
    """The tensor of a state, on the storage that all programs of the project use for that name."""
    name = state.variable.name
    tensor = builder.new_variable(name, model.values[name], Role.STATE)
    tensor.storage = store.state.setdefault(name, tensor.storage)
    if state.initial is not None:
        tensor.storage.content = state.initial.astype(tensor.dtype.numpy, order="C", copy=False).tobytes()
    return tensor


def _namer(model: Model, prefix: str, taken: set[str]) -> Callable[[str], str]:
    """Unique C identifiers: graph tensors and nodes get theirs from their names, everything else by a number. They are added to `taken`,
    which holds them in lower case."""
    names = [t.name for t in model.graph.tensors().values()] + [n.name for n in model.graph.nodes]
    names += [s.variable.name for s in model.state]
    table = {name: prefix + c for name, c in c_names(list(dict.fromkeys(names))).items()}
    reserved = {c.lower() for c in table.values()} - taken

    def unique(name: str) -> str:
        plain = table.get(name)
        if plain is not None and plain.lower() in reserved:
            reserved.discard(plain.lower())
            taken.add(plain.lower())
            return plain
        base = plain or prefix + c_names([name])[name]
        number = 1
        while f"{base}_{number}".lower() in taken | reserved:
            number += 1
        taken.add(f"{base}_{number}".lower())
        return f"{base}_{number}"

    return unique


def _input(builder: Builder, model: Model, variable, reader: str) -> Tensor | None:  # noqa: ANN001
    """The tensor of one input slot; a constant is made at its (only) reader."""
    if variable.name == "":
        return None
    tensor = builder.by_name.get(variable.name)
    if tensor is None:
        expanded = variable.name in model.expanded
        tensor = builder.new_constant(variable.name, model.values[variable.name], literal=not expanded, reader=reader)
        tensor.source = model.source_of.get(variable.name, variable.name)
        builder.by_name[variable.name] = tensor
    return tensor


def _output(builder: Builder, model: Model, name: str) -> VariableBuffer:
    """The graph output's tensor: dense and alone on its storage, copied if it is a view of something else. Updated state is read where
    it is."""
    tensor = builder.by_name.get(name)
    if tensor is None:
        tensor = builder.new_constant(name, model.values[name], reader=f"output:{name}")
    storage = tensor.storage
    alone = tensor.offset == 0 and tensor.is_dense and tensor.bytes == storage.size
    if isinstance(tensor, VariableBuffer) and alone and storage.role in (Role.ACTIVATION, Role.STATE):
        if storage.role is Role.ACTIVATION:
            storage.role = Role.OUTPUT
        return tensor
    target = builder.new_variable(name, model.values[name], Role.OUTPUT)
    if tensor.elements:
        builder.copy(tensor, target, f"output_{name}", "Output")
    return target


def _drop_unused(program: Program) -> None:
    """Forgets tensors that no step and no interface names (views that only led to other views, unread outputs)."""
    used = {id(o.tensor) for step in program.steps for o in step.operands}
    used |= {id(t) for t in program.inputs + program.outputs + program.state}
    program.tensors = [t for t in program.tensors if id(t) in used]
