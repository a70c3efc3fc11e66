"""From Traces to Findings: every claim of a case, judged on every arm."""

from __future__ import annotations

from collections.abc import Sequence

from stabilitysuite.case import Case
from stabilitysuite.claims.finding import Finding
from stabilitysuite.claims.scaling import points_of
from stabilitysuite.errors import MeasurementError
from stabilitysuite.plan import TWIN
from stabilitysuite.trace import TROUBLE, Trace

__all__ = ["judge"]


def judge(case: Case, traces: Sequence[Trace]) -> tuple[Finding, ...]:
    """Judge all claims of a case, arm by arm.

    Args:
        case: What is claimed.
        traces: What the runs of its plan left.

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
    findings: list[Finding] = []
    for arm in case.arms():
        own = [trace for trace in traces if trace.arm == arm]
        twins = [trace for trace in traces if trace.arm == arm + TWIN]
        if not own:
            raise MeasurementError(f"no trace{_of(arm)}: there is nothing to judge")
        if not twins and any(claim.needs_twin() for claim in case.claims):
            raise MeasurementError(f"no trace of the twin{_of(arm)}: a stall cannot be told from slowness")
        alone = [claim for claim in case.claims if not claim.along()]
        findings += [claim.judge(arm, own, twins, case.arm(arm).steps) for claim in alone]
    by_arm = [[trace for trace in traces if trace.arm == arm] for arm in case.arms()]
    for claim in case.claims:
        if field := claim.along():
            findings.append(claim.judge_along(points_of(case.sweep or {}, field), by_arm))
    return tuple(findings)


def _of(arm: str) -> str:
    return f" of arm {arm!r}" if arm else ""
