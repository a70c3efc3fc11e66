"""On-demand quantities in a run: against the same thing by hand, and without a trace in the training."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from stabilitysuite.lab.optim import make_optimizer
from stabilitysuite.lab.probes.output_change import RELATIVE, perturbed
from stabilitysuite.lab.subject import FIXED_SEQUENCES, ZooSubject, make_subject
from stabilitysuite.lab.train import run
from stabilitysuite.plan import ALWAYS
from stabilitysuite.quantity import QUANTITIES
from stabilitysuite.spec import GAU, SGD, Adam, AdamW, Gaussian, Run, Training
from stabilitysuite.trace import Trace

from .runs import EVERYTHING, MODEL, run_of, training

CPU = torch.device("cpu")
ON_DEMAND = EVERYTHING - ALWAYS


def losses(trace: Trace) -> list[float]:
    return [row[0] for row in trace.series["training_loss"].values]


def values(trace: Trace, quantity: str, step: int = 0) -> tuple[float, ...]:
    found = trace.series[quantity].at(step)
    assert found is not None
    return found


# --- by hand


def test_what_an_update_does_is_what_two_networks_show() -> None:
    """The first update of two seeds, each against a copy of the network from before it."""
    declared = training(optimizer=AdamW(lr=1e-3), steps=1, clip=0.5)
    subject = ZooSubject(declared, (1, 2), CPU)
    batch = subject.next_batch()
    fixed = subject.fixed(batch)
    before = copy.deepcopy(subject.network)
    subject.losses(batch).sum().backward()  # type: ignore[no-untyped-call]
    gradients = [value.grad.clone() for value in subject.network.parameters() if value.grad is not None]
    norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
    for value in subject.network.parameters():
        assert value.grad is not None
        value.grad *= (0.5 / norms).clamp(max=1).view(-1, *[1] * (value.dim() - 1))
    make_optimizer(declared, subject.network).step()
    pairs = list(zip(before.parameters(), subject.network.parameters(), strict=True))
    with torch.no_grad():
        old, new = before(fixed), subject.network(fixed)
        drop = subject.stream.loss(before(batch[0]), batch[1]) - subject.losses(batch)
    traces = run([run_of(declared, seed, EVERYTHING) for seed in (1, 2)])
    for position, trace in enumerate(traces):
        change = float((new - old)[position].norm() / old[position].norm())
        predicted = sum(
            float(((a - b).detach().double() * g)[position].sum()) for (a, b), g in zip(pairs, gradients, strict=True)
        )
        assert values(trace, "output_change") == pytest.approx((change,), rel=1e-4)
        assert values(trace, "loss_drop") == pytest.approx((float(drop[position]) / predicted,), rel=1e-3)


@pytest.mark.parametrize(
    "optimizer", [SGD(lr=1e-2), SGD(lr=1e-3, momentum=0.9), Adam(lr=1e-5), AdamW(lr=1e-5)], ids=str
)
def test_a_small_update_of_any_optimizer_drops_the_loss_as_its_gradient_says(optimizer: Any) -> None:
    (trace,) = run([run_of(training(optimizer=optimizer, steps=4), 1, EVERYTHING)])
    assert [row[0] for row in trace.series["loss_drop"].values] == pytest.approx([1.0] * 4, abs=0.05)


def test_a_large_update_does_not() -> None:
    (trace,) = run([run_of(training(optimizer=SGD(lr=30.0), steps=2), 1, EVERYTHING)])
    assert values(trace, "loss_drop")[0] < 0.5


class Line(nn.Module):
    """A linear map: every relative change of its weight changes its output by as much, on average."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64, bias=False)])

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers[0](x)
        return out


def test_a_linear_map_amplifies_a_perturbation_by_one() -> None:
    def data(seed: int) -> Iterator[Tensor]:
        source = torch.Generator().manual_seed(seed)
        while True:
            yield torch.randn(256, 64, generator=source)

    declared = Training(model=Line, data=data, loss=lambda model, x: model(x).square().mean(), steps=0)
    (trace,) = run([run_of(declared, 1, EVERYTHING)])
    assert values(trace, "perturbation_change") == pytest.approx((1.0,), abs=0.05)


@pytest.mark.parametrize("batched", [True, False])
def test_a_perturbation_has_its_size_and_is_undone_to_the_bit(batched: bool) -> None:
    shape = (2, 5, 7) if batched else (5, 7)
    matrices = [nn.Parameter(torch.randn(shape)), nn.Parameter(torch.zeros(shape))]
    before = [matrix.detach().clone() for matrix in matrices]
    with perturbed(matrices, [torch.randn(shape) for _ in matrices], batched, 2 if batched else 1):
        moved = [(now.detach() - was) for now, was in zip(matrices, before, strict=True)]
        sizes = moved[0].flatten(int(batched)).norm(dim=-1) / before[0].flatten(int(batched)).norm(dim=-1)
        assert sizes.view(-1).tolist() == pytest.approx([RELATIVE] * (2 if batched else 1), rel=1e-3)
        assert not moved[1].any(), "what is zero stays zero"
    assert all(map(torch.equal, matrices, before))


