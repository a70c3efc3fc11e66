"""Optimizers and learning-rate schedules from their declarations."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from stabilitysuite.errors import MeasurementError
from stabilitysuite.spec import SGD, AdamW, Training, callable_name

__all__ = ["clip_per_seed", "make_optimizer", "make_scheduler", "rate"]


def make_optimizer(training: Training, module: nn.Module) -> torch.optim.Optimizer:
    """The declared optimizer over the trainable parameters, fused: a fifth of the default loop's cost on the CPU.

    Raises:
        MeasurementError: A factory of the user's returned no torch optimizer, or a class stands in its place.
    """
    declared = training.optimizer
    if isinstance(declared, type):
        raise MeasurementError(
            f"optimizer={declared.__name__} is a class: give an optimizer of stabilitysuite such as Adam(lr=1e-3), or "
            f"a factory such as lambda model: torch.optim.{declared.__name__}(model.parameters(), lr=1e-3)"
        )
    if not isinstance(declared, SGD) and callable(declared):
        made = declared(module)
        if not isinstance(made, torch.optim.Optimizer):
            raise MeasurementError(
                f"optimizer {callable_name(declared)} must return a torch.optim.Optimizer, "
                f"it returned {type(made).__name__}"
            )
        trained = {id(parameter) for group in made.param_groups for parameter in group["params"]}
        if not any(id(parameter) in trained for parameter in module.parameters()):
            raise MeasurementError(
                f"optimizer {callable_name(declared)} holds no parameter of the model it was given: "
                "build it from that model's parameters()"
            )
        return made
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    sparse = any(getattr(part, "sparse", False) for part in module.modules())  # of which fused optimizers know nothing
    fused = not sparse and all(
        parameter.dtype in (torch.float32, torch.float64) and parameter.device.type in ("cpu", "cuda")
        for parameter in parameters
    )
    if isinstance(declared, SGD):
        return torch.optim.SGD(parameters, lr=declared.lr, momentum=declared.momentum, fused=fused)
    if isinstance(declared, AdamW):
        return torch.optim.AdamW(
            parameters,
            lr=declared.lr,
            betas=declared.betas,
            eps=declared.eps,
            weight_decay=declared.weight_decay,
            fused=fused,
        )
    return torch.optim.Adam(parameters, lr=declared.lr, betas=declared.betas, eps=declared.eps, fused=fused)


def make_scheduler(training: Training, optimizer: torch.optim.Optimizer) -> Any:
    """The user's scheduler, where there is one.

    Raises:
        MeasurementError: The factory returned something that cannot be stepped.
    """
    if training.scheduler is None:
        return None
    made = training.scheduler(optimizer)
    if not callable(getattr(made, "step", None)):
        raise MeasurementError(
            f"scheduler {callable_name(training.scheduler)} must return a torch scheduler with step(), "
            f"it returned {type(made).__name__}"
        )
    if isinstance(made, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise MeasurementError(
            f"scheduler {callable_name(training.scheduler)} must return a scheduler whose step() takes nothing: "
            "ReduceLROnPlateau wants a metric, so step it in a step= of your own"
        )
    return made


def rate(training: Training, step: int, steps: int) -> float:
    """Factor on the learning rate of update ``step`` (from 0).

    Linear warmup (k + 1) / warmup, so that the first update is not lost; after it 1, a cosine to zero at the
    last of ``steps``, or sqrt(warmup / (k + 1)) (Vaswani et al., 2017, section 5.3).
    """
    if step < training.warmup:
        return (step + 1) / training.warmup
    if training.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * (step - training.warmup) / max(steps - training.warmup, 1)))
    if training.schedule == "inverse_sqrt":
        return math.sqrt(max(training.warmup, 1) / (step + 1))
    return 1.0


def clip_per_seed(parameters: list[nn.Parameter], norms_S: Tensor, largest: float, batched: bool) -> None:
    """Scale the gradients in place so that each seed's total norm is at most ``largest``.

    One shared norm would let a seed that explodes shrink the others' gradients, and a NaN poison them all.

    Args:
        parameters: Parameters with gradients [S, ...] where ``batched``.
        norms_S: Total norm of each seed [S].
        largest: Largest norm allowed.
        batched: Whether the parameters have a leading seed dimension.
    """
    factor_S = (largest / (norms_S + 1e-6)).clamp(max=1.0)
    for parameter in parameters:
        if parameter.grad is not None:
            shape = (-1, *[1] * (parameter.grad.dim() - 1)) if batched else (1,) * parameter.grad.dim()
            parameter.grad.mul_(factor_S.view(shape).to(parameter.grad.dtype))
