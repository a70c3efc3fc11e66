from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest

from stabilitysuite.calibration import FORMAT, Calibration, Direction, RateCheck, Tally, gate, moved
from stabilitysuite.case import Case
from stabilitysuite.claims.outcome import converges
from stabilitysuite.errors import RecordError
from stabilitysuite.spec import Adam, Markov, Transformer

CASE = Case(
    says="it trains",
    model=Transformer(layers=1, width=8, heads=2),
    task=Markov(),
    optimizer=Adam(lr=1e-3),
    steps=20,
    expect=converges(),
)


def tally(seeds: int = 30, wrong: int = 0, **changed: Any) -> Tally:
    fields: dict[str, Any] = {
        "arm": "",
        "claim": "converges",
        "seeds": seeds,
        "wrong": wrong,
        "values": (0.9,) * (seeds - wrong) + (0.1,) * wrong,
        "log": False,
        "mean": 0.9,
        "deviation": 0.02 if seeds >= 20 else None,
        "outcomes": {"converged": seeds - wrong, "stalled": wrong} if wrong else {"converged": seeds},
        "twins": {},
    }
    return Tally(**fields | changed)


def rate(*claims: Tally, direction: Direction = "times") -> RateCheck:
    return RateCheck(factor=1.4, direction=direction, claims=claims)


def calibration(**changed: Any) -> Calibration:
    fields: dict[str, Any] = {
        "id": "net/trains",
        "digest": CASE.digest(),
        "seeds": 30,
        "claims": (tally(),),
        "rate": rate(tally(8)),
        "environment": {"torch": "2.13.0"},
        "started": "2026-01-02T03:04:05+00:00",
        "cpu_seconds": 12.5,
    }
    return Calibration(**fields | changed)


@pytest.mark.parametrize(
    ("changed", "admitted", "words"),
    [
        ({}, True, "none of 30 calibration seeds on the wrong side (at most 9.5 % at 95 %), nor of 8 at 1.4 times"),
        ({"seeds": 12, "claims": (tally(12),)}, True, "none of 12 calibration seeds on the wrong side (at most 22 %"),
        ({"seeds": 16, "claims": (tally(16),), "rate": None}, True, "none of 16 * (at most 17 %"),
        ({"rate": rate(tally(8), direction="divided")}, True, "nor of 8 at 1/1.4 of the learning rate"),
        ({"claims": (tally(12, 2),), "rate": rate()}, False, "2 of 12 seeds on the wrong side of 'converges' (10 conv"),
        ({"rate": rate(tally(4, 1))}, False, "at 1.4 times the learning rate 1 of 4 on the wrong side"),
        ({"rate": rate(tally(4))}, False, "not carried out to its end"),
        ({"rate": rate()}, False, "not carried out to its end"),
        ({"claims": (tally(24),)}, False, "not carried out to its end"),
        ({"claims": (tally(), tally(12, 1, claim="bound"))}, False, "1 of 12 seeds on the wrong side of 'bound'"),
        ({"claims": (tally(undecidable="its seeds are too few"),)}, False, "its seeds are too few"),
    ],
)
def test_none_on_the_wrong_side_is_what_admits(changed: dict[str, Any], admitted: bool, words: str) -> None:
    one = calibration(**changed)
    assert one.admitted is admitted
    assert all(part.strip() in one.reason for part in words.split("*")), one.reason
    assert bool(gate(CASE, one)) is not admitted


def test_a_case_gates_with_a_current_admitted_record_only() -> None:
    assert gate(CASE, calibration()) == ""
    assert gate(CASE, None) == "it has no calibration record"
    assert "stale" in gate(CASE.but(says="longer", steps=21), calibration())
    assert gate(CASE.but(says="in other words", seeds=5), calibration()) == ""
    refused = calibration(rate=rate(tally(8, 3)))
    assert gate(CASE, refused) == f"it was not admitted: {refused.reason}"


@pytest.mark.parametrize(
    "one",
    [
        calibration(),
        calibration(rate=None),
        calibration(claims=(tally(7, 2, arm="post", twins={"converged": 7}, undecidable="x"),), rate=rate()),
        calibration(claims=(tally(3, values=(1.5, math.inf, -math.inf), log=True, mean=None),)),
    ],
    ids=["admitted", "initial", "stopped", "nonfinite"],
)
def test_a_record_comes_back_through_strict_json(one: Calibration) -> None:
    written = json.loads(json.dumps(one.to_json(), allow_nan=False))
    assert Calibration.from_json(written) == one
    assert (written["admitted"], written["reason"]) == (one.admitted, one.reason)
    assert written["claims"][0]["at_most"] == pytest.approx(one.claims[0].at_most, rel=1e-5)


def test_a_hand_that_writes_admitted_into_a_record_admits_nothing() -> None:
    written = calibration(claims=(tally(6, 1),), rate=rate()).to_json()
    assert Calibration.from_json(written | {"admitted": True}).admitted is False


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"format": FORMAT + 1}, "newer"),
        ({"format": None}, "no calibration record"),
        ({"format": True}, "no calibration record"),
        ({"claims": []}, "no claim"),
        ({"claims": [{"arm": ""}]}, "not complete"),
        ({"rate": {"factor": 1.4}}, "not complete"),
    ],
)
def test_what_cannot_be_read_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(RecordError, match=words):
        Calibration.from_json(calibration().to_json() | changed)


def test_a_file_that_holds_something_else_is_refused() -> None:
    with pytest.raises(RecordError, match="no calibration record"):
        Calibration.from_json([])  # type: ignore[arg-type]


def test_spread_is_a_factor_on_the_log_scale() -> None:
    assert tally(deviation=0.0132).spread() == "0.0132"
    assert tally(deviation=math.log(1.05), log=True).spread() == "x1.05"
    assert dataclasses.replace(tally(), deviation=None).spread() == ""


@pytest.mark.parametrize(
    ("here", "words"),
    [
        ({"torch": "2.13.0+cpu", "device": "cpu"}, ""),
        ({"torch": "2.13.1", "device": "cpu", "numpy": "9"}, ""),
        ({"torch": "2.14.0", "device": "cpu"}, "torch 2.13 -> 2.14"),
        ({"torch": "2.14.0", "device": "cuda:1"}, "torch 2.13 -> 2.14, device cpu -> cuda"),
        ({}, ""),
    ],
)
def test_what_moved_in_the_environment_is_named(here: dict[str, Any], words: str) -> None:
    assert moved({"torch": "2.13.0", "device": "cpu"}, here) == words


def test_spreads_are_those_of_enough_seeds() -> None:
    few, many = tally(12, claim="few"), tally(30, claim="many", log=True, arm="pre")
    (key,) = calibration(claims=(few, many)).spreads()
    assert key == ("pre", "many")
    spread = calibration(claims=(few, many)).spreads()[key]
    assert (spread.prior.deviation, spread.prior.degrees, spread.log) == (0.02, 29, True)


def test_a_claim_that_counts_its_own_seeds_needs_no_record() -> None:
    rate_claim = CASE.but(says="mostly", tier="full", expect=converges(rate=0.95, against=0.8))
    assert gate(rate_claim, None) == ""
    both = CASE.but(says="both", tier="full", expect=(converges(rate=0.95, against=0.8), converges()))
    assert gate(both, None) == "it has no calibration record"