def test_weights_gradients_and_movement_are_those_of_the_network() -> None:
    declared = training(steps=3, optimizer=SGD(lr=0.1))
    subject = ZooSubject(declared, (1,), CPU)
    start = {name: value.detach().clone() for name, value in subject.named_parameters}
    optimizer = make_optimizer(declared, subject.network)
    for _ in range(2):
        subject.losses(subject.next_batch()).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    subject.losses(subject.next_batch()).sum().backward()  # type: ignore[no-untyped-call]
    (trace,) = run([run_of(declared, 1, EVERYTHING)])
    network = dict(subject.named_parameters)
    weights = {name: value.detach().double() for name, value in network.items()}
    gradients = {name: value.grad.double() for name, value in network.items() if value.grad is not None}
    expected = {
        "weight_std": {name: one.std(correction=0) for name, one in weights.items()},
        "weight_zeros": {name: (one == 0).double().mean() for name, one in weights.items()},
        "norm_gain": {name: one.mean() for name, one in weights.items()},
        "gradient_std": {name: one.std(correction=0) for name, one in gradients.items()},
        "gradient_zeros": {name: (one == 0).double().mean() for name, one in gradients.items()},
    }
    for quantity, by_name in expected.items():
        series = trace.series[quantity]
        assert series.values[2] == pytest.approx([float(by_name[name]) for name in series.labels], rel=1e-3), quantity
    assert "embedding.weight" in trace.series["weight_std"].labels
    assert set(trace.series["norm_gain"].labels) == {name for name in network if name.endswith(".gain")}
    for (_, names), moved in zip(subject.layer_parameters(), values(trace, "movement", 2), strict=True):
        distance = torch.cat([(weights[name] - start[name]).flatten() for name in names]).norm()
        size = torch.cat([start[name].flatten() for name in names]).norm()
        assert moved == pytest.approx(float(distance / size), rel=1e-4)
    assert values(trace, "movement", 0) == (0.0, 0.0)


def test_activations_are_those_of_the_first_forward_pass() -> None:
    subject = ZooSubject(training(), (1,), CPU)
    streams: list[Tensor] = []
    for _, layer in subject.layers:
        layer.register_forward_pre_hook(lambda _, inputs: streams.append(inputs[0].detach()))
        layer.register_forward_hook(lambda *called: streams.append(called[2].detach()))
    output = subject.network(subject.next_batch()[0]).detach()
    (trace,) = run([run_of(training(steps=1), 1, EVERYTHING)])
    cosines = [
        float(functional.cosine_similarity(a, b, dim=-1).mean())
        for a, b in zip(streams[::2], streams[1::2], strict=True)
    ]
    assert values(trace, "layer_cosine") == pytest.approx(cosines, rel=1e-5)
    assert values(trace, "output_logit_std") == pytest.approx((float(output.std(correction=0)),), rel=1e-5)


# --- nothing is disturbed

TRAININGS = {
    "post": training(clip=0.5),
    "pre": training(model=dataclasses.replace(MODEL, norm="pre"), optimizer=AdamW(lr=3e-3)),
    "GAU": training(model=GAU(layers=2, width=16, key=8)),
}


@pytest.mark.parametrize("declared", TRAININGS.values(), ids=TRAININGS.keys())
@pytest.mark.parametrize("seeds", [(1,), (1, 2, 3)], ids=["one seed", "three seeds"])
def test_losses_are_the_same_to_the_bit_with_everything_recorded(declared: Training, seeds: tuple[int, ...]) -> None:
    bare = run([run_of(declared, seed, frozenset({"training_loss"})) for seed in seeds])
    watched = run([run_of(declared, seed, EVERYTHING, every=True) for seed in seeds])
    for ours, theirs in zip(watched, bare, strict=True):
        assert losses(ours) == losses(theirs)
        assert ours.series["evaluated_loss"] == theirs.series["evaluated_loss"]


@pytest.mark.parametrize("model", [MODEL, dataclasses.replace(MODEL, norm="pre")], ids=["post", "pre"])
def test_seeds_together_are_the_seeds_alone(model: Any) -> None:
    runs = [run_of(training(model=model, steps=3), seed, EVERYTHING) for seed in (1, 2, 3)]
    for one, ours in zip(runs, run(runs), strict=True):
        (alone,) = run([one])
        assert set(ours.series) == set(alone.series)
        assert set(ours.series) >= ON_DEMAND - {"shortcut_weight"}
        for name, series in alone.series.items():
            for row, other in zip(ours.series[name].values, series.values, strict=True):
                assert row == pytest.approx(other, rel=2e-3, abs=1e-5, nan_ok=True), name


