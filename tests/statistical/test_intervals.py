"""The interval covers what it says, and a bound errs as rarely as it says, by simulation with fixed seeds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from stabilitysuite.claims.bound import Bound
from stabilitysuite.claims.look import ONLY
from stabilitysuite.claims.measure import Measure, evaluated_loss, gradient_norm
from tests.fakes import measured

CONFIDENCE = ONLY.confidence
DRAWS = 1000
SEEDS = (3, 5, 16)
ERROR = (1 - CONFIDENCE) / 2
"""Probability of each of the two errors for a mean that lies on the bound itself."""

MEASURES: dict[str, tuple[Measure, Callable[[float], float]]] = {
    "normal": (evaluated_loss(), float),
    "log-normal": (gradient_norm(), math.exp),
}
"""A quantity that is judged as it is, and one that is judged on the log scale."""


def binomial_error(probability: float) -> float:
    """Four standard deviations of a simulated frequency."""
    return 4 * math.sqrt(probability * (1 - probability) / DRAWS)


def verdicts(claim: Callable[[float], Bound], law: str, mean: float, count: int) -> dict[str, float]:
    """Frequencies of the verdicts on values of unit spread around ``mean`` against a bound at 0."""
    measure, scale = MEASURES[law]
    drawn = np.random.default_rng([20261129, count]).normal(mean, 1, size=(DRAWS, count))
    found = [
        claim(scale(0.0)).judge("", measured(measure.quantity, [scale(value) for value in row]), [], 0).verdict
        for row in drawn.tolist()
    ]
    return {verdict: found.count(verdict) / DRAWS for verdict in ("holds", "violated", "undecided")}


@pytest.mark.parametrize("count", SEEDS)
@pytest.mark.parametrize("law", MEASURES)
def test_the_interval_covers_the_mean(law: str, count: int) -> None:
    measure, scale = MEASURES[law]
    drawn = np.random.default_rng([20261129, count, 1]).normal(0, 1, size=(DRAWS, count))
    covered = 0
    for row in drawn.tolist():
        values = measured(measure.quantity, [scale(value) for value in row])
        interval = measure.at_most(1.0).judge("", values, [], 0).interval
        assert interval is not None
        covered += interval[0] <= scale(0.0) <= interval[1]
    assert abs(covered / DRAWS - CONFIDENCE) <= binomial_error(CONFIDENCE)


@pytest.mark.parametrize("count", SEEDS)
@pytest.mark.parametrize("law", MEASURES)
def test_on_the_bound_both_errors_are_as_rare_as_said(law: str, count: int) -> None:
    measure, _ = MEASURES[law]
    for claim in (measure.at_most, measure.at_least):
        rates = verdicts(claim, law, 0.0, count)
        for wrong in ("holds", "violated"):
            assert abs(rates[wrong] - ERROR) <= binomial_error(ERROR)


@pytest.mark.parametrize("distance", [1, 2, 3])
@pytest.mark.parametrize("count", SEEDS)
@pytest.mark.parametrize("law", MEASURES)
def test_the_power_is_that_of_the_noncentral_t(law: str, count: int, distance: int) -> None:
    measure, _ = MEASURES[law]
    needed = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1))
    power = float(stats.nct.sf(needed, count - 1, distance * math.sqrt(count)))
    inside, outside = (verdicts(measure.at_most, law, mean, count) for mean in (-distance, distance))
    assert abs(inside["holds"] - power) <= binomial_error(power)
    assert abs(outside["violated"] - power) <= binomial_error(power)
    # The error on the far side is not only rare but gone.
    assert inside["violated"] <= 2 / DRAWS
    assert outside["holds"] <= 2 / DRAWS


def test_three_seeds_decide_little_and_sixteen_decide() -> None:
    measure, _ = MEASURES["normal"]
    assert verdicts(measure.at_most, "normal", -3.0, 3)["undecided"] > 0.5
    assert verdicts(measure.at_most, "normal", -1.0, 16)["holds"] > 0.75
