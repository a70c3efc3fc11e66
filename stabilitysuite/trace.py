"""What one run leaves behind: series of quantities and an outcome.

A trace holds plain Python numbers only, so that it crosses processes and can be written down. Non-finite
values are data, not errors: they are kept as ``nan`` and ``inf`` and spelled as strings in JSON.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from stabilitysuite.errors import RecordError

__all__ = [
    "TROUBLE",
    "Outcome",
    "OutcomeName",
    "Reference",
    "Series",
    "Trace",
    "decode_number",
    "encode_number",
    "mixed_ends",
    "tail",
]

OutcomeName = Literal[
    "converged",
    "learning",
    "stalled",
    "collapsed",
    "diverged",
    "nonfinite",
    "initialised",
    "crashed",
    "out-of-memory",
    "timeout",
]
TROUBLE: frozenset[str] = frozenset({"crashed", "out-of-memory", "timeout"})
"""Outcomes that say nothing about the claim: they are errors, never findings."""
ON_THE_WAY: frozenset[str] = frozenset({"converged", "learning", "initialised"})
"""Outcomes between which there is no jump: how far a run came by the declared step."""

_SPELLED = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode_number(value: float | None) -> float | str | None:
    """A number as strict JSON can hold it: non-finite values become ``"nan"``, ``"inf"``, ``"-inf"``."""
    if value is None or math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def decode_number(value: float | str | None) -> float | None:
    """The inverse of :func:`encode_number`.

    Raises:
        RecordError: The text is not one of the three spelled values.
    """
    if isinstance(value, str):
        if value not in _SPELLED:
            raise RecordError(f"{value!r} is no number: a record spells non-finite values nan, inf or -inf")
        return _SPELLED[value]
    return None if value is None else float(value)


def _decode_present(value: float | str | None) -> float:
    number = decode_number(value)
    if number is None:
        raise RecordError("a series holds null where a number belongs: what was not measured is left out of it")
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended."""

    name: OutcomeName
    """``initialised`` is the end of a run of zero steps; the others are defined in the glossary."""
    step: int
    """The step at which it was decided; for ``nonfinite`` the first non-finite step."""
    layer: str | None = None
    """Module in which the first non-finite value was seen."""
    tensor: str | None = None
    """What was non-finite: ``loss``, ``output``, ``gradient of NAME`` or ``weight NAME``."""
    detail: str = ""
    """One line for a person: the error of a crashed run, or what was out of range."""

    def __post_init__(self) -> None:
        if self.name not in get_args(OutcomeName):
            raise RecordError(f"unknown outcome {self.name!r}: known are {', '.join(get_args(OutcomeName))}")

    def to_json(self) -> dict[str, Any]:
        """As builtins, leaving out what is empty."""
        full = {"name": self.name, "step": self.step, "layer": self.layer, "tensor": self.tensor}
        return {key: value for key, value in {**full, "detail": self.detail or None}.items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """The inverse of :meth:`to_json`."""
        return cls(**data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The known losses that a run is held against, in nats."""

    plateau: float
    """Loss of the best constant predictor (unigram entropy), or the first loss on one's own data."""
    floor: float
    """Smallest possible loss (entropy rate), or the declared target on one's own data."""
    shallow_floor: float | None = None
    """Best loss that a model without layers and without attention can reach."""
    enough: float = 0.5
    """Progress from which on a run counts as converged."""

    def progress(self, loss: float) -> float:
        """Share of the way from plateau to floor: ``(plateau - loss) / (plateau - floor)``; NaN without a way."""
        if self.plateau == self.floor:
            return math.nan
        return (self.plateau - loss) / (self.plateau - self.floor)

    def to_json(self) -> dict[str, Any]:
        """As builtins."""
        return {
            "plateau": encode_number(self.plateau),
            "floor": encode_number(self.floor),
            "shallow_floor": encode_number(self.shallow_floor),
            "enough": self.enough,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Reference:
        """The inverse of :meth:`to_json`."""
        return cls(**{key: decode_number(value) for key, value in data.items()})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One quantity of one run, over the recorded steps."""

    quantity: str
    """Name of the quantity."""
    steps: tuple[int, ...]
    """Steps at which it was recorded, ascending; step k is the state after k updates."""
    labels: tuple[str, ...]
    """What each column is of (layer or parameter names); one empty label for one value a step."""
    values: tuple[tuple[float, ...], ...]
    """Values [step, label], in the unit of the quantity."""

    def __post_init__(self) -> None:
        if len(self.values) != len(self.steps) or any(len(row) != len(self.labels) for row in self.values):
            raise RecordError(
                f"series {self.quantity!r}: {len(self.steps)} steps x {len(self.labels)} labels do not fit its values"
            )

    def at(self, step: int) -> tuple[float, ...] | None:
        """The row of that step, or ``None`` where it was not recorded."""
        return self.values[self.steps.index(step)] if step in self.steps else None

    def to_json(self) -> dict[str, Any]:
        """As builtins; non-finite values spelled."""
        return {
            "quantity": self.quantity,
            "steps": list(self.steps),
            "labels": list(self.labels),
            "values": [[encode_number(value) for value in row] for row in self.values],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Series:
        """The inverse of :meth:`to_json`."""
        rows: Iterable[Iterable[float | str | None]] = data["values"]
        return cls(
            quantity=data["quantity"],
            steps=tuple(data["steps"]),
            labels=tuple(data["labels"]),
            values=tuple(tuple(_decode_present(value) for value in row) for row in rows),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What one run of one seed left behind."""

    arm: str
    """Which arm of the case it belongs to: ``""`` for the case itself, else a variant, sweep point or twin."""
    seed: int
    """The seed that everything random of the run comes from."""
    outcomes: tuple[Outcome, ...]
    """The outcome at each declared step, the last one at the end of the run."""
    series: Mapping[str, Series]
    """Series by quantity name."""
    reference: Reference | None = None
    """The known losses, where there are any."""
    warnings: tuple[str, ...] = ()
    """Warnings raised while it ran, each once."""
    engine: str = "sequential"
    """How it was computed: ``N seeds in one pass``, or ``sequential`` with the reason where a pass could be shared."""
    seconds: float = 0.0
    """CPU seconds of this run (its share, where several seeds ran in one pass)."""

    def __post_init__(self) -> None:
        if not self.outcomes:
            raise RecordError(f"the trace of seed {self.seed} has no outcome: a run ends somehow, say how")

    @property
    def outcome(self) -> Outcome:
        """How the run ended."""
        return self.outcomes[-1]

    @property
    def kind(self) -> str:
        """How the run ended, in kind: ``trained`` however far it came, or the name of the outcome."""
        return "trained" if self.outcome.name in ON_THE_WAY else self.outcome.name

    def outcome_at(self, step: int) -> Outcome:
        """The outcome judged at that step; a run that ended before it keeps its end."""
        for outcome in self.outcomes:
            if outcome.step >= step:
                return outcome
        return self.outcomes[-1]

    def to_json(self) -> dict[str, Any]:
        """As builtins."""
        return {
            "arm": self.arm,
            "seed": self.seed,
            "outcomes": [outcome.to_json() for outcome in self.outcomes],
            "series": {name: series.to_json() for name, series in self.series.items()},
            "reference": None if self.reference is None else self.reference.to_json(),
            "warnings": list(self.warnings),
            "engine": self.engine,
            "seconds": self.seconds,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trace:
        """The inverse of :meth:`to_json`."""
        reference = data["reference"]
        return cls(
            arm=data["arm"],
            seed=data["seed"],
            outcomes=tuple(Outcome.from_json(item) for item in data["outcomes"]),
            series={name: Series.from_json(item) for name, item in data["series"].items()},
            reference=None if reference is None else Reference.from_json(reference),
            warnings=tuple(data["warnings"]),
            engine=data["engine"],
            seconds=data["seconds"],
        )


def tail(losses: Sequence[float]) -> float:
    """Loss at the end of a run on one's own data: the median of the last tenth, at least three steps."""
    return statistics.median(losses[-max(3, len(losses) // 10) :])


def mixed_ends(traces: Sequence[Trace]) -> str:
    """How runs ended where they ended in kinds as different as trained and stalled; empty where they did not."""
    names = [trace.outcome.name for trace in traces]
    if len({trace.kind for trace in traces}) < 2:
        return ""
    return ", ".join(f"{count} {name}" for name, count in Counter(names).most_common())
