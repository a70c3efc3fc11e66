from __future__ import annotations

import math
from typing import Any

import pytest

from stabilitysuite.case import Case
from stabilitysuite.claims.finding import Finding
from stabilitysuite.claims.sensitivity import learning_rate_sensitivity
from stabilitysuite.errors import DeclarationError, NoData
from stabilitysuite.judge import judge
from stabilitysuite.spec import Adam, Markov, Transformer
from tests.fakes import series, trace

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)


def case(high: float = 0.5, **changed: Any) -> Case:
    fields: dict[str, Any] = {
        "says": "the rate does not matter much",
        "model": Transformer(layers=2, width=8, heads=2),
        "task": Markov(),
        "optimizer": Adam(lr=1e-3),
        "steps": 9,
        "sweep": {"lr": RATES},
        "expect": learning_rate_sensitivity().at_most(high),
    }
    return Case(**fields | changed)


def judged(asked: Case, ends: list[float], *, spread: float = 0.01) -> Finding:
    """Each seed starts at 4 and ends as given, shifted a little."""
    traces = [
        trace(
            ("nonfinite" if math.isnan(end) else "learning", 9),
            seed=seed,
            arm=arm,
            kept=[series("evaluated_loss", {0: [4.0], 9: [end + seed * spread]})],
        )
        for arm, end in zip(asked.arms(), ends, strict=True)
        for seed in range(3)
    ]
    (found,) = judge(asked, traces)
    return found


def test_it_is_the_mean_loss_above_the_best() -> None:
    found = judged(case(), [3.0, 2.5, 2.0, 2.2, 2.3])
    assert found.value == pytest.approx(0.4)
    assert found.verdict == "holds"
    assert judged(case(0.2), [3.0, 2.5, 2.0, 2.2, 2.3]).verdict == "violated"


@pytest.mark.parametrize("broken", [math.nan, math.inf, 1e9])
def test_a_run_that_breaks_costs_as_much_as_one_that_never_trained(broken: float) -> None:
    found = judged(case(), [3.0, 2.5, 2.0, 2.2, broken], spread=0.0)
    assert found.value == pytest.approx((1 + 0.5 + 0 + 0.2 + 2) / 5)


@pytest.mark.parametrize("ends", [[math.nan] * 5, [4.0] * 5, [9.0, math.inf, 4.0, math.nan, 5.0]])
def test_what_never_learns_is_not_insensitive(ends: list[float]) -> None:
    found = judged(case(), ends, spread=0.0)
    assert found.verdict == "violated"
    assert found.reason.startswith("nothing learned at any rate in 3 of 3 seeds")


def test_it_needs_rates_over_two_decades() -> None:
    for sweep in ({"lr": (1e-4, 1e-3, 1e-2)}, {"lr": (1e-3, 2e-3, 3e-3, 4e-3, 5e-3)}, None):
        with pytest.raises(DeclarationError, match="at least 5 rates that span a factor of 100"):
            case(sweep=sweep)
    with pytest.raises(DeclarationError, match="never negative"):
        case(0)


def test_no_loss_is_no_data() -> None:
    asked = case()
    with pytest.raises(NoData, match="left no loss"):
        judge(asked, [trace(("learning", 9), arm=arm) for arm in asked.arms()])
