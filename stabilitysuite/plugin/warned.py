"""Warnings of a training, handed to pytest: they stand in its warnings summary as if they were raised just now."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stabilitysuite.errors import MeasurementError, StabilityWarning
from stabilitysuite.trace import Trace

if TYPE_CHECKING:
    from stabilitysuite.lab.warned import Warned

__all__ = ["hand_on"]


def hand_on(
    warned: Iterable[Warned], traces: Sequence[Trace], path: Path, line: int, *, across: bool = True
) -> MeasurementError | None:
    """Raise the warnings of a case again, each once, under the filters that are in force.

    What filters turn into an error is one only where the user's own code warned: nobody can mend a case for what
    this package or torch says of its own. Such a warning, and every remark of ours, is shown in place of that.

    Args:
        warned: What was raised while the case trained.
        traces: What its runs left, with remarks on them.
        path: The file of the case.
        line: Its line there, from 1.
        across: Whether the warnings may have to cross to another process, which then has to know their classes.

    Returns:
        What to raise for the first warning of the user's that is an error by the filters.
    """
    once = {(type(one.message), str(one.message), one.filename, one.lineno): one for one in warned}
    spelled = {one.words() for one in once.values()}
    error: MeasurementError | None = None
    for one in once.values():
        raised = _through_filters(one.message, one.filename, one.lineno, one.module)
        if isinstance(raised, Warning) and one.users:
            error = error or _refused(one, raised)
        elif raised:
            _show(_importable(one.message, path) if across else one.message, one.filename, one.lineno)
    for text in dict.fromkeys(text for trace in traces for text in trace.warnings if text not in spelled):
        if _through_filters(StabilityWarning(text), str(path), line):
            _show(StabilityWarning(text), str(path), line)
    return error


def _refused(one: Warned, raised: Warning) -> MeasurementError:
    found = MeasurementError(
        f"the training warned, which the filters of this session make an error: {one.words()} "
        f"({one.filename}:{one.lineno}); mend it, or let filterwarnings ignore it"
    )
    found.__cause__ = raised
    return found


def _through_filters(message: Warning, filename: str, lineno: int, module: str | None = None) -> Warning | bool:
    """Whether a warning is shown, or what is raised for it."""
    module = module or filename.removesuffix(".py")  # as warnings does where no module is known
    try:
        with warnings.catch_warnings(record=True) as shown:
            warnings.warn_explicit(message, None, filename, lineno, module=module)
    except Warning as raised:
        return raised
    return bool(shown)


def _show(message: Warning, filename: str, lineno: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn_explicit(message, None, filename, lineno)


def _importable(message: Warning, path: Path) -> Warning:
    """The warning, or one of the nearest class that another process can import.

    xdist imports the class of a warning in the process that writes the summary; a class of the case's own file is
    not to be found there, and the session would end in an internal error.
    """
    for kind in type(message).__mro__:
        module = sys.modules.get(kind.__module__)
        file = getattr(module, "__file__", None)
        if getattr(module, kind.__qualname__, None) is kind and (file is None or Path(file) != path):
            return message if kind is type(message) else kind(f"{type(message).__name__}: {message}")
    return message
