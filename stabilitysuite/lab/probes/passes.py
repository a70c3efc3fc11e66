"""Quantities that need forward passes besides the training's own, taken on record steps only.

The passes run in evaluation mode and in float32, record nothing themselves and leave random states and buffers as they
were (:meth:`Subject.undisturbed`). Each method returns what it measured, [S] by quantity. Shape letter: S seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from stabilitysuite.lab.probes.loss_drop import inner_product, loss_drop
from stabilitysuite.lab.probes.output_change import RELATIVE, directions, output_change, perturbed
from stabilitysuite.lab.subject import Subject, copied

__all__ = ["PASSES", "Passes"]

PASSES = frozenset({"output_change", "perturbation_change", "loss_drop"})
"""Names of these quantities."""


class Passes:
    """The passes of one run.

    Args:
        subject: What is trained.
        wanted: Which of the quantities.
        matrices: Names and values of the weight matrices, which a perturbation moves.
    """

    def __init__(self, subject: Subject, wanted: frozenset[str], matrices: Sequence[tuple[str, Tensor]]) -> None:
        self.subject = subject
        self.wanted = wanted & PASSES if subject.repeatable else frozenset[str]()
        self._matrices = matrices
        self._directions: list[Tensor] = []
        self._fixed: Any = None  # what outputs are compared on
        self._batch: Any = None  # that of this step
        self._gradients: list[tuple[Tensor, Tensor]] = []  # before clipping, each with its parameter
        self._output: Tensor | None = None  # before the update
        self._loss: tuple[Tensor, Tensor] | None = None  # before the update, and <g, W>

    def begin(self, batch: Any) -> dict[str, Tensor]:
        """Before the forward pass of a step, while no graph holds the weights."""
        if self.wanted and self._fixed is None:
            self._fixed = self.subject.fixed(batch)
        self._batch = copied(batch) if "loss_drop" in self.wanted else None
        self._gradients, self._output, self._loss = [], None, None
        if "perturbation_change" not in self.wanted:
            return {}
        batched, seeds = self.subject.batched, self.subject.seeds
        before = self._outputs()
        if before is None or not self._matrices:
            return {}
        self._directions = self._directions or directions(seeds, self._matrices, batched)
        with perturbed([value for _, value in self._matrices], self._directions, batched, len(seeds)):
            after = self._outputs()
        return {} if after is None else {"perturbation_change": output_change(before, after) / RELATIVE}

    def gradients(self) -> None:
        """After the backward pass, before clipping."""
        if "loss_drop" in self.wanted:
            trained = [value for _, value in self.subject.named_parameters]
            self._gradients = [(one.grad.to_dense().clone(), one.detach()) for one in trained if one.grad is not None]

    def before_update(self) -> None:
        """Right before the optimizer's update."""
        if "output_change" in self.wanted:
            self._output = self._outputs()
        if "loss_drop" in self.wanted and self._gradients:
            self._loss = (self._losses(), self._inner_product())

    def after_update(self) -> dict[str, Tensor]:
        """Right after it."""
        found = {}
        if self._output is not None:
            after = self._outputs()
            if after is not None:
                found["output_change"] = output_change(self._output, after)
        if self._loss is not None:
            loss, inner = self._loss
            found["loss_drop"] = loss_drop(loss, self._losses(), inner - self._inner_product())
        return found

    def _outputs(self) -> Tensor | None:
        with self.subject.undisturbed(), torch.no_grad():
            return self.subject.outputs(self._fixed)

    def _losses(self) -> Tensor:
        with self.subject.undisturbed(), torch.no_grad():
            return self.subject.losses(copied(self._batch))

    def _inner_product(self) -> Tensor:
        gradients, weights = zip(*self._gradients, strict=True)
        return inner_product(gradients, weights, self.subject.batched)
