"""From a Case to Runs: after this nothing is random but what a run's own seed decides."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stabilitysuite.case import Case
from stabilitysuite.claims.edge import AT_RATE
from stabilitysuite.quantity import QUANTITIES
from stabilitysuite.spec import GAU, KnownTask, Run, Spec, Training, Transformer
from stabilitysuite.stats.edge import FACTOR

__all__ = ["TWIN", "Plan", "at_rate", "estimated_seconds", "gate_seeds", "plan", "plan_rates"]

TWIN = "|twin"
"""Ending of the name of an arm that carries the control's change beside a claim that needs it."""

ALWAYS = frozenset(name for name, kind in QUANTITIES.items() if kind.always)
"""Quantities recorded in every training: they are the evidence; what is bulky, costly or special is on demand."""

FORWARD = frozenset(name for name in ALWAYS if not QUANTITIES[name].backward)
"""Quantities recorded in every run of zero steps, whose backward pass is left out unless a claim needs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The runs that a case stands for."""

    case: Case
    """The case."""
    seeds: tuple[int, ...]
    """Seeds, the same in every arm."""
    runs: tuple[Run, ...]
    """All runs, arm by arm."""


def gate_seeds(case: Case, count: int, *, purpose: str = "gate") -> tuple[int, ...]:
    """Seeds derived from the case's digest, so that nobody can pick lucky ones.

    Args:
        case: Whose digest.
        count: How many.
        purpose: ``gate``; other purposes draw other seeds, and ``calibration`` from a range that no other has.
    """
    digest = case.digest()
    above = 2**31 if purpose == "calibration" else 0

    def seed(index: int) -> int:
        text = f"{digest}/{purpose}/{index}"
        return above + (int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1)

    return tuple(seed(index) for index in range(count))


def plan(case: Case, *, seeds: tuple[int, ...] | None = None, control: bool = False) -> Plan:
    """Decide every run of a case.

    Args:
        case: What is asked.
        seeds: Seeds to run; by default those of the first look, derived from the case's digest.
        control: Plan the control in place of the case: same seeds, steps and evaluation, one field changed.
    """
    chosen = gate_seeds(case, case.looks()[0]) if seeds is None else seeds
    horizon = max(claim.horizon for claim in case.claims)
    needs_twin = any(claim.needs_twin() for claim in case.claims)
    runs: list[Run] = []
    for arm in case.arms():
        own = case.twin(arm) if control else case.arm(arm)
        runs += [_run(case, arm, own, seed, horizon) for seed in chosen]
        if needs_twin:
            other = case.arm(arm) if control else case.twin(arm)
            runs += [_run(case, arm + TWIN, other, seed, 1) for seed in chosen]
    return Plan(case=case, seeds=chosen, runs=tuple(runs))


def _run(case: Case, arm: str, training: Training, seed: int, horizon: int) -> Run:
    steps = training.steps
    judge_at = tuple(steps * times for times in range(1, horizon + 1)) if steps else (0,)
    return Run(
        arm=arm,
        training=dataclasses.replace(training, steps=steps * horizon),
        seed=seed,
        quantities=(ALWAYS if steps else FORWARD).union(*(claim.quantities() for claim in case.claims)),
        record_at=frozenset().union(*(claim.steps_read() for claim in case.claims)),
        judge_at=judge_at,
    )


def plan_rates(case: Case, rungs: Sequence[tuple[str, int]], *, seeds: tuple[int, ...], control: bool = False) -> Plan:
    """Decide the runs of arms at other learning rates than the declared one.

    Args:
        case: What is asked.
        rungs: Arms, each with the rung of the ladder above its own rate.
        seeds: Seeds to run at each.
        control: Take the control's training in place of the case's.
    """
    runs = []
    for arm, rung in rungs:
        training = at_rate(case.twin(arm) if control else case.arm(arm), FACTOR**rung)
        assert isinstance(training.optimizer, Spec)
        runs += [_run(case, f"{arm}{AT_RATE}{training.optimizer.lr:.6g}", training, seed, 1) for seed in seeds]
    return Plan(case=case, seeds=seeds, runs=tuple(runs))


def at_rate(training: Training, multiplier: float) -> Training:
    """The same training with all its learning rates multiplied; what a scheduler sets absolutely undoes that."""
    declared = training.optimizer
    if isinstance(declared, Spec):
        return dataclasses.replace(training, optimizer=dataclasses.replace(declared, lr=declared.lr * multiplier))
    return dataclasses.replace(training, optimizer=_Scaled(declared, multiplier))


@dataclass(frozen=True)
class _Scaled:
    """An optimizer of the user's own, with all its learning rates multiplied."""

    make: Callable[[Any], Any]
    multiplier: float

    def __call__(self, model: Any) -> Any:
        made = self.make(model)
        for group in getattr(made, "param_groups", ()):
            group["lr"] = group["lr"] * self.multiplier
        return made


EVALUATED = 11 * 64
"""Sequences that the evaluations of a run go through, at a third of the cost of a training step."""
EXPLORED = 6
"""Rates that an edge takes, about."""


def estimated_seconds(case: Case, *, seeds: int | None = None) -> float:
    """CPU seconds that a case is expected to take on one core, from its declaration alone.

    A layer costs a millisecond a step in calls, a third of one more for each seed of the pass, and 53 ps a
    multiplication of the forward pass in arithmetic, all of it with the backward pass. Fitted to the calibration
    records of this repository, which it must meet within a factor of three (tests/house/test_catalogue.py). A module
    of one's own is taken for six layers of width 64 whose seeds run one after the other.

    Args:
        case: What is to be run.
        seeds: How many; by default those of the first look.
    """
    seconds = 0.0
    many = case.looks()[0] if seeds is None else seeds
    for run in plan(case, seeds=(0,)).runs:
        model, task = run.training.model, run.training.task
        length = getattr(task, "length", getattr(task, "tokens", 32))
        tokens = getattr(task, "batch", 16) * length
        steps = max(run.training.steps, 1)
        evaluated = EVALUATED * length / 3 if isinstance(task, KnownTask) else 0
        layers, width = getattr(model, "layers", 6), getattr(model, "width", 64)
        matrices = 3 * model.expansion if isinstance(model, GAU) else 4 + 2 * getattr(model, "ffn", 4)
        passes = 1 if isinstance(model, Transformer | GAU) else many
        calls = 1e-3 * passes + 0.35e-3 * many
        arithmetic = 53e-12 * matrices * width**2 * many
        seconds += max(layers, 1) * (steps * calls + (steps * tokens + evaluated) * arithmetic)
    explores = any(claim.explores() for claim in case.claims)
    return seconds * EXPLORED if explores else seconds
