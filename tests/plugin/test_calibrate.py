"""Calibration: what admits a case, what is kept of it, and what a case without it is to pytest."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stabilitysuite.catalogue import read_calibration
from stabilitysuite.store import read
from tests.plugin.conftest import FAKE_LAB, Project
from tests.plugin.test_progress import in_a_terminal

FOLDER = "stability/calibration"
CONVERGES = 'name = "converged" if lr == 1 or (lr == 3 and index)'
CASES = """
good = _base.but(says="good", lr=1.0)
edge = _base.but(says="near its edge", lr=1.2)
bad = _base.but(says="bad", lr=3.0)
raising = _base.but(says="raising", lr=4.0)
def test_imperative(): assert False
"""


@pytest.fixture
def calibrating(project: Project) -> Project:
    """A project that keeps calibration records, whose cases train up to a learning rate of 1.5."""
    assert CONVERGES in FAKE_LAB
    project.write("conftest.py", FAKE_LAB.replace(CONVERGES, CONVERGES.replace("lr == 1 ", "lr <= 1.5 ")))
    project.write("tox.ini", f"[pytest]\nstability_calibration = {FOLDER}\n")
    return project


def test_cases_are_admitted_or_refused_with_the_reason(calibrating: Project) -> None:
    calibrating.cases(CASES)
    result = calibrating.inside("--stability-calibrate", "-n0")
    result.assert_outcomes(passed=1, failed=2, errors=1, deselected=1)
    result.stdout.fnmatch_lines(
        [
            "stabilitysuite: *each case's own seeds, calibration in place of the cases",
            "*the model has no parameters: return one that has",
            "net/edge is not admitted: none of 30 seeds, but at 1.4 times the learning rate 4 of 4 on the wrong side *",
            "net/bad is not admitted: 1 of 6 seeds on the wrong side of 'converges' (5 converged, 1 stalled*",
            "*= calibration =*",
            "not admitted *net/bad *1 of 6 wrong (at most 58 %) *x1.4: not reached*",
            "not admitted *net/edge *0 of 30 wrong (at most 9.5 %) *x1.4: 4 of 4 wrong *",
            "admitted *net/good *0 of 30 wrong (at most 9.5 %) *x1.4: 0 of 8 wrong *",
            "3 cases: 1 admitted, 2 not admitted",
        ]
    )
    folder = calibrating.path / FOLDER
    assert sorted(path.name for path in folder.rglob("*.json")) == ["bad.json", "edge.json", "good.json"]
    assert not list(folder.rglob(".*"))
    good = read_calibration(folder, "net/good")
    assert good is not None
    assert good.admitted
    assert good.environment == {"device": "cpu", "threads": 1}
    assert read(calibrating.results) == []


def test_seeds_and_factor_are_as_asked(calibrating: Project) -> None:
    calibrating.cases(CASES)
    result = calibrating.inside(
        "--stability-calibrate", "--stability-calibration-seeds=3", "--stability-calibration-factor=1.1", "-k", "edge"
    )
    result.assert_outcomes(passed=1, deselected=4)
    result.stdout.fnmatch_lines(["*3 seeds a case, calibration in place*", "admitted *0 of 3 wrong (at most 63 %)*"])
    found = json.loads((calibrating.path / FOLDER / "net" / "edge.json").read_text())
    assert (found["seeds"], found["rate"]["factor"], found["rate"]["direction"]) == (3, 1.1, "times")


def test_two_workers_say_and_write_what_one_process_does(calibrating: Project) -> None:
    calibrating.cases(CASES)
    folder = calibrating.path / FOLDER

    def table(*args: str) -> tuple[list[list[str]], dict[str, object]]:
        lines = calibrating.outside("--stability-calibrate", *args).outlines
        start = next(index for index, line in enumerate(lines) if "= calibration =" in line)
        kept = {path.name: json.loads(path.read_text())["claims"] for path in folder.rglob("*.json")}
        return [line.rsplit(maxsplit=1)[:1] for line in lines[start + 1 : start + 8]], kept

    serial = table()
    assert len(serial[1]) == 3
    for path in folder.rglob("*.json"):
        path.unlink()
    assert table("-n", "2") == serial


def test_a_case_without_an_admitted_current_record_does_not_gate(calibrating: Project) -> None:
    calibrating.cases("red = _base.but(says='red', lr=2.0)\ngreen = _base.but(says='green', lr=1.0)\n")
    result = calibrating.inside("-v", "-rA")
    assert result.ret == 0
    command = 'stabilitysuite calibrate "stability/net.py::red"'
    result.stdout.fnmatch_lines(
        [
            "stability/net.py::red UNCALIBRATED *",
            "stability/net.py::green PASSED*",
            "*= NEITHER PASSED NOR FAILED =*",
            "converges: VIOLATED, 0 of 3 seeds*",
            "  admission it does not gate: it has no calibration record; to calibrate it:*",
            "uncalibrated * net/red *",
            "holds * net/green *",
            "2 cases: 1 holds, 1 uncalibrated",
            "not admitted by a calibration record, so not gating: net/green, net/red (stabilitysuite calibrate)",
            "*= 1 passed, 1 uncalibrated in *",
        ]
    )
    assert command in " ".join(result.stdout.str().split())
    (record,) = [one for one in read(calibrating.results) if one.id == "net/red"]
    assert (record.verdict, record.gates) == ("violated", False)
    # undecided does not gate either, whatever is made of it elsewhere
    calibrating.cases("mixed = _base.but(says='mixed', lr=3.0)\n")
    assert calibrating.inside("--stability-undecided=fail").ret == 0
    # an own folder, or none: what a user who keeps no records sees
    assert calibrating.inside("-o", "stability_calibration=", "--stability-undecided=fail").ret == 1


def test_an_admitted_case_gates_until_its_meaning_changes(calibrating: Project) -> None:
    calibrating.cases("it = _base.but(says='it', lr=1.0)\n")
    assert calibrating.inside("--stability-calibrate").ret == 0
    result = calibrating.inside()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("not admitted*")
    (record,) = read(calibrating.results)
    assert record.gates
    assert record.admission.startswith("none of 30 calibration seeds on the wrong side (at most 9.5 % at 95 %), nor of")
    # the code breaks, the declaration is the same: it gates
    lab = (calibrating.path / "conftest.py").read_text()
    calibrating.write("conftest.py", lab.replace("lr <= 1.5 ", "lr < 0 "))
    red = calibrating.inside()
    red.assert_outcomes(failed=1)
    red.stdout.fnmatch_lines(["converges: VIOLATED*", "  admission none of 30 calibration seeds on the wrong side *"])
    # the declaration changes: its record is stale
    calibrating.cases("it = _base.but(says='it', lr=1.0, steps=21)\n")
    stale = calibrating.inside("-n", "2")
    assert stale.ret == 0
    stale.stdout.fnmatch_lines(["  admission it does not gate: its calibration record is stale: *", "uncalibrated *"])


def test_a_refused_case_does_not_gate_and_a_spoilt_record_is_an_error(calibrating: Project) -> None:
    calibrating.cases("edge = _base.but(says='edge', lr=1.2)\n")
    assert calibrating.inside("--stability-calibrate").ret == 1
    result = calibrating.inside()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["not admitted by a calibration record, so not gating: net/edge *"])
    (calibrating.path / FOLDER / "net" / "edge.json").write_text("{")
    spoilt = calibrating.inside()
    spoilt.assert_outcomes(errors=1)
    spoilt.stdout.fnmatch_lines(["*edge.json cannot be read: *; calibrate the case again"])
    # a control is judged with the spread of its case's record, whether that admits it or not
    calibrating.cases("edge = _base.but(says='edge', lr=1.2, control=dict(lr=2.0))\n")
    calibrating.inside("--stability-controls").assert_outcomes(errors=1)
    (calibrating.path / FOLDER / "net" / "edge.json").unlink()
    calibrating.inside("--stability-controls").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            (
                "-o",
                "stability_calibration=",
            ),
            "say where, with --stability-calibration DIR",
        ),
        (("--stability-controls",), "both given"),
        (("--stability-seed", "3"), "use --stability-calibration-seeds N"),
        (("--stability-seeds", "3"), "use --stability-calibration-seeds N"),
        (("--stability-calibration-seeds", "0"), "0 is too few"),
        (("--stability-calibration-factor", "1"), "1.0 is no factor away, give one above 1"),
        (("--stability-calibration-factor", "nan"), "nan is no factor away"),
    ],
)
def test_what_cannot_be_is_refused(calibrating: Project, args: tuple[str, ...], words: str) -> None:
    calibrating.write("stability/net.py", "raise RuntimeError('imported')")
    result = calibrating.inside("--stability-calibrate", *args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{words}*"])


def test_a_folder_that_cannot_be_written_is_an_error(calibrating: Project) -> None:
    calibrating.cases("it = _base.but(says='it', lr=1.0)\n")
    calibrating.write(FOLDER, "a file")
    result = calibrating.inside("--stability-calibrate")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*it.json cannot be written: *; make room, or choose another folder"])


def test_the_command_calibrates_real_trainings(project: Project) -> None:
    project.write("tox.ini", f"[pytest]\nfilterwarnings = error\nstability_calibration = {FOLDER}\n")
    project.cases("""
it = _base.but(says="it", lr=0.01, steps=5, expect=training_loss().at_most(50))
start = _base.but(says="start", steps=0, expect=gradient_norm().at_least(1e-3))
""")
    command = [str(Path(sys.executable).with_name("stabilitysuite")), "calibrate", "--stability-calibration-seeds=7"]
    ran = subprocess.run(command, cwd=project.path, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    assert "2 cases: 2 admitted" in ran.stdout
    found = read_calibration(project.path / FOLDER, "net/it")
    assert found is not None
    assert len(found.worst.values) == 7
    assert found.cpu_seconds > 0
    assert found.environment["torch"]


def test_the_progress_line_runs_over_all_rounds(project: Project) -> None:
    project.cases("it = _base.but(says='it', lr=0.01, steps=60, expect=training_loss().at_most(50))\n")
    args = ("--stability-calibrate", f"--stability-calibration={FOLDER}", "--stability-calibration-seeds=12")
    code, written = in_a_terminal(project, *args)
    assert code == 0
    left = [int(found) for found in re.findall(r"net/it: \d seeds, step \d+/60, loss [\d.]+, (\d+) s left", written)]
    assert len(left) > 1
    assert "0 of 12 wrong" in written
