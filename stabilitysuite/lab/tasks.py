"""Synthetic tasks whose losses are known exactly.

Shape letters: S seeds, B sequences, T tokens, V vocabulary, C classes of a whole sequence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from stabilitysuite.lab.randomness import generator
from stabilitysuite.task import Classification, Gaussian, Induction, KnownTask, Markov, MaskedToken
from stabilitysuite.trace import Reference

__all__ = [
    "IGNORED",
    "Chain",
    "ClassificationStream",
    "GaussianStream",
    "InductionStream",
    "KnownStream",
    "MarkovStream",
    "MaskedStream",
    "between",
    "chain",
    "reference",
    "stream",
]

EVALUATION_SEQUENCES = 64
BATCHES_AT_ONCE = 32
IGNORED = -100
"""Target of a prediction that is not scored, as torch marks it."""


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
    return Chain(
        rows=rows,
        stationary=stationary,
        plateau=float(-(stationary * np.log(stationary)).sum()),
        floor=float(stationary @ _entropies(rows)),
    )


def between(rows: NDArray[np.float64], left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
    """P(token | left, right) of a chain with these rows: [...], [...] -> [..., V], by Bayes' rule."""
    joint = rows[left] * rows.T[right]
    posterior: NDArray[np.float64] = joint / joint.sum(-1, keepdims=True)
    return posterior


