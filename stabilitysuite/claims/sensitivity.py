"""Learning-rate sensitivity: what a badly chosen rate costs, along a sweep of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stabilitysuite.claims.claim import Claim
from stabilitysuite.claims.ends import decide, range_words
from stabilitysuite.claims.finding import Finding, short
from stabilitysuite.claims.look import ONLY, Look
from stabilitysuite.errors import DeclarationError, NoData
from stabilitysuite.spec import Training
from stabilitysuite.trace import Series, Trace

__all__ = ["LEAST_RATES", "Sensitivity", "SensitivityMeasure", "learning_rate_sensitivity"]

LEAST_RATES = 5
LEAST_SPAN = 100.0
"""Rates of the sweep, and the factor that they must span: two decades."""


@dataclass(frozen=True, kw_only=True)
class Sensitivity(Claim):
    """The mean loss above the best, over the rates of a sweep; built by ``learning_rate_sensitivity``.

    ``mean over the rates of min(L, L0) - min over the rates of L``, with the loss L at the end and L0 at
    initialisation, in nats (Wortsman et al., 2023, section 2.2): a run that diverges costs as much as one that never
    trained. Within each seed, then the t interval over the seeds. A seed that no rate brings below its start has no
    best rate, and no sensitivity either: it counts as not finite, else what never learns would be insensitive.
    """

    high: float
    published: float | None = None

    def _check(self) -> None:
        if self.high <= 0:
            raise DeclarationError(f"learning_rate_sensitivity is never negative: at most {self.high} cannot hold")

    def words(self) -> str:
        """Such as ``learning_rate_sensitivity at most 0.2``."""
        return f"learning_rate_sensitivity at most {short(self.high)}"

    def together(self) -> bool:
        """It is judged over all rates."""
        return True

    def check_arms(self, variants: Sequence[str], sweep: Mapping[str, Sequence[object]]) -> None:
        """It needs a sweep of ``lr`` over two decades."""
        del variants
        rates = sorted(float(one) for one in sweep.get("lr", ()) if isinstance(one, int | float))
        if len(rates) < LEAST_RATES or rates[-1] < LEAST_SPAN * rates[0] * (1 - 1e-9):
            raise DeclarationError(
                f"learning_rate_sensitivity needs sweep=dict(lr=(...)) with at least {LEAST_RATES} rates that span a "
                f"factor of {LEAST_SPAN:g}"
            )

    def quantities(self) -> frozenset[str]:
        """It comes from the losses."""
        return frozenset({"training_loss", "evaluated_loss"})

    def check(self, training: Training) -> None:
        """It needs a training."""
        if training.steps < 1:
            raise DeclarationError(f"{self.words()} is about training, but steps={training.steps}")

    def judge_together(
        self, points: Mapping[str, object], arms: Mapping[str, Sequence[Trace]], look: Look = ONLY
    ) -> Finding:
        """Judge the sweep."""
        traces = next(iter(arms.values()))
        values = tuple(_sensitivity([own[index] for own in arms.values()]) for index in range(len(traces)))
        prior = look.prior("", self.words(), log=False)
        found = decide(values, -math.inf, self.high, confidence=look.confidence, prior=prior)
        told = range_words(found.interval, f"over {len(points)} rates", confidence=look.confidence)
        return Finding(
            arm="",
            claim=self.words(),
            verdict=found.verdict,
            number=f"learning_rate_sensitivity = {short(found.centre)}{told}",
            value=found.centre,
            interval=found.interval,
            threshold=f"at most {short(self.high)}",
            margin=found.margin,
            margin_unit="difference",
            seeds=tuple(trace.seed for trace in traces),
            values=values,
            reason=found.reason.replace("not finite", "nothing learned at any rate"),
            resolution=found.resolution,
            remedy=found.remedy,
            published=self.published,
            wrong=tuple(one.seed for one, value in zip(traces, values, strict=True) if not value <= self.high),
        )


def _sensitivity(traces: Sequence[Trace]) -> float:
    """Of the runs of one seed, one a rate; NaN where none of them learned."""
    ends, learned = [], False
    for trace in traces:
        series = _losses(trace)
        start, end = series.values[0][0], series.values[-1][0]
        broken = trace.outcome.name == "nonfinite" or not math.isfinite(end)
        ends.append(start if broken else min(start, end))
        learned = learned or ends[-1] < start
    return math.fsum(ends) / len(ends) - min(ends) if learned else math.nan


def _losses(trace: Trace) -> Series:
    for name in ("evaluated_loss", "training_loss"):
        series = trace.series.get(name)
        if series is not None and series.values and series.steps[0] == 0:
            return series
    raise NoData(f"seed {trace.seed} of arm {trace.arm!r} left no loss: nothing can be said of how it ended")


@dataclass(frozen=True)
class SensitivityMeasure:
    """What the claim is made of."""

    def at_most(self, high: float, *, published: float | None = None) -> Sensitivity:
        """A badly chosen rate costs at most ``high`` nats on average; ``published`` is the source's figure."""
        return Sensitivity(high=high, published=published)


def learning_rate_sensitivity() -> SensitivityMeasure:
    """What a badly chosen learning rate costs: mean loss above the best over a sweep of ``lr``, in nats."""
    return SensitivityMeasure()
