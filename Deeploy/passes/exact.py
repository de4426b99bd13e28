"""Arithmetic for constant folding that gives the same bytes on every machine.

numpy's matrix products come from a BLAS, and einsum uses fused multiply-adds where the processor has them; both decide the last bit.
Here only element-wise operations are used: IEEE multiplication and addition, one after the other, rounded to float32 once.
"""

from __future__ import annotations

import numpy as np


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of float arrays of rank >= 2 as numpy.matmul defines it, in float64: the sum over k in rising order."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    total = np.zeros((*batch, left.shape[-2], right.shape[-1]))
    for k in range(left.shape[-1]):
        total += left[..., :, k, None] * right[..., None, k, :]
    return total


def gemm(a: np.ndarray, b: np.ndarray, c: np.ndarray | None, alpha: float, beta: float, trans_a: bool, trans_b: bool) -> np.ndarray:
    """ONNX Gemm in float64."""
    product = alpha * matmul(a.T if trans_a else a, b.T if trans_b else b)
    return product if c is None or beta == 0 else product + beta * c.astype(np.float64)


def rounded(array: np.ndarray) -> np.ndarray:
    """Rounds float64 to float32, once; overflow gives infinity as on the device."""
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(np.float32)
