"""The two runs of a session: how often it is red though nothing is wrong, and how often though something is."""

from __future__ import annotations

import pytest

from benchmarks.simulation import binomial_error
from benchmarks.statistics import SESSIONS, ended, session_red
from stabilitysuite.claims.outcome import ADMITTED_RATE, converges
from stabilitysuite.stats.sequential import ERROR, reject_from

SESSIONS_RUN = 100
DRAWS = 1500


@pytest.mark.parametrize("index", [0, 1])
def test_one_session_of_a_hundred_is_red_at_most(index: int) -> None:
    _, session = SESSIONS[index]
    assert sum(cases for cases, _ in session) == 110
    # of a frequency a in one case 1 - (1 - a)^110 in all: its error is 110 times that of the cases together
    assert session_red(session, SESSIONS_RUN, index) <= ERROR + binomial_error(ERROR, SESSIONS_RUN)


def test_two_runs_are_red_as_often_as_both_are() -> None:
    once, twice = (ended(converges(), 0.2, again, DRAWS) for again in (False, True))
    both = once.share("violated") ** 2
    assert abs(twice.share("violated") - both) <= binomial_error(both, DRAWS) + 0.02


def test_a_case_on_its_edge_would_make_sessions_red_and_is_not_admitted() -> None:
    """Ten that fail in 20 % of seeds: nearly every tenth session, and one in five thousand is admitted."""
    _, session = SESSIONS[3]
    assert session_red(session, 10, 3) > 5 * ERROR
    assert 0.8**38 < 3e-4


@pytest.mark.parametrize(("wrong", "violated", "passes"), [(0.5, 0.4, 0.28), (0.8, 0.9, 0.03), (0.95, 0.99, 0.002)])
def test_a_broken_case_is_found_by_both_runs(wrong: float, violated: float, passes: float) -> None:
    found = ended(converges(), wrong, True, DRAWS)
    assert found.share("violated") >= violated
    assert found.share("holds") <= passes


def test_a_case_broken_by_half_passes_as_often_as_the_finding_of_the_second_run_says() -> None:
    found = ended(converges(), 0.5, True, DRAWS)
    stated = 1 - (1 - 0.125) ** 2
    assert abs(found.share("holds") - stated) <= binomial_error(stated, DRAWS)


def test_fewer_seeds_than_eight_settle_what_is_clear() -> None:
    assert ended(converges(), 0.0, True, 50).seeds == 3
    assert ended(converges(), 0.02, True, DRAWS).seeds < 3.8
    assert ended(converges(), 0.95, False, DRAWS).seeds < 3.2
    assert reject_from((3,), ADMITTED_RATE) == (2,)
