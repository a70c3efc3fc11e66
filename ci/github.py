"""The one module that talks to GitHub Actions: annotations and outputs by ``actions-toolkit``, the summary.

The toolkit escapes what it prints, so that a name or message cannot start a command of its own. It knows no
step summary; that is appended here. Its ``set_failed`` exits at once and is never called: the gate is the
exit code of pytest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stabilitysuite.report.markdown import Annotation
from stabilitysuite.report.row import one_line

__all__ = ["annotate", "append_summary", "inside", "plain", "set_outputs"]


def inside() -> bool:
    """Whether this process is a step of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def plain(text: str) -> str:
    """The text as one line that the runner does not take for a command.

    The runner reads ``::command::`` at the beginning of a line, so the caller begins with words of its own,
    and ``##[command]`` anywhere in it.
    """
    return one_line(text).replace("##[", "## [")


def append_summary(text: str) -> bool:
    """Append to the summary of this step, which other commands of the step may have begun.

    Returns:
        False where the runner offers no summary.

    Raises:
        OSError: The summary file cannot be written.
    """
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return False
    with Path(path).open("a", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return True


def annotate(annotations: Sequence[Annotation]) -> None:
    """Send annotations, in their order.

    Raises:
        ImportError: The extra ``github`` is not installed.
    """
    from actions_toolkit import core

    send = {"error": core.error, "warning": core.warning}
    for one in annotations:
        # The toolkit names the line start_line, and writes an unknown property as an empty one.
        place = {"file": one.file, "start_line": one.line or None} if one.file else {}
        send[one.level](one.message, title=one.title, **place)
    sys.stdout.flush()


def set_outputs(values: Mapping[str, str]) -> None:
    """Set outputs of this step; without an output file, as outside of a step, nothing is set.

    Raises:
        ImportError: The extra ``github`` is not installed.
    """
    from actions_toolkit import core

    path = os.environ.get("GITHUB_OUTPUT")
    if not path or not Path(path).is_file():  # the toolkit would print a command that GitHub has switched off
        return
    for name, value in values.items():
        core.set_output(name, value)
