"""Records built by hand, for the tests of everything that words or publishes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from stabilitysuite.claims.claim import Claim
from stabilitysuite.claims.finding import Finding, Verdict
from stabilitysuite.claims.outcome import converges
from stabilitysuite.record import Record, Status
from stabilitysuite.trace import Outcome, OutcomeName, Reference, Series, Trace

__all__ = ["REFERENCE", "finding", "outcome_finding", "record", "scalar", "series", "trace"]

REFERENCE = Reference(plateau=3.3, floor=1.3)
"""Two nats from plateau to floor: a loss of 2.3 is progress 0.5."""


def series(name: str, columns: Mapping[str, Sequence[float]], steps: Sequence[int] | None = None) -> Series:
    """A series from its columns by label; steps 0, 10, 20 ... where none are given."""
    rows = tuple(zip(*columns.values(), strict=True))
    taken = tuple(steps) if steps is not None else tuple(range(0, 10 * len(rows), 10))
    return Series(quantity=name, steps=taken, labels=tuple(columns), values=rows)


def scalar(name: str, values: Sequence[float], steps: Sequence[int] | None = None) -> Series:
    """A series of one value a step."""
    return series(name, {"": values}, steps)


def trace(
    name: OutcomeName = "converged",
    *,
    step: int = 50,
    seed: int = 1,
    arm: str = "",
    measured: Sequence[Series] = (),
    reference: Reference | None = REFERENCE,
    layer: str | None = None,
    tensor: str | None = None,
) -> Trace:
    """A trace that ended so at that step."""
    return Trace(
        arm=arm,
        seed=seed,
        outcomes=(Outcome(name=name, step=step, layer=layer, tensor=tensor),),
        series={one.quantity: one for one in measured},
        reference=reference,
    )


def finding(
    verdict: Verdict = "holds",
    *,
    claim: str = "branch_ratio of the first sublayer in [0.045, 0.065]",
    number: str = "branch_ratio of the first sublayer = 0.0563 (99 % interval 0.0551 to 0.0575)",
    arm: str = "",
    value: float | None = 0.0563,
    interval: tuple[float, float] | None = (0.0551, 0.0575),
    threshold: str = "in [0.045, 0.065]",
    margin: float | None = 1.13,
    margin_unit: Literal["factor", "difference"] = "factor",
    seeds: tuple[int, ...] = (1, 2, 3),
    values: tuple[float, ...] = (0.0562, 0.0557, 0.057),
    reason: str = "",
    remedy: Literal["", "more seeds", "more steps"] = "",
    published: float | None = None,
) -> Finding:
    """A finding of the bound family."""
    return Finding(
        arm=arm,
        claim=claim,
        verdict=verdict,
        number=number,
        value=value,
        interval=interval,
        threshold=threshold,
        margin=margin,
        margin_unit=margin_unit,
        seeds=seeds,
        values=values,
        reason=reason,
        remedy=remedy,
        published=published,
    )


def outcome_finding(verdict: Verdict, traces: Sequence[Trace], *, claim: Claim | None = None, arm: str = "") -> Finding:
    """A finding of the outcome family, judged by the claim itself, which must give this verdict."""
    own = [one for one in traces if one.arm == arm]
    judged = (claim or converges()).judge(arm, own, [], 50)
    assert judged.verdict == verdict, judged
    return judged


def record(
    *findings: Finding,
    id: str = "warmup/post_ln_warm",
    says: str = "Post-LN with warmup converges",
    source: str = "kexue.fm/archives/8747",
    claims: Sequence[Claim] = (),
    traces: Sequence[Trace] = (),
    status: Status = "judged",
    message: str = "",
    control: bool = False,
    seconds: float = 8.14,
    file: str = "cases/warmup.py",
    line: int = 12,
    **case: Any,
) -> Record:
    """A record of a case with these findings."""
    return Record(
        id=id,
        case={"says": says, "source": source, "expect": [claim.to_json() for claim in claims], **case},
        digest="0123456789ab",
        sources={},
        control=control,
        status=status,
        findings=findings,
        traces=tuple(traces),
        message=message,
        environment={"torch": "2.13.0"},
        started="2026-01-02T03:04:05+00:00",
        seconds=seconds,
        cpu_seconds=seconds,
        file=file,
        line=line,
    )
