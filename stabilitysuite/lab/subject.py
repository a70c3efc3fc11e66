"""What is trained: a zoo network for several seeds at once, or one module of the user's.

Both offer the same few things to the loop: losses of the next batch, the exact loss where there is one, and the
places where probes look. Shape letters: S seeds, B sequences, T tokens, D width.
"""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _functorch
from torch.utils._pytree import tree_map

from stabilitysuite.errors import MeasurementError, nearest
from stabilitysuite.lab.randomness import preserved, seeded
from stabilitysuite.lab.tasks import GaussianStream, KnownStream, reference, stream
from stabilitysuite.lab.zoo.build import Network, build
from stabilitysuite.lab.zoo.parts import Residual
from stabilitysuite.spec import GAU, KnownTask, Training, Transformer, callable_name
from stabilitysuite.trace import Reference

__all__ = ["Branch", "OwnSubject", "Subject", "ZooSubject", "copied", "first_tensor", "make_subject", "model_output"]

FIXED_SEQUENCES = 16
"""Sequences of the evaluation set on which the outputs of two sets of weights are compared."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One residual branch: where its stream enters and where its output leaves."""

    label: str
    host: nn.Module
    """The module whose input is the stream."""
    inner: nn.Module | None
    """The module whose output is added; ``None`` where only host(x) - x is known."""


