"""The training loop: Runs in, Traces out. It knows nothing of claims."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stabilitysuite.errors import MeasurementError
from stabilitysuite.lab.device import deterministic, free_memory
from stabilitysuite.lab.ensemble import EnsembleSubject, why_not, words
from stabilitysuite.lab.loop import Loop, OutOfTime
from stabilitysuite.lab.randomness import preserved, seeded
from stabilitysuite.lab.subject import Subject, make_subject
from stabilitysuite.spec import GAU, Run, Spec, Training, Transformer
from stabilitysuite.trace import Outcome, Trace

__all__ = ["Progress", "conditions", "run", "usable_device"]

SEEDS_IN_ONE_PASS = 16
NUMBERS_IN_ONE_PASS = 40_000_000
"""Largest number of parameters of all seeds of one pass together, so that memory stays below 2 GiB."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a running case is."""

    arm: str
    seeds: tuple[int, ...]
    step: int
    steps: int
    loss: float
    """Training loss, the mean over the seeds of the pass."""


def usable_device(name: str) -> torch.device:
    """The device of that name.

    Raises:
        MeasurementError: torch does not know it, or this machine has none.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise MeasurementError(f"device {name!r} is not known to torch: use cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        raise MeasurementError(f"device {name!r} is not there: torch sees {count} CUDA devices; use cpu")
    if device.type not in ("cpu", "cuda"):
        raise MeasurementError(f"device {name!r} is not supported: use cpu, cuda or cuda:N")
    return device


def run(
    runs: Sequence[Run],
    *,
    device: str = "cpu",
    threads: int = 1,
    budget: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> list[Trace]:
    """Carry out runs; those that differ in their seed only, of a zoo model, share passes.

    Threads, denormal flushing, default dtype and every global generator are as before afterwards.

    Args:
        runs: What to train.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        threads: torch threads while it runs.
        budget: Wall-clock seconds for all of them; what is not done by then ends as ``timeout``.
        progress: Called after each step.

    Returns:
        One trace a run, in the order of the runs.

    Raises:
        MeasurementError: A declared callable does not do what it must; the message names it.
    """
    target = usable_device(device)
    _load_optimizers()
    deadline = None if budget is None else time.monotonic() + budget
    traces: dict[int, Trace] = {}
    with conditions(target, threads):
        for group in _passes(runs):
            found = _trained([runs[index] for index in group], target, deadline, progress)
            traces |= dict(zip(group, found, strict=True))
    return [traces[index] for index in range(len(runs))]


def _load_optimizers() -> None:
    """Let the first optimizer import what it imports (1.5 to 3 s) before a case's clock runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


@contextlib.contextmanager
def conditions(device: torch.device, threads: int) -> Iterator[None]:
    """The conditions of a run, and the caller's own afterwards."""
    had_threads, dtype, gradients = (
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
    )
    flushed = bool(torch.tensor([1e-39]) * 1.0 == 0)
    folder = Path.cwd()
    with preserved(), deterministic(device):
        try:
            torch.set_num_threads(threads)
            torch.set_default_dtype(torch.float32)
            # a vanishing network runs several times slower on denormals; below 1.2e-38 everything reads zero
            torch.set_flush_denormal(True)
            torch.set_grad_enabled(True)
            yield
        finally:
            torch.set_num_threads(had_threads)
            torch.set_default_dtype(dtype)
            torch.set_flush_denormal(flushed)
            torch.set_grad_enabled(gradients)
            os.chdir(folder)  # a model of the user's may have gone elsewhere; last, as the folder may be gone


def _passes(runs: Sequence[Run]) -> list[list[int]]:
    """Positions of the runs that are computed together."""
    groups: dict[Run | int, list[int]] = {}
    for index, one in enumerate(runs):
        groups.setdefault(_but_for_the_seed(one) or index + 1, []).append(index)
    passes: list[list[int]] = []
    for group in groups.values():
        width = _width(runs[group[0]])
        passes += [group[start : start + width] for start in range(0, len(group), width)]
    return passes


def _but_for_the_seed(one: Run) -> Run | None:
    """What runs of one training have in common; ``None`` where a callable of the user's cannot be a key."""
    found = dataclasses.replace(one, seed=0)
    try:
        hash(found)
    except TypeError:
        return None
    return found


