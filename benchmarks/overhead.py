"""What probes cost: an instrumented training over the bare hand-written loop with fused AdamW."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from benchmarks.measure import table
from stabilitysuite.lab.loop import Loop
from stabilitysuite.lab.optim import make_optimizer
from stabilitysuite.lab.probes.recorder import DENSE, record_steps
from stabilitysuite.lab.subject import ZooSubject
from stabilitysuite.plan import ALWAYS
from stabilitysuite.spec import AdamW, Markov, Run, Training, Transformer

__all__ = ["DEVICE", "overhead", "training", "watched"]

DEVICE = torch.device("cpu")
TYPICAL = 200
"""Steps of the run that ratios are told of, and whose share of record steps is kept in shorter ones."""
SIZES = {6: 100, 24: 50, 100: 40}
"""Layers: steps of a measured run, of which half suffice where all are record steps."""


@dataclass(frozen=True)
class _Recorded:
    words: str
    quantities: frozenset[str]
    every: bool
    goal: float


SETS = (
    _Recorded("default probes", ALWAYS, False, 1.05),
    # all other quantities are on demand and measured by no goal
    _Recorded(
        "also parameters, each step",
        ALWAYS | {"shortcut_weight", "parameter_gradient_norm", "update_ratio"},
        True,
        1.20,
    ),
)


@dataclass(frozen=True)
class _Cost:
    milliseconds: float
    """Of a bare step."""
    other: float
    """Ratio over it of a step at which nothing is recorded."""
    record: float
    """Of one at which something is."""
    whole: float
    """Of a run of 200 steps, with what it does once."""


def training(layers: int, steps: int, *, width: int = 64, batch: int = 16, length: int = 32) -> Training:
    """A Pre-LN Transformer on a Markov chain of 64 tokens, AdamW."""
    return Training(
        model=Transformer(layers=layers, width=width, norm="pre"),
        task=Markov(vocab=64, length=length, batch=batch),
        optimizer=AdamW(lr=1e-3),
        steps=steps,
    )


def _run(declared: Training, quantities: frozenset[str] = ALWAYS, every: bool = False) -> Run:
    return Run(
        arm="",
        training=declared,
        seed=1,
        quantities=quantities,
        record_at=frozenset(),
        judge_at=(declared.steps,),
        every=every,
    )


def watched(declared: Training, *, exact: bool = False, seeds: Sequence[int] = (1,)) -> Callable[[], None]:
    """A slice of a training in the lab's loop, default probes at the share of the steps of a run of 200.

    Args:
        declared: What is trained.
        exact: Take the exact losses that outcomes are judged by too, at the steps at which a run does.
        seeds: All in one pass.
    """
    subject = ZooSubject(declared, seeds, DEVICE)
    run = _run(declared)

    def slice_() -> None:
        loop = Loop(subject, run, DEVICE, lambda step, loss: None)
        if declared.steps < TYPICAL:
            loop.recorder._rows = {step: row for row, step in enumerate(_due(declared.steps))}
        if not exact:
            loop._evaluate_at = set()
        with loop.recorder:
            loop._train()
        loop.recorder.series()

    return slice_


def _typical() -> int:
    """Record steps of a run of 200 steps."""
    return len(record_steps(_run(training(1, TYPICAL))))


def _due(steps: int) -> Sequence[int]:
    """Record steps of a short slice: as large a share of it as in a typical run, densely at the start as there."""
    count = round(_typical() / TYPICAL * steps)
    dense = round(count * DENSE / _typical())
    later = count - dense
    return [*range(dense), *(dense + (steps - dense) * turn // later for turn in range(later))]


def _bare(declared: Training) -> Iterator[None]:
    """The loop that one would write by hand, step by step: no loss is kept, nothing is looked at."""
    subject = ZooSubject(declared, (1,), DEVICE)
    optimizer = make_optimizer(declared, subject.module)
    while True:
        loss = subject.losses(subject.next_batch()).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        yield


def _beside(declared: Training, what: _Recorded) -> _Cost:
    """Each step of a run of the lab's right before one of the bare loop: what a second is worth changes in seconds."""
    bare = _bare(declared)
    run = _run(declared, what.quantities, what.every)
    recorded = record_steps(run)
    bares: list[float] = []
    ratios: dict[bool, list[float]] = {True: [], False: []}
    marks = [time.process_time()]

    def after(done: int, loss: float) -> None:
        del loss
        marks.append(time.process_time())
        next(bare)
        bares.append(time.process_time() - marks[-1])
        ratios[done - 1 in recorded].append((marks[-1] - marks[-2]) / bares[-1])
        marks.append(time.process_time())

    subject = ZooSubject(declared, (1,), DEVICE)
    started = time.process_time()
    loop = Loop(subject, run, DEVICE, after)
    loop._evaluate_at = set()
    with loop.recorder:
        once = time.process_time() - started
        marks[0] = time.process_time()
        loop._train()
        started = time.process_time()
    loop.recorder.series()
    once += time.process_time() - started
    step = statistics.median(bares)
    share = 1.0 if what.every else _typical() / TYPICAL
    record = statistics.median(ratios[True])
    other = statistics.median(ratios[False]) if ratios[False] else math.nan
    whole = record if what.every else share * record + (1 - share) * other
    return _Cost(1e3 * step, other, record, whole + once / (TYPICAL * step))


def overhead(sizes: Mapping[int, int] = SIZES, *, turns: int = 3) -> str:
    """The table of ratios.

    Args:
        sizes: For each number of layers the steps of a run.
        turns: How often each run is measured; the middle one is told, and the range of all.
    """
    rows = []
    for layers, steps in sizes.items():
        for what in SETS:
            found = sorted(
                (_beside(training(layers, steps // (1 + what.every)), what) for _ in range(turns)),
                key=lambda one: one.whole,
            )
            middle = found[turns // 2]
            rows.append(
                [
                    *([str(layers), f"{middle.milliseconds:.1f}"] if what is SETS[0] else ["", ""]),
                    what.words,
                    "" if what.every else f"{middle.other:.3f}",
                    f"{middle.record:.3f}",
                    f"{middle.whole:.3f}",
                    f"{found[0].whole:.3f} to {found[-1].whole:.3f}",
                    f"{what.goal:.2f}",
                ]
            )
    return table(
        ["layers", "bare ms/step", "what is recorded", "other steps", "record steps", "200 steps", "range", "goal"],
        rows,
    )
