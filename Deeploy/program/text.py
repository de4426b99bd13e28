"""A program as readable text, for `--dump`."""

from __future__ import annotations

from collections.abc import Mapping

from Deeploy.program.program import Program
from Deeploy.program.step import Operand, Step
from Deeploy.program.tensor import ConstantBuffer, Tensor


def describe(program: Program, tiles: Mapping[int, str] | None = None) -> str:
    """The whole program: tensors, then steps with their axes, operands and calls. `tiles`: a line per step, by id."""
    lines = [f"program {program.name}", ""]
    for what, tensors in (("input", program.inputs), ("output", program.outputs), ("state", program.state)):
        lines += [f"{what:8} {_tensor(t)}" for t in tensors]
    lines.append("")
    lines += [f"tensor   {_tensor(t)}" for t in program.tensors]
    for step in program.steps:
        lines += ["", *_step(step)]
        if tiles and id(step) in tiles:
            lines.append(f"  tiles {tiles[id(step)]}")
    return "\n".join(lines) + "\n"


def _tensor(tensor: Tensor) -> str:
    where = f"{tensor.storage.name}+{tensor.offset}"
    if isinstance(tensor, ConstantBuffer) and tensor.literal is not None:
        where = f"literal {tensor.value().flat[0] if tensor.elements else ''}"
    home = f" home {tensor.storage.home.name}" if tensor.storage.home else ""
    bounds = "" if tensor.lo is None else f" in [{tensor.lo}, {tensor.hi}]"
    return f"{tensor.name}: {tensor.dtype}{list(tensor.shape)} strides {list(tensor.strides)} at {where}{home}{bounds} '{tensor.source}'"


def _step(step: Step) -> list[str]:
    axes = ", ".join(
        f"{a.name}={a.size}{'' if a.kind.value == 'parallel' else ' reduced'}{'' if a.tileable else ' whole'}" for a in step.axes
    )
    lines = [f"step     {step.name} ({step.operator} '{step.node}') over {axes}; {step.macs} MACs"]
    lines += [f"  {i}: {_operand(step, o)}" for i, o in enumerate(step.operands)]
    for call in step.calls:
        params = ", ".join(f"{p.name}={p.value}" for p in call.params)
        lines.append(f"  call {call.kernel.symbol}({', '.join(map(str, call.operands))}) {params}")
    return lines


def _operand(step: Step, operand: Operand) -> str:
    dims = []
    for d in operand.dims:
        terms = " + ".join(f"{c}*{step.axes[a].name}" if c != 1 else step.axes[a].name for a, c in d.terms) or "0"
        shift = f" {d.offset:+d}" if d.offset else ""
        window = f" window {d.window}" if d.window != 1 else ""
        dims.append(f"[{terms}{shift}{window} of {d.size} stride {d.stride}]")
    return f"{operand.access.value} {operand.tensor.name}+{operand.offset} {' '.join(dims)}"
