"""Gradient of the loss with respect to the residual stream."""

from __future__ import annotations

from torch import Tensor

from stabilitysuite.lab.probes.norm import norm_per_seed

__all__ = ["residual_gradient"]


def residual_gradient(gradient: Tensor) -> Tensor:
    """Euclidean norm over all elements of each seed: [S, ...] -> [S]."""
    return norm_per_seed(gradient)
