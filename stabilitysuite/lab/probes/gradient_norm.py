"""Gradient norms: of each parameter, of a layer, and of all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stabilitysuite.lab.probes.norm import norms_of_many

__all__ = ["joint_norm", "parameter_norms"]


def parameter_norms(gradients: Sequence[Tensor | None], batched: bool, seeds: int) -> Tensor:
    """Euclidean norm of each gradient: P tensors [S, ...] -> [S, P]; zero where a parameter has none.

    Args:
        gradients: One a parameter.
        batched: Whether they have a leading seed dimension.
        seeds: S.
    """
    there = [(index, gradient) for index, gradient in enumerate(gradients) if gradient is not None]
    if not there:
        return torch.zeros(seeds, len(gradients), dtype=torch.float64)
    dense = [gradient.coalesce().values() if gradient.is_sparse else gradient for _, gradient in there]
    norms_SP = norms_of_many(dense, batched, seeds)
    if len(there) == len(gradients):
        return norms_SP
    full_SP = norms_SP.new_zeros(seeds, len(gradients))
    full_SP[:, [index for index, _ in there]] = norms_SP
    return full_SP


def joint_norm(norms_SP: Tensor) -> Tensor:
    """Norm over several tensors from the norm of each: [S, P] -> [S]."""
    norms: Tensor = torch.linalg.vector_norm(norms_SP, dim=1)
    return norms
