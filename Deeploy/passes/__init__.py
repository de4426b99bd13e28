"""Graph to graph: the passes, one a file, in the order in which they run.

Every pass is `run(model) -> None`, checks use counts itself and leaves `model.values` true. `_duplicateConstants` is the last: after it
every (node, slot) that reads a constant has a constant of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from Deeploy.frontend.model import Model, infer
from Deeploy.passes import (
    batch_norm,
    constant_folding,
    dead_code,
    expand_constants,
    quant_dequant,
    requant_merge,
    requant_tables,
)
from Deeploy.passes.duplicate_constants import _duplicateConstants

PASSES: tuple[Callable[[Model], None], ...] = (
    expand_constants.run,  # only with --expand-constants
    dead_code.run,
    constant_folding.run,
    quant_dequant.run,
    batch_norm.run,
    requant_tables.run,
    requant_merge.run,
    dead_code.run,
    _duplicateConstants,
)


def run_all(model: Model, expand: bool = False) -> None:
    """Runs the list on the model, in place, and infers shapes, types and ranges again.

    expand: write out element-wise constants at their output's size first (--expand-constants).
    """
    for one in PASSES:
        if one is not expand_constants.run or expand:
            one(model)
    infer(model)
