"""Standard deviation of the residual stream."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stabilitysuite.lab.probes.norm import free_to_look, norm_per_seed, quick_norms, safe, single

__all__ = ["residual_std"]

SMALL_MEAN = 0.1
"""Largest share of the mean square that the square of the mean may be for the two to be subtracted."""


def residual_std(x: Tensor) -> Tensor:
    """Standard deviation over all elements of each seed: [S, ...] -> [S], float64.

    On the CPU from the norm and the sum, which reads the activation twice and writes nothing, where the mean is so
    small that their difference loses no digits; else from the centred activation.
    """
    x = single(x)
    count = x[0].numel()
    if free_to_look(x):
        norms = quick_norms(x)
        sums = [x.sum().item()] if len(x) == 1 else x.flatten(1).sum(1).tolist()
        if safe(norms) and all(
            total**2 < SMALL_MEAN * count * norm**2 for total, norm in zip(sums, norms, strict=True)
        ):
            variances = [(norm**2 - total**2 / count) / count for norm, total in zip(norms, sums, strict=True)]
            return torch.tensor([math.sqrt(variance) for variance in variances], dtype=torch.float64)
    flat = x.flatten(1)
    return norm_per_seed(flat - flat.mean(1, keepdim=True)) / math.sqrt(count)
