"""Comparisons of pairs, without a law of how the pairs differ."""

from __future__ import annotations

from collections.abc import Sequence

from stabilitysuite.stats.interval import binomial_tail

__all__ = ["sign_test"]


def sign_test(above: Sequence[bool]) -> float:
    """Probability that so many of the pairs or more lie above by chance: one-sided, exact (Arbuthnott, 1710).

    Args:
        above: Of each pair whether it lies above; one that says nothing counts as below, so that ties never help.
    """
    return binomial_tail(sum(above), len(above), 0.5)
