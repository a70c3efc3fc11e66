"""The calibration record: what many seeds of a case did, and whether they let the case gate.

Near an edge the outcomes of a case are a mixture, and three lucky seeds lie. So a case gates only after many seeds,
of which its gate uses none, ended on the declared side, and eight more did at a changed learning rate.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stabilitysuite.case import Case
from stabilitysuite.claims.finding import short
from stabilitysuite.claims.look import Spread
from stabilitysuite.errors import RecordError
from stabilitysuite.stats.interval import Prior, largest_rate
from stabilitysuite.trace import decode_number, encode_number

__all__ = [
    "FORMAT",
    "RATE_SEEDS",
    "Calibration",
    "Direction",
    "RateCheck",
    "Tally",
    "gate",
    "moved",
    "needs_calibration",
    "percent",
    "rounded",
]

FORMAT = 1
"""Version of the written form."""
RATE_SEEDS = 8
"""Seeds at the changed learning rate."""

Direction = Literal["times", "divided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """One claim on one arm, over the seeds of a calibration."""

    arm: str
    """The arm; ``""`` for the case itself, or where all arms are judged together."""
    claim: str
    """The claim in words."""
    seeds: int
    """How many seeds ran."""
    wrong: int
    """How many of them ended on the wrong side."""
    values: tuple[float, ...]
    """The number of each seed, to six digits."""
    log: bool
    """Whether mean and deviation are those of the natural logarithm."""
    mean: float | None
    """Mean over the seeds; ``None`` where a value has none."""
    deviation: float | None
    """Standard deviation over the seeds; ``None`` where they are fewer than 20."""
    outcomes: Mapping[str, int]
    """How many runs ended how."""
    twins: Mapping[str, int]
    """The same of the twins, where the claim has them."""
    undecidable: str = ""
    """Why the case's own number of seeds cannot decide the claim; empty where it can."""

    @property
    def at_most(self) -> float:
        """Share of seeds on the wrong side that 95 % confidence leaves possible (Clopper and Pearson, 1934)."""
        return largest_rate(self.wrong, self.seeds)

    def spread(self) -> str:
        """The deviation as a person reads it: ``x1.05`` where seeds differ by factors; empty where not known."""
        if self.deviation is None:
            return ""
        return f"x{short(_exp(self.deviation))}" if self.log else short(self.deviation)

    def counted(self) -> str:
        """Such as ``0 of 30 wrong (at most 9.5 %)``."""
        return f"{self.wrong} of {self.seeds} wrong (at most {percent(self.at_most)})"

    def seen(self) -> str:
        """What its seeds did, in words: claim, outcomes and range of the values."""
        where = f"[{self.arm}] " if self.arm else ""
        ends = [_spoken(self.outcomes)] + ([f"twins: {_spoken(self.twins)}"] if self.twins else [])
        finite = [value for value in self.values if math.isfinite(value)]
        span = f"; values {short(min(finite))} to {short(max(finite))}" if finite else ""
        return f"{where}'{self.claim}' ({'; '.join(ends)}{span})"

    def to_json(self) -> dict[str, Any]:
        """As builtins; non-finite values spelled."""
        plain = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        plain |= {name: encode_number(plain[name]) for name in ("mean", "deviation")}
        plain |= {name: dict(plain[name]) for name in ("outcomes", "twins")}
        return plain | {"at_most": rounded(self.at_most), "values": [encode_number(one) for one in self.values]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Tally:
        """The inverse of :meth:`to_json`."""
        fields = {name: value for name, value in data.items() if name != "at_most"}
        fields["values"] = tuple(decode_number(value) for value in data["values"])
        return cls(**fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCheck:
    """The same claims at a changed learning rate: the distance from the edge, in recipe units."""

    factor: float
    """By how much the learning rate is changed, above 1."""
    direction: Direction
    """``times`` for what must train, ``divided`` for what must fail."""
    claims: tuple[Tally, ...]
    """One a claim and arm; empty where it was not reached."""

    def words(self) -> str:
        """Such as ``1.4 times the learning rate``."""
        times = self.direction == "times"
        return f"{self.factor:g} times the learning rate" if times else f"1/{self.factor:g} of the learning rate"

    def counted(self) -> str:
        """Such as ``x1.4: 0 of 8 wrong``."""
        change = f"{'x' if self.direction == 'times' else '/'}{self.factor:g}"
        if not self.claims:
            return f"{change}: not reached"
        tally = _worst(self.claims)
        return f"{change}: {tally.wrong} of {tally.seeds} wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The record of many seeds that admits a case, or says why it does not."""

    id: str
    """``file stem/name`` of the case."""
    digest: str
    """The case's digest: of another one the record says nothing."""
    seeds: int
    """Seeds that were asked for; it stops at the first on the wrong side."""
    claims: tuple[Tally, ...]
    """One a claim and arm."""
    rate: RateCheck | None
    """The check at a changed learning rate; ``None`` for a case that does not train."""
    environment: Mapping[str, Any]
    """Fingerprint of where it ran."""
    started: str
    """UTC time at which it began, ISO 8601."""
    cpu_seconds: float
    """CPU seconds of the process for everything."""

    @property
    def admitted(self) -> bool:
        """Whether the case may gate: all seeds ran, and none of them, at either rate, is on the wrong side."""
        done = bool(self.claims) and all(one.seeds >= self.seeds and not one.undecidable for one in self.claims)
        at_rate = () if self.rate is None else self.rate.claims
        done = done and (self.rate is None or (bool(at_rate) and all(one.seeds >= RATE_SEEDS for one in at_rate)))
        return done and not any(one.wrong for one in (*self.claims, *at_rate))

    def spreads(self) -> dict[tuple[str, str], Spread]:
        """How each claim's number differs from seed to seed, by arm and claim, where seeds enough were seen."""
        return {
            (one.arm, one.claim): Spread(prior=Prior(deviation=one.deviation, degrees=one.seeds - 1), log=one.log)
            for one in self.claims
            if one.deviation is not None
        }

    @property
    def worst(self) -> Tally:
        """The claim with most seeds on the wrong side, at the declared learning rate."""
        return _worst(self.claims)

    @property
    def reason(self) -> str:
        """In one sentence why it is admitted, or why it is not."""
        tally = self.worst
        if tally.wrong:
            rest = f"; it stopped there, {self.seeds} were asked for" if tally.seeds < self.seeds else ""
            return (
                f"{tally.wrong} of {tally.seeds} seeds on the wrong side of {tally.seen()}{rest}: "
                "move the setting away from its edge"
            )
        at_rate = _worst(self.rate.claims) if self.rate is not None and self.rate.claims else None
        if self.rate is not None and at_rate is not None and at_rate.wrong:
            return (
                f"none of {tally.seeds} seeds, but at {self.rate.words()} {at_rate.wrong} of {at_rate.seeds} on the "
                f"wrong side of {at_rate.seen()}: the setting is too near its edge, move it away"
            )
        for one in self.claims:
            if one.undecidable:
                return f"{one.seen()}: {one.undecidable}"
        if not self.admitted:
            return "it was not carried out to its end: calibrate again"
        return self.words()

    def words(self) -> str:
        """What is known of an admitted case: seeds, bound, and the changed learning rate."""
        tally = self.worst
        bound = f"at most {percent(tally.at_most)} at 95 %"
        at_rate = f", nor of {RATE_SEEDS} at {self.rate.words()}" if self.rate is not None else ""
        return f"none of {tally.seeds} calibration seeds on the wrong side ({bound}){at_rate}"

    def to_json(self) -> dict[str, Any]:
        """As builtins that strict JSON can hold."""
        rate = self.rate
        return {
            "format": FORMAT,
            "id": self.id,
            "digest": self.digest,
            "admitted": self.admitted,
            "reason": self.reason,
            "seeds": self.seeds,
            "claims": [tally.to_json() for tally in self.claims],
            "rate": None
            if rate is None
            else {
                "factor": rate.factor,
                "direction": rate.direction,
                "claims": [tally.to_json() for tally in rate.claims],
            },
            "environment": dict(self.environment),
            "started": self.started,
            "cpu_seconds": round(self.cpu_seconds, 1),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Calibration:
        """The inverse of :meth:`to_json`; whether it is admitted is counted anew.

        Raises:
            RecordError: It is of a newer version, or no calibration record.
        """
        version = data.get("format") if isinstance(data, Mapping) else None
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise RecordError("this is no calibration record: it has no format number")
        if version > FORMAT:
            raise RecordError(
                f"calibration format {version} is of a newer stabilitysuite (known: {FORMAT}): upgrade it"
            )
        try:
            fields = {name: data[name] for name in _FIELDS}
            fields["claims"] = tuple(Tally.from_json(one) for one in data["claims"])
            if not fields["claims"]:
                raise RecordError("this calibration record has no claim")
            if data["rate"] is not None:
                claims = tuple(Tally.from_json(one) for one in data["rate"]["claims"])
                fields["rate"] = RateCheck(**{**data["rate"], "claims": claims})
            return cls(**fields)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordError(f"this calibration record is not complete: {type(error).__name__}: {error}") from error


_FIELDS = tuple(item.name for item in dataclasses.fields(Calibration))


def gate(case: Case, calibration: Calibration | None) -> str:
    """Why a case does not gate; empty where it does.

    Args:
        case: The case.
        calibration: Its record, where there is one.
    """
    if not needs_calibration(case):
        return ""
    if calibration is None:
        return "it has no calibration record"
    if calibration.digest != case.digest():
        return f"its calibration record is stale: it is of {calibration.digest}, the case is now {case.digest()}"
    return "" if calibration.admitted else f"it was not admitted: {calibration.reason}"


def moved(calibrated: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """In what the environment differs from that of the calibration, such as ``torch 2.13 -> 2.14``; empty where not.

    Only what may move a number by more than rounding: torch up to its minor version, the kind of device, the precision
    of matrix products.
    """
    before, now = _class_of(calibrated), _class_of(here)
    return ", ".join(
        f"{name} {before[name]} -> {now[name]}" for name in now if before.get(name, now[name]) != now[name]
    )


def _class_of(environment: Mapping[str, Any]) -> dict[str, str]:
    found = {
        name: str(environment[name]) for name in ("torch", "device", "float32_matmul_precision") if name in environment
    }
    if "torch" in found:
        found["torch"] = ".".join(found["torch"].split("+")[0].split(".")[:2])
    if "device" in found:
        found["device"] = found["device"].partition(":")[0]
    return found


def needs_calibration(case: Case) -> bool:
    """Whether a case gates only with a record: not where its claim is about a rate or an edge, or exact.

    Those count their own seeds, so their errors are what they say also at an edge.
    """
    return not all(claim.looks() or claim.exact() for claim in case.claims)


def percent(share: float) -> str:
    """A share as a person reads it: two digits, such as ``9.5 %``."""
    return f"{100 * share:.2g} %" if share < 1 else "100 %"


def _worst(claims: Sequence[Tally]) -> Tally:
    return max(claims, key=lambda tally: tally.wrong)


def _spoken(ends: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in ends.items())


def rounded(value: float) -> float:
    """To six digits: more are of the machine, not of the case, and would change with every calibration."""
    return float(f"{value:.6g}")


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
