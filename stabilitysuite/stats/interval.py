"""Intervals over seeds and tails of counts.

scipy is imported inside the functions: it costs two seconds, and most of the package never needs it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

__all__ = ["binomial_tail", "half_width", "largest_rate", "mean_interval"]


def mean_interval(values: Sequence[float], *, confidence: float = 0.99) -> tuple[float, float] | None:
    """Two-sided t interval of the mean (Student, 1908).

    Assumes independent values that are close to normal; skewed ones belong on the log scale first. It is wrong
    for bimodal values (a run that trains in some seeds and not in others): outcomes are judged before means.

    Args:
        values: One finite value a seed.
        confidence: Coverage of the interval.

    Returns:
        Lower and upper end; ``None`` for fewer than two values, of which nothing can be said. Values that are
        all equal have an interval of no width.
    """
    count = len(values)
    if count < 2:
        return None
    if min(values) == max(values):
        return values[0], values[0]
    mean = math.fsum(value / count for value in values)
    spread = math.hypot(*(value - mean for value in values)) / math.sqrt(count - 1)
    half = half_width(spread, count, confidence=confidence)
    return mean - half, mean + half


def half_width(deviation: float, count: int, *, confidence: float = 0.99) -> float:
    """Half the width of the t interval of a mean over that many values, in the unit of the values.

    Args:
        deviation: Standard deviation of one value.
        count: How many values, at least two.
        confidence: Coverage of the interval.
    """
    return _student_quantile((1 + confidence) / 2, count - 1) * deviation / math.sqrt(count)


@functools.cache
def _student_quantile(probability: float, degrees: int) -> float:
    from scipy.stats import t

    return float(t.ppf(probability, degrees))


def largest_rate(events: int, trials: int, *, confidence: float = 0.95) -> float:
    """Upper bound on the rate of an event (Clopper and Pearson, 1934, one-sided, exact).

    Args:
        events: How often it was seen.
        trials: In how many independent trials.
        confidence: Probability with which the true rate is at most the bound, or more.
    """
    if events >= trials:
        return 1.0
    if events == 0:
        return 1 - math.exp(math.log(1 - confidence) / trials)
    from scipy.stats import beta

    return float(beta.ppf(confidence, events + 1, trials - events))


def binomial_tail(successes: int, trials: int, probability: float) -> float:
    """Probability of at least that many successes, each of that probability."""
    return math.fsum(
        math.comb(trials, count) * probability**count * (1 - probability) ** (trials - count)
        for count in range(successes, trials + 1)
    )
