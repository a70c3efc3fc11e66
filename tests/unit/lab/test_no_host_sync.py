"""Nothing waits for a device that is not the CPU, and what is seen late is still right.

A tensor of the meta device has no numbers: whatever reads one (``.item()``, ``float()``, ``if tensor``, ``.cpu()``)
raises. The same run on the CPU, told to look as rarely as on another device, has numbers and counts its looks.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from stabilitysuite.lab.device import LOOK_EVERY
from stabilitysuite.lab.loop import Loop
from stabilitysuite.lab.subject import make_subject
from stabilitysuite.lab.train import run
from stabilitysuite.lab.watch import Watch
from stabilitysuite.spec import GAU, SGD, AdamW, Classification, MaskedToken, Run, Training

from .runs import EVERYTHING, MODEL, TASK, run_of, training

META, CPU = torch.device("meta"), torch.device("cpu")
LONG = LOOK_EVERY + 5


@pytest.fixture(autouse=True)
def no_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows no meta device, not even to be turned off there."""
    monkeypatch.setattr(torch, "autocast", lambda *args, **settings: contextlib.nullcontext())


def loop_of(one: Run, device: torch.device, seeds: tuple[int, ...] = (1, 2)) -> Loop:
    return Loop(make_subject(one.training, seeds, device), one, device, lambda step, loss: None)


def look_rarely(monkeypatch: pytest.MonkeyPatch, every: int = LOOK_EVERY) -> None:
    """Have the CPU treated as another device, or another device as the CPU."""
    for module in ("watch", "probes.norm"):
        monkeypatch.setattr(f"stabilitysuite.lab.{module}.look_every", lambda device: every)


