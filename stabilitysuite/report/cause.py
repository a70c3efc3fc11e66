"""The nearest cause of a finding, read off the series that every run records.

Facts only: each line says what was measured, where and when, and the reader draws the conclusion. A finding
for which nothing stands out has no cause.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from stabilitysuite.claims.bound import Bound
from stabilitysuite.claims.claim import Claim
from stabilitysuite.claims.finding import Finding, short
from stabilitysuite.claims.outcome import DECLARED_SIDE, Ends
from stabilitysuite.errors import DeclarationError
from stabilitysuite.plan import TWIN
from stabilitysuite.quantity import QUANTITIES
from stabilitysuite.record import Record
from stabilitysuite.spec import Spec
from stabilitysuite.trace import Reference, Series, Trace

__all__ = ["cause"]

COLLAPSED_COSINE = 0.99
"""Token cosine above which the tokens of a sequence carry next to nothing of their own."""
VANISHED = 10.0
"""Factor by which a first layer's gradient must have fallen to be worth naming."""
GROWN = 10.0
"""Factor between the first and the last layer of a profile that rises or falls all the way."""
APART = {True: math.log(1.5), False: 0.1}
"""Least distance from its nearest neighbour of a layer that stands out: of ratios a logarithm, else plain."""
STALL = 0.1
"""Progress below which a run is back on, or has never left, the plateau."""


def cause(record: Record, finding: Finding) -> str:
    """What was measured nearest to where a finding that does not hold went wrong.

    Args:
        record: The case's record, with its traces.
        finding: One of its findings.

    Returns:
        One to three lines, the first beginning with ``nearest cause: ``; empty where nothing stands out, or
        where the finding holds.
    """
    own = [trace for trace in record.traces if trace.arm == finding.arm and trace.seed in finding.seeds]
    if finding.verdict == "holds" or not own:
        return ""
    claim = _claim(record, finding)
    broken = [trace for trace in own if trace.outcome.name == "nonfinite"]
    if isinstance(claim, Bound):
        facts = _nonfinite(broken[0]) if broken else _profile(own, claim)
    else:
        facts = _of_outcome(record, finding, claim, own)
    return "nearest cause: " + "\n".join(facts[:3]) if facts else ""


def _claim(record: Record, finding: Finding) -> Claim | None:
    """The claim that a finding judges; ``None`` where this version does not know it."""
    declared = record.case.get("expect") or ()
    for written in declared if isinstance(declared, list | tuple) else (declared,):
        try:
            claim = Spec.from_json(written)
        except (DeclarationError, KeyError, TypeError, ValueError):
            continue
        if isinstance(claim, Claim) and claim.words() == finding.claim:
            return claim
    return None


# --------------------------------------------------------------------------------------------------- outcomes


def _of_outcome(record: Record, finding: Finding, claim: Claim | None, own: Sequence[Trace]) -> list[str]:
    """Facts about the seeds that ended on the wrong side, else about the twin that should have trained."""
    right = DECLARED_SIDE[claim.side] if isinstance(claim, Ends) else ()
    enough = claim.progress if isinstance(claim, Ends) else None
    wrong = [trace for trace in own if _end(trace, enough) not in right]
    told = [trace for trace in wrong if _end(trace, enough) in _EXPLAINED]
    if told:
        trace = min(told, key=lambda one: list(_EXPLAINED).index(_end(one, enough)))
        facts = _EXPLAINED[_end(trace, enough)](trace, enough)
        if facts and trace.outcome.name == "stalled":
            facts += _compared(record, trace)
        return _with_seed(facts, trace, wrong, own)
    twins = [trace for trace in record.traces if trace.arm == finding.arm + TWIN]
    slow = [twin for twin in twins if twin.seed in finding.seeds and twin.outcome.name == "learning"]
    return ["the twin: " + fact for fact in _learning(slow[0], enough)] if slow and not wrong else []


def _end(trace: Trace, enough: float | None) -> str:
    """The outcome's name; one that converged short of the claim's own progress is still learning."""
    name = trace.outcome.name
    if name == "converged" and enough is not None and trace.reference is not None:
        losses = _losses(trace)
        if losses and trace.reference.progress(losses[-1].value) < enough:
            return "learning"
    return name


