"""Controls in place of the cases, and the command that runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stabilitysuite.store import read
from tests.plugin.conftest import Project


def test_a_control_passes_only_when_it_is_caught(project: Project) -> None:
    project.fake_lab()
    project.cases("""
caught = _base.but(says="caught", lr=1.0, control=dict(lr=2.0))
blind = _base.but(says="blind", lr=1.0, width=4, control=dict(width=8))
unsure = _base.but(says="unsure", lr=1.0, width=4, steps=30, control=dict(lr=3.0))
without = _base.but(says="without", lr=1.0, steps=40)
""")
    result = project.inside("--stability-controls")
    result.assert_outcomes(passed=1, failed=2, errors=1)
    result.stdout.fnmatch_lines(
        [
            "'without' has no control=, so nothing proves that it can fail: *",
            "not caught: converges: HOLDS, 3 of 3 seeds*",
            "*reproduce: pytest --stability * --stability-controls",
            "not caught: converges: UNDECIDED, 5 of 8 seeds*",
            "caught * net/caught *",
        ]
    )
    assert all(record.control for record in read(project.results))
    assert project.inside("-k", "caught").ret == 0


def test_the_command_hands_arguments_on_and_gives_the_exit_code_back(project: Project) -> None:
    project.write("tox.ini", "[pytest]\nfilterwarnings = error\n")
    project.fake_lab()
    project.cases(
        "caught = _base.but(says='caught', lr=1.0, control=dict(lr=2.0))\n"
        "without = _base.but(says='without', lr=1.0, steps=40)\n"
    )

    def controls(*args: str) -> int:
        command = [str(Path(sys.executable).with_name("stabilitysuite")), "controls", *args]
        return subprocess.run(command, cwd=project.path, check=False, capture_output=True).returncode

    assert controls("-k", "caught") == 0
    assert controls() == pytest.ExitCode.TESTS_FAILED
    assert controls("-k", "nothing") == pytest.ExitCode.NO_TESTS_COLLECTED
