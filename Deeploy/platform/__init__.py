"""Platforms: chips as data, read from Targets/platforms/*.toml."""

from Deeploy.platform.reader import Costs, Dma, LevelSpec, Platform, load, names, read, targets_dir

__all__ = ["Costs", "Dma", "LevelSpec", "Platform", "load", "names", "read", "targets_dir"]
