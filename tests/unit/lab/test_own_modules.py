"""Modules of the user's: measured block by block, watched in their own step, refused where they cannot be."""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from stabilitysuite.errors import MeasurementError
from stabilitysuite.lab.train import run
from stabilitysuite.spec import SGD, Adam, Run, Training
from stabilitysuite.trace import Trace

from .runs import EVERYTHING, TASK, run_of


def losses(trace: Trace) -> list[float]:
    return [row[0] for row in trace.series["training_loss"].values]


class Block(nn.Module):
    def __init__(self, residual: bool = True) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.ReLU())
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = self.inner(x)
        return x + 0.3 * inner if self.residual else inner


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 16)
        self.blocks = nn.ModuleList(Block(residual=index != 1) for index in range(3))
        self.head = nn.Linear(16, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(x)
        return out


def batches(seed: int) -> list[tuple[Tensor, Tensor]]:
    source = torch.Generator().manual_seed(seed)
    return [(tokens := torch.randint(0, 8, (4, 6), generator=source), tokens) for _ in range(5)]


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def own(**changes: object) -> Run:
    declared = Training(model=Net, data=batches, loss=loss, optimizer=Adam(lr=1e-2), steps=12)
    return run_of(dataclasses.replace(declared, **changes), quantities=EVERYTHING)  # type: ignore[arg-type]


def test_a_module_of_ones_own_is_measured_block_by_block() -> None:
    trace = run([own()])[0]
    assert trace.series["branch_ratio"].labels == ("blocks.0", "blocks.1", "blocks.2")
    first = trace.series["branch_ratio"].values[0]
    assert first[1] > 0.9, "the block without its residual stands out"
    assert max(first[0], first[2]) < 0.5
    assert trace.outcome.name == "learning"
    assert any("5 batches" in note for note in trace.warnings)


def test_ones_own_module_twice_is_the_same_to_the_last_bit() -> None:
    assert run([own()])[0].series == run([own()])[0].series


def test_ones_own_step_is_watched_too() -> None:
    def step(model: nn.Module, batch: tuple[Tensor, Tensor], optimizer: torch.optim.Optimizer) -> Tensor:
        optimizer.zero_grad()
        value = loss(model, batch)
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return value

    ours, theirs = run([own()])[0], run([own(loss=None, step=step)])[0]
    assert losses(ours) == losses(theirs)
    assert ours.series["parameter_gradient_norm"] == theirs.series["parameter_gradient_norm"]
    assert ours.series["update_ratio"] == theirs.series["update_ratio"]


def test_ones_own_module_on_a_known_task() -> None:
    trace = run([own(task=TASK, data=None, loss=None, steps=120)])[0]
    assert trace.reference is not None
    assert trace.outcome.name == "converged"


def test_layers_can_be_named() -> None:
    trace = run([own(layers="blocks.*.inner")])[0]
    assert trace.series["residual_std"].labels == tuple(f"blocks.{index}.inner" for index in range(3))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": lambda: 3}, "must return an nn.Module, it returned int"),
        ({"model": nn.ReLU}, "no trainable parameter"),
        ({"loss": lambda model, batch: 3.0}, "must return a scalar tensor, it returned float"),
        ({"loss": lambda model, batch: model(batch[0])}, r"it returned shape \(4, 6, 8\)"),
        ({"loss": lambda model, batch: model(batch[0]).detach().sum()}, "no gradient graph"),
        ({"data": lambda seed: []}, "has no batches"),
        ({"data": lambda seed: 3}, "must return an iterable"),
        ({"optimizer": lambda model: 3}, "must return a torch.optim.Optimizer"),
        ({"optimizer": torch.optim.Adam}, r"optimizer=Adam is a class: give .* lambda model: torch\.optim\.Adam"),
        ({"optimizer": SGD}, "optimizer=SGD is a class"),
        ({"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau}, "ReduceLROnPlateau wants a metric"),
        ({"layers": "block.*"}, "did you mean 'blocks"),
        ({"optimizer": lambda model: torch.optim.SGD(Net().parameters(), lr=0.1)}, "holds no parameter of the model"),
        ({"scheduler": lambda optimizer: None}, "must return a torch scheduler with step"),
        ({"loss": lambda model, batch: model(batch[0]).sum() * 1j}, "complex"),
        (
            {"task": TASK, "data": None, "loss": None, "model": lambda: nn.Embedding(8, 3)},
            "must return logits",
        ),
    ],
)
def test_what_a_callable_must_do(changes: dict[str, object], message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        run([own(**changes)])


def test_a_module_that_comes_twice_is_refused() -> None:
    """Its second seed would start where the first one ended."""
    shared = Net()
    with pytest.raises(MeasurementError, match="returned before"):
        run([own(model=lambda: shared), own(model=lambda: shared)])


def test_blocks_called_by_keyword_are_measured_as_others() -> None:
    class ByName(Net):
        def forward(self, tokens: Tensor) -> Tensor:
            x = self.embed(tokens)
            for block in self.blocks:
                x = block(x=x)
            out: Tensor = self.head(x)
            return out

    named, plain = run([own(model=ByName)])[0], run([own()])[0]
    assert named.series["branch_ratio"] == plain.series["branch_ratio"]


def test_a_block_that_changes_the_width_has_no_branch_ratio_and_the_others_do() -> None:
    def narrowing() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2))

    one = own(
        model=narrowing,
        data=lambda seed: [torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))],
        loss=lambda model, batch: model(batch).square().mean(),
    )
    trace = run([one])[0]
    assert trace.series["branch_ratio"].labels == ("0", "1")
    assert trace.series["residual_std"].labels == ("0", "1", "2")


