"""How often a case near its edge is admitted: as often as all its seeds, at both rates, happen to be right."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stabilitysuite.calibrate import calibrate, rounds
from stabilitysuite.calibration import RATE_SEEDS
from stabilitysuite.case import Case
from stabilitysuite.claims.outcome import converges
from stabilitysuite.plan import Plan
from stabilitysuite.spec import Adam, Markov, Transformer
from stabilitysuite.stats.interval import largest_rate
from stabilitysuite.trace import Trace
from tests.fakes import ends

DRAWS = 1500
CASE = Case(
    says="it trains",
    model=Transformer(layers=1, width=8, heads=2),
    task=Markov(),
    optimizer=Adam(lr=1e-3),
    steps=100,
    expect=converges(),
)


def admitted(rate: float, seeds: int) -> float:
    """Share of calibrations that admit a case of which that share of the seeds fails, at either learning rate."""
    draw = np.random.default_rng([20261129, seeds])
    todo = rounds(CASE, seeds=seeds)

    def train(plan: Plan) -> list[Trace]:
        wrong = draw.random(len(plan.seeds)) < rate
        return [ends("stalled" if one else "converged", seed=seed) for seed, one in zip(plan.seeds, wrong, strict=True)]

    found = [calibrate(CASE, "net/it", todo, train, environment={}, started="") for _ in range(DRAWS)]
    return sum(one.admitted for one in found) / DRAWS


@pytest.mark.parametrize("seeds", [12, 30])
@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2])
def test_a_case_near_its_edge_is_admitted_as_rarely_as_the_formula_says(rate: float, seeds: int) -> None:
    expected = (1 - rate) ** (seeds + RATE_SEEDS)
    assert abs(admitted(rate, seeds) - expected) <= 4 * math.sqrt(expected * (1 - expected) / DRAWS) + 1 / DRAWS


@pytest.mark.parametrize("seeds", [12, 16, 30])
def test_the_bound_covers_the_true_rate_in_95_of_100(seeds: int) -> None:
    draw = np.random.default_rng(seeds)
    for rate in (0.05, 0.1, 0.3):
        wrong = draw.binomial(seeds, rate, DRAWS)
        covered = sum(largest_rate(int(count), seeds) >= rate for count in wrong) / DRAWS
        assert covered >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / DRAWS)
