from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stabilitysuite.case import LOOKS, Case
from stabilitysuite.claims.finding import Finding, again_words
from stabilitysuite.claims.identity import identity
from stabilitysuite.claims.look import Spread
from stabilitysuite.claims.measure import gradient_norm
from stabilitysuite.claims.outcome import converges
from stabilitysuite.errors import MeasurementError
from stabilitysuite.plan import Plan, gate_seeds
from stabilitysuite.settle import SECOND, settle
from stabilitysuite.spec import Markov, Transformer
from stabilitysuite.stats.interval import Prior
from stabilitysuite.trace import Trace
from tests.fakes import ends, series, trace

FIRST, FRESH = "first", "fresh"


def case(**changed: Any) -> Case:
    fields: dict[str, Any] = {
        "says": "trains",
        "model": Transformer(layers=2, width=8, heads=2),
        "task": Markov(),
        "steps": 100,
        "expect": converges(),
    }
    return Case(**fields | changed)


class Lab:
    """Trains as a function of the stage and of the position of the seed in it says."""

    def __init__(self, case: Case, make: Callable[[str, int, int], Trace]) -> None:
        self.make = make
        self.places = {seed: (FIRST, index) for index, seed in enumerate(gate_seeds(case, 8))}
        self.places |= {seed: (FRESH, index) for index, seed in enumerate(gate_seeds(case, 8, purpose=SECOND))}
        self.ran: list[tuple[str, int]] = []

    def __call__(self, plan: Plan) -> Sequence[Trace]:
        self.ran.append((self.places[plan.seeds[0]][0], len(plan.seeds)))
        return [self.make(*self.places[run.seed], run.seed) for run in plan.runs]


def outcomes(first: str, fresh: str = "") -> Callable[[str, int, int], Trace]:
    """Runs that end as letters say: ``c``onverged, ``s``talled, ``l``earning."""
    names: dict[str, Any] = {"c": "converged", "s": "stalled", "l": "learning"}
    return lambda stage, place, seed: ends(names[(first if stage == FIRST else fresh)[place]], seed=seed)


def settled(make: Callable[[str, int, int], Trace], **how: Any) -> tuple[Finding, list[tuple[str, int]]]:
    asked = how.pop("case", None) or case()
    lab = Lab(asked, make)
    again = lab if how.pop("again", False) else None
    (found,) = settle(asked, lab, looks=LOOKS, again=again, **how)
    return found, lab.ran


@pytest.mark.parametrize(
    ("first", "verdict", "ran"),
    [
        ("ccc", "holds", [3]),
        ("ssc", "violated", [3]),
        ("scccc", "undecided", [3, 2, 3]),
        ("sccss", "violated", [3, 2]),
        ("sccscssc", "violated", [3, 2, 3]),
        ("sccscccc", "undecided", [3, 2, 3]),
        # more seeds would not decide it, more steps would
        ("ccl", "undecided", [3]),
    ],
)
def test_seeds_are_added_only_where_they_could_decide(first: str, verdict: str, ran: list[int]) -> None:
    found, stages = settled(outcomes(first.ljust(8, "c")))
    assert (found.verdict, stages) == (verdict, [(FIRST, count) for count in ran])
    assert len(found.seeds) == sum(ran)


@pytest.mark.parametrize(
    ("first", "fresh", "verdict", "words"),
    [
        (
            "sss",
            "sss",
            "violated",
            "this is a second run, on fresh seeds, and the 3 seeds before gave 0 of 3 seeds (3 stalled)",
        ),
        ("sss", "ccc", "holds", "this is a second run, on fresh seeds: the 3 seeds before gave 0 of 3 seeds"),
        ("sss", "sccccccc", "undecided", "violated only where both runs say so"),
        ("sccccccc", "sss", "undecided", "violated only where both runs say so"),
        ("sccccccc", "sccccccc", "undecided", "the 8 seeds before gave 7 of 8 seeds"),
        (
            "sccccccc",
            "ccc",
            "holds",
            "the 8 seeds before gave 7 of 8 seeds (7 converged, 1 stalled), worst progress 0, undecided",
        ),
    ],
)
def test_what_does_not_hold_is_run_once_more(first: str, fresh: str, verdict: str, words: str) -> None:
    found, stages = settled(outcomes(first, fresh), again=True)
    assert found.verdict == verdict
    assert words in found.reason
    assert found.before == ("violated" if first.startswith("sss") else "undecided")
    assert again_words((found,)).startswith(f"first {found.before}, ")
    assert {stage for stage, _ in stages} == {FIRST, FRESH}
    assert set(found.seeds) <= set(gate_seeds(case(), 8, purpose=SECOND))


def test_what_holds_only_in_the_second_run_states_that_a_broken_case_had_two_chances() -> None:
    first, _ = settled(outcomes("ccc"), again=True)
    second, _ = settled(outcomes("sccccccc", "ccc"), again=True)
    assert first.false_holds == pytest.approx(0.125)
    assert second.false_holds == pytest.approx(1 - 0.875**2)
    assert "passes one of the two runs with probability 0.234" in second.reason


def test_what_holds_is_not_run_again() -> None:
    found, stages = settled(outcomes("ccc"), again=True)
    assert (found.verdict, stages) == ("holds", [(FIRST, 3)])


def test_a_calibrated_spread_decides_with_three_seeds_what_their_own_does_not() -> None:
    asked = case(expect=gradient_norm().at_most(1.2))
    values = [0.95, 1.05, 1.0, 1.02, 0.98, 0.97, 1.03, 1.0]

    def make(stage: str, place: int, seed: int) -> Trace:
        return trace(("converged", 100), seed=seed, kept=[series("gradient_norm", {99: [values[place]]})])

    own, ran = settled(make, case=asked)
    assert (own.verdict, ran) == ("holds", [(FIRST, 3), (FIRST, 2)])
    spread = Spread(prior=Prior(deviation=0.04, degrees=29), log=True)
    found, ran = settled(make, case=asked, spreads={("", "gradient_norm at most 1.2"): spread})
    assert (found.verdict, ran) == ("holds", [(FIRST, 3)])
    assert found.interval is not None
    assert own.interval is not None


def test_named_seeds_are_taken_as_they_are() -> None:
    seen: list[int] = []

    def train(plan: Plan) -> Sequence[Trace]:
        seen.extend(plan.seeds)
        return [ends("converged", seed=run.seed) for run in plan.runs]

    settle(case(), train, looks=(2,), seeds=(7, 9))
    assert seen == [7, 9]


def test_a_second_run_that_fails_says_what_the_first_one_found() -> None:
    calls = []

    def train(plan: Plan) -> Sequence[Trace]:
        calls.append(plan)
        if len(calls) > 1:
            raise ValueError("no luck")
        return [ends("stalled", seed=run.seed) for run in plan.runs]

    with pytest.raises(MeasurementError, match=r"ValueError: no luck; this was the second.* the first was violated"):
        settle(case(), train, looks=LOOKS, again=train)


def test_a_counter_example_is_not_taken_back() -> None:
    exact = Case(
        says="it is zero",
        model=lambda: None,
        data=lambda seed: [0],
        loss=lambda model, batch: 0,
        precision="float64",
        expect=identity(),
    )
    ran = []

    def train(plan: Plan) -> Sequence[Trace]:
        ran.append(plan)
        return [
            trace(("initialised", 0), seed=run.seed, kept=[series("training_loss", {0: [float(index == 3)]})])
            for index, run in enumerate(plan.runs)
        ]

    (found,) = settle(exact, train, looks=exact.looks(), again=train)
    assert (found.verdict, found.before, len(ran)) == ("violated", None, 1)
