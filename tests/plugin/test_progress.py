"""The line that says where a training is, seen through a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from typing import Any

import pytest

from stabilitysuite import Case, Markov, Transformer, converges
from stabilitysuite.plan import Plan, plan
from stabilitysuite.plugin.progress import ProgressLine, Remaining
from tests.plugin.conftest import Project

LONG = """
long = _base.but(says="a training of a second or two", lr=0.01, steps=400, seeds=2, expect=training_loss().at_most(50))
bad = _base.but(says="its loss is tiny", lr=0.01, steps=5, expect=training_loss().at_most(1e-3))
"""


def in_a_terminal(project: Project, *args: str, **environment: str) -> tuple[int, str]:
    """Run pytest in a pseudo-terminal of 24 lines and give back its exit code and what it wrote."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "--stability", *args],
        cwd=project.path,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**inherited, "TERM": "xterm", **environment},
    )
    os.close(follower)
    written = b""
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        if not select.select([leader], [], [], 1.0)[0]:
            continue
        try:
            piece = os.read(leader, 65536)
        except OSError:
            break
        if not piece:
            break
        written += piece
    os.close(leader)
    return process.wait(timeout=10), written.decode()


def screen(written: str) -> list[str]:
    """What a terminal shows in the end: carriage returns, erasing and moving left carried out, colours dropped."""
    lines: list[list[str]] = [[]]
    column = 0
    for token in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|.|\n", written):
        line = lines[-1]
        if token == "\n":
            lines.append([])
            column = 0
        elif token == "\r":
            column = 0
        elif token.startswith("\x1b["):
            if token.endswith("K"):
                del line[column:]
            elif token.endswith("D"):
                column = max(column - int(token[2:-1] or 1), 0)
            else:
                assert token.endswith("m"), token
        else:
            line += [" "] * (column - len(line))
            line[column : column + 1] = [token]
            column += 1
    return ["".join(line).rstrip() for line in lines]


@pytest.mark.parametrize("args", [(), ("-v",)], ids=["dots", "verbose"])
def test_the_line_is_seen_while_it_trains_and_leaves_nothing(project: Project, args: tuple[str, ...]) -> None:
    project.cases(LONG)
    code, written = in_a_terminal(project, *args)
    assert code == pytest.ExitCode.TESTS_FAILED
    shown = re.findall(r"\x1b\[K [^\x1b]*2 seeds, step (\d+)/400, loss [\d.]+(?:, \d+ s left)?\x1b\[\d+D", written)
    assert len(shown) >= 2
    assert [int(step) for step in shown] == sorted({int(step) for step in shown})
    lines = screen(written)
    assert not [line for line in lines if "s left" in line or ("step 3" in line and "/400" in line)]
    if args:
        assert [line for line in lines if re.fullmatch(r"stability/net.py::long PASSED +\[ 50%\]", line)]
    else:
        assert [line for line in lines if re.fullmatch(r"stability/net.py \.F +\[100%\]", line)]
    assert [line for line in lines if line.startswith("training_loss at most 0.001: VIOLATED")]


def two_passes() -> Plan:
    """Two arms of 5000 steps, two seeds each."""
    case = Case(
        says="it trains",
        model=Transformer(layers=1, width=8, heads=2),
        task=Markov(),
        steps=5000,
        expect=converges(),
        variants={"a": {"width": 16}, "b": {"width": 24}},
    )
    return plan(case, seeds=(1, 2))


@dataclass
class Moment:
    """Stands for the lab's Progress."""

    arm: str
    step: int
    seeds: tuple[int, ...] = (1, 2)
    steps: int = 5000
    loss: float = 2.0


def test_it_is_rewritten_at_most_ten_times_a_second() -> None:
    reader, descriptor = os.pipe()
    line = ProgressLine(descriptor, object())
    watch: Any = line.watch("net/case", two_passes())
    started = time.monotonic()
    for step in range(5000):
        watch(Moment("a", step))
    allowed = (time.monotonic() - started) / 0.1 + 1
    line.close()
    written = os.read(reader, 1 << 20).decode()
    assert written.endswith("\x1b[K")
    assert 1 <= written.count("net/case [a]: 2 seeds, step ") <= allowed


def test_the_seconds_left_follow_the_steps_of_all_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    remaining = Remaining(two_passes())
    clock = remaining.started
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    after: Any = remaining.after
    assert after(Moment("a", 0)) is None
    clock += 10
    assert after(Moment("a", 1000)) == pytest.approx(90)
    # the first pass stopped early: the second starts at half of the work all the same
    assert after(Moment("b", 0)) == pytest.approx(10)
    assert after(Moment("b", 5000)) == 0


@pytest.mark.parametrize(
    ("args", "environment"),
    [(("-q",), {}), (("-s",), {}), (("-n", "1"), {}), ((), {"CI": "true"}), ((), {"TERM": "dumb"})],
    ids=["quiet", "uncaptured", "xdist", "ci", "dumb"],
)
def test_it_stays_away_where_it_would_disturb(
    project: Project, args: tuple[str, ...], environment: dict[str, str]
) -> None:
    project.fake_lab()
    project.write(
        "conftest.py",
        (project.path / "conftest.py").read_text() + "\ndef pytest_runtest_setup(item):\n"
        "    from stabilitysuite.plugin.suite import SUITE\n"
        "    assert item.config.stash[SUITE].line is None\n",
    )
    project.cases("a = _base.but(says='a', lr=1.0)\n")
    code, _ = in_a_terminal(project, *args, **environment)
    assert code == 0
