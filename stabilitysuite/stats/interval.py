"""Intervals over seeds and tails of counts.

scipy is imported inside the functions: it costs two seconds, and most of the package never needs it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "Prior",
    "binomial_tail",
    "half_width",
    "largest_rate",
    "mean_interval",
    "normal_tail",
    "outdone",
    "prediction_interval",
    "spread",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """A standard deviation that is known from many earlier values of the same kind."""

    deviation: float
    """Standard deviation of one value."""
    degrees: int
    """Its degrees of freedom: one less than the values it was taken from."""


OUTDONE = 0.99
"""Quantile of F above which values spread too widely for the prior to be theirs."""


def mean_interval(
    values: Sequence[float], *, confidence: float = 0.99, prior: Prior | None = None
) -> tuple[float, float] | None:
    """Two-sided t interval of the mean (Student, 1908); with a prior the moderated one (Smyth, 2004).

    Assumes independent values that are close to normal; skewed ones belong on the log scale first. It is wrong
    for bimodal values (a run that trains in some seeds and not in others): outcomes are judged before means.

    Args:
        values: One finite value a seed.
        confidence: Coverage of the interval.
        prior: What is known of the spread beforehand; left aside where the values clearly spread more.

    Returns:
        Lower and upper end; ``None`` for fewer than two values, of which nothing can be said. Values that are
        all equal have, without a prior, an interval of no width.
    """
    count = len(values)
    if count < 2:
        return None
    deviation, degrees = spread(values), count - 1
    if prior is not None and not outdone(values, prior):
        pooled = prior.degrees * prior.deviation**2 + degrees * deviation**2
        degrees += prior.degrees
        deviation = math.sqrt(pooled / degrees)
    if deviation == 0:
        return min(values), max(values)
    mean = math.fsum(value / count for value in values)
    half = half_width(deviation, count, confidence=confidence, degrees=degrees)
    return mean - half, mean + half


def spread(values: Sequence[float]) -> float:
    """Standard deviation of one value, from two or more; exactly 0 where all are equal."""
    if min(values) == max(values):
        return 0.0
    mean = math.fsum(value / len(values) for value in values)
    return math.hypot(*(value - mean for value in values)) / math.sqrt(len(values) - 1)


def outdone(values: Sequence[float], prior: Prior) -> bool:
    """Whether values spread so much more than the prior that it cannot be theirs (variance ratio, F at 1 %)."""
    own = spread(values)
    if own <= prior.deviation:
        return False
    return own**2 > prior.deviation**2 * _variance_ratio_quantile(OUTDONE, len(values) - 1, prior.degrees)


def half_width(deviation: float, count: int, *, confidence: float = 0.99, degrees: int | None = None) -> float:
    """Half the width of the t interval of a mean over that many values, in the unit of the values.

    Args:
        deviation: Standard deviation of one value.
        count: How many values, at least two.
        confidence: Coverage of the interval.
        degrees: Degrees of freedom of the deviation, where they are not one less than the values.
    """
    quantile = _student_quantile((1 + confidence) / 2, count - 1 if degrees is None else degrees)
    return quantile * deviation / math.sqrt(count)


def normal_tail(deviations: float) -> float:
    """Probability of more than so many standard deviations above the mean of a normal law."""
    return math.erfc(deviations / math.sqrt(2)) / 2


@functools.cache
def _variance_ratio_quantile(probability: float, above: int, below: int) -> float:
    from scipy.stats import f

    return float(f.ppf(probability, above, below))


@functools.cache
def _student_quantile(probability: float, degrees: int) -> float:
    from scipy.stats import t

    return float(t.ppf(probability, degrees))


def prediction_interval(
    mean: float, deviation: float, count: int, *, future: int, summaries: int = 1, error: float = 0.01
) -> tuple[float, float]:
    """Where the mean of some more values of the same kind lies (Hahn and Meeker, 1991, section 4.7).

    Wider than mean +- 3 deviations, which raises 5 % false alarms where the deviation is that of 5 values.

    Args:
        mean: Of the values seen.
        deviation: Standard deviation of one value.
        count: How many were seen.
        future: How many more there will be.
        summaries: Numbers that are watched together, over which the error is shared.
        error: Probability that any of them lies outside.
    """
    quantile = _student_quantile(1 - error / (2 * summaries), count - 1)
    half = quantile * deviation * math.sqrt(1 / count + 1 / future)
    return mean - half, mean + half


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
