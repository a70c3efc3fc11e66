"""When and where to measure: hooks that look only on record steps, and one buffer for all numbers.

Hooks return None, since a hook that returns something replaces the activation. Numbers stay on the device in a
buffer [rows, S, columns] until the run is over, so that no record step waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from stabilitysuite.lab.probes.branch_ratio import branch_ratio
from stabilitysuite.lab.probes.gradient_norm import joint_norm, parameter_norms
from stabilitysuite.lab.probes.residual_gradient import residual_gradient
from stabilitysuite.lab.probes.residual_std import residual_std
from stabilitysuite.lab.probes.shortcut_weight import shortcut_weight, through_norm
from stabilitysuite.lab.probes.token_cosine import token_cosine
from stabilitysuite.lab.probes.update_ratio import update_ratio
from stabilitysuite.lab.subject import Branch, Subject, ZooSubject, first_tensor
from stabilitysuite.lab.zoo.parts import Residual
from stabilitysuite.spec import Run
from stabilitysuite.trace import Series

__all__ = ["DENSE", "EVERY", "Recorder", "record_steps"]

DENSE = 10
"""The first steps are all recorded: what goes wrong at the start goes wrong there."""
EVERY = 10
"""After them every tenth step is."""


PROBES: dict[str, Callable[..., Tensor]] = {
    "residual_std": residual_std,
    "token_cosine": token_cosine,
    "residual_gradient": residual_gradient,
    "branch_ratio": branch_ratio,
    "shortcut_weight": through_norm,
}
"""From activations and their gradients, with a leading seed dimension, to one number a seed."""


def record_steps(run: Run) -> list[int]:
    """The steps at which per-layer and per-parameter quantities are recorded, ascending."""
    last = max(run.training.steps - 1, 0)
    regular = range(last + 1) if run.every else [*range(DENSE), *range(DENSE, last, EVERY), last]
    return sorted({step for step in (*regular, *run.record_at) if 0 <= step <= last})


class _Buffer:
    """Numbers of one quantity [rows, S, columns]; NaN where nothing was written.

    What arrives column by column waits until the step is over and is then written as one row: a write costs more
    than most of the numbers.
    """

    def __init__(self, quantity: str, labels: Sequence[str], rows: int, seeds: int, device: torch.device) -> None:
        self.quantity = quantity
        self.labels = tuple(labels)
        self.values = torch.full((rows, seeds, len(self.labels)), math.nan, dtype=torch.float64, device=device)
        self.written: set[int] = set()
        self.seen: set[int] = set()  # columns that were ever written
        self.waiting: dict[int, Tensor] = {}

    def write(self, row: int, columns: list[int] | None, values: Tensor) -> None:
        self.seen.update(range(len(self.labels)) if columns is None else columns)
        if columns is None:
            self.values[row].copy_(values)
        else:
            self.values[row, :, columns] = values
        self.written.add(row)

    def flush(self, row: int) -> None:
        if self.waiting:
            columns = sorted(self.waiting)
            values = torch.stack([self.waiting[column] for column in columns], dim=1)
            self.write(row, None if len(columns) == len(self.labels) else columns, values)
            self.waiting.clear()


class Recorder:
    """Measures the per-layer and per-parameter quantities of a run on its record steps.

    Args:
        subject: What is trained.
        run: Which quantities and steps are wanted.
        device: Where the numbers are kept until the end.
    """

    def __init__(self, subject: Subject, run: Run, device: torch.device) -> None:
        self.subject = subject
        self._zoo = isinstance(subject, ZooSubject)  # whose activations are never changed in place
        self.steps = record_steps(run)
        self._rows = {step: row for row, step in enumerate(self.steps)}
        self.row: int | None = None
        self._device = device
        self._buffers: dict[str, _Buffer] = {}
        self._hooks: list[Callable[[], RemovableHandle]] = []  # each adds one
        self._handles: list[RemovableHandle] = []
        self._streams: dict[int, Tensor] = {}
        self._kept: dict[str, list[tuple[int, tuple[Tensor, ...]]]] = {}  # to be measured at the end of the step
        self._before: list[Tensor] = []  # the matrices before an update
        self._has_before = False  # whether they are those of this step
        self._names = [name for name, _ in subject.named_parameters]
        positions = {name: index for index, name in enumerate(self._names)}
        of_layer = [[positions[name] for name in names] for _, names in subject.layer_parameters()]
        # on the device: an index that has to be moved there makes the host wait
        self._of_layer = _padded(of_layer, len(self._names), device)
        self._matrices = [(name, value) for name, value in subject.named_parameters if self._is_matrix(value)]
        layers = [label for label, _ in subject.layers]
        columns = {
            "residual_std": layers,
            "token_cosine": layers,
            "residual_gradient": layers,
            "layer_gradient_norm": layers,
            "branch_ratio": [branch.label for branch in subject.branches],
            "shortcut_weight": [branch.label for branch in subject.branches],
            "gradient_norm": [""],
            "parameter_gradient_norm": self._names,
            "update_ratio": [name for name, _ in self._matrices],
        }
        for quantity, labels in columns.items():
            if quantity in run.quantities and labels:
                self._buffers[quantity] = _Buffer(quantity, labels, len(self.steps), len(subject.seeds), device)

    # --------------------------------------------------------------------------------------------- activations

    def __enter__(self) -> Recorder:
        of_layers = {"residual_std", "token_cosine", "residual_gradient"} & set(self._buffers)
        for column, (_, module) in enumerate(self.subject.layers if of_layers else ()):
            self._hooks.append(partial(module.register_forward_hook, self._on_layer(column)))
        if "branch_ratio" in self._buffers:
            for column, branch in enumerate(self.subject.branches):
                self._watch(column, branch)
        if "shortcut_weight" in self._buffers:
            for column, branch in enumerate(self.subject.branches):
                self._watch_norm(column, branch.host)
        return self

    def __exit__(self, *error: object) -> None:
        if any(error):  # half a step: what was not reached must not read as NaN
            self._kept.clear()
            for buffer in self._buffers.values():
                buffer.waiting.clear()
        self.end()
        self._detach()
        self._hooks.clear()

    def begin(self, step: int) -> None:
        """From here on the given step is measured, if it is a record step; else nothing hangs on the modules."""
        self.row = self._rows.get(step)
        if self.row is None:
            self._detach()
        elif not self._handles:
            self._handles = [add() for add in self._hooks]

    def _detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def end(self) -> None:
        """From here on nothing is measured; what was is written down."""
        if self.row is None:
            return
        self._measure_kept()
        for buffer in self._buffers.values():
            buffer.flush(self.row)
        self.row = None
        self._streams.clear()

    def _write(self, quantity: str, values: Tensor) -> None:
        """All columns of a quantity at once."""
        if quantity in self._buffers and self.row is not None:
            self._buffers[quantity].write(self.row, None, values)

    def _seeded(self, x: Tensor) -> Tensor:
        """The activation with a leading seed dimension."""
        return x if self.subject.batched else x.unsqueeze(0)

    def _on_layer(self, column: int) -> Callable[..., None]:
        tokens_of = 1 + int(self.subject.batched)  # the axis

        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            del module, inputs
            if self.row is None:
                return
            out = first_tensor(output)
            if out is None or not out.is_floating_point():
                return
            if "residual_std" in self._buffers:
                self._see("residual_std", column, out)
            if "token_cosine" in self._buffers and out.dim() == tokens_of + 2 and out.shape[tokens_of] > 1:
                self._see("token_cosine", column, out)
            if "residual_gradient" in self._buffers and out.requires_grad:
                row = self.row
                out.register_hook(lambda gradient: self._on_gradient(row, column, gradient))  # type: ignore[no-untyped-call]

        return hook

    def _on_gradient(self, row: int, column: int, gradient: Tensor) -> None:
        if row == self.row:
            self._see("residual_gradient", column, gradient)
        else:  # of an earlier step's forward pass
            norms_S = residual_gradient(self._seeded(gradient.detach()))
            self._buffers["residual_gradient"].write(row, [column], norms_S.unsqueeze(1))

    def _watch(self, column: int, branch: Branch) -> None:
        """Remember the stream on the way in and look at what is added on the way out."""

        def entering(module: nn.Module, inputs: Any, named: Any) -> None:
            del module
            if self.row is None:
                return
            stream = first_tensor(inputs)
            stream = first_tensor(named) if stream is None else stream
            if stream is not None:
                # a block of the user's may change it in place
                self._streams[column] = stream if self._zoo else stream.detach().clone()

        def leaving(module: nn.Module, inputs: Any, output: Any) -> None:
            del module, inputs
            out, stream = first_tensor(output), self._streams.get(column)
            if self.row is None or out is None or stream is None or out.shape != stream.shape:
                return
            self._see("branch_ratio", column, out if branch.inner is not None else out.detach() - stream, stream)

        self._hooks.append(partial(branch.host.register_forward_pre_hook, entering, with_kwargs=True))
        self._hooks.append(partial((branch.inner or branch.host).register_forward_hook, leaving))

    def _watch_norm(self, column: int, host: nn.Module) -> None:
        """Look at what the norm of a Post-LN branch divides."""
        if not isinstance(host, Residual) or host.norm is None or host.placement != "post":
            return

        def entering(module: nn.Module, inputs: Any) -> None:
            del module
            if self.row is not None:
                self._see("shortcut_weight", column, inputs[0])

        self._hooks.append(partial(host.norm.register_forward_pre_hook, entering))

    def _see(self, quantity: str, column: int, *tensors: Tensor) -> None:
        """Measure now, or at the end of the step what is sure not to be changed in place until then.

        Beside tensors of this size it is cold calls that cost: a norm between two layers takes several times as
        long as one right after another norm.
        """
        if self._zoo:
            self._kept.setdefault(quantity, []).append((column, tensors))
        else:
            seeded = (self._seeded(one.detach()) for one in tensors)
            self._buffers[quantity].waiting[column] = PROBES[quantity](*seeded)

    def _measure_kept(self) -> None:
        stds: dict[int, Tensor] = {}  # of the streams, which two quantities need

        def std(x: Tensor) -> Tensor:
            if id(x) not in stds:
                stds[id(x)] = residual_std(x)
            return stds[id(x)]

        probes = PROBES | {
            "residual_std": std,
            "branch_ratio": lambda branch, stream: branch_ratio(branch, stream, std(stream)),
        }
        with torch.no_grad():
            for quantity, kept in self._kept.items():
                waiting, probe = self._buffers[quantity].waiting, probes[quantity]
                for column, tensors in kept:
                    waiting[column] = probe(*tensors)
        self._kept.clear()

    # ------------------------------------------------------------------------------------ gradients and updates

    def gradients(self) -> Tensor | None:
        """Measure the gradients; returns the norms [S, P] on a record step, else ``None``."""
        if self.row is None:
            return None
        gradients = [value.grad for _, value in self.subject.named_parameters]
        norms_SP = parameter_norms(gradients, self.subject.batched, len(self.subject.seeds))
        self._write("parameter_gradient_norm", norms_SP)
        self._write("gradient_norm", joint_norm(norms_SP).unsqueeze(1))
        if "layer_gradient_norm" in self._buffers:
            with_zero = torch.cat([norms_SP, norms_SP.new_zeros(len(norms_SP), 1)], dim=1)
            self._write("layer_gradient_norm", torch.linalg.vector_norm(with_zero[:, self._of_layer], dim=2))
        return norms_SP

    def before_update(self) -> None:
        """Keep the weights that the update is measured against."""
        if self.row is None or "update_ratio" not in self._buffers:
            return
        weights = [value.detach() for _, value in self._matrices]
        if not self._before:
            self._before = [torch.empty_like(weight) for weight in weights]
        torch._foreach_copy_(self._before, weights)
        self._has_before = True

    def after_update(self) -> None:
        """Measure what the update changed."""
        if self.row is None or not self._has_before:
            return
        weights = [value.detach() for _, value in self._matrices]
        self._write(
            "update_ratio",
            update_ratio(self._before, weights, self.subject.batched, len(self.subject.seeds), overwrite=True),
        )
        self._has_before = False

    def _is_matrix(self, value: Tensor) -> bool:
        """Whether a parameter has two dimensions besides that of the seeds; a zoo bias has more, of size one."""
        own = value.shape[int(self.subject.batched) :]
        return sum(size > 1 for size in own) >= 2 if self._zoo else len(own) >= 2

    # ------------------------------------------------------------------------------------------------- the end

    def _scale(self) -> float:
        """Residual scale of the branches, which is one for all of a zoo model."""
        return next((one.host.scale for one in self.subject.branches if isinstance(one.host, Residual)), 1.0)

    def series(self) -> list[dict[str, Series]]:
        """For each seed its series, of the places where the quantity exists; one that was never written has none."""
        found: list[dict[str, Series]] = [{} for _ in self.subject.seeds]
        for quantity, buffer in self._buffers.items():
            rows, columns = sorted(buffer.written), sorted(buffer.seen)
            values = buffer.values
            if quantity == "shortcut_weight":
                values = shortcut_weight(values, self._scale())
            numbers = values.cpu().tolist()
            for position, one in enumerate(found):
                if rows:
                    one[quantity] = Series(
                        quantity=quantity,
                        steps=tuple(self.steps[row] for row in rows),
                        labels=tuple(buffer.labels[column] for column in columns),
                        values=tuple(tuple(numbers[row][position][column] for column in columns) for row in rows),
                    )
        return found


def _padded(groups: Sequence[Sequence[int]], filler: int, device: torch.device) -> Tensor:
    """Groups of indices as one table, so that they are gathered in one call; short ones end in ``filler``."""
    longest = max(map(len, groups), default=0)
    return torch.tensor([[*own, *[filler] * (longest - len(own))] for own in groups], dtype=torch.long, device=device)
