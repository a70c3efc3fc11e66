"""The scaling family: along a sweep a number follows a power law of a given exponent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stabilitysuite.claims.claim import MeasureClaim
from stabilitysuite.claims.ends import decide, range_words
from stabilitysuite.claims.finding import Finding, short
from stabilitysuite.claims.look import ONLY, Look
from stabilitysuite.errors import DeclarationError
from stabilitysuite.stats.interval import mean_interval
from stabilitysuite.stats.power_law import curvature, slope
from stabilitysuite.trace import Trace

__all__ = ["LEAST_POINTS", "Scaling"]

CONFIDENCE = 0.99
"""Of the curvature, which only adds a remark."""
LEAST_POINTS = 4
"""Points of a sweep from which on an exponent means something."""
LEAST_SPAN = 8
"""Factor that the points of a sweep should span: over less, what is not a power law looks like one."""


@dataclass(frozen=True, kw_only=True)
class Scaling(MeasureClaim):
    """A number grows along a sweep as its field to an exponent; built by ``scales_with``.

    A straight line is fitted to the logarithms within each seed, and the 99 % t interval of the seeds' slopes is
    held against [exponent - within, exponent + within] (summary measures: Matthews et al., 1990; equivalence:
    Schuirmann, 1987). Pooling all points into one line would take the seeds' own levels for noise. Where the
    logarithms bend in the same direction in every seed there is no single exponent; the finding then names those of
    the lower and upper half.
    """

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

    def together(self) -> bool:
        """It is judged over all arms of a sweep of its field."""
        return True

    def check_arms(self, variants: Sequence[str], sweep: Mapping[str, Sequence[object]]) -> None:
        """It needs a sweep of its field over at least four positive numbers."""
        del variants
        _check_points(sweep, self.field)

    def judge_together(
        self, points: Mapping[str, object], arms: Mapping[str, Sequence[Trace]], look: Look = ONLY
    ) -> Finding:
        """Judge the sweep."""
        sizes = [float(str(value)) for value in points.values()]
        traces = next(iter(arms.values()))
        by_seed = [[self.measure.read(own[index]).value for own in arms.values()] for index in range(len(traces))]
        usable = [all(math.isfinite(value) and value > 0 for value in seed) for seed in by_seed]
        slopes = tuple(slope(sizes, seed) if fit else math.nan for seed, fit in zip(by_seed, usable, strict=True))
        prior = look.prior("", self.words(), log=False)
        found = decide(slopes, *self._ends(), confidence=look.confidence, prior=prior)
        reason = found.reason.replace("not finite", "not a positive finite number").replace(
            "over the seeds", "of the slopes"
        )
        return Finding(
            arm="",
            claim=self.words(),
            verdict=found.verdict,
            number=f"exponent = {short(found.centre)}" + range_words(found.interval, confidence=look.confidence),
            value=found.centre,
            interval=found.interval,
            threshold=f"in [{short(self.exponent - self.within)}, {short(self.exponent + self.within)}]",
            margin=found.margin,
            margin_unit="difference",
            seeds=tuple(trace.seed for trace in traces),
            values=slopes,
            reason=reason + (_bend(sizes, by_seed) if all(usable) else "") + _short_span(sizes),
            resolution=found.resolution,
            remedy=found.remedy,
            published=self.published,
            wrong=tuple(one.seed for one, fit in zip(traces, usable, strict=True) if not fit),
        )

    def _ends(self) -> tuple[float, float]:
        return self.exponent - self.within, self.exponent + self.within


def _short_span(points: Sequence[float]) -> str:
    """What is to be said where the points lie close together; a span is a matter of the range that is claimed."""
    span = max(points) / min(points)
    if span >= LEAST_SPAN * (1 - 1e-9):
        return ""
    return f"; over a span of x{short(span)} only: what is no power law can look like one over less than x{LEAST_SPAN}"


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


def _check_points(sweep: Mapping[str, Sequence[object]], field: str) -> None:
    """Refuse a sweep over another field, one that is too short, or one not over positive numbers."""
    if field not in sweep:
        raise DeclarationError(f"scales_with({field!r}) needs sweep=dict({field}=(...))")
    values = sweep[field]
    if len(values) < LEAST_POINTS:
        raise DeclarationError(
            f"an exponent needs at least {LEAST_POINTS} points, the sweep over {field} has {len(values)}"
        )
    if any(not isinstance(value, int | float) or value <= 0 for value in values):
        raise DeclarationError(f"an exponent needs positive numbers, the sweep over {field} has {tuple(values)}")
