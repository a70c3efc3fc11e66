"""Traces drawn from known laws: the whole suite without torch, and without waiting."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from stabilitysuite.case import Case
from stabilitysuite.plan import plan
from stabilitysuite.quantity import QUANTITIES
from stabilitysuite.spec import Run
from stabilitysuite.trace import Outcome, OutcomeName, Reference, Series, Trace

__all__ = ["REFERENCE", "ends", "measured", "run", "series", "trace", "traces_of"]

REFERENCE = Reference(plateau=4.0, floor=2.0)
"""Known losses under which progress p is a loss of 4 - 2p."""

PROGRESS_OF: dict[str, float] = {
    "converged": 0.9,
    "learning": 0.3,
    "stalled": 0.0,
    "collapsed": 0.05,
    "diverged": -4.0,
}
"""Progress at which a run of that outcome ends, unless a test says another."""


def series(quantity: str, rows: Mapping[int, Sequence[float]], labels: Sequence[str] = ("",)) -> Series:
    """A series from its rows by step."""
    return Series(
        quantity=quantity,
        steps=tuple(rows),
        labels=tuple(labels),
        values=tuple(tuple(float(value) for value in row) for row in rows.values()),
    )


def trace(
    *outcomes: tuple[OutcomeName, int],
    seed: int = 0,
    arm: str = "",
    kept: Sequence[Series] = (),
    reference: Reference | None = REFERENCE,
) -> Trace:
    """A trace with the given outcomes and series."""
    return Trace(
        arm=arm,
        seed=seed,
        outcomes=tuple(Outcome(name=name, step=step) for name, step in outcomes),
        series={one.quantity: one for one in kept},
        reference=reference,
    )


def ends(
    name: OutcomeName,
    *,
    seed: int = 0,
    arm: str = "",
    progress: float | None = None,
    early: OutcomeName | None = None,
    steps: int = 100,
) -> Trace:
    """A training of ``steps`` (twice, with an ``early`` outcome) that ended so, with the loss that fits."""
    share = PROGRESS_OF.get(name, 0.0) if progress is None else progress
    loss = REFERENCE.plateau - share * (REFERENCE.plateau - REFERENCE.floor)
    horizon = steps if early is None else 2 * steps
    outcomes: list[tuple[OutcomeName, int]] = [(name, horizon)]
    if early is not None:
        outcomes.insert(0, (early, steps))
    return trace(*outcomes, seed=seed, arm=arm, kept=[series("evaluated_loss", {horizon: [loss]})])


def measured(quantity: str, values: Sequence[float], *, label: str = "") -> list[Trace]:
    """Initialised runs, one a value, that left this quantity at step 0."""
    return [
        trace(("initialised", 0), seed=seed, kept=[series(quantity, {0: [value]}, [label])], reference=None)
        for seed, value in enumerate(values)
    ]


def run(runs: Sequence[Run]) -> list[Trace]:
    """What the lab's ``run`` would return, drawn from each run's seed: trainings converge, numbers are near 1.

    The law is simple on purpose: whoever needs another outcome makes it with :func:`ends`.
    """
    return [_one(item) for item in runs]


def _one(item: Run) -> Trace:
    draw = random.Random(f"{item.seed}/{item.arm}")
    steps = item.judge_at[-1]
    recorded = sorted({0, steps, *item.record_at})
    kept = []
    for name in sorted(item.quantities):
        labels = ["first", "last"] if QUANTITIES[name].axis else [""]
        kept.append(series(name, {step: [draw.lognormvariate(0, 0.05) for _ in labels] for step in recorded}, labels))
    end: OutcomeName = "converged" if steps else "initialised"
    return trace(*((end, step) for step in item.judge_at), seed=item.seed, arm=item.arm, kept=kept)


def traces_of(case: Case) -> list[Trace]:
    """The traces of a case's plan."""
    return run(plan(case).runs)
