from __future__ import annotations

import math
from typing import Any

import pytest

from stabilitysuite.claims.finding import Finding, short, worst


def finding(**changed: Any) -> Finding:
    fields: dict[str, Any] = {
        "arm": "",
        "claim": "converges",
        "verdict": "violated",
        "number": "1 of 3 seeds (2 stalled, 1 converged), worst progress 0.01",
        "value": 0.01,
        "interval": None,
        "threshold": "progress at least 0.5 in every seed",
        "margin": -0.49,
        "margin_unit": "difference",
        "seeds": (11, 12, 13),
        "values": (0.01, 0.02, 0.9),
    }
    return Finding(**fields | changed)


def test_a_sentence_holds_claim_number_threshold_and_seeds() -> None:
    assert finding().sentence() == (
        "converges: VIOLATED, 1 of 3 seeds (2 stalled, 1 converged), worst progress 0.01, "
        "wanted progress at least 0.5 in every seed; seeds 11, 12, 13"
    )
    assert finding(arm="lr=1").sentence().startswith("[lr=1] converges: VIOLATED")


@pytest.mark.parametrize(
    ("margin", "unit", "words"),
    [
        (-0.49, "difference", "-0.49"),
        (0.43, "difference", "+0.43"),
        (1.8, "factor", "x1.8"),
        (0.5, "factor", "x0.5"),
        (math.inf, "factor", "xinf"),
        (None, "factor", "-"),
    ],
)
def test_a_margin_in_words(margin: float | None, unit: str, words: str) -> None:
    assert finding(margin=margin, margin_unit=unit).margin_words() == words


def test_a_number_in_words_has_three_digits() -> None:
    assert [short(value) for value in (0.065432, 12345.0, math.nan, math.inf, None)] == [
        "0.0654",
        "1.23e+04",
        "nan",
        "inf",
        "-",
    ]


def test_violated_decides_before_undecided_before_holds() -> None:
    found = [finding(verdict=verdict, margin=margin) for verdict, margin in (("holds", -9.0), ("undecided", 0.0))]
    assert worst(tuple(found)).verdict == "undecided"
    assert worst((*found, finding(margin=9.0))).verdict == "violated"


def test_among_equals_the_smaller_margin_decides_whatever_its_unit() -> None:
    near = finding(verdict="holds", margin=0.1, margin_unit="difference")
    far = finding(verdict="holds", margin=3.0, margin_unit="factor")
    assert worst((far, near)) is near
    outside = finding(margin=0.5, margin_unit="factor")
    assert worst((finding(margin=-0.1), outside)) is outside


@pytest.mark.parametrize("broken", [{"margin": None}, {"margin": math.nan}, {"margin": 0.0, "margin_unit": "factor"}])
def test_a_finding_without_a_margin_decides_among_equals(broken: dict[str, Any]) -> None:
    assert worst((finding(margin=-5.0), finding(**broken))) == finding(**broken) or math.isnan(broken["margin"] or 0.0)
