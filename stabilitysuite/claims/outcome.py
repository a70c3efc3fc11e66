"""The outcome family: how a training ends, in every seed."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stabilitysuite.claims.claim import Claim
from stabilitysuite.claims.finding import Finding, Verdict, short
from stabilitysuite.claims.look import ONLY, Look
from stabilitysuite.errors import DeclarationError, NoData
from stabilitysuite.spec import KnownTask, Training
from stabilitysuite.stats.interval import largest_rate
from stabilitysuite.stats.sequential import ERROR, probability_ratio
from stabilitysuite.trace import Reference, Trace, tail

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

EVERY = 8
"""Seeds between two looks at a rate."""
MOST_RATE, LEAST_GAP = 0.999, 0.01
"""Largest rate, and least distance from the other one, that as many seeds as one has could show."""
ADMITTED_RATE = 0.05
"""Share of seeds on the wrong side that an admitted case may have; more than this explains is a violation."""


@dataclass(frozen=True, kw_only=True)
class Ends(Claim):
    """How the runs end; built by the functions below, such as ``converges()``.

    Every seed on the declared side: holds. Wrong sides are counted: violated when so many would come up, at this look
    or an earlier one, with probability below 1 % in a case of which 5 % of the seeds end on the wrong side (2 of 3,
    3 of 5, 4 of 8), else undecided. A stall holds only if the twin, which differs in the control's one field,
    converged by the same step, and if it survives twice that horizon.
    """

    side: Side
    progress: float | None = None
    rate: float | None = None
    against: float | None = None

    def _check(self) -> None:
        self._require(self.progress is None or 0 < self.progress <= 1, "progress must be in (0, 1]")
        if self.rate is None:
            self._require(self.against is None, "against= is the rate that rate= is told from: give rate= too")
            return
        self._require(0 < self.rate < 1, "rate must be in (0, 1): leave it out for every seed")
        if self.against is not None:
            self._require(0 < self.against < self.rate, "against must be below rate: what would be a violation")
        near = self.rate > MOST_RATE or (self.against is not None and self.rate - self.against < LEAST_GAP)
        self._require(
            not near, f"a rate above {MOST_RATE}, or nearer than {LEAST_GAP} to against, takes thousands of seeds"
        )

    @property
    def horizon(self) -> int:  # type: ignore[override]
        """A stall is watched for twice the declared steps."""
        return 2 if self.side == "stalls" else 1

    def words(self) -> str:
        """``converges``, or ``converges to progress 0.7``."""
        spoken = self.side.replace("_", " ")
        spoken += "" if self.progress is None else f" to progress {short(self.progress)}"
        if self.rate is None:
            return spoken
        told = "" if self.against is None else f", told from {100 * self.against:g} %"
        return f"{spoken} in at least {100 * self.rate:g} % of seeds{told}"

    def looks(self) -> tuple[int, ...]:
        """Of a rate: every eight seeds, up to twice what decides where all end alike; none of its own else."""
        if self.rate is None:
            return ()
        if self.against is None:
            return (math.ceil(math.log(ERROR) / math.log(self.rate)),)
        straight = next(n for n in itertools.count(1) if self._tested(0, n) == "holds")
        return tuple(range(EVERY, 2 * straight + EVERY, EVERY))

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

    def judge(
        self, arm: str, traces: Sequence[Trace], twins: Sequence[Trace], steps: int, look: Look = ONLY
    ) -> Finding:
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
        if self.rate is None:
            enough = look.too_many(len(traces), ADMITTED_RATE)
            verdict, reason, remedy = self._decide(wrong, ends, early, [*late.values()], len(twins), enough)
        else:
            wrong = [failed or one.seed in late for failed, one in zip(wrong, traces, strict=True)]
            verdict, reason, remedy = self._decide_rate(sum(wrong), len(wrong))
        position = self._worst(values)
        margin = self._margin(values, traces)
        if self.rate is not None:
            margin = (len(wrong) - sum(wrong)) / len(wrong) - self.rate
        elif any(wrong) and margin is not None and margin >= 0:
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
            false_holds=None if verdict != "holds" else 0.5**count if self.rate is None else ERROR,
            decided_by=_decisive(traces, wrong) if verdict == "violated" and self.rate is None else (),
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
        enough: int,
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
        if sum(wrong) >= enough:
            return "violated", reason, ""
        return "undecided", reason, "more steps" if "learning" in shown else "more seeds"

    def _decide_rate(self, wrong: int, count: int) -> tuple[Verdict, str, Literal["", "more seeds"]]:
        verdict = self._tested(wrong, count)
        share = f"{count - wrong} of {count} seeds on the declared side"
        if self.against is None:
            least, most = (1 - largest_rate(one, count, confidence=1 - ERROR) for one in (wrong, count - wrong))
            reason = f"{share}: a rate of {least:.3g} or more, and at most {1 - most:.3g}, at 99 %"
        else:
            reason = f"{share}: sequential test of {self.rate:g} against {self.against:g}, each error at most 1 %"
        return verdict, reason, "more seeds" if verdict == "undecided" else ""

    def _tested(self, wrong: int, count: int) -> Verdict:
        assert self.rate is not None
        if self.against is not None:
            answer = probability_ratio(wrong, count, good=1 - self.rate, bad=1 - self.against)
            return "holds" if answer == "good" else "violated" if answer == "bad" else "undecided"
        if largest_rate(wrong, count, confidence=1 - ERROR) <= 1 - self.rate + 1e-12:
            return "holds"
        return "violated" if largest_rate(count - wrong, count, confidence=1 - ERROR) < self.rate else "undecided"

    def _worst(self, values: Sequence[float]) -> float:
        """Progress of the seed closest to, or farthest over, the border; NaN where that seed left none."""
        if self.side in ("converges", "stalls") and any(math.isnan(value) for value in values):
            return math.nan
        known = [value for value in values if not math.isnan(value)]
        if not known:
            return math.nan
        return min(known) if self.side == "converges" else max(known)

    def _threshold(self, traces: Sequence[Trace]) -> str:
        if self.rate is not None:
            return f"at least {100 * self.rate:g} % of seeds"
        reference = _reference(traces)
        # without one it is one's own data, on which the target is all the way
        enough = self.progress if self.progress is not None else (reference.enough if reference else 1.0)
        return {
            "converges": f"progress at least {short(enough)} in every seed",
            "stalls": "progress within 0.1 of 0 in every seed, at the declared step and at twice it",
            "collapses": "progress of at least 0.3 once, and at most 0.1 at the end, in every seed",
            "diverges": "a loss far above its start, or non-finite, in every seed",
            "fails_to_train": "stalled, collapsed, diverged or non-finite in every seed",
        }[self.side]

    def _margin(self, values: Sequence[float], traces: Sequence[Trace]) -> float | None:
        reference = _reference(traces)
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
    return tuple(
        seeds[: next(count for count in range(1, len(seeds) + 1) if ONLY.too_many(count, ADMITTED_RATE) <= count)]
    )


def _final(trace: Trace) -> float:
    """Progress at the end of the run; the loss itself where no floor is known; NaN where it is non-finite."""
    if trace.outcome.name == "nonfinite":
        return math.nan
    for name, end in (("evaluated_loss", lambda losses: losses[-1]), ("training_loss", tail)):
        series = trace.series.get(name)
        if series is not None and series.values:
            loss: float = end([row[0] for row in series.values])
            return trace.reference.progress(loss) if trace.reference is not None else loss
    raise NoData(f"seed {trace.seed} of arm {trace.arm!r} left no loss: nothing can be said of how it ended")


def _reference(traces: Sequence[Trace]) -> Reference | None:
    """The known losses, on one's own data of a seed that did not break."""
    return next((trace.reference for trace in traces if trace.reference is not None), None)


