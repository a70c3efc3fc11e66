"""An interval over the seeds held against two ends: what the bound and the scaling family share."""

from __future__ import annotations

from stabilitysuite.claims.finding import Verdict, short

__all__ = ["distance", "held", "range_words"]

Interval = tuple[float, float]


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


def range_words(interval: Interval | None, remark: str = "") -> str:
    """Such as `` (99 % interval 1.5 to 1.7; a remark)``; empty where there is nothing to say."""
    told = [] if interval is None else [f"99 % interval {short(interval[0])} to {short(interval[1])}"]
    told += [remark] if remark else []
    return f" ({'; '.join(told)})" if told else ""
