"""Reads the trace that an observed project writes (Observe.c): the variables before and after each step.

The file is 8 bytes "DPTRACE1", then records of five little-endian uint32 (round from 1, step, phase, tensor, bytes) followed by the
tensor's dense row-major data. phase: 0 before the step (what it reads), 1 after it (what it wrote); tensor: index in the
manifest's tensors, those of all programs in a row. A round is a run of a program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from Deeploy.emit.manifest import Manifest, TensorEntry
from Deeploy.errors import Problem, RunError

MAGIC = b"DPTRACE1"
HEAD = np.dtype("<u4")


@dataclass(frozen=True)
class Record:
    """One tensor at one moment. step: index among the steps of all programs; after: False before the step, True after it."""

    round: int
    step: int
    after: bool
    tensor: TensorEntry
    value: np.ndarray


@dataclass
class StepTrace:
    """What one run of one step read and wrote, by tensor name."""

    round: int
    step: int
    reads: dict[str, np.ndarray]
    writes: dict[str, np.ndarray]


def read_trace(path: Path, manifest: Manifest) -> Iterator[Record]:
    """All records in order. Raises RunError if the file is missing, cut short or not of this program."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(Problem(f"the program has left no trace '{path.name}'", error.strerror or str(error))) from None
    tensors = [t for program in manifest.programs for t in program.tensors]
    if data[: len(MAGIC)] != MAGIC:
        raise RunError(f"'{path.name}' is no trace")
    at = len(MAGIC)
    while at < len(data):
        head = np.frombuffer(data[at : at + 20], HEAD)
        at += 20
        if head.size != 5 or head[3] >= len(tensors) or at + int(head[4]) > len(data):
            raise RunError(f"the trace '{path.name}' is cut short or damaged")
        number, step, phase, index, size = (int(v) for v in head)
        tensor = tensors[index]
        dtype = np.dtype(tensor.dtype).newbyteorder("<")
        value = np.frombuffer(data[at : at + size], dtype)
        at += size
        if value.size != int(np.prod(tensor.shape, dtype=np.int64)):
            raise RunError(f"the trace '{path.name}' is of another program")
        yield Record(number, step, phase == 1, tensor, value.reshape(tensor.shape))


def step_traces(path: Path, manifest: Manifest) -> Iterator[StepTrace]:
    """The records put together per run of a step. Raises as `read_trace`."""
    current: StepTrace | None = None
    for record in read_trace(path, manifest):
        if current is None or (record.round, record.step) != (current.round, current.step):
            if current is not None:
                yield current
            current = StepTrace(record.round, record.step, {}, {})
        (current.writes if record.after else current.reads)[record.tensor.name] = record.value
    if current is not None:
        yield current
