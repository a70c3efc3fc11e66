"""What is written comes back the same, whatever it holds, and always through strict JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stabilitysuite.case import Case
from stabilitysuite.claims.finding import Finding, worst
from stabilitysuite.record import Record
from stabilitysuite.spec import Spec, Training
from stabilitysuite.trace import Outcome, Reference, Series, Trace, decode_number, encode_number
from tests import strategies


def through_json(data: Any) -> Any:
    return json.loads(json.dumps(data, allow_nan=False))


@given(strategies.numbers | st.none())
def test_a_number_comes_back_with_its_sign(value: float | None) -> None:
    assert repr(decode_number(through_json(encode_number(value)))) == repr(value)


@pytest.mark.parametrize(
    ("made", "read"),
    [
        pytest.param(strategies.outcomes, Outcome.from_json, id="outcome"),
        pytest.param(strategies.references, Reference.from_json, id="reference"),
        pytest.param(strategies.series(), Series.from_json, id="series"),
        pytest.param(strategies.traces, Trace.from_json, id="trace"),
        pytest.param(strategies.findings, Finding.from_json, id="finding"),
        pytest.param(strategies.records, Record.from_json, id="record"),
    ],
)
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_what_a_run_left_comes_back(
    made: st.SearchStrategy[Any], read: Callable[[Any], Any], data: st.DataObject
) -> None:
    value = data.draw(made)
    # repr, because NaN is not equal to itself; it shows every field.
    assert repr(read(through_json(value.to_json()))) == repr(value)


@settings(deadline=None, max_examples=150)
@given(strategies.trainings())
def test_a_spec_comes_back(training: Training) -> None:
    assert Spec.from_json(through_json(training.to_json())) == training


@settings(deadline=None, max_examples=150)
@given(strategies.cases())
def test_a_case_comes_back_with_its_digest(case: Case) -> None:
    again = Case.from_json(through_json(case.to_json()))
    assert again == case
    assert hash(again) == hash(case)
    assert again.digest() == case.digest()


@settings(deadline=None, max_examples=30)
@given(strategies.cases(), st.randoms())
def test_a_digest_knows_no_order_of_keys(case: Case, random: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, list):
            return [shuffled(item) for item in value]
        if isinstance(value, dict):
            keys = list(value)
            random.shuffle(keys)
            return {key: shuffled(value[key]) for key in keys}
        return value

    assert Case.from_json(shuffled(case.to_json())).digest() == case.digest()


@given(st.lists(strategies.findings, min_size=1, max_size=5))
def test_the_deciding_finding_is_never_better_than_another(found: list[Finding]) -> None:
    order = ["violated", "undecided", "holds"]
    assert order.index(worst(tuple(found)).verdict) == min(order.index(one.verdict) for one in found)


@settings(deadline=None, max_examples=100)
@given(strategies.records, st.data())
def test_a_record_that_lacks_a_field_is_refused_politely(record: Record, data: st.DataObject) -> None:
    from stabilitysuite.errors import RecordError

    written = through_json(record.to_json())
    del written[
        data.draw(st.sampled_from(sorted(set(written) - {"file", "line", "admission", "gates", "estimated_seconds"})))
    ]
    with pytest.raises(RecordError) as caught:
        Record.from_json(written)
    assert "\n" not in str(caught.value)
