"""Publish a session: ``python -m ci.publish [FOLDER] [--session ID]``.

Inside GitHub Actions it appends to the step summary, annotates the lines of the cases and sets outputs;
elsewhere it prints the summary. Verdicts do not change its exit code: the gate is pytest's.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ci import github
from stabilitysuite.errors import RecordError
from stabilitysuite.record import Record
from stabilitysuite.report import markdown
from stabilitysuite.report.row import Row
from stabilitysuite.store import newest, read, unfinished

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Publish the newest session of a folder, or the one that is named.

    Args:
        arguments: Words of the command line.

    Returns:
        0, whatever the verdicts are; 2 where the folder cannot be read or nothing can be published.
    """
    chosen = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a console may know no ✅
    try:
        records, open_cases = _session(chosen.folder, chosen.session)
        _publish(records, open_cases)
    except (RecordError, OSError) as error:
        return _refuse(str(error))
    except ImportError as error:
        return _refuse(f"{error}: install the extra, pip install 'stabilitysuite[github]'")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ci.publish", description="Publish a stability session.")
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path("stability-results"),
        help="session folder (default: stability-results)",
    )
    parser.add_argument("--session", metavar="ID", help="session to publish (default: the newest)")
    return parser


def _session(folder: Path, session: str | None) -> tuple[list[Record], list[str]]:
    """The records of a session, and the ids of the cases in it that never ended.

    Raises:
        RecordError: The folder does not exist, holds no such session, or a line in it cannot be read.
    """
    latest = newest(folder)
    wanted = session or latest
    records = read(folder, session=wanted)
    # The session is over, and perhaps another machine's: no process of its number is still at it.
    open_cases = [one.id for one in unfinished(folder, ended=True) if one.session == wanted]
    if session is not None and not records and not open_cases:
        raise RecordError(f"{folder} holds no session {session}; the newest is {latest or 'missing as well'}")
    return records, open_cases


def _publish(records: Sequence[Record], open_cases: Sequence[str]) -> None:
    text = markdown.summary(records, unfinished=open_cases)
    if not github.inside():
        sys.stdout.write(text)
        return
    if not github.append_summary(text):
        sys.stdout.write("ci.publish: GITHUB_STEP_SUMMARY is not set, so there is no summary\n")
    github.annotate(markdown.annotations(records))
    words = Counter(Row.of(record).word for record in records)
    counts = {"cases": len(records), "violated": words["violated"] + words["not caught"]}
    counts |= {"errors": words["error"], "undecided": words["undecided"], "unfinished": len(open_cases)}
    github.set_outputs({name: str(count) for name, count in counts.items()})


def _refuse(message: str) -> int:
    sys.stderr.write(f"ci.publish: {github.plain(message)}\n")
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
