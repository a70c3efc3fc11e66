"""Where on a ladder of learning rates half of the runs stop training: which rung to try next, and the edge."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

__all__ = ["FACTOR", "RUNGS", "edge_interval", "next_rung"]

FACTOR = 1.25
"""Between two rungs of the ladder."""
RUNGS = 20
"""Rungs up and down that are tried at most: a factor of 87 either way."""
STRIDE = 4
"""Rungs of the first stride (a factor of 2.4), doubled with each until both sides are seen."""
WIDTHS = (0.02, 0.6)
"""Least and largest width of the logistic curve in ln(rate): from 90 to 10 % within a factor of 1.1 to 14."""
POINTS = 400
CURVES = 12

Seen = Mapping[int, tuple[int, int]]
"""By rung how many runs trained, and how many there were."""


def next_rung(seen: Seen) -> int | None:
    """The rung to try next; ``None`` where the edge lies between two neighbours, or beyond the ladder.

    Strides away from rung 0, both ways until one trains: a rate may fail because it is too large, or because it is too
    small for the steps. From the highest one that trains it goes up until one fails, and bisects.
    """
    trains = [rung for rung, counts in seen.items() if _half(counts)]
    if not trains:
        return next((rung for rung in _outward() if rung not in seen), None)
    lower = max(trains)
    upper = min((rung for rung in seen if rung > lower), default=None)
    if upper is None:
        return None if lower >= RUNGS else min(RUNGS, lower + max(STRIDE, abs(lower)))
    return None if upper - lower <= 1 else (lower + upper) // 2


def _outward() -> tuple[int, ...]:
    """Rungs to try while none trains: smaller rates first, as those that are too large are more common."""
    strides = []
    stride = STRIDE
    while stride < RUNGS:
        strides.append(stride)
        stride *= 2
    return (0, *(rung for stride in (*strides, RUNGS) for rung in (-stride, stride)))


def _half(counts: tuple[int, int]) -> bool:
    return 2 * counts[0] >= counts[1]


def edge_interval(seen: Seen, *, confidence: float) -> tuple[float, tuple[float, float]]:
    """The rung at which half of the runs train, and its interval; both as fractions of a rung.

    A logistic curve in ln(learning rate) whose place is uniform over the ladder and whose width is log-uniform over
    ``WIDTHS``: the posterior's median and central interval, widened to the two neighbours between which the edge
    lies. A fit by maximum likelihood has no finite width where each rung is all or nothing, which is the usual case.

    What fails below the lowest rung that trains is too slow, not beyond the edge, and takes no part.

    Args:
        seen: What each rung showed.
        confidence: Mass of the interval.

    Returns:
        Centre and interval; an end is infinite where the ladder ends before the edge, and all are NaN where no rung
        trains: there is then no edge.
    """
    slowest = min((rung for rung, counts in seen.items() if _half(counts)), default=None)
    if slowest is None:
        return math.nan, (math.nan, math.nan)
    seen = {rung: counts for rung, counts in seen.items() if rung >= slowest}
    step = math.log(FACTOR)
    low, high = -RUNGS - STRIDE, RUNGS + STRIDE
    places = [low + (high - low) * index / (POINTS - 1) for index in range(POINTS)]
    weights = []
    for place in places:
        logs = []
        for width in _widths():
            total = 0.0
            for rung, (trained, count) in seen.items():
                x = (rung - place) * step / width
                # ln of a logistic function and of its complement, without overflow
                total -= trained * _softplus(x) + (count - trained) * _softplus(-x)
            logs.append(total)
        weights.append(math.fsum(map(math.exp, logs)))
    mass = math.fsum(weights)
    ends, found = ((1 - confidence) / 2, 0.5, (1 + confidence) / 2), []
    reached, wanted = 0.0, list(ends)
    for place, weight in zip(places, weights, strict=True):
        reached += weight / mass
        while wanted and reached >= wanted[0] - 1e-12:
            found.append(place)
            wanted.pop(0)
    below, centre, above = found
    upper = min((rung for rung, counts in seen.items() if not _half(counts)), default=None)
    lower = max(
        (rung for rung, counts in seen.items() if _half(counts) and (upper is None or rung < upper)), default=None
    )
    if upper is not None and lower is not None:  # of an edge as sharp as a step the curve knows too little
        below, above = min(below, lower), max(above, upper)
    if all(_half(counts) for counts in seen.values()):
        above = centre = math.inf
    return centre, (below, above)


@functools.cache
def _widths() -> tuple[float, ...]:
    first, last = WIDTHS
    return tuple(first * (last / first) ** (index / (CURVES - 1)) for index in range(CURVES))


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
