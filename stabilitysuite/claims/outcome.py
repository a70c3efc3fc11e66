"""The outcome family: how a training ends, in every seed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stabilitysuite.claims.claim import Claim
from stabilitysuite.claims.finding import Finding, Verdict, short
from stabilitysuite.errors import DeclarationError, NoData
from stabilitysuite.spec import KnownTask, Training
from stabilitysuite.stats.interval import binomial_tail
from stabilitysuite.trace import Trace

__all__ = ["DECLARED_SIDE", "Ends", "collapses", "converges", "diverges", "fails_to_train", "stalls"]

Side = Literal["converges", "stalls", "diverges", "collapses", "fails_to_train"]

FAILURES = ("stalled", "collapsed", "diverged", "nonfinite")
DECLARED_SIDE: dict[Side, tuple[str, ...]] = {
    "converges": ("converged",),
    "stalls": ("stalled",),
    "diverges": ("diverged", "nonfinite"),
    "collapses": ("collapsed",),
    "fails_to_train": FAILURES,
}
"""Outcomes on the declared side of each claim."""

ADMITTED_RATE = 0.05
"""Share of seeds on the wrong side that an admitted case may have; more than this explains is a violation."""
LEVEL = 0.01


@dataclass(frozen=True, kw_only=True)
class Ends(Claim):
    """How the runs end; built by the functions below, such as ``converges()``.

    Every seed on the declared side: holds. Wrong sides are counted: violated when so many would come up with
    probability below 1 % in a case of which 5 % of the seeds end on the wrong side (two of three), else
    undecided. A stall holds only if the twin, which differs in the control's one field, converged by the same
    step, and if it survives twice that horizon.
    """

    side: Side
    progress: float | None = None

    def _check(self) -> None:
        self._require(self.progress is None or 0 < self.progress <= 1, "progress must be in (0, 1]")

    @property
    def horizon(self) -> int:  # type: ignore[override]
        """A stall is watched for twice the declared steps."""
        return 2 if self.side == "stalls" else 1

    def words(self) -> str:
        """``converges``, or ``converges to progress 0.7``."""
        spoken = self.side.replace("_", " ")
        return spoken if self.progress is None else f"{spoken} to progress {short(self.progress)}"

    def needs_twin(self) -> bool:
        """A stall is told from slowness by a twin that trains."""
        return self.side == "stalls"

    def expects_failure(self) -> bool:
        """All but ``converges``."""
        return self.side != "converges"

    def quantities(self) -> frozenset[str]:
        """Outcomes come from the losses."""
        return frozenset({"training_loss", "evaluated_loss"})

    def check(self, training: Training) -> None:
        """A training claim needs steps, and all but ``diverges`` a known floor."""
        if training.steps < 1:
            raise DeclarationError(f"{self.words()} is about training, but steps={training.steps}")
        if self.horizon > 1 and training.schedule == "cosine":
            raise DeclarationError(
                f"{self.words()} watches {self.horizon} times the declared steps, but the cosine schedule ends with "
                "them: use schedule='constant' or 'inverse_sqrt'"
            )
        known = isinstance(training.task, KnownTask) or training.target is not None
        if not known and self.side != "diverges":
            raise DeclarationError(
                f"{self.words()} needs a known floor: use a task such as Markov(), or declare target=, "
                "the loss at which your training counts as done"
            )

    def judge(self, arm: str, traces: Sequence[Trace], twins: Sequence[Trace], steps: int) -> Finding:
        """Count the seeds on the declared side, then weigh the worst one's progress."""
        right = DECLARED_SIDE[self.side]
        ends = [self._end(trace, trace.outcome.name) for trace in traces]
        early = [self._end(trace, trace.outcome_at(steps).name) for trace in traces]
        wrong = [name not in right or first not in right for name, first in zip(ends, early, strict=True)]
        late = {
            twin.seed: twin.outcome_at(steps).name
            for twin in twins
            if self._end(twin, twin.outcome_at(steps).name) != "converged"
        }
        values = tuple(_final(trace) for trace in traces)
        verdict, reason, remedy = self._decide(wrong, ends, early, [*late.values()], len(twins))
        position = self._worst(values)
        margin = self._margin(values, traces)
        if any(wrong) and margin is not None and margin >= 0:
            margin = None  # the seeds are on the wrong side for another reason than their last progress
        count = len(traces)
        return Finding(
            arm=arm,
            claim=self.words(),
            verdict=verdict,
            number=f"{count - sum(wrong)} of {count} seeds ({_counted(ends)}), {_unit(traces)} {short(position)}",
            value=position,
            interval=None,
            threshold=self._threshold(traces),
            margin=margin,
            margin_unit="difference",
            seeds=tuple(trace.seed for trace in traces),
            values=values,
            reason=reason,
            remedy=remedy,
            false_holds=0.5**count if verdict == "holds" else None,
            decided_by=_decisive(traces, wrong) if verdict == "violated" else (),
            wrong=tuple(one.seed for one, failed in zip(traces, wrong, strict=True) if failed or one.seed in late),
        )

    def _end(self, trace: Trace, name: str) -> str:
        """The outcome's name, with the claim's own progress in place of the task's."""
        if self.progress is None or name not in ("converged", "learning") or trace.reference is None:
            return name
        return "converged" if _final(trace) >= self.progress else "learning"

    def _decide(
        self,
        wrong: Sequence[bool],
        ends: Sequence[str],
        early: Sequence[str],
        late_twins: Sequence[str],
        twins: int,
    ) -> tuple[Verdict, str, Literal["", "more seeds", "more steps"]]:
        count = len(wrong)
        if not any(wrong):
            if late_twins:
                return (
                    "undecided",
                    f"the twin did not converge by the same step in {len(late_twins)} of {twins} seeds "
                    f"({_counted(late_twins)}), so a stall cannot be told from slowness",
                    "more steps",
                )
            if count == 1:
                return "undecided", "one seed decides nothing", "more seeds"
            smoke = f"; a change that breaks half of all runs is missed with probability {0.5**count:.3g}"
            return "holds", f"all {count} seeds on the declared side{smoke}", ""
        shown = ends if any(name not in DECLARED_SIDE[self.side] for name in ends) else early
        reason = f"{sum(wrong)} of {count} seeds on the wrong side ({_counted(shown)})"
        if binomial_tail(sum(wrong), count, ADMITTED_RATE) <= LEVEL:
            return "violated", reason, ""
        return "undecided", reason, "more steps" if "learning" in shown else "more seeds"

    def _worst(self, values: Sequence[float]) -> float:
        """Progress of the seed closest to, or farthest over, the border; NaN where that seed left none."""
        if self.side in ("converges", "stalls") and any(math.isnan(value) for value in values):
            return math.nan
        known = [value for value in values if not math.isnan(value)]
        if not known:
            return math.nan
        return min(known) if self.side == "converges" else max(known)

    def _threshold(self, traces: Sequence[Trace]) -> str:
        reference = traces[0].reference
        enough = self.progress if self.progress is not None else (reference.enough if reference else 0.5)
        return {
            "converges": f"progress at least {short(enough)} in every seed",
            "stalls": "progress within 0.1 of 0 in every seed, at the declared step and at twice it",
            "collapses": "progress of at least 0.3 once, and at most 0.1 at the end, in every seed",
            "diverges": "a loss far above its start, or non-finite, in every seed",
            "fails_to_train": "stalled, collapsed, diverged or non-finite in every seed",
        }[self.side]

    def _margin(self, values: Sequence[float], traces: Sequence[Trace]) -> float | None:
        reference = traces[0].reference
        position = self._worst(values)
        if reference is None or not math.isfinite(position):
            return None
        enough = self.progress if self.progress is not None else reference.enough
        if self.side == "converges":
            return position - enough
        return None if self.side == "diverges" else 0.1 - position


