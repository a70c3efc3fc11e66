"""Timing by process CPU time, interleaved: each contestant runs a slice in turn, ratios are taken turn by turn.

On a shared machine absolute times drift by a factor; two slices a fraction of a second apart do not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

__all__ = ["interleaved", "table"]


def interleaved(contestants: Mapping[str, Callable[[], object]], turns: int) -> dict[str, list[float]]:
    """CPU seconds of each contestant in each turn, after one warm-up turn.

    Args:
        contestants: What to time; the first is what the others are compared with.
        turns: How many counted turns; the order is reversed in every second one.
    """
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(turns + 1):
        order = list(contestants.items())
        for name, slice_ in order if turn % 2 else reversed(order):
            started = time.process_time()
            slice_()
            if turn:
                found[name].append(time.process_time() - started)
    return found


def ratio(found: Mapping[str, Sequence[float]], name: str, base: str) -> tuple[float, float, float]:
    """Median, lowest and highest of the turn-by-turn ratios."""
    pairs = [one / other for one, other in zip(found[name], found[base], strict=True)]
    return statistics.median(pairs), min(pairs), max(pairs)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An aligned text table."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)
