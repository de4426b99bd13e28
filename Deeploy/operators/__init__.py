"""Everything the compiler knows of operators: one file per family, found by `load_all`."""

from __future__ import annotations

import importlib
import pkgutil

_NOT_FAMILIES = ("base", "lowering")


def load_all() -> None:
    """Imports every family, so that its operators are registered. Errors in a family are not hidden."""
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        if name not in _NOT_FAMILIES:
            importlib.import_module(f"{__name__}.{name}")
