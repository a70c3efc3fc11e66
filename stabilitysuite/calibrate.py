"""How a calibration record is made: which runs it takes, in rounds that end at the first seed on the wrong side."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from stabilitysuite.calibration import RATE_SEEDS, Calibration, Direction, RateCheck, Tally, rounded
from stabilitysuite.case import Case
from stabilitysuite.claims.finding import Finding, short
from stabilitysuite.claims.outcome import Ends
from stabilitysuite.judge import judge
from stabilitysuite.plan import TWIN, Plan, at_rate, gate_seeds, plan
from stabilitysuite.sight import claim_of, ends_of, half_of
from stabilitysuite.spec import Spec
from stabilitysuite.trace import Trace

__all__ = ["FACTOR", "Round", "calibrate", "rounds", "seeds_of"]

SEEDS = 30
DEEP, DEEP_SEEDS = 100, 12
"""From so many layers on so many seeds: there 30 cost too much, and the bound says what fewer show."""
FACTOR = 1.4
LEAST_FOR_SPREAD = 20
"""Seeds from which on a standard deviation is worth keeping."""
IN_ONE_ROUND = 6
"""Seeds that run before the wrong ones are counted: few, so that a case near an edge ends soon."""


# ------------------------------------------------------------------------------------------- what is to be run


class Round(NamedTuple):
    """Runs after which the seeds on the wrong side are counted."""

    plan: Plan
    changed: bool
    """Whether it is at the changed learning rate."""


def seeds_of(case: Case) -> int:
    """How many seeds calibrate a case by default: 30, and 12 where a model has 100 layers or more."""
    models = [case.arm(arm).model for arm in case.arms()]
    deep = any(isinstance(model, Spec) and model.layers >= DEEP for model in models)
    return DEEP_SEEDS if deep else SEEDS


def rounds(case: Case, *, seeds: int, factor: float = FACTOR) -> tuple[Round, ...]:
    """What calibrates a case: the declared training, then eight more seeds at a changed learning rate.

    Args:
        case: The case.
        seeds: Seeds at the declared learning rate.
        factor: Change of the learning rate, above 1: times for what must train, divided for what must fail.
    """
    drawn = gate_seeds(case, seeds + RATE_SEEDS, purpose="calibration")
    found = [Round(plan(case, seeds=part), changed=False) for part in _parts(drawn[:seeds])]
    if _trains(case):
        multiplier = factor if _direction(case) == "times" else 1 / factor
        found += [Round(_at_rate(plan(case, seeds=part), multiplier), changed=True) for part in _parts(drawn[seeds:])]
    return tuple(found)


def _trains(case: Case) -> bool:
    return any(case.arm(arm).steps for arm in case.arms())


def _direction(case: Case) -> Direction:
    return "divided" if any(claim.expects_failure() for claim in case.claims) else "times"


def _parts(seeds: tuple[int, ...]) -> list[tuple[int, ...]]:
    """As few parts as may be, as equal as may be."""
    count = math.ceil(len(seeds) / IN_ONE_ROUND)
    ends = [len(seeds) * index // count for index in range(count + 1)]
    return [seeds[start:end] for start, end in itertools.pairwise(ends)]


def _at_rate(one: Plan, multiplier: float) -> Plan:
    """Every run of it, twins too: both sides of a pair pass at one rate."""
    runs = tuple(dataclasses.replace(run, training=at_rate(run.training, multiplier)) for run in one.runs)
    return dataclasses.replace(one, runs=runs)


# ------------------------------------------------------------------------------------------------- what was seen


class _Seen(NamedTuple):
    """One round, judged."""

    findings: tuple[Finding, ...]
    ends: Counter[tuple[str, str]]
    """How many runs of an arm ended how."""


def calibrate(
    case: Case,
    case_id: str,
    todo: Sequence[Round],
    train: Callable[[Plan], Sequence[Trace]],
    *,
    factor: float = FACTOR,
    environment: Mapping[str, Any],
    started: str,
) -> Calibration:
    """Run the rounds of a case and count; the first round with a seed on the wrong side is the last.

    Args:
        case: The case.
        case_id: Its id.
        todo: What :func:`rounds` made of it.
        train: Carries out a plan.
        factor: Change of the learning rate with which ``todo`` was made.
        environment: Fingerprint of where it runs.
        started: UTC time, ISO 8601.

    Raises:
        MeasurementError: A run crashed or ran out of time or memory: there is nothing to count.
    """
    seen: dict[bool, list[_Seen]] = {False: [], True: []}
    for one in todo:
        traces = train(one.plan)
        ends: Counter[tuple[str, str]] = Counter((trace.arm, trace.outcome.name) for trace in traces)
        seen[one.changed].append(_Seen(judge(case, traces), ends))
        if any(_wrong_seeds(case, finding) for finding in seen[one.changed][-1].findings):
            break
    rate = None
    if _trains(case):
        rate = RateCheck(factor=factor, direction=_direction(case), claims=_tallies(case, seen[True]))
    return Calibration(
        id=case_id,
        digest=case.digest(),
        seeds=sum(len(one.plan.seeds) for one in todo if not one.changed),
        claims=tuple(_decidable(case, tally) for tally in _tallies(case, seen[False])),
        rate=rate,
        environment=environment,
        started=started,
        cpu_seconds=0.0,
    )


def _wrong_seeds(case: Case, finding: Finding) -> int:
    """Seeds that are wrong by themselves: ended on the wrong side, or with a number that is not finite.

    A bound is held by the mean over the case's seeds, so one seed outside of it says nothing yet.
    """
    if isinstance(claim_of(case, finding.claim), Ends):
        return len(finding.wrong)
    return sum(not math.isfinite(value) for value in finding.values)


def _tallies(case: Case, seen: Sequence[_Seen]) -> tuple[Tally, ...]:
    ends: Counter[tuple[str, str]] = sum((one.ends for one in seen), Counter())
    found = zip(*(one.findings for one in seen), strict=True)
    return tuple(_tally(case, findings, ends) for findings in found)


def _tally(case: Case, findings: Sequence[Finding], ends: Mapping[tuple[str, str], int]) -> Tally:
    """The findings of one claim on one arm, a round each."""
    arm, claim = findings[0].arm, findings[0].claim
    arms = {arm} if arm in case.arms() else {*case.arms()}
    values = [value for finding in findings for value in finding.values]
    log = all(finding.margin_unit == "factor" for finding in findings)
    mean, deviation = _moments([math.log(value) for value in values] if log else values)
    declared = claim_of(case, claim)
    wrong = sum(_wrong_seeds(case, finding) for finding in findings)
    low, high = ends_of(declared, log)
    if not wrong and mean is not None and not low <= mean <= high:
        wrong = len(values)
    return Tally(
        arm=arm,
        claim=claim,
        seeds=len(values),
        wrong=wrong,
        values=tuple(map(rounded, values)),
        log=log,
        mean=mean,
        deviation=deviation,
        outcomes=_ends(ends, arms),
        twins=_ends(ends, {name + TWIN for name in arms}) if declared and declared.needs_twin() else {},
    )


def _ends(ends: Mapping[tuple[str, str], int], arms: set[str]) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for (arm, name), count in ends.items():
        counted[name] += count if arm in arms else 0
    return {name: count for name, count in counted.most_common() if count}


def _moments(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean and standard deviation, where every value is finite and the seeds are enough."""
    if not all(map(math.isfinite, values)):
        return None, None
    mean = math.fsum(values) / len(values)
    if len(values) < LEAST_FOR_SPREAD:
        return rounded(mean), None
    return rounded(mean), rounded(math.hypot(*(value - mean for value in values)) / math.sqrt(len(values) - 1))


def _decidable(case: Case, tally: Tally) -> Tally:
    """Note where a number spreads so much over the seeds that as many as the case may take rarely decide it."""
    looks = case.looks()
    if tally.mean is None or tally.deviation is None or looks[-1] < 2:
        return tally
    low, high = ends_of(claim_of(case, tally.claim), tally.log)
    count = looks[-1]
    half = half_of(tally, count, len(looks))
    if low <= tally.mean - half and tally.mean + half <= high:
        return tally
    shown = [short(math.exp(end) if tally.log else end) for end in (tally.mean - half, tally.mean + half)]
    text = (
        f"over its {count} seeds the interval of the mean would be {shown[0]} to {shown[1]}, which reaches across "
        "the bound: give it more seeds, or a bound farther away"
    )
    return dataclasses.replace(tally, undecidable=text)