class Subject:
    """What the loop trains and the probes look at."""

    module: nn.Module
    seeds: tuple[int, ...]
    batched: bool
    """Whether parameters and activations have a leading seed dimension."""
    repeatable: bool = True
    """False where losses and outputs cannot be asked for: a step of the user's own computes them."""
    reference: Reference | None
    layers: list[tuple[str, nn.Module]]
    branches: list[Branch]

    @cached_property
    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """The trainable parameters; looked up once, as walking the modules costs a tenth of a small step."""
        return [(name, value) for name, value in self.module.named_parameters() if value.requires_grad]

    @cached_property
    def matrices(self) -> list[tuple[str, nn.Parameter]]:
        """Those with two dimensions or more: biases start at zero and gains at one, so neither has a scale."""
        return [(name, value) for name, value in self.named_parameters if value.dim() - int(self.batched) >= 2]

    @property
    def telling(self) -> list[tuple[str, nn.Parameter]]:
        """Parameters of which one has a non-finite gradient wherever any has, in the range of float32."""
        return self.named_parameters

    def layer_parameters(self) -> list[tuple[str, list[str]]]:
        """For each layer its label and the names of its parameters."""
        names = {id(value): name for name, value in self.named_parameters}
        found = []
        for label, module in self.layers:
            own = [names[id(value)] for value in module.parameters() if id(value) in names]
            found.append((label, own))
        return found

    def next_batch(self) -> Any:
        """Move on to the next training batch and return it."""
        raise NotImplementedError

    def losses(self, batch: Any) -> Tensor:
        """Loss of each seed on a batch [S]."""
        raise NotImplementedError

    def exact_losses(self) -> Tensor | None:
        """Exact loss of each seed on the evaluation set [S]; ``None`` where none is known."""
        return None

    def fixed(self, batch: Any) -> Any:
        """What outputs are compared on throughout a run, given its first batch."""
        raise NotImplementedError

    def outputs(self, fixed: Any) -> Tensor | None:
        """The model's outputs on it [S, ...]; ``None`` where they are not known."""
        raise NotImplementedError

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Inside, the modules are in evaluation mode; what a pass draws or counts is as before afterwards."""
        modes = [(module, module.training) for module in self.module.modules()]
        # by name, as a module may put a new tensor into the place of its buffer
        buffers = [
            (module, name, buffer, buffer.clone())
            for module in self.module.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        weights = [
            (weight, weight._version, weight.detach().clone())
            for weight in self.module.parameters()
            if not self.batched
        ]
        with preserved():
            try:
                self.module.eval()
                yield
            finally:
                for module, training in modes:
                    module.training = training
                with torch.no_grad():
                    for module, name, buffer, before in buffers:
                        buffer.copy_(before)
                        module._buffers[name] = buffer
                    for weight, version, before in weights:
                        if weight._version != version:  # a forward pass that writes into its weights
                            weight.copy_(before)

    def remarks(self) -> list[str]:
        """What a person should know of the data."""
        return []


class ZooSubject(Subject):
    """A network of the zoo, all seeds in one pass."""

    batched = True

    def __init__(self, training: Training, seeds: Sequence[int], device: torch.device) -> None:
        spec, task = training.model, training.task
        assert isinstance(spec, Transformer | GAU)
        assert task is not None
        self.seeds = tuple(seeds)
        self.network: Network = build(spec, task, seeds).to(device)
        self.wide = training.precision == "float64"
        if self.wide:
            self.network.double()
        self.device = device
        self.module = self.network
        self.stream = (
            stream(task, seeds, device)
            if isinstance(task, KnownTask)
            else GaussianStream(task, spec.width, seeds, device)
        )
        self.reference = reference(task) if isinstance(task, KnownTask) else None
        self.layers = [(f"layer {index}", block) for index, block in enumerate(self.network.layers)]
        self.branches = [
            Branch(f"{label} {name}", residual, residual.branch)
            for label, block in self.layers
            for name, residual in block.named_children()
            if isinstance(residual, Residual)
        ]

    @cached_property
    def matrices(self) -> list[tuple[str, nn.Parameter]]:
        """Those with two dimensions besides that of the seeds; a bias has more, of size one."""
        return [
            (name, value) for name, value in self.named_parameters if sum(size > 1 for size in value.shape[1:]) >= 2
        ]

    @property
    def telling(self) -> list[tuple[str, nn.Parameter]]:
        """The matrices: what breaks the gradient of a bias or a gain goes on to one of theirs."""
        return self.matrices or self.named_parameters

    def next_batch(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets."""
        inputs, targets = self.stream.batch()
        return _moved(inputs, self.device, self.wide), targets

    def losses(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Mean cross-entropy of each seed [S]."""
        inputs, targets = batch
        return self.stream.loss(self.network(inputs), targets)

    def exact_losses(self) -> Tensor | None:
        """Against the task's own conditional."""
        if not isinstance(self.stream, KnownStream):
            return None
        return self.stream.exact_loss(self.network(self.stream.evaluation_inputs()))

    def fixed(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Inputs: the evaluation set's first sequences, or those of the first batch."""
        return _evaluation_inputs(self.stream) if isinstance(self.stream, KnownStream) else batch[0]

    def outputs(self, fixed: Tensor) -> Tensor:
        """Logits [S, B, T, V]."""
        logits: Tensor = self.network(fixed)
        return logits


class OwnSubject(Subject):
    """A module of the user's, one seed."""

    batched = False

    def __init__(self, training: Training, seed: int, device: torch.device) -> None:
        self.seeds = (seed,)
        self.training = training
        self.repeatable = training.step is None
        self.device = device
        self.notes: list[str] = []
        self.module = _made(training, seed, self.notes).to(device)
        self.wide = training.precision == "float64"
        if self.wide:
            self.module.double()
        self.layers = _layers(self.module, training.layers)
        self.branches = [Branch(label, module, None) for label, module in self.layers]
        self.stream: KnownStream | None = None
        self.reference = None
        if isinstance(training.task, KnownTask):
            self.stream = stream(training.task, self.seeds, device)
            self.reference = reference(training.task)
        else:
            self._batches = self._cycled(seed)

    def _cycled(self, seed: int) -> Iterator[Any]:
        assert self.training.data is not None
        for turn in itertools.count():
            count = -1
            for count, batch in enumerate(self._data(seed)):  # noqa: B007 -- count is read after the loop
                yield _moved(batch, self.device, self.wide)
            if count < 0:
                raise MeasurementError(
                    f"data {callable_name(self.training.data)}({seed}) has no batches"
                    + (" the second time it is called: return a fresh iterable each time" if turn else "")
                )
            if not turn:
                self.notes.append(f"data has {count + 1} batches, fewer than the steps: they are gone through again")

    def _data(self, seed: int) -> Any:
        made = self.training.data(seed)  # type: ignore[misc]
        try:
            return iter(made)
        except TypeError:
            raise MeasurementError(
                f"data {callable_name(self.training.data)}({seed}) must return an iterable of batches, "  # type: ignore[arg-type]
                f"it returned {type(made).__name__}"
            ) from None

    def next_batch(self) -> Any:
        """The next batch of the task or of the user's data."""
        return self.stream.batch() if self.stream is not None else next(self._batches)

    def losses(self, batch: Any) -> Tensor:
        """Loss of the one seed [1]."""
        if self.stream is not None:
            inputs, targets = batch
            return self.stream.loss(self._logits(inputs), targets)
        loss = self.training.loss(self.module, batch)  # type: ignore[misc]
        return scalar(loss, self.training.loss).reshape(1)

    def remarks(self) -> list[str]:
        """What was noticed about the user's data."""
        return self.notes

    def _logits(self, inputs_SBT: Tensor) -> Tensor:
        out = _first(self.module(inputs_SBT[0]))
        task = self.training.task
        assert isinstance(task, KnownTask)
        wanted = (*inputs_SBT.shape[1 : 2 if task.one_label else 3], task.outputs)
        if out is None or tuple(out.shape) != wanted:
            got = "no tensor" if out is None else f"shape {tuple(out.shape)}"
            raise MeasurementError(
                f"model {callable_name(self.training.model)}: on task={type(task).__name__}() it takes "  # type: ignore[arg-type]
                f"tokens {tuple(inputs_SBT.shape[1:])} and must return logits {wanted}, it returned {got}"
            )
        return out.unsqueeze(0)

    def exact_losses(self) -> Tensor | None:
        """Against the task's own conditional, where there is a task."""
        if self.stream is None:
            return None
        with self.undisturbed():
            return self.stream.exact_loss(self._logits(self.stream.evaluation_inputs()))

    def fixed(self, batch: Any) -> Any:
        """The evaluation set's first sequences, or the first batch as it was."""
        if self.stream is not None:
            return _evaluation_inputs(self.stream)
        return copied(batch)

    def outputs(self, fixed: Any) -> Tensor | None:
        """Logits, or what the model returned while the user's loss was computed [1, ...]."""
        if self.stream is not None:
            return self._logits(fixed)
        seen: list[Tensor | None] = []
        handle = self.module.register_forward_hook(lambda *called: seen.append(model_output(called[2])))
        try:
            self.training.loss(self.module, copied(fixed))  # type: ignore[misc]
        finally:
            handle.remove()
        return seen[-1].unsqueeze(0) if seen and seen[-1] is not None else None


def scalar(loss: Any, made_by: Any) -> Tensor:
    """The user's loss, checked.

    Raises:
        MeasurementError: It is no tensor, not a scalar, or has no gradient graph.
    """
    name = callable_name(made_by)
    if not isinstance(loss, Tensor):
        raise MeasurementError(f"loss {name} must return a scalar tensor, it returned {type(loss).__name__}")
    if loss.numel() != 1:
        raise MeasurementError(f"loss {name} must return a scalar, it returned shape {tuple(loss.shape)}: take a mean")
    if loss.is_complex():
        raise MeasurementError(f"loss {name} must return a real number, it returned a complex one: take its abs()")
    return loss


_BUILT: weakref.WeakSet[nn.Module] = weakref.WeakSet()
"""Modules that factories returned: one that comes twice carries what it learned from one seed to the next."""


def _made(training: Training, seed: int, notes: list[str]) -> nn.Module:
    assert callable(training.model)
    name = callable_name(training.model)
    seeded(seed, "init")
    given = torch.initial_seed()
    module = training.model()
    if torch.initial_seed() != given:
        notes.append(f"model {name} sets torch's global seed: every seed starts from the same weights")
    if not isinstance(module, nn.Module):
        raise MeasurementError(f"model {name} must return an nn.Module, it returned {type(module).__name__}")
    if training.steps and not any(parameter.requires_grad for parameter in module.parameters()):
        raise MeasurementError(f"model {name} has no trainable parameter: there is nothing to train")
    if module in _BUILT:
        raise MeasurementError(
            f"model {name} returned a module that it had returned before: build a fresh one at each call, or the "
            "second seed starts where the first one ended"
        )
    _BUILT.add(module)
    return module


def _layers(module: nn.Module, pattern: str | None) -> list[tuple[str, nn.Module]]:
    """The blocks: those the pattern names, else the heaviest run of two or more alike in one container."""
    named = dict(module.named_modules())
    if pattern is not None:
        found = [(name, block) for name, block in named.items() if fnmatch.fnmatchcase(name, pattern)]
        depth = pattern.count(".")
        found = [(name, block) for name, block in found if name.count(".") == depth]
        if not found:
            raise MeasurementError(f"layers={pattern!r} matches no submodule: {nearest(pattern, filter(None, named))}")
        return found
    best: list[tuple[str, nn.Module]] = []
    weight = 0
    for name, container in named.items():
        children = list(container.named_children())
        alike = len(children) > 1 and len({type(child) for _, child in children}) == 1
        if not alike or not isinstance(container, nn.ModuleList | nn.Sequential):
            continue
        own = sum(parameter.numel() for parameter in container.parameters())
        if own > weight:
            prefix = f"{name}." if name else ""
            best, weight = [(f"{prefix}{key}", child) for key, child in children], own
    return best


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    items = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    for item in items:
        yield from _tensors(item)


def _first(value: Any) -> Tensor | None:
    return next(_tensors(value), None)


def model_output(value: Any) -> Tensor | None:
    """What a model predicts: its first floating-point tensor that is no scalar, as some put a loss before it."""
    return next((found for found in _tensors(value) if found.is_floating_point() and found.dim()), None)


def first_tensor(value: Any) -> Tensor | None:
    """The first tensor in what a hook sees of a module, which may be a tuple or a mapping.

    Where ``torch.func`` maps a module over seeds a hook sees one seed's view, which is dead after the pass; what it
    stands for is the tensor of all seeds [S, ...].
    """
    found = _first(value)
    if found is None or not _functorch.is_batchedtensor(found):
        return found
    whole = _functorch.get_unwrapped(found)
    dimension = _functorch.maybe_get_bdim(found)
    return whole if dimension == 0 else whole.movedim(dimension, 0)


def _evaluation_inputs(stream: KnownStream) -> Tensor:
    return stream.evaluation_inputs()[:, :FIXED_SEQUENCES]


def copied(batch: Any) -> Any:
    """A batch of its own, as a loss of the user's may change what it is given."""
    return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, batch)


def _moved(batch: Any, device: torch.device, wide: bool) -> Any:
    """The batch on the device; ``wide`` makes its floating-point numbers float64."""
    if isinstance(batch, Tensor):
        dtype = torch.float64 if wide and batch.is_floating_point() else batch.dtype
        return batch.to(device, dtype, non_blocking=True)  # the host need not wait for what the device does before
    if isinstance(batch, dict):
        return {key: _moved(value, device, wide) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        moved = [_moved(value, device, wide) for value in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)
    return batch


def make_subject(training: Training, seeds: Sequence[int], device: torch.device) -> Subject:
    """The subject of a training: all seeds for a zoo model, exactly one for a module of the user's."""
    if isinstance(training.model, Transformer | GAU):
        return ZooSubject(training, seeds, device)
    (seed,) = seeds
    return OwnSubject(training, seed, device)
