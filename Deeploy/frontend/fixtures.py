"""Stored inputs and outputs of a model folder, checked and in storage types."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from Deeploy.errors import Problem, UsageError
from Deeploy.frontend.storage import whole_numbers
from Deeploy.operators.base import Value
from Deeploy.program import dtypes

if TYPE_CHECKING:
    from Deeploy.frontend.model import Model

INPUTS = "inputs.npz"
OUTPUTS = "outputs.npz"
META = frozenset({"meta_data_size", "meta_n_batches", "meta_n_accum"})
"""Entries that make an archive that of a training graph: mini-batches that it holds, mini-batches to run (from the first again when they
are used up), and mini-batches per update."""
_BATCH = re.compile(r"mb\d+_|meta_")
"""Entries beside the inputs of the first mini-batch."""


def entries(path: Path, names: Sequence[str], *, missing_ok: bool = False, state: Collection[str] = ()) -> list[np.ndarray | None]:
    """One array per name: by name if the file has all names, or no others, else by position; surplus entries are ignored.

    state: names of state, which an archive may leave out by name, and that of a training graph does leave out (its accumulation buffers,
    which start at zero): None is given for them. missing_ok: a file with fewer entries gives None for the rest.

    Raises UsageError if the file cannot be read or has too few entries.
    """
    with _opened(path) as archive:
        training = set(archive.files) >= META
        keys = [key for key in archive.files if not (training and _BATCH.match(key))]
        if set(names) <= set(keys) or (set(keys) < set(names) and (missing_ok or set(names) - set(keys) <= set(state))):
            return [_entry(path, archive, key) if key in keys else None for key in names]
        wanted = [name for name in names if not (training and name in state)]
        if len(keys) < len(wanted) and not missing_ok:
            raise UsageError(Problem(f"'{path.name}' has {len(keys)} entries, but the model needs {len(wanted)}: {', '.join(wanted)}"))
        found = {name: _entry(path, archive, key) for name, key in zip(wanted, keys, strict=False)}
        return [found.get(name) for name in names]


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an archive. Raises UsageError if it cannot be read."""
    with _opened(path) as archive:
        return {key: _entry(path, archive, key) for key in archive.files}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The archive. Raises UsageError if it cannot be read, also for what is read from it inside."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            if not hasattr(archive, "files"):
                raise UsageError(Problem(f"'{path.name}' is not an npz archive"))
            yield archive
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        raise _unreadable(path, error) from error


def _entry(path: Path, archive: Any, key: str) -> np.ndarray:
    try:
        return archive[key]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        raise _unreadable(path, error) from error


def _count(path: Path, archive: Any, key: str) -> int:
    array = np.ravel(_entry(path, archive, key))
    if array.size != 1 or array.dtype.kind not in "iu" or array[0] < 1:
        raise UsageError(Problem(f"'{path.name}': {key} is not a whole number that is at least 1"))
    return int(array[0])


def _unreadable(path: Path, error: Exception) -> UsageError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not an npz archive, or it is damaged"
    return UsageError(Problem(f"'{path.name}' cannot be read", why=reason))


@dataclass(frozen=True)
class MiniBatches:
    """The mini-batches of a training graph. data: per mini-batch the arrays of the inputs that change, by name, in storage types;
    per_update: mini-batches per optimizer step."""

    data: tuple[dict[str, np.ndarray], ...]
    per_update: int


def mini_batches(folder: Path, model: Model) -> MiniBatches | None:
    """The mini-batches stored beside a model; None if it is no folder or its archive is not a training graph's. Raises UsageError."""
    path = Path(folder) / INPUTS
    if not path.is_file():
        return None
    with _opened(path) as archive:
        if not set(archive.files) >= META:
            return None
        size, count, per_update = (_count(path, archive, f"meta_{name}") for name in ("data_size", "n_batches", "n_accum"))
        keys = [key for key in archive.files if not _BATCH.match(key)]
        wanted_names = [name for name in model.input_names if name not in model.updated]
        by_name = set(keys) <= set(model.input_names)
        given = {key: key for key in keys} if by_name else dict(zip(keys, wanted_names, strict=False))
        later = {match[1] for key in archive.files if (match := re.match(r"mb\d+_(.*)", key))}
        changing = [key for key in keys if key in later]
        wanted = [{key: key if batch == 0 else f"mb{batch}_{key}" for key in changing} for batch in range(size)]
        missing = [key for batch in wanted for key in batch.values() if key not in archive.files]
        missing += sorted(later - set(keys))
        if missing:
            raise UsageError(Problem(f"'{path.name}' does not hold {size} mini-batches", f"missing: {', '.join(missing[:4])}"))
        data = []
        for batch in range(count):
            arrays = {given[k]: _entry(path, archive, key) for k, key in wanted[batch % size].items()}
            data.append({name: check_input(name, array, model.values[name]) for name, array in arrays.items()})
        return MiniBatches(tuple(data), per_update)


def load_inputs(folder: Path, model: Model) -> dict[str, np.ndarray]:
    """The stored inputs by name, in their storage types: all of model.graph.inputs, and first values of state that the archive has.

    Raises UsageError.
    """
    bound = [s.variable.name for s in model.state]
    training = mini_batches(folder, model) is not None
    arrays = entries(Path(folder) / INPUTS, model.input_names, state=model.updated if training else bound)
    return {
        name: check_input(name, array, model.values[name])
        for name, array in zip(model.input_names, arrays, strict=True)
        if array is not None
    }


def check_input(name: str, array: np.ndarray, value: Value) -> np.ndarray:
    """An input array in its storage type. Raises UsageError if shape, type or values do not go with it."""
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
