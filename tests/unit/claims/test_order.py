from __future__ import annotations

import math
from typing import Any

import pytest

from stabilitysuite.case import Case
from stabilitysuite.claims.finding import Finding
from stabilitysuite.claims.look import Look, Spread
from stabilitysuite.claims.measure import Measure, gradient_norm, token_cosine
from stabilitysuite.errors import DeclarationError
from stabilitysuite.judge import judge
from stabilitysuite.spec import Markov, Transformer
from stabilitysuite.stats.interval import Prior
from stabilitysuite.trace import OutcomeName
from tests.fakes import series, trace

NAN = math.nan


NORM = gradient_norm()


def case(measure: Measure = NORM, **how: Any) -> Case:
    return Case(
        says="one is smaller",
        model=Transformer(layers=2, width=8, heads=2),
        task=Markov(),
        steps=9,
        variants={"pre": {"norm": "pre"}, "post": {"warmup": 3}},
        expect=measure.ordered("pre", "post", **how),
    )


def judged(
    pairs: list[tuple[float, float]],
    asked: Case | None = None,
    look: Look | None = None,
    ends: dict[str, list[OutcomeName]] | None = None,
) -> Finding:
    asked = asked or case()
    (quantity,) = asked.claims[0].quantities()
    traces = [
        trace(
            (ends[arm][seed] if ends else "converged", 9),
            seed=seed,
            arm=arm,
            kept=[series(quantity, {8: [value]}, ["layer 0"] if quantity == "token_cosine" else [""])],
        )
        for place, arm in enumerate(("pre", "post"))
        for seed, value in enumerate(pair[place] for pair in pairs)
    ]
    (found,) = judge(asked, traces, look or Look())
    return found


@pytest.mark.parametrize(
    ("pairs", "how", "verdict"),
    [
        ([(1, 2), (1, 2.1), (1, 1.9)], {}, "holds"),
        ([(1, 2), (1, 2.1), (1, 1.9)], {"factor": 1.5}, "holds"),
        ([(1, 2), (1, 2.1), (1, 1.9)], {"factor": 4}, "violated"),
        ([(1, 2), (1, 2.1), (1, 1.9)], {"factor": 2}, "undecided"),
        ([(1, 2), (1, 2.1), (1, 1.9)], {"difference": 0.4}, "holds"),
        ([(2, 1), (2.1, 1), (1.9, 1)], {}, "violated"),
        # real, and too small to matter
        ([(1, 1.01), (1, 1.0101), (1, 1.0099)], {}, "violated"),
        ([(1, 2)], {}, "undecided"),
        # what pairs have in common does not blur them
        ([(1, 2), (100, 201), (1e-3, 1.99e-3)], {}, "holds"),
    ],
)
def test_the_paired_difference_decides(pairs: list[tuple[float, float]], how: dict[str, Any], verdict: str) -> None:
    found = judged(pairs, case(**how))
    assert found.verdict == verdict
    assert found.seeds == tuple(range(len(pairs)))
    assert "\n" not in found.sentence()
    if found.margin is not None and verdict != "undecided":
        assert (found.distance() >= 0) == (verdict == "holds")


@pytest.mark.parametrize("spoilt", [(NAN, 1.0), (1.0, NAN), (0.0, 1.0), (math.inf, 1.0)])
def test_a_pair_that_cannot_be_compared_counts_against(spoilt: tuple[float, float]) -> None:
    good = (1.0, 2.0)
    assert judged([good, good, spoilt]).verdict == "undecided"
    assert judged([good, spoilt, spoilt]).verdict == "violated"
    assert judged([good] * 9 + [spoilt]).verdict == "undecided"
    # 11 of 12 as claimed is beyond chance
    found = judged([good] * 11 + [spoilt])
    assert found.verdict == "holds"
    assert "1 of 12 pairs cannot be compared" in found.reason


def test_a_spoilt_pair_never_makes_hold_what_does_not_without_it() -> None:
    # all eleven as claimed, but so far apart that their mean may be below the effect
    apart = [(1.0, 1.06)] * 9 + [(1.0, 1e9), (1.0, 1e12)]
    assert judged(apart).verdict == "undecided"
    assert judged([*apart, (NAN, 1.0)]).verdict == "undecided"


def test_how_most_ended_does_not_depend_on_the_order_of_the_seeds() -> None:
    pairs, mixed = [(1.0, 2.0), (3.0, 9.0)], ["stalled", "converged"]
    for step in (1, -1):
        ended: list[OutcomeName] = ["stalled" if one == "stalled" else "converged" for one in mixed[::step]]
        assert judged(pairs[::step], ends={"pre": ended, "post": ended}).value == pytest.approx(2.0)


def test_a_seed_that_ended_otherwise_than_most_is_ranked_worst() -> None:
    pairs = [(1.0, 2.0)] * 3
    stalls: list[OutcomeName] = ["stalled"] * 3
    # the variants may end differently, as long as each does so in all its seeds
    assert judged(pairs, ends={"pre": ["converged"] * 3, "post": stalls}).verdict == "holds"
    mixed = judged(pairs, ends={"pre": ["converged", "learning", "stalled"], "post": stalls})
    assert mixed.verdict == "undecided"
    assert mixed.wrong == (2,)


def test_a_pair_the_other_way_round_is_not_outvoted_by_a_calibrated_spread() -> None:
    claim = case().claims[0].words()
    look = Look(spreads={("", claim): Spread(prior=Prior(deviation=0.3, degrees=29), log=True)})
    found = judged([(1, 2.6), (1, 2.6), (1, 0.99)], look=look)
    assert found.verdict == "undecided"
    assert "lie the other way round" in found.reason


def test_a_plain_number_is_compared_by_its_difference() -> None:
    asked = case(token_cosine("last"))
    assert asked.claims[0].words().endswith("is smaller in pre than in post by 0.02")
    assert judged([(0.1, 0.9), (0.11, 0.91), (0.1, 0.92)], asked).verdict == "holds"
    by_factor = case(token_cosine("last"), factor=3)
    assert judged([(0.1, 0.9), (0.11, 0.91), (0.1, 0.92)], by_factor).verdict == "holds"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"factor": 1.0}, "by a factor above 1"),
        ({"difference": 0}, "by more than zero"),
        ({"factor": 2, "difference": 1}, "not both"),
    ],
)
def test_what_cannot_be_is_refused(how: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        case(**how)


def test_variants_are_named() -> None:
    with pytest.raises(DeclarationError, match="no variant 'pree'"):
        case().but(says="x", expect=gradient_norm().ordered("pree", "post"))
    with pytest.raises(DeclarationError, match="the case has no variants="):
        case().but(says="x", variants=None)
    with pytest.raises(DeclarationError, match="not smaller than itself"):
        gradient_norm().ordered("pre", "pre")
