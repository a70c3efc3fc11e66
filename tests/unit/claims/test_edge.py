from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stabilitysuite.case import Case
from stabilitysuite.claims.edge import AT_RATE, Edge, learning_rate_edge
from stabilitysuite.claims.finding import Finding
from stabilitysuite.claims.outcome import converges
from stabilitysuite.errors import DeclarationError
from stabilitysuite.plan import Plan
from stabilitysuite.settle import settle
from stabilitysuite.spec import Adam, Markov, Run, Transformer
from stabilitysuite.trace import Trace
from tests.fakes import ends


def case(claim: Edge, **changed: Any) -> Case:
    fields: dict[str, Any] = {
        "says": "trains up to there",
        "model": Transformer(layers=2, width=8, heads=2),
        "task": Markov(),
        "optimizer": Adam(lr=1e-3),
        "steps": 100,
        "expect": claim,
        "tier": "full",
    }
    return Case(**fields | changed)


def settled(asked: Case, trains: Callable[[str, float, int], bool], **how: Any) -> tuple[Finding, list[str]]:
    """The edge of a lab in which a run trains as a function of arm, rate and seed says."""
    ran: list[str] = []

    def train(plan: Plan) -> Sequence[Trace]:
        ran.extend(dict.fromkeys(run.arm for run in plan.runs))
        return [one(run) for run in plan.runs]

    def one(run: Run) -> Trace:
        assert isinstance(run.training.optimizer, Adam)
        lr = run.training.optimizer.lr
        assert run.arm.endswith(f"{AT_RATE}{lr:.6g}")
        good = trains(run.arm.partition(AT_RATE)[0], lr, run.seed)
        return ends("converged" if good else "stalled", seed=run.seed, arm=run.arm)

    (found,) = settle(asked, train, looks=asked.looks(), **how)
    return found, ran


@pytest.mark.parametrize("edge", [1e-4, 1e-3, 3e-3, 2e-2])
def test_the_edge_is_bracketed_by_neighbours(edge: float) -> None:
    found, ran = settled(case(learning_rate_edge().at_least(edge / 3)), lambda arm, lr, seed: lr <= edge)
    assert found.verdict == "holds"
    assert found.interval is not None
    low, high = found.interval
    assert low <= edge * 1.13
    assert high >= edge * 0.89
    assert high / low < 2
    assert len(ran) <= 9
    assert "8/8 at" in found.number
    assert "0/8 at" in found.number


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        (learning_rate_edge().at_least(1e-3), "holds"),
        (learning_rate_edge().at_least(3e-2), "violated"),
        (learning_rate_edge().between(1e-3, 1e-2), "holds"),
        (learning_rate_edge().at_most(1e-3), "violated"),
        (learning_rate_edge().at_most(2.8e-3), "undecided"),
    ],
)
def test_the_interval_is_held_against_the_bounds(claim: Edge, verdict: str) -> None:
    found, _ = settled(case(claim), lambda arm, lr, seed: lr <= 3e-3)
    assert found.verdict == verdict


def test_a_soft_edge_has_a_wider_interval() -> None:
    hard, _ = settled(case(learning_rate_edge().at_least(1e-3)), lambda arm, lr, seed: lr < 3e-3)
    soft, _ = settled(
        case(learning_rate_edge().at_least(1e-3)),
        lambda arm, lr, seed: (seed % 97) / 97 > (math.log(lr / 3e-3) + 1) / 2,
    )
    assert hard.interval is not None
    assert soft.interval is not None
    assert soft.interval[1] / soft.interval[0] > hard.interval[1] / hard.interval[0]


