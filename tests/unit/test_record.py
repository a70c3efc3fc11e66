from __future__ import annotations

import json
from typing import Any

import pytest

from stabilitysuite.case import Case
from stabilitysuite.claims.measure import gradient_norm
from stabilitysuite.errors import RecordError
from stabilitysuite.judge import judge
from stabilitysuite.record import FORMAT, Record
from stabilitysuite.spec import Gaussian, Transformer
from tests.fakes import traces_of

CASE = Case(
    says="is small",
    model=Transformer(layers=2, width=8, heads=2),
    task=Gaussian(),
    expect=(gradient_norm().at_most(9), gradient_norm().at_most(0.1)),
)


def record(case_id: str = "file/name", **changed: Any) -> Record:
    traces = traces_of(CASE)
    fields: dict[str, Any] = {
        "id": case_id,
        "case": CASE.to_json(),
        "digest": CASE.digest(),
        "sources": {},
        "control": False,
        "status": "judged",
        "findings": judge(CASE, traces),
        "traces": tuple(traces),
        "message": "",
        "environment": {"torch": "2"},
        "started": "2026-01-01T00:00:00+00:00",
        "seconds": 1.0,
        "cpu_seconds": 1.0,
    }
    return Record(**fields | changed)


def written(**changed: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(record().to_json(), allow_nan=False))
    return made | changed


def test_the_deciding_finding_decides() -> None:
    made = record()
    assert [one.verdict for one in made.findings] == ["holds", "violated"]
    assert made.verdict == "violated"
    assert made.deciding == made.findings[1]
    assert record(findings=()).verdict is None


def test_a_newer_record_is_refused_politely() -> None:
    with pytest.raises(RecordError, match=f"format {FORMAT + 1} was written by a newer stabilitysuite; .* upgrade it"):
        Record.from_json(written(format=FORMAT + 1))


@pytest.mark.parametrize("data", [{}, {"format": "1"}, {"format": True}, [], "text", None], ids=repr)
def test_what_is_no_record_is_refused(data: Any) -> None:
    with pytest.raises(RecordError, match="this is no record: it has no format number"):
        Record.from_json(data)


@pytest.mark.parametrize(
    "changed",
    [
        {"format": 0},
        {"findings": None},
        {"findings": [{"verdict": "holds"}]},
        {"findings": "text"},
        {"traces": [{}]},
        {"traces": [3]},
        {"traces": [written()["traces"][0] | {"series": []}]},
        {"traces": [written()["traces"][0] | {"outcomes": []}]},
        {"surprise": 1},
    ],
    ids=str,
)
def test_a_record_changed_by_hand_is_refused_in_one_line(changed: dict[str, Any]) -> None:
    with pytest.raises(RecordError) as caught:
        Record.from_json(written(**changed))
    assert "\n" not in str(caught.value)


def test_a_verdict_is_one_of_three() -> None:
    finding = written()["findings"][0] | {"verdict": "passed"}
    with pytest.raises(RecordError, match="unknown verdict 'passed': known are holds, violated, undecided"):
        Record.from_json(written(findings=[finding]))


def test_a_record_of_the_first_days_has_no_file() -> None:
    old = written()
    del old["file"], old["line"]
    assert (Record.from_json(old).file, Record.from_json(old).line) == ("", 0)
