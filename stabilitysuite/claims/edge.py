"""The edge family: the largest learning rate at which half of the seeds train."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stabilitysuite.claims.claim import Claim, check_variants
from stabilitysuite.claims.ends import distance, held, percentage, range_words
from stabilitysuite.claims.finding import Finding, Verdict, short
from stabilitysuite.claims.look import ONLY, Look
from stabilitysuite.claims.outcome import converges
from stabilitysuite.errors import DeclarationError
from stabilitysuite.spec import Spec, Training
from stabilitysuite.stats.edge import FACTOR, RUNGS, edge_interval, next_rung
from stabilitysuite.trace import Trace

__all__ = ["AT_RATE", "Edge", "EdgeMeasure", "learning_rate_edge", "rung_to_try"]

AT_RATE = "|lr="
"""Between the name of an arm and the learning rate at which a run of it was tried."""
SEEDS = 8
"""Seeds of each rate."""


@dataclass(frozen=True, kw_only=True)
class Edge(Claim):
    """Where training stops as the learning rate grows; built by the methods of ``learning_rate_edge()``.

    Rates on a ladder of factor 1.25 are tried with eight seeds each, in strides until both sides are seen and then
    bisected. The edge is the rate at which half of the seeds converge by the declared step, its interval that of a
    logistic curve in the logarithm of the rate. It is what extrapolates to larger runs (Wortsman et al., 2023).
    Without ``low`` and ``high`` the edge of the variant ``above`` is held to be larger than that of ``below``.
    """

    low: float | None = None
    high: float | None = None
    below: str = ""
    above: str = ""
    factor: float = 1.0
    published: float | None = None

    def _check(self) -> None:
        if self.above or self.below:
            if not (self.above and self.below) or self.above == self.below:
                raise DeclarationError(f"ordered({self.below!r}, {self.above!r}): name two variants")
            if self.factor <= 1:
                raise DeclarationError(f"factor={self.factor!r}: what is larger is so by a factor above 1, such as 2")
            return
        if self.low is None and self.high is None:
            raise DeclarationError("learning_rate_edge: give a lower or an upper bound")
        if any(end is not None and end <= 0 for end in (self.low, self.high)):
            raise DeclarationError("learning_rate_edge: a learning rate is positive, and so are its bounds")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise DeclarationError(f"learning_rate_edge: the bounds [{self.low}, {self.high}] are empty")

    def words(self) -> str:
        """Such as ``learning_rate_edge at least 0.003``."""
        if self.above:
            by = f"by a factor of {short(self.factor)}"
            return f"learning_rate_edge is smaller in {self.below} than in {self.above} {by}"
        return f"learning_rate_edge {self._wanted()}"

    def _wanted(self) -> str:
        if self.above:
            return f"at least {short(self.factor)}"
        if self.low is None:
            return f"at most {short(self.high)}"
        return f"at least {short(self.low)}" if self.high is None else f"in [{short(self.low)}, {short(self.high)}]"

    def explores(self) -> bool:
        """Which rates are run depends on how the others ended."""
        return True

    def looks(self) -> tuple[int, ...]:
        """Eight seeds a rate."""
        return (SEEDS,)

    def together(self) -> bool:
        """An order is judged over two variants."""
        return bool(self.above)

    def check_arms(self, variants: Sequence[str], sweep: Mapping[str, Sequence[object]]) -> None:
        """An order needs the two variants that it names, and no claim a sweep of what it varies itself."""
        if "lr" in sweep:
            raise DeclarationError("learning_rate_edge tries rates by itself: leave out the sweep over lr")
        if self.above:
            check_variants(self.below, self.above, variants)

    def quantities(self) -> frozenset[str]:
        """Outcomes come from the losses."""
        return converges().quantities()

    def check(self, training: Training) -> None:
        """It needs what ``converges`` needs, and an optimizer whose rate is known."""
        converges().check(training)
        if not isinstance(training.optimizer, Spec):
            raise DeclarationError(
                "learning_rate_edge needs to know the learning rate: declare optimizer=AdamW(lr=...), not a callable"
            )

    def judge(
        self, arm: str, traces: Sequence[Trace], twins: Sequence[Trace], steps: int, look: Look = ONLY
    ) -> Finding:
        """Hold the interval of the edge against the bounds."""
        del twins, steps
        centre, interval = _edge(traces, look.confidence)
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        known = None if math.isnan(centre) else interval
        told = range_words(known, _shares(traces), confidence=look.confidence)
        number = f"learning_rate_edge = {short(centre)}{told}"
        wanted = self.low is not None
        return self._finding(arm, traces, centre, interval, (low, high), number, look, wanted=wanted)

    def judge_together(
        self, points: Mapping[str, object], arms: Mapping[str, Sequence[Trace]], look: Look = ONLY
    ) -> Finding:
        """Hold the ratio of two edges against the factor; its interval is as wide as both allow."""
        del points
        (small, lower), (large, upper) = (_edge(arms[name], look.confidence) for name in (self.below, self.above))
        ratio = _ratio(large, small)
        interval = _ratio(upper[0], lower[1]), _ratio(upper[1], lower[0])
        number = f"ratio {self.above} to {self.below} = {short(ratio)} (edges {short(large)} and {short(small)})"
        number += range_words(None if math.isnan(ratio) else interval, confidence=look.confidence)
        both = [*arms[self.below], *arms[self.above]]
        wanted = math.isnan(large) and not math.isnan(small)
        return self._finding("", both, ratio, interval, (self.factor, math.inf), number, look, wanted=wanted)

    def _finding(
        self,
        arm: str,
        traces: Sequence[Trace],
        value: float,
        interval: tuple[float, float],
        ends: tuple[float, float],
        number: str,
        look: Look,
        *,
        wanted: bool,
    ) -> Finding:
        """The interval held against the ends.

        Where nothing trains there is no edge, and the interval is NaN: violated where a large one was ``wanted`` and
        the whole ladder was tried, else undecided.
        """
        verdict: Verdict
        missing_edge = any(map(math.isnan, interval))
        if missing_edge:
            verdict = "violated" if wanted and _searched(traces) else "undecided"
            reach = short(FACTOR**RUNGS)
            missing = "one of the two variants" if self.above else "it"
            reason = f"no rate from 1/{reach} to {reach} times the declared one trains {missing} within the steps"
        else:
            verdict, where = held(interval, *ends)
            reason = f"the {percentage(look.confidence)} interval of the {'ratio' if self.above else 'edge'} {where}"
        logs = tuple(_log(end) for end in (*interval, *ends))
        gap = distance((logs[0], logs[1]), logs[2], logs[3])
        return Finding(
            arm=arm,
            claim=self.words(),
            verdict=verdict,
            number=number,
            value=value,
            interval=None if missing_edge else interval,
            threshold=self._wanted(),
            margin=math.exp(gap) if math.isfinite(gap) else None,
            margin_unit="factor",
            seeds=tuple(dict.fromkeys(trace.seed for trace in traces)),
            values=(),
            reason=reason,
            resolution=math.sqrt(_ratio(interval[1], interval[0]))
            if 0 < interval[0] <= interval[1] < math.inf
            else None,
            remedy="" if verdict != "undecided" else "more steps" if missing_edge else "more seeds",
            published=self.published,
        )


def rung_to_try(traces: Sequence[Trace]) -> int | None:
    """The rung above the first rate of an arm that is to be tried next; ``None`` where its edge is found.

    Args:
        traces: What the runs of one arm left so far.
    """
    return next_rung(_rungs(traces))


def _rungs(traces: Sequence[Trace]) -> dict[int, tuple[int, int]]:
    """By rung above the rate of the first run how many converged, and how many there were."""
    steps = {rate: math.log(rate / _rate(traces[0])) / math.log(FACTOR) for rate in _by_rate(traces)}
    return {round(steps[rate]): counts for rate, counts in _by_rate(traces).items()}


def _by_rate(traces: Sequence[Trace]) -> dict[float, tuple[int, int]]:
    found: dict[float, tuple[int, int]] = {}
    for trace in traces:
        trained, count = found.get(_rate(trace), (0, 0))
        found[_rate(trace)] = trained + (trace.outcome.name == "converged"), count + 1
    return found


def _rate(trace: Trace) -> float:
    return float(trace.arm.rpartition(AT_RATE)[2])


def _edge(traces: Sequence[Trace], confidence: float) -> tuple[float, tuple[float, float]]:
    start = _rate(traces[0])
    centre, (low, high) = edge_interval(_rungs(traces), confidence=confidence)
    return _at(start, centre), (_at(start, low), _at(start, high))


def _searched(traces: Sequence[Trace]) -> bool:
    """Whether the whole ladder was tried in each arm."""
    arms: dict[str, list[Trace]] = {}
    for trace in traces:
        arms.setdefault(trace.arm.rpartition(AT_RATE)[0], []).append(trace)
    return all(rung_to_try(own) is None for own in arms.values())


def _at(start: float, rung: float) -> float:
    if math.isinf(rung) or math.isnan(rung):
        return rung
    return float(start * FACTOR**rung)


def _ratio(above: float, below: float) -> float:
    if math.isnan(above) or math.isnan(below):
        return math.nan
    if above == below == 0 or (math.isinf(above) and math.isinf(below)):
        return math.nan
    return above / below if below > 0 else math.inf


def _log(value: float) -> float:
    if math.isnan(value):
        return math.nan
    return math.log(value) if 0 < value < math.inf else -math.inf if value <= 0 else math.inf


def _shares(traces: Sequence[Trace]) -> str:
    """How many converged at each rate, such as ``8/8 at 0.001, 0/8 at 0.00244``."""
    shown = sorted(_by_rate(traces).items())
    others = Counter(trace.outcome.name for trace in traces if trace.outcome.name != "converged")
    failed = ", ".join(f"{count} {name}" for name, count in others.most_common())
    shares = ", ".join(f"{trained}/{count} at {rate:.3g}" for rate, (trained, count) in shown)
    return f"{shares}; {failed}" if failed else shares


@dataclass(frozen=True)
class EdgeMeasure:
    """What claims on the edge are made of."""

    def between(self, low: float, high: float, *, published: float | None = None) -> Edge:
        """The edge lies in [low, high]; ``published`` is the source's figure, where it is another one."""
        return Edge(low=low, high=high, published=published)

    def at_least(self, low: float, *, published: float | None = None) -> Edge:
        """The edge is at least ``low``."""
        return Edge(low=low, published=published)

    def at_most(self, high: float, *, published: float | None = None) -> Edge:
        """The edge is at most ``high``."""
        return Edge(high=high, published=published)

    def ordered(self, below: str, above: str, *, factor: float, published: float | None = None) -> Edge:
        """The edge of the variant ``above`` is that of ``below`` times ``factor``, at least."""
        return Edge(below=below, above=above, factor=factor, published=published)


def learning_rate_edge() -> EdgeMeasure:
    """The largest learning rate at which half of the seeds converge by the declared step."""
    return EdgeMeasure()
