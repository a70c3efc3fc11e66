"""The command ``stabilitysuite``."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.plugin.conftest import Project


def command(project: Project, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("stabilitysuite"), *args],
        cwd=project.path,
        check=False,
        capture_output=True,
        text=True,
    )


def test_it_starts_light(project: Project) -> None:
    code = (
        "import sys, stabilitysuite.cli; "
        "print([name for name in ('torch', 'numpy', 'scipy', 'pytest', 'jinja2') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"
    assert version("stabilitysuite") in command(project, "--version").stdout
    helped = command(project, "--help").stdout
    assert all(verb in helped for verb in ("calibrate", "controls", "list", "report"))


def test_list_shows_every_tier_without_running_anything(project: Project) -> None:
    project.cases("""
post = _base.but(says="Post-LN trains", lr=1.0)
deep = _base.but(says="so does a deep one", lr=1.0, layers=3, tier="full", seeds=7)
def test_imperative(): pass
""")
    result = command(project, "list")
    lines = [line.split() for line in result.stdout.splitlines() if line.strip()]
    assert result.returncode == 0
    assert lines[0] == ["case", "tier", "seeds", "seconds", "says"]
    assert lines[1][:3] == ["net/post", "quick", "3-8"]
    assert lines[1][4:] == ["Post-LN", "trains"]
    assert lines[2][:3] == ["net/deep", "full", "7"]
    assert lines[3] == ["stability/net.py::test_imperative"]
    assert len(lines) == 4
    assert not project.results.exists()
    assert "net/deep" not in command(project, "list", "--stability-tier", "quick").stdout


def test_list_says_what_is_broken(project: Project) -> None:
    project.write("stability/net.py", "import sys\nsys.exit(1)\n")
    result = command(project, "list")
    assert result.returncode not in (0, pytest.ExitCode.INTERNAL_ERROR)
    assert "ends the program while it is imported" in result.stdout


def test_report_prints_the_newest_session_from_its_records(project: Project) -> None:
    project.fake_lab()
    project.cases("a = _base.but(says='a', lr=1.0)\nb = _base.but(says='b', lr=2.0)\n")
    project.inside("--stability-out", "there")
    result = command(project, "report", "there")
    assert result.returncode == 0
    assert [line.split()[:2] for line in result.stdout.splitlines()[2:4]] == [["violated", "net/b"], ["holds", "net/a"]]
    missing = command(project, "report")
    assert missing.returncode == 1
    assert "run pytest --stability first" in missing.stderr