def _unit(traces: Sequence[Trace]) -> str:
    return "worst progress" if _reference(traces) is not None else "last loss"


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(names).most_common())


def converges(*, progress: float | None = None, rate: float | None = None, against: float | None = None) -> Ends:
    """Every seed trains: at the declared step it has made this share of the way from plateau to floor.

    Args:
        progress: Share wanted; by default half the way, on one's own data all the way to ``target``.
        rate: Share of the seeds that must, where it is not every one; for the full tier.
        against: Share that would be a violation. Between the two either verdict may come out, and the nearer they
            are the more seeds it takes: 27 at .95 against .80 where all converge. Without it the exact interval of
            the share decides (Clopper and Pearson, 1934): 90 seeds for .95.
    """
    return Ends(side="converges", progress=progress, rate=rate, against=against)


def stalls(*, rate: float | None = None, against: float | None = None) -> Ends:
    """Every seed stays on the plateau, at the declared step and at twice it, while its twin converges.

    Args:
        rate: Share of the seeds that must, where it is not every one; see :func:`converges`.
        against: Share that would be a violation.
    """
    return Ends(side="stalls", rate=rate, against=against)


def diverges(*, rate: float | None = None, against: float | None = None) -> Ends:
    """Every seed ends far above where it started, or with a non-finite number.

    Args:
        rate: Share of the seeds that must, where it is not every one; see :func:`converges`.
        against: Share that would be a violation.
    """
    return Ends(side="diverges", rate=rate, against=against)


def collapses(*, rate: float | None = None, against: float | None = None) -> Ends:
    """Every seed learns first and then falls back to the plateau.

    Args:
        rate: Share of the seeds that must, where it is not every one; see :func:`converges`.
        against: Share that would be a violation.
    """
    return Ends(side="collapses", rate=rate, against=against)


def fails_to_train(*, rate: float | None = None, against: float | None = None) -> Ends:
    """Every seed stalls, collapses, diverges or turns non-finite: what articles call divergence.

    Args:
        rate: Share of the seeds that must, where it is not every one; see :func:`converges`.
        against: Share that would be a violation.
    """
    return Ends(side="fails_to_train", rate=rate, against=against)
