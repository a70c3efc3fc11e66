"""Records that were written once are read for ever."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from stabilitysuite.record import FORMAT, Record
from stabilitysuite.store import read

HERE = Path(__file__).parent


def test_every_format_has_a_record_of_its_time() -> None:
    assert {path.name for path in HERE.glob("session-format-*.jsonl")} == {
        f"session-format-{version}.jsonl" for version in range(1, FORMAT + 1)
    }


@pytest.mark.parametrize("version", range(1, FORMAT + 1))
def test_an_old_record_is_read_whole(version: int) -> None:
    (line,) = [
        json.loads(line)
        for line in (HERE / f"session-format-{version}.jsonl").read_text(encoding="utf-8").splitlines()
        if '"kind": "record"' in line
    ]
    assert line["record"]["format"] == version
    record = Record.from_json(line["record"])
    assert record.id == "warmup/post_ln_cold"
    assert record.verdict == "undecided"
    assert [trace.outcome.name for trace in record.traces] == ["stalled", "nonfinite", "converged", "converged"]
    broken = record.traces[1]
    assert (broken.outcome.layer, broken.outcome.tensor) == ("layer 1", "output")
    assert math.isnan(broken.series["training_loss"].values[-1][0])
    assert broken.series["gradient_norm"].values[-1] == (math.inf,)


def test_a_folder_of_old_records_is_read() -> None:
    assert [record.id for record in read(HERE)] == ["warmup/post_ln_cold"] * FORMAT