class Noisy(nn.Module):
    """Dropout, running statistics, a count of calls, and a frozen part that stays in evaluation mode."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.2), nn.GELU()) for _ in range(2))
        self.norm = nn.BatchNorm1d(6)
        self.frozen = nn.BatchNorm1d(6).eval()
        self.head = nn.Linear(16, 8)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        assert not self.frozen.training
        self.calls += 1
        x = self.embed(tokens)
        for block in self.blocks:
            x = x + block(x)
        x = self.frozen(self.norm(x)) + 1e-3 * torch.rand_like(x) + self.calls
        return x.sum(), self.head(x)


def noisy(**changes: Any) -> Training:
    def data(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        source = torch.Generator().manual_seed(seed)
        while True:
            yield torch.randint(0, 8, (4, 6), generator=source), torch.ones(())

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        tokens, weight = batch
        value = functional.cross_entropy(model(tokens)[1].flatten(0, 1), tokens.flatten()) * float(weight)
        weight.zero_()  # what a batch holds afterwards is the user's business
        return value

    declared = Training(model=Noisy, data=data, loss=loss, optimizer=Adam(lr=1e-2), steps=8)
    return dataclasses.replace(declared, **changes)


def test_a_noisy_module_of_ones_own_is_not_disturbed() -> None:
    """Random states, buffers, modes and batches are as without probes."""
    (bare,), (watched,) = run([run_of(noisy(), 1, frozenset({"training_loss"}))]), run([run_of(noisy(), 1, EVERYTHING)])
    assert losses(watched) == losses(bare)
    found = set(watched.series)
    assert found >= ON_DEMAND - {"shortcut_weight", "steps_to_converge"} - {
        name for name in QUANTITIES if name.startswith("attention_")
    }
    assert values(watched, "loss_drop")[0] != 0, "of the batch as it came"
    assert values(watched, "output_logit_std")[0] > 0, "of the logits, not of the number before them"
    assert watched.series["norm_gain"].labels == ("norm.weight", "frozen.weight")


def test_a_step_of_ones_own_hides_the_passes_and_nothing_else() -> None:
    def step(model: nn.Module, batch: tuple[Tensor, Tensor], optimizer: torch.optim.Optimizer) -> Tensor:
        tokens = batch[0]
        optimizer.zero_grad()
        value = functional.cross_entropy(model(tokens)[1].flatten(0, 1), tokens.flatten())
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return value

    (trace,) = run([run_of(noisy(loss=None, step=step), 1, EVERYTHING)])
    assert not {"output_change", "perturbation_change", "loss_drop"} & set(trace.series)
    assert {"movement", "gradient_kurtosis", "magnitude_gradient", "spikes", "layer_cosine"} <= set(trace.series)


def test_a_model_that_is_never_called_has_no_output() -> None:
    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return functional.cross_entropy(model.forward(batch[0])[1].flatten(0, 1), batch[0].flatten())

    (trace,) = run([run_of(noisy(loss=loss), 1, EVERYTHING)])
    assert not {"output_change", "perturbation_change", "output_logit_std"} & set(trace.series)
    assert "loss_drop" in trace.series


def test_a_module_on_a_known_task_is_compared_on_the_evaluation_set() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Embedding(8, 16), nn.Linear(16, 8))

    declared = training(model=build, steps=3)
    (trace,) = run([run_of(declared, 1, EVERYTHING)])
    subject = make_subject(declared, (1,), CPU)
    fixed = subject.fixed(subject.next_batch())
    assert fixed.shape == (1, FIXED_SEQUENCES, 8)
    assert values(trace, "output_change")[0] > 0
    assert 0.5 < values(trace, "perturbation_change")[0] < 3


def test_at_initialisation_there_is_no_update_and_all_else() -> None:
    one: Run = run_of(training(task=Gaussian(tokens=4), steps=0), 1, EVERYTHING)
    (trace,) = run([one])
    needs_update = {name for name, kind in QUANTITIES.items() if kind.training}
    assert not needs_update & set(trace.series)
    assert set(trace.series) >= ON_DEMAND - needs_update


def test_what_is_not_finite_is_seen_and_harms_nothing() -> None:
    def build() -> nn.Module:
        model = Noisy()
        model.blocks[1][0].weight.data[0, 0] = torch.inf  # type: ignore[index]
        return model

    (trace,) = run([run_of(noisy(model=build), 1, EVERYTHING)])
    assert (trace.outcome.name, trace.outcome.step) == ("nonfinite", 0)
    assert trace.outcome.tensor == "weight blocks.1.0.weight"
