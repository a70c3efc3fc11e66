"""The final table in the terminal: one line a case, the bad news first, within the width that there is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from stabilitysuite.report.row import Row, rank, tally

__all__ = ["Line", "Style", "run_again", "shortened", "style_of", "styled_table", "table"]

Style = Literal["red", "yellow", "green", ""]

GAP = "  "
ELLIPSIS = "…"
INTERVAL = " (99 % interval"
"""How the words of an interval begin; the table does without them, the explanation has them."""
FIGURE = 24
"""Columns in which a deciding figure and what it is of can be read; a case's name may take the others."""
LEAST = 16
"""Columns below which neither the case nor its number can be read: others give way before."""


class Line(NamedTuple):
    """One line of the table and the colour that it may be given."""

    text: str
    style: Style


def style_of(row: Row) -> Style:
    """The colour of a row: red for what has to be mended, yellow for what is open, green for the rest."""
    if row.word in ("violated", "not caught", "error"):
        return "red"
    return "yellow" if row.word in ("undecided", "uncalibrated", "skipped") else "green"


def table(rows: Sequence[Row], *, width: int = 100) -> list[str]:
    """The final table and one sentence that counts, in plain text.

    Args:
        rows: One a case, in any order.
        width: Columns that a line may take; seeds and seconds give way where it is narrow.
    """
    return [line.text for line in styled_table(rows, width=width)]


def styled_table(rows: Sequence[Row], *, width: int = 100) -> list[Line]:
    """The lines of :func:`table`, each with its colour."""
    if not rows:
        return [Line(tally(rows), "")]
    layout = _layout(rows, width)
    lines = [Line(layout.line(*HEADER), ""), Line(layout.rule(), "")]
    ranked = sorted(rows, key=rank)
    lines += [Line(_row_line(row, layout), style_of(row)) for row in ranked]
    return [*lines, Line("", ""), Line(tally(rows), style_of(ranked[0]))]


HEADER = ("verdict", "case", "deciding number", "margin", "seeds", "seconds")


class _Layout(NamedTuple):
    """Width of each column; 0 for one that is left out."""

    verdict: int
    case: int
    number: int
    margin: int
    seeds: int
    seconds: int

    def line(self, verdict: str, case: str, number: str, margin: str, seeds: str, seconds: str) -> str:
        cells = [
            verdict.ljust(self.verdict),
            _middle_cut(case, self.case).ljust(self.case),
            shortened(number, self.number).ljust(self.number),
            margin.rjust(self.margin),
            seeds.rjust(self.seeds) if self.seeds else "",
            seconds.rjust(self.seconds) if self.seconds else "",
        ]
        return GAP.join(cell for cell in cells if cell).rstrip()

    def rule(self) -> str:
        return GAP.join("-" * width for width in self if width)

    def message_line(self, verdict: str, case: str, message: str, seconds: str) -> str:
        """A row without a number: its message takes the columns of the number, the margin and the seeds."""
        room = self.number + len(GAP) + self.margin + (len(GAP) + self.seeds if self.seeds else 0)
        cells = [verdict.ljust(self.verdict), _middle_cut(case, self.case).ljust(self.case)]
        cells.append(_end_cut(message, room).ljust(room))
        if self.seconds:
            cells.append(seconds.rjust(self.seconds))
        return GAP.join(cells).rstrip()


def _row_line(row: Row, layout: _Layout) -> str:
    if not row.number:
        return layout.message_line(row.word, row.id, row.message, _seconds(row))
    return layout.line(row.word, row.id, row.number, row.margin, str(row.seeds), _seconds(row))


def _seconds(row: Row) -> str:
    return f"{row.seconds:.1f}"


