"""What probes cost: an instrumented training over the bare hand-written loop with fused AdamW."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.measure import interleaved, ratio, table
from stabilitysuite.lab.loop import Loop
from stabilitysuite.lab.subject import ZooSubject
from stabilitysuite.plan import ALWAYS
from stabilitysuite.quantity import QUANTITIES
from stabilitysuite.spec import AdamW, Markov, Run, Training, Transformer

DEVICE = torch.device("cpu")
BARE = "bare loop"


def _training(layers: int, steps: int) -> Training:
    return Training(
        model=Transformer(layers=layers, width=64, norm="pre"),
        task=Markov(vocab=64, length=32, batch=16),
        optimizer=AdamW(lr=1e-3),
        steps=steps,
    )


def _bare(layers: int, steps: int) -> Callable[[], None]:
    training = _training(layers, steps)
    subject = ZooSubject(training, (1,), DEVICE)

    def slice_() -> None:
        optimizer = torch.optim.AdamW(subject.module.parameters(), lr=1e-3, fused=True)
        for _ in range(steps):
            loss = subject.losses(subject.next_batch()).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()

    return slice_


def _watched(layers: int, steps: int, quantities: frozenset[str], every: bool) -> Callable[[], None]:
    training = _training(layers, steps)
    subject = ZooSubject(training, (1,), DEVICE)
    # the exact losses that an outcome needs are part of judging, not of probing: once, as in the bare loop never
    run = Run(
        arm="",
        training=training,
        seed=1,
        quantities=quantities,
        record_at=frozenset(),
        judge_at=(steps,),
        every=every,
    )

    def slice_() -> None:
        loop = Loop(subject, run, DEVICE, lambda step, loss: None)
        loop._evaluate_at = set()
        with loop.recorder:
            loop._train()

    return slice_


def overhead(turns: int, depths: tuple[int, ...] = (6, 24, 100)) -> str:
    """The table of ratios; a slice is a hundred steps at six layers, fewer at depth."""
    rows = []
    everything = frozenset(QUANTITIES)
    for layers in depths:
        steps = max(600 // layers, 20)
        contestants = {
            BARE: _bare(layers, steps),
            "default probes": _watched(layers, steps, ALWAYS, every=False),
            "everything, every step": _watched(layers, steps, everything, every=True),
        }
        found = interleaved(contestants, turns)
        for name in list(contestants)[1:]:
            middle, low, high = ratio(found, name, BARE)
            rows.append([str(layers), str(steps), name, f"{middle:.3f}", f"{low:.3f} to {high:.3f}"])
    return table(["layers", "steps", "what is recorded", "ratio", "range"], rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    print(overhead(3, (6, 24)))  # noqa: T201 -- a command
