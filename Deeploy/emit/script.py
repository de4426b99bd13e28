"""What main.c does with the programs of a project: first values of state, then one call after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from Deeploy.errors import DefectError, Problem, UsageError
from Deeploy.program.program import Project
from Deeploy.program.tensor import Tensor, VariableBuffer


@dataclass(frozen=True)
class Call:
    """One run of a program. program: its index. inputs: arrays by ONNX name; an input without one keeps what an earlier call gave it, or is
    zero. outputs: indices of the outputs that are written to files; None: all."""

    program: int = 0
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    outputs: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Script:
    """state: first values, by ONNX name, of the state that the caller gives; without one it is zero. keep_state: whether all state is
    written to files at the end."""

    calls: tuple[Call, ...] = (Call(),)
    state: Mapping[str, np.ndarray] = field(default_factory=dict)
    keep_state: bool = False


@dataclass(frozen=True)
class CallFiles:
    """A call with the files that its inputs come from: per input of the program a file in hex/, "" for zeros."""

    program: int
    files: tuple[str, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class ScriptFiles:
    """The script as main.c knows it. state: a file per state of the project, "" for zeros or for the initial value that Init loads."""

    calls: tuple[CallFiles, ...]
    state: tuple[str, ...]
    contents: Mapping[str, bytes]


def project_state(project: Project) -> list[VariableBuffer]:
    """The state of all programs, each storage once: as its first program names it."""
    found: dict[int, VariableBuffer] = {}
    for program in project.programs:
        for tensor in program.state:
            found.setdefault(id(tensor.storage), tensor)
    return list(found.values())


def script_files(project: Project, script: Script) -> ScriptFiles:
    """Names a file for every array of the script. Raises UsageError for an array that does not fit its tensor."""
    contents: dict[str, bytes] = {}
    states = [_file(contents, t, _given(script.state, t), "") for t in project_state(project)]
    latest: dict[tuple[int, int], str] = {}
    calls = []
    for number, call in enumerate(script.calls):
        program = project.programs[call.program]
        for index, tensor in enumerate(program.inputs):
            array = _given(call.inputs, tensor)
            if array is not None:
                again = (call.program, index) in latest
                latest[call.program, index] = _file(contents, tensor, array, f"_{number}" if again else "")
        files = tuple(latest.get((call.program, i), "") for i in range(len(program.inputs)))
        outputs = tuple(range(len(program.outputs))) if call.outputs is None else call.outputs
        calls.append(CallFiles(call.program, files, outputs))
    return ScriptFiles(tuple(calls), tuple(states), contents)


def _given(arrays: Mapping[str, np.ndarray], tensor: Tensor) -> np.ndarray | None:
    return arrays.get(tensor.source, arrays.get(tensor.name))


def _file(contents: dict[str, bytes], tensor: Tensor, array: np.ndarray | None, suffix: str) -> str:
    if array is None:
        return ""
    kept = np.asarray(array).astype(tensor.dtype.numpy)
    if kept.size != tensor.elements or not np.array_equal(kept, array, equal_nan=tensor.dtype.is_float):
        raise UsageError(Problem(f"the stored input '{tensor.source}' does not fit {tensor.dtype} {list(tensor.shape)}"))
    name = f"input_{tensor.name}{suffix}.hex"
    if name in contents:
        raise DefectError(f"two contents for the file {name}")
    contents[name] = kept.tobytes()
    return name