def _entropies(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Entropy over the last axis, in nats."""
    found: NDArray[np.float64] = -(p * np.log(np.maximum(p, 1e-300))).sum(-1)
    return found


# ---------------------------------------------------------------------------------------------------- known losses


def _of_markov(task: Markov) -> Reference:
    """The entropies of the chain.

    With ``lag=1`` the current token says all there is to know, so the shallow floor is the floor; with a longer
    lag the current token is independent of the next one, so without attention the plateau is the best there is.
    """
    known = chain(task.vocab, task.sharpness)
    shallow = known.floor if task.lag == 1 else known.plateau
    return Reference(plateau=known.plateau, floor=known.floor, shallow_floor=shallow)


def _of_masked(task: MaskedToken) -> Reference:
    """H(token | neighbours), the mean over pairs of neighbours with two steps of the chain between them."""
    known = chain(task.vocab, task.sharpness)
    right = np.arange(task.vocab)
    two_steps = known.rows @ known.rows
    floor = sum(
        known.stationary[left] * two_steps[left] @ _entropies(between(known.rows, np.full_like(right, left), right))
        for left in range(task.vocab)
    )
    return Reference(plateau=known.plateau, floor=float(floor), shallow_floor=known.plateau)


def _of_classification(task: Classification) -> Reference:
    """The Bayes risk, summed over how often a sequence takes each label's step.

    The labels are alike, so label 0 is taken for the true one: it takes its own step with probability p and each
    other one with q = (1 - p) / (V - 1), and the posterior depends on the counts n only, as softmax(n ln(p / q)).
    The entropy of the token frequencies is no use here: single tokens are uniform, so nothing better than ln C can
    be had of logits that add up a number for each token, as cross-entropy is convex in them and level at zero.
    """
    steps, p, q = task.length - 1, task.signal, _other(task)
    counts, left = np.zeros((1, 0), dtype=np.int64), np.array([steps])
    for _ in range(task.classes):  # every way of sharing the steps out, label by label
        times = left + 1
        own = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        counts = np.concatenate([np.repeat(counts, times, axis=0), own[:, None]], axis=1)
        left = np.repeat(left, times) - own
    factorial = np.array([math.factorial(number) for number in range(steps + 1)], dtype=np.float64)
    ways = factorial[steps] / (factorial[counts].prod(1) * factorial[left])
    others = counts[:, 1:].sum(1)
    chances = ways * p ** counts[:, 0] * q**others * ((task.vocab - task.classes) * q) ** left
    risk = -np.log(_posterior(counts, task)[:, 0])
    plateau = math.log(task.classes)
    return Reference(plateau=plateau, floor=float(chances @ risk), shallow_floor=plateau)


def _other(task: Classification) -> float:
    """Probability of each step that is not the label's."""
    return (1 - task.signal) / (task.vocab - 1)


def _posterior(counts: NDArray[np.int64], task: Classification) -> NDArray[np.float64]:
    """P(label | counts of the labels' steps): [..., C] -> [..., C]."""
    logits = counts * math.log(task.signal / _other(task))
    odds = np.exp(logits - logits.max(-1, keepdims=True))
    posterior: NDArray[np.float64] = odds / odds.sum(-1, keepdims=True)
    return posterior


def _of_induction(task: Induction) -> Reference:
    """The value of a queried key is certain for who looks it up, and uniform for who sees the key alone."""
    plateau = math.log(task.vocab)
    return Reference(plateau=plateau, floor=0.0, shallow_floor=plateau)


# --------------------------------------------------------------------------------------------------------- streams


class KnownStream:
    """Training batches and the evaluation set of a task with known losses, for several seeds.

    Args:
        task: Which.
        seeds: One a copy of the model; each draws its own batches.
        device: Where batches are wanted.
    """

    purpose: str
    """Name of the task in the generator of its evaluation set."""
    held_out = EVALUATION_SEQUENCES
    """Sequences of the evaluation set."""
    weight = 1.0
    """Predictions of a sequence over those that are scored, where the others are marked IGNORED."""

    def __init__(self, task: KnownTask, seeds: Sequence[int], device: torch.device) -> None:
        self.device = device
        self.sources = [generator(seed, "data") for seed in seeds]
        self.seeds = len(seeds)
        self._batch = task.batch
        self._drawn: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        inputs, targets = self._draw(generator(self.purpose, "evaluation"), (self.held_out,))
        self._inputs = torch.from_numpy(inputs).to(device)
        self._rows = torch.from_numpy(self._conditional(inputs, targets)).to(device)

    def _draw(self, source: np.random.Generator, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs [*shape, T] and targets [*shape, T], or [*shape] where a sequence has one label."""
        raise NotImplementedError

    def _conditional(self, inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
        """True probabilities of each scored prediction; zero where it is IGNORED."""
        raise NotImplementedError

    def _scored(self, predictions: Tensor) -> Tensor:
        """The part of logits or targets [S, B, T, ...] that counts, where it is the same in every sequence."""
        return predictions

    def batch(self) -> tuple[Tensor, Tensor]:
        """The next inputs [S, B, T] and targets, [S, B, T] or [S, B]."""
        if not self._drawn:  # many batches at once: drawing costs calls, not numbers
            drawn = [self._draw(source, (BATCHES_AT_ONCE, self._batch)) for source in self.sources]
            inputs, targets = (np.stack(same, axis=1) for same in zip(*drawn, strict=True))
            self._drawn = list(zip(inputs, targets, strict=True))
        inputs_SBT, targets = self._drawn.pop(0)
        return (
            torch.from_numpy(inputs_SBT).to(self.device, non_blocking=True),
            torch.from_numpy(targets).to(self.device, non_blocking=True),
        )

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of each seed [S] over what is scored: logits [S, B, T, V] or [S, B, C]."""
        scored = self._scored(logits)
        losses = functional.cross_entropy(
            scored.flatten(0, -2), self._scored(targets).flatten(), ignore_index=IGNORED, reduction="none"
        )
        return losses.view(logits.shape[0], -1).mean(1) * self.weight

    def evaluation_inputs(self) -> Tensor:
        """The evaluation set's inputs, the same for every seed [S, B, T]."""
        return self._inputs[None].expand(self.seeds, -1, -1)

    def exact_loss(self, logits: Tensor) -> Tensor:
        """Cross-entropy against the known conditional [S]: sum_j P(j | context) (-ln q_j), in nats."""
        scored = self._scored(logits)
        log_q = functional.log_softmax(scored if scored.dtype == torch.float64 else scored.float(), dim=-1)
        return -(self._rows.to(log_q.dtype) * log_q).sum(-1).flatten(1).mean(1) * self.weight


class MarkovStream(KnownStream):
    """Sequences of a chain, and the same one token on."""

    purpose = "markov"

    def __init__(self, task: Markov, seeds: Sequence[int], device: torch.device) -> None:
        self.task = task
        self.chain = chain(task.vocab, task.sharpness)
        super().__init__(task, seeds, device)

    def _draw(self, source: np.random.Generator, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        tokens = self.chain.sample(source, shape, self.task.length + 1, self.task.lag)
        return tokens[..., :-1], tokens[..., 1:]

    def _conditional(self, inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
        del targets
        return self.chain.rows[inputs[:, : self.task.length - self.task.lag + 1]]

    def _scored(self, predictions: Tensor) -> Tensor:
        """The tokens whose context the model has seen."""
        return predictions[:, :, self.task.lag - 1 :]


class MaskedStream(KnownStream):
    """Sequences of a chain in which some tokens are masked, and what they were."""

    purpose = "masked"

    def __init__(self, task: MaskedToken, seeds: Sequence[int], device: torch.device) -> None:
        self.task = task
        self.chain = chain(task.vocab, task.sharpness)
        self.weight = task.length / task.masked
        super().__init__(task, seeds, device)

    def _draw(self, source: np.random.Generator, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        task = self.task
        tokens = self.chain.sample(source, shape, task.length, 1)
        # Choosing among fewer places and spreading the choice leaves a gap after each; the ends are never chosen.
        places = source.random((*shape, task.length - 1 - task.masked)).argsort(-1)[..., : task.masked]
        places = np.sort(places, axis=-1) + np.arange(task.masked) + 1
        masked = np.zeros(tokens.shape, dtype=bool)
        np.put_along_axis(masked, places, True, axis=-1)
        return np.where(masked, task.vocab, tokens), np.where(masked, tokens, IGNORED)

    def _conditional(self, inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
        rows = np.zeros((*inputs.shape, self.task.vocab))
        sequence, place = np.nonzero(targets != IGNORED)
        rows[sequence, place] = between(self.chain.rows, inputs[sequence, place - 1], inputs[sequence, place + 1])
        return rows


class ClassificationStream(KnownStream):
    """Sequences that count on by their label."""

    purpose = "classification"
    held_out = 256  # with one label each, they are cheaper than 64 in which every token is one

    def __init__(self, task: Classification, seeds: Sequence[int], device: torch.device) -> None:
        self.task = task
        super().__init__(task, seeds, device)

    def _draw(self, source: np.random.Generator, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        task = self.task
        labels = source.integers(0, task.classes, shape)
        start = source.integers(0, task.vocab, (*shape, 1))
        on = source.random((*shape, task.length - 1)) < task.signal
        off = source.integers(1, task.vocab, on.shape)  # from the label's step to another one
        steps = labels[..., None] + np.where(on, 0, off)
        return np.concatenate([start, start + steps.cumsum(-1)], axis=-1) % task.vocab, labels

    def _conditional(self, inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
        del targets
        steps = np.diff(inputs, axis=-1) % self.task.vocab
        return _posterior((steps[..., None] == np.arange(self.task.classes)).sum(-2), self.task)


class InductionStream(KnownStream):
    """Pairs of keys and values, then keys whose values are asked for."""

    purpose = "induction"

    def __init__(self, task: Induction, seeds: Sequence[int], device: torch.device) -> None:
        self.task = task
        super().__init__(task, seeds, device)

    def _draw(self, source: np.random.Generator, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        count = self.task.vocab
        values = source.random((*shape, count)).argsort(-1)
        shown = source.integers(0, count, (*shape, count))
        asked = source.integers(0, count, (*shape, self.task.queries))
        keys = np.concatenate([shown, np.take_along_axis(shown, asked, axis=-1)], axis=-1)
        pairs = np.stack([keys, count + np.take_along_axis(values, keys, axis=-1)], axis=-1)
        tokens = pairs.reshape(*shape, -1)
        return tokens[..., :-1], tokens[..., 1:] - count

    def _conditional(self, inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
        del inputs
        return np.eye(self.task.vocab)[targets[:, 2 * self.task.vocab :: 2]]

    def _scored(self, predictions: Tensor) -> Tensor:
        """What comes after each queried key."""
        return predictions[:, :, 2 * self.task.vocab :: 2]


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


_KNOWN: dict[type[KnownTask], tuple[Callable[..., Reference], Callable[..., KnownStream]]] = {
    Markov: (_of_markov, MarkovStream),
    MaskedToken: (_of_masked, MaskedStream),
    Classification: (_of_classification, ClassificationStream),
    Induction: (_of_induction, InductionStream),
}


@lru_cache(maxsize=16)
def reference(task: KnownTask) -> Reference:
    """The task's known losses."""
    return _KNOWN[type(task)][0](task)


def stream(task: KnownTask, seeds: Sequence[int], device: torch.device) -> KnownStream:
    """The task's batches and its evaluation set."""
    return _KNOWN[type(task)][1](task, seeds, device)