def test_an_edge_beyond_the_ladder_is_said_to_be_there() -> None:
    found, ran = settled(case(learning_rate_edge().at_least(1e-3)), lambda arm, lr, seed: True)
    assert found.verdict == "holds"
    assert found.number.startswith("learning_rate_edge = inf")
    assert len(ran) < 9


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        (learning_rate_edge().at_least(1e-3), "violated"),
        (learning_rate_edge().between(1e-3, 1e-2), "violated"),
        # a model that trains nowhere has no edge: it must not pass for a small one
        (learning_rate_edge().at_most(1e-3), "undecided"),
    ],
)
def test_what_trains_nowhere_has_no_edge(claim: Edge, verdict: str) -> None:
    found, ran = settled(case(claim), lambda arm, lr, seed: False)
    assert (found.verdict, found.interval) == (verdict, None)
    assert "no rate from 1/86.7 to 86.7 times the declared one trains it" in found.reason
    assert "72 stalled" in found.number
    assert len(ran) == 9


@pytest.mark.parametrize(("below", "above", "verdict"), [(True, False, "violated"), (False, True, "undecided")])
def test_an_order_with_a_variant_that_trains_nowhere_never_holds(below: bool, above: bool, verdict: str) -> None:
    asked = case(
        learning_rate_edge().ordered("post", "pre", factor=2),
        variants={"post": {"warmup": 3}, "pre": {"norm": "pre"}},
    )
    found, _ = settled(asked, lambda arm, lr, seed: lr <= 2e-3 and (below if arm == "post" else above))
    assert found.verdict == verdict


def test_two_edges_beyond_the_ladder_are_not_told_apart() -> None:
    asked = case(
        learning_rate_edge().ordered("post", "pre", factor=2),
        variants={"post": {"warmup": 3}, "pre": {"norm": "pre"}},
    )
    found, _ = settled(asked, lambda arm, lr, seed: True)
    assert (found.verdict, found.remedy) == ("undecided", "more seeds")
    assert "reaches across" in found.reason


@pytest.mark.parametrize("slowest", [2e-3, 2e-2])
def test_a_rate_that_is_too_small_for_the_steps_is_not_beyond_the_edge(slowest: float) -> None:
    found, _ = settled(case(learning_rate_edge().at_least(0.02)), lambda arm, lr, seed: slowest <= lr <= 5e-2)
    assert found.verdict == "holds"
    assert found.value == pytest.approx(5e-2, rel=0.2)


@pytest.mark.parametrize(("factor", "verdict"), [(2, "holds"), (8, "violated"), (4, "undecided")])
def test_the_edges_of_two_variants_are_compared(factor: float, verdict: str) -> None:
    asked = case(
        learning_rate_edge().ordered("post", "pre", factor=factor),
        variants={"post": {"warmup": 3}, "pre": {"norm": "pre"}},
    )
    found, ran = settled(asked, lambda arm, lr, seed: lr <= (4e-3 if arm == "pre" else 1e-3))
    assert found.verdict == verdict
    assert {one.partition(AT_RATE)[0] for one in ran} == {"post", "pre"}


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(DeclarationError, match="lower or an upper bound"):
        Edge()
    with pytest.raises(DeclarationError, match="positive"):
        learning_rate_edge().at_least(0)
    with pytest.raises(DeclarationError, match="empty"):
        learning_rate_edge().between(2, 1)
    with pytest.raises(DeclarationError, match="needs tier='full'"):
        case(learning_rate_edge().at_least(1), tier="quick")
    with pytest.raises(DeclarationError, match="a case of its own"):
        case(learning_rate_edge().at_least(1), expect=(learning_rate_edge().at_least(1), converges()))
    with pytest.raises(DeclarationError, match="leave out the sweep over lr"):
        case(learning_rate_edge().at_least(1), sweep={"lr": (1e-3, 1e-2)})
    with pytest.raises(DeclarationError, match="needs to know the learning rate"):
        case(learning_rate_edge().at_least(1), optimizer=lambda model: None)
    for below, above in (("a", "a"), ("a", ""), ("", "a")):
        with pytest.raises(DeclarationError, match="name two variants"):
            learning_rate_edge().ordered(below, above, factor=2)
    with pytest.raises(DeclarationError, match="no variants"):
        case(learning_rate_edge().ordered("post", "pre", factor=2))
