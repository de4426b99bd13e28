"""TensorProto -> numpy: raw and typed fields, external data with offset and length, and the types that no kernel can hold."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, numpy_helper

from Deeploy.errors import Problem
from Deeploy.program.dtypes import ONNX_OTHER_FLOATS, ONNX_TYPES

if TYPE_CHECKING:
    pass

LARGEST_TENSOR = 1 << 30
"""Bytes of a constant beyond which a model is refused: no target has that much memory."""


class TensorError(Exception):
    """A tensor cannot be read; the text is the fact, without the tensor's name."""


def type_name(elem_type: int) -> str:
    """The ONNX name of an element type in lower case ("float16"), "an undefined type" for an unknown number."""
    try:
        return TensorProto.DataType.Name(elem_type).lower()
    except ValueError:
        return f"an unknown type ({elem_type})"


@dataclass
class TensorReader:
    """Reads the tensors of one model file.

    folder:    where external data is looked for.
    digest:    a hashlib object that is fed with the external data, in the order of reading.
    converted: "name (type)" of tensors that were converted to float32.
    """

    folder: Path
    digest: Any
    converted: list[str] = field(default_factory=list)

    def array(self, tensor: Any) -> np.ndarray:
        """The values: a read-only, contiguous array of a storage type; float16, bfloat16 and double become float32.

        Raises TensorError.
        """
        kind = tensor.data_type
        if kind not in ONNX_TYPES and kind not in ONNX_OTHER_FLOATS:
            raise TensorError(f"element type {type_name(kind)} is not supported")
        if any(d < 0 for d in tensor.dims):
            raise TensorError(f"a dimension is negative: {list(tensor.dims)}")
        array = self._external(tensor) if tensor.data_location == TensorProto.EXTERNAL else self._inline(tensor)
        if kind in ONNX_OTHER_FLOATS:
            array = self._as_float32(tensor, array)
        array = np.asarray(array, order="C")
        if array.flags.writeable:
            array.flags.writeable = False
        return array

    def _as_float32(self, tensor: Any, array: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            result = array.astype(np.float32)
        if tensor.data_type == TensorProto.DOUBLE and np.isinf(result).any() and not np.isinf(array).any():
            raise TensorError("it has values beyond the range of float32")
        self.converted.append(f"'{tensor.name}' ({type_name(tensor.data_type)})")
        return result

    @staticmethod
    def _inline(tensor: Any) -> np.ndarray:
        try:
            array = numpy_helper.to_array(tensor)
        except Exception as error:  # numpy, onnx and ml_dtypes raise half a dozen types for the one fact that the data is malformed
            raise TensorError(f"its data does not match its shape {list(tensor.dims)} ({error})") from error
        if array.shape != tuple(tensor.dims):
            raise TensorError(f"its data does not match its shape {list(tensor.dims)}")
        return array

    def _external(self, tensor: Any) -> np.ndarray:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if not location:
            raise TensorError("it names no file for its external data")
        path = Path(os.path.normpath(self.folder / location))
        if os.path.isabs(location) or not path.is_relative_to(os.path.normpath(self.folder)):
            raise TensorError(f"its external data '{location}' lies outside the model's folder")
        dtype = _file_dtype(tensor.data_type)
        size = int(np.prod(tensor.dims, dtype=object)) * dtype.itemsize if tensor.dims else dtype.itemsize
        try:
            offset, length = int(entries.get("offset") or 0), int(entries.get("length") or size)
        except ValueError as error:
            raise TensorError("offset or length of its external data is not a number") from error
        if offset < 0:
            raise TensorError(f"the offset of its external data is negative ({offset})")
        if length != size:
            raise TensorError(f"its external data has {length} bytes where its shape {list(tensor.dims)} needs {size}")
        if size > LARGEST_TENSOR:
            raise TensorError(f"it has {size} bytes, more than any target can hold")
        return self._region(path, location, offset, size, dtype).reshape(tuple(tensor.dims))

    def _region(self, path: Path, location: str, offset: int, size: int, dtype: np.dtype) -> np.ndarray:
        try:
            with path.open("rb") as file:
                available = os.fstat(file.fileno()).st_size
                if offset + size > available:
                    raise TensorError(
                        f"its external data '{location}' ends at byte {available}, but bytes {offset} to {offset + size} are needed"
                    )
                file.seek(offset)
                raw = file.read(size)
        except OSError as error:
            raise TensorError(f"its external data '{location}' cannot be read ({error.strerror or error})") from error
        self.digest.update(raw)
        return np.frombuffer(raw, dtype)


def _file_dtype(elem_type: int) -> np.dtype:
    """The little-endian numpy type of raw data."""
    from onnx.helper import tensor_dtype_to_np_dtype

    dtype = np.dtype(tensor_dtype_to_np_dtype(elem_type))
    return dtype.newbyteorder("<") if dtype.kind in "iuf" else dtype


def constant_attribute(attribute: Any, reader: TensorReader) -> np.ndarray:
    """The value of a Constant node's attribute, in any of its forms. Raises TensorError."""
    name = attribute.name
    if name == "value":
        return reader.array(attribute.t)
    if name == "value_float":
        return np.asarray(attribute.f, np.float32)
    if name == "value_floats":
        return np.asarray(list(attribute.floats), np.float32)
    if name == "value_int":
        return np.asarray(attribute.i, np.int64)
    if name == "value_ints":
        return np.asarray(list(attribute.ints), np.int64)
    raise TensorError(f"a constant given as '{name}' is not supported")


def tensor_problem(name: str, error: TensorError, node: str = "", operator: str = "") -> Problem:
    """The problem for a tensor that cannot be read."""
    text = str(error)
    remedy = "keep the data file beside the model, under the name that the model gives" if "external data" in text else ""
    return Problem(f"constant '{name}' cannot be used: {text}", remedy=remedy, node=node, operator=operator)