def _with_seed(facts: list[str], trace: Trace, wrong: Sequence[Trace], own: Sequence[Trace]) -> list[str]:
    """The first fact, with the seed that it was read from where there are several."""
    if not facts or len(own) == 1:
        return facts
    alike = sum(one.outcome.name == trace.outcome.name for one in wrong)
    return [f"in seed {trace.seed} ({alike} of {len(own)} {trace.outcome.name}), {facts[0]}", *facts[1:]]


def _nonfinite(trace: Trace, enough: float | None = None) -> list[str]:
    del enough
    end = trace.outcome
    where = f" in {end.layer}" if end.layer else ""
    what = f" ({end.tensor})" if end.tensor else ""
    fact = f"the first non-finite value is at step {end.step}{where}{what}"
    before = [point for point in _column(trace, "gradient_norm") if point.step < end.step]
    return [fact, *_last_norm(before)]


def _last_norm(before: Sequence[_Point]) -> list[str]:
    """The gradient norm just before, and how far it lies from the usual."""
    if not before:
        return []
    last = before[-1]
    usual = statistics.median(point.value for point in before)
    compared = usual > 0 and len(before) > 2
    times = f", {short(last.value / usual)} times its median until then" if compared else ""
    return [f"gradient_norm just before is {short(last.value)}, at step {last.step}{times}"]


def _stalled(trace: Trace, enough: float | None = None) -> list[str]:
    del enough
    return [*_collapse(trace), *_vanishing(trace)]


def _collapse(trace: Trace) -> list[str]:
    """Since when the tokens of a sequence are all alike after the last layer."""
    cosine = _column(trace, "token_cosine", -1)
    since = _since(cosine, lambda value: value > COLLAPSED_COSINE)
    if since is None:
        return []
    of = f"token_cosine of {trace.series['token_cosine'].labels[-1]} is above {COLLAPSED_COSINE}"
    first, last = cosine[0], cosine[-1]
    if since == first.step:
        return [f"{of} from the start ({_digits(first.value)})"]
    return [
        f"{of} from step {since} on "
        f"({short(first.value)} at step {first.step}, {_digits(last.value)} at step {last.step})"
    ]


def _vanishing(trace: Trace) -> list[str]:
    """By how much the first layer's gradient fell, how soon, and how far in the end."""
    norms = _column(trace, "layer_gradient_norm", 0)
    if not norms or norms[0].value <= 0:
        return []
    start = norms[0].value
    soon = next((point for point in norms if start >= VANISHED * point.value), None)
    if soon is None:
        return []
    least = min(norms, key=lambda point: point.value)
    fallen = [
        f"{short(start / point.value) if point.value > 0 else 'without bound'} by step {point.step}"
        for point in dict.fromkeys((soon, least))
    ]
    layer = trace.series["layer_gradient_norm"].labels[0]
    values = f"{short(start)} to {short(least.value)}"
    return [f"gradient norm of {layer} fell by a factor {', '.join(fallen)} ({values})"]


def _compared(record: Record, trace: Trace) -> list[str]:
    """The same seed where it trained: the twin, else another arm."""
    others = [one for one in record.traces if one.seed == trace.seed and one.arm != trace.arm]
    others.sort(key=lambda one: one.arm != trace.arm + TWIN)
    for other in others:
        cosine = _column(other, "token_cosine", -1)
        if other.outcome.name == "converged" and cosine:
            name = "the twin" if other.arm.endswith(TWIN) else f"arm {other.arm}"
            layer = other.series["token_cosine"].labels[-1]
            last = f"{short(cosine[-1].value)} at step {cosine[-1].step}"
            return [f"{name}, same seed, converged: token_cosine of {layer} is {last}"]
    return []


