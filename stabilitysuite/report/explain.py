"""The text of a case that fails or is undecided: what was claimed, what was measured, how to run it again."""

from __future__ import annotations

import math
import shlex
import statistics
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from stabilitysuite.claims.finding import Finding, short
from stabilitysuite.plan import TWIN
from stabilitysuite.record import Record
from stabilitysuite.report.cause import cause
from stabilitysuite.report.row import one_line
from stabilitysuite.trace import Outcome, Trace

__all__ = ["explanation", "reproduction"]

WIDTH = 98
LABEL = 10
"""Columns of the words at the left."""
MOST_FINDINGS = 4
MOST_SEEDS = 5
"""More seeds than these are counted in place of a line each."""
MOST_ARMS = 12
"""More arms than these are counted."""
MOST_VALUES = 20
"""More values than these are summed up."""


def reproduction(record: Record) -> str:
    """The command that runs a record's case again; its seeds come from the case itself."""
    name = record.id.partition("/")[2] or record.id
    words = [f"{record.file}::{name}"] if record.file else ["-k", name]
    words += ["--stability-controls"] if record.control else []
    tier = str(record.case.get("tier", "quick"))
    words += [] if tier == "quick" else ["--stability-tier", tier]
    return shlex.join(["pytest", "--stability", *map(one_line, words)])


def explanation(record: Record, *, reproduce: str) -> str:
    """What a person needs to know of a case that does not hold.

    Args:
        record: The case's record.
        reproduce: The command that runs the case again.

    Returns:
        Text whose first line is the sentence of the deciding finding (claim, number, threshold and seeds), or
        the error's own where nothing was judged; the others are indented and at most 98 columns wide.
    """
    deciding = record.deciding
    first, *more = record.message.strip().splitlines() or ["no message"]
    blocks = [
        [deciding.sentence() if deciding else first, ""],
        _claimed(record),
        _indented(more) if deciding is None else _found(record, deciding),
        _seeds(record, deciding) if deciding else [],
        _labelled("admission", [record.admission]) if deciding else [],
        _caused(record, deciding) if deciding else [],
        [f"  reproduce: {reproduce}"] if reproduce else [],
    ]
    return "\n".join(line.rstrip() for block in blocks for line in block)


def _claimed(record: Record) -> list[str]:
    """What the case says, where that comes from, and what its control changes."""
    says = one_line(str(record.case.get("says", "")))
    source = one_line(str(record.case.get("source", "")))
    lines = _labelled("case", [f"{one_line(record.id)}: {says}" if says else one_line(record.id)])
    if source:
        lines += _labelled("source", [source])
    if record.control:
        lines += _labelled("control", [f"{_changes(record)}: with this change the case must be violated"])
    return lines


def _changes(record: Record) -> str:
    """The control as it was declared, such as ``warmup=0``."""
    declared = record.case.get("control")
    if not isinstance(declared, dict) or not declared:
        return "run in place of the case"
    return ", ".join(f"{name}={_plain(value)}" for name, value in declared.items())


def _plain(value: object) -> str:
    if isinstance(value, dict) and "kind" in value:
        fields = ", ".join(f"{name}={_plain(item)}" for name, item in value.items() if name != "kind")
        return f"{value['kind']}({fields})"
    return one_line(repr(value))


# --------------------------------------------------------------------------------------------------- findings


def _found(record: Record, deciding: Finding) -> list[str]:
    """Why the case is decided as it is, and a line for each other finding that does not hold."""
    lines = _labelled("because", [deciding.reason + _remedy(deciding)]) if deciding.reason else []
    lines += _labelled("margin", [", ".join(_margin(deciding))])
    others = [finding for finding in record.findings if finding is not deciding]
    wrong = [finding for finding in others if finding.verdict != "holds"]
    wrong.sort(key=lambda finding: finding.verdict != "violated")
    for finding in wrong[:MOST_FINDINGS]:
        lines += _labelled(finding.verdict, [_finding(finding)])
    rest = [f"{len(wrong) - MOST_FINDINGS} more do not hold"] if len(wrong) > MOST_FINDINGS else []
    held = len(others) - len(wrong)
    rest += [f"{held} other finding{'s hold' if held > 1 else ' holds'}"] if held else []
    return lines + (_labelled("", ["; ".join(rest)]) if rest else [])


def _remedy(finding: Finding) -> str:
    return f"; {finding.remedy} would decide it" if finding.remedy else ""


def _margin(finding: Finding) -> list[str]:
    """How far from the threshold, and the source's figure beside what is true."""
    parts = [finding.margin_words() if finding.margin is not None else "none, there is no number to take it from"]
    if finding.interval is not None and "interval" not in finding.number:
        parts.append(f"interval {short(finding.interval[0])} to {short(finding.interval[1])}")
    if finding.resolution:
        words = f"x{short(finding.resolution)}" if finding.margin_unit == "factor" else short(finding.resolution)
        parts.append(f"a change by {words} could have been seen")
    if finding.published is not None:
        parts.append(f"published {short(finding.published)}: {_published(finding, finding.published)}")
    return parts


