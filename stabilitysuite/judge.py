"""From Traces to Findings: every claim of a case, judged on every arm."""

from __future__ import annotations

from collections.abc import Sequence

from stabilitysuite.case import Case
from stabilitysuite.claims.edge import AT_RATE
from stabilitysuite.claims.finding import Finding
from stabilitysuite.claims.look import ONLY, Look
from stabilitysuite.errors import MeasurementError
from stabilitysuite.plan import TWIN
from stabilitysuite.trace import TROUBLE, Trace

__all__ = ["judge"]


def judge(case: Case, traces: Sequence[Trace], look: Look = ONLY) -> tuple[Finding, ...]:
    """Judge all claims of a case, arm by arm.

    Args:
        case: What is claimed.
        traces: What the runs of its plan left.
        look: At how many seeds it is looked, and what calibration knows.

    Returns:
        One finding a claim and arm, in the order in which they are declared.

    Raises:
        MeasurementError: An arm has no trace, or a run crashed: there is nothing to judge.
    """
    for trace in traces:
        if trace.outcome.name in TROUBLE:
            raise MeasurementError(
                f"seed {trace.seed}{_of(trace.arm)} ended as {trace.outcome.name} at step {trace.outcome.step}: "
                f"{trace.outcome.detail}"
            )
    explored = any(claim.explores() for claim in case.claims)
    by_arm = {arm: [one for one in traces if _is_of(one, arm, explored=explored)] for arm in case.arms()}
    findings: list[Finding] = []
    for arm, own in by_arm.items():
        twins = [trace for trace in traces if trace.arm == arm + TWIN]
        if not own:
            raise MeasurementError(f"no trace{_of(arm)}: there is nothing to judge")
        if not twins and any(claim.needs_twin() for claim in case.claims):
            raise MeasurementError(f"no trace of the twin{_of(arm)}: a stall cannot be told from slowness")
        alone = [claim for claim in case.claims if not claim.together()]
        findings += [claim.judge(arm, own, twins, case.arm(arm).steps, look) for claim in alone]
    swept = next(iter((case.sweep or {}).values()), case.arms())
    points = dict(zip(case.arms(), swept, strict=True))
    findings += [claim.judge_together(points, by_arm, look) for claim in case.claims if claim.together()]
    return tuple(findings)


def _is_of(trace: Trace, arm: str, *, explored: bool) -> bool:
    """Whether a run is of that arm; explored rates are arms of an arm."""
    return trace.arm == arm or (explored and trace.arm.rpartition(AT_RATE)[0] == arm)


def _of(arm: str) -> str:
    return f" of arm {arm!r}" if arm else ""
