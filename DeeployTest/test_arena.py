"""The allocator of offsets: no overlaps, aligned, deterministic, near the lower bound, bounded."""

from __future__ import annotations

import itertools
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Deeploy.plan.arena import Request, allocate, lower_bound

requests = st.lists(
    st.builds(
        lambda first, length, size, alignment: Request(first, first + length, size, alignment),
        st.integers(0, 12),
        st.integers(0, 6),
        st.integers(0, 300),
        st.sampled_from([1, 4, 8, 16]),
    ),
    max_size=14,
)


@settings(max_examples=150, deadline=None)
@given(requests)
def test_blocks_alive_at_once_do_not_overlap(wanted):
    layout = allocate(wanted, effort=2000)
    assert len(layout.offsets) == len(wanted)
    for request, offset in zip(wanted, layout.offsets, strict=True):
        assert offset >= 0 and offset % request.alignment == 0 and offset + request.size <= layout.size
    for (a, x), (b, y) in itertools.combinations(zip(wanted, layout.offsets, strict=True), 2):
        if a.first <= b.last and b.first <= a.last:
            assert x + a.size <= y or y + b.size <= x or a.size == 0 or b.size == 0
    assert layout.bound <= layout.size or not wanted


@settings(max_examples=50, deadline=None)
@given(requests)
def test_the_bound_is_the_fullest_moment(wanted):
    fullest = max((sum(r.size for r in wanted if r.first <= t <= r.last) for t in range(20)), default=0)
    assert lower_bound(wanted) == fullest


@pytest.mark.parametrize("count", [5, 30, 120, 300])
def test_random_arenas_are_within_five_percent(count):
    dice = random.Random(count)
    wanted = []
    for _ in range(count):
        first = dice.randrange(count)
        last = min(count - 1, first + dice.choice([1, 1, 1, 2, 3, 10]))
        wanted.append(Request(first, last, dice.choice([64, 100, 1000, 5000, dice.randrange(1, 20_000)])))
    begin = time.process_time()
    layout = allocate(wanted)
    assert layout.size <= 1.05 * layout.bound
    assert time.process_time() - begin < 2
    assert allocate(wanted) == layout


def test_a_search_is_needed_and_found():
    # first fit by size, area, length or start leaves gaps here
    dice = random.Random(3)
    wanted = [Request(f := dice.randrange(30), f + dice.randrange(1, 9), dice.randrange(1, 100) * 4) for _ in range(60)]
    assert allocate(wanted).size <= 1.01 * lower_bound(wanted)


def test_it_stops_where_enough_is_asked():
    wanted = [Request(i, i + 2, 100 + 7 * i) for i in range(40)]
    layout = allocate(wanted, enough=10**9)
    assert layout.size >= layout.bound


def test_nothing_to_place():
    assert allocate([]).size == 0 and allocate([]).bound == 0
