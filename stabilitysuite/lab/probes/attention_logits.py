"""Attention logits: their spread, their size, and the entropy of the softmax over them.

Shape letters: S seeds, B sequences, H heads, T tokens; the last axis is that of the keys.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stabilitysuite.lab.probes.norm import norm_per_seed, single

__all__ = ["attention_entropy", "attention_logit_max", "attention_logit_std"]


def _seen(logits_SBHTT: Tensor, causal: bool) -> Tensor:
    """Whether a query sees a key [T, T]."""
    tokens = logits_SBHTT.shape[-1]
    every = torch.ones(tokens, tokens, dtype=torch.bool, device=logits_SBHTT.device)
    return every.tril() if causal else every


def attention_logit_std(logits_SBHTT: Tensor, causal: bool) -> Tensor:
    """Standard deviation within a query, pooled over all queries, heads and sequences: [S, B, H, T, T] -> [S], float64.

    Deviations are from the mean over the keys that the query sees, since a softmax is blind to what all of them
    share; a query that sees n keys has n - 1 degrees of freedom, so a mask leaves independent logits of standard
    deviation s at s.
    """
    seen_TT, logits = _seen(logits_SBHTT, causal), single(logits_SBHTT)
    counts_T1 = seen_TT.sum(-1, keepdim=True)
    means = torch.where(seen_TT, logits, 0.0).sum(-1, keepdim=True) / counts_T1
    tokens = logits.shape[-1]
    freedom = tokens * (tokens - 1) // (2 if causal else 1) * logits[0, ..., 0, 0].numel()
    return norm_per_seed(torch.where(seen_TT, logits - means, 0.0)) / math.sqrt(max(freedom, 1))


def attention_logit_max(logits_SBHTT: Tensor, causal: bool) -> Tensor:
    """Largest absolute logit that any query sees: [S, B, H, T, T] -> [S], float64.

    Up to the sign the number that grows with the learning rate (Wortsman et al., 2023) and that QK-clip limits.
    """
    seen = torch.where(_seen(logits_SBHTT, causal), logits_SBHTT.abs(), 0.0)
    return seen.flatten(1).amax(1).double()


def attention_entropy(logits_SBHTT: Tensor, causal: bool) -> Tensor:
    """Entropy of the softmax in nats, mean over queries, heads and sequences: [S, B, H, T, T] -> [S], float64.

    Not normalised: uniform attention has ln T, under a causal mask the mean of ln t over t = 1 ... T. Its fall is the
    entropy collapse of Zhai et al. (2023, arXiv 2303.06296).
    """
    seen_TT = _seen(logits_SBHTT, causal)
    log_p = torch.log_softmax(single(logits_SBHTT).masked_fill(~seen_TT, -math.inf), dim=-1)
    terms = torch.where(seen_TT, log_p.exp() * log_p, 0.0)  # not -inf times 0
    return -terms.sum(-1).flatten(1).mean(1, dtype=torch.float64)
