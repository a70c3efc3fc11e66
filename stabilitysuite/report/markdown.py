"""GitHub's views of a session: the step summary, and annotations at the lines of the cases. Text only, pure.

Whatever comes from a case or a record is escaped here: it may come from a pull request of a stranger.
"""

# No "from __future__ import annotations" here: it would take the name of the function below.

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stabilitysuite.record import Record
from stabilitysuite.report.cause import cause
from stabilitysuite.report.explain import explanation, reproduction
from stabilitysuite.report.row import Row, Word, one_line, rank, tally

__all__ = ["ANNOTATIONS", "CAP", "Annotation", "annotations", "escaped", "fenced", "in_tag", "summary"]

CAP = 900_000
"""Bytes of a summary: GitHub drops one of more than 1 MiB a step as a whole."""
ANNOTATIONS = 10
"""Annotations of a level that GitHub shows a step."""
MESSAGE = 4_000
"""Characters of an annotation's message; GitHub cuts at 4,096."""
EXPLANATION = 20_000
"""Characters of one explanation in the summary."""
CELL = 300
"""Characters of a name or number in a line of the summary."""
NOTE = 200
"""Bytes kept for the sentence that says what was left out."""
SIGNS: dict[Word, str] = {
    "violated": "❌",
    "not caught": "❌",
    "error": "💥",
    "undecided": "⚠️",
    "uncalibrated": "⚠️",
    "skipped": "⏭️",
    "holds": "✅",
    "caught": "✅",
}
GOOD: tuple[Word, ...] = ("holds", "caught", "skipped")
"""What needs no explanation and no annotation."""
TABLE = "| verdict | case | deciding number | margin | seeds | seconds |\n|---|---|---|--:|--:|--:|\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One remark at a line of a file, unescaped: whoever sends it escapes it."""

    level: Literal["error", "warning"]
    """``error`` for what gates, ``warning`` for what is undecided or does not gate."""
    file: str
    """File, relative to the root of the repository; empty where it is not known."""
    line: int
    """Line, from 1; 0 where it is not known."""
    title: str
    """A few words."""
    message: str
    """What was found."""


# --------------------------------------------------------------------------------------------------- escaping


def escaped(text: str) -> str:
    """A line of text that markdown shows as it is: no cell, tag, link, mention or code begins in it."""
    line = html.escape(_clipped(text), quote=False).replace("|", "&#124;")
    line = re.sub(r"([\\`*\[\]~$!]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))", r"\\\1", line)
    return _unlinked(line)


def in_tag(text: str) -> str:
    """A line of text within an HTML tag, where markdown's own signs mean nothing."""
    return _unlinked(html.escape(_clipped(text)))


