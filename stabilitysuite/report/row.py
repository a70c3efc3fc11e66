"""One line of the final table: what crosses from a worker to the controller, and what every report counts."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from stabilitysuite.claims.finding import Verdict, again_words
from stabilitysuite.record import Record, Status

__all__ = ["Row", "Word", "one_line", "rank", "tally"]

Word = Literal["violated", "not caught", "error", "undecided", "uncalibrated", "skipped", "holds", "caught"]
"""The one word that a report says of a case or of a control."""

ORDER: tuple[Word, ...] = (
    "violated",
    "not caught",
    "error",
    "undecided",
    "uncalibrated",
    "skipped",
    "holds",
    "caught",
)
"""What a reader has to see first comes first."""


def one_line(text: str) -> str:
    """The text as one printable line: whitespace is folded, and control characters are left out.

    Names and messages come from other people's code; an escape sequence in one must not reach a terminal.
    """
    return " ".join("".join(letter for letter in text if letter.isprintable() or letter.isspace()).split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case in one session, in words and plain numbers only."""

    id: str
    """``file stem/name``."""
    says: str
    """What the case claims, in one sentence."""
    status: Status
    """Whether it was judged."""
    verdict: Verdict | None
    """The verdict that decides it; ``None`` where nothing was judged."""
    control: bool
    """Whether the control was run in place of the case: it is caught where the case is violated."""
    number: str
    """The deciding number in words."""
    threshold: str
    """What it was held against, in words."""
    margin: str
    """Distance from the decision in words: ``x1.8`` for a factor, ``+0.43`` for a difference."""
    seeds: int
    """Number of seeds that the deciding finding rests on."""
    seconds: float
    """Wall-clock seconds."""
    message: str
    """First line of the error of a case that could not be judged."""
    file: str
    """File that declares it, relative to rootdir; empty where it is not known."""
    line: int
    """Line in that file, from 1; 0 where it is not known."""
    reproduce: str
    """Command that runs it again; empty where it is not known."""
    gates: bool = True
    """Whether a violated claim fails the session."""
    again: str = ""
    """What two runs said, where the case was run once more on fresh seeds."""

    @classmethod
    def of(cls, record: Record, *, file: str = "", line: int = 0, reproduce: str = "") -> Row:
        """The row of a record.

        Args:
            record: Everything that is kept of the case.
            file: File that declares it; by default the record's own.
            line: Line in it; by default the record's own.
            reproduce: Command that runs it again.
        """
        deciding = record.deciding
        return cls(
            id=one_line(record.id),
            says=one_line(str(record.case.get("says", ""))),
            status=record.status,
            verdict=record.verdict,
            control=record.control,
            number=one_line(deciding.number) if deciding else "",
            threshold=one_line(deciding.threshold) if deciding else "",
            margin=deciding.margin_words() if deciding else "-",
            seeds=len(deciding.seeds) if deciding else 0,
            seconds=record.seconds,
            message=one_line(next(iter(record.message.strip().splitlines()), "")),
            file=file or record.file,
            line=line or record.line,
            reproduce=reproduce,
            gates=record.gates,
            again=again_words(record.findings),
        )

    @property
    def word(self) -> Word:
        """The one word that a report says of it.

        A control is caught only by a violated finding; a case that was not admitted is not violated, it only shows.
        """
        if self.status == "skipped":
            return "skipped"
        if self.status == "error" or self.verdict is None:
            return "error"
        if self.control:
            return "caught" if self.verdict == "violated" else "not caught"
        return self.verdict if self.gates or self.verdict == "holds" else "uncalibrated"

    def to_json(self) -> dict[str, Any]:
        """As builtins."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_json`."""
        return cls(**data)


def rank(row: Row) -> tuple[int, str]:
    """Sorting key: violated first, then errors, undecided, skipped, and what holds; by id within each."""
    return ORDER.index(row.word), row.id


def tally(rows: Sequence[Row]) -> str:
    """One sentence that counts them, such as ``12 cases: 10 hold, 1 violated, 1 undecided``."""
    parts = []
    for noun, control in (("case", False), ("control", True)):
        words = Counter(row.word for row in rows if row.control is control)
        count = words.total()
        if count:
            counted = [f"{words[word]} {_spoken(word, words[word])}" for word in _SPOKEN_ORDER if words[word]]
            parts.append(f"{count} {noun}{'' if count == 1 else 's'}: {', '.join(counted)}")
    return "; ".join(parts) or "no cases"


_SPOKEN_ORDER: tuple[Word, ...] = (
    "holds",
    "caught",
    "violated",
    "not caught",
    "error",
    "undecided",
    "uncalibrated",
    "skipped",
)


def _spoken(word: Word, count: int) -> str:
    plural = {"holds": "hold", "error": "errors"}
    return word if count == 1 else plural.get(word, word)
