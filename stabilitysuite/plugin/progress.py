"""One line in the terminal that says where a long training is, gone before pytest writes the next word."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stabilitysuite.lab.train import Progress
    from stabilitysuite.plan import Plan

__all__ = ["ProgressLine", "progress_line"]

INTERVAL = 0.1
"""Seconds between two states of the line."""
LEAST = 24
"""Columns under which it is not worth showing."""


def progress_line(config: pytest.Config) -> ProgressLine | None:
    """The line of this session, or ``None`` where nobody would see it or it would disturb.

    Not under xdist, in CI, with -q, off a terminal, nor where the user's own output is let through.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    captured = config.getoption("capture") in ("fd", "sys")
    parallel = config.getoption("numprocesses", None) or config.getoption("tx", None)
    quiet = config.get_verbosity() < 0 or parallel
    ci = any(os.environ.get(name) for name in ("CI", "BUILD_NUMBER"))
    if reporter is None or not captured or quiet or ci or os.environ.get("TERM") == "dumb":
        return None
    stdout = sys.__stdout__
    if stdout is None or not stdout.isatty():
        return None
    line = ProgressLine(os.dup(stdout.fileno()), config.get_terminal_writer())
    config.add_cleanup(line.close)
    return line


class Remaining:
    """Guesses how long a plan will still take, from the steps done so far.

    Args:
        plan: All its runs, about to start.
    """

    def __init__(self, plan: Plan) -> None:
        self.total = sum(max(run.training.steps, 1) for run in plan.runs)
        self.started = time.monotonic()
        self.pass_of: tuple[str, tuple[int, ...]] | None = None
        self.before = 0
        self.expected = 0

    def after(self, progress: Progress) -> float | None:
        """Seconds left; ``None`` where nothing is done yet.

        Args:
            progress: Where the run is.
        """
        if self.pass_of != (progress.arm, progress.seeds):
            self.before += self.expected  # the pass before this one is over, however early it stopped
            self.pass_of = (progress.arm, progress.seeds)
        self.expected = progress.steps * len(progress.seeds)
        done = self.before + progress.step * len(progress.seeds)
        return (time.monotonic() - self.started) * max(self.total - done, 0) / done if done else None


class ProgressLine:
    """Writes right of pytest's own text and moves the cursor back, so that pytest's next word covers it.

    Args:
        descriptor: Of the terminal, not captured; owned from here on.
        writer: pytest's own writer, which knows the column.
    """

    def __init__(self, descriptor: int, writer: pytest.TerminalReporter | object) -> None:
        self.descriptor = descriptor
        self.writer = writer
        self.last = 0.0
        self.shown = False

    def watch(self, case_id: str, plan: Plan) -> Callable[[Progress], None]:
        """What a run calls at each step.

        Args:
            case_id: The case that runs.
            plan: All its runs.
        """
        remaining = Remaining(plan)

        def show(progress: Progress) -> None:
            left = remaining.after(progress)
            now = time.monotonic()
            if now - self.last >= INTERVAL:
                self.last = now
                self.write(case_id, progress, left)

        return show

    def write(self, case_id: str, progress: Progress, left: float | None) -> None:
        """Show a state.

        Args:
            case_id: The case that runs.
            progress: Where it is.
            left: Seconds that the case will still take, where known.
        """
        room = self._columns() - getattr(self.writer, "width_of_current_line", 0) - 2
        if room < LEAST:
            return
        text = _text(case_id, progress, left)
        if len(text) > room:
            text = _text("", progress, left)
        text = text[:room]
        self._emit(f"\x1b[K {text}\x1b[{len(text) + 1}D")
        self.shown = True

    def erase(self) -> None:
        """Leave nothing of it."""
        if self.shown:
            self._emit("\x1b[K")
            self.shown = False

    def close(self) -> None:
        """Give the terminal back."""
        self.erase()
        os.close(self.descriptor)

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self.descriptor).columns
        except OSError:
            return 80

    def _emit(self, text: str) -> None:
        try:
            os.write(self.descriptor, text.encode(errors="replace"))
        except OSError:
            self.shown = False  # the terminal is gone; the run goes on


def _text(case_id: str, progress: Progress, left: float | None) -> str:
    count = len(progress.seeds)
    seeds = f"seed {progress.seeds[0]}" if count == 1 else f"{count} seeds"
    arm = f" [{progress.arm}]" if progress.arm else ""
    remaining = f", {left:.0f} s left" if left is not None else ""
    step = f"step {progress.step}/{progress.steps}, loss {progress.loss:.3g}{remaining}"
    return f"{case_id}{arm}: {seeds}, {step}" if case_id else f"{seeds}, {step}"
