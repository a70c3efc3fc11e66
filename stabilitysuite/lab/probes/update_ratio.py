"""Update-to-weight ratio, of tensors with two or more dimensions: biases start at zero and have none."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stabilitysuite.lab.probes.norm import norms_of_many

__all__ = ["update_ratio"]


def update_ratio(
    before: Sequence[Tensor], after: Sequence[Tensor], batched: bool, seeds: int, *, overwrite: bool = False
) -> Tensor:
    """|W' - W| / |W| of each tensor and seed: P tensors [S, ...] -> [S, P]; inf where W is zero.

    Args:
        before: Weights before the update.
        after: Weights after it.
        batched: Whether they have a leading seed dimension.
        seeds: S.
        overwrite: Put the differences into ``before``: fresh memory costs as much as the subtraction.
    """
    norms_SP = norms_of_many(before, batched, seeds)
    if overwrite:
        torch._foreach_sub_(list(before), list(after))
        return norms_of_many(before, batched, seeds) / norms_SP
    return norms_of_many(torch._foreach_sub(list(after), list(before)), batched, seeds) / norms_SP
