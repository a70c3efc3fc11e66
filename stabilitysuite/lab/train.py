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

import torch

from stabilitysuite.errors import MeasurementError
from stabilitysuite.lab.alarm import Alarm, OutOfTime
from stabilitysuite.lab.device import deterministic, free_memory
from stabilitysuite.lab.ensemble import EnsembleSubject, why_not, words
from stabilitysuite.lab.loop import Loop
from stabilitysuite.lab.randomness import preserved, seeded
from stabilitysuite.lab.subject import Subject, make_subject
from stabilitysuite.lab.warned import Warned, noting
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


@dataclass(frozen=True, slots=True)
class _Around:
    """What all passes of one call share."""

    device: torch.device
    deadline: float | None
    progress: Callable[[Progress], None] | None
    warned: Callable[[Warned], None]


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
    warned: Callable[[Warned], None] | None = None,
) -> list[Trace]:
    """Carry out runs; those that differ in their seed only, of a zoo model, share passes.

    Threads, denormal flushing, default dtype and every global generator are as before afterwards.

    Args:
        runs: What to train.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        threads: torch threads while it runs.
        budget: Wall-clock seconds for all of them; what is not done by then ends as ``timeout``, also where it hangs
            (:mod:`stabilitysuite.lab.alarm`).
        progress: Called after each step.
        warned: Called with each warning of the training, as often as it is raised.

    Returns:
        One trace a run, in the order of the runs.

    Raises:
        MeasurementError: A declared callable does not do what it must; the message names it.
    """
    target = usable_device(device)
    _load_optimizers()
    deadline = None if budget is None else time.monotonic() + budget
    around = _Around(target, deadline, progress, warned or (lambda _: None))
    traces: dict[int, Trace] = {}
    with conditions(target, threads):
        for group in _passes(runs):
            found = _trained([runs[index] for index in group], around)
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
    with preserved(), deterministic(device), _autocast_kept(device):
        try:
            torch.set_num_threads(threads)
            # a vanishing network runs several times slower on denormals; below 1.2e-38 everything reads zero
            torch.set_flush_denormal(True)
            _settings()
            yield
        finally:
            torch.set_num_threads(had_threads)
            torch.set_default_dtype(dtype)
            torch.set_flush_denormal(flushed)
            torch.set_grad_enabled(gradients)
            os.chdir(folder)  # a model of the user's may have gone elsewhere; last, as the folder may be gone


def _settings() -> None:
    """What a pass begins with; a model of the user's may have changed it in the pass before."""
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)


@contextlib.contextmanager
def _autocast_kept(device: torch.device) -> Iterator[None]:
    """What an interrupt in the middle of leaving autocast would leave behind: stale weights for the next run."""

    def depth() -> int:
        torch.autocast_increment_nesting()
        return int(torch.autocast_decrement_nesting())

    enabled, before = torch.is_autocast_enabled(device.type), depth()
    try:
        yield
    finally:
        torch.set_autocast_enabled(device.type, enabled)
        for _ in range(depth() - before):
            torch.autocast_decrement_nesting()
        if not before:
            torch.clear_autocast_cache()


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


def _trained(runs: Sequence[Run], around: _Around) -> list[Trace]:
    """The runs of one training: zoo models in one pass, those of the user's only where that is proved equal."""
    if isinstance(runs[0].training.model, Transformer | GAU):
        return _fitting(runs, around)
    if len(runs) == 1:
        return _one_pass(runs, around)
    try:
        with Alarm(around.deadline):
            reason = why_not(runs, around.device)
    except OutOfTime as error:
        return _without_data(runs, _timeout(None, error.place))
    if reason is None:
        kept: list[Warned] = []
        try:
            found = _one_pass(runs, dataclasses.replace(around, warned=kept.append), EnsembleSubject)
        except Exception as error:  # noqa: BLE001 -- one by one is always right, and raises what is really wrong
            reason = words(error)
        else:
            if found[0].outcome.name != "out-of-memory":
                for one in kept:
                    around.warned(one)
                return [dataclasses.replace(trace, engine=f"{trace.engine}, torch.func") for trace in found]
            reason = "one pass ran out of memory"
            free_memory()
    alone = [_one_pass([one], around)[0] for one in runs]
    return [dataclasses.replace(trace, engine=f"sequential: {reason}") for trace in alone]


