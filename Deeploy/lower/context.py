"""The context that operators lower themselves in: it owns tensors, storages and the list of steps of a program under construction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from Deeploy.errors import ModelError
from Deeploy.operators.base import Node, Operator, Value, View, find
from Deeploy.operators.copying import copy_parts
from Deeploy.program.dtypes import DType
from Deeploy.program.program import Program
from Deeploy.program.step import MAX_AXES, MAX_OPERANDS, MAX_RANK, Axis, KernelCall, Operand, Step
from Deeploy.program.tensor import ConstantBuffer, Role, Storage, Tensor, VariableBuffer, dense_strides

LONGEST = 40
"""Characters of an identifier that `counter` makes."""
ALIGNMENT = 4
"""Of every storage, bytes: no element type needs more on a 32-bit core, and no platform asks for more for a buffer."""


class Builder:
    """A program under construction: the tensors by ONNX name and the steps so far."""

    def __init__(self, program: Program, unique: Callable[[str], str]) -> None:
        self.program = program
        self.unique = unique
        self.by_name: dict[str, Tensor] = {}
        self.notes: list[str] = []

    def new_storage(self, name: str, size: int, role: Role, content: bytes | None = None) -> Storage:
        return Storage(name, size, role, ALIGNMENT, None, content)

    def new_variable(self, source: str, value: Value, role: Role) -> VariableBuffer:
        """A dense tensor with a storage of its own."""
        name = self.unique(source)
        storage = self.new_storage(name, value.elements * value.dtype.size, role)
        tensor = VariableBuffer(name, source, value.shape, value.dtype, storage, lo=value.lo, hi=value.hi)
        self.program.tensors.append(tensor)
        return tensor

    def new_constant(self, source: str, value: Value, *, literal: bool = True, reader: str = "") -> ConstantBuffer:
        """A constant with a storage of its own, or an immediate if all its elements have the same bytes (and `literal` allows it)."""
        assert value.constant is not None, source
        array = value.constant
        if literal and array.size and not any(array.strides):
            array = array[(slice(0, 1),) * array.ndim]  # one element is the whole content
        content = array.astype(value.dtype.numpy, order="C", copy=False).tobytes()
        size = value.dtype.size
        name = self.unique(source)
        is_splat = literal and (not content or content == content[:size] * (len(content) // size))
        storage = self.new_storage(name, 0 if is_splat else len(content), Role.CONSTANT, b"" if is_splat else content)
        storage.members = [name]
        strides = (0,) * len(value.shape) if is_splat else dense_strides(value.shape)
        tensor = ConstantBuffer(name, source, value.shape, value.dtype, storage, 0, strides, value.lo, value.hi)
        tensor.literal = (content[:size] or bytes(size)) if is_splat else None
        tensor.reader = reader
        self.program.tensors.append(tensor)
        return tensor

    def view_of(self, source: str, tensor: Tensor, shape: Sequence[int], strides: Sequence[int], offset: int) -> Tensor:
        """A view on the storage of `tensor`; `offset` in elements."""
        kind = type(tensor)
        view = kind(
            self.unique(source),
            source,
            tuple(shape),
            tensor.dtype,
            tensor.storage,
            tensor.offset + offset * tensor.dtype.size,
            tuple(strides),
            tensor.lo,
            tensor.hi,
        )
        if isinstance(view, ConstantBuffer) and isinstance(tensor, ConstantBuffer):
            view.literal, view.reader = tensor.literal, tensor.reader
        self.program.tensors.append(view)
        return view

    def copy(self, source: Tensor, target: Tensor, node: str, operator: str) -> None:
        """Appends a step that copies `source` to `target` (same shape and type, any strides)."""
        axes, operands, calls = copy_parts(source, target)
        self.append(Step(self.unique(f"{node}_copy"), node, operator, tuple(axes), tuple(operands), tuple(calls), macs=source.elements))

    def append(self, step: Step) -> None:
        """Appends a step unless it writes nothing (zero-size tensors)."""
        if all(step.operands[w].tensor.elements == 0 for w in step.writes):
            return
        self.program.steps.append(step)


class Context:
    """`Lowering` for one node."""

    def __init__(self, builder: Builder, node: Node, inputs: Sequence[Tensor | None], values: Sequence[Value | None]) -> None:
        self.builder = builder
        self.node = node
        self._inputs = inputs
        self._values = values
        self._outputs: dict[int, Tensor] = {}

    def input(self, index: int) -> Tensor:
        tensor = self.optional(index)
        if tensor is None:
            raise ModelError(self.node.problem(f"input {index} is missing"))
        return tensor

    def optional(self, index: int) -> Tensor | None:
        return self._inputs[index] if index < len(self._inputs) else None

    def output(self, index: int) -> VariableBuffer:
        tensor = self._outputs.get(index)
        if tensor is None:
            value = self._values[index]
            assert value is not None, f"output {index} of {self.node.name} is absent"
            tensor = self.builder.new_variable(self.node.outputs[index], value, Role.ACTIVATION)
            self._outputs[index] = tensor
        assert isinstance(tensor, VariableBuffer)
        return tensor

    def update(self, index: int) -> VariableBuffer:
        tensor = self._outputs.get(index)
        if tensor is None:
            operator = find(self.node.op, self.node.domain)
            assert operator is not None, self.node.op
            old = self.input(operator.updates[index])
            tensor = self.builder.view_of(self.node.outputs[index], old, old.shape, old.strides, 0)
            self._outputs[index] = tensor
        assert isinstance(tensor, VariableBuffer), f"{tensor.name} is a constant"
        return tensor

    def view(self, index: int, tensor: Tensor, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> None:
        assert index not in self._outputs
        view = self.builder.view_of(self.node.outputs[index], tensor, shape, strides, offset)
        operator = find(self.node.op, self.node.domain)
        if tensor.storage.role is Role.STATE and operator is not None and operator.view is View.NONE:
            # The order of the nodes follows declared views only: who reads this one may come after an update.
            self.builder.copy(view, self.output(index), self.node.name, self.node.op)
        else:
            self._outputs[index] = view

    def dense(self, tensor: Tensor) -> Tensor:
        if tensor.is_dense or (isinstance(tensor, ConstantBuffer) and tensor.literal is not None):
            return tensor
        target = self.temporary("dense", tensor.shape, tensor.dtype)
        target.lo, target.hi = tensor.lo, tensor.hi
        self.builder.copy(tensor, target, self.node.name, self.node.op)
        return target

    def temporary(self, name: str, shape: Sequence[int], dtype: DType) -> VariableBuffer:
        value = Value(tuple(shape), dtype) if dtype.is_float else Value(tuple(shape), dtype, dtype.lo, dtype.hi)
        return self.builder.new_variable(f"{self.node.name}_{name}", value, Role.ACTIVATION)

    def write_into(self, tensor: Tensor, target: VariableBuffer, offset: int, strides: Sequence[int]) -> None:
        storage = tensor.storage
        whole = isinstance(tensor, VariableBuffer) and tensor.offset == 0 and tensor.is_dense and tensor.bytes == storage.size
        contiguous = all(n == 1 or s == d for n, s, d in zip(tensor.shape, strides, dense_strides(tensor.shape), strict=True))
        if whole and contiguous and storage.role is Role.ACTIVATION and storage is not target.storage and tensor.elements:
            base = target.offset + offset * target.dtype.size
            for other in self.builder.program.tensors:
                if other.storage is storage:
                    other.storage = target.storage
                    other.offset += base
            return
        piece = self.builder.view_of(f"{target.source}_part", target, tensor.shape, strides, offset)
        self.builder.copy(tensor, piece, self.node.name, self.node.op)

    def step(
        self,
        axes: Sequence[Axis],
        operands: Sequence[Operand],
        calls: Sequence[KernelCall],
        *,
        accumulator: DType | None = None,
        in_place: Sequence[tuple[int, int]] = (),
        macs: int = 0,
        suffix: str = "",
    ) -> None:
        ranks = [len(o.dims) for o in operands]
        if len(axes) > MAX_AXES or len(operands) > MAX_OPERANDS or max(ranks, default=0) > MAX_RANK:
            raise ModelError(
                self.node.problem(
                    f"it needs {len(axes)} loop axes, {len(operands)} operands and {max(ranks, default=0)} dimensions",
                    f"at most {MAX_AXES}, {MAX_OPERANDS} and {MAX_RANK} are supported",
                    "reduce the rank of its tensors",
                )
            )
        name = self.builder.unique(f"{self.node.name}_{suffix}" if suffix else self.node.name)
        step = Step(name, self.node.name, self.node.op, tuple(axes), tuple(operands), tuple(calls), accumulator, tuple(in_place), macs)
        self.builder.append(step)

    def note(self, text: str) -> None:
        self.builder.notes.append(f"{self.node.name} ({self.node.op}): {text}")

    def finish(self) -> list[Tensor | None]:
        """The tensors of all outputs, after `lower`; None for an absent one."""
        return [self._outputs.get(i) or (self.output(i) if value is not None else None) for i, value in enumerate(self._values)]


def counter() -> Callable[[str], str]:
    """A maker of unique C identifiers, for tests and for names that are no ONNX names."""
    used: dict[str, int] = {}

    def unique(name: str) -> str:
        base = "".join(c if c.isascii() and c.isalnum() else "_" for c in name).strip("_")[:LONGEST] or "t"
        base = f"t_{base}" if base[0].isdigit() else base
        key = base.lower()
        number = used.get(key, 0)
        used[key] = number + 1
        if number == 0:
            return base
        suffix = f"_{number}"
        return unique(base[: LONGEST - len(suffix)] + suffix)

    return unique


def lower_node(operator: Operator, node: Node) -> tuple[Program, list[Tensor | None], list[Tensor | None]]:
    """Lowers one node alone, for tests: constants of `node.inputs` become ConstantBuffers, the others graph inputs.

    Returns the program (steps and tensors), the output tensors and the input tensors.
    """
    program = Program("test")
    builder = Builder(program, counter())
    inputs: list[Tensor | None] = []
    for index, value in enumerate(node.inputs):
        if value is None:
            inputs.append(None)
        elif value.constant is not None:
            inputs.append(builder.new_constant(f"c{index}", value))
        else:
            tensor = builder.new_variable(f"x{index}", value, Role.INPUT)
            program.inputs.append(tensor)
            inputs.append(tensor)
    context = Context(builder, node, inputs, operator.infer(node))
    operator.lower(node, context)
    outputs = context.finish()
    return program, outputs, inputs
