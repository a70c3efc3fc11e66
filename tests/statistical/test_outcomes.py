"""How often a claim on outcomes errs: a false alarm at most 1 %, a miss exactly as often as the finding says."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from stabilitysuite.claims.finding import Finding
from stabilitysuite.claims.outcome import ADMITTED_RATE, Ends, converges, diverges, fails_to_train, stalls
from stabilitysuite.plan import TWIN
from stabilitysuite.stats.sequential import ERROR
from stabilitysuite.trace import OutcomeName
from tests.fakes import ends

DRAWS = 2000
SEEDS = (3, 5, 8)
SIDES: dict[str, tuple[Ends, OutcomeName, OutcomeName]] = {
    "converges": (converges(), "converged", "stalled"),
    "diverges": (diverges(), "diverged", "stalled"),
    "fails to train": (fails_to_train(), "collapsed", "learning"),
    "stalls": (stalls(), "stalled", "converged"),
}
"""For each claim an outcome on its side and one on the other."""


def judged(side: str, wrong: float, count: int) -> Counter[str]:
    """Frequencies of the verdicts where each seed ends on the wrong side with that probability."""
    draw = np.random.default_rng([20261129, count])
    return Counter(_judged(side, row).verdict for row in (draw.random((DRAWS, count)) < wrong).tolist())


def _judged(side: str, wrong: list[bool]) -> Finding:
    claim, good, bad = SIDES[side]
    early: OutcomeName | None = "stalled" if claim.needs_twin() else None
    own = [ends(bad if one else good, seed=seed, early=early) for seed, one in enumerate(wrong)]
    twins = [ends("converged", seed=seed, arm=TWIN) for seed in range(len(wrong))] if claim.needs_twin() else []
    return claim.judge("", own, twins, 100)


def binomial_error(probability: float) -> float:
    return 4 * math.sqrt(probability * (1 - probability) / DRAWS)


@pytest.mark.parametrize("count", SEEDS)
@pytest.mark.parametrize("side", SIDES)
def test_an_admitted_case_is_violated_in_one_session_of_a_hundred_at_most(side: str, count: int) -> None:
    found = judged(side, ADMITTED_RATE, count)
    assert found["violated"] / DRAWS <= ERROR + binomial_error(ERROR)
    # Undecided is neither: a case holds only where every seed did.
    every = (1 - ADMITTED_RATE) ** count
    assert abs(found["holds"] / DRAWS - every) <= binomial_error(every)
    assert found["undecided"] > 0
    assert found.total() == DRAWS


@pytest.mark.parametrize("count", SEEDS)
@pytest.mark.parametrize("side", SIDES)
def test_a_change_that_breaks_half_of_all_runs_passes_as_often_as_is_said(side: str, count: int) -> None:
    stated = _judged(side, [False] * count).false_holds
    assert stated is not None
    found = judged(side, 0.5, count)
    assert abs(found["holds"] / DRAWS - stated) <= binomial_error(stated)


@pytest.mark.parametrize(("count", "least"), [(3, 0.99), (5, 0.99), (8, 0.99)])
def test_a_change_that_breaks_nearly_all_runs_is_seen(count: int, least: float) -> None:
    found = judged("converges", 0.95, count)
    assert found["violated"] / DRAWS >= least
