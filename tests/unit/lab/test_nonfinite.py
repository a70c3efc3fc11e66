"""A non-finite gradient of a finite loss is named at its own step, whenever the loop looks at it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stabilitysuite.lab.train import run
from stabilitysuite.spec import SGD, Adam, AdamW, Run, Training
from stabilitysuite.trace import Outcome

from .runs import run_of

STEPS = 30


class Trapped(nn.Module):
    """Where the batch says so, the gradient is zero times that of the root of zero."""

    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 4, sparse=sparse)
        self.layer = nn.Linear(4, 8)

    def forward(self, tokens: Tensor, trapped: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.embed(tokens)
        return self.layer(hidden), (hidden.sum() * 0 + 1 - trapped).sqrt()


def batches(bad: int, among: int) -> Callable[[int], Iterator[tuple[Tensor, Tensor]]]:
    def data(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        source = torch.Generator().manual_seed(seed)
        for step in range(STEPS):
            yield torch.randint(0, 8, (4, 6), generator=source), torch.tensor(float((seed, step) == (among, bad)))

    return data


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    tokens, trapped = batch
    logits, root = model(tokens, trapped)
    entropy = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    return entropy + torch.as_tensor(root)


def trapped(bad: int, among: int = 1, **changes: Any) -> Run:
    declared = Training(model=Trapped, data=batches(bad, among), loss=loss, optimizer=Adam(lr=1e-2), steps=STEPS)
    return run_of(dataclasses.replace(declared, **changes))


def by_user(model: nn.Module, batch: tuple[Tensor, Tensor], optimizer: torch.optim.Optimizer) -> Tensor:
    found = loss(model, batch)
    optimizer.zero_grad()
    found.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return found


class Careful(torch.optim.SGD):
    """Leaves an update out where a gradient is not finite, so that no later loss tells of it."""

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        del closure
        gradients = [one.grad for group in self.param_groups for one in group["params"] if one.grad is not None]
        if all(bool(torch.isfinite(gradient).all()) for gradient in gradients):
            super().step()


@pytest.mark.parametrize("bad", [0, 3, 13, 20, STEPS - 2, STEPS - 1])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": SGD(lr=0.1)},
        {"optimizer": AdamW(lr=1e-2), "clip": 1.0},
        {"optimizer": lambda model: Careful(model.parameters(), lr=0.1)},
        {"loss": None, "step": by_user},
        {"model": lambda: Trapped(sparse=True), "optimizer": SGD(lr=0.1)},
        {"precision": "bfloat16"},
        {"precision": "float64"},
    ],
    ids=["Adam", "SGD", "clipped", "careful", "own step", "sparse", "bfloat16", "float64"],
)
def test_it_is_named_at_its_own_step(bad: int, changes: dict[str, Any]) -> None:
    outcome = run([trapped(bad, **changes)])[0].outcome
    assert (outcome.name, outcome.step, outcome.tensor) == ("nonfinite", bad, "gradient of embed.weight")
    assert outcome.layer == "embed"


@pytest.mark.parametrize("bad", [13, STEPS - 1])
def test_it_is_that_of_one_seed_of_a_pass(bad: int) -> None:
    declared = trapped(bad, among=3)
    traces = run([dataclasses.replace(declared, seed=seed) for seed in range(1, 6)])
    assert all("torch.func" in trace.engine for trace in traces)
    assert [trace.outcome.name for trace in traces] == ["learning", "learning", "nonfinite", "learning", "learning"]
    assert (traces[2].outcome.step, traces[2].outcome.tensor) == (bad, "gradient of embed.weight")


def test_one_that_the_next_loss_does_not_use_is_the_weight_it_made() -> None:
    """A row of the embedding that only the trapped batch and a late one hold."""

    def data(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        del seed
        for step in range(STEPS):
            rare = step in (13, 17)
            yield torch.full((1, 4), 7 if rare else 1), torch.tensor(float(step == 13))

    outcome = run([trapped(0, data=data)])[0].outcome
    assert outcome == Outcome(
        name="nonfinite", step=17, layer="embed", tensor="weight embed.weight", detail="NaN; loss nan"
    )
