"""In which numbers a training computes: float32, float64 throughout, or a forward pass in half precision.

In float16 small gradients vanish, so the loss is multiplied by a scale which is undone right after the backward pass:
clipping, probes and the optimizer see true gradients. Where they overflow, no update is made and the scale is halved.
The rules and numbers are those of ``torch.amp.GradScaler``, but every seed has a scale of its own: with a shared one
a seed that overflows would skip the updates of all. Shape letter: S seeds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from stabilitysuite.errors import MeasurementError
from stabilitysuite.lab.optim import make_optimizer
from stabilitysuite.lab.subject import Subject
from stabilitysuite.spec import Training

__all__ = ["HALF", "LossScale", "SeedOptimizers", "autocast", "dtype_of", "explained"]

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""In what a forward pass computes, by the name of a precision; the others need no autocast."""
INITIAL = 2.0**16
GROWN_AFTER = 2000
"""Updates in a row after which the scale is doubled."""
SMALLEST = 1.0
"""Scale below which an overflow is the gradient's own, and the run non-finite."""


def dtype_of(training: Training) -> torch.dtype:
    """In what weights, data and losses are kept; half precision is of the forward pass alone."""
    return torch.float64 if training.precision == "float64" else torch.float32


def autocast(training: Training, device: torch.device) -> Any:
    """The context of a forward pass."""
    half = HALF.get(training.precision)
    return torch.autocast(device.type, half or torch.bfloat16, enabled=half is not None)


@contextlib.contextmanager
def explained(training: Training, device: torch.device) -> Iterator[None]:
    """Say in words that an operation has no half-precision form.

    Raises:
        MeasurementError: It has none on that device.
    """
    try:
        yield
    except RuntimeError as error:
        if training.precision in HALF and "not implemented for 'Half'" in str(error).replace("BFloat16", "Half"):
            raise MeasurementError(
                f"precision={training.precision!r}: {str(error).splitlines()[0]}: an operation of this model has no "
                f"{training.precision} form on {device.type}; keep it in float32 with "
                f"torch.autocast({device.type!r}, enabled=False), or use precision='float32'"
            ) from error
        raise


class LossScale:
    """One loss scale a seed, with GradScaler's rules.

    Args:
        seeds: S.
    """

    def __init__(self, seeds: int) -> None:
        self.values = [INITIAL] * seeds
        """The scale of each seed's next loss."""
        self.skip = [False] * seeds
        """Which seeds make no update in this step."""
        self.skipped: list[list[int]] = [[] for _ in range(seeds)]
        """Steps without an update, of each seed."""
        self._good = [0] * seeds  # updates in a row

    def tensor(self, device: torch.device) -> Tensor:
        """The scales as they are now [S]."""
        return torch.tensor(self.values, dtype=torch.float32, device=device)

    def undo(self, subject: Subject, scale_S: Tensor) -> None:
        """Divide the gradients by the scales, which are powers of two: nothing is rounded."""
        inverse_S = scale_S.reciprocal()
        for _, parameter in subject.named_parameters:
            gradient = parameter.grad
            if gradient is None:
                continue
            if subject.batched:
                gradient.mul_(inverse_S.view(-1, *[1] * (gradient.dim() - 1)).to(gradient.dtype))
            else:
                gradient.mul_(1 / self.values[0])  # sparse ones take nothing else

    def saw_norms(self, step: int, norms_S: Tensor | None) -> Tensor | None:
        """Decide which seeds make an update, and move the scales.

        Args:
            step: Which.
            norms_S: Gradient norm of each seed [S]; ``None`` where all are known to be finite.

        Returns:
            The norms, with zero in place of those whose overflow is the scale's.
        """
        finite = [True] * len(self.values) if norms_S is None else torch.isfinite(norms_S).tolist()
        excused = [not one and scale >= SMALLEST for one, scale in zip(finite, self.values, strict=True)]
        for position, good in enumerate(finite):
            self.skip[position] = not good
            if not good:
                self.skipped[position].append(step)
                self.values[position] *= 0.5
                self._good[position] = 0
                continue
            self._good[position] += 1
            if self._good[position] == GROWN_AFTER:
                # GradScaler keeps a scale that could grow out of float32 no further
                self.values[position] = min(2 * self.values[position], 2.0**127)
                self._good[position] = 0
        if norms_S is None or not any(excused):
            return norms_S
        return torch.where(torch.tensor(excused, device=norms_S.device), 0.0, norms_S)

    def remark(self, position: int) -> str:
        """What a person should know of a seed; empty where every update was made."""
        steps = self.skipped[position]
        if not steps:
            return ""
        return (
            f"float16: updates skipped, as scaled gradients were not finite: {len(steps)}, "
            f"the first at step {steps[0]}; the loss scale ended at {self.values[position]:g}"
        )


class SeedOptimizers:
    """One optimizer a seed, each over its own part of the stacked weights, so that one seed can skip an update.

    A shared one counts its updates for all seeds, and Adam's first steps depend on that count. It offers what the
    loop uses of an optimizer.

    Args:
        training: Whose optimizer; one of the user's gets the model itself, and so one seed only.
        subject: Whose parameters.
        scale: Decides who skips.
    """

    def __init__(self, training: Training, subject: Subject, scale: LossScale) -> None:
        self._scale = scale
        self._module = subject.module
        self._views: list[tuple[nn.Parameter, list[nn.Parameter]]] = []
        count = len(subject.seeds)
        if count == 1:
            self._each = [make_optimizer(training, subject.module)]
        else:
            stacked = [value for _, value in subject.named_parameters]
            self._views = [(value, [nn.Parameter(value.detach()[seed]) for seed in range(count)]) for value in stacked]
            own = [nn.ParameterList(views[seed] for _, views in self._views) for seed in range(count)]
            self._each = [make_optimizer(training, parameters) for parameters in own]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all of them."""
        return [group for one in self._each for group in one.param_groups]

    @property
    def first(self) -> torch.optim.Optimizer:
        """The first seed's, the only one where a scheduler of the user's needs it."""
        return self._each[0]

    def step(self) -> None:
        """Update the seeds that are not to be skipped."""
        for value, views in self._views:
            for seed, view in enumerate(views):
                view.grad = None if value.grad is None else value.grad[seed]
        for one, left_out in zip(self._each, self._scale.skip, strict=True):
            if not left_out:
                one.step()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self._module.zero_grad()
        for _, views in self._views:
            for view in views:
                view.grad = None
