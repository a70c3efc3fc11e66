"""Several seeds of a module of the user's in one pass, where that is proved to change nothing and likely to pay.

Each seed's module is built as always; their parameters are stacked, and ``torch.func`` maps one forward pass over
the stack. The backward pass is the ordinary one, so everything else is as for a zoo model: clipping, norms, probes
and non-finite numbers are per seed. docs/design/several-seeds.md holds the measurements behind the limits.
"""

from __future__ import annotations

import dataclasses
import math
import random
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from stabilitysuite.lab.loop import Loop
from stabilitysuite.lab.randomness import seeded
from stabilitysuite.lab.subject import OwnSubject, Subject
from stabilitysuite.spec import Run, Spec, Training
from stabilitysuite.trace import Trace

__all__ = ["EnsembleSubject", "why_not"]

FEWEST_SEEDS = 5
FEWEST_STEPS = 30
"""Below these too little is gained over the proof, two steps of each seed both ways."""
MOST_WORK = 5_000_000
"""Numbers of the module times numbers of a batch, above which arithmetic dominates and one pass is the slower way."""
SAME = 1e-5
"""Largest relative difference of losses and gradient norms that the proof allows."""
NOISE = 1e-6
"""Differences below this share of the largest of a row are rounding: some gradients are zero but for it."""


class _Calls(nn.Module):
    """What a subject computes as the forward pass of a module, so that its parameters can be replaced for a call."""

    def __init__(self, subject: OwnSubject) -> None:
        super().__init__()
        self.model = subject.module
        self.subject = subject

    def forward(self, method: str, *given: Any) -> Tensor:
        """What the named method returns for the one seed."""
        found: Tensor | None = getattr(self.subject, method)(*given)
        if found is None:
            raise ValueError(f"{method} are not known")
        return found.squeeze(0)


class EnsembleSubject(Subject):
    """Modules of the user's, all seeds in one pass.

    Args:
        training: What is trained.
        seeds: At least two.
        device: Where.

    Raises:
        ValueError: The modules differ in more than their parameters' numbers.
    """

    batched = True

    def __init__(self, training: Training, seeds: Sequence[int], device: torch.device) -> None:
        self.seeds = tuple(seeds)
        self.alone = [OwnSubject(training, seed, device) for seed in seeds]
        first = self.alone[0]
        _check_alike([one.module for one in self.alone])
        _stack_into(first.module, [one.module for one in self.alone])
        self.module = first.module
        self.layers, self.branches, self.reference = first.layers, first.branches, first.reference
        self._calls = _Calls(first)
        self._parameters: dict[str, Tensor] = {f"model.{name}": value for name, value in self.module.named_parameters()}

    def remarks(self) -> list[str]:
        """What was noticed about the data, each once."""
        return list(dict.fromkeys(note for one in self.alone for note in one.notes))

    def next_batch(self) -> Any:
        """The next batch of each seed, stacked [S, ...]."""
        leaves, forms = zip(*(tree_flatten(one.next_batch()) for one in self.alone), strict=True)
        if any(form != forms[0] for form in forms) or not all(isinstance(leaf, Tensor) for leaf in leaves[0]):
            raise ValueError("batches are not tensors of one form")
        return tree_unflatten([torch.stack(same) for same in zip(*leaves, strict=True)], forms[0])

    def losses(self, batch: Any) -> Tensor:
        """Loss of each seed [S]."""
        return self._mapped("losses", batch)

    def exact_losses(self) -> Tensor | None:
        """Against the task's own conditional, where there is a task [S]."""
        return None if self.alone[0].stream is None else self._mapped("exact_losses")

    def fixed(self, batch: Any) -> Any:
        """As for one seed."""
        return self.alone[0].fixed(batch)

    def outputs(self, fixed: Any) -> Tensor:
        """Of each seed [S, ...]; the inputs of a task are common to all."""
        return self._mapped("outputs", fixed, where=0 if self.alone[0].stream is None else None)

    def _mapped(self, method: str, *given: Any, where: int | None = 0) -> Tensor:
        def one(parameters: dict[str, Tensor], *given: Any) -> Any:
            return functional_call(self._calls, parameters, (method, *given))

        mapped: Tensor = vmap(one, in_dims=(0, *[where] * len(given)))(self._parameters, *given)
        return mapped


