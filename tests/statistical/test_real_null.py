"""Real trainings whose claims hold, or lie on their edge: as rarely red as simulated ones. 400 of them."""

from __future__ import annotations

from benchmarks.real import EDGE, SAFE, failing, loss_on_its_bound, loss_within_its_bound, outcomes
from benchmarks.simulation import binomial_error
from stabilitysuite.stats.interval import largest_rate
from stabilitysuite.stats.sequential import ERROR

CASES = 25
"""Of eight seeds each: 200 trainings at either learning rate."""


def test_what_holds_is_never_red() -> None:
    assert failing(SAFE, 8 * CASES) == 0
    found = outcomes(SAFE, 8 * CASES // 3, again=False)
    assert (found.share("holds"), found.seeds) == (1, 3)
    for known in (False, True):
        within = loss_within_its_bound(CASES, known=known)
        assert within.verdicts["violated"] == 0
        assert within.share("holds") >= 0.6


def test_a_mean_on_its_bound_is_misjudged_as_rarely_as_declared() -> None:
    for known in (False, True):
        found = loss_on_its_bound(CASES, known=known)
        for verdict in ("holds", "violated"):
            assert found.share(verdict) <= ERROR + binomial_error(ERROR, CASES)


def test_at_an_edge_red_is_common_and_admission_is_what_keeps_it_out() -> None:
    """Red and admitted together are far rarer than declared, though red alone is not."""
    wrong = failing(EDGE, 8 * CASES)
    assert 0.15 <= wrong <= 0.5
    red = outcomes(EDGE, CASES, again=True).share("violated")
    assert red <= 0.35
    # of the 38 seeds of a calibration none may be wrong, whatever the true share is within what 200 seeds leave open
    least = 1 - largest_rate(round((1 - wrong) * 8 * CASES), 8 * CASES, confidence=0.999)
    assert red * (1 - least) ** 38 <= ERROR
