"""When and where to measure: hooks that look only on record steps, and one buffer for all numbers.

Hooks return None, since a hook that returns something replaces the activation. Numbers stay on the device in a
buffer [rows, S, columns] until the run is over, so that no record step waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from stabilitysuite.lab.probes.branch_ratio import branch_ratio
from stabilitysuite.lab.probes.gradient_norm import joint_norm, parameter_norms
from stabilitysuite.lab.probes.residual_gradient import residual_gradient
from stabilitysuite.lab.probes.residual_std import residual_std
from stabilitysuite.lab.probes.token_cosine import token_cosine
from stabilitysuite.lab.probes.update_ratio import update_ratio
from stabilitysuite.lab.subject import Branch, Subject, first_tensor
from stabilitysuite.spec import Run
from stabilitysuite.trace import Series

__all__ = ["DENSE", "EVERY", "Recorder", "record_steps"]

DENSE = 10
"""The first steps are all recorded: what goes wrong at the start goes wrong there."""
EVERY = 10
"""After them every tenth step is."""


def record_steps(run: Run) -> list[int]:
    """The steps at which per-layer and per-parameter quantities are recorded, ascending."""
    last = max(run.training.steps - 1, 0)
    regular = range(last + 1) if run.every else [*range(DENSE), *range(DENSE, last, EVERY), last]
    return sorted({step for step in (*regular, *run.record_at) if 0 <= step <= last})


class _Buffer:
    """Numbers of one quantity [rows, S, columns]; NaN where nothing was written."""

    def __init__(self, quantity: str, labels: Sequence[str], rows: int, seeds: int, device: torch.device) -> None:
        self.quantity = quantity
        self.labels = tuple(labels)
        self.values = torch.full((rows, seeds, len(self.labels)), math.nan, dtype=torch.float64, device=device)
        self.written: set[int] = set()

    def write(self, row: int, column: int | slice, values: Tensor) -> None:
        self.values[row, :, column] = values.detach()
        self.written.add(row)


class Recorder:
    """Measures the per-layer and per-parameter quantities of a run on its record steps.

    Args:
        subject: What is trained.
        run: Which quantities and steps are wanted.
        device: Where the numbers are kept until the end.
    """

    def __init__(self, subject: Subject, run: Run, device: torch.device) -> None:
        self.subject = subject
        self.steps = record_steps(run)
        self._rows = {step: row for row, step in enumerate(self.steps)}
        self.row: int | None = None
        self._device = device
        self._buffers: dict[str, _Buffer] = {}
        self._handles: list[RemovableHandle] = []
        self._streams: dict[str, Tensor] = {}
        self._before: list[Tensor] = []
        self._names = [name for name, _ in subject.named_parameters]
        positions = {name: index for index, name in enumerate(self._names)}
        self._of_layer = [[positions[name] for name in names] for _, names in subject.layer_parameters()]
        self._matrices = [
            index
            for index, (_, value) in enumerate(subject.named_parameters)
            if value.dim() - int(subject.batched) >= 2
        ]
        layers = [label for label, _ in subject.layers]
        columns = {
            "residual_std": layers,
            "token_cosine": layers,
            "residual_gradient": layers,
            "layer_gradient_norm": layers,
            "branch_ratio": [branch.label for branch in subject.branches],
            "gradient_norm": [""],
            "parameter_gradient_norm": self._names,
            "update_ratio": [self._names[index] for index in self._matrices],
        }
        for quantity, labels in columns.items():
            if quantity in run.quantities and labels:
                self._buffers[quantity] = _Buffer(quantity, labels, len(self.steps), len(subject.seeds), device)

    # --------------------------------------------------------------------------------------------- activations

    def __enter__(self) -> Recorder:
        of_layers = {"residual_std", "token_cosine", "residual_gradient"} & set(self._buffers)
        for column, (_, module) in enumerate(self.subject.layers if of_layers else ()):
            self._handles.append(module.register_forward_hook(self._on_layer(column)))
        if "branch_ratio" in self._buffers:
            for column, branch in enumerate(self.subject.branches):
                self._watch(column, branch)
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()

    def begin(self, step: int) -> None:
        """From here on the given step is measured, if it is a record step."""
        self.row = self._rows.get(step)

    def end(self) -> None:
        """From here on nothing is measured."""
        self.row = None
        self._streams.clear()

    def _write(self, quantity: str, column: int | slice, values: Tensor) -> None:
        if quantity in self._buffers and self.row is not None:
            self._buffers[quantity].write(self.row, column, values)

    def _seeded(self, x: Tensor) -> Tensor:
        """The activation with a leading seed dimension."""
        return x if self.subject.batched else x.unsqueeze(0)

    def _on_layer(self, column: int) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            del module, inputs
            if self.row is None:
                return
            out = first_tensor(output)
            if out is None or not out.is_floating_point():
                return
            x = self._seeded(out.detach())
            if "residual_std" in self._buffers:
                self._write("residual_std", column, residual_std(x))
            if "token_cosine" in self._buffers and x.dim() == 4 and x.shape[2] > 1:
                self._write("token_cosine", column, token_cosine(x))
            if out.requires_grad and "residual_gradient" in self._buffers:
                row = self.row
                out.register_hook(lambda gradient: self._on_gradient(row, column, gradient))  # type: ignore[no-untyped-call]

        return hook

    def _on_gradient(self, row: int, column: int, gradient: Tensor) -> None:
        self._buffers["residual_gradient"].write(row, column, residual_gradient(self._seeded(gradient.detach())))

    def _watch(self, column: int, branch: Branch) -> None:
        """Remember the stream on the way in, since a block may change it in place; compare on the way out."""

        def entering(module: nn.Module, inputs: Any) -> None:
            del module
            if self.row is not None and (stream := first_tensor(inputs)) is not None:
                self._streams[branch.label] = stream.detach().clone()

        def leaving(module: nn.Module, inputs: Any, output: Any) -> None:
            del module, inputs
            out, stream = first_tensor(output), self._streams.get(branch.label)
            if self.row is None or out is None or stream is None or out.shape != stream.shape:
                return
            added = out.detach() if branch.inner is not None else out.detach() - stream
            self._write("branch_ratio", column, branch_ratio(self._seeded(added), self._seeded(stream)))

        self._handles.append(branch.host.register_forward_pre_hook(entering))
        self._handles.append((branch.inner or branch.host).register_forward_hook(leaving))

    # ------------------------------------------------------------------------------------ gradients and updates

    def gradients(self) -> Tensor | None:
        """Measure the gradients; returns the norms [S, P] on a record step, else ``None``."""
        if self.row is None:
            return None
        gradients = [value.grad for _, value in self.subject.named_parameters]
        norms_SP = parameter_norms(gradients, self.subject.batched, len(self.subject.seeds))
        self._write("parameter_gradient_norm", slice(None), norms_SP)
        self._write("gradient_norm", 0, joint_norm(norms_SP))
        for column, own in enumerate(self._of_layer):
            self._write("layer_gradient_norm", column, joint_norm(norms_SP[:, own]))
        return norms_SP

    def before_update(self) -> None:
        """Keep the weights that the update is measured against."""
        if self.row is not None and "update_ratio" in self._buffers:
            self._before = [value.detach().clone() for value in self._weights()]

    def after_update(self) -> None:
        """Measure what the update changed."""
        if self.row is not None and self._before:
            after = [value.detach() for value in self._weights()]
            ratios = update_ratio(self._before, after, self.subject.batched, len(self.subject.seeds))
            self._write("update_ratio", slice(None), ratios)
            self._before = []

    def _weights(self) -> list[Tensor]:
        values = [value for _, value in self.subject.named_parameters]
        return [values[index] for index in self._matrices]

    # ------------------------------------------------------------------------------------------------- the end

    def series(self) -> list[dict[str, Series]]:
        """For each seed its series; a quantity that was never written has none."""
        found: list[dict[str, Series]] = [{} for _ in self.subject.seeds]
        for quantity, buffer in self._buffers.items():
            rows = sorted(buffer.written)
            numbers = buffer.values.cpu().tolist()
            for position, one in enumerate(found):
                if rows:
                    one[quantity] = Series(
                        quantity=quantity,
                        steps=tuple(self.steps[row] for row in rows),
                        labels=buffer.labels,
                        values=tuple(tuple(numbers[row][position]) for row in rows),
                    )
        return found
