from __future__ import annotations

import dataclasses
import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stabilitysuite.record import Record
from stabilitysuite.report import markdown
from stabilitysuite.report.markdown import ANNOTATIONS, escaped, fenced, in_tag, summary

from .records import finding, record

HOSTILE = st.text(
    st.one_of(st.sampled_from(list("|<>@`\\*_[]()!#~$&'\"\n\r\t:%/ ")), st.characters(exclude_categories=["Cs"])),
    max_size=60,
)
OURS = re.compile(r"</?details>|</?summary>")


def outside_fences(text: str) -> str:
    """What markdown reads as markdown: the text without its blocks of code."""
    return re.sub(r"^(`{3,})text\n.*?^\1\n", "", text, flags=re.MULTILINE | re.DOTALL)


def test_summary_shows_what_does_not_hold_first_and_explains_it() -> None:
    records = [
        record(finding("holds"), id="a/holds"),
        record(finding("undecided"), id="b/open"),
        record(finding("violated"), id="c/wrong"),
        record(status="error", id="d/broken", message="boom"),
    ]
    text = summary(records)
    head, table, *details = text.split("\n\n")
    assert head == "### ❌ Stability: 4 cases: 1 holds, 1 violated, 1 error, 1 undecided"
    assert [line.split(" | ")[1] for line in table.splitlines()[2:]] == ["c/wrong", "d/broken", "b/open", "a/holds"]
    assert "| ✅ holds | a/holds | branch_ratio of the first sublayer = 0.0563 (99 % interval" in table
    assert "| 💥 error | d/broken | boom | - |  | 8.1 |" in table
    assert re.findall(r"<summary>(.*)</summary>", "\n".join(details)) == [
        "❌ violated: c/wrong",
        "💥 error: d/broken",
        "⚠️ undecided: b/open",
    ]


def test_explanation_in_the_summary_is_the_one_of_the_terminal() -> None:
    text = summary([record(finding("violated", published=0.01))])
    assert "published 0.01: differs" in text
    assert "reproduce: pytest --stability cases/warmup.py::post_ln_warm" in text


def test_no_records_are_said() -> None:
    assert summary([]) == "### Stability: no records\n"


def test_unfinished_cases_are_named_even_where_all_others_hold() -> None:
    text = summary([record(finding("holds"))], unfinished=["deep/killed", "deep/lost"])
    assert text.startswith("### 💥 Stability: 1 case: 1 holds\n")
    assert "**2 cases never came to an end** (killed, out of memory, or out of time): deep/killed, deep/lost" in text
    assert "no records" in summary([], unfinished=["deep/killed"])


def test_controls_are_caught_or_not() -> None:
    text = summary([record(finding("violated"), control=True), record(finding("holds"), control=True, id="a/b")])
    assert "| ❌ not caught | a/b |" in text
    assert "| ✅ caught |" in text
    assert text.count("<details>") == 1


# ---------------------------------------------------------------------------------------------------- escaping


@given(HOSTILE, HOSTILE, HOSTILE)
def test_no_text_of_others_breaks_a_row_or_writes_html(name: str, number: str, message: str) -> None:
    records = [
        record(finding("violated", number=number or "x", claim=message), id=name, says=message, file=name),
        record(status="error", message=message, id=number),
    ]
    shown = outside_fences(summary(records, unfinished=[name]))
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert len(rows) == 4
    assert all(line.count("|") == 7 for line in rows)
    assert len(OURS.findall(shown)) == 8
    assert not re.search(r"[<>]", OURS.sub("", shown))


@given(HOSTILE)
def test_an_escaped_text_is_one_line_that_reads_as_it_was(text: str) -> None:
    line = escaped(text)
    assert len(line.splitlines()) <= 1
    shown = html.unescape(re.sub(r"\\([\\`*_\[\]~$!])", r"\1", line)).replace("\u200b", "")
    assert shown.split() == "".join(sign for sign in text if sign.isprintable() or sign.isspace()).split()


@pytest.mark.parametrize("text", ["@octocat", "see #12", "http://evil.example", "www.evil.example"])
def test_mentions_references_and_addresses_do_not_become_links(text: str) -> None:
    for line in (escaped(text), in_tag(text)):
        assert text not in line
        assert "\u200b" in line


