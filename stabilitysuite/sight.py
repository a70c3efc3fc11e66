"""What a calibrated case can see: derived from its calibration record and its declaration, kept nowhere."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stabilitysuite.calibration import Tally
from stabilitysuite.case import Case
from stabilitysuite.claims.bound import Bound
from stabilitysuite.claims.claim import Claim
from stabilitysuite.claims.order import Order
from stabilitysuite.claims.outcome import ADMITTED_RATE, Ends
from stabilitysuite.claims.scaling import Scaling
from stabilitysuite.claims.sensitivity import Sensitivity
from stabilitysuite.stats.interval import half_width, normal_tail, prediction_interval
from stabilitysuite.stats.sequential import confidence_of, crossed, reject_from

__all__ = ["POWER", "Sight", "claim_of", "ends_of", "half_of", "sight"]

POWER = 0.9
"""Probability with which the smallest visible change is seen."""
NORMAL_POWER = 1.2816
"""Quantile of the normal law at that probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What one claim of a case can see with its seeds."""

    arm: str
    claim: str
    expected: tuple[float, float] | None
    """Where the mean of the first look's seeds lies as long as nothing changes, except in 1 % of looks over all the
    claims of the case together; ``None`` where the spread is not known. A tolerance for who wants to learn one."""
    sees: float | None
    """The smallest change that the case calls violated with probability 0.9, all its seeds spent: a factor where the
    claim is on a log scale, a difference, or for an outcome the share of runs that break; ``None`` where not known."""
    share: bool
    """Whether ``sees`` is a share of runs."""
    log: bool
    """Whether ``sees`` is a factor."""
    false_alarm: float | None
    """Probability that a first run calls the unchanged case violated; a second one must agree. Of an outcome at the
    largest share of wrong seeds that calibration leaves possible, at 95 %."""


def sight(case: Case, tally: Tally, *, claims: int) -> Sight:
    """What one claim can see.

    Args:
        case: The case.
        tally: What calibration saw of one of its claims.
        claims: How many claims and arms are watched together.
    """
    declared = claim_of(case, tally.claim)
    looks = case.looks()
    expected, sees, false_alarm = None, None, None
    share = isinstance(declared, Ends)
    if tally.mean is not None and tally.deviation is not None:
        ends = prediction_interval(tally.mean, tally.deviation, tally.seeds, future=looks[0], summaries=claims)
        expected = (math.exp(ends[0]), math.exp(ends[1])) if tally.log else ends
    if share:
        bounds = reject_from(looks, ADMITTED_RATE)
        false_alarm = crossed(looks, bounds, tally.at_most)
        sees = _smallest_share(looks, bounds)
    elif tally.mean is not None and tally.deviation is not None:
        gap = _gap(tally.mean, *ends_of(declared, tally.log))
        halves = [half_of(tally, count, len(looks)) for count in looks]
        beyond = [
            normal_tail((gap + half) * math.sqrt(count) / tally.deviation) if tally.deviation else 0.0
            for half, count in zip(halves, looks, strict=True)
        ]
        false_alarm = min(1.0, math.fsum(beyond))
        if math.isfinite(gap):
            shift = gap + halves[-1] + NORMAL_POWER * tally.deviation / math.sqrt(looks[-1])
            sees = math.exp(shift) if tally.log else shift
    return Sight(
        arm=tally.arm,
        claim=tally.claim,
        expected=expected,
        sees=sees,
        share=share,
        log=tally.log and not share,
        false_alarm=false_alarm,
    )


def ends_of(claim: Claim | None, log: bool) -> tuple[float, float]:
    """Where the mean over the seeds must lie, on the scale on which it is judged; everywhere for an outcome."""
    if isinstance(claim, Scaling):
        return claim.exponent - claim.within, claim.exponent + claim.within
    if isinstance(claim, Order):
        return claim.least(), math.inf
    if isinstance(claim, Sensitivity):
        return -math.inf, claim.high
    if isinstance(claim, Bound):
        return claim.bounds(log)
    return -math.inf, math.inf


def _gap(mean: float, low: float, high: float) -> float:
    """From the mean to the nearest end."""
    return min(mean - low, high - mean)


def claim_of(case: Case, words: str) -> Claim | None:
    """The claim of a case that is spelled so."""
    return next((one for one in case.claims if one.words() == words), None)


def half_of(tally: Tally, count: int, looks: int) -> float:
    """Half the interval of a mean over so many seeds, with the calibrated spread, at one of so many looks."""
    assert tally.deviation is not None
    degrees = tally.seeds - 1 + count - 1
    return half_width(tally.deviation, count, confidence=confidence_of(looks), degrees=degrees)


def _smallest_share(looks: tuple[int, ...], bounds: tuple[int, ...]) -> float | None:
    """The smallest share of broken runs that is seen with the wanted probability, to a hundredth."""
    return next((share / 100 for share in range(1, 101) if crossed(looks, bounds, share / 100) >= POWER), None)
