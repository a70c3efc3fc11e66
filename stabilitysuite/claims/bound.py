"""The bound family: a measured number lies in an interval."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from stabilitysuite.claims.claim import MeasureClaim
from stabilitysuite.claims.ends import Decision, decide, range_words
from stabilitysuite.claims.finding import Finding, short
from stabilitysuite.claims.look import ONLY, Look
from stabilitysuite.claims.reading import Measured
from stabilitysuite.errors import DeclarationError
from stabilitysuite.stats.interval import Prior
from stabilitysuite.trace import Trace, mixed_ends

__all__ = ["Bound"]


@dataclass(frozen=True, kw_only=True)
class Bound(MeasureClaim):
    """A number lies in [low, high]; built by ``near``, ``between``, ``at_most`` and ``at_least``.

    The t interval of the mean over the seeds is held against the bounds, of the logarithm where the number is a
    ratio: inside holds, outside is violated, across is undecided. Where calibration knows the spread it is part of
    the interval. A seed whose number is not finite is outside of every bound.
    """

    low: float | None = None
    high: float | None = None
    published: float | None = None

    def _check(self) -> None:
        if self.low is None and self.high is None:
            raise DeclarationError(f"{self.measure.words()}: give a lower or an upper bound")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise DeclarationError(f"{self.measure.words()}: the bounds [{self.low}, {self.high}] are empty")
        if self.high is not None and self.high <= 0 and self.measure.on_log_scale():
            raise DeclarationError(f"{self.measure.words()} is never negative: at most {self.high} cannot hold")

    def words(self) -> str:
        """Such as ``branch_ratio in [0.045, 0.065]``."""
        return f"{self.measure.words()} {self._wanted()}"

    def _wanted(self) -> str:
        if self.low is None:
            return f"at most {short(self.high)}"
        if self.high is None:
            return f"at least {short(self.low)}"
        return f"in [{short(self.low)}, {short(self.high)}]"

    def judge(
        self, arm: str, traces: Sequence[Trace], twins: Sequence[Trace], steps: int, look: Look = ONLY
    ) -> Finding:
        """Hold the interval over the seeds against the bounds."""
        del twins, steps
        read = [self.measure.read(trace) for trace in traces]
        values = tuple(one.value for one in read)
        log = self.measure.on_log_scale() and all(math.isfinite(value) and value > 0 for value in values)
        found = self._decide(values, log, traces, look.prior(arm, self.words(), log=log), look.confidence)
        plain = _exp if log else float
        interval = None if found.interval is None else (plain(found.interval[0]), plain(found.interval[1]))
        place, remark = self._place(read, traces)
        told = range_words(interval, remark, confidence=look.confidence)
        return Finding(
            arm=arm,
            claim=self.words(),
            verdict=found.verdict,
            number=f"{self.measure.words()} = {short(plain(found.centre))}{place}{told}",
            value=plain(found.centre),
            interval=interval,
            threshold=self._wanted(),
            margin=None if found.margin is None else plain(found.margin),
            margin_unit="factor" if log else "difference",
            seeds=tuple(trace.seed for trace in traces),
            values=values,
            reason=found.reason,
            resolution=None if found.resolution is None else plain(found.resolution),
            remedy=found.remedy,
            published=self.published,
            wrong=tuple(one.seed for one, value in zip(traces, values, strict=True) if not self._inside(value)),
        )

    def _inside(self, value: float) -> bool:
        """Whether one seed's own number lies within the bounds; what is not finite does not."""
        low, high = self.bounds(log=False)
        return math.isfinite(value) and low <= value <= high

    def bounds(self, log: bool) -> tuple[float, float]:
        """Both bounds, of the logarithm where ``log``; infinite where there is none."""
        low = -math.inf if self.low is None or (log and self.low <= 0) else self.low
        high = math.inf if self.high is None else self.high
        if not log:
            return low, high
        return low if low == -math.inf else math.log(low), math.log(high)

    def _decide(
        self, values: tuple[float, ...], log: bool, traces: Sequence[Trace], prior: Prior | None, confidence: float
    ) -> Decision:
        """On the scale on which it is judged; of seeds that are not finite the reason names which."""
        broken = [trace.seed for trace, value in zip(traces, values, strict=True) if not math.isfinite(value)]
        scaled = [math.log(value) for value in values] if log else list(values)
        above = [trace.seed for trace, value in zip(traces, values, strict=True) if value > 0]
        if self.high == 0 and above and not broken and self.measure.never_negative():
            reason = f"above 0 in {len(above)} of {len(values)} seeds ({', '.join(map(str, above))}), so its mean is"
            centre = math.fsum(value / len(scaled) for value in scaled)
            return Decision(verdict="violated", reason=reason, remedy="", centre=centre, interval=None, margin=None)
        found = decide(scaled, *self.bounds(log), confidence=confidence, prior=prior, mixed=mixed_ends(traces))
        if not broken:
            return found
        return dataclasses.replace(found, reason=f"{found.reason} ({', '.join(map(str, broken))})")

    def first_outside(self, along: Sequence[float]) -> int | None:
        """Position of the first value that breaks the bound which ``max`` or ``min`` is held against.

        Args:
            along: The quantity at every place along its axis, in order.
        """
        above = math.inf if self.measure.where == "min" or self.high is None else self.high
        below = -math.inf if self.measure.where == "max" or self.low is None else self.low
        return next((index for index, value in enumerate(along) if value > above or value < below), None)

    def _place(self, read: Sequence[Measured], traces: Sequence[Trace]) -> tuple[str, str]:
        """Where it was found, and a remark: the first layer outside leads, as what is behind it inherits it."""
        decisive = self._decisive(read)
        if not decisive.label or self.measure.where not in ("max", "min"):
            return "", ""
        along = self.measure.profile(traces[read.index(decisive)], decisive.step)
        first = self.first_outside([one.value for one in along])
        if first is None or along[first].label == decisive.label:
            return f" at {decisive.label}", ""
        return f", first outside at {along[first].label}", f"the {self.measure.where} is at {decisive.label}"

    def _decisive(self, read: Sequence[Measured]) -> Measured:
        """The seed that lies farthest towards the bound that is nearest, whose label is worth naming."""
        finite = [one for one in read if math.isfinite(one.value)]
        if len(finite) < len(read):
            return next(one for one in read if not math.isfinite(one.value))
        top, bottom = max(finite, key=lambda one: one.value), min(finite, key=lambda one: one.value)
        if self.low is None or self.high is None:
            return bottom if self.high is None else top
        return top if self.high - top.value < bottom.value - self.low else bottom


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