def _layout(rows: Sequence[Row], width: int) -> _Layout:
    """Natural widths where they fit; else seeds, then seconds give way, and the number is shortened first."""
    verdict = max(len(HEADER[0]), *(len(row.word) for row in rows))
    margin = max(len(HEADER[3]), *(len(row.margin) for row in rows if row.number), 0)
    seeds = max(len(HEADER[4]), *(len(str(row.seeds)) for row in rows))
    seconds = max(len(HEADER[5]), *(len(_seconds(row)) for row in rows))
    case = max(len(HEADER[1]), *(len(row.id) for row in rows))
    number = max(len(HEADER[2]), *(len(row.number.partition(INTERVAL)[0]) for row in rows))

    def room() -> int:
        """Columns left for the case and its number together."""
        return width - sum(len(GAP) + taken for taken in (verdict, margin, seeds, seconds) if taken) - len(GAP)

    if room() < 3 * LEAST:
        seeds = 0
    if room() < 3 * LEAST:
        seconds = 0
    left = max(room(), 2 * LEAST)
    if case + number > left:
        case = min(case, max(left - FIGURE, left // 2, left - number))
        number = left - case
    return _Layout(verdict, case, number, margin, seeds, seconds)


def run_again(rows: Sequence[Row]) -> list[str]:
    """A line for each case that was run once more on fresh seeds, with what both runs said."""
    return [f"run once more: {row.id}, {row.again}" for row in rows if row.again]


# ------------------------------------------------------------------------------------------------- shortening


def shortened(number: str, room: int) -> str:
    """The words of a number within ``room`` columns; no figure is ever cut, only whole words are left out.

    What explains goes first and the figure that decides stays longest:
    ``3 of 3 seeds (3 converged), worst progress 0.93`` becomes ``3 of 3 seeds, worst progress 0.93``, then
    ``… worst progress 0.93``, then ``… 0.93``.

    Args:
        number: Words of a finding's number.
        room: Columns.
    """
    plain = number.partition(INTERVAL)[0]
    bare = re.sub(r" \([^()]*\)", "", plain)
    for text in (number, plain, bare):
        if len(text) <= room:
            return text
    head, tail = _split(bare)
    figure = _figure(tail)
    if not figure:
        return _end_cut(bare, room)
    for end in dict.fromkeys((tail, figure)):
        start = _leading_words(head, room - len(end) - len(ELLIPSIS) - 2) if head[:1].isalpha() else ""
        if start:
            return f"{start} {ELLIPSIS} {end}" if start != head else f"{head} {end}"
    leading = tail.partition(figure)[0].split()
    ends = [" ".join([*leading[index:], figure]) for index in range(len(leading) + 1)]
    for end in (tail, *ends, figure.removeprefix("= ")):
        if len(end) + 2 <= room:
            return f"{ELLIPSIS} {end}"
    return ELLIPSIS[:room]


def _split(text: str) -> tuple[str, str]:
    """What leads to the figure that decides, and the part with the figure."""
    head, found, tail = text.rpartition(" = ")
    if found:
        return head, f"= {tail}"
    head, _, tail = text.rpartition(", ")
    return head, tail


def _figure(tail: str) -> str:
    """The figure of the tail, with the equals sign that it may follow; empty where there is none."""
    found = next((word for word in tail.split() if _is_figure(word)), "")
    return f"= {found}" if found and tail.startswith("= ") else found


def _is_figure(word: str) -> bool:
    return any(letter.isdigit() for letter in word) or word.strip("-,") in ("nan", "inf")


def _leading_words(text: str, room: int) -> str:
    kept = ""
    for word in text.split():
        longer = f"{kept} {word}" if kept else word
        if len(longer) > room:
            break
        kept = longer
    return re.sub(r"[,(]*( (of|the|at|over))*$", "", kept)


def _end_cut(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    kept = _leading_words(text, room - len(ELLIPSIS))
    first = text.split(maxsplit=1)[0]
    return (kept or ("" if _is_figure(first) else first[: max(room - 1, 0)])) + ELLIPSIS


def _middle_cut(name: str, room: int) -> str:
    """A long name keeps its beginning and, where names differ most, its end."""
    if len(name) <= room:
        return name
    end = (room - 1) * 2 // 3
    return name[: room - 1 - end] + ELLIPSIS + name[len(name) - end :]