def _fitting(runs: Sequence[Run], around: _Around) -> list[Trace]:
    """The runs of one pass, or of two with half the seeds each where memory does not suffice for one."""
    found = _one_pass(runs, around)
    if len(runs) == 1 or found[0].outcome.name != "out-of-memory":
        return found
    free_memory()
    half = (len(runs) + 1) // 2
    note = f"{len(runs)} seeds in one pass ran out of memory ({found[0].outcome.detail}): repeated with {half}"
    found = _one_pass(runs[:half], around) + _one_pass(runs[half:], around)
    return [dataclasses.replace(trace, warnings=(*trace.warnings, note)) for trace in found]


def _one_pass(
    runs: Sequence[Run],
    around: _Around,
    make: Callable[[Training, Sequence[int], torch.device], Subject] = make_subject,
) -> list[Trace]:
    """The runs of one pass; trouble of the machine becomes an outcome, a fault of the user's code an exception."""
    first = runs[0]
    seeds = tuple(one.seed for one in runs)
    started = time.process_time()
    loop: Loop | None = None
    deadline = around.deadline

    def report(step: int, loss: float) -> None:
        if deadline is not None and time.monotonic() > deadline:
            raise OutOfTime
        if around.progress is not None:
            around.progress(Progress(first.arm, seeds, step, first.training.steps, loss))

    def note(one: Warned) -> None:
        spelled.append(one.words())
        around.warned(one)

    spelled: list[str] = []
    trouble: Outcome | None = None
    alarm = Alarm(deadline)
    with noting(note):
        try:
            if deadline is not None and time.monotonic() > deadline:
                raise OutOfTime
            _settings()
            with alarm:
                subject = make(first.training, seeds, around.device)
                seeded(first.seed, "training")  # what the user's code draws while it trains: dropout, noise
                loop = Loop(subject, first, around.device, report)
                loop.train()
        except OutOfTime as error:
            trouble = _timeout(loop, error.place)
        except Exception as error:
            if alarm.place is not None:  # the user's code made another error of the interrupt
                trouble = _timeout(loop, alarm.place)
            elif _is_memory(error):
                detail = next(iter(str(error).splitlines()), "") or type(error).__name__
                trouble = Outcome(name="out-of-memory", step=loop.step if loop else 0, detail=detail)
            else:
                raise
    engine = f"{len(seeds)} seeds in one pass" if len(seeds) > 1 else "sequential"
    cost = (time.process_time() - started) / len(seeds)
    found = loop.traces(trouble) if loop is not None else []
    notes = tuple(dict.fromkeys(spelled + (loop.notes if loop else [])))
    if not found:
        assert trouble is not None
        found = _without_data(runs, trouble)
    return [
        dataclasses.replace(trace, engine=engine, seconds=cost, warnings=(*notes, *trace.warnings)) for trace in found
    ]


def _without_data(runs: Sequence[Run], trouble: Outcome) -> list[Trace]:
    return [Trace(arm=one.arm, seed=one.seed, outcomes=(trouble,), series={}) for one in runs]


def _timeout(loop: Loop | None, place: str) -> Outcome:
    where = f", interrupted at {place}" if place else ""
    detail = f"the time budget of the case is spent{where}; --stability-budget gives it more"
    return Outcome(name="timeout", step=loop.step if loop else 0, detail=detail)


def _is_memory(error: Exception) -> bool:
    if not isinstance(error, MemoryError | RuntimeError):
        return False
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or "can't allocate memory" in str(error) or "out of memory" in str(error)
