"""A non-finite gradient of a finite loss is named at its own step, whenever the loop looks at it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stabilitysuite.lab import train
from stabilitysuite.lab.subject import ZooSubject
from stabilitysuite.lab.train import run
from stabilitysuite.lab.zoo.parts import LayerNorm, Linear
from stabilitysuite.spec import SGD, Adam, AdamW, Run, Training

from .runs import run_of, training

STEPS = 30


class Trapped(nn.Module):
    """Where the batch says so, the gradient is zero times that of the root of zero."""

    def __init__(self, sparse: bool = False, only_sparse: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 4, sparse=sparse or only_sparse)
        self.layer = nn.Linear(4, 8).requires_grad_(not only_sparse)

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


class Breaking(ZooSubject):
    """Breaks the gradient of one seed at step 13, in one number of what the named module hands on."""

    where = ""
    turns = 0

    def losses(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        handles = []
        if torch.is_grad_enabled():
            type(self).turns += 1
            if self.turns == 14:
                module = self.network.get_submodule(self.where)
                handles.append(module.register_full_backward_hook(self._break))
        found = super().losses(batch)
        self.handles = handles
        return found

    def _break(self, module: nn.Module, inputs: Any, outputs: Any) -> Any:
        broken = inputs[0].clone()
        broken[1].view(-1)[0] = torch.nan
        for handle in self.handles:
            handle.remove()
        return (broken, *inputs[1:])


@pytest.mark.parametrize("place", range(5))
def test_wherever_a_zoo_model_breaks_it_is_seen_off_the_record_steps(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = run_of(training(steps=STEPS))
    names = [
        name
        for name, module in ZooSubject(declared.training, (1,), torch.device("cpu")).network.named_modules()
        if isinstance(module, Linear | LayerNorm)
    ]
    monkeypatch.setattr(Breaking, "where", names[place * (len(names) - 1) // 4])
    monkeypatch.setattr(Breaking, "turns", 0)
    monkeypatch.setattr(train._one_pass, "__defaults__", (Breaking,))
    traces = run([dataclasses.replace(declared, seed=seed) for seed in (1, 2, 3)])
    assert [trace.outcome.name == "nonfinite" for trace in traces] == [False, True, False]
    assert traces[1].outcome.step == 13


class Overflowing(ZooSubject):
    """The gradient of one bias, of one seed, overflows at step 13, and that of no matrix does."""

    turns = 0

    def losses(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        if torch.is_grad_enabled():
            type(self).turns += 1
            if self.turns == 14:
                name, bias = next(one for one in self.named_parameters if one[0].endswith("bias"))
                assert name not in dict(self.matrices)
                bias.register_hook(self._over)  # type: ignore[no-untyped-call]
        return super().losses(batch)

    def _over(self, gradient: Tensor) -> Tensor:
        over = gradient.clone()
        if self.turns == 14:
            over[1].view(-1)[0] = torch.inf
        return over


def test_under_a_loss_scale_a_bias_alone_makes_its_seed_skip_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Overflowing, "turns", 0)
    monkeypatch.setattr(train._one_pass, "__defaults__", (Overflowing,))
    declared = run_of(training(steps=STEPS, precision="float16"))
    traces = run([dataclasses.replace(declared, seed=seed) for seed in (1, 2, 3)])
    assert "nonfinite" not in [trace.outcome.name for trace in traces]
    assert [any("the first at step 13" in note for note in trace.warnings) for trace in traces] == [False, True, False]


def rare(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """A token that only the trapped batch holds."""
    del seed
    for step in range(STEPS):
        yield torch.full((1, 4), 7 if step == 13 else 1), torch.tensor(float(step == 13))


def leaving_out(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    found = loss(model, batch)
    return found if bool(torch.isfinite(found)) else torch.zeros((), requires_grad=True)


def refusing(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    found = loss(model, batch)
    assert bool(torch.isfinite(found))
    return found


@pytest.mark.parametrize(
    "changes",
    [{"data": rare}, {"loss": leaving_out}, {"loss": refusing}, {"model": lambda: Trapped(only_sparse=True)}],
    ids=["a rare token", "left out by the loss", "refused by the loss", "sparse gradients alone"],
)
@pytest.mark.parametrize("optimizer", [SGD(lr=0.1), SGD(lr=0.1, momentum=0.9)], ids=["SGD", "momentum"])
def test_it_is_named_though_no_later_loss_shows_it(optimizer: SGD, changes: dict[str, Any]) -> None:
    outcome = run([trapped(13, optimizer=optimizer, **changes)])[0].outcome
    assert (outcome.name, outcome.step, outcome.tensor) == ("nonfinite", 13, "gradient of embed.weight")
