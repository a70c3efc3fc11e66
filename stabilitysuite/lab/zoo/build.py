"""From a specification to a module. Shape letters as in ``parts``; V classes of the readout."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from stabilitysuite.lab.zoo.attention import Attention, GatedAttentionUnit
from stabilitysuite.lab.zoo.parts import FeedForward, LayerNorm, Linear, Residual, Table, draw, sinusoids
from stabilitysuite.spec import GAU, Gaussian, KnownTask, Transformer

__all__ = ["Block", "Network", "build"]


class Block(nn.Sequential):
    """The residual branches of one layer, by name, in the order in which they are applied."""


def _block(spec: Transformer | GAU, seeds: Sequence[int], index: int) -> Block:
    def residual(branch: nn.Module) -> Residual:
        return Residual(seeds, branch, spec.width, spec.norm, spec.residual_scale)

    name = f"layers.{index}"
    if isinstance(spec, GAU):
        return Block(OrderedDict(gau=residual(GatedAttentionUnit(seeds, f"{name}.gau", spec))))
    branches: OrderedDict[str, nn.Module] = OrderedDict()
    if spec.attention:
        attention = Attention(seeds, f"{name}.attention", spec.width, spec.heads, spec.causal, spec.init)
        branches["attention"] = residual(attention)
    ffn = FeedForward(seeds, f"{name}.ffn", spec.width, spec.ffn, spec.activation, spec.init)
    branches["ffn"] = residual(ffn)
    return Block(branches)


class Network(nn.Module):
    """Embedding, layers and readout: tokens [S, B, T], or vectors [S, B, T, D], -> logits [S, B, T, V].

    Where the task has one label a sequence they are [S, B, V], read from the last token of a causal model and from
    the mean over the tokens of another one.
    """

    def __init__(self, spec: Transformer | GAU, task: KnownTask | Gaussian, seeds: Sequence[int]) -> None:
        super().__init__()
        width, std = spec.width, spec.width**-0.5
        self.positions: nn.Parameter | None = None
        self.fixed_positions: Tensor | None
        self.register_buffer("fixed_positions", None, persistent=False)
        self.embedding: Table | None = None
        if isinstance(task, KnownTask):
            self.embedding = Table(seeds, "embedding", task.symbols, width, std)
            if spec.positions == "learned":
                self.positions = draw(seeds, "positions", (1, task.length, width), std)
            elif spec.positions == "sinusoidal":
                self.fixed_positions = sinusoids(task.length, width)  # a buffer: it moves with the network
            self.embedding_norm = LayerNorm(seeds, width)
        self.layers = nn.ModuleList(_block(spec, seeds, index) for index in range(spec.layers))
        self.final_norm = LayerNorm(seeds, width) if spec.norm == "pre" else None
        self.pool: Callable[[Tensor], Tensor] | None = None
        if isinstance(task, KnownTask) and task.one_label:
            self.pool = _last if spec.causal else _mean
        self.readout = Linear(seeds, "readout", width, task.outputs, std)

    def forward(self, x: Tensor) -> Tensor:
        if self.embedding is not None:
            x = self.embedding(x)
            if self.positions is not None:
                x = x + self.positions
            elif self.fixed_positions is not None:
                x = x + self.fixed_positions
            x = self.embedding_norm(x)
        for layer in self.layers:
            x = layer(x)
        if self.final_norm is not None:
            x = self.final_norm(x)
        if self.pool is not None:  # after the last norm: without attention the logits are then sums over tokens
            x = self.pool(x)
        logits: Tensor = self.readout(x.flatten(1, -2))
        return logits.view(*x.shape[:-1], -1)


def _last(x_SBTD: Tensor) -> Tensor:
    return x_SBTD[:, :, -1]


def _mean(x_SBTD: Tensor) -> Tensor:
    return x_SBTD.mean(2)


def build(spec: Transformer | GAU, task: KnownTask | Gaussian, seeds: Sequence[int]) -> Network:
    """The network of a specification, one copy of its parameters for each seed.

    Args:
        spec: Which model.
        task: What it is trained on; fixes tokens, length and classes.
        seeds: One seed a copy; each draws its weights from hash(seed, parameter name).
    """
    with torch.device("cpu"):
        return Network(spec, task, seeds)
