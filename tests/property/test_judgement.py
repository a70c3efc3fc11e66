"""What every family of claims keeps, whatever the numbers: order, unit, NaN, and too little data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stabilitysuite.case import Case
from stabilitysuite.claims.edge import AT_RATE, learning_rate_edge
from stabilitysuite.claims.finding import Finding
from stabilitysuite.claims.look import Look, Spread
from stabilitysuite.claims.measure import evaluated_loss, gradient_norm
from stabilitysuite.claims.outcome import converges
from stabilitysuite.claims.sensitivity import learning_rate_sensitivity
from stabilitysuite.judge import judge
from stabilitysuite.spec import Adam, Markov, Transformer
from stabilitysuite.stats.interval import Prior
from stabilitysuite.trace import Trace
from tests.fakes import ends, series, trace

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
Seed = tuple[float, ...]
"""The numbers of one seed, one an arm."""


def case(claim: Any, **changed: Any) -> Case:
    fields: dict[str, Any] = {
        "says": "as drawn",
        "model": Transformer(layers=2, width=8, heads=2),
        "task": Markov(),
        "optimizer": Adam(lr=1e-3),
        "steps": 9,
        "expect": claim,
        "tier": "full",
    }
    return Case(**fields | changed)


@dataclass(frozen=True)
class Family:
    """A claim, and how the numbers of a seed become the traces of its arms."""

    case: Case
    quantity: str
    arms: int
    unit_free: bool = False
    """Whether a change of unit leaves it alone."""

    def traces(self, seeds: Sequence[Seed], names: Sequence[int]) -> list[Trace]:
        """All arms of all seeds; a number that is not finite is of a run that broke."""
        return [
            self._one(arm, name, values[place])
            for place, arm in enumerate(self.case.arms())
            for name, values in zip(names, seeds, strict=True)
        ]

    def _one(self, arm: str, seed: int, value: float) -> Trace:
        broken = not math.isfinite(value)
        if self.quantity == "outcome":
            return ends("nonfinite" if broken else "converged" if value > 0.4 else "stalled", seed=seed, arm=arm)
        rows = {0: [9.0], 9: [value]} if self.quantity == "evaluated_loss" else {9: [value]}
        return trace(("nonfinite" if broken else "learning", 9), seed=seed, arm=arm, kept=[series(self.quantity, rows)])

    def judged(self, seeds: Sequence[Seed], look: Look | None = None, names: Sequence[int] | None = None) -> Finding:
        (found,) = judge(self.case, self.traces(seeds, names or range(len(seeds))), look or Look())
        return found


NORM, LOSS = gradient_norm(), evaluated_loss()
VARIANTS = {"small": {"norm": "pre"}, "large": {"warmup": 3}}
FAMILIES: dict[str, Family] = {
    "outcome": Family(case(converges()), "outcome", 1),
    "rate": Family(case(converges(rate=0.9, against=0.3)), "outcome", 1),
    "bound, log": Family(case(NORM.between(0.3, 2)), "gradient_norm", 1),
    "bound, plain": Family(case(LOSS.at_most(1.5)), "evaluated_loss", 1),
    "order": Family(case(NORM.ordered("small", "large"), variants=VARIANTS), "gradient_norm", 2, unit_free=True),
    "scaling": Family(
        case(NORM.scales_with("gain", exponent=0.2, within=0.5), sweep={"gain": (0.5, 1.0, 2.0, 4.0)}),
        "gradient_norm",
        4,
        unit_free=True,
    ),
    "sensitivity": Family(case(learning_rate_sensitivity().at_most(1.0), sweep={"lr": RATES}), "evaluated_loss", 5),
}

family = st.sampled_from(list(FAMILIES.values()))
number = st.floats(0.05, 5.0)


def seeds_of(one: Family, data: st.DataObject, least: int = 2, most: int = 12) -> list[Seed]:
    """Seeds that are close to each other or far apart."""
    middle = data.draw(st.tuples(*[number] * one.arms))
    apart = data.draw(st.sampled_from([1.01, 1.3, 4.0]))
    factor = st.floats(1 / apart, apart)
    return data.draw(
        st.lists(st.tuples(*[factor.map(lambda by, at=at: at * by) for at in middle]), min_size=least, max_size=most)  # type: ignore[misc]
    )


def look_of(one: Family, data: st.DataObject, count: int) -> Look:
    """With or without looks before, and with or without a calibrated spread."""
    sizes = data.draw(st.sampled_from([(), (count,), (2, count + 2)]))
    spread = Spread(
        prior=Prior(deviation=data.draw(st.floats(0.01, 1)), degrees=29), log=one.quantity != "evaluated_loss"
    )
    spreads = {("", one.case.claims[0].words()): spread} if data.draw(st.booleans()) else {}
    return Look(sizes=sizes, spreads=spreads)


def clear(found: Finding) -> bool:
    """Whether the verdict does not hang on the last digit."""
    return found.margin is None or abs(found.distance()) > 1e-9


@given(one=family, data=st.data())
@settings(deadline=None)
def test_the_order_of_the_seeds_of_a_look_does_not_matter(one: Family, data: st.DataObject) -> None:
    seeds = seeds_of(one, data)
    look = look_of(one, data, len(seeds))
    order = data.draw(st.permutations(range(len(seeds))))
    before = one.judged(seeds, look)
    after = one.judged([seeds[place] for place in order], look, names=order)
    assume(clear(before))
    assert after.verdict == before.verdict
    assert after.value == pytest.approx(before.value, rel=1e-9, nan_ok=True)
    assert sorted(after.wrong) == sorted(before.wrong)


@given(one=family, data=st.data())
@settings(deadline=None)
def test_a_seed_that_is_not_a_number_never_makes_it_hold(one: Family, data: st.DataObject) -> None:
    seeds = seeds_of(one, data)
    look = look_of(one, data, len(seeds))
    without = one.judged(seeds, look)
    place = data.draw(st.integers(0, len(seeds)))
    broken = (math.nan,) * one.arms
    found = one.judged([*seeds[:place], broken, *seeds[place:]], look)
    assert found.verdict != "holds" or without.verdict == "holds"
    if one.case.claims[0].looks() == () and not one.case.claims[0].together():
        assert found.verdict != "holds"


@given(one=family.filter(lambda one: one.unit_free), data=st.data(), power=st.integers(-30, 30))
@settings(deadline=None)
def test_a_change_of_unit_leaves_pairs_and_exponents_alone(one: Family, data: st.DataObject, power: int) -> None:
    seeds = seeds_of(one, data)
    look = look_of(one, data, len(seeds))
    before = one.judged(seeds, look)
    after = one.judged([tuple(value * 2.0**power for value in seed) for seed in seeds], look)
    assume(clear(before))
    assert after.verdict == before.verdict
    assert after.value == pytest.approx(before.value, rel=1e-6, abs=1e-9)


@given(one=family, data=st.data())
@settings(deadline=None)
def test_one_seed_decides_nothing_and_is_not_called_zero(one: Family, data: st.DataObject) -> None:
    seeds = seeds_of(one, data, least=1, most=1)
    assume(one.quantity != "outcome" or seeds[0][0] > 0.4)
    found = one.judged(seeds)
    assert found.verdict == "undecided"
    assert found.remedy == "more seeds"
    assume(len(set(seeds[0])) == len(seeds[0]))
    assert found.value != 0.0
    assert found.margin is None or found.distance() != 0.0


@pytest.mark.parametrize("make", [learning_rate_edge().at_least, learning_rate_edge().at_most])
def test_one_run_says_little_of_an_edge(make: Callable[[float], Any]) -> None:
    asked = case(make(1e-3))
    for name in ("converged", "stalled"):
        (found,) = judge(asked, [ends(name, arm=f"{AT_RATE}0.001")])
        assert found.verdict == "undecided"
