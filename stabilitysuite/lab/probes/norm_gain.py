"""Mean gain of each normalisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["gains", "norm_gain"]

GAINS = ("gain", "weight", "gamma", "scale")
"""What the gain of a normalisation is called."""


def gains(module: nn.Module, parameters: list[tuple[str, nn.Parameter]]) -> list[tuple[str, nn.Parameter]]:
    """Those of the named parameters that are gains: of a module whose class has "norm" in its name."""
    found = []
    for name, value in parameters:
        owner, _, own = name.rpartition(".")
        if own in GAINS and "norm" in type(module.get_submodule(owner)).__name__.lower():
            found.append((name, value))
    return found


def norm_gain(gain: Tensor) -> Tensor:
    """Mean over the features of each seed: [S, ...] -> [S], float64."""
    return gain.flatten(1).mean(1, dtype=torch.float64)
