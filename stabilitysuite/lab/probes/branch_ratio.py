"""How much a residual branch adds to the stream it is added to."""

from __future__ import annotations

from torch import Tensor

from stabilitysuite.lab.probes.residual_std import residual_std

__all__ = ["branch_ratio"]


def branch_ratio(branch: Tensor, stream: Tensor) -> Tensor:
    """std(F(x)) / std(x) of each seed: [S, ...], [S, ...] -> [S]."""
    return residual_std(branch) / residual_std(stream)
