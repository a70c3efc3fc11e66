"""Orders paired by seed, and exponents along a sweep."""

from __future__ import annotations

import pytest

from benchmarks.simulation import binomial_error
from benchmarks.statistics import ordered, sloped
from stabilitysuite.case import LOOKS
from stabilitysuite.stats.sequential import ERROR, confidence_of

DRAWS = 1000


@pytest.mark.parametrize("known", [False, True], ids=["own", "calibrated"])
@pytest.mark.parametrize("spoilt", [0.0, 0.05])
def test_an_effect_at_the_floor_is_misjudged_rarely_also_with_spoilt_pairs(spoilt: float, known: bool) -> None:
    found = ordered(0.0, spoilt, known, DRAWS)
    for verdict in ("holds", "violated"):
        assert found.share(verdict) <= ERROR + binomial_error(ERROR, DRAWS)


@pytest.mark.parametrize(("known", "power", "seeds"), [(False, 0.85, 7.0), (True, 0.98, 4.2)])
def test_an_effect_two_deviations_of_a_pair_above_the_floor_is_seen(known: bool, power: float, seeds: float) -> None:
    found = ordered(2.0, 0.0, known, DRAWS // 2)
    assert found.share("holds") >= power
    assert found.seeds <= seeds
    assert ordered(-2.0, 0.0, known, DRAWS // 2).share("violated") >= power


def test_the_levels_of_the_seeds_do_not_blur_a_paired_difference() -> None:
    """They spread ten times as much as the differences do: unpaired, none of this could be seen."""
    assert ordered(3.0, 0.0, True, DRAWS // 4).seeds < 3.3


@pytest.mark.parametrize("looks", [(3,), (5,), (16,)])
@pytest.mark.parametrize("of_seed", [0.0, 0.1])
def test_the_interval_of_an_exponent_covers_with_and_without_a_spread_of_the_seeds(
    looks: tuple[int, ...], of_seed: float
) -> None:
    declared = confidence_of(1)
    covered = sloped(2.0, of_seed, looks, 400).covered
    assert abs(covered - declared) <= binomial_error(declared, 400)


def test_an_exponent_at_the_end_of_its_interval_is_misjudged_rarely() -> None:
    found = sloped(2.1, 0.1, LOOKS, 600)
    for verdict in ("holds", "violated"):
        assert found.share(verdict) <= ERROR + binomial_error(ERROR, 600)
    assert sloped(2.3, 0.1, (16,), 100).share("violated") > 0.95
