"""How the elements of a weight matrix, or of its gradient, are distributed; their spread is ``residual_std``."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["kurtosis", "zeros"]


def kurtosis(x: Tensor) -> Tensor:
    """Excess kurtosis m4 / m2^2 - 3 of all elements of each seed: [S, ...] -> [S], float64.

    0 for a normal law, -1.2 for a uniform one, above 0 for heavier tails; NaN where all elements are the same. In
    float64, in which fourth powers of float32 numbers neither vanish nor overflow.
    """
    flat = x.flatten(1).double()
    squares = (flat - flat.mean(1, keepdim=True)).square()
    found: Tensor = squares.square().mean(1) / squares.mean(1).square() - 3
    return found


def zeros(x: Tensor) -> Tensor:
    """Share of the elements of each seed that are exactly zero: [S, ...] -> [S], float64."""
    return (x == 0).flatten(1).mean(1, dtype=torch.float64)
