"""The final table of a calibration: one line a case, what was not admitted first."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from stabilitysuite.calibration import Calibration, percent
from stabilitysuite.case import Case
from stabilitysuite.claims.finding import short
from stabilitysuite.report.row import one_line
from stabilitysuite.report.terminal import Line
from stabilitysuite.sight import Sight, sight

__all__ = ["AdmissionRow", "admission_table", "sight_table"]

HEADER = ("calibration", "case", "wrong side", "changed rate", "spread", "seconds")
SIGHT_HEADER = ("case", "claim", "expected", "sees", "false alarms")
CLAIM = 48
"""Columns of a claim's words: a ratio of two numbers has three times as many."""
RARE = 1e-4
"""Probability below which a number says no more than that it is rare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRow:
    """One calibrated case, in words and plain numbers only."""

    id: str
    """``file stem/name``."""
    admitted: bool
    """Whether it may gate."""
    counted: str
    """Seeds on the wrong side, and the bound."""
    rate: str
    """The same at the changed learning rate; ``-`` where nothing is trained."""
    spread: str
    """Standard deviation over the seeds; ``-`` where they are too few."""
    seconds: float
    """CPU seconds."""
    sights: tuple[tuple[str, ...], ...] = ()
    """For each claim and arm: its words, what is expected, the smallest change it sees, its false alarms."""

    @classmethod
    def of(cls, calibration: Calibration, case: Case) -> Self:
        """The row of a record of that case."""
        claims = calibration.claims
        return cls(
            id=one_line(calibration.id),
            admitted=calibration.admitted,
            counted=calibration.worst.counted(),
            rate=calibration.rate.counted() if calibration.rate is not None else "-",
            spread=calibration.worst.spread() or "-",
            seconds=calibration.cpu_seconds,
            sights=tuple(_sight_cells(sight(case, one, claims=len(claims))) for one in claims),
        )

    def to_json(self) -> dict[str, Any]:
        """As builtins."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_json`."""
        return cls(**{**data, "sights": tuple(map(tuple, data["sights"]))})

    def cells(self) -> tuple[str, ...]:
        """What stands in the columns."""
        word = "admitted" if self.admitted else "not admitted"
        return word, self.id, self.counted, self.rate, self.spread, f"{self.seconds:.1f}"


def _sight_cells(seen: Sight) -> tuple[str, ...]:
    claim = one_line(f"[{seen.arm}] {seen.claim}" if seen.arm else seen.claim)
    claim = textwrap.shorten(claim, CLAIM, placeholder=" …")
    expected = "-" if seen.expected is None else f"{short(seen.expected[0])} to {short(seen.expected[1])}"
    sees = "-"
    if seen.sees is not None:
        sees = f"{percent(seen.sees)} of runs" if seen.share else f"{'x' if seen.log else ''}{short(seen.sees)}"
    return claim, expected, sees, "-" if seen.false_alarm is None else _rare(seen.false_alarm)


def _rare(probability: float) -> str:
    return percent(probability) if probability >= RARE else f"under {percent(RARE)}"


def admission_table(rows: Sequence[AdmissionRow]) -> list[Line]:
    """The table and one sentence that counts, with colours.

    Args:
        rows: One a case, in any order; at least one.
    """
    ranked = sorted(rows, key=lambda row: (row.admitted, row.id))
    head, *told = _aligned(HEADER, [row.cells() for row in ranked])
    body = [Line(text, "green" if row.admitted else "red") for text, row in zip(told[1:], ranked, strict=True)]
    admitted = sum(row.admitted for row in rows)
    parts = [f"{admitted} admitted"] + ([f"{len(rows) - admitted} not admitted"] if admitted < len(rows) else [])
    total = f"{len(rows)} case{'s' if len(rows) > 1 else ''}: {', '.join(parts)}"
    last = Line(total, "green" if admitted == len(rows) else "red")
    return [Line(head, ""), Line(told[0], ""), *body, Line("", ""), last]


def sight_table(rows: Sequence[AdmissionRow]) -> list[Line]:
    """What each claim of the admitted cases can see with the seeds that it may take.

    Args:
        rows: One a case, in any order.
    """
    cells = [(row.id, *cells) for row in sorted(rows, key=lambda row: row.id) if row.admitted for cells in row.sights]
    return [Line(text, "") for text in _aligned(SIGHT_HEADER, cells)] if cells else []


def _aligned(header: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """Head, rule and rows; the last column is aligned to the right."""
    widths = [max(len(line[column]) for line in (header, *cells)) for column in range(len(header))]

    def text(line: Sequence[str]) -> str:
        *left, last = line
        padded = [cell.ljust(width) for cell, width in zip(left, widths[:-1], strict=True)]
        return "  ".join([*padded, last.rjust(widths[-1])])

    return [text(header), "  ".join("-" * width for width in widths), *map(text, cells)]
