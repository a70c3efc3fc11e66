"""Euclidean norms of each seed, right at both ends of the scale.

float32 norms read 0 below 1e-23 and inf above 1e18, and float64 ones cost several times as much. On the CPU, where
looking at a number is free, the float32 norm is taken first and kept where it can be trusted; on other devices
float64 is taken at once, so that nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["SAFE", "norm_per_seed", "norms_of_many"]

SAFE = (1e-15, 1e15)
"""Norms in this range have no square near the ends of float32."""


def _trusted(norms: Tensor) -> bool:
    return norms.device.type == "cpu" and all(SAFE[0] < value < SAFE[1] for value in norms.tolist())


def norm_per_seed(x: Tensor) -> Tensor:
    """Norm over all elements of each seed: [S, ...] -> [S], float64."""
    flat = x.flatten(1)
    if flat.device.type == "cpu":
        norms: Tensor = torch.linalg.vector_norm(flat, dim=1)
        if _trusted(norms):
            return norms.double()
    exact: Tensor = torch.linalg.vector_norm(flat, dim=1, dtype=torch.float64)
    return exact


def norms_of_many(tensors: Sequence[Tensor], batched: bool, seeds: int) -> Tensor:
    """Norm of each of P tensors and seed: tensors [S, ...] where ``batched`` -> [S, P], float64."""
    if batched and seeds > 1:
        return torch.stack([norm_per_seed(tensor) for tensor in tensors], dim=1)
    norms = torch.stack(torch._foreach_norm(list(tensors)))
    if not _trusted(norms):
        norms = torch.stack(torch._foreach_norm(list(tensors), dtype=torch.float64))
    return norms.double().unsqueeze(0)
