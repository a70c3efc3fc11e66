"""How cost grows with layers and with steps: it must be a line."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.measure import interleaved, line, table
from benchmarks.overhead import training, watched

__all__ = ["growth"]

LAYERS = {6: 60, 24: 20, 48: 13, 100: 7, 200: 7}
"""Layers: steps of a slice."""
STEPS = (25, 50, 100, 200, 400)


def growth(layers: Mapping[int, int] = LAYERS, steps: Sequence[int] = STEPS, *, turns: int = 5) -> str:
    """CPU time over layers, and over steps at six layers; width 32, 8 x 16 tokens, default probes."""
    deep = interleaved(
        {str(depth): watched(training(depth, count, width=32, batch=8, length=16)) for depth, count in layers.items()},
        turns,
    )
    per_step = [1e3 * statistics.median(deep[str(depth)]) / count for depth, count in layers.items()]
    long = interleaved(
        {str(count): watched(training(6, count, width=32, batch=8, length=16), exact=True) for count in steps}, turns
    )
    per_run = [1e3 * statistics.median(long[str(count)]) for count in steps]
    rows = [
        _row("layers", list(layers), per_step, "{:.2f} ms a step + {:.3f} ms a layer"),
        _row("steps", steps, per_run, "{:.0f} ms a run + {:.2f} ms a step"),
    ]
    return table(["along", "at", "CPU ms", "fitted line", "largest deviation"], rows)


def _row(along: str, at: Sequence[int], milliseconds: Sequence[float], words: str) -> list[str]:
    start, slope, deviation = line(at, milliseconds)
    numbers = " ".join(f"{one:.1f}" for one in milliseconds)
    return [along, " ".join(map(str, at)), numbers, words.format(start, slope), f"{100 * deviation:.1f} %"]