def fenced(text: str) -> str:
    """Text as a block of code, with a fence longer than any run of backticks in it."""
    lines = text.splitlines()
    kept = "\n".join("".join(sign if sign.isprintable() else " " for sign in line) for line in lines)
    longest = max((len(run) for run in re.findall(r"`+", kept)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{kept}\n{fence}\n"


def _clipped(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= CELL else line[: CELL - 1] + "…"


def _unlinked(line: str) -> str:
    """A space of no width stops mentions, issue numbers and addresses, which no escape does."""
    return re.sub(r"(@|(?<!&)#(?=\d)|:(?=//)|\bwww(?=\.))", "\\1\u200b", line)


# ---------------------------------------------------------------------------------------------------- summary


def summary(records: Sequence[Record], *, unfinished: Sequence[str] = (), cap: int = CAP) -> str:
    """The step summary: what was found in one sentence, a table, and an explanation of what does not hold.

    What does not hold comes first, and keeps its place where the bytes do not suffice for all.

    Args:
        records: The records of a session.
        unfinished: Ids of the cases that were started and never ended.
        cap: Largest number of bytes.
    """
    if not records and not unfinished:
        return "### Stability: no records\n"
    pairs = sorted(((Row.of(record), record) for record in records), key=lambda pair: rank(pair[0]))
    failing = [pair for pair in pairs if pair[0].word not in GOOD]
    head = _head([row for row, _ in pairs], unfinished)
    budget = _Budget(cap - _size(head) - _size(TABLE) - NOTE)
    lines = budget.fill([_line(row) for row, _ in failing])
    details = budget.fill([_details(row, record) for row, record in failing])
    lines += budget.fill([_line(row) for row, _ in pairs if row.word in GOOD])
    table = TABLE + "".join(lines) + "\n" if lines else ""
    left_out = _left_out(len(pairs) - len(lines), len(failing) - len(details))
    return "".join([head, table, *details, left_out])


class _Budget:
    """Bytes that are left."""

    def __init__(self, left: int) -> None:
        self.left = left

    def fill(self, texts: Sequence[str]) -> list[str]:
        """The texts up to the first that does not fit."""
        kept = []
        for text in texts:
            if _size(text) > self.left:
                break
            self.left -= _size(text)
            kept.append(text)
        return kept


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))


def _head(rows: Sequence[Row], unfinished: Sequence[str]) -> str:
    sign = SIGNS[rows[0].word] if rows else "💥"
    sign = "💥" if unfinished and sign not in ("❌", "💥") else sign
    text = f"### {sign} Stability: {tally(rows) if rows else 'no records'}\n\n"
    if unfinished:
        some = ", ".join(escaped(name) for name in unfinished[:10])
        more = f" and {len(unfinished) - 10} more" if len(unfinished) > 10 else ""
        count = f"{len(unfinished)} case{'s' if len(unfinished) > 1 else ''}"
        text += f"**{count} never came to an end** (killed, out of memory, or out of time): {some}{more}\n\n"
    return text


def _line(row: Row) -> str:
    number = escaped(row.number or row.message)
    margin, seeds = escaped(row.margin), row.seeds or ""
    word = f"{SIGNS[row.word]} {row.word}"
    return f"| {word} | {escaped(row.id)} | {number} | {margin} | {seeds} | {row.seconds:.1f} |\n"


def _details(row: Row, record: Record) -> str:
    text = explanation(record, reproduce=reproduction(record))
    if len(text) > EXPLANATION:
        text = f"{text[:EXPLANATION]}\n... cut after {EXPLANATION} characters"
    title = f"{SIGNS[row.word]} {row.word}: {in_tag(row.id)}"
    return f"<details><summary>{title}</summary>\n\n{fenced(text)}\n</details>\n\n"


def _left_out(rows: int, details: int) -> str:
    parts = [f"{count} {what}" for count, what in ((rows, "rows"), (details, "explanations")) if count]
    if not parts:
        return ""
    return f"_Left out, because a summary has no more room: {' and '.join(parts)}. The records have them._\n"


# ------------------------------------------------------------------------------------------------ annotations


def annotations(records: Sequence[Record]) -> list[Annotation]:
    """One annotation for each case that does not hold: errors first, then warnings, ten of a level at most.

    Args:
        records: The records of a session.
    """
    pairs = sorted(((Row.of(record), record) for record in records), key=lambda pair: rank(pair[0]))
    found = [_annotation(row, record) for row, record in pairs if row.word not in GOOD]
    kept: list[Annotation] = []
    for level in ("error", "warning"):
        own = [one for one in found if one.level == level]
        kept += own if len(own) <= ANNOTATIONS else [*own[: ANNOTATIONS - 1], _rest(own[ANNOTATIONS - 1 :])]
    return kept


def _annotation(row: Row, record: Record) -> Annotation:
    deciding = record.deciding
    message = row.message
    if deciding is not None:
        message = "\n".join(filter(None, [deciding.sentence(), cause(record, deciding)]))
    return Annotation(
        level="warning" if row.word in ("undecided", "uncalibrated") else "error",
        file=row.file,
        line=row.line,
        title=f"{row.id}: {row.word}",
        message=_cut(message or "nothing could be judged, and no reason was recorded"),
    )


def _rest(own: Sequence[Annotation]) -> Annotation:
    """The tenth of a level stands for all that follow."""
    titles = "\n".join(one.title for one in own)
    return Annotation(level=own[0].level, file="", line=0, title=f"and {len(own)} more", message=_cut(titles))


def _cut(text: str) -> str:
    return text if len(text) <= MESSAGE else text[: MESSAGE - 1] + "…"
