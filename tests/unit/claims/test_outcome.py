from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stabilitysuite.claims.finding import Finding
from stabilitysuite.claims.outcome import DECLARED_SIDE, Ends, converges, diverges, fails_to_train, stalls
from stabilitysuite.errors import DeclarationError, NoData
from stabilitysuite.lab.ending import own_ending
from stabilitysuite.plan import TWIN
from stabilitysuite.trace import TROUBLE, OutcomeName, Reference, Trace
from tests.fakes import ends, series, trace

STEPS = 100
CLAIMS = [converges(), converges(progress=0.7), diverges(), fails_to_train(), stalls()]
FINAL: list[Any] = sorted(set(get_args(OutcomeName)) - TROUBLE - {"initialised"})


def judged(claim: Ends, names: Sequence[Any], *, twins: Sequence[Any] = (), early: Any = None) -> Finding:
    """The claim judged on runs that ended so."""
    if claim.needs_twin():
        twins = twins or ["converged"] * len(names)
        early = early or ["stalled"] * len(names)
    else:
        early = early or [None] * len(names)
    own = [ends(name, seed=seed, early=before) for seed, (name, before) in enumerate(zip(names, early, strict=True))]
    return claim.judge("", own, [ends(name, seed=seed, arm=TWIN) for seed, name in enumerate(twins)], STEPS)


@pytest.mark.parametrize(
    ("claim", "sides"),
    [
        (converges(), {"converged"}),
        (stalls(), {"stalled"}),
        (diverges(), {"diverged", "nonfinite"}),
        (fails_to_train(), {"stalled", "collapsed", "diverged", "nonfinite"}),
    ],
    ids=lambda value: value.words() if isinstance(value, Ends) else "",
)
def test_each_claim_has_its_outcomes(claim: Ends, sides: set[str]) -> None:
    assert {name for name in FINAL if judged(claim, [name] * 3).verdict == "holds"} == sides


@pytest.mark.parametrize("claim", CLAIMS, ids=Ends.words)
@pytest.mark.parametrize("name", FINAL)
def test_three_seeds_hold_on_the_declared_side_and_violate_on_the_other(claim: Ends, name: Any) -> None:
    found = judged(claim, [name] * 3)
    assert found.verdict == ("holds" if name in DECLARED_SIDE[claim.side] else "violated")
    assert "\n" not in found.sentence()
    assert found.sentence().endswith("seeds 0, 1, 2")


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"),
    [
        (1, 0, "undecided"),
        (2, 0, "holds"),
        (3, 0, "holds"),
        (8, 0, "holds"),
        (0, 1, "undecided"),
        (1, 1, "undecided"),
        (0, 2, "violated"),
        (2, 1, "undecided"),
        (1, 2, "violated"),
        (4, 1, "undecided"),
        (3, 2, "undecided"),
        (2, 3, "violated"),
        (6, 2, "undecided"),
        (5, 3, "violated"),
    ],
)
def test_wrong_sides_are_counted(right: int, wrong: int, verdict: str) -> None:
    found = judged(converges(), ["converged"] * right + ["stalled"] * wrong)
    assert found.verdict == verdict
    assert found.number.startswith(f"{right} of {right + wrong} seeds (")
    if wrong:
        assert found.reason == f"{wrong} of {right + wrong} seeds on the wrong side ({_counted(right, wrong)})"
        assert found.false_holds is None
    elif right == 1:
        assert (found.reason, found.false_holds) == ("one seed decides nothing", None)
    else:
        assert found.false_holds == 0.5**right
        assert f"with probability {0.5**right:.3g}" in found.reason


def _counted(right: int, wrong: int) -> str:
    both = [(right, f"{right} converged"), (wrong, f"{wrong} stalled")]
    return ", ".join(words for count, words in sorted(both, key=lambda pair: -pair[0]) if count)


@pytest.mark.parametrize("claim", CLAIMS, ids=Ends.words)
def test_the_order_of_the_seeds_does_not_matter(claim: Ends) -> None:
    for names in itertools.combinations_with_replacement(FINAL, 3):
        verdicts = {judged(claim, order).verdict for order in itertools.permutations(names)}
        assert len(verdicts) == 1


