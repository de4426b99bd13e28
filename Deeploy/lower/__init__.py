"""Graph to program: operators become steps, in topological order; views stay views."""

from Deeploy.lower.driver import Store, lower

__all__ = ["Store", "lower"]