def _finding(finding: Finding) -> str:
    """One finding in a line: claim, number, threshold and margin."""
    where = f"[{finding.arm}] " if finding.arm else ""
    number = finding.number
    if " = " in number and finding.claim.startswith(number.partition(" = ")[0]):
        number = number.partition(" = ")[2]  # the claim has named the quantity already
    wanted = [] if finding.threshold in finding.claim else [f"wanted {finding.threshold}"]
    margin, *more = _margin(finding)
    return ", ".join([f"{where}{finding.claim}: {number}", *wanted, f"margin {margin}", *more])


def _published(finding: Finding, published: float) -> str:
    """Whether the source's figure lies in the interval; within a tenth of the number where there is none."""
    if finding.value is None or not math.isfinite(finding.value):
        return "no number to compare it with"
    if finding.interval is not None:
        return "agrees" if finding.interval[0] <= published <= finding.interval[1] else "differs"
    return "agrees" if math.isclose(published, finding.value, rel_tol=0.1) else "differs"


def _caused(record: Record, deciding: Finding) -> list[str]:
    """The nearest cause of the deciding finding, else of another one that does not hold."""
    found = (cause(record, finding) for finding in (deciding, *record.findings))
    head, *more = next((text for text in found if text), "").splitlines() or [""]
    return _wrapped("  ", head) + _labelled("", more)


# ------------------------------------------------------------------------------------------------------ seeds


def _seeds(record: Record, deciding: Finding) -> list[str]:
    """How each seed of the deciding finding ended and its number; counted where there are many."""
    ends = {trace.seed: trace.outcome for trace in record.traces if trace.arm == deciding.arm}
    if not ends and any(trace.seed in deciding.seeds for trace in record.traces):
        return _arms(record, deciding)
    rows = [
        (str(seed), _end(ends.get(seed)), short(value)) for seed, value in zip_longest(deciding.seeds, deciding.values)
    ]
    if len(rows) > MOST_SEEDS:
        counted = Counter(end for _, end, _ in rows)
        ended = ", ".join(f"{count} {end}" for end, count in counted.most_common())
        finite = sorted(value for value in deciding.values if math.isfinite(value))
        values = " ".join(value for _, _, value in rows)
        if len(rows) > MOST_VALUES and finite:
            median = short(statistics.median(finite))
            values = f"{short(finite[0])} to {short(finite[-1])}, median {median}, {len(finite)} of them finite"
        return _labelled("seeds", [f"{len(rows)}: {ended}"]) + _labelled("values", [values])
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    unit = next((word for word in ("progress ", "loss ") if word in deciding.number), "")
    lines = [f"{seed:<{widths[0]}}  {end:<{widths[1]}}  {unit}{value}" for seed, end, value in rows]
    return _labelled("seeds", lines) + _twins(record, deciding)


def _arms(record: Record, deciding: Finding) -> list[str]:
    """How the runs of each arm ended, where a finding is about several."""
    seeds = set(deciding.seeds)
    arms = dict.fromkeys(trace.arm for trace in record.traces)
    lines = []
    for arm in arms:
        counted = _counted([trace for trace in record.traces if trace.arm == arm and trace.seed in seeds])
        lines += [f"{arm}: {', '.join(counted)}"] if counted else []
    rest = [f"and {len(lines) - MOST_ARMS} more"] if len(lines) > MOST_ARMS else []
    values = [" ".join(map(short, deciding.values))] if deciding.values else []
    return _labelled("runs", [*lines[:MOST_ARMS], *rest]) + _labelled("values", values)


def _twins(record: Record, deciding: Finding) -> list[str]:
    twins = [trace for trace in record.traces if trace.arm == deciding.arm + TWIN]
    return _labelled("twin", [", ".join(_counted(twins))]) if twins else []


def _counted(traces: Sequence[Trace]) -> list[str]:
    counted = Counter(_end(trace.outcome) for trace in traces)
    return [f"{count} {end}" for end, count in counted.most_common()]


def _end(outcome: Outcome | None) -> str:
    if outcome is None:
        return "no trace"
    if outcome.name == "initialised":
        return "at initialisation"
    where = f" in {outcome.layer}" if outcome.layer else ""
    what = f" ({outcome.tensor})" if outcome.tensor else ""
    return f"{outcome.name} at step {outcome.step}{where}{what}"


# ----------------------------------------------------------------------------------------------------- layout


def _labelled(label: str, texts: Iterable[str]) -> list[str]:
    """Texts beside a label, wrapped and aligned; an empty text is nothing."""
    lines: list[str] = []
    for text in filter(None, texts):
        lines += _wrapped(f"  {label if not lines else '':<{LABEL}}", text)
    return lines


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=head,
        subsequent_indent=" " * (LABEL + 2),
        break_on_hyphens=False,
        break_long_words=False,
    )


def _indented(lines: Sequence[str], most: int = 15) -> list[str]:
    """Further lines of an error; of a long one the last, where Python says what happened."""
    kept = list(lines) if len(lines) <= most else ["...", *lines[-most:]]
    return [f"  {line}" for line in kept]
