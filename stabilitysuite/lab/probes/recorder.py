"""When and where to measure: hooks that look only on record steps, and one buffer for all numbers.

Hooks return None, since a hook that returns something replaces the activation. Numbers stay on the device in a
buffer [rows, S, columns] until the run is over, so that no record step waits for the device.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from stabilitysuite.lab.probes.attention_logits import attention_entropy, attention_logit_max, attention_logit_std
from stabilitysuite.lab.probes.branch_ratio import branch_ratio
from stabilitysuite.lab.probes.layer_cosine import layer_cosine
from stabilitysuite.lab.probes.parameters import Parameters
from stabilitysuite.lab.probes.passes import Passes
from stabilitysuite.lab.probes.residual_gradient import residual_gradient
from stabilitysuite.lab.probes.residual_std import residual_std
from stabilitysuite.lab.probes.shortcut_weight import shortcut_weight, through_norm
from stabilitysuite.lab.probes.token_cosine import token_cosine
from stabilitysuite.lab.subject import Subject, ZooSubject, first_tensor, model_output
from stabilitysuite.lab.summary import SUMMARIES
from stabilitysuite.lab.zoo.attention import Attention, GatedAttentionUnit
from stabilitysuite.lab.zoo.parts import Residual
from stabilitysuite.quantity import QUANTITIES, Axis
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
    "layer_cosine": layer_cosine,
    "output_logit_std": residual_std,
}
"""From activations and their gradients, with a leading seed dimension, to one number a seed."""
OF_LOGITS: dict[str, Callable[[Tensor, bool], Tensor]] = {
    "attention_logit_std": attention_logit_std,
    "attention_logit_max": attention_logit_max,
    "attention_entropy": attention_entropy,
}
"""From attention logits [S, B, H, T, T], and whether a causal mask hides some of them."""


OF_LOSSES = frozenset({"training_loss", "evaluated_loss", *SUMMARIES})
"""What the loop tells from losses, without a probe."""


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
        self.scale_S: Tensor | None = None
        """What each seed's loss was multiplied by in this step [S]: gradients of activations still carry it."""
        self._device = device
        self._buffers: dict[str, _Buffer] = {}
        self._hooks: list[Callable[[], RemovableHandle]] = []  # each adds one
        self._handles: list[RemovableHandle] = []
        self._streams: dict[tuple[str, int], Tensor] = {}  # on their way through what a quantity watches
        self._kept: dict[str, list[tuple[int, tuple[Tensor, ...]]]] = {}  # to be measured at the end of the step
        wanted = frozenset(
            name for name in run.quantities - OF_LOSSES if run.training.steps or not QUANTITIES[name].training
        )
        self._parameters = Parameters(subject, wanted, self._write, device)
        columns = {
            "branch_ratio": [branch.label for branch in subject.branches],
            "shortcut_weight": [branch.label for branch in subject.branches],
            "parameter_gradient_norm": self._parameters.names,
            "norm_gain": [name for name, _ in self._parameters.gains],
        }
        by_axis: dict[Axis | None, list[str]] = {
            None: [""],
            "layer": [label for label, _ in subject.layers],
            "parameter": [name for name, _ in self._parameters.matrices],
        }
        for quantity in sorted(wanted):
            labels = columns[quantity] if quantity in columns else by_axis[QUANTITIES[quantity].axis]
            if labels:
                self._buffers[quantity] = _Buffer(quantity, labels, len(self.steps), len(subject.seeds), device)
        self._passes = Passes(subject, wanted, self._parameters.matrices)

    # --------------------------------------------------------------------------------------------- activations

    def __enter__(self) -> Recorder:
        of_layers = {"residual_std", "token_cosine", "residual_gradient"} & set(self._buffers)
        for column, (_, module) in enumerate(self.subject.layers):
            if of_layers:
                self._hooks.append(partial(module.register_forward_hook, self._on_layer(column)))
            if "layer_cosine" in self._buffers:
                self._watch("layer_cosine", column, module, None)
            if set(OF_LOGITS) & set(self._buffers):
                self._watch_attention(column, module)
        for column, branch in enumerate(self.subject.branches):
            if "branch_ratio" in self._buffers:
                self._watch("branch_ratio", column, branch.host, branch.inner)
            if "shortcut_weight" in self._buffers:
                self._watch_norm(column, branch.host)
        if "output_logit_std" in self._buffers:
            self._hooks.append(partial(self.subject.module.register_forward_hook, self._on_output))
        return self

    def __exit__(self, *error: object) -> None:
        if any(error):  # half a step: what was not reached must not read as NaN
            self._kept.clear()
            for buffer in self._buffers.values():
                buffer.waiting.clear()
        self.end()
        self._detach()
        self._hooks.clear()

    def begin(self, step: int, batch: Any) -> None:
        """From here on the given step is measured, if it is a record step; else nothing hangs on the modules."""
        self.row = self._rows.get(step)
        if self.row is None:
            self._detach()
            return
        if not self._handles:
            self._handles = [add() for add in self._hooks]
        self._parameters.weights()
        with self.paused():
            found = self._passes.begin(batch)
        self._write_all(found)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, nothing is measured, so that a forward pass can be repeated."""
        row, self.row = self.row, None
        try:
            yield
        finally:
            self.row = row

    def _detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def end(self) -> None:
        """From here on nothing is measured; what was is written down."""
        if self.row is None:
            return
        self._measure_kept()
        if self.scale_S is not None and "residual_gradient" in self._buffers:
            waiting = self._buffers["residual_gradient"].waiting
            waiting |= {column: self._unscaled(norms_S) for column, norms_S in waiting.items()}
        for buffer in self._buffers.values():
            buffer.flush(self.row)
        self.row = None
        self._streams.clear()

    def _write(self, quantity: str, values: Tensor) -> None:
        """All columns of a quantity at once."""
        if quantity in self._buffers and self.row is not None:
            self._buffers[quantity].write(self.row, None, values)

    def _write_all(self, found: dict[str, Tensor]) -> None:
        """Quantities of one column, each [S]."""
        for quantity, values_S in found.items():
            self._write(quantity, values_S.unsqueeze(1))

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
            self._buffers["residual_gradient"].write(row, [column], self._unscaled(norms_S).unsqueeze(1))

    def _unscaled(self, norms_S: Tensor) -> Tensor:
        return norms_S if self.scale_S is None else norms_S / self.scale_S

    def _on_output(self, module: nn.Module, inputs: Any, output: Any) -> None:
        del module, inputs
        out = first_tensor(model_output(output))
        if self.row is not None and out is not None:
            self._see("output_logit_std", 0, out)

    def _watch(self, quantity: str, column: int, host: nn.Module, inner: nn.Module | None) -> None:
        """Remember the stream on the way in and look at what comes out, or at what is added, on the way out."""

        def entering(module: nn.Module, inputs: Any, named: Any) -> None:
            del module
            if self.row is None:
                return
            stream = first_tensor(inputs)
            stream = first_tensor(named) if stream is None else stream
            if stream is not None:
                # a block of the user's may change it in place
                self._streams[quantity, column] = stream if self._zoo else stream.detach().clone()

        def leaving(module: nn.Module, inputs: Any, output: Any) -> None:
            del module, inputs
            out, stream = first_tensor(output), self._streams.get((quantity, column))
            if self.row is None or out is None or stream is None or out.shape != stream.shape:
                return
            added = quantity == "branch_ratio" and inner is None
            self._see(quantity, column, out.detach() - stream if added else out, stream)

        self._hooks.append(partial(host.register_forward_pre_hook, entering, with_kwargs=True))
        self._hooks.append(partial((inner or host).register_forward_hook, leaving))

    def _watch_attention(self, column: int, layer: nn.Module) -> None:
        """Compute the logits of a layer's attention again: fused attention does not show them."""

        def entering(module: Attention | GatedAttentionUnit, inputs: Any) -> None:
            if self.row is None:
                return
            with torch.no_grad():
                logits = module.logits(inputs[0])
                for quantity in set(OF_LOGITS) & set(self._buffers):
                    self._buffers[quantity].waiting[column] = OF_LOGITS[quantity](logits, module.causal)

        for module in layer.modules():
            if isinstance(module, Attention | GatedAttentionUnit):
                self._hooks.append(partial(module.register_forward_pre_hook, entering))

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
        norms_SP = self._parameters.gradients()
        self._passes.gradients()
        return norms_SP

    def before_update(self) -> None:
        """Keep what the update is measured against."""
        if self.row is None:
            return
        self._parameters.before_update()
        with self.paused():
            self._passes.before_update()

    def after_update(self) -> None:
        """Measure what the update changed."""
        if self.row is None:
            return
        self._parameters.after_update()
        with self.paused():
            found = self._passes.after_update()
        self._write_all(found)

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