@given(HOSTILE.map(lambda text: text + "\n```\n````\nx"))
def test_a_fence_cannot_be_closed_from_within(text: str) -> None:
    block = fenced(text)
    fence = block.partition("text\n")[0]
    assert set(fence) == {"`"}
    assert [line for line in block.splitlines()[1:] if line.startswith(fence)] == [fence]


def test_names_of_any_length_keep_the_table_readable() -> None:
    assert len(escaped("x" * 5_000)) == 300


# --------------------------------------------------------------------------------------------------------- cap


def many(count: int) -> list[Record]:
    failing = [record(finding("violated"), id=f"wrong/{number:04}") for number in range(count)]
    return [*(record(finding("holds"), id=f"good/{number:04}") for number in range(count)), *failing]


@pytest.mark.parametrize("cap", [5_000, 20_000, 100_000])
def test_the_cap_is_kept_and_what_was_left_out_is_said(cap: int) -> None:
    text = summary(many(150), cap=cap)
    assert len(text.encode()) <= cap
    assert "wrong/0000" in text
    rows, details = text.count("\n| "), text.count("<details>")
    assert f"{150 - details} explanations" in text if details < 150 else "explanations" not in text
    assert f"{301 - rows} rows" in text if rows < 301 else " rows" not in text


def test_failures_keep_their_place_before_what_holds() -> None:
    text = summary(many(150), cap=100_000)
    assert text.count("| ❌ violated |") == 150
    assert "150 cases" not in text
    assert text.startswith("### ❌ Stability: 300 cases: 150 hold, 150 violated\n")


def test_one_endless_message_does_not_push_out_the_others() -> None:
    endless = record(status="error", message="boom\n" + "x" * 500_000, id="a/endless")
    text = summary([endless, record(finding("violated"), id="b/wrong")], cap=60_000)
    assert "cut after" in text
    assert text.count("<details>") == 2


def test_nothing_is_left_out_of_a_usual_session() -> None:
    assert "Left out" not in summary(many(50))


# ------------------------------------------------------------------------------------------------- annotations


def test_annotations_point_at_the_case_and_say_what_was_found() -> None:
    found = finding("violated")
    (one,) = markdown.annotations(
        [record(found), record(finding("holds"), id="a/b"), record(status="skipped", id="a/c")]
    )
    assert (one.level, one.file, one.line) == ("error", "cases/warmup.py", 12)
    assert one.title == "warmup/post_ln_warm: violated"
    assert one.message == found.sentence()


def test_errors_come_before_warnings() -> None:
    records = [
        record(finding("undecided"), id="a/open"),
        record(status="error", message="boom", id="b/broken"),
        record(finding("holds"), control=True, id="c/missed"),
    ]
    assert [(one.level, one.title) for one in markdown.annotations(records)] == [
        ("error", "c/missed: not caught"),
        ("error", "b/broken: error"),
        ("warning", "a/open: undecided"),
    ]


@pytest.mark.parametrize(("count", "kept", "last"), [(10, 10, "wrong/9: violated"), (17, 10, "and 8 more")])
def test_the_tenth_of_a_level_stands_for_all_that_follow(count: int, kept: int, last: str) -> None:
    records = [record(finding("violated"), id=f"wrong/{number}") for number in range(count)]
    records.append(record(finding("undecided"), id="open/one"))
    found = markdown.annotations(records)
    errors = [one for one in found if one.level == "error"]
    assert len(errors) == kept == ANNOTATIONS
    assert errors[-1].title == last
    assert found[-1].title == "open/one: undecided"


def test_a_message_is_cut_before_github_cuts_it() -> None:
    (one,) = markdown.annotations([record(status="error", message="x" * 10_000)])
    assert len(one.message) <= 4_096
    assert one.message.endswith("…")


def test_a_case_that_does_not_gate_is_a_warning_with_its_reason() -> None:
    open_case = dataclasses.replace(record(finding("violated")), gates=False, admission="it does not gate: no record")
    (one,) = markdown.annotations([open_case])
    assert (one.level, one.title) == ("warning", "warmup/post_ln_warm: uncalibrated")
    text = summary([open_case])
    assert text.startswith("### ⚠️ Stability: 1 case: 1 uncalibrated")
    assert "  admission it does not gate: no record" in text
