"""What is seen while a run goes on: its losses, the first non-finite number, and whether it is beyond hope.

On the CPU every number is looked at as soon as it is there. Elsewhere it stays on the device until the next look
(:func:`stabilitysuite.lab.device.look_every`), so that no step waits for the device; a non-finite number is then
known to the step, but what it was in can no longer be looked for. Shape letter: S seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from stabilitysuite.lab.device import look_every
from stabilitysuite.lab.nonfinite import first_bad_gradient, first_bad_output
from stabilitysuite.lab.precision import autocast
from stabilitysuite.lab.probes.recorder import Recorder
from stabilitysuite.lab.subject import Subject
from stabilitysuite.spec import Training
from stabilitysuite.trace import Outcome

__all__ = ["Watch"]

HOPELESS_FACTOR = 10.0
HOPELESS_STEPS = 20


class Watch:
    """Follows losses and gradient norms of a pass.

    Args:
        subject: What is trained.
        recorder: Measures nothing while a forward pass is repeated to find a non-finite number.
        device: Where the numbers come from.
        training: In which precision a forward pass is repeated.
    """

    def __init__(self, subject: Subject, recorder: Recorder, device: torch.device, training: Training) -> None:
        self.every = look_every(device)
        """Steps between two looks."""
        self.losses: list[list[float]] = []
        """Losses looked at so far [step][S]."""
        self.broken: list[Outcome | None] = [None] * len(subject.seeds)
        """How each seed became non-finite, where it did."""
        self._subject = subject
        self._recorder = recorder
        self._device = device
        self._training = training
        self._above = [0] * len(subject.seeds)
        self._kept_losses: list[Tensor] = []
        self._kept_norms: list[tuple[int, Tensor]] = []

    def saw_losses(self, step: int, losses_S: Tensor, batch: Any) -> None:
        """Take note of the losses [S] of a step, which came from that batch."""
        self._kept_losses.append(losses_S.detach().clone())
        if self.every > 1:
            return
        for position, loss in enumerate(losses_S.tolist()):
            if not math.isfinite(loss) and self.broken[position] is None:
                # under the precision of the first pass, so that it breaks where that did
                with self._recorder.paused(), autocast(self._training, self._device):
                    self.broken[position] = first_bad_output(self._subject, position, step, batch, loss)

    def saw_norms(self, step: int, norms_S: Tensor) -> None:
        """Take note of the total gradient norms [S] of a step, while the gradients are there."""
        if self.every > 1:
            self._kept_norms.append((step, norms_S))
            return
        for position, norm in enumerate(norms_S.tolist()):
            if not math.isfinite(norm) and self.broken[position] is None:
                self.broken[position] = first_bad_gradient(self._subject, position, step)

    def look(self) -> float:
        """Read what was kept since the last look; returns the mean loss of the last step, NaN before the first."""
        first = len(self.losses)
        fresh = torch.stack(self._kept_losses).tolist() if self._kept_losses else []
        norms = torch.stack([norm for _, norm in self._kept_norms]).tolist() if self._kept_norms else []
        steps = [step for step, _ in self._kept_norms]
        self._kept_losses, self._kept_norms = [], []
        for offset, values in enumerate(fresh):
            self._name_late(first + offset, values, "loss")
            for step, row in zip(steps, norms, strict=True):
                if step == first + offset:
                    self._name_late(step, row, "gradient norm")
            self._note(values)
        return math.fsum(self.losses[-1]) / len(self.losses[-1]) if self.losses else math.nan

    @property
    def over(self) -> bool:
        """Whether every seed is non-finite or hopelessly above its start."""
        return all(
            broken is not None or above >= HOPELESS_STEPS
            for broken, above in zip(self.broken, self._above, strict=True)
        )

    def _name_late(self, step: int, values: Sequence[float], what: str) -> None:
        for position, value in enumerate(values):
            if not math.isfinite(value) and self.broken[position] is None:
                detail = f"{what} {value}; on {self._device.type} numbers are looked at every {self.every} steps"
                self.broken[position] = Outcome(name="nonfinite", step=step, tensor=what, detail=detail)

    def _note(self, values: list[float]) -> None:
        self.losses.append(values)
        for position, loss in enumerate(values):
            start = self.losses[0][position]
            hopeless = loss > start + HOPELESS_FACTOR * abs(start)
            self._above[position] = self._above[position] + 1 if hopeless else 0
