"""Standard deviation of the residual stream."""

from __future__ import annotations

import math

from torch import Tensor

from stabilitysuite.lab.probes.norm import norm_per_seed

__all__ = ["residual_std"]


def residual_std(x: Tensor) -> Tensor:
    """Standard deviation over all elements of each seed: [S, ...] -> [S]."""
    flat = x.flatten(1)
    return norm_per_seed(flat - flat.mean(1, keepdim=True)) / math.sqrt(flat.shape[1])
