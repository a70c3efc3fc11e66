"""How much of the model's input is still in the residual stream of a Post-LN model."""

from __future__ import annotations

from torch import Tensor

from stabilitysuite.lab.probes.residual_std import residual_std

__all__ = ["shortcut_weight", "through_norm"]


def through_norm(z: Tensor) -> Tensor:
    """What a norm multiplies its input by, 1 / std(z), of each seed: [S, ...] -> [S]."""
    return 1 / residual_std(z)


def shortcut_weight(factors: Tensor, scale: float) -> Tensor:
    """Weight of x_0 in x_l for every sub-layer l: the product of scale / std(x_k + F_k) up to it.

    With independent branches of unit variance it is 2^(-l/2) (kexue.fm/archives/8747).

    Args:
        factors: What each norm multiplies by, in order [..., K].
        scale: Residual scale a of LN(a x + F(x)).
    """
    return (factors * scale).cumprod(-1)