def _collapsed(trace: Trace, enough: float | None = None) -> list[str]:
    del enough
    reference, losses = trace.reference, _losses(trace)
    if reference is None or not losses:
        return []
    best = min(losses, key=lambda point: point.value)
    later = [point for point in losses if point.step > best.step]
    back = next((point for point in later if reference.progress(point.value) <= STALL), None)
    fact = f"best progress {short(reference.progress(best.value))} at step {best.step}"
    if back is None:
        return [fact]
    norms = _column(trace, "gradient_norm")
    between = [point for point in norms if best.step <= point.step <= back.step]
    before = [point.value for point in norms if point.step < best.step]
    facts = [f"{fact}, back below {STALL} by step {back.step}"]
    if between:
        top = max(between, key=lambda point: point.value)
        usual = statistics.median(before) if len(before) > 1 else 0.0
        times = f", {short(top.value / usual)} times its median before" if usual > 0 else ""
        facts.append(f"gradient_norm reached {short(top.value)} at step {top.step}{times}")
    return facts


def _diverged(trace: Trace, enough: float | None = None) -> list[str]:
    del enough
    losses = _losses(trace)
    facts = []
    since = _since(losses[1:], lambda value: value > losses[0].value) if losses else None
    if since is not None:
        top = max(losses, key=lambda point: point.value)
        facts.append(
            f"the loss is above its start ({short(losses[0].value)}) from step {since} on, "
            f"at most {short(top.value)} at step {top.step}"
        )
    return facts + _largest_std(trace)


def _largest_std(trace: Trace) -> list[str]:
    """Where and when the residual stream was widest, if it grew."""
    series = trace.series.get("residual_std")
    if series is None:
        return []
    found = [
        (value, step, label)
        for step, row in zip(series.steps, series.values, strict=True)
        for label, value in zip(series.labels, row, strict=True)
        if math.isfinite(value)
    ]
    if not found:
        return []
    value, step, label = max(found, key=lambda one: one[0])
    start = _column(trace, "residual_std", series.labels.index(label))[0]
    if step == start.step:
        return []
    began = f"{short(start.value)} at step {start.step}"
    return [f"residual_std is largest in {label} at step {step}: {short(value)} ({began})"]


def _learning(trace: Trace, enough: float | None) -> list[str]:
    """Progress, its slope over the last quarter, and the steps that the rest would take at that rate."""
    reference, losses = trace.reference, _losses(trace)
    if reference is None or len(losses) < 2:
        return []
    wanted = reference.enough if enough is None else enough
    end = losses[-1]
    recent = [point for point in losses if point.step >= 0.75 * end.step]
    recent = recent if len(recent) > 1 else list(losses[-2:])
    progress = reference.progress(end.value)
    slope = _slope(recent, reference)
    fact = f"progress is {short(progress)} at step {end.step}"
    if slope <= 0:
        return [f"{fact} and does not rise over the last {end.step - recent[0].step} steps"]
    fact += f", rising by {short(100 * slope)} per 100 steps over the last {end.step - recent[0].step} steps"
    if progress >= wanted:
        return [fact]
    needed = end.step + math.ceil((wanted - progress) / slope)
    rounded = f"{float(f'{needed:.2g}'):.0f}"
    return [fact, f"at that rate it reaches {short(wanted)} near step {rounded}: more steps"]


def _slope(points: Sequence[_Point], reference: Reference) -> float:
    """Least-squares slope of progress, a step."""
    values = [reference.progress(point.value) for point in points]
    return statistics.linear_regression([point.step for point in points], values).slope


_EXPLAINED: dict[str, Callable[[Trace, float | None], list[str]]] = {
    "nonfinite": _nonfinite,
    "diverged": _diverged,
    "collapsed": _collapsed,
    "stalled": _stalled,
    "learning": _learning,
}


# ------------------------------------------------------------------------------------------ layers of a bound


