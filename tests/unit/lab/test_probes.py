"""Each probe against a slow twin or a closed form."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from stabilitysuite.lab.probes.branch_ratio import branch_ratio
from stabilitysuite.lab.probes.gradient_norm import joint_norm, parameter_norms
from stabilitysuite.lab.probes.residual_gradient import residual_gradient
from stabilitysuite.lab.probes.residual_std import residual_std
from stabilitysuite.lab.probes.shortcut_weight import shortcut_weight
from stabilitysuite.lab.probes.token_cosine import token_cosine
from stabilitysuite.lab.probes.update_ratio import update_ratio
from stabilitysuite.lab.train import run
from stabilitysuite.lab.zoo.build import build
from stabilitysuite.spec import Gaussian, Transformer

from .runs import run_of, training

X = torch.randn(3, 2, 5, 7, generator=torch.Generator().manual_seed(0))


def test_residual_std_is_numpys() -> None:
    assert residual_std(X + 4).tolist() == pytest.approx([float(x.numpy().std()) for x in X], rel=1e-6)


def test_branch_ratio_of_a_scaled_copy_is_the_scale() -> None:
    assert branch_ratio(0.3 * X + 1, X).tolist() == pytest.approx([0.3] * 3, rel=1e-6)


def test_token_cosine_is_the_mean_over_all_pairs() -> None:
    for x, found in zip(X, token_cosine(X).tolist(), strict=True):
        pairs = [
            functional.cosine_similarity(sequence[i], sequence[j], dim=0)
            for sequence in x.double()
            for i in range(5)
            for j in range(5)
            if i != j
        ]
        assert found == pytest.approx(float(torch.stack(pairs).mean()), abs=1e-6)


def test_token_cosine_of_equal_tokens_is_one() -> None:
    assert token_cosine(X[:, :, :1].expand(-1, -1, 5, -1)).tolist() == pytest.approx([1.0] * 3)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e25])
def test_norms_are_right_where_float32_is_not(scale: float) -> None:
    """float32 norms read 0 below 1e-23 and inf above 1e18."""
    norms = parameter_norms([X * scale, X * scale], batched=True, seeds=3)
    expected = [float(x.double().norm()) * scale for x in X]
    assert norms[:, 0].tolist() == pytest.approx(expected, rel=1e-5)
    assert joint_norm(norms).tolist() == pytest.approx([2**0.5 * one for one in expected], rel=1e-5)
    assert residual_gradient(X * scale).tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e25])
def test_cosines_and_ratios_do_not_depend_on_the_scale(scale: float) -> None:
    assert token_cosine(X * scale).tolist() == pytest.approx(token_cosine(X).tolist(), abs=1e-6)
    assert branch_ratio(0.5 * X * scale, X * scale).tolist() == pytest.approx([0.5] * 3, rel=1e-5)


def test_a_token_of_zeros_is_no_division_by_zero() -> None:
    x = X.clone()
    x[0, :, 0] = 0
    assert torch.isfinite(token_cosine(x)).all()
    assert token_cosine(torch.zeros_like(X)).tolist() == [0.0] * 3


def test_norms_of_a_missing_and_a_sparse_gradient() -> None:
    where, values = torch.tensor([[0, 0, 2]]), torch.tensor([1.0, 2.0, 4.0])
    sparse = torch.sparse_coo_tensor(where, values, (5,), check_invariants=True)
    norms = parameter_norms([None, sparse], batched=False, seeds=1)
    assert norms.tolist() == [[0.0, pytest.approx(5.0)]]


def test_update_ratio_of_a_known_step() -> None:
    weights = [X, 2 * X]
    assert update_ratio(weights, [X * 1.01, 2 * X], True, 3)[:, 0].tolist() == pytest.approx([0.01] * 3, rel=1e-3)
    assert update_ratio(weights, [X * 1.01, 2 * X], True, 3)[:, 1].tolist() == [0.0] * 3


def test_shortcut_weight_is_the_product_of_what_the_norms_divide_by() -> None:
    """Against a forward pass by hand that carries only the shortcut along."""
    network = build(Transformer(layers=3, width=16, attention=False, residual_scale=1.5), Gaussian(tokens=4), (1,))
    x = torch.randn(1, 2, 4, 16, generator=torch.Generator().manual_seed(0))
    by_hand, weight = [], 1.0
    stream = x
    for block in network.layers:
        residual: Any = block.ffn
        summed = 1.5 * stream + residual.branch(stream)
        weight *= 1.5 / float(summed.detach().std(correction=0))
        by_hand.append(weight)
        stream = residual(stream)
    one = run_of(
        training(model=Transformer(layers=3, width=16, attention=False, residual_scale=1.5), task=Gaussian(), steps=0),
        quantities=frozenset({"shortcut_weight"}),
    )
    assert run([one])[0].series["shortcut_weight"].labels == ("layer 0 ffn", "layer 1 ffn", "layer 2 ffn")
    factors = torch.tensor([[by_hand[0], by_hand[1] / by_hand[0], by_hand[2] / by_hand[1]]]) / 1.5
    assert shortcut_weight(factors, 1.5)[0].tolist() == pytest.approx(by_hand, rel=1e-5)
