from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stabilitysuite.claims.bound import Bound
from stabilitysuite.claims.finding import Finding
from stabilitysuite.claims.measure import (
    evaluated_loss,
    gradient_norm,
    gradient_zeros,
    no_spikes,
    residual_std,
    token_cosine,
)
from stabilitysuite.errors import DeclarationError
from stabilitysuite.stats.interval import mean_interval
from tests.fakes import measured, series, trace

NORM = gradient_norm()
LOSS = evaluated_loss()


def judged(claim: Bound, values: list[float]) -> Finding:
    return claim.judge("", measured(claim.measure.quantity, values), [], 0)


@pytest.mark.parametrize(
    ("claim", "values", "verdict"),
    [
        (NORM.at_most(2), [1.0, 1.01, 0.99], "holds"),
        (NORM.at_most(0.5), [1.0, 1.01, 0.99], "violated"),
        (NORM.at_most(1), [1.0, 1.01, 0.99], "undecided"),
        (NORM.at_least(0.5), [1.0, 1.01, 0.99], "holds"),
        (NORM.at_least(2), [1.0, 1.01, 0.99], "violated"),
        (NORM.at_least(1), [1.0, 1.01, 0.99], "undecided"),
        (NORM.between(0.5, 2), [1.0, 1.01, 0.99], "holds"),
        (NORM.between(2, 3), [1.0, 1.01, 0.99], "violated"),
        (NORM.between(0.3, 0.5), [1.0, 1.01, 0.99], "violated"),
        (NORM.between(1, 3), [1.0, 1.01, 0.99], "undecided"),
        (NORM.near(1, within=0.2), [1.0, 1.01, 0.99], "holds"),
        (NORM.near(2, within=0.2), [1.0, 1.01, 0.99], "violated"),
        (LOSS.at_most(-0.5), [-1.0, -1.01, -0.99], "holds"),
        (LOSS.near(-1, within=0.2), [-1.0, -1.01, -0.99], "holds"),
        # values that are all equal
        (NORM.at_most(1), [1.0, 1.0, 1.0], "holds"),
        (NORM.at_most(0.1), [0.1, 0.1, 0.1], "holds"),
        (NORM.between(0.1, 0.2), [0.1, 0.1, 0.1], "holds"),
    ],
)
def test_the_interval_decides(claim: Bound, values: list[float], verdict: str) -> None:
    found = judged(claim, values)
    assert found.verdict == verdict
    assert found.remedy == ("more seeds" if verdict == "undecided" else "")
    assert "\n" not in found.sentence()


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.0, 0.0, 0.0], "holds"),
        ([0.0, 1.0, 0.0], "violated"),
        ([3.0, 1.0, 9.0], "violated"),
        ([0.0, math.nan, 0.0], "violated"),
        ([0.0, math.inf, 0.0], "violated"),
        ([0.0], "undecided"),
    ],
)
def test_no_spikes_is_none_in_any_seed(values: list[float], verdict: str) -> None:
    """The interval of a mean would reach across zero wherever one seed has a spike."""
    found = judged(no_spikes(), values)
    assert found.verdict == verdict
    assert found.margin_unit == "difference"
    if 9.0 in values:
        assert found.reason == "above 0 in 3 of 3 seeds (0, 1, 2), so its mean is"


def test_what_can_be_negative_is_held_against_zero_by_its_interval() -> None:
    assert judged(LOSS.at_most(0), [-5.0, 1.0, 0.0]).verdict == "undecided"
    assert judged(gradient_zeros().at_most(0), [0.0, 0.01, 0.0]).verdict == "violated"
    assert judged(gradient_zeros().at_most(0.5), [0.0, 0.01, 0.0]).verdict == "holds"


