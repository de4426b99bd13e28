"""Sliding windows of convolutions and poolings: sizes, strides, dilations and padding of a node, with auto_pad resolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from Deeploy.errors import Problem
from Deeploy.operators.base import Node


@dataclass(frozen=True)
class WindowAxis:
    """One spatial axis: `size` of the input, `taps` of the window `dilation` apart, moved by `stride`; padding before and after."""

    size: int
    taps: int
    stride: int
    dilation: int
    before: int
    after: int
    output: int

    @property
    def extent(self) -> int:
        """Length of the dilated window."""
        return (self.taps - 1) * self.dilation + 1

    def inside(self, index: int, padded: bool = False) -> int:
        """Taps of output point `index` that lie inside the input (`padded`: inside the padded input)."""
        at = index * self.stride - self.before
        lo, hi = (-self.before, self.size + self.after) if padded else (0, self.size)
        return sum(lo <= at + k * self.dilation < hi for k in range(self.taps))

    @property
    def touches_padding(self) -> bool:
        return self.output > 0 and (self.before > 0 or (self.output - 1) * self.stride - self.before + self.extent > self.size)

    @property
    def has_empty(self) -> bool:
        """Whether some output point has only padding in its window."""
        return any(self.inside(i) == 0 for i in range(self.output))


IDENTITY = WindowAxis(1, 1, 1, 1, 0, 0, 1)
"""The height of a 1-D operation."""


@dataclass(frozen=True)
class Window:
    """The spatial axes of a node, one or two."""

    axes: tuple[WindowAxis, ...]

    @property
    def output(self) -> tuple[int, ...]:
        return tuple(a.output for a in self.axes)

    @property
    def height(self) -> WindowAxis:
        return self.axes[0] if len(self.axes) == 2 else IDENTITY

    @property
    def width(self) -> WindowAxis:
        return self.axes[-1]

    @property
    def touches_padding(self) -> bool:
        return any(a.touches_padding for a in self.axes)


def _output(size: int, extent: int, stride: int, before: int, after: int, ceil: bool) -> int:
    room = size + before + after - extent
    if room < 0:
        return 0
    count = (-(-room // stride) if ceil else room // stride) + 1
    # The last window must start inside the input or the padding before it.
    return count - 1 if ceil and (count - 1) * stride >= size + before else count


def window_of(node: Node, sizes: Sequence[int], kernel: Sequence[int], ceil: bool = False) -> Window:
    """The window of a node whose attributes `window_problems` has accepted."""
    rank = len(sizes)
    strides, dilations = node.ints("strides", (1,) * rank), node.ints("dilations", (1,) * rank)
    pads = node.ints("pads", (0,) * (2 * rank))
    mode = node.string("auto_pad", "NOTSET")
    axes = []
    for i, (size, taps) in enumerate(zip(sizes, kernel, strict=True)):
        stride, dilation = strides[i], dilations[i]
        extent = (taps - 1) * dilation + 1
        before, after, round_up = pads[i], pads[rank + i], ceil
        if mode.startswith("SAME"):
            total = max((-(-size // stride) - 1) * stride + extent - size, 0)
            before = total // 2 if mode == "SAME_UPPER" else total - total // 2
            after, round_up = total - before, False
        elif mode == "VALID":
            before = after = 0
            round_up = False
        axes.append(WindowAxis(size, taps, stride, dilation, before, after, _output(size, extent, stride, before, after, round_up)))
    return Window(tuple(axes))


def window_problems(node: Node, sizes: Sequence[int], kernel: Sequence[int], ceil: bool = False) -> list[Problem]:
    """What is wrong with or not supported of the window attributes."""
    rank = len(sizes)
    if rank not in (1, 2):
        return [node.problem(f"{rank} spatial axes are not supported", "kernels have one or two", "use a 1-D or 2-D operation")]
    for name, count in (("strides", rank), ("dilations", rank), ("pads", 2 * rank)):
        if node.has(name) and len(node.ints(name)) != count:
            return [node.problem(f"{len(node.ints(name))} numbers, but {count} are needed for {rank} spatial axes", attribute=name)]
    if len(kernel) != rank:
        return [node.problem(f"{len(kernel)} numbers, but the input has {rank} spatial axes", attribute="kernel_shape")]
    found = []
    for name, least in (("strides", 1), ("dilations", 1), ("pads", 0)):
        if node.has(name) and min(node.ints(name)) < least:
            found.append(node.problem(f"{min(node.ints(name))} is less than {least}", attribute=name))
    if min(kernel) < 1:
        found.append(node.problem("the window is empty", attribute="kernel_shape"))
    mode = node.string("auto_pad", "NOTSET")
    if mode not in ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"):
        remedy = "use NOTSET, SAME_UPPER, SAME_LOWER or VALID"
        found.append(node.problem(f"'{mode}' is no padding mode", remedy=remedy, attribute="auto_pad"))
    if not found and min(window_of(node, sizes, kernel, ceil).output) < 1:
        found.append(
            node.problem(
                f"the window {tuple(kernel)} does not fit into the padded input {tuple(sizes)}",
                "the output would be empty",
                "pad more or use a smaller window",
            )
        )
    return found


def padded(x: np.ndarray, window: Window, fill: float | int) -> np.ndarray:
    """x with its last axes padded so far that every window of every output point lies inside."""
    widths = [(0, 0)] * (x.ndim - len(window.axes))
    for axis in window.axes:
        last = (axis.output - 1) * axis.stride + axis.extent
        widths.append((axis.before, max(0, last - axis.before - axis.size)))
    return np.pad(x, widths, constant_values=fill)


def tap(x: np.ndarray, window: Window, index: Sequence[int]) -> np.ndarray:
    """The elements of `padded` x that tap `index` of the window sees, one per output point (last axes)."""
    cuts: list[Any] = [
        slice(k * a.dilation, k * a.dilation + (a.output - 1) * a.stride + 1, a.stride) for k, a in zip(index, window.axes, strict=True)
    ]
    return x[(..., *cuts)]
