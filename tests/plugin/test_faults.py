"""Faults in somebody's case file and training: each is said with its place and its remedy, and none passes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from stabilitysuite.cli import main
from stabilitysuite.store import read
from tests.plugin.conftest import Project


def test_misspelt_names_point_to_the_nearest(project: Project) -> None:
    project.write("stability/a.py", "from stabilitysuite import brunch_ratio\n")
    project.write("stability/b.py", "from stabilitysuite import Adm\n")
    project.cases("norm = _base.but(says='n', norm='pree')\n", "stability/c.py")
    project.cases("tier = _base.but(says='t', lr=1.0, tier='ful')\n", "stability/d.py")
    project.cases("optimizer = _base.but(says='o', optimizer='adam')\n", "stability/e.py")
    project.cases("none = _base.but(says='s', lr=1.0, seeds=0)\n", "stability/f.py")
    result = project.inside()
    result.assert_outcomes(errors=6)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "brunch_ratio: did you mean 'branch_ratio'?",
            "Adm: did you mean 'Adam'?",
            "stability/c.py:*: Transformer: norm='pree' is not known: did you mean 'pre'?",
            "stability/d.py:*: Case 't': tier='ful' is not known: did you mean 'full'?",
            "stability/e.py:*: Case 'o': *optimizer must be SGD or Adam or AdamW or Callable, not 'adam'",
            "stability/f.py:*: Case 's': seeds=0: a case without seeds decides nothing",
        ]
    )


FAULTS = """
import random, sys, numpy, torch
from torch import nn

def batches(seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(8, 4, generator=generator, dtype=torch.float32) for _ in range(9)]

def build():
    return nn.Linear(4, 1)

def loss(model, batch):
    return model(batch).square().mean()

def raising():
    return {}["layers"]

def text():
    return "model"

def empty():
    return nn.ReLU()

def vector_loss(model, batch):
    return model(batch)

def detached_loss(model, batch):
    return loss(model, batch).detach()

def nan_loss(model, batch):
    return loss(model, batch) * float("nan")

used = iter(batches(0) + batches(1))

def exhausted(seed):
    return used

def leaving(model, batch):
    sys.exit("done")

def huge():
    return nn.Linear(2**40, 2**10)

def starving(model, batch):
    raise MemoryError

def meddling():
    print("building the model")
    torch.manual_seed(0), random.seed(0), numpy.random.seed(0)
    torch.set_default_dtype(torch.float64)
    return nn.Linear(4, 1).float()

def strict_build():
    assert torch.get_default_dtype() == torch.float32
    return nn.Linear(4, 1)

first = torch.initial_seed(), random.getstate()

_own = Case(says="it", model=build, data=batches, loss=loss, steps=5, seeds=2, expect=training_loss().at_most(50))
a_raising = _own.but(says="factory raises", model=raising)
b_text = _own.but(says="no module", model=text)
c_empty = _own.but(says="no parameter", model=empty)
d_vector = _own.but(says="no scalar", loss=vector_loss)
e_detached = _own.but(says="no graph", loss=detached_loss)
f_nan = _own.but(says="NaN", loss=nan_loss)
g_exhausted = _own.but(says="no data", data=exhausted, steps=20)
h_leaving = _own.but(says="SystemExit", loss=leaving)
i_huge = _own.but(says="no memory", model=huge)
j_starving = _own.but(says="no memory either", loss=starving)
k_meddling = _own.but(says="it prints and meddles", model=meddling)
l_after = _own.but(says="and nothing is left of it", model=strict_build)

def test_kept():
    assert (torch.initial_seed(), random.getstate()) == first
    assert torch.get_default_dtype() == torch.float32