@pytest.mark.parametrize("claim", [converges(), converges(progress=0.7), stalls()], ids=Ends.words)
@given(names=st.lists(st.sampled_from(FINAL), min_size=1, max_size=5))
def test_a_broken_seed_never_makes_it_hold(claim: Ends, names: list[Any]) -> None:
    found = judged(claim, [*names, "nonfinite"])
    assert found.verdict != "holds"
    assert found.value is not None
    assert math.isnan(found.value)
    assert found.margin is None


@pytest.mark.parametrize("claim", CLAIMS, ids=Ends.words)
@given(names=st.lists(st.sampled_from(FINAL), min_size=1, max_size=5))
def test_a_margin_never_contradicts_the_verdict(claim: Ends, names: list[Any]) -> None:
    found = judged(claim, names)
    if found.margin is not None and len(names) > 1:
        assert (found.margin >= 0) == (found.verdict == "holds")


@pytest.mark.parametrize(
    ("claim", "words"),
    list(zip(CLAIMS, ["converges", "converges to progress 0.7", "diverges", "fails to train", "stalls"], strict=True)),
)
def test_a_claim_in_words(claim: Ends, words: str) -> None:
    assert claim.words() == words


def test_the_seeds_that_decide_a_violation_decide_it_alone() -> None:
    names = ["converged", "stalled", "stalled", "stalled", "converged"]
    found = judged(converges(), names)
    assert (found.verdict, found.decided_by) == ("violated", (1, 2))
    assert judged(converges(), ["stalled"] * len(found.decided_by)).verdict == "violated"
    assert judged(converges(), ["converged", "stalled", "converged"]).decided_by == ()


def test_the_worst_progress_of_a_converging_case_is_its_smallest() -> None:
    found = converges().judge(
        "", [ends("converged", seed=seed, progress=share) for seed, share in enumerate((0.9, 0.62, 0.7))], [], STEPS
    )
    assert found.number == "3 of 3 seeds (3 converged), worst progress 0.62"
    assert found.threshold == "progress at least 0.5 in every seed"
    assert found.value == pytest.approx(0.62)
    assert found.margin == pytest.approx(0.12)
    assert found.values == pytest.approx((0.9, 0.62, 0.7))


def test_the_worst_progress_of_a_stalling_case_is_its_largest() -> None:
    own = [ends("stalled", early="stalled", seed=seed, progress=share) for seed, share in enumerate((0.0, 0.08, -0.01))]
    twins = [ends("converged", seed=seed, arm=TWIN) for seed in range(3)]
    found = stalls().judge("", own, twins, STEPS)
    assert found.verdict == "holds"
    assert found.value == pytest.approx(0.08)
    assert found.margin == pytest.approx(0.02)


def test_a_progress_of_its_own_moves_the_border_both_ways() -> None:
    def verdict(claim: Ends, name: OutcomeName, progress: float) -> str:
        return claim.judge("", [ends(name, seed=seed, progress=progress) for seed in range(3)], [], STEPS).verdict

    assert verdict(converges(progress=0.7), "converged", 0.6) == "violated"
    assert verdict(converges(progress=0.7), "converged", 0.7 + 1e-9) == "holds"
    assert verdict(converges(progress=0.3), "learning", 0.4) == "holds"
    assert verdict(converges(progress=0.3), "collapsed", 0.4) == "violated"
    found = converges(progress=0.7).judge("", [ends("converged", progress=0.6)], [], STEPS)
    assert found.threshold == "progress at least 0.7 in every seed"
    assert found.margin == pytest.approx(-0.1)


def test_a_stall_that_ends_by_twice_the_horizon_is_none() -> None:
    found = judged(stalls(), ["converged"] * 3)
    assert found.verdict == "violated"
    assert "3 converged" in found.reason


def test_a_stall_that_had_not_begun_at_the_declared_step_is_none() -> None:
    found = judged(stalls(), ["stalled"] * 3, early=["learning"] * 3)
    assert found.verdict == "violated"
    assert "3 learning" in found.reason


