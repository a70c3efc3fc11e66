from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from stabilitysuite.stats.interval import binomial_tail, mean_interval


@pytest.mark.parametrize("values", [[], [1.0]])
def test_fewer_than_two_values_have_no_interval(values: list[float]) -> None:
    assert mean_interval(values) is None


@given(st.floats(-1e300, 1e300), st.integers(2, 9))
def test_equal_values_have_an_interval_of_no_width(value: float, count: int) -> None:
    assert mean_interval([value] * count) == (value, value)


@pytest.mark.parametrize("confidence", [0.9, 0.99])
@given(values=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9))
def test_it_is_the_interval_of_student(values: list[float], confidence: float) -> None:
    found = mean_interval(values, confidence=confidence)
    assert found is not None
    if max(values) - min(values) < 1e-3:
        return
    wanted = stats.t.interval(confidence, len(values) - 1, loc=sum(values) / len(values), scale=stats.sem(values))
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=5))
def test_no_finite_values_break_it(values: list[float]) -> None:
    found = mean_interval(values)
    assert found is not None
    assert not math.isnan(found[0])
    assert found[0] <= found[1]


@pytest.mark.parametrize(
    ("successes", "trials", "probability", "tail"),
    [(2, 3, 0.05, 0.00725), (1, 1, 0.05, 0.05), (0, 5, 0.3, 1.0), (3, 8, 0.05, None), (5, 5, 0.5, 0.5**5)],
)
def test_a_tail_of_the_binomial(successes: int, trials: int, probability: float, tail: float | None) -> None:
    wanted = stats.binom.sf(successes - 1, trials, probability) if tail is None else tail
    assert binomial_tail(successes, trials, probability) == pytest.approx(wanted)