def on_looking(monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> None:
    def look(self: Watch) -> float:
        do()
        return 0.0

    monkeypatch.setattr(Watch, "look", look)


SHALLOW = dataclasses.replace(MODEL, layers=1)
SEEING = dataclasses.replace(SHALLOW, causal=False)
SOME = 13
"""Steps of which one, 11, is not recorded; the meta device takes 0.1 s a step."""
PASSES = {
    "two seeds": (training(model=SHALLOW, steps=SOME), (1, 2)),
    "one seed": (training(model=SHALLOW, steps=SOME), (1,)),
    "clipped": (training(model=SHALLOW, steps=SOME, clip=0.5, optimizer=AdamW(lr=1e-3)), (1, 2)),
    "fixed positions": (training(steps=2, model=dataclasses.replace(MODEL, positions="sinusoidal", norm="pre")), (1,)),
    "GAU": (training(steps=2, model=GAU(layers=2, width=16, key=8)), (1, 2)),
    "masked tokens": (training(steps=2, task=MaskedToken(vocab=8), model=SEEING), (1, 2)),
    "one label": (training(steps=2, task=Classification(), model=SEEING), (1, 2)),
    "initialisation": (training(steps=0), (1, 2)),
}


@pytest.mark.parametrize(("declared", "seeds"), PASSES.values(), ids=PASSES.keys())
def test_a_training_reads_no_number_between_looks(
    declared: Training, seeds: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    on_looking(monkeypatch, lambda: looks.append(1))
    loop = loop_of(run_of(declared, quantities=EVERYTHING), META, seeds)
    loop.train()
    assert looks == [1], "at the end"
    assert loop.step == declared.steps


def test_a_module_of_ones_own_does_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tied to the same loop: ``task=``, ``step=`` and ``loss=``, with a parameter that gets no gradient."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Parameter(torch.ones(2))
            self.table = nn.Embedding(8, 8)

        def forward(self, tokens: Tensor) -> Tensor:
            out: Tensor = self.table(tokens)
            return out

    def step(model: nn.Module, batch: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
        value: Tensor = model(batch).square().mean()
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return value

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        value: Tensor = model(batch).square().mean()
        return value

    on_looking(monkeypatch, lambda: None)
    batches = [torch.zeros(2, 3, dtype=torch.long)] * SOME
    for declared in (
        training(model=Net, steps=SOME),
        training(model=Net, task=None, data=lambda seed: batches, step=step, steps=SOME),
        training(model=Net, task=None, data=lambda seed: batches, loss=loss, steps=SOME),
    ):
        loop = loop_of(run_of(declared, quantities=EVERYTHING), META, (1,))
        loop.train()
        assert loop.step == SOME


def test_looking_at_every_step_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    look_rarely(monkeypatch, every=1)
    with pytest.raises((RuntimeError, NotImplementedError), match=r"meta tensor|on meta"):
        loop_of(run_of(training()), META).train()


class Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the numbers read from tensors."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("every", "free"), [(LOOK_EVERY, True), (1, False)])
def test_no_number_is_read_between_looks_with_numbers_there(
    every: int, free: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_rarely(monkeypatch, every)
    reads = Reads()  # type: ignore[no-untyped-call]
    to_list = Tensor.tolist

    def listed(self: Tensor) -> Any:  # on the CPU it reads memory without an operation that a mode sees
        reads.count += 1
        return to_list(self)

    monkeypatch.setattr(Tensor, "tolist", listed)
    counts: list[int] = []
    on_looking(monkeypatch, lambda: counts.append(reads.count))
    loop = loop_of(run_of(training(steps=LONG, clip=1.0), quantities=EVERYTHING), CPU)
    with reads:
        loop.train()
    assert (counts[-1] == 0) == free
    assert loop.step == LONG


# --- what is seen late


def both(one: Run, monkeypatch: pytest.MonkeyPatch, seeds: tuple[int, ...] = (1, 2)) -> Any:
    """The traces of a run that looks at every step, and of one that looks every twentieth."""
    runs = [dataclasses.replace(one, seed=seed) for seed in seeds]
    at_once = run(runs)
    with monkeypatch.context() as patched:
        look_rarely(patched)
        return list(zip(at_once, run(runs), strict=True))


def test_a_healthy_run_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = training(steps=2 * LONG, clip=1.0)
    for at_once, late in both(run_of(declared, judge_at=(LONG, 2 * LONG)), monkeypatch):
        assert [outcome.name for outcome in late.outcomes] == [outcome.name for outcome in at_once.outcomes]
        for name, series in at_once.series.items():
            assert late.series[name].steps == series.steps
            for ours, theirs in zip(late.series[name].values, series.values, strict=True):
                assert ours == pytest.approx(theirs, rel=1e-4), name


@pytest.mark.parametrize("seeds", [(1,), (1, 2)], ids=["one seed", "two seeds"])
def test_a_hopeless_run_is_given_up_within_the_delay(seeds: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    declared = training(model=dataclasses.replace(MODEL, norm="none"), optimizer=SGD(lr=1e4), steps=400)
    for at_once, late in both(run_of(declared), monkeypatch, seeds):
        early, delayed = (len(trace.series["training_loss"].steps) for trace in (at_once, late))
        assert early <= delayed <= early + LOOK_EVERY
        assert late.outcome.name == at_once.outcome.name
        if at_once.outcome.name == "nonfinite":
            assert late.outcome.step == at_once.outcome.step


@pytest.mark.parametrize("where", ["loss", "gradient norm"])
def test_the_first_nonfinite_step_is_found_late(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        value: Tensor = model(batch).square().mean()
        if where == "loss":
            return value / (batch[0, 0] - 7)
        return value + (batch[0, 0] - 7).abs().clamp(min=0).mul(model.get_parameter("weight").sum() * 0 + 1).sqrt()

    def data(seed: int) -> list[Tensor]:
        return [torch.full((2, 3), float(step)) for step in range(30)]

    declared = Training(model=lambda: nn.Linear(3, 2), data=data, loss=loss, optimizer=SGD(lr=1e-6), steps=30)
    ((at_once, late),) = both(run_of(declared), monkeypatch, (1,))
    for trace in (at_once, late):
        assert (trace.outcome.name, trace.outcome.step) == ("nonfinite", 7)
    assert late.outcome.tensor == where
    assert "every 20 steps" in late.outcome.detail


def test_a_budget_is_noticed_at_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    look_rarely(monkeypatch)
    (trace,) = run([run_of(training(steps=20_000, task=TASK))], budget=0.3)
    assert trace.outcome.name == "timeout"
    assert trace.outcome.step % LOOK_EVERY == 0
    assert len(trace.series["training_loss"].steps) == trace.outcome.step > 0
