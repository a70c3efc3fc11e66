"""Gradient norms: of each parameter, of a layer, and of all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stabilitysuite.lab.probes.norm import norms_of_many

__all__ = ["joint_norm", "numbers", "parameter_norms", "total_norm"]


def numbers(gradient: Tensor) -> Tensor:
    """The gradient, of a sparse one the rows that it has."""
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def parameter_norms(gradients: Sequence[Tensor | None], batched: bool, seeds: int) -> Tensor:
    """Euclidean norm of each gradient: P tensors [S, ...] -> [S, P]; zero where a parameter has none.

    Args:
        gradients: One a parameter.
        batched: Whether they have a leading seed dimension.
        seeds: S.
    """
    there = [gradient for gradient in gradients if gradient is not None]
    if not there:
        return torch.zeros(seeds, len(gradients), dtype=torch.float64)
    norms_SP = norms_of_many([numbers(gradient) for gradient in there], batched, seeds)
    if len(there) == len(gradients):
        return norms_SP
    columns, nothing_S = iter(norms_SP.unbind(1)), norms_SP.new_zeros(seeds)
    return torch.stack([nothing_S if gradient is None else next(columns) for gradient in gradients], dim=1)


def joint_norm(norms_SP: Tensor) -> Tensor:
    """Norm over several tensors from the norm of each: [S, P] -> [S]."""
    norms: Tensor = torch.linalg.vector_norm(norms_SP, dim=1)
    return norms


def total_norm(gradients: Sequence[Tensor], batched: bool) -> Tensor:
    """Norm over all gradients of each seed: P dense tensors [S, ...] where ``batched`` -> [S], float64.

    In few kernels, whatever P is: cheap enough for every step of a device on which launching is what costs.
    """
    if batched:
        together_SN = torch.cat([gradient.flatten(1) for gradient in gradients], dim=1)
        norms: Tensor = torch.linalg.vector_norm(together_SN, dim=1, dtype=torch.float64)
        return norms
    return joint_norm(torch.stack(torch._foreach_norm(list(gradients), dtype=torch.float64)).unsqueeze(0))
