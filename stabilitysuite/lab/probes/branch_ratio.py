"""How much a residual branch adds to the stream it is added to."""

from __future__ import annotations

from torch import Tensor

from stabilitysuite.lab.probes.residual_std import residual_std

__all__ = ["branch_ratio"]


def branch_ratio(branch: Tensor, stream: Tensor, stream_std: Tensor | None = None) -> Tensor:
    """std(F(x)) / std(x) of each seed: [S, ...], [S, ...] -> [S].

    Args:
        branch: F(x).
        stream: x.
        stream_std: Standard deviation of the stream [S], where it is known already.
    """
    return residual_std(branch) / (residual_std(stream) if stream_std is None else stream_std)
