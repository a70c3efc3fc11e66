"""Relative change of the output on a fixed batch: by an update, and by a small random step of the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from stabilitysuite.lab.probes.norm import norm_per_seed, norms_of_many
from stabilitysuite.lab.randomness import generator

__all__ = ["RELATIVE", "directions", "output_change", "perturbed"]

RELATIVE = 1e-3
"""Relative size of the random step: far above the rounding of float32, small enough to be linear."""


def output_change(before: Tensor, after: Tensor) -> Tensor:
    """|f' - f| / |f| of each seed: [S, ...], [S, ...] -> [S], float64."""
    return norm_per_seed(after - before) / norm_per_seed(before)


def directions(seeds: Sequence[int], named: Sequence[tuple[str, Tensor]], batched: bool) -> list[Tensor]:
    """For each matrix normal draws of its shape, each seed's from hash(seed, name): the same at every step."""
    found = []
    for name, matrix in named:
        shape = matrix.shape[int(batched) :]
        drawn = [torch.from_numpy(generator(seed, "perturbation", name).standard_normal(shape)) for seed in seeds]
        found.append((torch.stack(drawn) if batched else drawn[0]).to(matrix.device, matrix.dtype, non_blocking=True))
    return found


@contextlib.contextmanager
def perturbed(matrices: Sequence[Tensor], steps: Sequence[Tensor], batched: bool, seeds: int) -> Iterator[None]:
    """Inside, each matrix W is W + d, d along its direction with |d| = ``RELATIVE`` |W|; afterwards W, to the bit.

    Args:
        matrices: The parameters, [S, ...] where ``batched``; no graph may hold them.
        steps: Their directions, of any length.
        batched: Whether they have a leading seed dimension.
        seeds: S.
    """
    before = [matrix.detach().clone() for matrix in matrices]
    sizes_SP = RELATIVE * norms_of_many(before, batched, seeds) / norms_of_many(steps, batched, seeds)
    with torch.no_grad():
        try:
            for matrix, direction, size_S in zip(matrices, steps, sizes_SP.unbind(1), strict=True):
                shape = (-1, *[1] * (matrix.dim() - 1)) if batched else [1] * matrix.dim()
                matrix.add_(direction * size_S.view(shape).to(matrix.dtype))
            yield
        finally:
            torch._foreach_copy_(list(matrices), before)
