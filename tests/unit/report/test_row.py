from __future__ import annotations

import dataclasses
import json

import pytest

from stabilitysuite.claims.finding import Finding, Verdict
from stabilitysuite.record import Status
from stabilitysuite.report.row import Row, Word, one_line, rank, tally

from .records import finding, record


def test_row_survives_the_way_through_json() -> None:
    row = Row.of(record(finding("violated"), message="first\nsecond"), reproduce="pytest --stability x")
    assert Row.from_json(json.loads(json.dumps(row.to_json()))) == row


def test_row_carries_the_deciding_finding_and_the_place_of_the_case() -> None:
    worst = finding("violated", number="progress 0.01", margin=-0.49, margin_unit="difference", seeds=(7, 8))
    row = Row.of(record(finding("holds"), worst))
    assert (row.number, row.margin, row.seeds, row.verdict) == ("progress 0.01", "-0.49", 2, "violated")
    assert (row.file, row.line) == ("cases/warmup.py", 12)


def test_file_and_line_of_the_caller_win_over_those_of_the_record() -> None:
    row = Row.of(record(finding()), file="other.py", line=3)
    assert (row.file, row.line) == ("other.py", 3)


def test_only_the_first_line_of_an_error_is_kept() -> None:
    row = Row.of(record(status="error", message="\n  boom \x1b[31m\n  Traceback ..."))
    assert row.message == "boom [31m"


@pytest.mark.parametrize(
    ("status", "judged", "control", "word"),
    [
        ("judged", finding("holds"), False, "holds"),
        ("judged", finding("violated"), False, "violated"),
        ("judged", finding("undecided"), False, "undecided"),
        ("judged", finding("violated"), True, "caught"),
        ("judged", finding("holds"), True, "not caught"),
        ("judged", finding("undecided"), True, "not caught"),
        ("judged", None, False, "error"),
        ("error", finding("holds"), False, "error"),
        ("error", None, True, "error"),
        ("skipped", None, False, "skipped"),
    ],
)
def test_a_control_is_caught_by_a_violated_finding_only_and_no_finding_never_passes(
    status: Status, judged: Finding | None, control: bool, word: Word
) -> None:
    findings = () if judged is None else (judged,)
    assert Row.of(record(*findings, status=status, control=control)).word == word


@pytest.mark.parametrize(
    ("verdict", "word"), [("violated", "uncalibrated"), ("undecided", "uncalibrated"), ("holds", "holds")]
)
def test_a_case_that_does_not_gate_is_never_violated(verdict: Verdict, word: Word) -> None:
    row = Row.of(dataclasses.replace(record(finding(verdict)), gates=False, admission="it does not gate"))
    assert row.word == word
    assert Row.from_json(json.loads(json.dumps(row.to_json()))) == row
    assert tally([row, row]) == f"2 cases: 2 {'hold' if word == 'holds' else word}"


def test_rows_are_ranked_by_what_has_to_be_mended_first() -> None:
    rows = [
        Row.of(record(finding("holds"), id="a/z")),
        Row.of(record(finding("holds"), id="a/a")),
        Row.of(record(finding("undecided"), id="b/b")),
        Row.of(record(status="error", id="c/c")),
        Row.of(record(finding("violated"), id="d/d")),
    ]
    assert [row.id for row in sorted(rows, key=rank)] == ["d/d", "c/c", "b/b", "a/a", "a/z"]


def test_tally_counts_cases_and_controls_apart() -> None:
    rows = [
        Row.of(record(finding("holds"))),
        Row.of(record(finding("holds"))),
        Row.of(record(status="error")),
    ]
    assert tally(rows) == "3 cases: 2 hold, 1 error"
    controls = [Row.of(record(finding(verdict), control=True)) for verdict in ("violated", "holds")]
    assert tally(controls) == "2 controls: 1 caught, 1 not caught"
    assert tally([rows[0], controls[0]]) == "1 case: 1 holds; 1 control: 1 caught"
    assert tally([]) == "no cases"


def test_one_line_leaves_no_control_character() -> None:
    assert one_line("a\x1b]0;title\x07 b\r\n\tc\u2028d\u202e") == "a]0;title b c d"
