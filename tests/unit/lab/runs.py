"""Small trainings for the tests of the lab."""

from __future__ import annotations

import dataclasses

from stabilitysuite.plan import ALWAYS
from stabilitysuite.quantity import QUANTITIES
from stabilitysuite.spec import Adam, Markov, Run, Training, Transformer

EVERYTHING = frozenset(QUANTITIES)
MODEL = Transformer(layers=2, width=16, heads=2)
TASK = Markov(vocab=8, length=8, batch=8)


def training(**changes: object) -> Training:
    """A small training, with changes."""
    small = Training(model=MODEL, task=TASK, optimizer=Adam(lr=3e-3), steps=12)
    return dataclasses.replace(small, **changes)  # type: ignore[arg-type]


def run_of(declared: Training, seed: int = 1, quantities: frozenset[str] = ALWAYS, **fields: object) -> Run:
    """The run of one seed of a training."""
    settings: dict[str, object] = {"record_at": frozenset(), "judge_at": (declared.steps,)} | fields
    return Run(arm="", training=declared, seed=seed, quantities=quantities, **settings)  # type: ignore[arg-type]
