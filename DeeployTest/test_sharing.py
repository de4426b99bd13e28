"""Which constants share a storage: bytes decide, nothing else; never what a caller may override."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Deeploy.lower.context import Builder, counter
from Deeploy.operators.base import Value
from Deeploy.program.dtypes import from_numpy
from Deeploy.program.program import Program, Project
from Deeploy.sharing import aliases, share


def project_of(*arrays: np.ndarray, names: list[str] | None = None) -> Project:
    program = Program("p")
    builder = Builder(program, counter())
    for index, array in enumerate(arrays):
        name = names[index] if names else f"c{index}"
        builder.new_constant(name, Value.of(array, from_numpy(array.dtype)))
    return Project([program])


def groups(project: Project) -> list[list[str]]:
    by_storage: dict[int, list[str]] = {}
    for tensor in project.programs[0].constants:
        by_storage.setdefault(id(tensor.storage), []).append(tensor.source)
    return sorted(by_storage.values())


F = np.float32


def test_equal_bytes_share_across_shape_and_dtype() -> None:
    a = np.arange(1, 17, dtype=F)
    project = project_of(a, a.reshape(4, 4), a.view(np.int32), a + 1)
    share(project)
    assert groups(project) == [["c0", "c1", "c2"], ["c3"]]
    assert [(x.source, y.source) for x, y in aliases(project)] == [("c1", "c0"), ("c2", "c0")]
    assert [t.shape for t in project.programs[0].constants] == [(16,), (4, 4), (16,), (16,)]
    np.testing.assert_array_equal(project.programs[0].constants[1].value(), a.reshape(4, 4))
    np.testing.assert_array_equal(project.programs[0].constants[2].value(), a.view(np.int32))


def test_minus_zero_and_nan_payloads_are_bytes() -> None:
    zero = np.array([0.0, 1.0], F)
    minus = np.array([-0.0, 1.0], F)
    nan = np.array([0x7FC00001, 1], np.uint32).view(F)
    same = nan.copy()
    other = np.array([0x7FC00002, 1], np.uint32).view(F)
    project = project_of(zero, minus, nan, same, other)
    share(project)
    assert groups(project) == [["c0"], ["c1"], ["c2", "c3"], ["c4"]]


def test_a_prefix_does_not_share() -> None:
    long = np.arange(16, dtype=F)
    project = project_of(long, long[:8].copy())
    share(project)
    assert groups(project) == [["c0"], ["c1"]]


def test_last_byte_differs() -> None:
    a = np.arange(300, dtype=np.uint8)
    b = a.copy()
    b[-1] ^= 1
    project = project_of(a, b)
    share(project)
    assert len(groups(project)) == 2


def test_overridable_constants_keep_their_own_storage_and_are_reported() -> None:
    a = np.arange(8, dtype=F)
    project = project_of(a, a, a, names=["free", "weight", "also_free"])
    share(project, exclude=frozenset({"weight"}))
    assert groups(project) == [["free", "also_free"], ["weight"]]
    assert {(m.tensor, m.twin) for m in project.not_shared} == {("free", "weight"), ("also_free", "weight")}
    assert all("override" in m.reason for m in project.not_shared)


def test_readers_of_one_overridable_constant_share_by_identity() -> None:
    a = np.arange(8, dtype=F)
    project = project_of(a, a, a, names=["w", "w", "v"])
    share(project, exclude=frozenset({"w", "v"}))
    assert groups(project) == [["v"], ["w", "w"]]


def test_scalars_and_splats_are_immediates() -> None:
    project = project_of(np.float32(2.5), np.full((3, 4), -7, np.int8), np.zeros((0,), F), np.array([0.0, -0.0], F))
    literals = [t.literal for t in project.programs[0].constants]
    assert literals == [np.float32(2.5).tobytes(), b"\xf9", bytes(4), None]
    assert [t.storage.size for t in project.programs[0].constants] == [0, 0, 0, 8]
    np.testing.assert_array_equal(project.programs[0].constants[1].value(), np.full((3, 4), -7, np.int8))


def test_alignment_is_the_strictest() -> None:
    a = np.arange(8, dtype=F)
    project = project_of(a, a)
    project.programs[0].constants[1].storage.alignment = 16
    share(project)
    assert project.programs[0].constants[0].storage.alignment == 16


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=4), min_size=1, max_size=12))
def test_the_number_of_storages_is_the_number_of_contents(contents: list[list[int]]) -> None:
    arrays = [np.array([*c, 77], np.uint8) for c in contents]
    project = project_of(*arrays)
    share(project)
    assert len(groups(project)) == len({a.tobytes() for a in arrays})
    for tensor, array in zip(project.programs[0].constants, arrays, strict=True):
        np.testing.assert_array_equal(tensor.value(), array)


def test_equal_digests_are_still_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    import Deeploy.sharing as sharing

    class Constant:
        def digest(self) -> bytes:
            return b"the same for all"

    monkeypatch.setattr(sharing.hashlib, "sha256", lambda content: Constant())
    project = project_of(np.array([1, 2], np.int8), np.array([1, 3], np.int8), np.array([1, 2], np.int8))
    share(project)
    assert groups(project) == [["c0", "c2"], ["c1"]]
