"""Building blocks with a leading seed dimension.

Shape letters: S seeds, B sequences, T tokens, D width, I and O inputs and outputs of a matrix, H heads, K head
width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from stabilitysuite.lab.randomness import generator
from stabilitysuite.spec import Initialisation

__all__ = ["ACTIVATIONS", "LayerNorm", "Linear", "Residual", "Table", "draw", "sinusoids"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "swish": functional.silu,
}


def draw(seeds: Sequence[int], name: str, shape: tuple[int, ...], std: float) -> nn.Parameter:
    """A parameter [S, *shape] of normal draws, each seed's from hash(seed, name).

    The name is part of the draw so that adding a parameter leaves the others as they were.
    """
    stacked = np.stack(
        [generator(seed, "init", name).standard_normal(shape, dtype=np.float32) * np.float32(std) for seed in seeds]
    )
    return nn.Parameter(torch.from_numpy(stacked))


class Linear(nn.Module):
    """x W + b for each seed: [S, N, I] -> [S, N, O]; b starts at zero."""

    def __init__(self, seeds: Sequence[int], name: str, fan_in: int, fan_out: int, std: float) -> None:
        super().__init__()
        self.weight = draw(seeds, f"{name}.weight", (fan_in, fan_out), std)
        self.bias = nn.Parameter(torch.zeros(len(seeds), 1, fan_out))

    def forward(self, x_SNI: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x_SNI, self.weight)


class LayerNorm(nn.Module):
    """Layer normalisation over the last axis [S, B, T, D], gain 1 and bias 0 of its own for each seed."""

    def __init__(self, seeds: Sequence[int], width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(len(seeds), 1, 1, width))
        self.bias = nn.Parameter(torch.zeros(len(seeds), 1, 1, width))

    def forward(self, x_SBTD: Tensor) -> Tensor:
        return torch.addcmul(self.bias, functional.layer_norm(x_SBTD, x_SBTD.shape[-1:]), self.gain)


class Table(nn.Module):
    """A lookup table for each seed: indices [S, B, T] -> [S, B, T, D]."""

    def __init__(self, seeds: Sequence[int], name: str, rows: int, width: int, std: float) -> None:
        super().__init__()
        self.weight = draw(seeds, f"{name}.weight", (rows, width), std)

    def forward(self, index_SBT: Tensor) -> Tensor:
        seeds, rows, width = self.weight.shape
        offset = torch.arange(seeds, device=index_SBT.device).view(-1, 1, 1) * rows
        return functional.embedding(index_SBT + offset, self.weight.view(seeds * rows, width))


class Residual(nn.Module):
    """One residual branch with its norm: [S, B, T, D] -> [S, B, T, D].

    ``post``: LN(a x + F(x)); ``pre``: a x + F(LN(x)); ``none``: a x + F(x).
    """

    def __init__(self, seeds: Sequence[int], branch: nn.Module, width: int, placement: str, scale: float) -> None:
        super().__init__()
        self.branch = branch
        self.norm = None if placement == "none" else LayerNorm(seeds, width)
        self.placement = placement
        self.scale = scale

    def forward(self, x_SBTD: Tensor) -> Tensor:
        inner = self.norm(x_SBTD) if self.norm is not None and self.placement == "pre" else x_SBTD
        out: Tensor = torch.add(self.branch(inner), x_SBTD, alpha=self.scale)
        return self.norm(out) if self.norm is not None and self.placement == "post" else out


def sinusoids(length: int, width: int) -> Tensor:
    """Fixed positions [T, D]: sin and cos of p / 10000^(2i/D), interleaved (Vaswani et al., 2017, section 3.5)."""
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    table = torch.zeros(length, width, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)[:, : width // 2]
    return table.float()


class FeedForward(nn.Module):
    """Two matrices with an activation between them: [S, B, T, D] -> [S, B, T, D]."""

    def __init__(
        self,
        seeds: Sequence[int],
        name: str,
        width: int,
        multiple: int,
        activation: str,
        init: Initialisation,
    ) -> None:
        super().__init__()
        hidden = width * multiple
        self.activation = ACTIVATIONS[activation]
        self.expand = Linear(seeds, f"{name}.expand", width, hidden, init.std("ffn_in", width, hidden))
        self.contract = Linear(seeds, f"{name}.contract", hidden, width, init.std("ffn_out", hidden, width))

    def forward(self, x_SBTD: Tensor) -> Tensor:
        out: Tensor = self.contract(self.activation(self.expand(x_SBTD.flatten(1, 2))))
        return out.view(x_SBTD.shape)
