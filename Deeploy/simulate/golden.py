"""What a run must give: the script of main.c, and the arrays that its calls and the state at the end are compared with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from Deeploy.emit import Script
from Deeploy.simulate.compare import Tolerance


@dataclass(frozen=True)
class Expected:
    """What an output of one call must be. tolerance: None takes the general one."""

    call: int
    output: int
    array: np.ndarray
    tolerance: Tolerance | None = None


@dataclass(frozen=True)
class ExpectedState:
    """What a state of the project must be at the end, by its ONNX name."""

    name: str
    array: np.ndarray
    tolerance: Tolerance | None = None


@dataclass(frozen=True)
class Golden:
    """What main.c does, what must come out, and who says so."""

    script: Script
    outputs: tuple[Expected, ...]
    state: tuple[ExpectedState, ...]
    source: str
