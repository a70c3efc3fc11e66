"""The edge in the learning rate, searched and judged through settle."""

from __future__ import annotations

import pytest

from benchmarks.simulation import binomial_error, case_of, frequencies, generator, logistic, rate_lab
from benchmarks.statistics import edged
from stabilitysuite.claims.edge import learning_rate_edge

DRAWS = 60


@pytest.mark.parametrize("width", [0.02, 0.1, 0.3, 0.6])
def test_the_interval_covers_an_edge_as_sharp_or_as_soft_as_the_curve_allows(width: float) -> None:
    found = edged(width, DRAWS)
    assert found.covered >= 0.99 - binomial_error(0.01, DRAWS)
    for verdict in ("holds", "violated"):
        assert found.share(verdict) <= 0.01 + binomial_error(0.01, DRAWS)
    assert found.seeds <= 8 * 11


def test_an_edge_softer_than_any_curve_tried_is_where_it_breaks() -> None:
    """From 90 to 10 % within a factor of 80 in the learning rate."""
    assert 0.65 <= edged(1.0, DRAWS).covered <= 0.97


@pytest.mark.parametrize(("ratio", "verdict"), [(3.0, None), (9.0, "holds"), (0.5, "violated")])
def test_two_edges_are_told_apart_where_they_are_and_not_where_they_are_not(ratio: float, verdict: str | None) -> None:
    """A ratio exactly at the factor is hardly ever decided: the ends of both intervals are divided."""
    source = generator(21, round(10 * ratio))
    arms = {"low": {"warmup": 3}, "high": {"norm": "pre"}}
    case = case_of(learning_rate_edge().ordered("low", "high", factor=3), variants=arms)
    edges = {"low": 1e-3, "high": 1e-3 * ratio}
    found = frequencies(
        case, rate_lab(source, lambda run: logistic(run, edges[run.arm.partition("|")[0]], 0.1)), DRAWS // 3
    )
    assert found.share("undecided" if verdict is None else verdict) >= 0.95  # type: ignore[arg-type]
