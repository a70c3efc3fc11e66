"""Timing by process CPU time, interleaved: each contestant runs a slice in turn, ratios are taken turn by turn.

On a shared machine absolute times drift by a factor; two slices a fraction of a second apart do not.
"""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

__all__ = ["child", "interleaved", "line", "publish", "ratio", "table", "where"]

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def interleaved(contestants: Mapping[str, Callable[[], float | None]], turns: int) -> dict[str, list[float]]:
    """CPU seconds of each contestant in each turn, after one warm-up turn.

    Args:
        contestants: What to time. One that returns a number of seconds has timed itself.
        turns: How many counted turns; the order is reversed in every second one.
    """
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(turns + 1):
        order = list(contestants.items())
        for name, slice_ in order if turn % 2 else reversed(order):
            started = time.process_time()
            own = slice_()
            if turn:
                found[name].append(time.process_time() - started if own is None else own)
    return found


def ratio(found: Mapping[str, Sequence[float]], name: str, base: str) -> tuple[float, float, float]:
    """Median, lowest and highest of the turn-by-turn ratios."""
    pairs = [one / other for one, other in zip(found[name], found[base], strict=True)]
    return statistics.median(pairs), min(pairs), max(pairs)


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """The line a + b x nearest to the points in relative distance: a, b and the largest relative deviation."""
    weights = [1 / one**2 for one in y]
    total = sum(weights)
    mean_x = sum(w * one for w, one in zip(weights, x, strict=True)) / total
    mean_y = sum(w * one for w, one in zip(weights, y, strict=True)) / total
    above = sum(w * (a - mean_x) * (b - mean_y) for w, a, b in zip(weights, x, y, strict=True))
    slope = above / sum(w * (a - mean_x) ** 2 for w, a in zip(weights, x, strict=True))
    start = mean_y - slope * mean_x
    return start, slope, max(abs(start + slope * a - b) / b for a, b in zip(x, y, strict=True))


def child(command: Sequence[str], folder: Path | str) -> tuple[float, str]:
    """CPU seconds and output of a child process that must end well.

    Raises:
        RuntimeError: It did not; the message has what it printed.
    """
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{said}")
    return usage.ru_utime + usage.ru_stime, said


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An aligned text table."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def where() -> str:
    """What the numbers depend on, in one line."""
    capability = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__}, Python {platform.python_version()}, {capability}, one thread"


def publish(name: str, text: str, *, page: Path = PAGE) -> None:
    """Put a printed table into its place on a page of docs/."""
    before = page.read_text(encoding="utf-8")
    block = re.compile(rf"(<!-- printed: {name} -->\n```\n)(?:.*?\n)??(```\n)", re.DOTALL)
    fresh, count = block.subn(lambda found: f"{found[1]}{text}\n{found[2]}", before)
    if count != 1:
        raise ValueError(f"docs/{page.name} has {count} places for {name!r}: there must be one")
    page.write_text(fresh, encoding="utf-8")
