"""The words of an item: what went wrong, and how to run it again."""

from __future__ import annotations

import shlex
import traceback
from pathlib import Path

import stabilitysuite
from stabilitysuite.case import Tier
from stabilitysuite.errors import StabilityError
from stabilitysuite.plugin.options import Options
from stabilitysuite.record import Record

__all__ = ["quoted", "reproduce", "user_frames"]

OURS = Path(stabilitysuite.__file__).parent


def reproduce(nodeid: str, tier: Tier, options: Options, record: Record) -> str:
    """The command that runs a case again: its seeds are its own, so the same is decided.

    Args:
        nodeid: The item, relative to where the user stands.
        tier: Its tier.
        options: The settings of the session.
        record: What was found; where outcomes decided, the seeds on the wrong side are enough to decide it again.
    """
    words = ["pytest --stability", quoted(nodeid)]
    if options.controls:
        words.append("--stability-controls")
    if tier != "quick":
        words.append(f"--stability-tier {tier}")
    if options.device != "cpu":
        words.append(f"--stability-device {options.device}")
    if options.threads != 1:
        words.append(f"--stability-threads {options.threads}")
    decided_by = record.deciding.decided_by if record.deciding is not None else ()
    words += [f"--stability-seed {seed}" for seed in decided_by or options.seed]
    if options.seeds is not None and not decided_by:
        words.append(f"--stability-seeds {options.seeds}")
    return " ".join(words)


def quoted(nodeid: str) -> str:
    """An item's name for a command line; double quotes, which every shell knows, wherever they suffice."""
    return f'"{nodeid}"' if '"' not in nodeid else shlex.quote(nodeid)


def user_frames(error: BaseException, *, whole: bool = False) -> str:
    """Where in the user's own code an error came from; empty where it did not.

    Args:
        error: What was raised.
        whole: Show our own frames too.
    """
    ours = isinstance(error, StabilityError)
    root = error.__cause__ if ours else error
    if root is None:
        return ""
    frames = list(traceback.extract_tb(root.__traceback__))
    ours_at = [index for index, frame in enumerate(frames) if Path(frame.filename).is_relative_to(OURS)]
    # what pytest and we did before the user's code was called says nothing about it
    shown = frames if whole else frames[ours_at[-1] + 1 :] if ours_at else frames
    if not shown and not ours:
        shown = frames  # a bug of this package: every frame may matter
    if not shown:
        return ""
    listed = "".join(traceback.format_list(shown))
    return f"Traceback (most recent call last):\n{listed}{type(root).__name__}: {root}"
