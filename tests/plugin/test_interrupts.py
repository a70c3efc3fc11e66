"""Ctrl-C and kill in the middle of a session: what was finished stays, and is told."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from stabilitysuite.store import read
from tests.plugin.conftest import Project

LIMIT = 60
"""Seconds after which a test gives up; none waits for a time to pass."""


class Session:
    """A real session in a process group of its own, one case of which hangs."""

    def __init__(self, project: Project, *args: str) -> None:
        os.mkfifo(project.path / "begun")
        self.begun = os.open(project.path / "begun", os.O_RDWR)  # a writer of one's own: never at its end
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "--stability", "-p", "no:cacheprovider", "-v", *args],
            cwd=project.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def wait_until_it_hangs(self) -> None:
        ready, _, _ = select.select([self.begun], [], [], LIMIT)
        assert ready, "the case never began"
        os.read(self.begun, 100)

    def signal(self, number: int) -> None:
        """To all processes, as a terminal sends it."""
        os.killpg(self.process.pid, number)

    def read_until(self, text: str) -> str:
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if text in line:
                break
        return "".join(lines)

    def end(self) -> tuple[int, str]:
        said, _ = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, said

    def close(self) -> None:
        os.close(self.begun)
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.communicate()


@pytest.fixture
def hanging(project: Project) -> Project:
    project.fake_lab()
    project.cases(
        "a = _base.but(says='a', lr=1.0, steps=40)\nb = _base.but(says='b', lr=10.0, steps=30)\n"
        "c = _base.but(says='c', lr=1.0, steps=21)\n"
    )
    return project


def finished(project: Project) -> list[str]:
    return [record.id for record in read(project.results)]


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["serial", "workers"])
def test_ctrl_c_keeps_and_tells_what_was_finished(hanging: Project, workers: tuple[str, ...]) -> None:
    session = Session(hanging, *workers)
    try:
        session.wait_until_it_hangs()
        before = session.read_until("::a PASSED" if not workers else "PASSED")
        session.signal(signal.SIGINT)
        code, said = session.end()
    finally:
        session.close()
    assert code == pytest.ExitCode.INTERRUPTED, before + said
    assert "net/a" in finished(hanging)
    assert "net/b" not in finished(hanging)
    assert "KeyboardInterrupt" in said
    assert "holds    net/a" in said
    assert "INTERNALERROR" not in said
    hanging.cases("a = _base.but(says='a', lr=1.0)\n")
    hanging.inside().stdout.fnmatch_lines(["never finished: net/b, started *"])


SLOW_END = """
def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        with open("begun", "w") as pipe:
            pipe.write("ending")
        time.sleep(1000)
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["serial", "workers"])
def test_ctrl_c_twice_ends_at_once(hanging: Project, workers: tuple[str, ...]) -> None:
    """A teardown that does not come back, here somebody's hook, is what a second Ctrl-C is for."""
    fake = (hanging.path / "conftest.py").read_text()
    hanging.write("conftest.py", fake + SLOW_END)
    session = Session(hanging, *workers)
    try:
        session.wait_until_it_hangs()
        session.read_until("PASSED")
        session.signal(signal.SIGINT)
        session.wait_until_it_hangs()
        session.signal(signal.SIGINT)
        code, said = session.end()
    finally:
        session.close()
    assert code == pytest.ExitCode.INTERRUPTED, said
    assert f"interrupted twice: ended at once; the finished cases are in {hanging.results}" in said
    assert "Traceback" not in said
    assert "net/a" in finished(hanging)


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["serial", "workers"])
def test_a_whole_session_that_was_killed_is_named_by_the_next(hanging: Project, workers: tuple[str, ...]) -> None:
    session = Session(hanging, *workers)
    try:
        session.wait_until_it_hangs()
        session.read_until("PASSED")
        session.signal(signal.SIGKILL)
        session.end()
    finally:
        session.close()
    assert "net/a" in finished(hanging)
    hanging.cases("a = _base.but(says='a', lr=1.0)\n")
    result = hanging.inside()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["never finished: net/b, started *"])
