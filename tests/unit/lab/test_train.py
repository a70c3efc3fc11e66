"""The loop on real trainings: determinism, probes that do not disturb, isolation of seeds, outcomes."""

from __future__ import annotations

import dataclasses
import math
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stabilitysuite.errors import MeasurementError
from stabilitysuite.lab.optim import rate
from stabilitysuite.lab.tasks import MarkovStream
from stabilitysuite.lab.train import Progress, run
from stabilitysuite.lab.zoo.build import build
from stabilitysuite.spec import SGD, Adam, AdamW, Run, Training, Transformer
from stabilitysuite.trace import Trace

from .runs import EVERYTHING, MODEL, TASK, run_of, training


def losses(trace: Trace) -> list[float]:
    return [row[0] for row in trace.series["training_loss"].values]


def test_the_same_seed_twice_is_the_same_to_the_last_bit() -> None:
    one = run_of(training(), quantities=EVERYTHING)
    first, second = run([one])[0], run([one])[0]
    assert first.series == second.series
    assert first.outcomes == second.outcomes


def test_probes_do_not_disturb() -> None:
    bare = run_of(training(), quantities=frozenset({"training_loss"}))
    watched = run_of(training(), quantities=EVERYTHING, every=True)
    assert losses(run([bare])[0]) == losses(run([watched])[0])


def test_another_seed_is_another_run() -> None:
    one, two = run([run_of(training(), seed=1), run_of(training(), seed=2)])
    assert losses(one) != losses(two)


def test_seeds_in_one_pass_are_the_seeds_alone() -> None:
    declared = training(steps=25, clip=1.0)
    together = run([run_of(declared, seed=seed, quantities=EVERYTHING) for seed in (1, 2, 3)])
    assert [trace.engine for trace in together] == ["3 seeds in one pass"] * 3
    for trace in together:
        alone = run([run_of(declared, seed=trace.seed, quantities=EVERYTHING)])[0]
        for name, series in alone.series.items():
            for ours, theirs in zip(trace.series[name].values, series.values, strict=True):
                assert ours == pytest.approx(theirs, rel=2e-3, abs=1e-6), name
        assert losses(trace) == pytest.approx(losses(alone), abs=1e-5)


def test_the_loop_is_the_hand_written_one() -> None:
    """Bit for bit, warmup, clipping and weight decay included."""
    declared = training(optimizer=AdamW(lr=1e-2, weight_decay=0.1), warmup=5, clip=0.5)
    trace = run([run_of(declared)])[0]
    torch.set_flush_denormal(True)
    network, stream = build(MODEL, TASK, (1,)), MarkovStream(TASK, (1,), torch.device("cpu"))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2, weight_decay=0.1, fused=True)
    by_hand = []
    for step in range(12):
        optimizer.param_groups[0]["lr"] = 1e-2 * min(1.0, (step + 1) / 5)
        inputs, targets = stream.batch()
        loss = stream.loss(network(inputs), targets)
        loss.sum().backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        by_hand.append(loss.item())
    torch.set_flush_denormal(False)
    assert losses(trace) == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        (
            "cosine",
            [0.5, 1.0, 1.0, 0.5 * (1 + math.cos(math.pi / 4)), 0.5, 0.5 * (1 + math.cos(3 * math.pi / 4))],
        ),
        ("inverse_sqrt", [0.5, 1.0, *[math.sqrt(2 / (step + 1)) for step in range(2, 6)]]),
    ],
)
def test_schedules(schedule: str, expected: list[float]) -> None:
    declared = training(warmup=2, schedule=schedule)
    assert [rate(declared, step, 6) for step in range(6)] == pytest.approx(expected)


def test_gradient_norms_add_up() -> None:
    trace = run([run_of(training(), quantities=EVERYTHING)])[0]
    parameters, total = trace.series["parameter_gradient_norm"], trace.series["gradient_norm"]
    layers = trace.series["layer_gradient_norm"]
    for by_parameter, by_layer, all_ in zip(parameters.values, layers.values, total.values, strict=True):
        assert math.hypot(*by_parameter) == pytest.approx(all_[0], rel=1e-9)
        own = [value for label, value in zip(parameters.labels, by_parameter, strict=True) if "layers.1." in label]
        assert math.hypot(*own) == pytest.approx(by_layer[1], rel=1e-9)


def test_initialisation_only_leaves_the_weights_and_reads_step_zero() -> None:
    trace = run([run_of(training(steps=0), quantities=EVERYTHING)])[0]
    assert trace.outcome.name == "initialised"
    assert {series.steps for series in trace.series.values()} == {(0,)}
    assert "update_ratio" not in trace.series


