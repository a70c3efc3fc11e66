from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from stabilitysuite.stats.interval import binomial_tail, half_width, largest_rate, mean_interval


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


@pytest.mark.parametrize(("trials", "bound"), [(12, 0.22), (16, 0.17), (30, 0.095)])
def test_none_of_so_many_leaves_so_much_possible(trials: int, bound: float) -> None:
    assert largest_rate(0, trials) == pytest.approx(bound, abs=0.002)
    assert (1 - largest_rate(0, trials)) ** trials == pytest.approx(0.05)


@given(st.integers(1, 40), st.data())
def test_the_bound_is_the_rate_under_which_so_few_events_are_rare(trials: int, data: st.DataObject) -> None:
    events = data.draw(st.integers(0, trials))
    bound = largest_rate(events, trials)
    if events == trials:
        assert bound == 1
    else:
        assert stats.binom.cdf(events, trials, bound) == pytest.approx(0.05)


def test_half_a_width_is_that_of_the_interval_of_a_mean() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    found = mean_interval(values)
    assert found is not None
    assert found[1] - found[0] == pytest.approx(2 * half_width(stats.tstd(values), 4))
