"""What probes cost: an instrumented training over the bare hand-written loop with fused AdamW."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from benchmarks.measure import interleaved, ratio, table
from stabilitysuite.lab.loop import Loop
from stabilitysuite.lab.optim import make_optimizer
from stabilitysuite.lab.probes.recorder import DENSE, record_steps
from stabilitysuite.lab.subject import ZooSubject
from stabilitysuite.plan import ALWAYS
from stabilitysuite.spec import AdamW, Markov, Run, Training, Transformer

__all__ = ["bare", "overhead", "training", "watched"]

DEVICE = torch.device("cpu")
BARE = "bare loop"
TYPICAL = 200
"""Steps of the run whose share of record steps is kept in shorter slices."""
DEFAULT = "default probes"
EVERY = "also parameters, each step"
PER_PARAMETER = ALWAYS | {"shortcut_weight", "parameter_gradient_norm", "update_ratio"}
"""The set that the goal of 1.20 was set for; all other quantities are on demand and measured by no goal."""
GOALS = {DEFAULT: 1.05, EVERY: 1.20}
SIZES = {6: (40, 15), 24: (20, 9), 100: (9, 9)}
"""Layers: steps of a slice, turns. Short slices and many turns: neighbours change what a second is worth."""


def training(layers: int, steps: int, *, width: int = 64, batch: int = 16, length: int = 32) -> Training:
    """A Pre-LN Transformer on a Markov chain of 64 tokens, AdamW."""
    return Training(
        model=Transformer(layers=layers, width=width, norm="pre"),
        task=Markov(vocab=64, length=length, batch=batch),
        optimizer=AdamW(lr=1e-3),
        steps=steps,
    )


def bare(declared: Training) -> Callable[[], None]:
    """A slice of the loop that one would write by hand: no loss is kept, nothing is looked at."""
    subject = ZooSubject(declared, (1,), DEVICE)

    def slice_() -> None:
        optimizer = make_optimizer(declared, subject.module)
        for _ in range(declared.steps):
            loss = subject.losses(subject.next_batch()).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()

    return slice_


def watched(
    declared: Training,
    quantities: frozenset[str] = ALWAYS,
    *,
    every: bool = False,
    exact: bool = False,
    seeds: Sequence[int] = (1,),
) -> Callable[[], None]:
    """A slice of the same training in the lab's loop.

    Args:
        declared: What is trained.
        quantities: Names of what is recorded.
        every: Record at every step, else at the share of the steps at which a run of 200 steps records.
        exact: Take the exact losses that outcomes are judged by too, at the steps at which a run does.
        seeds: All in one pass.
    """
    subject = ZooSubject(declared, seeds, DEVICE)
    run = Run(
        arm="",
        training=declared,
        seed=1,
        quantities=quantities,
        record_at=frozenset(),
        judge_at=(declared.steps,),
        every=every,
    )

    def slice_() -> None:
        loop = Loop(subject, run, DEVICE, lambda step, loss: None)
        if not every and declared.steps < TYPICAL:
            loop.recorder._rows = {step: row for row, step in enumerate(_due(run))}
        if not exact:
            loop._evaluate_at = set()
        with loop.recorder:
            loop._train()
        loop.recorder.series()

    return slice_


def _due(run: Run) -> Sequence[int]:
    """Record steps of a short slice: as large a share of it as in a typical run, densely at the start as there."""
    steps = run.training.steps
    typical = len(record_steps(Run(**(vars(run) | {"training": training(1, TYPICAL)}))))
    count = round(typical / TYPICAL * steps)
    dense = round(count * DENSE / typical)
    later = count - dense
    return [*range(dense), *(dense + (steps - dense) * turn // later for turn in range(later))]


def overhead(sizes: Mapping[int, tuple[int, int]] = SIZES) -> str:
    """The table of ratios.

    Args:
        sizes: For each number of layers the steps of a slice and the counted turns.
    """
    rows = []
    for layers, (steps, turns) in sizes.items():
        declared = training(layers, steps)
        contestants = {
            BARE: bare(declared),
            DEFAULT: watched(declared),
            EVERY: watched(declared, PER_PARAMETER, every=True),
        }
        found = interleaved(contestants, turns)
        milliseconds = f"{1e3 * min(found[BARE]) / steps:.1f}"
        for name, goal in GOALS.items():
            middle, low, high = ratio(found, name, BARE)
            best = f"{min(found[name]) / min(found[BARE]):.3f}"
            row = [str(layers), milliseconds, name, f"{middle:.3f}", f"{low:.3f} to {high:.3f}", best, f"{goal:.2f}"]
            rows.append(row if name == DEFAULT else ["", "", *row[2:]])
    return table(["layers", "bare ms/step", "what is recorded", "ratio", "range", "best slices", "goal"], rows)
