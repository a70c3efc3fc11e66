"""How alike the tokens of a sequence have become."""

from __future__ import annotations

import torch
from torch import Tensor

from stabilitysuite.lab.probes.norm import free_to_look, safe, single

__all__ = ["token_cosine"]


def token_cosine(x_SBTD: Tensor) -> Tensor:
    """Mean cosine over the pairs of different tokens of a sequence: [S, B, T, D] -> [S].

    With unit vectors u_t the sum over all pairs is |sum u_t|^2 - T, so no matrix of pairs is built (Dong et al.,
    2021, measure rank collapse this way up to a factor). A token that is zero throughout has cosine 0 to all.
    """
    seeds, batch, tokens, _ = x_SBTD.shape
    x = single(x_SBTD)
    length_SBT = torch.linalg.vector_norm(x, dim=-1)
    if not (free_to_look(x) and safe([length_SBT.min().item(), length_SBT.max().item()])):
        return _scaled(x)
    together = torch.bmm(length_SBT.reciprocal().view(-1, 1, tokens), x.flatten(0, 1))
    norms_S = torch.linalg.vector_norm(together.view(seeds, -1), dim=1, dtype=torch.float64)
    found: Tensor = (norms_S.square() / batch - tokens) / (tokens * (tokens - 1))
    return found


def _scaled(x_SBTD: Tensor) -> Tensor:
    """The same where squares would reach the ends of float32, or a token is zero, or looking is not free."""
    tokens = x_SBTD.shape[2]
    largest_SB11 = x_SBTD.abs().amax((2, 3), keepdim=True)
    x = x_SBTD / torch.where(largest_SB11 > 0, largest_SB11, 1.0)
    length_SBT = torch.linalg.vector_norm(x, dim=-1)
    inverse_SBT = torch.where(length_SBT > 0, 1 / length_SBT, 0.0)
    together_SB1D = torch.matmul(inverse_SBT.unsqueeze(2), x)
    together_SB = torch.linalg.vector_norm(together_SB1D, dim=(2, 3), dtype=torch.float64).square()
    own_SB = (length_SBT * inverse_SBT).double().sum(-1)
    cosine: Tensor = ((together_SB - own_SB) / (tokens * (tokens - 1))).mean(1)
    return cosine