"""


def test_a_fault_of_the_users_is_said_with_its_place(project: Project) -> None:
    project.cases(FAULTS)
    result = project.outside("--junitxml=junit.xml", "-rP")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=3, failed=1, errors=9, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*line *, in raising",
            "model *text must return an nn.Module, it returned str",
            "model *empty has no trainable parameter: there is nothing to train",
            "loss *vector_loss must return a scalar, it returned shape (8, 1): take a mean",
            "the loss has no gradient graph: it does not depend on a trainable parameter*",
            "data *exhausted(*) has no batches the second time it is called: return a fresh iterable each time",
            "SystemExit: done",
            "seed * ended as out-of-memory at step 0: *allocate*",
            "seed * ended as out-of-memory at step 0: MemoryError",
            "training_loss at most 50: VIOLATED*nan*",
            "*StabilityWarning: model *meddling sets torch's global seed: every seed starts from the same weights*",
        ]
    )
    assert "building the model" in result.stdout.str()
    records = {record.id.removeprefix("net/"): record for record in read(project.results)}
    assert len(records) == 12
    assert {records["f_nan"].traces[0].outcome.name, records["i_huge"].traces[0].outcome.name} == {
        "nonfinite",
        "out-of-memory",
    }
    assert "KeyError: 'layers'" in records["a_raising"].message


def test_what_a_killed_or_newer_session_left_is_passed_over_or_named(project: Project) -> None:
    project.fake_lab()
    project.cases("a = _base.but(says='a', lr=1.0)\n")
    assert project.inside().ret == 0
    (path,) = project.results.glob("*.jsonl")
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole[: whole.rindex('"says"')], encoding="utf-8")
    path.write_text(path.read_text().replace(f'"pid": {_pid(whole)}', '"pid": 999999999'), encoding="utf-8")
    result = project.inside()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["holds * net/a *", "never finished: net/a, started *"])
    assert [record.id for record in read(project.results)] == ["net/a"]
    path.write_text(whole.replace('"record": {"format": 1,', '"record": {"format": 99,'), encoding="utf-8")
    assert project.inside().ret == 0
    for other in project.results.glob("*.jsonl"):
        if other != path:
            other.unlink()
    report = CliRunner().invoke(main, ["report", str(project.results)])
    assert report.exit_code == 1
    said = (
        f"Error: {path}, line 3: a record of format 99 was written by a newer stabilitysuite; this one reads up to 1: "
    )
    assert report.output.startswith(said)


def _pid(text: str) -> str:
    return text.partition('"pid": ')[2].partition("}")[0]


def test_an_output_folder_that_cannot_be_made_is_refused(project: Project) -> None:
    project.cases("a = _base.but(says='a', lr=1.0)\n")
    result = project.inside("--stability-out=/proc/stability")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*--stability-out: the output folder /proc/stability cannot be used: *choose another*"]
    )


LIMIT = """
import resource, signal
def pytest_runtest_setup(item):
    if item.name in ({names}):
        size = max((path.stat().st_size for path in item.config.rootpath.glob("stability-results/*")), default=0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + {more}, resource.RLIM_INFINITY))
def pytest_runtest_teardown(item):
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


@pytest.mark.parametrize("more", [0, 400], ids=["at its start", "in its record"])
def test_files_that_may_not_grow_cost_one_error_each_and_spoil_nothing(project: Project, more: int) -> None:
    """As on a full disk, the system takes a part of a write and then refuses the rest."""
    project.fake_lab()
    fake = (project.path / "conftest.py").read_text()
    project.write("conftest.py", fake + LIMIT.format(names="'b',", more=more))
    project.cases("\n".join(f"{name} = _base.but(says='{name}', lr=1.0)" for name in "abc"))
    result = project.outside("-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*cannot be written: *; make room, or choose another folder*",
            "error * net/b *the records cannot be*",
            "3 cases: 2 hold, 1 error",
        ]
    )
    assert [record.id for record in read(project.results)] == ["net/a", "net/c"]


def test_two_sessions_write_into_one_folder_at_once(project: Project) -> None:
    project.fake_lab()
    project.cases("\n".join(f"{name} = _base.but(says='{name}', lr=1.0)" for name in "abcdefgh"))
    command = [sys.executable, "-m", "pytest", "--stability", "-p", "no:cacheprovider"]
    runs = [subprocess.Popen(command, cwd=project.path, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [run.communicate(timeout=120)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said
    assert not any("never finished" in text for text in said)
    assert len(read(project.results)) == 16
    assert len({path.name for path in Path(project.results).iterdir()}) == 2
