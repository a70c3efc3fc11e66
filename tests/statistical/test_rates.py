"""Counts: the exact size of the boundaries, Wald's test, and the exact interval of a rate."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.simulation import binomial_error
from benchmarks.statistics import ended
from stabilitysuite.case import LOOKS
from stabilitysuite.claims.outcome import ADMITTED_RATE, converges
from stabilitysuite.stats.interval import largest_rate
from stabilitysuite.stats.paired import sign_test
from stabilitysuite.stats.sequential import ERROR, probability_ratio, reject_from

DRAWS = 1500


def size(sizes: tuple[int, ...], rate: float, level: float = ERROR) -> float:
    """Chance that the boundary is ever reached, over every order in which the seeds can fall."""
    bounds = reject_from(sizes, rate, level)
    chance = 0.0
    for fallen in itertools.product((0, 1), repeat=sizes[-1]):
        if any(sum(fallen[:count]) >= bound for count, bound in zip(sizes, bounds, strict=True)):
            chance += rate ** sum(fallen) * (1 - rate) ** (len(fallen) - sum(fallen))
    return chance


@pytest.mark.parametrize("sizes", [LOOKS, (3,), (5,), (8,), (2, 4, 8, 12), (3, 5, 8, 13)])
@pytest.mark.parametrize("rate", [0.01, ADMITTED_RATE, 0.2, 0.5])
def test_the_boundary_is_reached_in_at_most_1_of_100_and_could_not_be_lower(
    sizes: tuple[int, ...], rate: float
) -> None:
    found = size(sizes, rate)
    assert found <= ERROR + 1e-12
    bounds = reject_from(sizes, rate)
    if bounds[-1] <= sizes[-1]:
        # one wrong seed fewer at the last look would spend more than there is
        alive = stats.binom.pmf(bounds[-1] - 1, sizes[-1], rate)
        assert found + alive > ERROR


def test_the_size_over_three_looks() -> None:
    assert reject_from(LOOKS, ADMITTED_RATE) == (2, 3, 4)
    assert size(LOOKS, ADMITTED_RATE) == pytest.approx(0.00772, abs=1e-5)


@pytest.mark.parametrize(("rate", "against", "seeds"), [(0.95, 0.8, 49), (0.95, 0.5, 10), (0.9, 0.5, 13)])
def test_walds_test_errs_rarely_on_either_side(rate: float, against: float, seeds: float) -> None:
    """Looked at after every seed and without an end: the errors, and Wald's approximation of the expected number."""
    source = np.random.default_rng([20261129, round(100 * against)])
    for true, right in ((rate, "good"), (against, "bad")):
        wrong = count = errors = taken = 0
        for _ in range(DRAWS):
            wrong = count = 0
            while (answer := probability_ratio(wrong, count, good=1 - rate, bad=1 - against)) == "open":
                wrong, count = wrong + bool(source.random() >= true), count + 1
            errors, taken = errors + (answer != right), taken + count
        assert errors / DRAWS <= ERROR + binomial_error(ERROR, DRAWS)
        assert taken / DRAWS >= 0.95 * _expected(true, rate, against)
        assert taken / DRAWS <= 1.5 * _expected(true, rate, against) + 2
        if right == "good":
            assert taken / DRAWS == pytest.approx(seeds, rel=0.15)


def _expected(true: float, rate: float, against: float) -> float:
    """Wald (1945), 3:57, without the excess over the boundary."""
    line, chance = math.log((1 - ERROR) / ERROR), ERROR if true == rate else 1 - ERROR
    step = (1 - true) * math.log((1 - against) / (1 - rate)) + true * math.log(against / rate)
    return (chance * line - (1 - chance) * line) / step


@pytest.mark.parametrize(("rate", "against"), [(0.95, 0.8), (0.95, 0.5)])
def test_a_rate_through_settle_errs_rarely_in_looks_of_eight(rate: float, against: float) -> None:
    claim = converges(rate=rate, against=against)
    good, bad = (ended(claim, 1 - true, draws=DRAWS) for true in (rate, against))
    assert good.share("violated") <= ERROR + binomial_error(ERROR, DRAWS)
    assert bad.share("holds") <= ERROR + binomial_error(ERROR, DRAWS)
    assert good.share("holds") > 0.6
    assert bad.share("violated") > 0.6


@pytest.mark.parametrize("count", [8, 30, 90])
def test_the_exact_interval_covers_whatever_the_rate(count: int) -> None:
    for rate in np.linspace(0.01, 0.99, 25):
        weights = stats.binom.pmf(range(count + 1), count, rate)
        covered = [largest_rate(events, count, confidence=0.99) >= rate for events in range(count + 1)]
        assert float(np.dot(weights, covered)) >= 0.99 - 1e-9


@pytest.mark.parametrize("count", range(1, 12))
def test_the_sign_test_rejects_chance_in_at_most_1_of_100(count: int) -> None:
    rejected = sum(
        math.comb(count, above) * 0.5**count
        for above in range(count + 1)
        if sign_test([index < above for index in range(count)]) <= ERROR
    )
    assert rejected <= ERROR
    assert (rejected > 0) == (count >= 7)
