"""Where the first non-finite number was: in a weight, an activation, the loss or a gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from stabilitysuite.lab.probes.gradient_norm import numbers
from stabilitysuite.lab.subject import Subject, first_tensor
from stabilitysuite.trace import Outcome

__all__ = ["first_bad_gradient", "first_bad_output"]


def _layer_of(subject: Subject, name: str) -> str | None:
    """Label of the layer that a parameter or module belongs to, else the module's own name."""
    modules = dict(subject.module.named_modules())
    for label, layer in subject.layers:
        prefix = next((known for known, module in modules.items() if module is layer), None)
        if prefix is not None and (name == prefix or name.startswith(f"{prefix}.")):
            return label
    return name.rpartition(".")[0] or None


def _part(tensor: Tensor, batched: bool, position: int) -> Tensor:
    return tensor[position] if batched else tensor


def first_bad_gradient(subject: Subject, position: int, step: int) -> Outcome:
    """The non-finite gradient closest to the loss: backward passes through it first.

    Args:
        subject: What is trained, after a backward pass.
        position: Which seed of the pass.
        step: The step.
    """
    for name, value in reversed(subject.named_parameters):
        gradient = value.grad
        if gradient is None:
            continue
        part = _part(numbers(gradient), subject.batched, position)
        if not bool(torch.isfinite(part).all()):
            bad = int((~torch.isfinite(part)).sum())
            return Outcome(
                name="nonfinite",
                step=step,
                layer=_layer_of(subject, name),
                tensor=f"gradient of {name}",
                detail=f"{bad} of {part.numel()} numbers, {_kind(part)}",
            )
    return Outcome(name="nonfinite", step=step, tensor="gradient norm", detail="finite gradients of infinite norm")


def first_bad_output(subject: Subject, position: int, step: int, batch: Any, loss: float) -> Outcome:
    """What made a loss non-finite: a weight, or the first module whose output is not finite.

    Args:
        subject: What is trained.
        position: Which seed of the pass.
        step: The step.
        batch: The batch of the loss; its forward pass is repeated.
        loss: The loss.
    """
    for name, value in subject.module.named_parameters():
        part = _part(value.detach(), subject.batched, position)
        if not bool(torch.isfinite(part).all()):
            return Outcome(
                name="nonfinite",
                step=step,
                layer=_layer_of(subject, name),
                tensor=f"weight {name}",
                detail=f"{_kind(part)}; loss {loss}",
            )
    found = _replayed(subject, position, batch)
    tensor = f"output of {found}" if found is not None else "loss"
    layer = _layer_of(subject, found) if found is not None else None
    return Outcome(name="nonfinite", step=step, layer=layer, tensor=tensor, detail=f"loss {loss}")


def _replayed(subject: Subject, position: int, batch: Any) -> str | None:
    """Name of the first module to finish with a non-finite output in a repeated forward pass."""
    found: list[str] = []
    handles = []

    def watch(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            del module, inputs
            out = first_tensor(output)
            if not found and out is not None and out.is_floating_point():
                part = _part(out, subject.batched and out.shape[0] == len(subject.seeds), position)
                if not bool(torch.isfinite(part).all()):
                    found.append(name)

        return hook

    try:
        for name, module in subject.module.named_modules():
            handles.append(module.register_forward_hook(watch(name or "the model")))
        with torch.no_grad():
            subject.losses(batch)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None


def _kind(part: Tensor) -> str:
    return "NaN" if bool(torch.isnan(part).any()) else "infinite"
