"""The scaling family: along a sweep a number follows a power law of a given exponent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stabilitysuite.claims.claim import Claim
from stabilitysuite.claims.ends import distance, held, range_words
from stabilitysuite.claims.finding import Finding, Verdict, short
from stabilitysuite.claims.reading import Reading
from stabilitysuite.errors import DeclarationError
from stabilitysuite.spec import Training
from stabilitysuite.stats.interval import mean_interval
from stabilitysuite.stats.power_law import curvature, slope
from stabilitysuite.trace import Trace

__all__ = ["LEAST_POINTS", "Scaling"]

CONFIDENCE = 0.99
LEAST_POINTS = 3
"""Points of a sweep from which on an exponent means something."""


@dataclass(frozen=True, kw_only=True)
class Scaling(Claim):
    """A number grows along a sweep as its field to an exponent; built by ``scales_with``.

    A straight line is fitted to the logarithms within each seed, and the 99 % t interval of the seeds' slopes is
    held against [exponent - within, exponent + within] (summary measures: Matthews et al., 1990; equivalence:
    Schuirmann, 1987). Pooling all points into one line would take the seeds' own levels for noise. Where the
    logarithms bend in the same direction in every seed there is no single exponent; the finding then names those of
    the lower and upper half.
    """

    measure: Reading
    field: str
    exponent: float
    within: float
    published: float | None = None

    def _check(self) -> None:
        if self.within <= 0:
            raise DeclarationError(f"within={self.within!r}: an exponent is never known exactly, allow some width")

    def words(self) -> str:
        """Such as ``branch_ratio scales as gain^7 within 0.1``."""
        return f"{self.measure.words()} scales as {self.field}^{short(self.exponent)} within {short(self.within)}"

    def along(self) -> str:
        """It is judged over all arms of a sweep of its field."""
        return self.field

    def quantities(self) -> frozenset[str]:
        """What its measure reads."""
        return self.measure.quantities()

    def steps_read(self) -> frozenset[int]:
        """Steps that its measure reads."""
        return self.measure.steps_read()

    def check(self, training: Training) -> None:
        """What its measure can never have is refused."""
        self.measure.check(training)

    def judge_along(self, points: Sequence[float], arms: Sequence[Sequence[Trace]]) -> Finding:
        """Judge the sweep.

        Args:
            points: Values of the field, all positive.
            arms: For each point its traces, the same seeds in the same order.
        """
        by_seed = [[self.measure.read(arm[index]).value for arm in arms] for index in range(len(arms[0]))]
        usable = [seed for seed in by_seed if all(math.isfinite(value) and value > 0 for value in seed)]
        slopes = tuple(slope(points, seed) if seed in usable else math.nan for seed in by_seed)
        verdict, centre, interval, reason = self._decide(slopes)
        if len(usable) == len(by_seed):
            reason += _bend(points, by_seed)
        return Finding(
            arm="",
            claim=self.words(),
            verdict=verdict,
            number=f"exponent = {short(centre)}" + range_words(interval),
            value=centre,
            interval=interval,
            threshold=f"in [{short(self.exponent - self.within)}, {short(self.exponent + self.within)}]",
            margin=None if interval is None else distance(interval, *self._ends()),
            margin_unit="difference",
            seeds=tuple(trace.seed for trace in arms[0]),
            values=slopes,
            reason=reason,
            remedy="more seeds" if verdict == "undecided" else "",
            published=self.published,
            wrong=tuple(one.seed for one, own in zip(arms[0], slopes, strict=True) if not math.isfinite(own)),
        )

    def _decide(self, slopes: Sequence[float]) -> tuple[Verdict, float, tuple[float, float] | None, str]:
        broken = sum(not math.isfinite(one) for one in slopes)
        if broken:
            return "violated", math.nan, None, f"not a positive finite number in {broken} of {len(slopes)} seeds"
        centre = math.fsum(slopes) / len(slopes)
        interval = mean_interval(slopes, confidence=CONFIDENCE)
        if interval is None:
            return "undecided", centre, None, "one seed has no spread: nothing can be decided from it"
        verdict, where = held(interval, *self._ends())
        return verdict, centre, interval, f"the 99 % interval of the slopes {where}"

    def _ends(self) -> tuple[float, float]:
        return self.exponent - self.within, self.exponent + self.within


def _bend(points: Sequence[float], by_seed: Sequence[Sequence[float]]) -> str:
    """What is to be said where the logarithms are no straight line."""
    bends = mean_interval([curvature(points, seed) for seed in by_seed], confidence=CONFIDENCE)
    if bends is None or bends[0] <= 0 <= bends[1] or max(map(abs, bends)) < 1e-6:
        return ""
    middle = len(points) // 2
    halves = [
        math.fsum(slope(points[part], seed[part]) for seed in by_seed) / len(by_seed)
        for part in (slice(None, middle + 1), slice(middle, None))
    ]
    return (
        f"; no single exponent: {short(halves[0])} over the lower half of the sweep, {short(halves[1])} over the upper"
    )


def points_of(sweep: Mapping[str, Sequence[object]], field: str) -> tuple[float, ...]:
    """The values of a sweep as numbers.

    Raises:
        DeclarationError: The sweep is over another field, too short, or not over positive numbers.
    """
    if field not in sweep:
        raise DeclarationError(f"scales_with({field!r}) needs sweep=dict({field}=(...))")
    values = sweep[field]
    if len(values) < LEAST_POINTS:
        raise DeclarationError(
            f"an exponent needs at least {LEAST_POINTS} points, the sweep over {field} has {len(values)}"
        )
    numbers = [float(value) for value in values if isinstance(value, int | float) and value > 0]
    if len(numbers) < len(values):
        raise DeclarationError(f"an exponent needs positive numbers, the sweep over {field} has {tuple(values)}")
    return tuple(numbers)
