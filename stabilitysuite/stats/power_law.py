"""Exponents: least squares on logarithms, within one series."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["curvature", "slope"]


def slope(points: Sequence[float], values: Sequence[float]) -> float:
    """Least-squares slope of ln(value) on ln(point): the exponent of a power law.

    Args:
        points: Positive, at least two different.
        values: Positive, one a point.
    """
    x, y = _logarithms(points), _logarithms(values)
    return math.fsum(a * b for a, b in zip(x, y, strict=True)) / math.fsum(a * a for a in x)


def curvature(points: Sequence[float], values: Sequence[float]) -> float:
    """Least-squares coefficient of ln(point)^2 in a parabola through the logarithms; 0 for a power law.

    Args:
        points: Positive, at least three different.
        values: Positive, one a point.
    """
    x, y = _logarithms(points), _logarithms(values)
    line = slope(points, values)
    rest = [b - line * a for a, b in zip(x, y, strict=True)]
    square = [a * a for a in x]
    mean = math.fsum(square) / len(square)
    # the part of the square that neither the mean nor the line explains
    tilt = math.fsum(a * (b - mean) for a, b in zip(x, square, strict=True)) / math.fsum(square)
    own = [b - mean - tilt * a for a, b in zip(x, square, strict=True)]
    return math.fsum(a * b for a, b in zip(own, rest, strict=True)) / math.fsum(a * a for a in own)


def _logarithms(values: Sequence[float]) -> list[float]:
    """Natural logarithms, centred."""
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / len(logs)
    return [one - mean for one in logs]
