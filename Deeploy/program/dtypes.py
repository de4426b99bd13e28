"""Element types of tensors: the C type, the size and the range of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np


class Kind(Enum):
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"
    BOOL = "bool"


@dataclass(frozen=True)
class DType:
    """An element type. `size` in bytes; `short` is the name used in kernel symbols (i8, u8, f32, ...)."""

    name: str
    ctype: str
    size: int
    kind: Kind
    short: str

    @property
    def numpy(self) -> np.dtype:
        return np.dtype(self.name)

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def is_integer(self) -> bool:
        return self.kind in (Kind.SIGNED, Kind.UNSIGNED)

    @property
    def lo(self) -> int:
        """Smallest value of an integer or boolean type."""
        if self.is_float:
            raise ValueError(f"{self.name} has no integer range")
        return -(1 << (8 * self.size - 1)) if self.kind is Kind.SIGNED else 0

    @property
    def hi(self) -> int:
        """Largest value of an integer or boolean type."""
        if self.is_float:
            raise ValueError(f"{self.name} has no integer range")
        if self.kind is Kind.BOOL:
            return 1
        return (1 << (8 * self.size - (1 if self.kind is Kind.SIGNED else 0))) - 1

    def __str__(self) -> str:
        return self.name


INT8 = DType("int8", "int8_t", 1, Kind.SIGNED, "i8")
UINT8 = DType("uint8", "uint8_t", 1, Kind.UNSIGNED, "u8")
INT16 = DType("int16", "int16_t", 2, Kind.SIGNED, "i16")
UINT16 = DType("uint16", "uint16_t", 2, Kind.UNSIGNED, "u16")
INT32 = DType("int32", "int32_t", 4, Kind.SIGNED, "i32")
UINT32 = DType("uint32", "uint32_t", 4, Kind.UNSIGNED, "u32")
INT64 = DType("int64", "int64_t", 8, Kind.SIGNED, "i64")
UINT64 = DType("uint64", "uint64_t", 8, Kind.UNSIGNED, "u64")
FLOAT32 = DType("float32", "float", 4, Kind.FLOAT, "f32")
BOOL = DType("bool", "uint8_t", 1, Kind.BOOL, "b8")

ALL = (INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT32, BOOL)
_BY_NAME = {d.name: d for d in ALL}

TYPE_CODES = {d: code for code, d in enumerate(ALL)}
"""Numbers of element types in the constant structs of kernels: DP_I8, DP_U8, ... in Targets/kernels/dp_types.h."""

ONNX_TYPES = {1: FLOAT32, 2: UINT8, 3: INT8, 4: UINT16, 5: INT16, 6: INT32, 7: INT64, 9: BOOL, 12: UINT32, 13: UINT64}
"""Element types by their numbers in ONNX (TensorProto.DataType)."""
ONNX_OTHER_FLOATS = {10: "float16", 11: "double", 16: "bfloat16"}
"""Names of the ONNX element types that stand for float32 where only the value counts (constants, integer networks), by number."""


def from_numpy(dtype: np.dtype | type) -> DType:
    """The type of a numpy array. Raises KeyError for a type that no kernel can hold (float64, float16, ...)."""
    return _BY_NAME[np.dtype(dtype).name]


def from_name(name: str) -> DType:
    """The type of that name. Raises KeyError."""
    return _BY_NAME[name]


def smallest_integer(lo: int, hi: int) -> DType:
    """The narrowest integer type that holds [lo, hi]; signed where both fit. Raises ValueError beyond 64 bits."""
    for candidate in (INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64):
        if candidate.lo <= lo and hi <= candidate.hi:
            return candidate
    raise ValueError(f"no integer type holds [{lo}, {hi}]")
