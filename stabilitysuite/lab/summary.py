"""What is told of a whole run from its losses. Pure: numbers in, numbers out."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

from stabilitysuite.lab.ending import Losses, tails
from stabilitysuite.trace import Reference, Series

__all__ = ["SUMMARIES", "area_under_curve", "spikes", "steps_to_converge", "summaries"]

SUMMARIES = frozenset({"steps_to_converge", "area_under_curve", "spikes"})
"""Names of these quantities."""
WINDOW = 50
"""Steps before a step that it is compared with: long enough that noise alone makes no spike in 80 000 steps."""
SHORTEST = 20
"""Steps that must lie before it: of fewer the spread is not known."""
TIMES = 6.0
"""Standard deviations above the median that make a spike."""
PER_MAD = 1.4826
"""Standard deviation of a normal law, in units of its median absolute deviation."""
ROUNDING = 1e-6
"""Share of the median by which a spike exceeds it at least, where all losses before it are the same."""


def steps_to_converge(progress: Losses, enough: float) -> float:
    """Updates until progress reaches ``enough``, interpolated between evaluations; ``inf`` where it never does.

    Args:
        progress: Step and progress, ascending.
        enough: What counts as converged.

    Returns:
        NaN where progress is not a number before that.
    """
    before = None
    for step, value in progress:
        if math.isnan(value):
            return math.nan
        if value >= enough:
            if before is None or value == math.inf:
                return float(step)
            share = (enough - before[1]) / (value - before[1])
            return before[0] + share * (step - before[0])
        before = (step, value)
    return math.inf


def area_under_curve(progress: Losses) -> float:
    """Mean of progress over the steps, by trapezoids between evaluations; the value itself where there is one."""
    if len(progress) == 1:
        return progress[0][1]
    areas = [(b - a) * (at_a + at_b) / 2 for (a, at_a), (b, at_b) in itertools.pairwise(progress)]
    return sum(areas) / (progress[-1][0] - progress[0][0])


def spikes(losses: Sequence[float]) -> float:
    """Number of steps whose loss lies above the running median by six standard deviations; NaN where a loss is NaN.

    Median and deviation are those of the ``WINDOW`` steps before the step, the deviation 1.4826 times the median
    absolute deviation, which a spike itself hardly moves. The first ``SHORTEST`` steps are exempt.
    """
    if any(math.isnan(loss) for loss in losses):
        return math.nan
    return float(sum(_is_spike(losses[max(0, at - WINDOW) : at], losses[at]) for at in range(SHORTEST, len(losses))))


def _is_spike(before: Sequence[float], loss: float) -> bool:
    middle = statistics.median(before)
    deviation = PER_MAD * statistics.median(abs(one - middle) for one in before)
    return loss > middle + max(TIMES * deviation, ROUNDING * abs(middle))


def summaries(
    wanted: frozenset[str], losses: Sequence[float], evaluated: Losses, reference: Reference | None
) -> dict[str, Series]:
    """The wanted ones, each a series of one number at the last step.

    Args:
        wanted: Names of quantities; those that are no summaries are passed over.
        losses: Training loss of each step.
        evaluated: Step and exact loss; where there are none, medians of training losses take their place.
        reference: Known losses, from which progress follows; without them the loss itself takes its place.
    """
    if not losses or not wanted & SUMMARIES:
        return {}
    curve = evaluated or tails(losses)
    progress = curve if reference is None else [(step, reference.progress(loss)) for step, loss in curve]
    found = {"area_under_curve": area_under_curve(progress), "spikes": spikes(losses)}
    if reference is not None:
        found["steps_to_converge"] = steps_to_converge(progress, reference.enough)
    return {
        name: Series(quantity=name, steps=(len(losses) - 1,), labels=("",), values=((value,),))
        for name, value in found.items()
        if name in wanted
    }
