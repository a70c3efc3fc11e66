"""How alike the tokens of a sequence have become."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["token_cosine"]


def token_cosine(x_SBTD: Tensor) -> Tensor:
    """Mean cosine over the pairs of different tokens of a sequence: [S, B, T, D] -> [S].

    With unit vectors u_t the sum over all pairs is |sum u_t|^2 - T, so no matrix of pairs is built (Dong et al.,
    2021, measure rank collapse this way up to a factor). A token that is zero throughout has cosine 0 to all.
    """
    tokens = x_SBTD.shape[2]
    largest_SB11 = x_SBTD.abs().amax((2, 3), keepdim=True)  # keeps the squares away from both ends of float32
    x = x_SBTD / torch.where(largest_SB11 > 0, largest_SB11, 1.0)
    length_SBT = torch.linalg.vector_norm(x, dim=-1)
    inverse_SBT = torch.where(length_SBT > 0, 1 / length_SBT, 0.0)
    together_SB1D = torch.matmul(inverse_SBT.unsqueeze(2), x)
    together_SB = torch.linalg.vector_norm(together_SB1D, dim=(2, 3), dtype=torch.float64).square()
    own_SB = (length_SBT * inverse_SBT).double().sum(-1)
    cosine: Tensor = ((together_SB - own_SB) / (tokens * (tokens - 1))).mean(1)
    return cosine
