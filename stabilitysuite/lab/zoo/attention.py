"""Multi-head attention and the gated attention unit. Shape letters as in ``parts``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from stabilitysuite.lab.zoo.parts import ACTIVATIONS, Linear
from stabilitysuite.spec import GAU, Initialisation

__all__ = ["Attention", "GatedAttentionUnit"]


class Attention(nn.Module):
    """Softmax attention with scale 1/sqrt(K): [S, B, T, D] -> [S, B, T, D] (Vaswani et al., 2017)."""

    def __init__(
        self, seeds: Sequence[int], name: str, width: int, heads: int, causal: bool, init: Initialisation
    ) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.query, self.key, self.value, self.output = (
            Linear(seeds, f"{name}.{role}", width, width, init.std(role, width, width))
            for role in ("query", "key", "value", "output")
        )

    def _heads(self, role: Linear, x_SBTD: Tensor) -> Tensor:
        """[S, B, T, D] -> [S B, H, T, K]."""
        seeds, batch, tokens, width = x_SBTD.shape
        split = (seeds * batch, tokens, self.heads, width // self.heads)
        out: Tensor = role(x_SBTD.flatten(1, 2))
        return out.view(split).transpose(1, 2)

    def forward(self, x_SBTD: Tensor) -> Tensor:
        q, k, v = (self._heads(role, x_SBTD) for role in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        out: Tensor = self.output(mixed.transpose(1, 2).reshape(x_SBTD.flatten(1, 2).shape))
        return out.view(x_SBTD.shape)

    def logits(self, x_SBTD: Tensor) -> Tensor:
        """What the softmax is taken of, hidden keys included: [S, B, T, D] -> [S, B, H, T, T]."""
        q, k = (self._heads(role, x_SBTD) for role in (self.query, self.key))
        logits = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2))
        return logits.view(*x_SBTD.shape[:2], *logits.shape[1:])


class GatedAttentionUnit(nn.Module):
    """O = (U * A V) W_o with A = relu(Z Z^T)^2 / (T K): [S, B, T, D] -> [S, B, T, D].

    A causal mask leaves the divisor at T, as the published code does: early rows are sums over few tokens.
    """

    def __init__(self, seeds: Sequence[int], name: str, spec: GAU) -> None:
        super().__init__()
        inner, init = spec.width * spec.expansion, spec.init
        self.spec = spec
        self.causal = spec.causal
        self.activation = ACTIVATIONS[spec.activation]
        self.gate = Linear(seeds, f"{name}.gate", spec.width, inner, init.std("ffn_in", spec.width, inner))
        self.value = Linear(seeds, f"{name}.value", spec.width, inner, init.std("value", spec.width, inner))
        self.shared = Linear(seeds, f"{name}.shared", spec.width, spec.key, init.std("query", spec.width, spec.key))
        self.output = Linear(seeds, f"{name}.output", inner, spec.width, init.std("output", inner, spec.width))

    def forward(self, x_SBTD: Tensor) -> Tensor:
        seeds, batch, tokens, _ = x_SBTD.shape
        x_SND = x_SBTD.flatten(1, 2)
        gate, value, shared = (self.activation(part(x_SND)) for part in (self.gate, self.value, self.shared))
        value = value.view(seeds * batch, tokens, -1)
        z = shared.view(seeds * batch, tokens, -1)
        if self.spec.kernel == "diagonal":
            weights = functional.relu(z.square().sum(-1, keepdim=True)).square() / (tokens * self.spec.key)
            mixed = weights * value
        else:
            weights = functional.relu(torch.bmm(z, z.transpose(1, 2))).square() / (tokens * self.spec.key)
            if self.spec.causal:
                weights = weights.tril()
            mixed = torch.bmm(weights, value)
        out: Tensor = self.output(gate * mixed.view(gate.shape))
        return out.view(x_SBTD.shape)

    def logits(self, x_SBTD: Tensor) -> Tensor:
        """What the squared ReLU is taken of, Z Z^T / sqrt(T K), with hidden keys: [S, B, T, D] -> [S, B, 1, T, T]."""
        seeds, batch, tokens, _ = x_SBTD.shape
        z = self.activation(self.shared(x_SBTD.flatten(1, 2))).view(seeds, batch, 1, tokens, -1)
        logits: Tensor = torch.matmul(z, z.transpose(-1, -2)) / (tokens * self.spec.key) ** 0.5
        return logits
