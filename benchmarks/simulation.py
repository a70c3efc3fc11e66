"""The judge under known laws: labs that draw their numbers, and how often each verdict comes out.

Everything goes through ``settle`` and ``judge`` as in a session; only the training is replaced by a draw. Draws come
from generators with fixed seeds, so every figure is the same each time.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from stabilitysuite import settle as settling
from stabilitysuite.case import Case
from stabilitysuite.claims.claim import Claim
from stabilitysuite.claims.finding import Finding, Verdict
from stabilitysuite.claims.look import Spread
from stabilitysuite.claims.measure import Measure, evaluated_loss, gradient_norm
from stabilitysuite.plan import Plan, plan
from stabilitysuite.settle import Train, settle
from stabilitysuite.spec import Adam, Markov, Run, Transformer
from stabilitysuite.stats.interval import Prior
from stabilitysuite.trace import Outcome, OutcomeName, Reference, Series, Trace

__all__ = [
    "CALIBRATED",
    "LAWS",
    "MEASURES",
    "POINTS",
    "STEPS",
    "Frequencies",
    "Law",
    "Spreads",
    "binomial_error",
    "calibrated",
    "case_of",
    "edge_lab",
    "frequencies",
    "generator",
    "heap_ends",
    "logistic",
    "number_lab",
    "order_case",
    "outcome_lab",
    "pair_lab",
    "quick",
    "rate_lab",
    "scaling_case",
    "slope_lab",
]

Generator = np.random.Generator
Law = Callable[[Generator], float]
Spreads = Mapping[tuple[str, str], Spread]

STEPS = 10
CALIBRATED = 30
"""Seeds of a calibration."""
POINTS = (0.5, 0.7, 1.0, 1.4, 2.0)
"""Of a sweep."""
SESSION = 20261129
"""Start of all generators."""


def generator(*key: int) -> Generator:
    """A generator of its own for each table row."""
    return np.random.default_rng([SESSION, *key])


# ------------------------------------------------------------------------------------------------------------- laws


def _two_heaps(share: float) -> Law:
    """Far from the rest in a share of the seeds, with a spread within each heap of a fifth of the whole."""
    within = 0.2
    gap = math.sqrt((1 - within**2) / (share * (1 - share)))

    def draw(source: Generator) -> float:
        return float((source.random() < share) - share) * gap + within * source.normal()

    return draw


SKEW = 0.5
"""Standard deviation of the logarithm of the log-normal law."""


def _log_normal(source: Generator) -> float:
    mean = math.exp(SKEW**2 / 2)
    return (math.exp(SKEW * source.normal()) - mean) / (mean * math.sqrt(math.exp(SKEW**2) - 1))


LAWS: dict[str, Law] = {
    "normal": lambda source: float(source.normal()),
    "uniform": lambda source: float(source.uniform(-1, 1)) * math.sqrt(3),
    "rounded to half a deviation": lambda source: round(2 * source.normal()) / 2,
    "t with 3 degrees": lambda source: float(source.standard_t(3)) / math.sqrt(3),
    "skewed (log-normal, plain scale)": _log_normal,
    "two heaps, one with 15 %": _two_heaps(0.15),
    "two values, one with 15 %": lambda source: ((source.random() < 0.15) - 0.15) / math.sqrt(0.15 * 0.85),
}
"""Laws of mean 0 and standard deviation 1."""


def heap_ends(value: float) -> OutcomeName:
    """How a run of the law of two heaps ended: stalled where it lies far from most."""
    return "stalled" if value > 1 else "converged"


MEASURES: dict[str, tuple[Measure, Callable[[float], float]]] = {
    "plain": (evaluated_loss(), float),
    "log": (gradient_norm(), math.exp),
}
"""A number that is judged as it is, and one that is judged by its logarithm."""


# ------------------------------------------------------------------------------------------------------------- labs


def case_of(claim: Claim, **changed: Any) -> Case:
    """A case of that claim; what it trains does not matter, as nothing is trained."""
    fields: dict[str, Any] = {
        "says": "as simulated",
        "model": Transformer(layers=2, width=8, heads=2),
        "task": Markov(),
        "optimizer": Adam(lr=1e-3),
        "steps": STEPS,
        "expect": claim,
        "tier": "full",
    }
    return Case(**fields | changed)


def quick(run: Run, name: OutcomeName, numbers: Mapping[str, float]) -> Trace:
    """What a run leaves behind that ended so, with one number a quantity at its end."""
    step = run.judge_at[-1]
    return Trace(
        arm=run.arm,
        seed=run.seed,
        outcomes=tuple(Outcome(name=name, step=one) for one in run.judge_at),
        series={
            quantity: Series(quantity=quantity, steps=(step,), labels=("",), values=((float(value),),))
            for quantity, value in numbers.items()
        },
        reference=Reference(plateau=4.0, floor=2.0),
    )


def number_lab(
    measure: Measure, draw: Callable[[], float], ends: Callable[[float], OutcomeName] | None = None
) -> Train:
    """Every run leaves one number and converges, or ends as its number says."""

    def train(decided: Plan) -> Sequence[Trace]:
        values = [draw() for _ in decided.runs]
        names: list[OutcomeName] = ["converged" if ends is None else ends(value) for value in values]
        return [
            quick(run, name, {measure.quantity: value})
            for run, name, value in zip(decided.runs, names, values, strict=True)
        ]

    return train


def outcome_lab(source: Generator, wrong: float) -> Train:
    """Runs that stall with that probability and converge else."""

    def train(decided: Plan) -> Sequence[Trace]:
        return [_ended(run, stalled=source.random() < wrong) for run in decided.runs]

    return train


def _ended(run: Run, *, stalled: bool) -> Trace:
    return quick(run, "stalled" if stalled else "converged", {"evaluated_loss": 4.0 if stalled else 2.2})


def rate_lab(source: Generator, trains: Callable[[Run], float]) -> Train:
    """Runs that converge with a probability that depends on the run: its arm or its learning rate."""

    def train(decided: Plan) -> Sequence[Trace]:
        return [_ended(run, stalled=source.random() >= trains(run)) for run in decided.runs]

    return train


def logistic(run: Run, edge: float, width: float) -> float:
    """Chance to train: it falls as a logistic curve in ln(learning rate), and is a half at the edge."""
    assert isinstance(run.training.optimizer, Adam)
    return float(1 / (1 + math.exp(min(700.0, math.log(run.training.optimizer.lr / edge) / width))))


def edge_lab(source: Generator, edge: float, width: float) -> Train:
    """Runs that train up to a learning rate, more or less sharply."""
    return rate_lab(source, lambda run: logistic(run, edge, width))


def order_case(measure: Measure, **how: Any) -> Case:
    """A case of an order over two variants."""
    variants = {"below": {"warmup": 3}, "above": {"norm": "pre"}}
    return case_of(measure.ordered("below", "above", **how), variants=variants)


def pair_lab(
    source: Generator,
    measure: Measure,
    scale: Callable[[float], float],
    effect: Callable[[], float],
    spoilt: float = 0.0,
) -> Train:
    """Two variants whose runs have a level of the seed in common; a share of the pairs has a run that stalls."""

    def train(decided: Plan) -> Sequence[Trace]:
        level = {seed: 2 * source.normal() for seed in decided.seeds}
        gain = {seed: effect() for seed in decided.seeds}
        broken = {seed for seed in decided.seeds if source.random() < spoilt}
        return [
            quick(
                run,
                "stalled" if run.seed in broken and run.arm == "below" else "converged",
                {measure.quantity: scale(level[run.seed] + (gain[run.seed] if run.arm == "above" else 0.0))},
            )
            for run in decided.runs
        ]

    return train


def scaling_case(exponent: float, within: float, **changed: Any) -> Case:
    """A case of an exponent along a sweep of the gain."""
    claim = gradient_norm().scales_with("gain", exponent=exponent, within=within)
    return case_of(claim, sweep={"gain": POINTS}, **changed)


def slope_lab(source: Generator, exponent: float, of_seed: float, of_point: float = 0.05) -> Train:
    """Power laws whose level and exponent differ from seed to seed, with noise at each point."""

    def train(decided: Plan) -> Sequence[Trace]:
        level = {seed: source.normal() for seed in decided.seeds}
        own = {seed: exponent + of_seed * source.normal() for seed in decided.seeds}
        found = []
        for run in decided.runs:
            point = math.log(float(run.arm.partition("=")[2]))
            noise = of_point * source.normal()
            norm = math.exp(level[run.seed] + own[run.seed] * point + noise)
            found.append(quick(run, "converged", {"gradient_norm": norm}))
        return found

    return train


# --------------------------------------------------------------------------------------------------------- counting


def calibrated(case: Case, source: Generator, deviation: float = 1.0, *, log: bool = False) -> Spreads:
    """What a calibration of 30 seeds would have kept, drawn anew.

    Args:
        case: Whose claim.
        source: Draws the standard deviation of 30 normal values.
        deviation: Standard deviation of the values of which it was taken.
        log: Whether it is of the logarithm.
    """
    degrees = CALIBRATED - 1
    seen = deviation * math.sqrt(source.chisquare(degrees) / degrees)
    arm = "" if case.claims[0].together() else case.arms()[0]
    return {(arm, case.claims[0].words()): Spread(prior=Prior(deviation=seen, degrees=degrees), log=log)}


@dataclass(frozen=True, slots=True)
class Frequencies:
    """How often each verdict came out, and at what cost."""

    verdicts: Mapping[Verdict, int]
    draws: int
    sizes: Mapping[int, int]
    """How often so many seeds were run, those of a second run included."""
    covered: float
    """Share of the intervals that hold the truth, where that was asked for."""

    @property
    def seeds(self) -> float:
        """Seeds run on average."""
        return sum(size * count for size, count in self.sizes.items()) / self.draws

    def share(self, verdict: Verdict) -> float:
        """Share of the draws."""
        return self.verdicts[verdict] / self.draws

    @property
    def decided(self) -> float:
        """Share of the draws that are not undecided."""
        return 1 - self.share("undecided")


def frequencies(
    case: Case,
    train: Train,
    draws: int,
    *,
    looks: Sequence[int] | None = None,
    spreads: Callable[[], Spreads] | None = None,
    again: bool = False,
    truth: float | None = None,
) -> Frequencies:
    """Settle a case many times.

    Args:
        case: The case, of one claim on one arm, or of one judged over all.
        train: Draws what each run leaves.
        draws: How many sessions.
        looks: Numbers of seeds at which it is judged; by default the case's own.
        spreads: Draws what calibration knows; nothing by default.
        again: Run what does not hold once more, as a session does.
        truth: What the interval should hold.
    """
    ran, covered, arms = 0, 0, len(case.arms())
    ran_by_draw: Counter[int] = Counter()
    found: Counter[Verdict] = Counter({"holds": 0, "violated": 0, "undecided": 0})
    sizes = tuple(case.looks() if looks is None else looks)

    def counted(decided: Plan) -> Sequence[Trace]:
        nonlocal ran
        traces = train(decided)
        ran += len(traces)
        return traces

    with _plans_kept():
        for _ in range(draws):
            ran = 0
            (finding,) = settle(
                case,
                counted,
                looks=sizes,
                seeds=range(sizes[-1]),
                spreads=spreads() if spreads else None,
                again=counted if again else None,
            )
            found[finding.verdict] += 1
            ran_by_draw[ran // arms] += 1
            covered += truth is not None and _holds(finding, truth)
    return Frequencies(verdicts=found, draws=draws, sizes=ran_by_draw, covered=covered / draws)


def _holds(finding: Finding, truth: float) -> bool:
    """Whether an interval holds a number, up to rounding."""
    if finding.interval is None:
        return False
    slack = 1e-9 * max(1.0, abs(truth))
    return finding.interval[0] <= truth + slack and truth - slack <= finding.interval[1]


@contextlib.contextmanager
def _plans_kept() -> Iterator[None]:
    """Make each plan once: it depends on nothing but the case and the seeds, and takes most of the time."""
    known: dict[tuple[int, tuple[int, ...], bool], Plan] = {}

    def kept(case: Case, *, seeds: tuple[int, ...] | None = None, control: bool = False) -> Plan:
        key = (id(case), seeds or (), control)
        if key not in known:
            known[key] = plan(case, seeds=seeds, control=control)
        return known[key]

    with mock.patch.object(settling, "plan", kept):
        yield


def binomial_error(probability: float, draws: int, deviations: float = 4.0) -> float:
    """So many standard deviations of a simulated frequency."""
    return deviations * math.sqrt(probability * (1 - probability) / draws)
