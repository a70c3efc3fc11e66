"""The session folder: append-only JSON lines, one file a process; the only module that opens result files.

Lines are ``session`` (first in a file), ``started`` (before a case runs), ``record`` (after it) and ``noted``
(an unfinished case of an earlier session was reported). A process that is killed leaves a ``started`` without
a ``record``, which the next session names. Readers read all files; merging folders is copying.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any

from stabilitysuite.errors import RecordError
from stabilitysuite.record import FORMAT, Record

__all__ = ["Session", "Unfinished", "newest", "read", "unfinished"]

PATTERN = "session-*.jsonl"
_NEEDED = {
    "": frozenset({"kind"}),
    "session": frozenset({"session", "worker", "pid"}),
    "started": frozenset({"id", "time"}),
    "record": frozenset({"record"}),
    "noted": frozenset({"id", "of"}),
}
"""Fields of each kind of line; a kind that is not here is of a later version and passed over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A case that was started and never came to an end."""

    id: str
    """Which case."""
    session: str
    """Which session started it."""
    worker: str
    """Which process of it."""
    started: str
    """When, UTC, ISO 8601."""


class Session:
    """One process's part of a session folder; opens its file on the first line.

    Args:
        folder: The session folder, made when missing.
        session: Identifier of the session, the same in all its processes.
        worker: Name of the process, such as ``gw0`` or ``main``.

    Raises:
        RecordError: The folder cannot be made or written.
    """

    def __init__(self, folder: Path, session: str, worker: str) -> None:
        self.folder = folder
        self.session = session
        self.worker = worker
        self.path = folder / f"session-{session}-{worker}-{os.getpid()}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(f"no permission to write into {folder}")
        except OSError as error:
            raise RecordError(f"the output folder {folder} cannot be used: {error}; choose another one") from error

    def started(self, case_id: str) -> None:
        """Write down that a case is about to run."""
        self._append({"kind": "started", "id": case_id, "time": now()})

    def record(self, record: Record) -> None:
        """Write a record down, flushed to the disk before this returns."""
        self._append({"kind": "record", "record": record.to_json()})

    def noted(self, unfinished_case: Unfinished) -> None:
        """Write down that an unfinished case of an earlier session was reported."""
        self._append({"kind": "noted", "id": unfinished_case.id, "of": unfinished_case.session})

    def _append(self, line: dict[str, Any]) -> None:
        head = {"kind": "session", "format": FORMAT, "session": self.session, "worker": self.worker}
        head["pid"] = os.getpid()
        try:
            body = json.dumps(line, allow_nan=False) + "\n"
        except (TypeError, ValueError) as error:
            raise RecordError(f"a {line['kind']} line holds what JSON cannot: {error}") from error
        try:
            with self.path.open("a+b", buffering=0) as file:
                size = _whole(file)
                text = body if size else json.dumps(head) + "\n" + body
                try:
                    _write(file, text.encode())
                except OSError:
                    file.truncate(size)  # half a line would spoil the lines after it
                    raise
        except OSError as error:
            # the trouble first: a table has no room for more than the first words
            trouble = f"the records cannot be written: {error.strerror or error}: {self.path}"
            raise RecordError(f"{trouble}; make room, or choose another folder") from error


def now() -> str:
    """The time, UTC, ISO 8601 to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _whole(file: FileIO) -> int:
    """The size of a file, without the half line that an interrupt in the middle of a write left."""
    size = file.seek(0, os.SEEK_END)
    if size:
        file.seek(size - 1)
        if file.read(1) != b"\n":
            file.seek(0)
            size = file.truncate(file.readall().rfind(b"\n") + 1)
    return size


def _write(file: FileIO, content: bytes) -> None:
    """Write all of it and have it on the disk; a full disk may take a part only."""
    while content:
        content = content[file.write(content) :]
    os.fsync(file.fileno())


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a file; a half-written last line, left by a killed process, is passed over."""
    content = path.read_bytes()
    pieces = content.split(b"\n")
    for number, piece in enumerate(pieces, start=1):
        if not piece.strip():
            continue
        try:
            line = json.loads(piece)
        except ValueError as error:
            if number == len(pieces):
                return
            raise RecordError(f"{path}, line {number} is not JSON ({error}): the file was changed by hand") from error
        if not isinstance(line, dict) or not _NEEDED.get(line.get("kind", ""), frozenset()) <= line.keys():
            raise RecordError(f"{path}, line {number} is no line of a session: the file was changed by hand")
        yield {**line, "place": f"{path}, line {number}"}


def read(folder: Path, *, session: str | None = None) -> list[Record]:
    """All records of a folder, or of one session in it, in the order in which they were written.

    Args:
        folder: A session folder.
        session: Which session; all when not given.

    Raises:
        RecordError: The folder does not exist, or a line in it cannot be read.
    """
    if not folder.is_dir():
        raise RecordError(f"there is no session folder {folder}: run pytest --stability first, or name another one")
    found: list[Record] = []
    for path in sorted(folder.glob(PATTERN)):
        lines = list(_lines(path))
        if session is None or (lines and lines[0].get("session") == session):
            found += [_record(line) for line in lines if line["kind"] == "record"]
    return sorted(found, key=lambda record: record.started)


def _record(line: dict[str, Any]) -> Record:
    try:
        return Record.from_json(line["record"])
    except RecordError as error:
        raise RecordError(f"{line['place']}: {error}") from error


def newest(folder: Path) -> str | None:
    """The session of a folder that started a case last; ``None`` where there is no session.

    Args:
        folder: A session folder; a missing one has none.

    Raises:
        RecordError: A line in it cannot be read.
    """
    found: list[tuple[str, str]] = []
    for path in sorted(folder.glob(PATTERN)) if folder.is_dir() else []:
        lines = list(_lines(path))
        times = [str(line["time"]) for line in lines if line["kind"] == "started"]
        if lines and lines[0]["kind"] == "session":
            found.append((max(times, default=""), str(lines[0]["session"])))
    return max(found)[1] if found else None


def unfinished(folder: Path, *, but: str = "", ended: bool = False) -> list[Unfinished]:
    """Cases of earlier sessions that were started, never ended, and were not reported yet.

    Args:
        folder: A session folder; a missing one has none.
        but: The session that is asking.
        ended: Take every process as ended, also where one of its number is alive: for a folder of another
            machine.
    """
    open_cases: dict[tuple[str, str], Unfinished] = {}
    done: set[tuple[str, str]] = set()
    for path in sorted(folder.glob(PATTERN)) if folder.is_dir() else []:
        lines = list(_lines(path))
        if not lines:
            continue
        session, worker, pid = (lines[0].get(key, "") for key in ("session", "worker", "pid"))
        alive = not ended and isinstance(pid, int) and _alive(pid)
        for line in lines:
            if line.get("kind") == "started" and session != but and not alive:
                key = (session, line["id"])
                open_cases[key] = Unfinished(id=line["id"], session=session, worker=worker, started=line["time"])
            elif line.get("kind") == "record":
                record = line["record"]
                done.add((session, record.get("id", "") if isinstance(record, dict) else ""))
            elif line.get("kind") == "noted":
                done.add((line["of"], line["id"]))
    return [case for key, case in open_cases.items() if key not in done]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # a killed process of which nobody takes note, as in a container without an init, keeps its number
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):  # not Linux, or gone just now
        return True
    return state not in ("Z", "X")
