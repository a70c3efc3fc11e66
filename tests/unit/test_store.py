from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stabilitysuite.errors import RecordError
from stabilitysuite.store import Session, read, unfinished
from tests.unit.test_record import record

PROGRAM = f"""
import os, signal, sys
from pathlib import Path
from stabilitysuite.store import Session
from {record.__module__} import record
folder, session, worker, cases, ending = sys.argv[1:]
own = Session(Path(folder), session, worker)
for name in cases.split(","):
    own.started(name)
    if ending == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    own.record(record(name))
"""


def start(folder: Path, session: str, worker: str, cases: str, ending: str = "whole") -> subprocess.Popen[bytes]:
    """Another process that writes into the folder."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), session, worker, cases, ending],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def written(folder: Path) -> Session:
    """A session that wrote two records."""
    session = Session(folder, "one", "main")
    for name in ("a", "b"):
        session.started(name)
        session.record(record(name))
    return session


def test_records_come_back_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    written(tmp_path)
    assert read(tmp_path) == [record("a"), record("b")]
    assert read(tmp_path, session="one") == read(tmp_path)
    assert read(tmp_path, session="other") == []


def test_records_of_all_processes_are_sorted_by_their_start(tmp_path: Path) -> None:
    late, early = (record(name, started=f"2026-01-01T00:00:0{second}+00:00") for name, second in (("l", 2), ("e", 1)))
    Session(tmp_path, "one", "gw0").record(late)
    Session(tmp_path, "one", "gw1").record(early)
    assert [one.id for one in read(tmp_path)] == ["e", "l"]


def test_nothing_is_written_before_the_first_line(tmp_path: Path) -> None:
    Session(tmp_path / "deep" / "er", "one", "main")
    assert list((tmp_path / "deep" / "er").iterdir()) == []


def test_a_missing_folder_has_no_records_but_a_hint(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"there is no session folder .* run pytest --stability first"):
        read(tmp_path / "none")
    assert unfinished(tmp_path / "none") == []


@pytest.mark.parametrize("kept", [1, 40, -1])
def test_a_half_written_last_line_is_passed_over(tmp_path: Path, kept: int) -> None:
    path = written(tmp_path).path
    *whole, last, empty = path.read_bytes().split(b"\n")
    assert empty == b""
    path.write_bytes(b"\n".join([*whole, last[:kept]]))
    assert [one.id for one in read(tmp_path)] == ["a"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"kind": "record", "rec', "line 3 is not JSON"),
        ("[]", "line 3 is no line of a session: the file was changed by hand"),
        ('{"kind": "record"}', "line 3 is no line of a session"),
        ('{"knd": "record"}', "line 3 is no line of a session"),
        ('{"kind": "record", "record": {"format": 1}}', "line 3: this record is not complete"),
        (
            '{"kind": "record", "record": {"format": 99}}',
            "line 3: a record of format 99 was written by a newer",
        ),
    ],
)
def test_a_line_changed_by_hand_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path).path
    lines = path.read_text(encoding="utf-8").split("\n")
    lines[2] = line
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(RecordError) as caught:
        read(tmp_path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_a_kind_of_line_of_a_later_version_is_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path).path
    with path.open("a", encoding="utf-8") as file:
        file.write('{"kind": "weather", "sun": true}\n')
    assert [one.id for one in read(tmp_path)] == ["a", "b"]


def test_two_sessions_write_into_one_folder_at_once(tmp_path: Path) -> None:
    names = ",".join(f"case{index}" for index in range(20))
    writers = [start(tmp_path, session, worker, names) for session in ("s1", "s2") for worker in ("gw0", "gw1")]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0, 0]
    assert len(read(tmp_path)) == 80
    assert sorted(one.id for one in read(tmp_path, session="s1")) == sorted(names.split(",") * 2)
    assert unfinished(tmp_path) == []


def test_a_killed_process_is_named_once(tmp_path: Path) -> None:
    assert start(tmp_path, "s1", "gw3", "a,b", "killed").wait(60) == -signal.SIGKILL
    (found,) = unfinished(tmp_path, but="s2")
    assert (found.id, found.session, found.worker) == ("a", "s1", "gw3")
    assert found.started
    Session(tmp_path, "s2", "main").noted(found)
    assert unfinished(tmp_path, but="s2") == []
    assert unfinished(tmp_path, but="s3") == []
    assert read(tmp_path) == []


def test_a_case_that_another_process_of_the_session_finished_is_not_named(tmp_path: Path) -> None:
    assert start(tmp_path, "s1", "gw0", "a", "killed").wait(60) == -signal.SIGKILL
    Session(tmp_path, "s1", "main").record(record("a"))
    assert unfinished(tmp_path) == []


def test_a_running_process_and_the_asking_session_are_not_named(tmp_path: Path) -> None:
    Session(tmp_path, "running", "main").started("a")
    assert unfinished(tmp_path, but="other") == []
    assert start(tmp_path, "mine", "gw0", "b", "killed").wait(60) == -signal.SIGKILL
    assert unfinished(tmp_path, but="mine") == []


@pytest.mark.parametrize("below", [".", "deeper"])
def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, below: str) -> None:
    file = tmp_path / "taken"
    file.touch()
    with pytest.raises(RecordError, match=r"the output folder .*taken.* cannot be used: .*; choose another one"):
        Session(file / below, "one", "main")


def test_a_folder_that_vanished_is_named(tmp_path: Path) -> None:
    session = Session(tmp_path / "gone", "one", "main")
    (tmp_path / "gone").rmdir()
    with pytest.raises(RecordError, match=r"cannot be written: No such file.*: .*gone.*; make room"):
        session.started("a")


def test_a_full_disk_is_named_and_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(tmp_path, "one", "main")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for before in ([], ["a"]):
        with monkeypatch.context() as patched:
            patched.setattr("stabilitysuite.store.os.fsync", full)
            with pytest.raises(RecordError, match=r"cannot be written: No space left on device: .*; make room"):
                session.record(record("lost"))
        assert [one.id for one in read(tmp_path)] == before
        session.record(record("a" if not before else "b"))
    assert [one.id for one in read(tmp_path, session="one")] == ["a", "b"]


def test_what_json_cannot_hold_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    session = Session(tmp_path, "one", "main")
    for environment in ({"spread": float("nan")}, {"device": object()}):
        with pytest.raises(RecordError, match="a record line holds what JSON cannot"):
            session.record(record(environment=environment))
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_that_nobody_waits_for_is_named(tmp_path: Path) -> None:
    """It keeps its number, as in a container without an init."""
    writer = start(tmp_path, "s1", "main", "a", "killed")
    os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)
    assert [one.id for one in unfinished(tmp_path)] == ["a"]
    assert writer.wait(60) == -signal.SIGKILL


def test_a_line_that_an_interrupt_cut_is_dropped_by_the_next_one(tmp_path: Path) -> None:
    session = written(tmp_path)
    whole = session.path.read_bytes()
    session.path.write_bytes(whole + whole[-40:-1])
    session.record(record("c"))
    assert [one.id for one in read(tmp_path)] == ["a", "b", "c"]
    session.path.write_bytes(b'{"kind": "sess')
    session.started("d")
    assert [line["kind"] for line in map(json.loads, session.path.read_text(encoding="utf-8").splitlines())] == [
        "session",
        "started",
    ]