def test_a_stall_beside_a_twin_that_does_not_train_is_undecided() -> None:
    found = judged(stalls(), ["stalled"] * 3, twins=["converged", "learning", "stalled"])
    assert (found.verdict, found.remedy, found.false_holds) == ("undecided", "more steps", None)
    assert "the twin did not converge by the same step in 2 of 3 seeds (1 learning, 1 stalled)" in found.reason


def test_what_would_help_depends_on_what_was_seen() -> None:
    assert judged(converges(), ["converged", "converged", "learning"]).remedy == "more steps"
    assert judged(converges(), ["converged", "converged", "stalled"]).remedy == "more seeds"


def test_a_diverged_case_without_a_floor_speaks_of_its_loss() -> None:
    own = [
        trace(("diverged", STEPS), seed=seed, reference=None, kept=[series("training_loss", {STEPS: [50.0 + seed]})])
        for seed in range(3)
    ]
    found = diverges().judge("", own, [], STEPS)
    assert found.number == "3 of 3 seeds (3 diverged), last loss 52"
    assert (found.verdict, found.margin) == ("holds", None)
    assert found.threshold == "a loss far above its start, or non-finite, in every seed"


def test_an_infinite_loss_is_no_progress() -> None:
    own = [
        trace(("diverged", STEPS), seed=seed, kept=[series("evaluated_loss", {STEPS: [math.inf]})]) for seed in range(3)
    ]
    found = converges().judge("", own, [], STEPS)
    assert (found.verdict, found.value) == ("violated", -math.inf)


def test_a_run_without_a_loss_is_no_data() -> None:
    with pytest.raises(NoData, match="seed 4 of arm '' left no loss"):
        converges().judge("", [trace(("converged", STEPS), seed=4)], [], STEPS)


def test_nothing_is_claimed_of_a_target_that_was_met_at_the_start() -> None:
    met = Reference(plateau=2.0, floor=2.0)
    own: list[Trace] = [
        trace(("stalled", STEPS), seed=seed, reference=met, kept=[series("training_loss", {STEPS: [1.0]})])
        for seed in range(3)
    ]
    assert converges().judge("", own, [], STEPS).verdict == "violated"


@pytest.mark.parametrize("progress", [0, -0.1, 1.1, math.nan])
def test_a_progress_that_cannot_be_is_refused(progress: float) -> None:
    with pytest.raises(DeclarationError, match="progress must be"):
        converges(progress=progress)


def test_the_wrong_seeds_are_named_those_of_a_late_twin_too() -> None:
    assert judged(converges(), ["converged", "stalled", "learning"]).wrong == (1, 2)
    assert judged(converges(), ["converged"] * 3).wrong == ()
    assert judged(stalls(), ["stalled"] * 3, twins=["converged", "converged", "learning"]).wrong == (2,)
    assert judged(stalls(), ["stalled"] * 3, early=["stalled", "learning", "stalled"]).wrong == (1,)


@given(st.lists(st.floats(0.05, 1.0), min_size=4, max_size=60), st.floats(0.06, 0.9))
def test_on_ones_own_data_the_margin_is_of_the_loss_that_the_outcome_is_told_by(
    losses: list[float], target: float
) -> None:
    outcome, reference = own_ending(losses, target)
    one = Trace(
        arm="",
        seed=1,
        outcomes=(outcome,),
        series={"training_loss": series("training_loss", {step: [loss] for step, loss in enumerate(losses)})},
        reference=reference,
    )
    found = converges().judge("", [dataclasses.replace(one, seed=seed) for seed in range(3)], [], len(losses))
    if found.margin is not None:
        assert (found.verdict == "holds") == (found.margin >= 0), (outcome, found)


def test_the_border_on_ones_own_data_is_the_target_also_where_a_seed_broke() -> None:
    found = converges().judge("", [dataclasses.replace(ends("nonfinite", seed=1), reference=None)] * 3, [], STEPS)
    assert found.threshold == "progress at least 1 in every seed"
