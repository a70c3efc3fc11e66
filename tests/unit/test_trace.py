from __future__ import annotations

import math

import pytest

from stabilitysuite.errors import RecordError
from stabilitysuite.trace import Outcome, Reference, Series, Trace, decode_number
from tests.fakes import series, trace


def test_progress_goes_from_the_plateau_to_the_floor() -> None:
    reference = Reference(plateau=4.0, floor=2.0)
    assert [reference.progress(loss) for loss in (4.0, 3.0, 2.0, 6.0)] == [0.0, 0.5, 1.0, -1.0]


def test_without_a_way_to_go_there_is_no_progress() -> None:
    assert math.isnan(Reference(plateau=2.0, floor=2.0).progress(1.0))


def test_an_unknown_outcome_is_refused() -> None:
    with pytest.raises(RecordError, match="unknown outcome 'exploded': known are converged"):
        Outcome.from_json({"name": "exploded", "step": 3})


def test_a_series_whose_values_do_not_fit_is_refused() -> None:
    with pytest.raises(RecordError, match="series 'gradient_norm': 2 steps x 1 labels do not fit"):
        Series(quantity="gradient_norm", steps=(0, 1), labels=("",), values=((1.0,),))


def test_a_missing_number_is_never_read_as_zero() -> None:
    written = series("gradient_norm", {0: [1.0]}).to_json()
    written["values"] = [[None]]
    with pytest.raises(RecordError, match="null where a number belongs"):
        Series.from_json(written)


def test_an_unknown_spelling_is_refused() -> None:
    with pytest.raises(RecordError, match="'NaN' is no number"):
        decode_number("NaN")


def test_a_row_is_found_by_its_step() -> None:
    kept = series("gradient_norm", {0: [1.0], 10: [2.0]})
    assert kept.at(10) == (2.0,)
    assert kept.at(5) is None


def test_a_trace_without_an_outcome_is_refused() -> None:
    with pytest.raises(RecordError, match="seed 7 has no outcome"):
        Trace(arm="", seed=7, outcomes=(), series={})


def test_an_outcome_is_that_of_the_step_it_was_judged_at() -> None:
    late = trace(("learning", 100), ("converged", 200))
    assert late.outcome.name == "converged"
    assert late.outcome_at(100).name == "learning"
    assert late.outcome_at(200).name == "converged"
    assert late.outcome_at(300).name == "converged"


@pytest.mark.parametrize("end", ["nonfinite", "timeout"])
def test_a_run_that_ended_early_keeps_its_end(end: str) -> None:
    broken = trace((end, 7))  # type: ignore[arg-type]
    assert broken.outcome_at(100).name == end
