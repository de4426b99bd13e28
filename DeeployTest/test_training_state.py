"""Updates of trained state in place, against float32 numpy; random tilings and core counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Deeploy.program.step import Access
from DeeployTest.one_node import Case, Result, refused, run

FLAGS = st.sampled_from([None, False, True])


def real(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def flag(value: bool | None, shape: tuple[int, ...] = (1,)) -> np.ndarray | None:
    return None if value is None else np.full(shape, value, bool)


def exactly(got: Result, want: np.ndarray) -> None:
    assert got.device[0].tobytes() == want.tobytes() == got.reference[0].tobytes()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 5), max_size=4), FLAGS, st.booleans(), st.integers(0, 99))
def test_accumulator_adds_or_starts_anew(shape: list[int], reset: bool | None, transposed: bool, seed: int) -> None:
    buffer, gradient = real(seed, *shape), real(seed + 1, *shape)
    layouts = {1: tuple(reversed(range(len(shape))))} if transposed else None
    got = run(Case("InPlaceAccumulatorV2", [buffer, gradient, flag(reset)], {}, layouts=layouts), seed=seed)
    exactly(got, gradient if reset else buffer + gradient)
    (step,) = got.program.steps
    accesses = [o.access for o in step.operands if o.tensor.storage is got.tensors[0].storage]
    assert accesses == [Access.UPDATE]


def test_accumulator_of_a_view() -> None:
    buffer, gradient = real(1, 4, 6, 3), real(2, 4, 6, 3)
    exactly(run(Case("InPlaceAccumulatorV2", [buffer, gradient, flag(False)], {}, layouts={0: (1, 2, 0)})), buffer + gradient)


@pytest.mark.parametrize("reset", [False, True])
def test_accumulator_flag_known_at_compile_time_or_a_scalar(reset: bool) -> None:
    buffer, gradient = real(1, 7), real(2, 7)
    want = gradient if reset else buffer + gradient
    exactly(run(Case("InPlaceAccumulatorV2", [buffer, gradient, flag(reset)], {}, constants=frozenset({2}))), want)
    exactly(run(Case("InPlaceAccumulatorV2", [buffer, gradient, flag(reset, ())], {})), want)


def test_accumulator_forgets_all_of_the_old_buffer() -> None:
    buffer, gradient = np.array([np.nan, np.inf, 1e38, -0.0], np.float32), np.array([1, -0.0, 1e38, 2], np.float32)
    exactly(run(Case("InPlaceAccumulatorV2", [buffer, gradient, flag(True)], {})), gradient)
    got = run(Case("InPlaceAccumulatorV2", [buffer, gradient, flag(False)], {})).device[0]
    np.testing.assert_array_equal(got, np.array([np.nan, np.inf, 2e38, 2], np.float32))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 6), max_size=3), st.sampled_from([0.001, 0.01, 1.0, 0.3]), st.booleans(), st.integers(0, 99))
def test_sgd(shape: list[int], rate: float, splat: bool, seed: int) -> None:
    weight, gradient = real(seed, *shape), real(seed + 1, *shape)
    if splat:
        gradient = np.full(shape, 0.7, np.float32)
    got = run(Case("SGD", [weight, gradient], {"lr": rate}, constants=frozenset({1} if splat else ())), seed=seed)
    exactly(got, weight - np.float32(rate) * gradient)


def test_windows_of_accumulation() -> None:
    """Two windows of three gradients with an optimizer step after each: what is kept is what the next call sees."""
    weight, buffer = real(0, 5, 4), np.full((5, 4), np.nan, np.float32)
    want = weight.astype(np.float64)
    for window in range(2):
        gradients = [real(10 * window + i, 5, 4) for i in range(3)]
        for i, gradient in enumerate(gradients):
            buffer = run(Case("InPlaceAccumulatorV2", [buffer, gradient, flag(i == 0)], {})).device[0]
        weight = run(Case("SGD", [weight, buffer], {"lr": 0.1})).device[0]
        want -= 0.1 * np.sum(gradients, 0, np.float64)
    np.testing.assert_allclose(weight, want, atol=1e-6)


def test_refusals() -> None:
    x, whole = real(0, 3), np.arange(3)
    assert "gradient of shape [1]" in refused(Case("InPlaceAccumulatorV2", [x, real(0, 1), flag(True)], {}))
    assert "int64" in refused(Case("InPlaceAccumulatorV2", [x, whole, flag(True)], {}))
    assert "reset flag" in refused(Case("InPlaceAccumulatorV2", [x, x, flag(True, (2,))], {}))
    assert "reset flag" in refused(Case("InPlaceAccumulatorV2", [x, x, np.ones(1, np.float32)], {}))
    assert "first output" in refused(Case("InPlaceAccumulatorV2", [x, x, flag(True)], {}, outputs=2))
    assert "lr" in refused(Case("SGD", [x, x], {}))
    assert "more than two inputs" in refused(Case("SGD", [x, x, x], {"lr": 0.1}))