def _width(one: Run) -> int:
    """How many seeds fit into one pass."""
    model, optimizer = one.training.model, one.training.optimizer
    if one.training.precision == "float16" and not (isinstance(optimizer, Spec) and one.training.scheduler is None):
        return 1  # a seed that overflows skips its update, which an optimizer of the user's makes for all
    if not isinstance(model, Transformer | GAU):
        return SEEDS_IN_ONE_PASS
    matrices = 12 if isinstance(model, Transformer) else 3 * model.expansion + 1
    numbers = max(model.layers, 1) * matrices * model.width**2
    return max(1, min(SEEDS_IN_ONE_PASS, NUMBERS_IN_ONE_PASS // numbers))


def _trained(
    runs: Sequence[Run],
    device: torch.device,
    deadline: float | None,
    progress: Callable[[Progress], None] | None,
) -> list[Trace]:
    """The runs of one training: zoo models in one pass, those of the user's only where that is proved equal."""
    if isinstance(runs[0].training.model, Transformer | GAU):
        return _fitting(runs, device, deadline, progress)
    if len(runs) == 1:
        return _one_pass(runs, device, deadline, progress)
    reason = why_not(runs, device)
    if reason is None:
        try:
            found = _one_pass(runs, device, deadline, progress, EnsembleSubject)
        except Exception as error:  # noqa: BLE001 -- one by one is always right, and raises what is really wrong
            reason = words(error)
        else:
            if found[0].outcome.name != "out-of-memory":
                return [dataclasses.replace(trace, engine=f"{trace.engine}, torch.func") for trace in found]
            reason = "one pass ran out of memory"
            free_memory()
    alone = [_one_pass([one], device, deadline, progress)[0] for one in runs]
    return [dataclasses.replace(trace, engine=f"sequential: {reason}") for trace in alone]


def _fitting(
    runs: Sequence[Run],
    device: torch.device,
    deadline: float | None,
    progress: Callable[[Progress], None] | None,
) -> list[Trace]:
    """The runs of one pass, or of two with half the seeds each where memory does not suffice for one."""
    found = _one_pass(runs, device, deadline, progress)
    if len(runs) == 1 or found[0].outcome.name != "out-of-memory":
        return found
    free_memory()
    half = (len(runs) + 1) // 2
    note = f"{len(runs)} seeds in one pass ran out of memory ({found[0].outcome.detail}): repeated with {half}"
    found = _one_pass(runs[:half], device, deadline, progress) + _one_pass(runs[half:], device, deadline, progress)
    return [dataclasses.replace(trace, warnings=(*trace.warnings, note)) for trace in found]


def _one_pass(
    runs: Sequence[Run],
    device: torch.device,
    deadline: float | None,
    progress: Callable[[Progress], None] | None,
    make: Callable[[Training, Sequence[int], torch.device], Subject] = make_subject,
) -> list[Trace]:
    """The runs of one pass; trouble of the machine becomes an outcome, a fault of the user's code an exception."""
    first = runs[0]
    seeds = tuple(one.seed for one in runs)
    started = time.process_time()
    loop: Loop | None = None

    def report(step: int, loss: float) -> None:
        if deadline is not None and time.monotonic() > deadline:
            raise OutOfTime
        if progress is not None:
            progress(Progress(first.arm, seeds, step, first.training.steps, loss))

    trouble: Outcome | None = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # vmap says so of each kernel that it has to call seed by seed
        warnings.filterwarnings("ignore", message="There is a performance drop")
        try:
            if deadline is not None and time.monotonic() > deadline:
                raise OutOfTime
            subject = make(first.training, seeds, device)
            seeded(first.seed, "training")  # what the user's code draws while it trains: dropout, noise
            loop = Loop(subject, first, device, report)
            loop.train()
        except OutOfTime:
            trouble = Outcome(
                name="timeout", step=loop.step if loop else 0, detail="the time budget of the case is spent"
            )
        except (MemoryError, RuntimeError) as error:
            if not _is_memory(error):
                raise
            trouble = Outcome(name="out-of-memory", step=loop.step if loop else 0, detail=str(error).splitlines()[0])
    engine = f"{len(seeds)} seeds in one pass" if len(seeds) > 1 else "sequential"
    cost = (time.process_time() - started) / len(seeds)
    found = loop.traces(trouble) if loop is not None else []
    notes = tuple(dict.fromkeys(_words(caught) + (loop.notes if loop else [])))
    if not found:
        assert trouble is not None
        found = [Trace(arm=first.arm, seed=seed, outcomes=(trouble,), series={}) for seed in seeds]
    return [
        dataclasses.replace(trace, engine=engine, seconds=cost, warnings=(*notes, *trace.warnings)) for trace in found
    ]


def _is_memory(error: Exception) -> bool:
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or "can't allocate memory" in str(error) or "out of memory" in str(error)


def _words(caught: Sequence[Any]) -> list[str]:
    return [f"{one.category.__name__}: {one.message}" for one in caught]
