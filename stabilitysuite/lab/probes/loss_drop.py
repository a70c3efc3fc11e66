"""How well the gradient predicts what an update does to the loss."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["inner_product", "loss_drop"]


def inner_product(gradients: Sequence[Tensor], weights: Sequence[Tensor], batched: bool) -> Tensor:
    """<g, W> over all parameters of each seed: P tensors [S, ...] where ``batched`` -> [S], float64.

    In float64 the difference of two of them is exact enough for updates of a millionth of the weights, so that no
    copy of the weights is kept.
    """
    found = []
    for gradient, weight in zip(gradients, weights, strict=True):
        product = gradient.double() * weight.double()
        found.append(product.flatten(1).sum(1) if batched else product.sum().reshape(1))
    return torch.stack(found).sum(0)


def loss_drop(before_S: Tensor, after_S: Tensor, predicted_S: Tensor) -> Tensor:
    """(L(W) - L(W')) / <g, W - W'> of each seed: [S], [S], [S] -> [S], float64.

    The divisor is Taylor's first-order prediction for whatever the optimizer did; with plain SGD it is lr |g|^2. So
    1 for small updates, below 1 where curvature eats the gain, negative where the loss rises along a descent.

    Args:
        before_S: Loss before the update.
        after_S: Loss of the same batch after it.
        predicted_S: <g, W - W'> with the gradient g before clipping.
    """
    return (before_S.double() - after_S.double()) / predicted_S
