"""Tensors and the storages behind them.

A tensor is a typed, shaped view: (storage, offset, strides). A storage is bytes with a home. Liveness, placement, sharing and
every byte count are about storages; tensors only say how to read them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from Deeploy.platform.levels import Level as Level
from Deeploy.program.dtypes import DType


class Role(Enum):
    """What a storage is for."""

    CONSTANT = "constant"
    INPUT = "input"
    OUTPUT = "output"
    ACTIVATION = "activation"
    STATE = "state"


@dataclass(eq=False)
class Storage:
    """The bytes behind one or more tensors.

    size:      bytes, without padding.
    alignment: bytes; the strictest of the tensors on it.
    home:      level of the master copy; None until `plan` decides.
    content:   initial bytes (constants and initialised state), else None.
    members:   names of the tensors that share it (constants; for the report).
    """

    name: str
    size: int
    role: Role
    alignment: int = 4
    home: Level | None = None
    content: bytes | None = None
    members: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert self.content is None or len(self.content) == self.size, self.name


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a dense row-major tensor."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(1, shape[i + 1])
    return tuple(strides)


@dataclass(eq=False)
class Tensor:
    """A typed view of a storage.

    name:    unique in the program and a valid C identifier.
    source:  the ONNX name it stands for.
    shape:   logical (ONNX) axes and order.
    storage: the bytes.
    offset:  of the first element, in bytes.
    strides: per logical axis, in elements; 0 repeats one element (a splat, a broadcast).
    lo, hi:  proven value range of an integer tensor, None for floats.
    """

    name: str
    source: str
    shape: tuple[int, ...]
    dtype: DType
    storage: Storage
    offset: int = 0
    strides: tuple[int, ...] = ()
    lo: int | None = None
    hi: int | None = None

    def __post_init__(self) -> None:
        if not self.strides and self.shape:
            self.strides = dense_strides(self.shape)
        assert len(self.strides) == len(self.shape), self.name

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.size

    @property
    def is_dense(self) -> bool:
        """Row-major without gaps: axes of length 1 may have any stride."""
        return all(n == 1 or s == d for n, s, d in zip(self.shape, self.strides, dense_strides(self.shape), strict=True))


@dataclass(eq=False)
class VariableBuffer(Tensor):
    """A tensor that some step or the caller writes."""


@dataclass(eq=False)
class ConstantBuffer(Tensor):
    """A tensor whose bytes are known and never written: one per reader (node, slot).

    literal: the bytes of the one element of a scalar or a splat. Such a buffer is an immediate value of its step: its storage is
             empty (size 0) and nothing is stored for it at any level.
    reader:  "node:slot", for the report.
    """

    literal: bytes | None = None
    reader: str = ""

    def value(self) -> np.ndarray:
        """The values as an array of the tensor's shape (a read-only view where possible)."""
        if self.literal is not None:
            return np.broadcast_to(np.frombuffer(self.literal, self.dtype.numpy)[0], self.shape)
        assert self.storage.content is not None
        flat = np.frombuffer(self.storage.content, self.dtype.numpy, offset=self.offset)
        byte_strides = tuple(s * self.dtype.size for s in self.strides)
        return np.lib.stride_tricks.as_strided(flat, self.shape, byte_strides, writeable=False)