@pytest.mark.parametrize("values", [[1.0], [0.001]])
def test_one_seed_decides_nothing(values: list[float]) -> None:
    found = judged(NORM.at_most(2), values)
    assert (found.verdict, found.interval, found.remedy) == ("undecided", None, "more seeds")
    assert found.reason == "one seed has no spread: nothing can be decided from it"


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("claim", [NORM.at_most(2), NORM.at_least(0.5), NORM.between(0.5, 2)], ids=Bound.words)
def test_a_seed_that_is_not_finite_is_outside_of_every_bound(claim: Bound, broken: float) -> None:
    found = judged(claim, [1.0, broken, 1.0])
    assert found.verdict == "violated"
    assert found.reason == "not finite in 1 of 3 seeds (1)"
    assert found.number.startswith("gradient_norm = nan")
    assert found.margin is None


@given(
    values=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5),
    bound=st.floats(1e-3, 1e3),
    make=st.sampled_from([NORM.at_most, NORM.at_least, LOSS.at_most, LOSS.at_least]),
    broken=st.sampled_from([math.nan, math.inf, -math.inf]),
)
def test_a_broken_seed_never_makes_it_hold(
    values: list[float], bound: float, make: Callable[[float], Bound], broken: float
) -> None:
    assert judged(make(bound), [*values, broken]).verdict == "violated"


@given(
    values=st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=4),
    bound=st.floats(1e-3, 1e3),
    make=st.sampled_from([NORM.at_most, NORM.at_least, LOSS.at_most, LOSS.at_least]),
)
def test_the_order_of_the_seeds_does_not_matter(
    values: list[float], bound: float, make: Callable[[float], Bound]
) -> None:
    verdicts = {judged(make(bound), list(order)).verdict for order in itertools.permutations(values)}
    assert len(verdicts) == 1


@given(
    values=st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=4),
    low=st.floats(1e-3, 1e3),
    high=st.floats(1e-3, 1e3),
    power=st.integers(-20, 20),
    measure=st.sampled_from([NORM, LOSS]),
)
def test_a_change_of_unit_changes_no_verdict(
    values: list[float], low: float, high: float, power: int, measure: Any
) -> None:
    assume(low < high)
    plain = judged(measure.between(low, high), values)
    unit = 2.0**power
    scaled = judged(measure.between(low * unit, high * unit), [value * unit for value in values])
    if plain.margin_unit == "factor":
        assert plain.margin is not None
        assume(abs(math.log(max(plain.margin, 1e-300))) > 1e-9)  # rounding decides on the border itself
        assert scaled.margin == pytest.approx(plain.margin, rel=1e-6)
    assert scaled.verdict == plain.verdict


@given(
    values=st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=4),
    low=st.none() | st.floats(1e-3, 10),
    width=st.floats(0.1, 100),
    measure=st.sampled_from([NORM, LOSS]),
)
def test_the_margin_is_positive_exactly_where_it_holds(
    values: list[float], low: float | None, width: float, measure: Any
) -> None:
    claim = Bound(measure=measure, low=low, high=(low or 0.0) + width)
    found = judged(claim, values)
    assume(found.margin is not None)
    distance = found.distance()
    assume(abs(distance) > 1e-9)
    assert (distance > 0) == (found.verdict == "holds")


@pytest.mark.parametrize(
    ("claim", "values", "margin"),
    [
        (NORM.at_most(2), [1.0, 1.0], 2.0),
        (NORM.at_most(2), [4.0, 4.0], 0.5),
        (NORM.at_least(2), [4.0, 4.0], 2.0),
        (NORM.between(1, 8), [2.0, 2.0], 2.0),
        (NORM.between(1, 8), [4.0, 4.0], 2.0),
        (NORM.between(1, 8), [16.0, 16.0], 0.5),
        (NORM.between(1, 8), [0.25, 0.25], 0.25),
        (NORM.between(0, 8), [4.0, 4.0], 2.0),
        (LOSS.at_most(2), [1.5, 1.5], 0.5),
        (LOSS.at_most(2), [2.5, 2.5], -0.5),
        (LOSS.between(1, 4), [1.5, 1.5], 0.5),
        (LOSS.between(1, 4), [0.0, 0.0], -1.0),
    ],
)
def test_a_margin_is_a_factor_or_a_difference(claim: Bound, values: list[float], margin: float) -> None:
    found = judged(claim, values)
    assert found.margin == pytest.approx(margin)
    assert found.margin_unit == ("factor" if claim.measure is NORM else "difference")


