"""How a case is settled: with few seeds where they suffice, with more where they do not, once more where it is red.

The two errors are told apart. What does not hold is run once more on fresh seeds with its whole budget, and is violated
only if it is violated again, so that of a hundred cases that hold any is red in at most about 1 % of sessions. How
often a broken case passes is stated by each finding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from stabilitysuite.case import Case
from stabilitysuite.claims.edge import rung_to_try
from stabilitysuite.claims.finding import Finding, worst
from stabilitysuite.claims.look import Look, Spread
from stabilitysuite.errors import MeasurementError, StabilityError
from stabilitysuite.judge import judge
from stabilitysuite.plan import Plan, gate_seeds, plan, plan_rates
from stabilitysuite.trace import Trace

__all__ = ["SECOND", "confirmed", "settle"]

SECOND = "second"
"""Purpose of the fresh seeds: they are derived like the first ones, so the same red stays red."""

Train = Callable[[Plan], Sequence[Trace]]


def settle(
    case: Case,
    train: Train,
    *,
    looks: Sequence[int],
    seeds: Sequence[int] | None = None,
    control: bool = False,
    spreads: Mapping[tuple[str, str], Spread] | None = None,
    again: Train | None = None,
) -> tuple[Finding, ...]:
    """Judge a case at growing numbers of seeds, until it is decided or there are no more.

    Args:
        case: What is claimed.
        train: Carries out a plan.
        looks: Numbers of seeds at which it is judged, ascending.
        seeds: The seeds themselves, of which the looks take the first ones; by default derived from the digest.
        control: Run the control in place of the case.
        spreads: By arm and claim what calibration knows of the spread over the seeds.
        again: Carries out the plans on fresh seeds, where what does not hold is run once more.

    Returns:
        One finding a claim and arm.

    Raises:
        MeasurementError: A run crashed or ran out of time or memory: there is nothing to judge.
    """
    look = Look(sizes=tuple(looks), spreads=spreads or {})
    chosen = gate_seeds(case, looks[-1]) if seeds is None else tuple(seeds)
    first = _stage(case, train, look, chosen, control)
    exact = {claim.words() for claim in case.claims if claim.exact()}
    if again is None or all(one.verdict == "holds" or one.claim in exact for one in first):
        return first
    fresh = gate_seeds(case, looks[-1], purpose=SECOND)
    try:
        second = _stage(case, again, look, fresh, control)
    except Exception as error:
        before = worst(first)
        kind = "" if isinstance(error, StabilityError) else f"{type(error).__name__}: "
        raise MeasurementError(
            f"{kind}{error}; this was the second run, on fresh seeds: the first was {before.verdict}, {before.number}"
        ) from error
    pairs = zip(first, second, strict=True)
    return tuple(one if one.claim in exact else confirmed(one, other) for one, other in pairs)


def _stage(case: Case, train: Train, look: Look, seeds: Sequence[int], control: bool) -> tuple[Finding, ...]:
    if any(claim.explores() for claim in case.claims):
        return _explored(case, train, look, tuple(seeds), control)
    traces: list[Trace] = []
    findings: tuple[Finding, ...] = ()
    for before, size in zip((0, *look.sizes), look.sizes, strict=False):
        traces += train(plan(case, seeds=tuple(seeds[before:size]), control=control))
        findings = judge(case, traces, look)
        if not _more_seeds_decide(findings):
            break
    return findings


def _explored(case: Case, train: Train, look: Look, seeds: tuple[int, ...], control: bool) -> tuple[Finding, ...]:
    """Try learning rates until the edge of each arm lies between two neighbours."""
    seen: dict[str, list[Trace]] = {arm: [] for arm in case.arms()}
    while todo := [(arm, rung) for arm, own in seen.items() if (rung := rung_to_try(own)) is not None]:
        found = train(plan_rates(case, todo, seeds=seeds, control=control))
        for index, (arm, _) in enumerate(todo):
            seen[arm] += found[index * len(seeds) : (index + 1) * len(seeds)]
    return judge(case, [trace for own in seen.values() for trace in own], look)


def _more_seeds_decide(findings: Sequence[Finding]) -> bool:
    """Whether more seeds could change what is said of the case: not where a claim is violated already."""
    if any(one.verdict == "violated" for one in findings):
        return False
    return any(one.verdict == "undecided" and one.remedy == "more seeds" for one in findings)


def confirmed(first: Finding, second: Finding) -> Finding:
    """What two independent runs say together of one claim.

    It holds where the first run says so, or where the second does; it is violated only where both say so; else it
    is undecided. The numbers are those of the run that decided. A broken case has two chances to pass, and what holds
    in the second run only says so.
    """
    if first.verdict == "holds":
        return first
    number = (first.number.partition(" = ")[2] or first.number).partition(" (99 %")[0]
    before = f"the {len(first.seeds)} seeds before gave {number}"
    if second.verdict == first.verdict:
        return dataclasses.replace(
            second,
            reason=f"{second.reason}; this is a second run, on fresh seeds, and {before}",
            before=first.verdict,
        )
    verdict = second.verdict if second.verdict == "holds" else "undecided"
    reason = f"{second.reason}; this is a second run, on fresh seeds: {before}, {first.verdict}"
    if verdict == "undecided":
        reason += "; it is violated only where both runs say so"
    false_holds = second.false_holds
    if verdict == "holds" and false_holds is not None:
        false_holds = 1 - (1 - false_holds) ** 2
        reason += f", so that such a change passes one of the two runs with probability {false_holds:.3g}"
    return dataclasses.replace(
        second,
        verdict=verdict,
        reason=reason,
        remedy="" if verdict == "holds" else "more seeds",
        decided_by=(),
        before=first.verdict,
        false_holds=false_holds,
    )
