"""The memory levels that every platform has."""

from __future__ import annotations

from enum import Enum


class Level(Enum):
    """A memory level. The order of the members is the distance from the cores."""

    L1 = 1
    L2 = 2
    L3 = 3