def test_a_factor_is_averaged_on_the_log_scale() -> None:
    found = judged(NORM.at_most(1e9), [1.0, 10.0, 100.0])
    logs = mean_interval([0.0, math.log(10), math.log(100)])
    assert logs is not None
    assert found.value == pytest.approx(10.0)
    assert found.interval == pytest.approx((math.exp(logs[0]), math.exp(logs[1])))
    assert judged(LOSS.at_most(1e9), [1.0, 10.0, 100.0]).value == pytest.approx(37.0)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [([0.0, 0.0, 0.0], "violated"), ([0.0, 1.0, 1.0], "undecided"), ([0.0, 1e-5, 1e-6], "violated")],
)
def test_a_vanished_norm_is_judged_on_the_plain_scale(values: list[float], verdict: str) -> None:
    found = judged(NORM.at_least(0.1), values)
    assert (found.verdict, found.margin_unit) == (verdict, "difference")


def test_two_seeds_worlds_apart_are_undecided() -> None:
    found = judged(NORM.between(0.5, 2), [1e-12, 1e12])
    assert found.verdict == "undecided"
    assert found.interval == (0.0, math.inf)
    assert found.margin == 0.0
    assert judged(LOSS.at_most(2), [1e200, -1e200]).verdict == "undecided"


def test_the_number_is_told_with_its_interval_and_threshold() -> None:
    found = judged(NORM.between(0.5, 2, published=0.01), [1.0, 1.0])
    assert found.claim == "gradient_norm in [0.5, 2]"
    assert found.number == "gradient_norm = 1 (99 % interval 1 to 1)"
    assert found.threshold == "in [0.5, 2]"
    assert found.published == 0.01
    assert found.values == (1.0, 1.0)
    assert NORM.at_most(2).words() == "gradient_norm at most 2"
    assert NORM.at_least(0.5).words() == "gradient_norm at least 0.5"


def _layers(rows: list[list[float]]) -> list[Any]:
    labels = [f"layer {index}" for index in range(len(rows[0]))]
    return [
        trace(("initialised", 0), seed=seed, kept=[series("residual_std", {0: row}, labels)])
        for seed, row in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("claim", "label"),
    [
        (residual_std("max").at_most(2), "layer 2"),
        (residual_std("min").at_least(0.1), "layer 0"),
        (residual_std("max").between(0.1, 4), "layer 2"),
        (residual_std("max").between(3, 400), "layer 1"),
    ],
)
def test_the_layer_that_decides_is_named(claim: Bound, label: str) -> None:
    found = claim.judge("", _layers([[0.2, 3.1, 0.3], [0.2, 0.3, 3.2]]), [], 0)
    assert f" at {label} (99 % interval" in found.number


def test_a_layer_that_is_not_finite_is_named() -> None:
    found = residual_std("max").at_most(2).judge("", _layers([[1.0, 1.0], [1.0, math.nan]]), [], 0)
    assert found.number == "residual_std (max over layers) = nan at layer 1"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bound(measure=NORM), "gradient_norm: give a lower or an upper bound"),
        (lambda: NORM.between(2, 1), "gradient_norm: the bounds [2.0, 1.0] are empty"),
        (lambda: NORM.between(1, 1), "gradient_norm: the bounds [1.0, 1.0] are empty"),
        (lambda: NORM.at_most(0), "gradient_norm is never negative: at most 0.0 cannot hold"),
        (lambda: NORM.at_most(math.nan), "Bound: high must be a finite number, not nan"),
        (lambda: NORM.near(1, within=0), "within=0: a deviation of zero can never be shown"),
        (lambda: token_cosine().near(0, within=0.1), "token_cosine of the last layer: the bounds [0.0, "),
    ],
)
def test_a_bound_that_cannot_be_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        make()
    assert str(caught.value).startswith(message)
