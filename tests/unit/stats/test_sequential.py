from __future__ import annotations

import itertools
import math

import pytest
from scipy import stats

from stabilitysuite.stats.interval import Prior, half_width, mean_interval, normal_tail, outdone, prediction_interval
from stabilitysuite.stats.sequential import confidence_of, crossed, probability_ratio, reject_from


@pytest.mark.parametrize("sizes", [(3,), (8,), (3, 5, 8), (2, 4, 6, 30), (1,)])
@pytest.mark.parametrize("rate", [0.01, 0.05, 0.3])
def test_a_boundary_is_crossed_as_rarely_as_said_and_could_not_be_lower(sizes: tuple[int, ...], rate: float) -> None:
    bounds = reject_from(sizes, rate)
    assert crossed(sizes, bounds, rate) <= 0.01
    for place, bound in enumerate(bounds):
        lower = (*bounds[:place], bound - 1)
        assert crossed(sizes[: place + 1], lower, rate) > 0.01


def test_crossing_is_counted_over_all_paths() -> None:
    sizes, bounds, rate = (2, 3), (2, 2), 0.3
    crossing = 0.0
    for path in itertools.product((0, 1), repeat=3):
        if sum(path[:2]) >= 2 or sum(path) >= 2:
            crossing += math.prod(rate if one else 1 - rate for one in path)
    assert crossed(sizes, bounds, rate) == pytest.approx(crossing)


def test_known_numbers() -> None:
    assert reject_from((3, 5, 8), 0.05) == (2, 3, 4)
    # Wald: eight straight accept 5 % against 50 %, two of two reject; 27 straight accept .95 against .80
    assert probability_ratio(0, 7, good=0.05, bad=0.5) == "open"
    assert probability_ratio(0, 8, good=0.05, bad=0.5) == "good"
    assert probability_ratio(2, 2, good=0.05, bad=0.5) == "bad"
    assert probability_ratio(0, 27, good=0.05, bad=0.2) == "good"
    assert [round(confidence_of(looks), 4) for looks in (1, 2, 3, 4)] == [0.99, 0.99, 0.9933, 0.995]


def test_certain_rates_do_not_break_the_ratio() -> None:
    assert probability_ratio(0, 5, good=0.0, bad=1.0) == "good"
    assert probability_ratio(1, 5, good=0.0, bad=0.5) == "bad"


def test_a_prior_takes_part_in_the_spread() -> None:
    values = [1.0, 1.1, 0.9]
    prior = Prior(deviation=0.1, degrees=29)
    found = mean_interval(values, prior=prior)
    assert found is not None
    half = float(stats.t.ppf(0.995, 31)) * 0.1 / math.sqrt(3)
    assert found == pytest.approx((1 - half, 1 + half))
    alone = mean_interval(values)
    assert alone is not None
    assert alone[0] < found[0]
    # values that are all equal have a width where a spread is known
    same = mean_interval([1.0] * 3, prior=prior)
    assert same is not None
    assert same[0] < 1 < same[1]


def test_a_prior_that_cannot_be_theirs_is_left_aside() -> None:
    prior = Prior(deviation=0.01, degrees=29)
    assert outdone([1.0, 1.1, 0.9], prior)
    assert mean_interval([1.0, 1.1, 0.9], prior=prior) == mean_interval([1.0, 1.1, 0.9])
    assert not outdone([1.0, 1.01, 0.99], prior)
    assert outdone([1.0, 1.01, 0.99], Prior(deviation=0.0, degrees=29))


def test_a_prediction_interval_is_wider_than_that_of_the_mean() -> None:
    low, high = prediction_interval(0.0, 1.0, 20, future=1, summaries=1)
    assert high == -low == pytest.approx(2.93, abs=0.005)
    assert prediction_interval(0.0, 1.0, 20, future=1, summaries=60)[1] == pytest.approx(4.79, abs=0.005)
    assert high > half_width(1.0, 20)
    assert normal_tail(1.2816) == pytest.approx(0.1, abs=1e-4)
