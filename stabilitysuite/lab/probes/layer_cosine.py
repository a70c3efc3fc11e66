"""How much of its direction a token keeps through a layer."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["layer_cosine"]


def layer_cosine(after: Tensor, before: Tensor) -> Tensor:
    """Mean cosine between each token's vector after a layer and before it: [S, ..., D], [S, ..., D] -> [S], float64.

    One minus it is the block influence of ShortGPT (Men et al., 2024). A vector that is zero has cosine 0.
    """
    after, before = after.double(), before.double()
    lengths = torch.linalg.vector_norm(after, dim=-1) * torch.linalg.vector_norm(before, dim=-1)
    cosines = torch.where(lengths == 0, 0.0, (after * before).sum(-1) / lengths)
    return cosines.flatten(1).mean(1)
