"""Looks at a growing sample: how much of the error each may spend, and when a count decides."""

from __future__ import annotations

import functools
import math
from typing import Literal

__all__ = ["ERROR", "confidence_of", "crossed", "probability_ratio", "reject_from"]

ERROR = 0.01
"""Probability of each of the two errors of a judgement, over all its looks together."""


def confidence_of(looks: int) -> float:
    """Coverage of the two-sided interval at each of so many looks.

    Each side spends an equal share of the error (Bonferroni). Pocock's boundary (1977) would be narrower by a
    twentieth, but holds for the normal law only, while this one holds for any statistic and any dependence between
    looks. One look takes 99 %, which spends half of what it may.
    """
    return 1 - min(ERROR, 2 * ERROR / looks)


@functools.cache
def reject_from(sizes: tuple[int, ...], probability: float, level: float = ERROR) -> tuple[int, ...]:
    """At each look the smallest count that speaks against a rate of at most ``probability``.

    Exact: the boundary is built look by look, each time as low as it may be so that the chance of ever reaching it
    stays at most ``level`` (a group-sequential test of a proportion: Jennison and Turnbull, 2000, chapter 12).

    Args:
        sizes: Sample size of each look, ascending.
        probability: Rate that is not to be rejected.
        level: Chance of rejecting it all the same.

    Returns:
        One count a look; larger than the sample where no count suffices.
    """
    alive = {0: 1.0}  # probability of each count among samples that no look has rejected yet
    before, spent, found = 0, 0.0, []
    for size in sizes:
        grown: dict[int, float] = {}
        for count, weight in alive.items():
            for more in range(size - before + 1):
                chance = (
                    math.comb(size - before, more) * probability**more * (1 - probability) ** (size - before - more)
                )
                grown[count + more] = grown.get(count + more, 0.0) + weight * chance
        bound = size + 1
        while bound > 0 and spent + grown.get(bound - 1, 0.0) <= level:
            spent += grown.pop(bound - 1, 0.0)
            bound -= 1
        found.append(bound)
        alive, before = grown, size
    return tuple(found)


def crossed(sizes: tuple[int, ...], bounds: tuple[int, ...], probability: float) -> float:
    """Chance that at any look the count reaches that look's bound.

    Args:
        sizes: Sample size of each look, ascending.
        bounds: Count of each look.
        probability: Rate of what is counted.
    """
    alive, before, found = {0: 1.0}, 0, 0.0
    for size, bound in zip(sizes, bounds, strict=True):
        grown = _grown(alive, size - before, probability)
        found += math.fsum(weight for count, weight in grown.items() if count >= bound)
        alive, before = {count: weight for count, weight in grown.items() if count < bound}, size
    return found


def _grown(alive: dict[int, float], more: int, probability: float) -> dict[int, float]:
    """Probabilities of the counts after so many more."""
    grown: dict[int, float] = {}
    for count, weight in alive.items():
        for further in range(more + 1):
            chance = math.comb(more, further) * probability**further * (1 - probability) ** (more - further)
            grown[count + further] = grown.get(count + further, 0.0) + weight * chance
    return grown


def probability_ratio(
    wrong: int, count: int, *, good: float, bad: float, error: float = ERROR
) -> Literal["good", "bad", "open"]:
    """Wald's sequential probability ratio test (1945) of a rate, looked at as often as one likes.

    Args:
        wrong: How many of the sample are wrong.
        count: Size of the sample.
        good: Rate of wrong ones up to which the answer must be ``good`` except in ``error`` of all tests.
        bad: Rate from which on it must be ``bad``; between the two either answer is right.
        error: Probability of each of the two errors, at most.
    """
    ratio = _times(wrong, bad, good) + _times(count - wrong, 1 - bad, 1 - good)
    line = math.log((1 - error) / error)
    return "bad" if ratio >= line else "good" if ratio <= -line else "open"


def _times(count: int, above: float, below: float) -> float:
    """``count`` times the logarithm of a ratio whose terms may be zero."""
    if count == 0:
        return 0.0
    if above == 0 or below == 0:
        return -math.inf if above == 0 else math.inf
    return count * math.log(above / below)
