"""The recorder measures what a plain look at the same step would, however it arranges its work."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from stabilitysuite.lab.probes.norm import norms_of_many
from stabilitysuite.lab.probes.residual_std import residual_std
from stabilitysuite.lab.probes.token_cosine import token_cosine
from stabilitysuite.lab.subject import ZooSubject
from stabilitysuite.lab.train import run
from tests.unit.lab.runs import EVERYTHING, run_of, training

X = torch.randn(3, 2, 5, 7, generator=torch.Generator().manual_seed(0))


def test_the_first_step_of_a_zoo_network_is_what_hooks_of_ones_own_see() -> None:
    declared = training(steps=1)
    seen: dict[str, list[Tensor]] = {"stream": [], "branch": [], "layer": []}
    subject = ZooSubject(declared, (1, 2), torch.device("cpu"))
    for branch in subject.branches:
        assert branch.inner is not None
        branch.host.register_forward_pre_hook(lambda _, inputs: seen["stream"].append(inputs[0].detach().clone()))
        branch.inner.register_forward_hook(lambda *args: seen["branch"].append(args[2].detach().clone()))
    for _, layer in subject.layers:
        layer.register_forward_hook(lambda *args: seen["layer"].append(args[2].detach().clone()))
    subject.losses(subject.next_batch())
    traces = run([run_of(declared, seed, EVERYTHING) for seed in (1, 2)])
    for position, trace in enumerate(traces):
        std = {name: [float(x[position].double().std(correction=0)) for x in found] for name, found in seen.items()}
        ratios = [branch / stream for branch, stream in zip(std["branch"], std["stream"], strict=True)]
        cosines = [float(token_cosine(x)[position]) for x in seen["layer"]]
        assert trace.series["residual_std"].values[0] == pytest.approx(std["layer"], rel=1e-5)
        assert trace.series["branch_ratio"].values[0] == pytest.approx(ratios, rel=1e-5)
        assert trace.series["token_cosine"].values[0] == pytest.approx(cosines, abs=1e-6)


def test_updates_are_measured_on_matrices_only() -> None:
    (trace,) = run([run_of(training(steps=2), 1, EVERYTHING)])
    series = trace.series["update_ratio"]
    assert not [label for label in series.labels if label.endswith((".bias", ".gain"))]
    assert any(label.endswith(".weight") for label in series.labels)
    assert all(0 < value < 1 for row in series.values for value in row)


class InPlace(nn.Module):
    """Adds its branch to the stream in place."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, 16)
        self.blocks = nn.ModuleList(Doubling() for _ in range(2))
        self.readout = nn.Linear(16, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.readout(x)
        return logits


class Doubling(nn.Module):
    """x = 2 x, in the memory of x."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return x.add_(x.clone() * self.one)


def test_a_block_that_changes_its_stream_in_place_is_measured_before_and_after() -> None:
    (trace,) = run([run_of(training(model=InPlace, steps=1), 1, EVERYTHING)])
    assert trace.series["branch_ratio"].values[0] == pytest.approx([1.0, 1.0], rel=1e-6)
    first, second = trace.series["residual_std"].values[0]
    assert second == pytest.approx(2 * first, rel=1e-6)


def test_bfloat16_activations_are_measured_in_float32() -> None:
    coarse = X.bfloat16()
    assert residual_std(coarse).tolist() == residual_std(coarse.float()).tolist()
    assert token_cosine(coarse).tolist() == token_cosine(coarse.float()).tolist()


@pytest.mark.parametrize("seeds", [1, 3])
def test_one_vanishing_tensor_among_many_is_measured_and_leaves_the_others_alone(seeds: int) -> None:
    tensors = [X[:seeds], X[:seeds] * 1e-30, X[:seeds] * torch.nan, X[:seeds] * 2]
    norms = norms_of_many(tensors, True, seeds)
    for position in range(seeds):
        exact = float(X[position].double().norm())
        assert norms[position, [0, 1, 3]].tolist() == pytest.approx([exact, exact * 1e-30, 2 * exact], rel=1e-5)
    assert bool(torch.isnan(norms[:, 2]).all())
