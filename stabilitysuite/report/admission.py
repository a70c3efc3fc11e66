"""The final table of a calibration: one line a case, what was not admitted first."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from stabilitysuite.calibration import Calibration
from stabilitysuite.report.row import one_line
from stabilitysuite.report.terminal import Line

__all__ = ["AdmissionRow", "admission_table"]

HEADER = ("calibration", "case", "wrong side", "changed rate", "spread", "seconds")


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

    @classmethod
    def of(cls, calibration: Calibration) -> Self:
        """The row of a record."""
        return cls(
            id=one_line(calibration.id),
            admitted=calibration.admitted,
            counted=calibration.worst.counted(),
            rate=calibration.rate.counted() if calibration.rate is not None else "-",
            spread=calibration.worst.spread() or "-",
            seconds=calibration.cpu_seconds,
        )

    def to_json(self) -> dict[str, Any]:
        """As builtins."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_json`."""
        return cls(**data)

    def cells(self) -> tuple[str, ...]:
        """What stands in the columns."""
        word = "admitted" if self.admitted else "not admitted"
        return word, self.id, self.counted, self.rate, self.spread, f"{self.seconds:.1f}"


def admission_table(rows: Sequence[AdmissionRow]) -> list[Line]:
    """The table and one sentence that counts, with colours.

    Args:
        rows: One a case, in any order; at least one.
    """
    ranked = sorted(rows, key=lambda row: (row.admitted, row.id))
    cells = [HEADER, *(row.cells() for row in ranked)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADER))]

    def text(line: Sequence[str]) -> str:
        *left, last = line
        padded = [cell.ljust(width) for cell, width in zip(left, widths[:-1], strict=True)]
        return "  ".join([*padded, last.rjust(widths[-1])])

    head = [Line(text(HEADER), ""), Line("  ".join("-" * width for width in widths), "")]
    body = [Line(text(row.cells()), "green" if row.admitted else "red") for row in ranked]
    admitted = sum(row.admitted for row in rows)
    parts = [f"{admitted} admitted"] + ([f"{len(rows) - admitted} not admitted"] if admitted < len(rows) else [])
    total = f"{len(rows)} case{'s' if len(rows) > 1 else ''}: {', '.join(parts)}"
    return [*head, *body, Line("", ""), Line(total, "green" if admitted == len(rows) else "red")]
