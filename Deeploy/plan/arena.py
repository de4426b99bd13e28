"""A deterministic allocator of offsets. It knows intervals and sizes, and nothing of tensors or steps.

First fit in several orders, then in orders in which whatever pokes out of the best arena so far is moved to the front, until the lower
bound is reached or the effort is used up.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

EFFORT = 800_000
"""Pairs of blocks that the search may look at for one arena; a quarter of it once the arena is within 1 % of the bound."""


@dataclass(frozen=True)
class Request:
    """Bytes needed from `first` to `last`, both inclusive."""

    first: int
    last: int
    size: int
    alignment: int = 4


@dataclass(frozen=True)
class Layout:
    """Offsets per request, the arena's size and the lower bound of it (the largest sum of bytes alive at once)."""

    offsets: tuple[int, ...]
    size: int
    bound: int


def lower_bound(requests: Sequence[Request]) -> int:
    """The largest sum of sizes alive at once."""
    events: dict[int, int] = {}
    for request in requests:
        events[request.first] = events.get(request.first, 0) + request.size
        events[request.last + 1] = events.get(request.last + 1, 0) - request.size
    most = current = 0
    for time in sorted(events):
        current += events[time]
        most = max(most, current)
    return most


def allocate(requests: Sequence[Request], enough: int | None = None, effort: int = EFFORT) -> Layout:
    """Places all requests. The search ends at the lower bound, or at `enough` bytes if that is more, or when `effort` is used up."""
    bound = lower_bound(requests)
    if not requests:
        return Layout((), 0, 0)
    # alignment may cost a few bytes between blocks: an arena without other gaps is good enough
    aligned = [Request(r.first, r.last, -(-r.size // r.alignment) * r.alignment) for r in requests]
    goal = max(lower_bound(aligned), enough or 0)
    near = _neighbours(requests)
    once = sum(len(n) + 1 for n in near)
    indices = range(len(requests))
    best_order: list[int] = []
    best: tuple[int, list[int]] | None = None
    for key in (_by_size, _by_area, _by_length, _by_start):
        keys = [key(r) for r in requests]
        order = sorted(indices, key=keys.__getitem__)
        found = _first_fit(requests, near, order)
        effort -= once
        if best is None or found[0] < best[0]:
            best, best_order = found, order
        if best[0] <= goal:
            break
    assert best is not None
    if best[0] <= 1.01 * goal:
        effort = min(effort, EFFORT // 4)
    dice = random.Random(len(requests))
    current, current_size, current_offsets = best_order, best[0], best[1]
    while best[0] > goal and effort > 0:
        order = _perturbed(requests, near, current, current_offsets, current_size, dice)
        size, offsets = _first_fit(requests, near, order)
        effort -= once
        # worse orders are accepted now and then, so that the search leaves a dead end
        if size <= current_size or dice.random() < 0.02:
            current, current_size, current_offsets = order, size, offsets
        if size < best[0]:
            best = (size, offsets)
    return Layout(tuple(best[1]), best[0], bound)


def _by_size(r: Request) -> tuple[int, ...]:
    return (-r.size, r.first)


def _by_area(r: Request) -> tuple[int, ...]:
    return (-r.size * (r.last - r.first + 1), r.first)


def _by_length(r: Request) -> tuple[int, ...]:
    return (r.first - r.last, -r.size)


def _by_start(r: Request) -> tuple[int, ...]:
    return (r.first, -r.size)


def _neighbours(requests: Sequence[Request]) -> list[list[int]]:
    """Per request those that are alive at the same time."""
    near: list[list[int]] = [[] for _ in requests]
    active: list[int] = []
    for i in sorted(range(len(requests)), key=lambda k: (requests[k].first, k)):
        active = [j for j in active if requests[j].last >= requests[i].first]
        for j in active:
            near[i].append(j)
            near[j].append(i)
        active.append(i)
    return near


def _first_fit(requests: Sequence[Request], near: list[list[int]], order: Sequence[int]) -> tuple[int, list[int]]:
    """Gives each request, in that order, the lowest offset that is free in its lifetime."""
    offsets = [-1] * len(requests)
    total = 0
    for i in order:
        size, alignment = requests[i].size, requests[i].alignment
        at = 0
        for begin, end in sorted((offsets[j], offsets[j] + requests[j].size) for j in near[i] if offsets[j] >= 0):
            if at + size <= begin:
                break
            if end > at:
                at = -(-end // alignment) * alignment
        offsets[i] = at
        total = max(total, at + size)
    return total, offsets


def _perturbed(
    requests: Sequence[Request], near: list[list[int]], order: list[int], offsets: list[int], size: int, dice: random.Random
) -> list[int]:
    """Moves a request at the top of the arena, or one that is alive with it, to a random place further ahead."""
    position = {i: p for p, i in enumerate(order)}
    top = [i for i in order if offsets[i] + requests[i].size == size]
    victim = dice.choice(top)
    if near[victim] and dice.random() < 0.5:
        victim = dice.choice(near[victim])
    changed = [i for i in order if i != victim]
    changed.insert(dice.randrange(0, position[victim] + 1), victim)
    return changed
