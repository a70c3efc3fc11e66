"""The scaling family on constructed sweeps, and the exponents under it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from stabilitysuite import GAU, Case, DeclarationError, Gaussian, Transformer, branch_ratio, gradient_norm, residual_std
from stabilitysuite.claims.scaling import Scaling
from stabilitysuite.judge import judge
from stabilitysuite.lab.train import run
from stabilitysuite.plan import plan
from stabilitysuite.stats.power_law import curvature, slope
from stabilitysuite.trace import Trace
from tests.fakes import series, trace

POINTS = (0.5, 1.0, 2.0, 4.0)


def case(**changes: Any) -> Case:
    fields: dict[str, Any] = {
        "says": "it scales",
        "model": Transformer(layers=2, width=8),
        "task": Gaussian(),
        "sweep": {"gain": POINTS},
        "expect": gradient_norm().scales_with("gain", exponent=2, within=0.1),
    }
    return Case(**(fields | changes))


def traces(one: Case, seeds: Sequence[Sequence[float]]) -> list[Trace]:
    """A trace for each arm and seed, whose gradient norm is given."""
    return [
        trace(("initialised", 0), seed=index, arm=arm, kept=[series("gradient_norm", {0: [value]})])
        for index, values in enumerate(seeds)
        for arm, value in zip(one.arms(), values, strict=True)
    ]


def power(exponent: float, factor: float = 1.0) -> list[float]:
    return [factor * point**exponent for point in POINTS]


@pytest.mark.parametrize(
    ("seeds", "verdict"),
    [
        ([power(2.0), power(2.02, 7.0), power(1.99, 0.1)], "holds"),
        ([power(3.0), power(3.02), power(2.99)], "violated"),
        ([power(2.05), power(2.2), power(1.9)], "undecided"),
        ([power(2.0), power(2.0), [1.0, 2.0, math.nan, 3.0]], "violated"),
        ([power(2.0), power(2.0), [0.0, 2.0, 3.0, 4.0]], "violated"),
        ([power(2.0)], "undecided"),
        ([power(2.0), power(2.0, 3.0), power(2.0, 9.0)], "holds"),
    ],
)
def test_slopes_of_the_seeds_decide(seeds: list[list[float]], verdict: str) -> None:
    one = case()
    (found,) = judge(one, traces(one, seeds))
    assert found.verdict == verdict
    assert found.seeds == tuple(range(len(seeds)))
    if found.margin is not None:
        assert (found.margin >= 0) == (verdict == "holds")


def test_each_seed_keeps_its_own_level() -> None:
    """Levels that differ by a factor of a thousand between seeds leave the slopes alone."""
    one = case()
    (found,) = judge(one, traces(one, [power(2.0, 10.0**level) for level in range(4)]))
    assert found.value == pytest.approx(2.0)
    assert found.values == pytest.approx((2.0,) * 4)


def test_a_bend_is_named_with_both_local_exponents() -> None:
    one = case(expect=gradient_norm().scales_with("gain", exponent=2, within=1))
    bent = [[math.exp(2 * x + 0.3 * x * x + 0.01 * seed) for x in map(math.log, POINTS)] for seed in range(4)]
    (found,) = judge(one, traces(one, bent))
    lower, upper = slope(POINTS[:3], bent[0][:3]), slope(POINTS[2:], bent[0][2:])
    assert f"no single exponent: {lower:.3g} over the lower half of the sweep, {upper:.3g}" in found.reason


def test_slope_and_curvature_are_numpys() -> None:
    source = np.random.default_rng(0)
    points = np.exp(source.normal(size=9)).tolist()
    values = np.exp(source.normal(size=9)).tolist()
    x, y = np.log(points), np.log(values)
    assert slope(points, values) == pytest.approx(float(np.polyfit(x, y, 1)[0]))
    assert curvature(points, values) == pytest.approx(float(np.polyfit(x, y, 2)[0]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sweep": None}, r"needs sweep=dict\(gain="),
        ({"sweep": {"layers": (1, 2, 3)}}, r"needs sweep=dict\(gain="),
        ({"sweep": {"gain": (1.0, 2.0)}}, "at least 4 points"),
        ({"sweep": {"gain": (0.0, 1.0, 2.0, 3.0)}}, "positive numbers"),
    ],
)
def test_what_has_no_exponent_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        case(**changes)


def test_a_width_of_zero_is_refused() -> None:
    with pytest.raises(DeclarationError, match="within"):
        residual_std("last").scales_with("gain", exponent=1, within=0)


def test_words_and_written_form() -> None:
    claim = residual_std("last").scales_with("layers", exponent=-0.5, within=0.1, published=-0.5)
    assert claim.words() == "residual_std of the last layer scales as layers^-0.5 within 0.1"
    assert Scaling.from_json(claim.to_json()) == claim


def test_a_published_exponent_is_not_part_of_the_meaning() -> None:
    with_figure = case(expect=gradient_norm().scales_with("gain", exponent=2, within=0.1, published=3))
    assert with_figure.digest() == case().digest()


def test_a_homogeneous_gau_scales_exactly() -> None:
    """O is of degree 1 in U, 1 in V, 4 in Z and 1 in W_o: with ReLU the exponent is 7, in every seed."""
    one = Case(
        says="lambda to the seventh",
        model=GAU(width=16, key=8, activation="relu", norm="none"),
        task=Gaussian(tokens=8),
        sweep={"gain": (0.25, 0.5, 1.0, 2.0)},
        seeds=3,
        expect=branch_ratio().scales_with("gain", exponent=7, within=0.01),
    )
    (found,) = judge(one, run(plan(one).runs))
    assert found.verdict == "holds"
    assert found.value == pytest.approx(7.0, abs=1e-4)
    assert "span" not in found.reason
    narrow = one.but(says="over less", sweep={"gain": (0.5, 0.6, 0.8, 1.0)})
    (found,) = judge(narrow, run(plan(narrow).runs))
    assert "over a span of x2 only" in found.reason


def test_a_claim_on_each_arm_stands_beside_one_along_the_sweep() -> None:
    one = case(expect=(gradient_norm().at_least(0.01), gradient_norm().scales_with("gain", exponent=2, within=0.1)))
    found = judge(one, traces(one, [power(2.0), power(2.01), power(1.99)]))
    assert [finding.arm for finding in found] == [*one.arms(), ""]
