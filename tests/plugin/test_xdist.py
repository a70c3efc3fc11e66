"""Several processes: the same verdicts, and what happens when one of them dies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import junitparser.xunit2
import pytest

from stabilitysuite.plugin.workers import Controller, spread
from stabilitysuite.store import read
from tests.plugin.conftest import Project

CASES = """
import numpy as np
a = _base.but(says="a", lr=1.0)
b = _base.but(says="b", lr=2.0, steps=40)
c = _base.but(says="c", lr=3.0, steps=30)
d = _base.but(says="d", lr=2.0, steps=np.int64(50).item(), expect=converges(progress=float(np.float64(0.25))))
e = _base.but(says="e", lr=4.0)
def test_imperative(): pass
"""


def ends(project: Project, name: str) -> dict[str, tuple[str | None, ...]]:
    """For each test the kind of its end and its first line, from a JUnit file."""
    found = {}
    suites: Any = junitparser.xunit2.JUnitXml.fromfile(str(project.path / name))
    for suite in suites:
        for case in suite:
            result = case.result[0] if case.result else None
            message = result.message.splitlines()[0] if result is not None else ""
            properties = {item.name: item.value for item in case.properties()}
            kept = ("stability_id", "stability_verdict", "stability_margin", "stability_number", "stability_line")
            found[case.name] = (type(result).__name__, message, *(properties.get(key) for key in kept))
    return found


def test_two_workers_say_what_one_process_says(project: Project) -> None:
    project.fake_lab()
    project.cases(CASES)
    serial = project.outside("--junitxml=one.xml")
    parallel = project.outside("--junitxml=two.xml", "-n", "2")
    counts = {"passed": 2, "failed": 2, "errors": 1}
    serial.assert_outcomes(**counts)
    parallel.assert_outcomes(**counts)
    assert ends(project, "one.xml") == ends(project, "two.xml")
    assert len(ends(project, "two.xml")) == 6

    def table(result: pytest.RunResult) -> list[str]:
        start = next(index for index, line in enumerate(result.outlines) if "= stability =" in line)
        return [line.rsplit(maxsplit=1)[0] for line in result.outlines[start + 3 : start + 8]]

    assert table(serial) == table(parallel)
    assert "\x1b" not in parallel.stdout.str()
    sessions = {path.name.split("-gw")[0] for path in project.results.glob("*-gw*.jsonl")}
    assert len(sessions) == 1
    assert len(list(project.results.glob("*-gw*.jsonl"))) == 2
    assert len(read(project.results)) == 10


def test_a_killed_worker_costs_one_error_and_the_rest_goes_on(project: Project) -> None:
    project.fake_lab()
    project.cases("""
a = _base.but(says="a", lr=1.0)
b = _base.but(says="b", lr=1.0, width=4)
dies = _base.but(says="dies", lr=8.0)
c = _base.but(says="c", lr=1.0, width=12)
d = _base.but(says="d", lr=1.0, width=16)
def test_dies():
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
""")
    result = project.outside("-n", "2", "--junitxml=junit.xml")
    result.assert_outcomes(passed=4, errors=2)
    result.stdout.fnmatch_lines(["stability/net.py::dies: gw* died while it ran this *", "error * net/dies *"])
    assert ends(project, "junit.xml")["dies"][0] == "Error"
    records = {record.id: record.status for record in read(project.results)}
    assert records == {"net/a": "judged", "net/b": "judged", "net/c": "judged", "net/d": "judged", "net/dies": "error"}
    after = project.inside("stability/net.py::a")
    after.stdout.no_fnmatch_line("never finished*")


def test_what_no_worker_is_left_to_run_is_named(project: Project) -> None:
    project.fake_lab()
    project.cases("dies = _base.but(says='dies', lr=8.0, steps=90)\nnext = _base.but(says='next', lr=1.0)\n")
    result = project.outside("-n", "1", "--max-worker-restart=0")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["error * net/dies *", "never ran: stability/net.py::next"])


def test_a_broken_file_is_one_error_for_all_workers(project: Project) -> None:
    project.fake_lab()
    project.cases("a = _base.but(says='a', lr=1.0)\n")
    project.write("stability/broken.py", "import sys\nsys.exit(3)\n")
    project.outside("-n", "2").assert_outcomes(passed=1, errors=1)


@pytest.mark.parametrize(
    ("workers", "order"),
    [(1, [3, 1, 4, 0, 5, 2]), (2, [3, 2, 1, 5, 4, 0]), (3, [3, 1, 4, 0, 5, 2]), (9, [3, 1, 4, 0, 5, 2])],
)
def test_the_longest_open_every_workers_list(workers: int, order: list[int]) -> None:
    assert spread([3.0, 9.0, 0.0, 10.0, 5.0, 1.0], workers) == order


class Spec:
    def __init__(self) -> None:
        self.env: dict[str, str] = {}


@pytest.mark.parametrize(
    ("device", "visible", "given"),
    [("cuda", "3,GPU-7f", ["3", "GPU-7f", "3"]), ("cpu", "3,4", [None] * 3), ("cuda:1", "3,4", [None] * 3)],
)
def test_workers_share_the_callers_cards(
    project: Project, monkeypatch: pytest.MonkeyPatch, device: str, visible: str, given: list[str | None]
) -> None:
    from stabilitysuite.plugin.suite import Suite

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    suite = Suite(project.pytester.parseconfig("--stability-device", device))
    specs = [Spec(), Spec(), Spec()]
    Controller(suite).pytest_xdist_setupnodes(specs)
    assert [spec.env.get("CUDA_VISIBLE_DEVICES") for spec in specs] == given


def test_a_worker_has_one_thread_also_where_the_user_calls_torch(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    project.cases("a = _base.but(says='a', lr=0.01, expect=training_loss().at_most(50))\n")
    project.write("stability/threads.py", "import torch\ndef test_threads(): assert torch.get_num_threads() == 1\n")
    project.outside("-n", "1").assert_outcomes(passed=2)


def test_rows_hold_nothing_but_builtins(project: Project) -> None:
    project.fake_lab()
    project.write(
        "conftest.py",
        (project.path / "conftest.py").read_text() + "\nimport json\ndef pytest_runtest_logreport(report):\n"
        "    for name, value in report.user_properties:\n"
        "        assert type(value) in (str, int, float, bool, type(None)), name\n"
        "        open('seen.txt', 'a').write(json.dumps(name) + '\\n')\n",
    )
    project.cases(CASES)
    project.inside()
    assert '"stability_margin"' in Path("seen.txt").read_text().splitlines()
    assert all(json.loads(line).startswith("stability_") for line in Path("seen.txt").read_text().splitlines())
