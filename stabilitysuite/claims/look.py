"""What a judgement is made with besides the traces: how often it is looked, and what calibration knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from stabilitysuite.stats.interval import Prior
from stabilitysuite.stats.sequential import confidence_of, reject_from

__all__ = ["ONLY", "Look", "Spread"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How a claim's number differs from seed to seed, as calibration saw it."""

    prior: Prior
    log: bool
    """Whether it is of the natural logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at a sample that may grow.

    Every look spends a part of the error, so that a claim that is looked at three times is not wrong three times as
    often.
    """

    sizes: tuple[int, ...] = ()
    """Numbers of seeds at which it is looked, ascending; empty where the seeds at hand are all there will be."""
    spreads: Mapping[tuple[str, str], Spread] = field(default_factory=lambda: MappingProxyType({}))
    """By arm and claim in words."""

    @property
    def confidence(self) -> float:
        """Coverage of an interval at this look."""
        return confidence_of(max(1, len(self.sizes)))

    def too_many(self, count: int, rate: float) -> int:
        """Number of wrong seeds, of ``count``, from which on a rate of that size does not explain them."""
        sizes = self.sizes if count in self.sizes else (count,)
        return reject_from(sizes, rate)[sizes.index(count)]

    def prior(self, arm: str, claim: str, *, log: bool) -> Prior | None:
        """The spread of a claim's number, where calibration took it on the same scale."""
        known = self.spreads.get((arm, claim))
        return known.prior if known is not None and known.log == log else None


ONLY = Look()
"""The seeds at hand are all there will be, and nothing is known beforehand."""
