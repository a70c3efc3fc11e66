"""One claim judged: holds, violated or undecided, with the evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from stabilitysuite.errors import RecordError
from stabilitysuite.trace import decode_number, encode_number

__all__ = ["Finding", "Verdict", "again_words", "short", "worst"]

MOST_SEEDS = 5
"""Seeds that the first line of a failure spells out; the record has them all."""

Verdict = Literal["holds", "violated", "undecided"]


def short(value: float | None) -> str:
    """A number for a person: three significant digits."""
    if value is None:
        return "-"
    return f"{value:.3g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One claim judged on the seeds of one arm."""

    arm: str
    """Arm it was judged on; ``""`` for the case itself."""
    claim: str
    """The claim in words."""
    verdict: Verdict
    """What was decided."""
    number: str
    """The deciding number in words, such as ``progress 0.93 (worst of 3 seeds)``."""
    value: float | None
    """The deciding number."""
    interval: tuple[float, float] | None
    """Its interval over the seeds, where one was computed."""
    threshold: str
    """What the number is held against, in words."""
    margin: float | None
    """Distance from the decision in units of ``margin_unit``; negative on the wrong side."""
    margin_unit: Literal["factor", "difference"]
    """``factor``: the ratio to the nearest threshold; ``difference``: the plain distance."""
    seeds: tuple[int, ...]
    """Seeds judged."""
    values: tuple[float, ...]
    """The number of each seed, in the order of ``seeds``."""
    reason: str = ""
    """Why it is not ``holds``, or what the verdict rests on."""
    resolution: float | None = None
    """The smallest change it could have seen, in units of ``margin_unit``: half the interval; ``None`` without one."""
    remedy: Literal["", "more seeds", "more steps"] = ""
    """What would decide an undecided finding."""
    false_holds: float | None = None
    """Probability that this rule passes a change that breaks half of all runs."""
    before: Verdict | None = None
    """What the first run said, where it did not hold and was run once more on fresh seeds."""
    published: float | None = None
    """The figure the source states, where it differs from what is true."""
    decided_by: tuple[int, ...] = ()
    """Seeds that alone decide it again, the same way; empty where all of them are needed."""
    wrong: tuple[int, ...] = ()
    """Seeds that speak against it by themselves: on the wrong side, or beside a twin that did not train."""

    def distance(self) -> float:
        """The margin on one scale for both units: negative on the wrong side, -inf where there is none."""
        if self.margin is None or math.isnan(self.margin):
            return -math.inf
        if self.margin_unit == "difference":
            return self.margin
        return math.log(self.margin) if self.margin > 0 else -math.inf

    def margin_words(self) -> str:
        """The margin as a person reads it: ``x1.8`` for a factor, ``+0.43`` for a difference."""
        if self.margin is None:
            return "-"
        return f"x{self.margin:.3g}" if self.margin_unit == "factor" else f"{self.margin:+.3g}"

    def sentence(self) -> str:
        """Claim, number, threshold and seeds in one line: the first line of a failure."""
        where = f"[{self.arm}] " if self.arm else ""
        subject, _, rest = self.number.partition(" = ")
        number = f"it is {rest}" if rest and self.claim.startswith(subject) else self.number
        wanted = "" if self.threshold in self.claim else f", wanted {self.threshold}"
        return f"{where}{self.claim}: {self.verdict.upper()}, {number}{wanted}; {_seeds(self.seeds)}"

    def to_json(self) -> dict[str, Any]:
        """As builtins; non-finite values spelled."""
        return {
            "arm": self.arm,
            "claim": self.claim,
            "verdict": self.verdict,
            "number": self.number,
            "value": encode_number(self.value),
            "interval": None if self.interval is None else [encode_number(end) for end in self.interval],
            "threshold": self.threshold,
            "margin": encode_number(self.margin),
            "margin_unit": self.margin_unit,
            "seeds": list(self.seeds),
            "values": [encode_number(value) for value in self.values],
            "reason": self.reason,
            "resolution": encode_number(self.resolution),
            "remedy": self.remedy,
            "false_holds": self.false_holds,
            "before": self.before,
            "published": encode_number(self.published),
            "decided_by": list(self.decided_by),
            "wrong": list(self.wrong),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Finding:
        """The inverse of :meth:`to_json`.

        Raises:
            RecordError: The verdict is none of the three.
        """
        fields = dict(data)
        if fields["verdict"] not in get_args(Verdict):
            raise RecordError(f"unknown verdict {fields['verdict']!r}: known are {', '.join(get_args(Verdict))}")
        for name in ("value", "margin", "published", "resolution"):
            fields[name] = decode_number(fields.get(name))
        fields["values"] = tuple(decode_number(value) for value in fields["values"])
        fields["seeds"] = tuple(fields["seeds"])
        fields["decided_by"] = tuple(fields["decided_by"])
        fields["wrong"] = tuple(fields.get("wrong", ()))
        if fields["interval"] is not None:
            fields["interval"] = tuple(decode_number(end) for end in fields["interval"])
        return cls(**fields)


def _seeds(seeds: tuple[int, ...]) -> str:
    """All seeds where they are few, else the first ones and their number."""
    if len(seeds) <= MOST_SEEDS:
        return f"seed{'s' if len(seeds) != 1 else ''} {', '.join(map(str, seeds))}"
    return f"{len(seeds)} seeds: {', '.join(map(str, seeds[:3]))}, ..."


_ORDER: dict[Verdict, int] = {"violated": 0, "undecided": 1, "holds": 2}


def worst(findings: tuple[Finding, ...]) -> Finding:
    """The finding that decides the case: violated before undecided before holds, then the smallest margin."""

    def closeness(finding: Finding) -> tuple[int, float]:
        return _ORDER[finding.verdict], finding.distance()

    return min(findings, key=closeness)


def again_words(findings: Sequence[Finding]) -> str:
    """What two runs said, such as ``first violated, then holds on fresh seeds``; empty where one was enough."""
    told = [one for one in findings if one.before is not None]
    if not told:
        return ""
    one = worst(tuple(told))
    return (
        f"first {one.before}, on fresh seeds too"
        if one.before == one.verdict
        else (f"first {one.before}, {one.verdict} after fresh seeds")
    )
