"""The fixture ``stability`` of imperative tests."""

from __future__ import annotations

from tests.plugin.conftest import Project

TESTS = """
import dataclasses
import math
import pytest
from stabilitysuite import Adam, DeclarationError, Markov, MeasurementError, Transformer

FIELDS = dict(model=Transformer(layers=1, width=8, heads=2), task=Markov(vocab=8, length=6, batch=8))

def test_a_run_leaves_a_trace(stability):
    trace = stability.run(**FIELDS, optimizer=Adam(lr=1e-2), steps=5, seed=3)
    assert trace.seed == 3
    assert trace.outcome.step == 5
    assert all(math.isfinite(row[0]) for row in trace.series["training_loss"].values)

def test_the_seed_decides(stability):
    def losses(seed):
        return stability.run(**FIELDS, optimizer=Adam(lr=1e-2), steps=5, seed=seed).series["training_loss"].values
    assert losses(1) == losses(1) != losses(2)

def test_mistakes_are_said(stability):
    with pytest.raises(DeclarationError, match="did you mean 'steps'"):
        stability.run(**FIELDS, stepss=5)
    with pytest.raises(DeclarationError, match="unknown field 'control'"):
        stability.run(**FIELDS, control={})
    with pytest.raises(DeclarationError, match="lr must be positive"):
        stability.run(**FIELDS, optimizer=Adam(lr=-1.0))

def test_no_data_is_no_trace(stability):
    stability.options = dataclasses.replace(stability.options, budget=0.2)
    with pytest.raises(MeasurementError, match="seed 0 ended as timeout"):
        stability.run(**FIELDS, optimizer=Adam(lr=1e-2), steps=100_000)

@pytest.mark.full
class TestGrouped:
    def test_in_a_class(self, stability):
        assert stability.options.threads == 1
"""


def test_imperative_tests_train(project: Project) -> None:
    project.write("tox.ini", "[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    project.write("stability/imperative.py", TESTS)
    result = project.outside()
    result.assert_outcomes(passed=5)
    assert "stability ==" not in result.stdout.str()
