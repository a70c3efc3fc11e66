"""Warnings of a training: kept with where they came from, so that they can be shown later as if raised there."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from stabilitysuite.lab.frames import users

__all__ = ["Warned", "noting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """One warning."""

    message: Warning
    filename: str
    lineno: int
    module: str | None
    """Name of the module in which it was raised, which filters may ask for."""
    users: bool
    """Whether code of the user's raised it, or called what did; else it is of our own doing, or of torch's."""

    def words(self) -> str:
        """As a record spells it."""
        return f"{type(self.message).__name__}: {self.message}"


@contextlib.contextmanager
def noting(note: Callable[[Warned], None]) -> Iterator[None]:
    """Hand every warning of the block on, whatever the filters outside of it say; nothing of it is shown.

    Args:
        note: Called with each, as often as it is raised.
    """

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        del file, line
        frame = sys._getframe(1)
        origin = users(frame)
        module: str | None = None
        at: Any = frame
        while at is not None and module is None:
            if at.f_code.co_filename == filename:
                module = at.f_globals.get("__name__")
            at = at.f_back
        made = message if isinstance(message, Warning) else category(message)
        note(Warned(message=made, filename=filename, lineno=lineno, module=module, users=origin is not None))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        # vmap says so of each kernel that it has to call seed by seed
        warnings.filterwarnings("ignore", message="There is a performance drop")
        warnings.showwarning = show
        yield
