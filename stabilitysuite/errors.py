"""Every error the package raises on purpose, and what the reader is to do about it.

::

    StabilityError                  base: catch this one
    |-- DeclarationError            a Case, or a part of one, cannot be what it says; raised when it is built
    |-- MeasurementError            a run could not be carried out or left no data; never a verdict
    |   `-- NoData                  a probe of a quantity that a claim needs never fired
    `-- RecordError                 a record or a session folder cannot be read or written

``StabilityWarning`` is a remark of this package on a training, such as data that was gone through twice. Filters can
ignore it; it is never an error.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "DeclarationError",
    "MeasurementError",
    "NoData",
    "RecordError",
    "StabilityError",
    "StabilityWarning",
    "nearest",
]


class StabilityError(Exception):
    """Base of all errors of this package; its text says what happened, where, and what to do next."""


class DeclarationError(StabilityError, ValueError):
    """A declaration is refused: fix the field that the message names."""


class MeasurementError(StabilityError, RuntimeError):
    """A run failed for a reason that is not a finding: the message names the case and the cause."""


class NoData(MeasurementError):  # noqa: N818 -- the glossary word for it
    """A quantity that a claim needs was never measured: name another layer, step or quantity."""


class RecordError(StabilityError, RuntimeError):
    """A record cannot be read or written: the message names the file and the remedy."""


class StabilityWarning(UserWarning):
    """A remark on how a case was trained: nothing is wrong with the verdict, but read it with this in mind."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Words that point from a misspelt name to what exists.

    Args:
        name: What was written.
        known: The names that exist.

    Returns:
        ``did you mean 'x'?`` where one is close, else the list of all names.
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(names)
