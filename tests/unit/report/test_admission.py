from __future__ import annotations

import json

from stabilitysuite.claims.measure import gradient_norm
from stabilitysuite.claims.outcome import converges
from stabilitysuite.report.admission import AdmissionRow, admission_table, sight_table
from tests.unit.test_calibration import CASE, calibration, rate, tally


def test_what_was_not_admitted_comes_first_and_is_counted() -> None:
    rows = [
        AdmissionRow.of(calibration(id="b/good"), CASE),
        AdmissionRow.of(calibration(id="c/initial", rate=None), CASE),
        AdmissionRow.of(calibration(id="d/bad", claims=(tally(12, 1),), rate=rate()), CASE),
        AdmissionRow.of(calibration(id="a/fails", rate=rate(tally(8), direction="divided")), CASE),
    ]
    lines = admission_table(rows)
    assert (
        [line.text for line in lines]
        == """\
calibration   case       wrong side                     changed rate        spread  seconds
------------  ---------  -----------------------------  ------------------  ------  -------
not admitted  d/bad      1 of 12 wrong (at most 34 %)   x1.4: not reached   -          12.5
admitted      a/fails    0 of 30 wrong (at most 9.5 %)  /1.4: 0 of 8 wrong  0.02       12.5
admitted      b/good     0 of 30 wrong (at most 9.5 %)  x1.4: 0 of 8 wrong  0.02       12.5
admitted      c/initial  0 of 30 wrong (at most 9.5 %)  -                   0.02       12.5

4 cases: 3 admitted, 1 not admitted""".splitlines()
    )
    assert [line.style for line in lines][2:] == ["red", "green", "green", "green", "", "red"]
    assert admission_table(rows[:1])[-1].text == "1 case: 1 admitted"


def test_a_row_crosses_as_builtins_and_prints_no_escape() -> None:
    row = AdmissionRow.of(calibration(id="net/a\x1b[31m"), CASE)
    assert AdmissionRow.from_json(json.loads(json.dumps(row.to_json()))) == row
    assert "\x1b" not in admission_table([row])[2].text


def test_what_each_claim_sees() -> None:
    number = tally(claim="gradient_norm at most 2", log=True, mean=0.0, deviation=0.1)
    case = CASE.but(says="both", expect=(converges(), gradient_norm().at_most(2)))
    row = AdmissionRow.of(calibration(claims=(tally(), number)), case)
    assert AdmissionRow.from_json(json.loads(json.dumps(row.to_json()))) == row
    text = [line.text for line in sight_table([row])]
    assert (
        text
        == """\
case        claim                    expected        sees          false alarms
----------  -----------------------  --------------  ------------  ------------
net/trains  converges                0.863 to 0.937  63 % of runs         2.9 %
net/trains  gradient_norm at most 2  0.832 to 1.2    x2.32         under 0.01 %""".splitlines()
    )
    assert sight_table([AdmissionRow.of(calibration(claims=(tally(12, 1),), rate=rate()), CASE)]) == []