def _profile(own: Sequence[Trace], claim: Bound) -> list[str]:
    """The layer that stands out from the others, else a profile that rises or falls all the way."""
    name = {"gradient_norm": "layer_gradient_norm"}.get(claim.measure.quantity, claim.measure.quantity)
    series = [trace.series[name] for trace in own if name in trace.series]
    if QUANTITIES[name].axis is None or not series or len(series[0].labels) < 3:
        return []
    labels = series[0].labels
    rows = [row for row in (_row(one, claim.measure.step) for one in series if one.labels == labels) if row]
    if not rows or not all(math.isfinite(value) for row in rows for value in row):
        return []
    values = [statistics.median(column) for column in zip(*rows, strict=True)]
    if claim.measure.where in ("max", "min"):
        first = claim.first_outside(values)
        return [] if first is None else _outside(name, labels, values, first)
    return _standing_out(name, labels, values) or _monotone(name, labels, values)


def _outside(name: str, labels: Sequence[str], values: Sequence[float], first: int) -> list[str]:
    """The first layer outside of the bound: what lies behind it inherits what it does."""
    axis = QUANTITIES[name].axis
    before = sorted(values[:first])
    span = f"; in the {axis}s before it {short(before[0])} to {short(before[-1])}" if before else ""
    return [f"{labels[first]} is the first {axis} outside, with {name} {short(values[first])}{span}"]


def _row(series: Series, step: int | str) -> tuple[float, ...] | None:
    """The row that the claim reads; the last one where it reads no single step."""
    return series.at(step) if isinstance(step, int) else series.values[-1] if series.values else None


def _standing_out(name: str, labels: Sequence[str], values: Sequence[float]) -> list[str]:
    """A layer whose distance from its nearest neighbour exceeds the spread of all the others."""
    ratio = QUANTITIES[name].ratio
    if ratio and min(values) <= 0:
        return []
    scaled = [math.log(value) if ratio else value for value in values]
    middle = statistics.median(scaled)
    index = max(range(len(scaled)), key=lambda one: abs(scaled[one] - middle))
    others = sorted(value for one, value in enumerate(scaled) if one != index)
    distance = max(scaled[index] - others[-1], others[0] - scaled[index])
    if distance < max(APART[ratio], others[-1] - others[0]):
        return []
    rest = sorted(value for one, value in enumerate(values) if one != index)
    span = f"{short(rest[0])} to {short(rest[-1])} (median {short(statistics.median(rest))})"
    return [f"{labels[index]} has {name} {short(values[index])}, the other {QUANTITIES[name].axis}s {span}"]


def _monotone(name: str, labels: Sequence[str], values: Sequence[float]) -> list[str]:
    pairs = list(itertools.pairwise(values))
    if not QUANTITIES[name].ratio or min(values) <= 0 or max(values) < GROWN * min(values):
        return []
    for word, ordered in (("grows", all(a < b for a, b in pairs)), ("falls", all(a > b for a, b in pairs))):
        if ordered:
            return [
                f"{name} {word} with every {QUANTITIES[name].axis}, "
                f"from {short(values[0])} in {labels[0]} to {short(values[-1])} in {labels[-1]}"
            ]
    return []


# ------------------------------------------------------------------------------------------ reading


@dataclass(frozen=True, slots=True)
class _Point:
    """One finite value of a series."""

    step: int
    value: float


def _column(trace: Trace, name: str, index: int = 0) -> list[_Point]:
    """The finite values of one column of a series; empty where it was not recorded."""
    series = trace.series.get(name)
    if series is None or not series.labels:
        return []
    points = (_Point(step=step, value=row[index]) for step, row in zip(series.steps, series.values, strict=True))
    return [point for point in points if math.isfinite(point.value)]


def _losses(trace: Trace) -> list[_Point]:
    """The evaluated loss where it was followed over the run, else the loss trained on."""
    evaluated = _column(trace, "evaluated_loss")
    return evaluated if len(evaluated) > 3 else _column(trace, "training_loss") or evaluated


def _since(points: Iterable[_Point], condition: Callable[[float], bool]) -> int | None:
    """The step from which on a condition holds to the end; ``None`` where it does not hold at the end."""
    since: int | None = None
    for point in points:
        since = (point.step if since is None else since) if condition(point.value) else None
    return since


def _digits(cosine: float) -> str:
    """A cosine near 1 with the digits that tell it from 1."""
    return f"{cosine:.5f}" if cosine > COLLAPSED_COSINE else short(cosine)
