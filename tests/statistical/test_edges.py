"""The edge in the learning rate, searched and judged through settle."""

from __future__ import annotations

import pytest

from benchmarks.simulation import binomial_error
from benchmarks.statistics import edged

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
