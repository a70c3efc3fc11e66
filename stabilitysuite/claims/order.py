"""The order family: a number is smaller in one variant than in another, paired by seed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stabilitysuite.claims.claim import MeasureClaim, check_variants
from stabilitysuite.claims.ends import Decision, decide, range_words
from stabilitysuite.claims.finding import Finding, short
from stabilitysuite.claims.look import ONLY, Look
from stabilitysuite.errors import DeclarationError
from stabilitysuite.stats.paired import sign_test
from stabilitysuite.stats.sequential import ERROR
from stabilitysuite.trace import Trace

__all__ = ["LEAST_DIFFERENCE", "LEAST_FACTOR", "Order"]

LEAST_FACTOR, LEAST_DIFFERENCE = 1.05, 0.02
"""Smallest effects worth a claim, of a ratio and of a plain number: a smaller one is real and does not matter."""
SIGNS_AGREE_BELOW = 7
"""Seeds below which every pair must lie on the claimed side: seven are what the signs alone need."""
SPOILT_RATE = 0.05
"""Share of pairs that cannot be compared which is no violation yet."""


@dataclass(frozen=True, kw_only=True)
class Order(MeasureClaim):
    """A number is smaller in the variant ``below`` than in ``above``; built by ``ordered``.

    Each seed is a pair, with the same initial weights wherever both variants have the parameter and the same batches.
    The t interval of the mean difference, of the logarithms where the number is a ratio, is held against the least
    effect that is claimed. A pair of which a number is not finite, or a run ended in another kind than most runs of
    its variant, is not left out but counts against the claim; then the signs decide, and hold only what the other
    pairs hold alone.
    """

    below: str
    above: str
    factor: float | None = None
    difference: float | None = None
    published: float | None = None

    def _check(self) -> None:
        if self.factor is not None and self.difference is not None:
            raise DeclarationError(f"{self.measure.words()}: give factor= or difference=, not both")
        if self.factor is not None and self.factor <= 1:
            raise DeclarationError(f"factor={self.factor!r}: what is smaller is so by a factor above 1, such as 1.05")
        if self.difference is not None and self.difference <= 0:
            raise DeclarationError(f"difference={self.difference!r}: what is smaller is so by more than zero")
        if self.below == self.above:
            raise DeclarationError(f"{self.below!r} is not smaller than itself: name two variants")

    def _log(self) -> bool:
        """Whether it is judged by factors."""
        return self.difference is None and (self.factor is not None or self.measure.on_log_scale())

    def _least(self) -> float:
        if self._log():
            return LEAST_FACTOR if self.factor is None else self.factor
        return LEAST_DIFFERENCE if self.difference is None else self.difference

    def least(self) -> float:
        """The least effect on the scale on which it is judged."""
        return math.log(self._least()) if self._log() else self._least()

    def words(self) -> str:
        """Such as ``token_cosine of the last layer is smaller in pre than in post by a factor of 3``."""
        by = f"by a factor of {short(self._least())}" if self._log() else f"by {short(self._least())}"
        return f"{self.measure.words()} is smaller in {self.below} than in {self.above} {by}"

    def together(self) -> bool:
        """It is judged over two variants."""
        return True

    def check_arms(self, variants: Sequence[str], sweep: Mapping[str, Sequence[object]]) -> None:
        """It needs the two variants that it names."""
        del sweep
        check_variants(self.below, self.above, variants)

    def judge_together(
        self, points: Mapping[str, object], arms: Mapping[str, Sequence[Trace]], look: Look = ONLY
    ) -> Finding:
        """Judge the pairs."""
        del points
        below, above = arms[self.below], arms[self.above]
        usual = [_usual(below), _usual(above)]
        values = tuple(
            (_usable(self._scaled(a), self._scaled(b)) if [a.kind, b.kind] == usual else math.nan)
            for a, b in zip(below, above, strict=True)
        )
        least = self.least()
        found = self._decide(values, least, look)
        plain = math.exp if self._log() else float
        interval = None if found.interval is None else (plain(found.interval[0]), plain(found.interval[1]))
        told = range_words(interval, confidence=look.confidence)
        what = "ratio" if self._log() else "difference"
        return Finding(
            arm="",
            claim=self.words(),
            verdict=found.verdict,
            number=f"{what} {self.above} to {self.below} = {short(plain(found.centre))}{told}",
            value=plain(found.centre),
            interval=interval,
            threshold=f"at least {short(self._least())}",
            margin=None if found.margin is None else plain(found.margin),
            margin_unit="factor" if self._log() else "difference",
            seeds=tuple(trace.seed for trace in below),
            values=tuple(plain(value) for value in values),
            reason=found.reason,
            resolution=None if found.resolution is None else plain(found.resolution),
            remedy=found.remedy,
            published=self.published,
            wrong=tuple(one.seed for one, value in zip(below, values, strict=True) if not value >= least),
        )

    def _scaled(self, trace: Trace) -> float:
        value = self.measure.read(trace).value
        if not self._log():
            return value
        return math.log(value) if math.isfinite(value) and value > 0 else math.nan

    def _decide(self, values: Sequence[float], least: float, look: Look) -> Decision:
        finite = [value for value in values if math.isfinite(value)]
        if not finite:
            return _by_signs(values, least, look, rest_holds=False)
        prior = look.prior("", self.words(), log=self._log())
        found = decide(finite, least, math.inf, confidence=look.confidence, prior=prior)
        if len(finite) < len(values):
            return _by_signs(values, least, look, rest_holds=found.verdict == "holds")
        against = sum(value <= 0 for value in values)
        if found.verdict == "holds" and against and len(values) < SIGNS_AGREE_BELOW:
            reason = f"{found.reason}, but {against} of {len(values)} pairs lie the other way round"
            return Decision(
                verdict="undecided",
                reason=reason,
                remedy="more seeds",
                centre=found.centre,
                interval=found.interval,
                margin=None,
            )
        return found


def _by_signs(values: Sequence[float], least: float, look: Look, *, rest_holds: bool) -> Decision:
    """Where pairs cannot be compared: they are ranked worst, and no mean is taken.

    Args:
        values: The pairs, not finite where they cannot be compared.
        least: The effect that is claimed.
        look: At how many seeds it is looked.
        rest_holds: Whether the claim holds of the other pairs alone: signs ask for less than a mean does, and a pair
            that is spoilt must never make hold what does not without it.
    """
    spoilt = sum(not math.isfinite(value) for value in values)
    above = [math.isfinite(value) and value >= least for value in values]
    count = len(values)
    reason = f"{spoilt} of {count} pairs cannot be compared (not finite, or ended otherwise than most), "
    reason += f"so only signs count: {sum(above)} of {count} as claimed"
    finite = sorted(value for value in values if math.isfinite(value))
    centre = finite[len(finite) // 2] if finite else math.nan
    rejected = spoilt >= look.too_many(count, SPOILT_RATE) or sign_test([not one for one in above]) <= ERROR
    holds = rest_holds and sign_test(above) <= ERROR
    return Decision(
        verdict="holds" if holds else "violated" if rejected else "undecided",
        reason=reason,
        remedy="" if holds or rejected else "more seeds",
        centre=centre,
        interval=None,
        margin=None,
    )


def _usual(traces: Sequence[Trace]) -> str:
    """How most of the runs ended; of equally many the first by name, whatever the order of the seeds."""
    counted = Counter(trace.kind for trace in traces)
    return min(counted, key=lambda name: (-counted[name], name))


def _usable(below: float, above: float) -> float:
    return above - below if math.isfinite(below) and math.isfinite(above) else math.nan
