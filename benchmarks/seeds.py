"""What several seeds in one pass save: CPU time per seed and step, over that of one seed after the other."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.measure import interleaved, ratio, table
from benchmarks.overhead import training, watched

__all__ = ["seeds_in_one_pass"]

SHAPES = ((16, 4, 8, 0.15), (32, 8, 16, 0.40), (64, 16, 32, 1.0))
"""Width, sequences, tokens of a sequence, goal."""


def seeds_in_one_pass(
    shapes: Sequence[tuple[int, int, int, float]] = SHAPES,
    *,
    seeds: int = 16,
    layers: int = 6,
    turns: int = 5,
    work: int = 10240,
) -> str:
    """The table of ratios, default probes on both sides.

    Args:
        shapes: Width, sequences, tokens of a sequence and goal.
        seeds: Seeds of a pass.
        layers: Layers.
        turns: Counted turns.
        work: Tokens that the one seed alone sees in a slice.
    """
    rows = []
    for width, batch, length, goal in shapes:
        alone = max(work // (batch * length), 4)
        together = max(alone // seeds, 4)
        few, many = (training(layers, steps, width=width, batch=batch, length=length) for steps in (together, alone))
        found = interleaved({"alone": watched(many), "together": watched(few, seeds=range(seeds))}, turns)
        middle, low, high = (one * alone / (together * seeds) for one in ratio(found, "together", "alone"))
        milliseconds = 1e3 * min(found["alone"]) / alone
        shape = [str(width), f"{batch} x {length}", f"{milliseconds:.2f}"]
        rows.append([*shape, f"{middle:.3f}", f"{low:.3f} to {high:.3f}", f"{goal:.2f}"])
    head = ["width", "tokens", "one seed, ms/step", f"{seeds} seeds, per seed-step", "range", "goal"]
    return table(head, rows)
