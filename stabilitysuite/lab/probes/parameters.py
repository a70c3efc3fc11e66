"""What is measured of weights, gradients and updates. Shape letters: S seeds, P parameters, L layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from stabilitysuite.lab.probes.distribution import kurtosis, zeros
from stabilitysuite.lab.probes.gradient_norm import joint_norm, parameter_norms
from stabilitysuite.lab.probes.magnitude_gradient import magnitude_gradient
from stabilitysuite.lab.probes.movement import movement
from stabilitysuite.lab.probes.norm import norms_of_many
from stabilitysuite.lab.probes.norm_gain import gains, norm_gain
from stabilitysuite.lab.probes.residual_std import residual_std
from stabilitysuite.lab.probes.update_ratio import update_ratio
from stabilitysuite.lab.subject import Subject

__all__ = ["Parameters"]

OF_WEIGHTS = {"weight_std": residual_std, "weight_kurtosis": kurtosis, "weight_zeros": zeros}
OF_GRADIENTS = {"gradient_std": residual_std, "gradient_kurtosis": kurtosis, "gradient_zeros": zeros}
"""From a matrix, or its gradient, with a leading seed dimension, to one number a seed."""


class Parameters:
    """Measures the parameters of a run when it is told to.

    Args:
        subject: What is trained, before its first update.
        wanted: Names of the quantities to measure; the others are none of its business.
        write: Takes a quantity and its values [S, columns] of the step.
        device: Where the numbers are kept.
    """

    def __init__(
        self, subject: Subject, wanted: frozenset[str], write: Callable[[str, Tensor], None], device: torch.device
    ) -> None:
        self.subject = subject
        self.wanted = wanted if subject.layers else wanted - {"movement", "layer_gradient_norm"}
        self.write = write
        self.names = [name for name, _ in subject.named_parameters]
        self.matrices = subject.matrices
        self.gains = gains(subject.module, subject.named_parameters) if "norm_gain" in wanted else []
        positions = {name: index for index, name in enumerate(self.names)}
        of_layer = [[positions[name] for name in names] for _, names in subject.layer_parameters()]
        # on the device: an index that has to be moved there makes the host wait
        self._of_layer = _padded(of_layer, len(self.names), device)
        self._before: list[Tensor] = []  # the matrices before an update
        self._initial: list[Tensor] = []  # all parameters before the first one
        if "movement" in self.wanted:
            self._initial = [value.detach().clone() for _, value in subject.named_parameters]

    def _norms(self, tensors: Sequence[Tensor]) -> Tensor:
        return norms_of_many(tensors, self.subject.batched, len(self.subject.seeds))

    def _by_layer(self, norms_SP: Tensor) -> Tensor:
        """Norm over the parameters of each layer from the norm of each: [S, P] -> [S, L]."""
        with_zero = torch.cat([norms_SP, norms_SP.new_zeros(len(norms_SP), 1)], dim=1)
        norms: Tensor = torch.linalg.vector_norm(with_zero[:, self._of_layer], dim=2)
        return norms

    def _write_each(self, quantity: str, probe: Callable[..., Tensor], *columns: Sequence[Tensor]) -> None:
        """One number a seed from the tensors of each column, such as a matrix, or a matrix and its gradient."""
        if quantity in self.wanted and columns[0]:
            batched = self.subject.batched
            found = [
                probe(*(one if batched else one.unsqueeze(0) for one in tensors))
                for tensors in zip(*columns, strict=True)
            ]
            self.write(quantity, torch.stack(found, dim=1))

    def weights(self) -> None:
        """At the beginning of a step, after as many updates as its number."""
        values = [value.detach() for _, value in self.matrices]
        for quantity, probe in OF_WEIGHTS.items():
            self._write_each(quantity, probe, values)
        self._write_each("norm_gain", norm_gain, [value.detach() for _, value in self.gains])
        if self._initial:
            now = [value.detach() for _, value in self.subject.named_parameters]
            moved_SP = self._norms(torch._foreach_sub(now, self._initial))
            initial_SL = self._by_layer(self._norms(self._initial))
            self.write("movement", movement(self._by_layer(moved_SP), initial_SL))

    def gradients(self) -> Tensor:
        """After the backward pass, before clipping; returns the norms [S, P]."""
        gradients = [value.grad for _, value in self.subject.named_parameters]
        norms_SP = parameter_norms(gradients, self.subject.batched, len(self.subject.seeds))
        self.write("parameter_gradient_norm", norms_SP)
        self.write("gradient_norm", joint_norm(norms_SP).unsqueeze(1))
        if "layer_gradient_norm" in self.wanted:
            self.write("layer_gradient_norm", self._by_layer(norms_SP))
        if {*OF_GRADIENTS, "magnitude_gradient"} & self.wanted:
            values = [value.detach() for _, value in self.matrices]
            dense = [_dense(value) for _, value in self.matrices]
            for quantity, probe in OF_GRADIENTS.items():
                self._write_each(quantity, probe, dense)
            self._write_each("magnitude_gradient", magnitude_gradient, values, dense)
        return norms_SP

    def before_update(self) -> None:
        """Keep the weights that the update is measured against."""
        if "update_ratio" not in self.wanted or not self.matrices:
            return
        weights = [value.detach() for _, value in self.matrices]
        if not self._before:
            self._before = [torch.empty_like(weight) for weight in weights]
        torch._foreach_copy_(self._before, weights)

    def after_update(self) -> None:
        """Measure what the update changed."""
        if self._before:
            weights = [value.detach() for _, value in self.matrices]
            batched, seeds = self.subject.batched, len(self.subject.seeds)
            self.write("update_ratio", update_ratio(self._before, weights, batched, seeds, overwrite=True))


def _dense(value: Tensor) -> Tensor:
    """The gradient of a parameter; zero where it has none."""
    return torch.zeros_like(value) if value.grad is None else value.grad.to_dense()


def _padded(groups: Sequence[Sequence[int]], filler: int, device: torch.device) -> Tensor:
    """Groups of indices as one table, so that they are gathered in one call; short ones end in ``filler``."""
    longest = max(map(len, groups), default=0)
    return torch.tensor([[*own, *[filler] * (longest - len(own))] for own in groups], dtype=torch.long, device=device)
