"""How far the parameters of each layer have gone from where they started."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["movement"]


def movement(moved_SL: Tensor, initial_SL: Tensor) -> Tensor:
    """|W_t - W_0| / |W_0| of each layer: [S, L], [S, L] -> [S, L]; 0 where nothing moved, inf away from zero.

    Args:
        moved_SL: Norm of the difference over all parameters of a layer.
        initial_SL: Norm of the initial values.
    """
    return torch.where(moved_SL == 0, 0.0, moved_SL / initial_SL)
