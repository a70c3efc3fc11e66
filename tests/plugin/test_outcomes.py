"""What each end of a case is to pytest: a failure, an error, a pass, or undecided."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import junitparser.xunit2
import pytest

from stabilitysuite.errors import RecordError
from stabilitysuite.store import read
from tests.plugin.conftest import Project

ENDS = """
good = _base.but(says="good", lr=1.0)
bad = _base.but(says="bad", lr=2.0)
mixed = _base.but(says="mixed", lr=3.0)
refused = _base.but(says="refused", lr=4.0)
raising = _base.but(says="raising", lr=5.0)
late = _base.but(says="late", lr=6.0)
known = _base.but(says="known", lr=2.0, steps=21, marks=(pytest.mark.xfail(strict=True, reason="issue 7"),))
mended = _base.but(says="mended", lr=1.0, steps=21, marks=(pytest.mark.xfail(strict=True, reason="issue 8"),))
broken = _base.but(says="broken", lr=4.0, steps=21, marks=(pytest.mark.xfail(strict=True, reason="issue 9"),))
skipped = _base.but(says="skipped", lr=2.0, steps=22, marks=(pytest.mark.skipif(True, reason="no GPU"),))
"""


def test_every_end_in_the_terminal_in_junit_and_on_disk(project: Project) -> None:
    project.fake_lab()
    file = project.cases(ENDS)
    result = project.inside("--junitxml=junit.xml", "-v")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, failed=2, errors=4, xfailed=1, skipped=1)
    result.stdout.fnmatch_lines(["*2 failed, 1 passed, 1 skipped, 1 xfailed, 4 errors, 1 undecided in *"])
    line = file.read_text().splitlines().index('bad = _base.but(says="bad", lr=2.0)') + 1
    sentence = "converges: VIOLATED, 0 of 3 seeds (3 stalled), worst progress 0, wanted progress at least 0.5*"
    result.stdout.fnmatch_lines(
        [
            "stability/net.py::bad FAILED *",
            "stability/net.py::mixed UNDECIDED *",
            "stability/net.py::refused ERROR *",
            "stability/net.py::skipped SKIPPED (no GPU)*",
            "*= ERRORS =*",
            "the model has no parameters: return one that has",
            "model() failed: KeyError",
            '*reproduce: pytest --stability "stability/net.py::raising"',
            "Traceback (most recent call last):",
            '*File "*conftest.py"*',
            "KeyError: 'weight'",
            "seed * ended as timeout at step 20: the budget is spent",
            "*= FAILURES =*",
            sentence,
            '*reproduce: pytest --stability "stability/net.py::bad" --stability-seed *',
            "*[[]XPASS(strict)] issue 8",
            "*= stability =*",
            "violated * net/bad *",
            "undecided * net/mixed *",
            f"records: {project.results}",
            "*= short test summary info =*",
        ],
    )
    assert f"{Path('stabilitysuite') / 'plugin'}" not in result.stdout.str()
    _check_junit(project.path / "junit.xml", sentence)
    records = {record.id: record for record in read(project.results)}
    assert set(records) == {f"net/{name}" for name in ENDS_BY_NAME if name != "skipped"}
    assert {name: records[f"net/{name}"].status for name in ("bad", "refused", "late")} == {
        "bad": "judged",
        "refused": "error",
        "late": "error",
    }
    assert (records["net/bad"].file, records["net/bad"].line) == ("stability/net.py", line)
    assert "KeyError" in records["net/raising"].message


ENDS_BY_NAME = [text.split(" = ")[0] for text in ENDS.strip().splitlines()]


def _check_junit(path: Path, sentence: str) -> None:
    suites: Any = junitparser.xunit2.JUnitXml.fromfile(str(path))
    cases = {case.name: case for suite in suites for case in suite}
    assert set(cases) == set(ENDS_BY_NAME)
    assert cases["bad"].result[0].message.startswith(sentence.rstrip("*"))
    assert isinstance(cases["bad"].result[0], junitparser.Failure)
    assert isinstance(cases["refused"].result[0], junitparser.Error)
    assert isinstance(cases["mixed"].result[0], junitparser.Skipped)
    assert cases["mixed"].result[0].message.startswith("converges: UNDECIDED, 5 of 8 seeds")
    properties = {item.name: item.value for item in cases["bad"].properties()}
    assert properties["stability_verdict"] == "violated"
    assert properties["stability_number"] == "0 of 3 seeds (3 stalled), worst progress 0"


def test_undecided_passes_or_fails_as_asked(project: Project) -> None:
    project.fake_lab()
    project.cases("mixed = _base.but(says='mixed', lr=3.0)\n")
    neutral = project.inside()
    assert neutral.ret == 0
    neutral.stdout.fnmatch_lines(["stability/net.py u *", "*= 1 undecided in *"])
    strict = project.inside("--stability-undecided=fail")
    strict.assert_outcomes(failed=1)
    strict.stdout.fnmatch_lines(["converges: UNDECIDED, 5 of 8 seeds*"])
    strict.stdout.fnmatch_lines(["run once more: net/mixed, first undecided, on fresh seeds too"])


def test_x_lf_ff_sw_and_maxfail_are_pytests_own(project: Project) -> None:
    project.fake_lab()
    project.cases("a = _base.but(says='a', lr=1.0)\nb = _base.but(says='b', lr=2.0)\nc = _base.but(says='c', lr=2.5)\n")
    first = project.inside("-x")
    first.assert_outcomes(passed=1, failed=1)
    assert [record.id for record in read(project.results)] == ["net/a", "net/b"]
    project.inside("--maxfail=2").assert_outcomes(passed=1, failed=2)
    project.inside("--lf").assert_outcomes(failed=2)
    project.inside("--ff", "-v").stdout.re_match_lines([r".*::b FAILED", r".*::c FAILED", r".*::a PASSED"])
    project.inside("--sw").assert_outcomes(passed=1, failed=1)
    project.inside("--sw").assert_outcomes(failed=1, deselected=1)
    durations = project.inside("--durations=3", "-vv", "--durations-min=0", "-k", "a")
    durations.stdout.fnmatch_lines(["*s setup *stability/net.py::a"])


def test_an_interrupted_session_keeps_what_was_recorded(project: Project) -> None:
    project.fake_lab()
    project.cases("a = _base.but(says='a', lr=1.0)\nb = _base.but(says='b', lr=7.0)\nc = _base.but(says='c', lr=2.5)\n")
    result = project.outside()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*KeyboardInterrupt*", "*1 passed*"])
    assert [record.id for record in read(project.results)] == ["net/a"]


def test_a_killed_session_is_named_by_the_next_one_once(project: Project) -> None:
    project.fake_lab()
    project.cases("a = _base.but(says='a', lr=1.0)\nb = _base.but(says='b', lr=8.0)\n")
    assert project.outside().ret == -signal.SIGKILL
    project.cases("a = _base.but(says='a', lr=1.0)\n")
    named = "never finished: net/b, started 20*"
    project.inside().stdout.fnmatch_lines(["holds * net/a *", named, "records: *"])
    project.inside().stdout.no_fnmatch_line(named)


def test_a_killed_session_is_named_with_workers_too(project: Project) -> None:
    """Workers write no summary: what they noted would never be read by anyone."""
    project.fake_lab()
    project.cases("b = _base.but(says='b', lr=8.0)\n")
    assert project.outside("-p", "no:xdist").ret == -signal.SIGKILL
    project.cases("a = _base.but(says='a', lr=1.0)\nc = _base.but(says='c', lr=1.0, steps=30)\n")
    result = project.outside("-n", "2", "-p", "no:cacheprovider")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["never finished: net/b, started 20*"])


def test_a_full_disk_is_an_error_with_a_row(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.fake_lab()
    project.cases("a = _base.but(says='a', lr=1.0)\n")

    def full(self: object, record: object) -> None:
        raise RecordError("the records cannot be written: No space left on device")

    monkeypatch.setattr("stabilitysuite.store.Session.record", full)
    result = project.inside()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["error * net/a *the records cannot be*", "1 case: 1 error*"])


def test_a_spoilt_folder_is_said_and_nothing_else_is_lost(project: Project) -> None:
    project.fake_lab()
    project.cases("a = _base.but(says='a', lr=1.0)\n")
    project.write("stability-results/session-old-main-1.jsonl", "{\nnot json\n")
    result = project.inside()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["holds * net/a *", "*session-old-main-1.jsonl, line 1 is not JSON*", "records: *"])


def test_a_case_that_is_reported_twice_fails_the_session(project: Project) -> None:
    project.fake_lab()
    project.cases("a = _base.but(says='a', lr=1.0)\n")
    project.write(
        "stability/conftest.py",
        "from _pytest.runner import runtestprotocol\n"
        "def pytest_runtest_protocol(item, nextitem):\n"
        "    runtestprotocol(item, nextitem=None)\n"
        "    runtestprotocol(item, nextitem=nextitem)\n"
        "    return True\n",
    )
    result = project.inside()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["net/a was reported 2 times"])


def test_random_states_are_as_before(project: Project) -> None:
    project.fake_lab()
    project.cases("a = _base.but(says='a', lr=1.0)\n")
    project.write(
        "stability/states.py",
        "import random\nfirst = random.getstate()\n"
        "def test_seeds(): random.seed(3)\n"
        "def test_kept(): assert random.getstate() == first\n",
    )
    project.inside().assert_outcomes(passed=3)


def test_a_real_training_under_warnings_as_errors(project: Project) -> None:
    project.write("tox.ini", "[pytest]\nfilterwarnings = error\n")
    project.cases("""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 1)

def batches(seed):
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randn(8, 4, generator=generator)

def loss(model, batch):
    return model.out(batch).square().mean()

def raising(model, batch):
    return batch["tokens"]

own = Case(says="an own module", model=Model, data=batches, loss=loss, steps=3, expect=training_loss().at_most(50))
fault = own.but(says="a fault in the user's own code", loss=raising)
start = _base.but(says="the gradient is not tiny at the start", steps=0, expect=gradient_norm().at_least(1e-3))
tight = start.but(says="the gradient is tiny", expect=gradient_norm().at_most(1e-3))

def test_kept():
    assert torch.initial_seed() == first
    assert torch.get_num_threads() == threads

first, threads = torch.initial_seed(), torch.get_num_threads()
""")
    result = project.outside("--stability-budget", "60")
    result.assert_outcomes(passed=3, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            '*stability*net.py", line *, in raising',
            '*return batch[[]"tokens"]*',
            "gradient_norm at most 0.001: VIOLATED*",
        ]
    )
    environment = next(iter(read(project.results))).environment
    assert environment["threads"] == 1