def test_a_nan_in_one_seed_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(*args: Any) -> nn.Module:
        network = build(*args)
        if len(network.get_parameter("readout.weight")) > 1:
            network.get_parameter("layers.1.ffn.branch.expand.weight").data[1, 0, 0] = math.nan
        return network

    declared = training(steps=15, clip=1.0)
    alone = [run([run_of(declared, seed=seed)])[0] for seed in (1, 3)]
    monkeypatch.setattr("stabilitysuite.lab.subject.build", poisoned)
    first, broken, third = run([run_of(declared, seed=seed) for seed in (1, 2, 3)])
    assert (broken.outcome.name, broken.outcome.step) == ("nonfinite", 0)
    assert broken.outcome.layer == "layer 1"
    assert broken.outcome.tensor == "weight layers.1.ffn.branch.expand.weight"
    for ours, theirs in zip((first, third), alone, strict=True):
        assert losses(ours) == pytest.approx(losses(theirs), abs=1e-5)
        assert ours.outcome.name == theirs.outcome.name


def test_a_far_too_large_rate_is_told_as_diverged_or_nonfinite() -> None:
    model = dataclasses.replace(MODEL, norm="none")
    declared = training(model=model, optimizer=SGD(lr=1e4), steps=40)
    for trace in run([run_of(declared, seed=seed) for seed in (1, 2)]):
        assert trace.outcome.name in ("diverged", "nonfinite")
        assert len(losses(trace)) < 40, "a hopeless run is given up"


def test_a_small_model_learns_its_chain() -> None:
    trace = run([run_of(training(steps=150, optimizer=Adam(lr=1e-2)))])[0]
    assert trace.outcome.name == "converged"
    assert trace.reference is not None
    assert trace.series["evaluated_loss"].values[-1][0] > trace.reference.floor - 0.05


def test_only_attention_leaves_the_plateau_of_a_longer_lag() -> None:
    task = dataclasses.replace(TASK, lag=2, batch=16)
    declared = training(task=task, steps=250, optimizer=Adam(lr=1e-2), model=dataclasses.replace(MODEL, norm="pre"))
    blind = training(**{**_fields(declared), "model": dataclasses.replace(declared.model, attention=False)})  # type: ignore[type-var]
    seeing, unseeing = run([run_of(declared), run_of(blind)])
    assert seeing.outcome.name == "converged"
    assert unseeing.outcome.name == "stalled"


def _fields(declared: Training) -> dict[str, object]:
    return {item.name: getattr(declared, item.name) for item in dataclasses.fields(declared)}


def test_bfloat16_runs_under_autocast_and_differs() -> None:
    plain, half = run([run_of(training()), run_of(training(precision="bfloat16"))])
    assert losses(half) != losses(plain)
    assert losses(half) == pytest.approx(losses(plain), abs=0.05)


def test_global_state_is_as_before() -> None:
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    expected = (random.random(), float(np.random.rand()), float(torch.rand(())))
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    torch.set_num_threads(2)
    run([run_of(training(steps=2))])
    assert torch.get_num_threads() == 2
    assert (random.random(), float(np.random.rand()), float(torch.rand(()))) == expected
    assert torch.tensor([1e-39]).mul(1.0).item() != 0, "denormals are back"


def test_a_spent_budget_ends_as_timeout_and_says_so() -> None:
    traces = run([run_of(training(steps=2000), seed=1), run_of(training(steps=3), seed=2)], budget=0.3)
    assert [trace.outcome.name for trace in traces] == ["timeout", "timeout"]
    assert traces[0].outcome.step > 0
    assert len(losses(traces[0])) == traces[0].outcome.step


def test_progress_is_reported_each_step() -> None:
    seen: list[Progress] = []
    run([run_of(training(steps=3), seed=seed) for seed in (4, 5)], progress=seen.append)
    assert [(one.step, one.steps, one.seeds) for one in seen] == [(step, 3, (4, 5)) for step in (1, 2, 3)]


def test_memory_that_runs_out_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def starving(*args: object) -> nn.Module:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr("stabilitysuite.lab.subject.build", starving)
    (trace,) = run([run_of(training())])
    assert trace.outcome.name == "out-of-memory"
    assert "allocate" in trace.outcome.detail


@pytest.mark.parametrize("device", ["tpu", "cuda:77", "meta"])
def test_a_device_that_is_not_there(device: str) -> None:
    with pytest.raises(MeasurementError, match=device):
        run([run_of(training())], device=device)


# --- modules of one's own


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


def test_a_transformer_of_many_shapes_trains(subtests: pytest.Subtests) -> None:
    for changes in (
        {"layers": 0},
        {"norm": "none"},
        {"causal": False},
        {"positions": "none"},
        {"attention": False},
    ):
        with subtests.test(str(changes)):
            model = Transformer(**{"layers": 2, "width": 16, "heads": 2, **changes})  # type: ignore[arg-type]
            assert run([run_of(training(model=model, steps=3))])[0].outcome.step == 3
