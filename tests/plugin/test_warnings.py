"""Warnings of a training stand in pytest's own summary, each once a case, and are errors where filters say so."""

from __future__ import annotations

import pytest

from stabilitysuite.store import read
from tests.plugin.conftest import Project

WARNING = """
import warnings, torch
from torch import nn

class Odd(UserWarning):
    pass

def batches(seed):
    return [torch.randn(8, 4, generator=torch.Generator().manual_seed(seed + n)) for n in range(9)]

def few_batches(seed):
    return batches(seed)[:2]

def build():
    return nn.Linear(4, 1)

def loss(model, batch):
    return model(batch).square().mean()

def warning_loss(model, batch):
    warnings.warn("the labels look odd", Odd)
    warnings.warn("old habits", DeprecationWarning)
    return loss(model, batch)

def through_torch(model, batch):
    return torch.nn.functional.mse_loss(model(batch), batch[:, :2].sum(1))

def failing_loss(model, batch):
    warnings.warn("it will fail")
    return batch["key"]

_own = Case(says="it", model=build, data=batches, loss=loss, steps=5, seeds=2, expect=training_loss().at_most(50))
quiet = _own.but(says="it says nothing")
warned = _own.but(says="it warns at each step", loss=warning_loss)
told = _own.but(says="torch warns of what it does", loss=through_torch)
noted = _own.but(says="its data are short", data=few_batches)
failing = _own.but(says="it warns and fails", loss=failing_loss)
ignored = warned.but(says="it is asked not to", seeds=3, marks=(pytest.mark.filterwarnings("ignore:the labels"),))

def test_imperative(stability):
    with pytest.warns(Odd, match="the labels look odd"), pytest.warns(DeprecationWarning):
        stability.run(model=build, data=batches, loss=warning_loss, steps=2)
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["serial", "workers"])
def test_each_is_shown_once_a_case(project: Project, workers: tuple[str, ...]) -> None:
    project.cases(WARNING)
    result = project.outside(*workers)
    result.assert_outcomes(passed=6, errors=1, warnings=7)
    result.stdout.fnmatch_lines(
        [
            "*= warnings summary =*",
            "*/stability/net.py:*: UserWarning: Odd: the labels look odd",
            '*warnings.warn("the labels look odd", Odd)',
        ]
    )
    text = result.stdout.str()
    assert text.count(": UserWarning: Odd: the labels look odd") == 1
    assert text.count(": DeprecationWarning: old habits") == 1
    assert text.count("UserWarning: Using a target size") == 1
    assert text.count("UserWarning: it will fail") == 1
    assert text.count("StabilityWarning: data has 2 batches, fewer than the steps: they are gone through again") == 1
    kept = {record.id: [trace.warnings for trace in record.traces] for record in read(project.results)}
    assert kept["net/warned"] == [("Odd: the labels look odd", "DeprecationWarning: old habits")] * 2
    assert kept["net/quiet"] == [(), ()]


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["serial", "workers"])
def test_filters_make_errors_of_the_users_own_only(project: Project, workers: tuple[str, ...]) -> None:
    project.cases(WARNING)
    result = project.outside("-W", "error", *workers, "stability/net.py")
    result.assert_outcomes(passed=3, errors=4, warnings=1)
    said = "the training warned, which the filters of this session make an error: "
    result.stdout.fnmatch_lines([f"{said}Odd: the labels look odd (*/stability/net.py:*); mend it, or let *"])
    result.stdout.fnmatch_lines([f"{said}UserWarning: Using a target size *"])
    result.stdout.fnmatch_lines(["*StabilityWarning: data has 2 batches*"])
    records = {record.id: record for record in read(project.results)}
    assert {name: one.status for name, one in records.items()} == {
        "net/quiet": "judged",
        "net/noted": "judged",
        "net/warned": "error",
        "net/told": "error",
        "net/ignored": "error",
        "net/failing": "error",
    }
    assert "KeyError" in records["net/failing"].message or "IndexError" in records["net/failing"].message
    assert len(records["net/warned"].traces) == 2, "what was trained is kept"
    assert "old habits" in records["net/ignored"].message