def _decisive(traces: Sequence[Trace], wrong: Sequence[bool]) -> tuple[int, ...]:
    """The first seeds on the wrong side, as many as are a violation by themselves."""
    seeds = [trace.seed for trace, failed in zip(traces, wrong, strict=True) if failed]
    enough = next(count for count in range(1, len(seeds) + 1) if binomial_tail(count, count, ADMITTED_RATE) <= LEVEL)
    return tuple(seeds[:enough])


def _final(trace: Trace) -> float:
    """Progress at the end of the run; the loss itself where no floor is known; NaN where it is non-finite."""
    if trace.outcome.name == "nonfinite":
        return math.nan
    for name in ("evaluated_loss", "training_loss"):
        series = trace.series.get(name)
        if series is not None and series.values:
            loss = series.values[-1][0]
            return trace.reference.progress(loss) if trace.reference is not None else loss
    raise NoData(f"seed {trace.seed} of arm {trace.arm!r} left no loss: nothing can be said of how it ended")


def _unit(traces: Sequence[Trace]) -> str:
    return "worst progress" if traces[0].reference is not None else "last loss"


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(names).most_common())


def converges(*, progress: float | None = None) -> Ends:
    """Every seed trains: at the declared step it has made this share of the way from plateau to floor.

    Args:
        progress: Share wanted; by default half the way, on one's own data all the way to ``target``.
    """
    return Ends(side="converges", progress=progress)


def stalls() -> Ends:
    """Every seed stays on the plateau, at the declared step and at twice it, while its twin converges."""
    return Ends(side="stalls")


def diverges() -> Ends:
    """Every seed ends far above where it started, or with a non-finite number."""
    return Ends(side="diverges")


def collapses() -> Ends:
    """Every seed learns first and then falls back to the plateau."""
    return Ends(side="collapses")


def fails_to_train() -> Ends:
    """Every seed stalls, collapses, diverges or turns non-finite: what articles call divergence."""
    return Ends(side="fails_to_train")
