"""A case with claims on the quantities on demand, from its declaration to its findings; no pytest plugin between."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from stabilitysuite import (
    SGD,
    AdamW,
    Case,
    Gaussian,
    Markov,
    Transformer,
    area_under_curve,
    attention_entropy,
    attention_logit_max,
    attention_logit_std,
    gradient_kurtosis,
    gradient_std,
    gradient_zeros,
    layer_cosine,
    loss_drop,
    magnitude_gradient,
    movement,
    no_spikes,
    norm_gain,
    output_change,
    output_logit_std,
    perturbation_change,
    steps_to_converge,
    weight_kurtosis,
    weight_std,
    weight_zeros,
)
from stabilitysuite.claims.finding import Finding
from stabilitysuite.judge import judge
from stabilitysuite.lab.train import run
from stabilitysuite.plan import ALWAYS, plan
from stabilitysuite.quantity import QUANTITIES

EVEN = math.lgamma(9) / 8
"""Entropy of even attention under a causal mask of 8 tokens: the mean of ln t."""


def findings(case: Case) -> dict[str, Finding]:
    return {one.claim: one for one in judge(case, run(plan(case).runs))}


def test_claims_on_everything_on_demand_are_judged() -> None:
    case = Case(
        says="a small model trains, and all that can be asked of it is near what it must be",
        model=Transformer(layers=2, width=16, heads=2, norm="pre"),
        task=Markov(vocab=8, length=8, batch=8),
        optimizer=AdamW(lr=3e-3),
        steps=60,
        seeds=6,
        expect=(
            attention_entropy(step=0).between(0.5 * EVEN, 1.001 * EVEN),
            attention_logit_std(step=0).between(0.2, 3),
            attention_logit_max(step=0).at_most(20),
            output_logit_std(step=0).between(0.3, 3),
            weight_std(step=0).between(0.05, 1),
            weight_kurtosis("max", step=0).between(-1, 3),
            weight_zeros(step=0).at_most(0),
            gradient_std("min", step=0).at_least(1e-8),
            gradient_kurtosis("max", step=0).at_least(-2),
            gradient_zeros("embedding.weight", step=0).at_most(0.5),
            layer_cosine("min").at_least(0.1),
            output_change(step=0).between(1e-4, 1),
            perturbation_change(step=0).between(0.1, 20),
            loss_drop(step=0).between(0.2, 1.1),
            magnitude_gradient("max", step=0).between(0, 3),
            movement("max").between(0.01, 3),
            norm_gain("final_norm.gain", step=0).near(1, within=0.01),
            steps_to_converge().at_most(60),
            area_under_curve().between(0.1, 0.95),
            no_spikes(),
        ),
    )
    asked = frozenset().union(*(claim.quantities() for claim in case.claims))
    assert asked == QUANTITIES.keys() - ALWAYS - {"parameter_gradient_norm", "update_ratio", "shortcut_weight"}
    found = findings(case)
    assert {words: one.verdict for words, one in found.items() if one.verdict != "holds"} == {}
    assert found["spikes at most 0"].values == (0.0,) * 6


def test_a_claim_that_is_wrong_is_violated() -> None:
    case = Case(
        says="what cannot be",
        model=Transformer(layers=2, width=16, heads=2),
        task=Markov(vocab=8, length=8, batch=8),
        optimizer=SGD(lr=1e-4),
        steps=10,
        expect=(steps_to_converge().at_most(10), movement("max").at_least(1), loss_drop().at_most(0.5)),
    )
    found = findings(case)
    assert {one.verdict for one in found.values()} == {"violated"}
    assert found["steps_to_converge at most 10"].reason.startswith("not finite in 3 of 3 seeds")


def test_a_model_amplifies_a_random_step_of_its_weights_at_initialisation() -> None:
    """Liu et al. (2020): Post-LN amplifies more the deeper it is, Pre-LN hardly."""
    seen = {
        norm: findings(
            Case(
                says="amplification",
                model=Transformer(layers=24, width=32, heads=2, norm=norm),
                task=Gaussian(tokens=8, batch=4),
                seeds=4,
                expect=perturbation_change().at_least(0.1),
            )
        )["perturbation_change at least 0.1"].value
        for norm in ("post", "pre")
    }
    assert seen["post"] is not None
    assert seen["pre"] is not None
    assert seen["post"] > 2 * seen["pre"]


class Net(nn.Module):
    """A residual block twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16)) for _ in range(2))
        self.head = nn.Linear(16, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = x + block(x)
        out: Tensor = self.head(x)
        return out


def batches(seed: int) -> list[Tensor]:
    source = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 8, (4, 6), generator=source) for _ in range(40)]


def loss(model: nn.Module, tokens: Tensor) -> Tensor:
    return functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def test_a_model_of_ones_own_is_asked_the_same() -> None:
    case = Case(
        says="our model learns to repeat its input",
        model=Net,
        data=batches,
        loss=loss,
        optimizer=AdamW(lr=1e-2),
        steps=40,
        target=0.5,
        expect=(
            loss_drop(step=0).between(0.2, 1.2),
            output_change(step=0).between(1e-4, 1),
            perturbation_change(step=0).between(0.3, 10),
            norm_gain("blocks.0.0.weight", step=0).near(1, within=0.01),
            steps_to_converge().at_most(40),
            no_spikes(),
        ),
    )
    assert {words: one.verdict for words, one in findings(case).items() if one.verdict != "holds"} == {}
