"""Stored inputs and outputs of a model folder, checked and in storage types."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from Deeploy.errors import Problem, UsageError
from Deeploy.frontend.storage import whole_numbers
from Deeploy.operators.base import Value
from Deeploy.program import dtypes

if TYPE_CHECKING:
    from Deeploy.frontend.model import Model

INPUTS = "inputs.npz"
OUTPUTS = "outputs.npz"


def entries(path: Path, names: Sequence[str], *, missing_ok: bool = False) -> list[np.ndarray | None]:
    """One array per name: by name if the file has all names, else by position; surplus entries are ignored.

    missing_ok: a file with fewer entries gives None for the rest. Raises UsageError if the file cannot be read or has too few entries.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            if not hasattr(archive, "files"):
                raise UsageError(Problem(f"'{path.name}' is not an npz archive"))
            keys = list(names) if set(names) <= set(archive.files) else list(archive.files[: len(names)])
            arrays: list[np.ndarray | None] = [archive[key] for key in keys]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not an npz archive, or it is damaged"
        raise UsageError(Problem(f"'{path.name}' cannot be read", why=reason)) from error
    if len(arrays) < len(names):
        if not missing_ok:
            raise UsageError(Problem(f"'{path.name}' has {len(arrays)} entries, but the model needs {len(names)}: {', '.join(names)}"))
        arrays += [None] * (len(names) - len(arrays))
    return arrays


def load_inputs(folder: Path, model: Model) -> list[np.ndarray]:
    """The stored inputs in the order of model.graph.inputs and in their storage types. Raises UsageError."""
    arrays = entries(Path(folder) / INPUTS, model.input_names)
    values = [model.values[tensor.name] for tensor in model.graph.inputs]
    return [check_input(name, array, value) for name, array, value in zip(model.input_names, arrays, values, strict=True)]


def check_input(name: str, array: np.ndarray | None, value: Value) -> np.ndarray:
    """An input array in its storage type. Raises UsageError if shape, type or values do not go with it."""
    assert array is not None
    where = f"{INPUTS}: input '{name}'"
    if array.shape != value.shape:
        raise UsageError(Problem(f"{where} has shape {list(array.shape)}, the model needs {list(value.shape)}"))
    if array.dtype.kind not in "iufb":
        raise UsageError(Problem(f"{where} has type {array.dtype}, the model needs {value.dtype}"))
    if value.dtype.is_float:
        floats = _float32(array)
        if not np.array_equal(np.isinf(floats), np.isinf(array)):
            raise UsageError(Problem(f"{where} has values beyond the range of float32"))
        return floats.reshape(value.shape)
    whole = whole_numbers(array)
    if whole is None:
        raise UsageError(Problem(f"{where} is not made of whole numbers, the model needs {value.dtype}"))
    lo, hi = (int(whole.min()), int(whole.max())) if whole.size else (0, 0)
    if lo < value.dtype.lo or hi > value.dtype.hi:
        remedy = "" if value.dtype is dtypes.BOOL else f"give the input's type: --input-type {name}={dtypes.smallest_integer(lo, hi)}"
        raise UsageError(Problem(f"{where} has values from {lo} to {hi}, which do not fit {value.dtype}", remedy=remedy))
    return np.ascontiguousarray(whole, value.dtype.numpy).reshape(value.shape)


def _float32(array: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(array, np.float32, order="C")


def load_outputs(folder: Path, model: Model) -> list[np.ndarray]:
    """The stored outputs in the order of model.graph.outputs: the storage type where it holds them, else a wider one (a comparison then
    shows the difference). Raises UsageError if an entry is missing or has another number of elements."""
    arrays = entries(Path(folder) / OUTPUTS, model.output_names)
    result = []
    for name, array, tensor in zip(model.output_names, arrays, model.graph.outputs, strict=True):
        value = model.values[tensor.name]
        assert array is not None
        squeezed = tuple(n for n in array.shape if n != 1)
        if squeezed != tuple(n for n in value.shape if n != 1) or array.dtype.kind not in "iufb":
            what = f"{array.dtype} {list(array.shape)}"
            raise UsageError(Problem(f"{OUTPUTS}: output '{name}' is {what}, the model gives {value.dtype} {list(value.shape)}"))
        result.append(_golden(array.reshape(value.shape), value))
    return result


def _golden(array: np.ndarray, value: Value) -> np.ndarray:
    if value.dtype.is_float:
        return _float32(array).reshape(value.shape)
    whole = whole_numbers(array)
    if whole is None:
        return array
    fits = not whole.size or (value.dtype.lo <= int(whole.min()) and int(whole.max()) <= value.dtype.hi)
    return np.ascontiguousarray(whole, value.dtype.numpy).reshape(value.shape) if fits else whole
