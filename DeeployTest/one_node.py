"""Runs one operator on numpy arrays: its declaration, its lowering and its C kernels under random tilings and core counts.

The results of all tilings must be the same bytes; the caller compares them with an oracle of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import Deeploy.operators.batch_norm_training
import Deeploy.operators.gather
import Deeploy.operators.integer_norms
import Deeploy.operators.losses
import Deeploy.operators.normalization
import Deeploy.operators.padding
import Deeploy.operators.pool_grad
import Deeploy.operators.pooling
import Deeploy.operators.reduction
import Deeploy.operators.shape_ops
import Deeploy.operators.slicing
import Deeploy.operators.softmax
import Deeploy.operators.training_state  # noqa: F401
from Deeploy.errors import ModelError
from Deeploy.lower.context import Builder, Context, counter
from Deeploy.operators.base import Node, Value, find
from Deeploy.program.dtypes import from_numpy
from Deeploy.program.program import Program
from Deeploy.program.tensor import Role, Storage, Tensor, VariableBuffer, dense_strides
from Deeploy.program.verify import verify
from DeeployTest.step_interpreter import Memory, random_tiling, run_step


@dataclass
class Result:
    """What a node gave: arrays of the device, of the reference, the values that `infer` says, the program and its output tensors."""

    device: list[np.ndarray]
    reference: list[np.ndarray]
    values: list[Value]
    program: Program
    tensors: list[Tensor]


@dataclass(frozen=True)
class Case:
    """One node.

    constants: slots known at compile time. layouts: per slot the order of its dimensions in memory (a transposed view). ranges: per slot a
    proven range wider than the data's own. absent: outputs that the node leaves out.
    """

    op: str
    inputs: Sequence[np.ndarray | None]
    attributes: Mapping[str, Any]
    outputs: int = 1
    constants: frozenset[int] = frozenset()
    layouts: Mapping[int, Sequence[int]] | None = None
    ranges: Mapping[int, tuple[int, int]] | None = None
    integers: bool = False
    absent: frozenset[int] = frozenset()

    def value(self, slot: int, array: np.ndarray | None) -> Value | None:
        if array is None:
            return None
        dtype = from_numpy(array.dtype)
        if slot in self.constants:
            return Value.of(array, dtype)
        lo, hi = (None, None) if dtype.is_float else (self.ranges or {}).get(slot, (dtype.lo, dtype.hi))
        return Value(array.shape, dtype, lo, hi)

    def node(self) -> Node:
        values = tuple(self.value(slot, array) for slot, array in enumerate(self.inputs))
        names = tuple("" if i in self.absent else f"y{i}" for i in range(self.outputs))
        return Node("n", self.op, "", self.attributes, values, names, self.integers)


def run(case: Case, trials: int = 3, seed: int = 0) -> Result:
    """Runs the node. Raises ModelError if the operator refuses it.

    Every trial starts from fresh inputs. An output that is an input updated in place is read from that input's storage; all other inputs
    must be as they were.
    """
    node, operator = case.node(), find(case.op, "")
    assert operator is not None, case.op
    if problems := operator.problems(node):
        raise ModelError(*problems)
    values = operator.infer(node)
    reference = operator.reference(node, case.inputs)
    for array, value in zip(reference, values, strict=False):
        assert array.shape == value.shape and array.dtype == value.dtype.numpy, (array.shape, array.dtype, value)
        if value.lo is not None and array.size:
            assert value.lo <= array.min() and array.max() <= value.hi, (value, array.min(), array.max())
    program, inputs, tensors = _lowered(case, node, operator, values)
    verify(program)
    updated = {id(inputs[slot].storage) for slot in operator.updates.values()}
    for index, slot in operator.updates.items():
        assert tensors[index].storage is inputs[slot].storage, f"output {index} is not input {slot}"
    rng, device = np.random.default_rng(seed), None
    for trial in range(trials):
        memory = Memory()
        for tensor, array in zip(inputs, case.inputs, strict=True):
            if isinstance(tensor, VariableBuffer):
                memory.put(tensor, array)
        for step in program.steps:
            tiles, order = random_tiling(step, rng) if trial else (None, None)
            run_step(step, memory, tiles, cores=int(rng.integers(1, 9)) if trial else 1, order=order)
        for tensor, array in zip(inputs, case.inputs, strict=True):
            if isinstance(tensor, VariableBuffer) and id(tensor.storage) not in updated:
                assert memory.get(tensor).tobytes() == np.asarray(array).tobytes(), f"{tensor.name} is not what it was"
        now = [memory.get(t) for t in tensors]
        if device is not None:
            for before, after in zip(device, now, strict=True):
                assert before.tobytes() == after.tobytes(), "the result depends on tiling or cores"
        device = now
    assert device is not None
    return Result(device, reference, values, program, tensors)


def _lowered(case: Case, node: Node, operator, values: Sequence[Value]):  # noqa: ANN001, ANN202
    program = Program("test")
    builder = Builder(program, counter())
    inputs: list[Tensor | None] = []
    for slot, value in enumerate(node.inputs):
        if value is None:
            inputs.append(None)
        elif value.constant is not None:
            inputs.append(builder.new_constant(f"c{slot}", value))
        elif case.layouts and slot in case.layouts:
            inputs.append(_laid_out(f"x{slot}", value, case.layouts[slot]))
            program.tensors.append(inputs[-1])
        else:
            inputs.append(builder.new_variable(f"x{slot}", value, Role.INPUT))
        if isinstance(inputs[-1], VariableBuffer):
            program.inputs.append(inputs[-1])
    context = Context(builder, node, inputs, values)
    operator.lower(node, context)
    return program, inputs, context.finish()


def _laid_out(name: str, value: Value, order: Sequence[int]) -> VariableBuffer:
    storage = Storage(name, value.elements * value.dtype.size, Role.INPUT)
    inner = dense_strides(tuple(value.shape[d] for d in order))
    strides = tuple(inner[list(order).index(d)] for d in range(value.rank))
    return VariableBuffer(name, name, value.shape, value.dtype, storage, 0, strides, value.lo, value.hi)


def refused(case: Case) -> str:
    """The text of the problems that the operator has with the node."""
    operator = find(case.op, "")
    assert operator is not None
    problems = operator.problems(case.node())
    assert problems, f"{case.op} was not refused"
    assert all(p.node and p.operator for p in problems)
    return "\n".join(map(str, problems))
