"""Euclidean norms of each seed, right at both ends of the scale.

float32 norms read 0 below 1e-23 and inf above 1e18, and float64 ones cost several times as much. On the CPU, where
looking at a number is free, the float32 norm is taken first and kept where it can be trusted; on other devices
float64 is taken at once, so that nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stabilitysuite.lab.device import look_every

__all__ = ["SAFE", "free_to_look", "norm_per_seed", "norms_of_many", "quick_norms", "safe", "single"]

SAFE = (1e-15, 1e15)
"""Norms in this range have no square near the ends of float32."""


def free_to_look(x: Tensor) -> bool:
    """Whether reading a number of that tensor costs nothing, as on the CPU; elsewhere the host would wait."""
    return look_every(x.device) == 1


def safe(norms: Sequence[float]) -> bool:
    """Whether float32 norms of these values can be trusted; NaN cannot."""
    return all(SAFE[0] < value < SAFE[1] for value in norms)


def single(x: Tensor) -> Tensor:
    """In float32 at least: what is computed in bfloat16 has three digits."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def norm_per_seed(x: Tensor) -> Tensor:
    """Norm over all elements of each seed: [S, ...] -> [S], float64."""
    x = single(x)
    if free_to_look(x):
        norms = quick_norms(x)
        if safe(norms):
            return torch.tensor(norms, dtype=torch.float64)
    exact: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=1, dtype=torch.float64)
    return exact


def quick_norms(x: Tensor) -> list[float]:
    """Norms of each seed in the precision of the tensor: [S, ...] -> S numbers; to be looked at before use.

    Beside a small activation it is the number of calls that costs: one seed needs no reshaping.
    """
    if len(x) == 1:
        return [torch.linalg.vector_norm(x).item()]
    norms: list[float] = torch.linalg.vector_norm(x.flatten(1), dim=1).tolist()
    return norms


def norms_of_many(tensors: Sequence[Tensor], batched: bool, seeds: int) -> Tensor:
    """Norm of each of P tensors and seed: tensors [S, ...] where ``batched`` -> [S, P], float64."""
    if not free_to_look(tensors[0]):
        return _norms_of_many(tensors, batched, seeds, torch.float64)
    if batched and seeds > 1:
        norms_SP = _norms_of_many(tensors, batched, seeds, None).double()
    else:  # a list of numbers: to stack a hundred tensors of one number costs as much as to measure them
        norms_SP = torch.tensor([[norm.item() for norm in torch._foreach_norm(list(tensors))]], dtype=torch.float64)
    if safe(norms_SP.flatten().tolist()) and all(tensor.element_size() >= 4 for tensor in tensors):
        return norms_SP
    doubtful = [
        index
        for index, (norms, tensor) in enumerate(zip(norms_SP.T.tolist(), tensors, strict=True))
        if not safe(norms) or tensor.element_size() < 4
    ]
    norms_SP[:, doubtful] = _norms_of_many([tensors[index] for index in doubtful], batched, seeds, torch.float64)
    return norms_SP


def _norms_of_many(tensors: Sequence[Tensor], batched: bool, seeds: int, dtype: torch.dtype | None) -> Tensor:
    if batched and seeds > 1:
        return torch.stack([torch.linalg.vector_norm(one.flatten(1), dim=1, dtype=dtype) for one in tensors], dim=1)
    return torch.stack(torch._foreach_norm(list(tensors), dtype=dtype)).unsqueeze(0)