def _check_alike(modules: Sequence[nn.Module]) -> None:
    """Refuse modules that one stack cannot stand for."""
    first = dict(modules[0].named_parameters())
    buffers = dict(modules[0].named_buffers())
    for module in modules[1:]:
        if {name: value.shape for name, value in module.named_parameters()} != {
            name: value.shape for name, value in first.items()
        }:
            raise ValueError("parameters differ between seeds in more than their numbers")
        others = dict(module.named_buffers())
        if set(others) != set(buffers) or not all(torch.equal(value, others[name]) for name, value in buffers.items()):
            raise ValueError("buffers differ between seeds")


def _stack_into(base: nn.Module, modules: Sequence[nn.Module]) -> None:
    """Replace the parameters of a module by those of all, stacked; one that is used twice stays one."""
    found = [dict(module.named_parameters()) for module in modules]
    stacked = {
        id(value): nn.Parameter(torch.stack([other[name].detach() for other in found]), value.requires_grad)
        for name, value in found[0].items()
    }
    for module in base.modules():
        for key, value in list(module._parameters.items()):
            if value is not None:
                module._parameters[key] = stacked[id(value)]


# ------------------------------------------------------------------------------------------------------ the proof


def why_not(runs: Sequence[Run], device: torch.device) -> str | None:
    """Why these runs of one training are carried out one by one; ``None`` where one pass is proved equal.

    Args:
        runs: They differ in their seeds only; their model is the user's.
        device: Where.
    """
    training = runs[0].training
    if training.step is not None:
        return "step= is the user's own"
    if not isinstance(training.optimizer, Spec):
        return "optimizer= is the user's own"
    if len(runs) < FEWEST_SEEDS or training.steps < FEWEST_STEPS:
        return "too short for one pass to pay"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _unproved(runs, device)
    except Exception as error:  # noqa: BLE001 -- one by one is always right, and raises what is really wrong
        return words(error)


def words(error: Exception) -> str:
    """The first line of an error, in brief."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:160]


def _unproved(runs: Sequence[Run], device: torch.device) -> str | None:
    """Two steps both ways."""
    if _work(runs[0], device) > MOST_WORK:
        return "too large for one pass to pay"
    short = [_two_steps(one) for one in runs]
    alone: list[Trace] = []
    for one in short:
        subject = OwnSubject(one.training, one.seed, device)
        buffers = [value.clone() for value in subject.module.buffers()]
        seeded(one.seed, "training")
        before = _random_states()
        alone += _trained(subject, one, device)
        if _random_states() != before:
            return "it draws random numbers while it trains"
        if not all(map(torch.equal, buffers, subject.module.buffers())):
            return "its buffers change while it trains"
    together = _trained(EnsembleSubject(short[0].training, [one.seed for one in short], device), short[0], device)
    return next((reason for pair in zip(alone, together, strict=True) for reason in _differences(*pair)), None)


def _work(one: Run, device: torch.device) -> int:
    subject = OwnSubject(one.training, one.seed, device)
    batch = sum(leaf.numel() for leaf in tree_leaves(subject.next_batch()) if isinstance(leaf, Tensor))
    return batch * sum(value.numel() for value in subject.module.parameters())


def _two_steps(one: Run) -> Run:
    quantities = one.quantities | {"parameter_gradient_norm"}
    training = dataclasses.replace(one.training, steps=2)
    return dataclasses.replace(
        one, training=training, quantities=quantities, record_at=frozenset(), judge_at=(2,), every=True
    )


def _trained(subject: Subject, one: Run, device: torch.device) -> list[Trace]:
    loop = Loop(subject, one, device, lambda step, loss: None)
    loop.train()
    return loop.traces()


def _random_states() -> tuple[Any, ...]:
    return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()


def _differences(alone: Trace, together: Trace) -> Iterator[str]:
    """What one pass makes of a seed that the seed alone does not."""
    if set(alone.series) != set(together.series):
        missing = sorted(set(alone.series) ^ set(together.series))
        yield f"in one pass {missing[0]} is not measured alike"
    for name in set(alone.series) & set(together.series):
        strict = name in ("training_loss", "parameter_gradient_norm")
        ours, theirs = alone.series[name], together.series[name]
        if ours.steps != theirs.steps or ours.labels != theirs.labels:
            yield f"in one pass {name} is not measured alike"
            continue
        for row, other in zip(ours.values, theirs.values, strict=True):
            noise = NOISE * (max(map(abs, row)) if strict else 1.0)
            close = SAME if strict else 100 * SAME
            if not all(_close(a, b, close * abs(a) + noise) for a, b in zip(row, other, strict=True)):
                yield f"in one pass {name} differs"
                break


def _close(one: float, other: float, most: float) -> bool:
    """Whether two numbers differ by so much at most; a quantity may be infinite, or NaN, in both."""
    return one == other or abs(one - other) <= most or (math.isnan(one) and math.isnan(other))
