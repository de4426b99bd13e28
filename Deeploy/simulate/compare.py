"""Comparing arrays with a golden: integers must be equal, floats within atol + rtol * |golden|."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ATOL = 1e-4
RTOL = 1e-5


@dataclass(frozen=True)
class Tolerance:
    """For floats. Absolute, and relative to the golden's magnitude."""

    atol: float = ATOL
    rtol: float = RTOL


@dataclass(frozen=True)
class Comparison:
    """One tensor against its golden: how many elements differ, by how much at most, and where first (flat index, -1 if nowhere)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    elements: int
    errors: int
    max_abs_error: float
    first: int = -1
    got: float = 0.0
    expected: float = 0.0

    def __str__(self) -> str:
        text = f"{self.name} {self.dtype}{list(self.shape)}: "
        if not self.errors:
            return text + ("equal" if self.max_abs_error == 0 else f"within tolerance, largest error {self.max_abs_error:.3g}")
        return text + (
            f"{self.errors} of {self.elements} elements differ, largest error {self.max_abs_error:.6g}, "
            f"first at {self.first}: {self.got:.9g} instead of {self.expected:.9g}"
        )


def compare(name: str, got: np.ndarray, expected: np.ndarray, tolerance: Tolerance) -> Comparison:
    """Compares by flat position. A golden of another shape but as many elements is taken (files differ in leading ones)."""
    shape, dtype = tuple(got.shape), str(got.dtype)
    a, b = got.reshape(-1), np.asarray(expected).reshape(-1)
    if a.size != b.size:
        return Comparison(name, dtype, shape, int(a.size), int(max(a.size, b.size)), float("inf"), 0)
    if got.dtype.kind == "f":
        x, y = a.astype(np.float64), b.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.abs(x - y)
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            bad = ~same & ~(difference <= tolerance.atol + tolerance.rtol * np.abs(y))
        difference = np.where(same, 0.0, difference)
    else:
        bad = np.asarray(a != b)
        difference = np.abs(a.astype(np.float64) - b.astype(np.float64))
    largest = float(np.max(difference, initial=0.0)) if difference.size else 0.0
    if np.isnan(difference).any():
        largest = float("nan")
    if not bad.any():
        return Comparison(name, dtype, shape, int(a.size), 0, largest)
    first = int(np.argmax(bad))
    return Comparison(name, dtype, shape, int(a.size), int(bad.sum()), largest, first, float(a[first]), float(b[first]))
