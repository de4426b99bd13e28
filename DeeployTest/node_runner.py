"""Tests of single operators: builds a node from arrays, lowers it, and runs its steps on the C kernels under random tilings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import Deeploy.operators.conv  # noqa: F401
import Deeploy.operators.gemm  # noqa: F401
import Deeploy.operators.pooling  # noqa: F401
from Deeploy.lower.context import Builder, Context, counter, lower_node
from Deeploy.operators.base import DOMAIN, Node, Operator, Value, find
from Deeploy.program import dtypes
from Deeploy.program.program import Program
from Deeploy.program.tensor import Role, Tensor
from DeeployTest.step_interpreter import Memory, random_tiling, run_step


def value_of(array: np.ndarray | None, constant: bool) -> Value | None:
    """What the compiler would know of the array: everything, or its type and its range."""
    if array is None:
        return None
    dtype = dtypes.from_numpy(array.dtype)
    known = Value.of(array, dtype)
    return known if constant else Value(known.shape, dtype, known.lo, known.hi)


def make_node(
    op: str,
    inputs: Sequence[np.ndarray | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    constants: Sequence[int] = (),
    outputs: int = 1,
    integers: bool = False,
) -> tuple[Operator, Node]:
    """The node of that operator (ours for merged names) on those inputs; `constants`: slots known at compile time."""
    domain = DOMAIN if op.startswith("Requantized") else ""
    operator = find(op, domain)
    assert operator is not None, op
    values = tuple(value_of(a, i in constants) for i, a in enumerate(inputs))
    node = Node("node", op, domain, dict(attributes or {}), values, tuple(f"y{i}" for i in range(outputs)), integers)
    return operator, node


def lowered(operator: Operator, node: Node) -> tuple[Program, list, list]:
    problems = operator.problems(node)
    assert not problems, "\n".join(map(str, problems))
    return lower_node(operator, node)


def run_node(
    operator: Operator, node: Node, inputs: Sequence[np.ndarray | None], rng: np.random.Generator | None, cores: int = 1
) -> list[np.ndarray]:
    """The outputs of the C kernels; a random tiling per step if there is a generator, else none."""
    program, outputs, tensors = lowered(operator, node)
    return _run(program, outputs, tensors, inputs, rng, cores)


def run_on_views(
    operator: Operator,
    node: Node,
    inputs: Sequence[np.ndarray | None],
    orders: Mapping[int, Sequence[int]],
    rng: np.random.Generator,
    cores: int = 1,
) -> list[np.ndarray]:
    """The same with inputs that are views: input i lies in memory with its axes in the order orders[i], outermost first, and inside of a
    larger tensor, so that no axis is dense."""
    program = Program("test")
    builder = Builder(program, counter())
    tensors: list[Tensor | None] = []
    for index, value in enumerate(node.inputs):
        if value is None:
            tensors.append(None)
            continue
        order = list(orders.get(index, range(value.rank)))
        whole = tuple(value.shape[axis] + (index in orders) for axis in order)
        if value.constant is not None:
            stored = np.zeros(whole, value.constant.dtype)
            stored[tuple(slice(0, value.shape[axis]) for axis in order)] = value.constant.transpose(order)
            base: Tensor = builder.new_constant(f"c{index}", Value.of(stored, value.dtype), literal=False)
        else:
            base = builder.new_variable(f"x{index}", Value(whole, value.dtype, value.lo, value.hi), Role.INPUT)
        strides = tuple(base.strides[order.index(axis)] for axis in range(value.rank))
        view = builder.view_of(f"v{index}", base, value.shape, strides, 0)
        tensors.append(view)
        if value.constant is None:
            program.inputs.append(view)  # type: ignore[arg-type]
    context = Context(builder, node, tensors, operator.infer(node))
    operator.lower(node, context)
    return _run(program, context.finish(), tensors, inputs, rng, cores)


def _run(
    program: Program,
    outputs: Sequence[Tensor],
    tensors: Sequence[Tensor | None],
    inputs: Sequence[np.ndarray | None],
    rng: np.random.Generator | None,
    cores: int,
) -> list[np.ndarray]:
    memory = Memory()
    for tensor, array in zip(tensors, inputs, strict=True):
        if tensor is not None and array is not None and tensor in program.inputs:
            memory.put(tensor, array)
    for step in program.steps:
        tiles, order = random_tiling(step, rng) if rng is not None else (None, None)
        run_step(step, memory, tiles, cores, order)
    return [memory.get(t) for t in outputs]


def check_node(
    op: str,
    inputs: Sequence[np.ndarray | None],
    attributes: Mapping[str, Any] | None,
    expected: Sequence[np.ndarray],
    *,
    constants: Sequence[int] = (),
    integers: bool = False,
    seed: int = 0,
    tilings: int = 3,
    rtol: float = 1e-5,
    atol: float = 1e-5,
) -> Program:
    """Compares types, shapes, ranges and values of `infer`, of the reference and of the kernels with `expected`.

    Integers must be equal. Floats must be near, and bit-identical under every tiling.
    """
    operator, node = make_node(op, inputs, attributes, constants=constants, outputs=len(expected), integers=integers)
    assert not (found := operator.problems(node)), "\n".join(map(str, found))
    values = operator.infer(node)
    rng = np.random.default_rng(seed)
    untiled = run_node(operator, node, inputs, None)
    runs = [operator.reference(node, inputs), untiled]
    runs += [run_node(operator, node, inputs, rng, int(rng.integers(1, 9))) for _ in range(tilings)]
    for number, run in enumerate(runs):
        for value, got, want in zip(values, run, expected, strict=True):
            assert got.shape == value.shape == want.shape, (got.shape, value.shape, want.shape)
            assert got.dtype == value.dtype.numpy, (got.dtype, value.dtype)
            if value.dtype.is_float:
                np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=f"run {number}")
            else:
                np.testing.assert_array_equal(got, want, err_msg=f"run {number}")
                assert value.lo is not None and value.hi is not None
                assert got.size == 0 or (value.lo <= got.min() and got.max() <= value.hi), (value, got.min(), got.max())
    for run in runs[2:]:
        for got, want in zip(run, untiled, strict=True):
            np.testing.assert_array_equal(got, want, err_msg="the tiling changes the result")
    return lower_node(operator, node)[0]


def with_onnxruntime(
    op: str, inputs: Sequence[np.ndarray | None], attributes: Mapping[str, Any], outputs: int = 1, opset: int = 19
) -> list[np.ndarray]:
    """The outputs that onnxruntime computes."""
    import onnx
    import onnxruntime
    from onnx import helper

    names = ["" if a is None else f"x{i}" for i, a in enumerate(inputs)]
    while names and not names[-1]:
        names.pop()
    graph = helper.make_graph(
        [helper.make_node(op, names, [f"y{i}" for i in range(outputs)], **attributes)],
        "g",
        [
            helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for i, a in enumerate(inputs)
            if a is not None
        ],
        [onnx.ValueInfoProto(name=f"y{i}") for i in range(outputs)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {f"x{i}": a for i, a in enumerate(inputs) if a is not None})
