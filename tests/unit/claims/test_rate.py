from __future__ import annotations

from typing import Any

import pytest

from stabilitysuite.case import Case
from stabilitysuite.claims.finding import Finding
from stabilitysuite.claims.outcome import Ends, converges, fails_to_train
from stabilitysuite.errors import DeclarationError
from stabilitysuite.spec import Markov, Transformer
from tests.fakes import ends


def case(claim: Ends, **changed: Any) -> Case:
    fields: dict[str, Any] = {
        "says": "trains mostly",
        "model": Transformer(layers=2, width=8, heads=2),
        "task": Markov(),
        "steps": 100,
        "expect": claim,
        "tier": "full",
    }
    return Case(**fields | changed)


def judged(claim: Ends, right: int, wrong: int) -> Finding:
    names: list[Any] = ["converged"] * right + ["stalled"] * wrong
    return claim.judge("", [ends(name, seed=seed) for seed, name in enumerate(names)], [], 100)


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"),
    [
        (26, 0, "undecided"),
        (27, 0, "holds"),
        (5, 3, "undecided"),
        (4, 4, "violated"),
        (38, 1, "holds"),
        (33, 1, "undecided"),
    ],
)
def test_a_sequential_test_tells_the_rate_from_the_other(right: int, wrong: int, verdict: str) -> None:
    found = judged(converges(rate=0.95, against=0.80), right, wrong)
    assert found.verdict == verdict
    assert found.claim == "converges in at least 95 % of seeds, told from 80 %"
    assert f"{right} of {right + wrong} seeds on the declared side" in found.reason


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"), [(90, 0, "holds"), (89, 0, "undecided"), (80, 10, "undecided"), (75, 15, "violated")]
)
def test_without_another_rate_the_exact_interval_decides(right: int, wrong: int, verdict: str) -> None:
    assert judged(converges(rate=0.95), right, wrong).verdict == verdict


def test_failures_have_rates_too() -> None:
    assert judged(fails_to_train(rate=0.9, against=0.5), 0, 8).verdict == "holds"
    assert judged(fails_to_train(rate=0.9, against=0.5), 8, 0).verdict == "violated"


def test_seeds_are_taken_in_eights_up_to_twice_what_could_decide() -> None:
    assert case(converges(rate=0.95, against=0.80)).looks() == (8, 16, 24, 32, 40, 48, 56)
    assert case(converges(rate=0.95, against=0.5)).looks() == (8, 16)
    assert case(converges(rate=0.95)).looks() == (90,)
    assert case(converges(rate=0.95, against=0.80), seeds=40).looks() == (40,)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"rate": 1.0}, r"rate must be in \(0, 1\)"),
        ({"rate": 0.9, "against": 0.95}, "against must be below rate"),
        ({"against": 0.5}, "give rate= too"),
        ({"rate": 0.99999}, "takes thousands of seeds"),
        ({"rate": 0.9, "against": 0.8999}, "takes thousands of seeds"),
    ],
)
def test_what_cannot_be_is_refused(how: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        converges(**how)


def test_a_rate_is_for_the_full_tier() -> None:
    with pytest.raises(DeclarationError, match="needs tier='full'"):
        case(converges(rate=0.95, against=0.80), tier="quick")
