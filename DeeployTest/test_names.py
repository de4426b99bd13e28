"""C names: valid, unique even without case, short, deterministic."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from Deeploy.frontend.names import LONGEST, NameSet, c_names


def test_collisions_and_keywords() -> None:
    names = ["a.b", "a/b", "a_b", "A_b", "int", "class", "_x", "9", "", "größe", "t", "con", "x" * 80, "x" * 80 + "y"]
    result = c_names(names)
    assert list(result) == names
    assert result["a_b"] == "a_b"  # what is valid already is kept
    assert len({c.lower() for c in result.values()}) == len(names)
    for text in result.values():
        assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", text) and len(text) <= LONGEST
    assert not {"int", "class", "con"} & set(result.values())


def test_suffix_does_not_meet_a_literal_name() -> None:
    result = c_names(["x.", "x_1", "x", "x/"])
    assert result["x_1"] == "x_1" and result["x"] == "x"
    assert len(set(result.values())) == 4


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(alphabet="aAbB_./:09é ", max_size=60), max_size=30))
def test_always_valid_and_unique(names: list[str]) -> None:
    result = c_names(names)
    assert set(result) == set(names)
    assert len({c.lower() for c in result.values()}) == len(set(names))
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,47}", c) for c in result.values())
    assert result == c_names(names)


def test_fresh_names() -> None:
    names = NameSet({"a", "a_1"})
    assert [names.fresh("a"), names.fresh("b"), names.fresh("b")] == ["a_2", "b", "b_1"]
