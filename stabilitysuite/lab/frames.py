"""Whose code is running: the user's, or ours and torch's."""

from __future__ import annotations

import contextlib
import os
import sysconfig
from pathlib import Path
from types import FrameType

import stabilitysuite

__all__ = ["place", "users"]

OURS = str(Path(stabilitysuite.__file__).parent) + os.sep
INSTALLED = tuple(
    {str(Path(sysconfig.get_path(name))) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def users(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's, or ``None`` where this package called what runs.

    Args:
        frame: What runs.
    """
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(OURS):  # first: this package may be installed beside the others
            return None
        if not file.startswith((*INSTALLED, "<")):
            return frame
        frame = frame.f_back
    return None


def place(frame: FrameType) -> str:
    """Where a frame is, for a person: ``stability/net.py:12, in batches``."""
    path = frame.f_code.co_filename
    with contextlib.suppress(ValueError, OSError):  # another drive, or no current folder any more
        path = os.path.relpath(path)
    return f"{Path(path).as_posix()}:{frame.f_lineno}, in {frame.f_code.co_name}"
