"""Dynamic dimensions of graph inputs: refused by name, or fixed from the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from Deeploy.errors import Problem, UsageError
from Deeploy.frontend.source import Declared


def fix_dims(
    inputs: Sequence[Declared], dims: Mapping[str, int], stored: Sequence[tuple[int, ...] | None]
) -> tuple[list[tuple[int, ...] | None], list[Problem], list[str]]:
    """The shape of every input (None if a dimension is not known), the problems, and notes.

    dims:   by the dimension's name (for every input that has it) or INPUT:AXIS (for one).
    stored: per input the shape in the stored inputs, which the messages propose.

    A dimension that the file gives as 0, -1, a name or not at all is dynamic. Raises UsageError if `dims` names something that the model
    does not have, or contradicts it.
    """
    used: set[str] = set()
    shapes: list[tuple[int, ...] | None] = []
    problems: list[Problem] = []
    notes: list[str] = []
    for declared, example in zip(inputs, stored, strict=True):
        wanted = _declared_dims(declared, dims)
        shape: list[int] = []
        if wanted is None:
            problems.append(_unknown_rank(declared, example))
        for axis, dim in enumerate(wanted or ()):
            key = f"{declared.name}:{axis}"
            if isinstance(dim, int):
                if dims.get(key, dim) != dim:
                    raise UsageError(Problem(f"--dim {key}={dims[key]}: dimension {axis} of input '{declared.name}' is {dim} in the model"))
                shape.append(dim)
                used.add(key)
                continue
            name = key if key in dims or not dim else dim
            if name in dims:
                used.update((name, dim or key))
                shape.append(dims[name])
                notes.append(f"input '{declared.name}': dimension {axis}{f' ({dim})' if dim else ''} is {dims[name]}, from --dim")
            else:
                proposal = str(example[axis]) if example is not None and len(example) == len(wanted or ()) else "N"
                problems.append(_dynamic(declared, axis, dim, proposal))
        shapes.append(tuple(shape) if wanted is not None and len(shape) == len(wanted) else None)
    _check_dims(inputs, dims, used)
    return shapes, problems, notes


def _declared_dims(declared: Declared, dims: Mapping[str, int]) -> tuple[int | str | None, ...] | None:
    """The dimensions that the file declares; if it declares none, those given as INPUT:0, INPUT:1, ..."""
    if declared.dims is not None:
        return declared.dims
    rank = 0
    while f"{declared.name}:{rank}" in dims:
        rank += 1
    return (None,) * rank if rank else None


def _dynamic(declared: Declared, axis: int, dim: str | int | None, proposal: str) -> Problem:
    called = f" ('{dim}')" if dim else ""
    return Problem(
        f"dimension {axis}{called} of input '{declared.name}' has no fixed size",
        why="all sizes must be known when code is generated",
        remedy=f"give it: --dim {dim or f'{declared.name}:{axis}'}={proposal}",
    )


def _unknown_rank(declared: Declared, example: tuple[int, ...] | None) -> Problem:
    sizes = example if example else ("N",)
    options = " ".join(f"--dim {declared.name}:{axis}={size}" for axis, size in enumerate(sizes))
    return Problem(
        f"input '{declared.name}' declares no shape",
        why="all sizes must be known when code is generated",
        remedy=f"give every dimension: {options}",
    )


def _check_dims(inputs: Sequence[Declared], dims: Mapping[str, int], used: set[str]) -> None:
    for name, size in dims.items():
        if size < 0:
            raise UsageError(Problem(f"--dim {name}={size}: a size cannot be negative"))
        if name not in used:
            free = [dim or f"{d.name}:{axis}" for d in inputs for axis, dim in enumerate(d.dims or ()) if not isinstance(dim, int)]
            known = f"the model's free dimensions are {', '.join(dict.fromkeys(free))}" if free else "the model has no free dimension"
            raise UsageError(Problem(f"--dim {name}={size}: no input has such a dimension", why=known))
