"""Synthetic tasks whose losses are known exactly.

Shape letters: S seeds, B sequences, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from stabilitysuite.lab.randomness import generator
from stabilitysuite.spec import Gaussian, Markov
from stabilitysuite.trace import Reference

__all__ = ["Chain", "GaussianStream", "MarkovStream", "chain", "reference"]

EVALUATION_SEQUENCES = 64
BATCHES_AT_ONCE = 32


@dataclass(frozen=True)
class Chain:
    """The conditional distribution of a Markov task and what follows from it."""

    rows: NDArray[np.float64]
    """P(next | previous) [V, V]."""
    stationary: NDArray[np.float64]
    """Distribution that the rows leave as it is [V]."""
    plateau: float
    """Entropy of the stationary distribution in nats: the best constant predictor."""
    floor: float
    """Entropy rate in nats: the best predictor of all."""

    def sample(self, source: np.random.Generator, shape: tuple[int, ...], length: int, lag: int) -> NDArray[np.int64]:
        """Sequences [*shape, length], started in the stationary distribution, in which token t follows t - lag."""
        uniform = source.random((*shape, length))
        rows, start = np.cumsum(self.rows, axis=1)[:, :-1], np.cumsum(self.stationary)[:-1]
        out = np.empty((*shape, length), dtype=np.int64)
        out[..., :lag] = np.searchsorted(start, uniform[..., :lag], side="right")
        for token in range(lag, length):
            out[..., token] = (uniform[..., token, None] >= rows[out[..., token - lag]]).sum(-1)
        return out


@lru_cache(maxsize=16)
def chain(vocab: int, sharpness: float) -> Chain:
    """The chain of that size: rows softmax(sharpness N(0, 1)), the same for every run and seed."""
    logits = generator("markov", vocab).standard_normal((vocab, vocab)) * sharpness
    rows = np.exp(logits - logits.max(1, keepdims=True))
    rows /= rows.sum(1, keepdims=True)
    system = np.vstack([rows.T - np.eye(vocab), np.ones((1, vocab))])
    stationary = np.linalg.lstsq(system, np.r_[np.zeros(vocab), 1.0], rcond=None)[0]
    entropies = -(rows * np.log(np.maximum(rows, 1e-300))).sum(1)
    return Chain(
        rows=rows,
        stationary=stationary,
        plateau=float(-(stationary * np.log(stationary)).sum()),
        floor=float(stationary @ entropies),
    )


def reference(task: Markov) -> Reference:
    """The task's known losses.

    With ``lag=1`` the current token says all there is to know, so the shallow floor is the floor; with a longer
    lag the current token is independent of the next one, so without attention the plateau is the best there is.
    """
    known = chain(task.vocab, task.sharpness)
    shallow = known.floor if task.lag == 1 else known.plateau
    return Reference(plateau=known.plateau, floor=known.floor, shallow_floor=shallow)


class MarkovStream:
    """Training batches and the evaluation set of a Markov task, for several seeds."""

    def __init__(self, task: Markov, seeds: Sequence[int], device: torch.device) -> None:
        self.task = task
        self.chain = chain(task.vocab, task.sharpness)
        self.device = device
        self.sources = [generator(seed, "data") for seed in seeds]
        self.seeds = len(seeds)
        self._drawn: list[NDArray[np.int64]] = []
        held_out = self._sequences(generator("markov", "evaluation"), (EVALUATION_SEQUENCES,))
        self.evaluation = torch.from_numpy(held_out).to(device)
        rows = torch.from_numpy(self.chain.rows)
        self._rows = rows[torch.from_numpy(self._context(held_out))].float().to(device)

    def _sequences(self, source: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.int64]:
        return self.chain.sample(source, shape, self.task.length + 1, self.task.lag)

    def _context(self, inputs: NDArray[np.int64]) -> NDArray[np.int64]:
        """The token that decides each scored prediction: [B, T + 1] -> [B, T - lag + 1]."""
        return inputs[:, : self.task.length - self.task.lag + 1]

    def batch(self) -> tuple[Tensor, Tensor]:
        """The next inputs and targets, each [S, B, T]."""
        if not self._drawn:  # many batches at once: drawing costs calls, not numbers
            shape = (BATCHES_AT_ONCE, self.task.batch)
            self._drawn = list(np.stack([self._sequences(source, shape) for source in self.sources], axis=1))
        tokens = torch.from_numpy(self._drawn.pop(0)).to(self.device, non_blocking=True)
        return tokens[..., :-1], tokens[..., 1:]

    def loss(self, logits_SBTV: Tensor, targets_SBT: Tensor) -> Tensor:
        """Mean cross-entropy of each seed [S], over the tokens whose context the model has seen."""
        scored = logits_SBTV[:, :, self.task.lag - 1 :].flatten(0, 2)
        losses = functional.cross_entropy(scored, targets_SBT[:, :, self.task.lag - 1 :].flatten(), reduction="none")
        return losses.view(logits_SBTV.shape[0], -1).mean(1)

    def evaluation_inputs(self) -> Tensor:
        """The evaluation set's inputs, the same for every seed [S, B, T]."""
        return self.evaluation[None, :, :-1].expand(self.seeds, -1, -1)

    def exact_loss(self, logits_SBTV: Tensor) -> Tensor:
        """Cross-entropy against the known conditional [S]: sum_j P(j | context) (-ln q_j), in nats."""
        log_q = functional.log_softmax(logits_SBTV[:, :, self.task.lag - 1 :].float(), dim=-1)
        return -(self._rows * log_q).sum(-1).mean((1, 2))


class GaussianStream:
    """Vectors N(0, 1) and random labels, for several seeds."""

    def __init__(self, task: Gaussian, width: int, seeds: Sequence[int], device: torch.device) -> None:
        self.task = task
        self.width = width
        self.device = device
        self.sources = [generator(seed, "data") for seed in seeds]

    def batch(self) -> tuple[Tensor, Tensor]:
        """Vectors [S, B, T, D] and labels [S, B, T]."""
        shape = (self.task.batch, self.task.tokens)
        vectors = np.stack([one.standard_normal((*shape, self.width), dtype=np.float32) for one in self.sources])
        labels = np.stack([one.integers(0, self.task.classes, shape) for one in self.sources])
        return torch.from_numpy(vectors).to(self.device), torch.from_numpy(labels).to(self.device)

    def loss(self, logits_SBTV: Tensor, targets_SBT: Tensor) -> Tensor:
        """Mean cross-entropy of each seed [S]."""
        losses = functional.cross_entropy(logits_SBTV.flatten(0, 2), targets_SBT.flatten(), reduction="none")
        return losses.view(logits_SBTV.shape[0], -1).mean(1)