def test_sparse_gradients_train_with_the_declared_optimizer() -> None:
    def sparse() -> nn.Module:
        net = Net()
        net.embed = nn.Embedding(8, 16, sparse=True)
        return net

    assert run([own(model=sparse, optimizer=SGD(lr=0.1))])[0].outcome.name == "learning"


def test_a_model_that_goes_elsewhere_is_brought_back(tmp_path: Path) -> None:
    def wandering() -> nn.Module:
        os.chdir(tmp_path)
        return Net()

    before = Path.cwd()
    run([own(model=wandering)])
    assert Path.cwd() == before


def test_a_loss_that_is_nan_at_once_names_where() -> None:
    def broken() -> nn.Module:
        net = Net()
        with torch.no_grad():
            net.get_parameter("blocks.2.inner.1.bias").fill_(math.inf)
        return net

    trace = run([own(model=broken)])[0]
    assert (trace.outcome.name, trace.outcome.step) == ("nonfinite", 0)
    assert trace.outcome.layer == "blocks.2"
    assert trace.outcome.tensor == "weight blocks.2.inner.1.bias"


def test_the_first_module_with_a_nonfinite_output_is_named() -> None:
    class Overflowing(Block):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) / 0.0

    def broken() -> nn.Module:
        net = Net()
        net.blocks[1] = Overflowing()
        return net

    outcome = run([own(model=broken, layers="blocks.*")])[0].outcome
    assert (outcome.layer, outcome.tensor) == ("blocks.1", "output of blocks.1")


def test_a_model_that_is_nan_only_where_it_is_evaluated_is_nonfinite() -> None:
    class Leaky(nn.Embedding):
        def forward(self, tokens: Tensor) -> Tensor:
            found = super().forward(tokens)
            return found if torch.is_grad_enabled() else found * math.nan

    one = own(model=lambda: Leaky(TASK.vocab, TASK.vocab), task=TASK, data=None, loss=None)
    outcome = run([one])[0].outcome
    assert (outcome.name, outcome.step, outcome.tensor) == ("nonfinite", 0, "evaluated loss")


def test_a_nonfinite_gradient_of_a_finite_loss_is_named() -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            root: Tensor = (self.weight * x).square().sum().sqrt()
            return root

    one = own(model=Root, data=lambda seed: [torch.ones(3)], loss=lambda model, batch: model(batch))
    outcome = run([one])[0].outcome
    assert (outcome.name, outcome.step, outcome.tensor) == ("nonfinite", 0, "gradient of weight")


def test_a_model_that_meddles_with_global_state_changes_nothing_outside() -> None:
    def meddling() -> nn.Module:
        net = Net()
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(0)
        torch.set_grad_enabled(False)
        return net

    with pytest.raises(MeasurementError, match="gradient"):
        run([own(model=meddling)])
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()


def test_dropout_draws_from_the_runs_own_seed() -> None:
    def dropping() -> nn.Module:
        net = Net()
        net.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(16, 8))  # type: ignore[assignment]
        return net

    torch.manual_seed(1)
    first = losses(run([own(model=dropping)])[0])
    torch.manual_seed(2)
    assert losses(run([own(model=dropping)])[0]) == first
