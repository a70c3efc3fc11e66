"""Each probe against a slow twin or a closed form."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional

from stabilitysuite.lab.probes.attention_logits import attention_entropy, attention_logit_max, attention_logit_std
from stabilitysuite.lab.probes.branch_ratio import branch_ratio
from stabilitysuite.lab.probes.distribution import kurtosis, zeros
from stabilitysuite.lab.probes.gradient_norm import joint_norm, parameter_norms
from stabilitysuite.lab.probes.layer_cosine import layer_cosine
from stabilitysuite.lab.probes.magnitude_gradient import magnitude, magnitude_gradient
from stabilitysuite.lab.probes.movement import movement
from stabilitysuite.lab.probes.norm_gain import gains, norm_gain
from stabilitysuite.lab.probes.residual_gradient import residual_gradient
from stabilitysuite.lab.probes.residual_std import residual_std
from stabilitysuite.lab.probes.shortcut_weight import shortcut_weight
from stabilitysuite.lab.probes.token_cosine import token_cosine
from stabilitysuite.lab.probes.update_ratio import update_ratio
from stabilitysuite.lab.train import run
from stabilitysuite.lab.zoo.attention import Attention
from stabilitysuite.lab.zoo.build import build
from stabilitysuite.spec import GAU, Gaussian, Transformer

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


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e25])
def test_layer_cosine_is_the_mean_over_the_tokens(scale: float) -> None:
    after = X + 0.5 * X.flip(-1)
    for x, y, found in zip(X, after, layer_cosine(after * scale, X * scale).tolist(), strict=True):
        assert found == pytest.approx(float(functional.cosine_similarity(x, y, dim=-1).mean()), abs=1e-5)
    assert layer_cosine(-2 * X, X).tolist() == pytest.approx([-1.0] * 3)
    assert layer_cosine(torch.zeros_like(X), X).tolist() == [0.0] * 3


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e25])
def test_kurtosis_is_scipys(scale: float) -> None:
    heavy = (X**3 + 1) * scale
    expected = [stats.kurtosis(x.double().numpy(), axis=None) for x in heavy]
    assert kurtosis(heavy).tolist() == pytest.approx(expected, rel=1e-6)
    assert kurtosis(torch.tensor([[1.0, -1.0, 1.0, -1.0]])).tolist() == [-2.0]
    assert kurtosis(torch.ones(1, 4)).isnan().all()


def test_zeros_are_counted() -> None:
    assert zeros(torch.tensor([[[0.0, 1.0], [0.0, -0.0]], [[1.0, 2.0], [3.0, 1e-30]]])).tolist() == [0.75, 0.0]


def test_a_magnitude_is_the_argmin_that_the_source_defines() -> None:
    """Against a search over kappa, and in closed form for an orthogonal matrix."""
    weight = torch.randn(2, 6, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for one, found in zip(weight, magnitude(weight).tolist(), strict=True):
        distance = {
            kappa: float((one @ one.T / kappa**2 - torch.eye(6, dtype=torch.float64)).norm())
            for kappa in (found * (1 + step / 1000) for step in range(-50, 51))
        }
        assert min(distance, key=distance.__getitem__) == pytest.approx(found, rel=1e-9)
    assert magnitude(weight.mT).tolist() == pytest.approx(magnitude(weight).tolist())
    orthogonal = torch.linalg.qr(weight[:, :, :6]).Q
    assert magnitude(0.3 * orthogonal).tolist() == pytest.approx([0.3, 0.3])


def test_a_magnitude_gradient_is_autograds() -> None:
    source = torch.Generator().manual_seed(2)
    weight, x = torch.randn(1, 4, 6, generator=source), torch.randn(5, 4, generator=source)
    size = magnitude(weight).requires_grad_()
    ((x.double() @ (size * (weight / size.detach())[0])).tanh() ** 2).sum().backward()  # type: ignore[no-untyped-call]
    plain = weight.clone().requires_grad_()
    ((x @ plain[0]).tanh() ** 2).sum().backward()  # type: ignore[no-untyped-call]
    assert plain.grad is not None
    assert size.grad is not None
    assert magnitude_gradient(weight, plain.grad).tolist() == pytest.approx(size.grad.tolist(), rel=1e-5)
    folded = magnitude_gradient(weight.view(1, 1, 4, 1, 2, 3), plain.grad.view(1, 1, 4, 1, 2, 3))
    assert folded.tolist() == pytest.approx(size.grad.tolist(), rel=1e-5), "a matrix of 4 x 6"


def test_movement_of_what_stands_still_is_zero() -> None:
    found = movement(torch.tensor([[0.0, 3.0, 1.0, torch.nan]]), torch.tensor([[0.0, 6.0, 0.0, 1.0]]))
    assert found[0, :3].tolist() == [0.0, 0.5, torch.inf]
    assert found[0, 3].isnan()


def test_gains_are_those_of_norms() -> None:
    module = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.RMSNorm(4))
    named = list(module.named_parameters())
    assert [name for name, _ in gains(module, named)] == ["0.weight", "2.weight", "3.weight"]
    assert norm_gain(torch.tensor([[1.0, 3.0], [0.0, 1.0]])).tolist() == [2.0, 0.5]


def logits_by_hand(logits_HTT: Tensor, causal: bool) -> tuple[float, float, float]:
    """Standard deviation, largest and entropy, query by query."""
    deviations, freedom, largest, entropies = 0.0, 0, 0.0, []
    for head in logits_HTT.double():
        for at, row in enumerate(head):
            seen = row[: at + 1] if causal else row
            deviations += float(((seen - seen.mean()) ** 2).sum())
            freedom += len(seen) - 1
            largest = max(largest, float(seen.abs().max()))
            p = torch.softmax(seen, dim=0)
            entropies.append(-float((p * p.log()).sum()))
    return (deviations / freedom) ** 0.5, largest, sum(entropies) / len(entropies)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_logits_are_looked_at_where_they_are_seen(causal: bool) -> None:
    logits = 3 * torch.randn(2, 2, 3, 5, 5, generator=torch.Generator().manual_seed(3))
    for position in range(2):
        std, largest, entropy = logits_by_hand(logits[position].flatten(0, 1), causal)
        assert float(attention_logit_std(logits, causal)[position]) == pytest.approx(std, rel=1e-5)
        assert float(attention_logit_max(logits, causal)[position]) == pytest.approx(largest, rel=1e-6)
        assert float(attention_entropy(logits, causal)[position]) == pytest.approx(entropy, rel=1e-5)


def test_attention_logits_in_closed_form() -> None:
    uniform = torch.full((1, 1, 2, 8, 8), 7.0)
    assert attention_entropy(uniform, causal=False).tolist() == pytest.approx([math.log(8)])
    assert attention_entropy(uniform, causal=True).tolist() == pytest.approx([math.log(math.factorial(8)) / 8])
    assert attention_logit_std(uniform, causal=True).tolist() == [0.0], "what all keys share changes no softmax"
    sharp = torch.eye(8).mul(1e4).expand(1, 1, 2, 8, 8)
    assert attention_entropy(sharp, causal=False).tolist() == [0.0]
    one = torch.ones(1, 1, 1, 1, 1)
    assert (attention_entropy(one, True) + attention_logit_std(one, True)).tolist() == [0.0]


@pytest.mark.parametrize("causal", [True, False])
def test_independent_logits_keep_their_spread_under_a_mask(causal: bool) -> None:
    logits = 2 * torch.randn(1, 8, 4, 16, 16, generator=torch.Generator().manual_seed(4))
    assert attention_logit_std(logits, causal).tolist() == pytest.approx([2.0], rel=0.02)


@pytest.mark.parametrize("causal", [True, False])
def test_the_logits_of_a_model_are_those_that_its_output_is_made_of(causal: bool) -> None:
    """Softmax over the recomputed logits, times the values, is what fused attention returns."""
    network = build(Transformer(layers=1, width=16, causal=causal), Gaussian(tokens=6), (1, 2))
    module: Any = next(part for part in network.modules() if isinstance(part, Attention))
    x = torch.randn(2, 3, 6, 16, generator=torch.Generator().manual_seed(5))
    logits = module.logits(x)
    assert logits.shape == (2, 3, 4, 6, 6)
    hidden = torch.ones(6, 6, dtype=torch.bool).tril().logical_not() if causal else torch.zeros(6, 6, dtype=torch.bool)
    mixed = logits.masked_fill(hidden, -torch.inf).softmax(-1) @ module._heads(module.value, x).view(2, 3, 4, 6, 4)
    by_hand = module.output(mixed.transpose(2, 3).reshape(2, 18, 16)).view(x.shape)
    torch.testing.assert_close(by_hand, module(x), rtol=1e-4, atol=1e-5)


def test_the_logits_of_a_gau_are_what_its_weights_are_made_of() -> None:
    network = build(GAU(width=16, key=8, causal=True), Gaussian(tokens=6), (1, 2))
    module: Any = network.get_submodule("layers.0.gau.branch")
    x = torch.randn(2, 3, 6, 16, generator=torch.Generator().manual_seed(6))
    weights = module.logits(x)[:, :, 0].relu().square().tril()
    value, gate = (module.activation(part(x.flatten(1, 2))) for part in (module.value, module.gate))
    by_hand = module.output(gate * (weights @ value.view(2, 3, 6, -1)).flatten(1, 2)).view(x.shape)
    torch.testing.assert_close(by_hand, module(x), rtol=1e-4, atol=1e-6)


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
