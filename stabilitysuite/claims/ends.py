"""Numbers of the seeds held against two ends: what the bound, order, scaling and sensitivity families share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stabilitysuite.claims.finding import Verdict, short
from stabilitysuite.stats.interval import Prior, mean_interval, outdone

__all__ = ["Decision", "decide", "distance", "held", "percentage", "range_words"]

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the numbers of the seeds decide, on the scale on which they were judged."""

    verdict: Verdict
    reason: str
    remedy: Literal["", "more seeds", "more steps"]
    centre: float
    interval: Interval | None
    margin: float | None
    """Distance of the interval from the nearest end, negative where any of it is outside."""

    @property
    def resolution(self) -> float | None:
        """Half the width of the interval: a shift by more takes the centre out of it."""
        return None if self.interval is None else (self.interval[1] - self.interval[0]) / 2


def decide(
    values: Sequence[float],
    low: float,
    high: float,
    *,
    confidence: float,
    prior: Prior | None = None,
    mixed: str = "",
) -> Decision:
    """Hold the mean of the seeds against [low, high].

    Args:
        values: One number a seed; one that is not finite is outside of every bound.
        low: Lower end, ``-inf`` for none.
        high: Upper end, ``inf`` for none.
        confidence: Coverage of the interval.
        prior: The calibrated spread.
        mixed: How the runs ended, where they did not all end alike. Their numbers are then of two kinds, whose mean
            may be that of neither: it decides only where every seed lies on its side.
    """
    broken = sum(not math.isfinite(value) for value in values)
    if broken:
        reason = f"not finite in {broken} of {len(values)} seeds"
        return Decision(verdict="violated", reason=reason, remedy="", centre=math.nan, interval=None, margin=None)
    centre = math.fsum(value / len(values) for value in values)
    interval = mean_interval(values, confidence=confidence, prior=prior)
    if interval is None:
        return Decision(
            verdict="undecided",
            reason="one seed has no spread: nothing can be decided from it",
            remedy="more seeds",
            centre=centre,
            interval=None,
            margin=None,
        )
    verdict, where = held(interval, low, high)
    same = "; the same in every seed: exact, or the seeds change nothing" if interval[0] == interval[1] else ""
    wider = prior is not None and outdone(values, prior)
    own = f"; the seeds spread more than the {short(prior.deviation)} of calibration" if prior and wider else ""
    found = Decision(
        verdict=verdict,
        reason=f"the {percentage(confidence)} interval over the seeds {where}{same}{own}",
        remedy="more seeds" if verdict == "undecided" else "",
        centre=centre,
        interval=interval,
        margin=distance(interval, low, high),
    )
    return _of_two_kinds(found, values, low, high, mixed) if mixed else found


def _of_two_kinds(found: Decision, values: Sequence[float], low: float, high: float, mixed: str) -> Decision:
    """The same, or undecided where the seeds of one kind lie inside and those of another outside."""
    inside = sum(low <= value <= high for value in values)
    told = f"the runs end differently ({mixed}): {inside} of {len(values)} seeds inside"
    if found.verdict == ("holds" if inside == len(values) else "violated" if not inside else ""):
        return dataclasses.replace(found, reason=f"{found.reason}; {told}")
    return dataclasses.replace(found, verdict="undecided", reason=told, remedy="more seeds", margin=None)


def held(interval: Interval, low: float, high: float) -> tuple[Verdict, str]:
    """Verdict, and where the interval lies: inside holds, outside is violated, across an end is undecided."""
    if low <= interval[0] and interval[1] <= high:
        return "holds", "lies inside"
    if interval[1] < low or interval[0] > high:
        return "violated", "lies outside"
    return "undecided", "reaches across the bound"


def distance(interval: Interval, low: float, high: float) -> float:
    """Distance from the nearest end: positive inside, negative where any of the interval is outside."""
    inside = min(interval[0] - low, high - interval[1])
    outside = min(interval[1] - low, high - interval[0])
    return inside if outside >= 0 else outside


def percentage(confidence: float) -> str:
    """Such as ``99 %``: the coverage that an interval has at least."""
    return f"{math.floor(100 * confidence + 1e-9)} %"


def range_words(interval: Interval | None, remark: str = "", *, confidence: float = 0.99) -> str:
    """Such as `` (99 % interval 1.5 to 1.7; a remark)``; empty where there is nothing to say."""
    told = []
    if interval is not None:
        told.append(f"{percentage(confidence)} interval {short(interval[0])} to {short(interval[1])}")
    told += [remark] if remark else []
    return f" ({'; '.join(told)})" if told else ""
