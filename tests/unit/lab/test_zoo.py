"""The zoo against torch's own modules, closed forms, and itself with more seeds."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch.nn import functional

from stabilitysuite.lab.zoo.build import Network, build
from stabilitysuite.spec import GAU, Gaussian, He, LeCun, Markov, Transformer, Xavier

TASK = Markov(vocab=8, length=6, batch=3)
TOKENS = torch.randint(0, 8, (1, 3, 6), generator=torch.Generator().manual_seed(0))


def layer(network: Network) -> Any:
    """Its first layer, whose children mypy cannot know."""
    return network.layers[0]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_block_is_torchs_own_encoder_layer(norm: str) -> None:
    spec = Transformer(layers=1, width=16, heads=2, norm=norm, causal=False)  # type: ignore[arg-type]
    network = build(spec, TASK, (7,))
    block = layer(network)
    theirs = torch.nn.TransformerEncoderLayer(16, 2, 64, 0.0, norm_first=norm == "pre", batch_first=True)
    attention, ffn = layer(network).attention, layer(network).ffn
    with torch.no_grad():
        parts = [getattr(attention.branch, role) for role in ("query", "key", "value")]
        theirs.self_attn.in_proj_weight.copy_(torch.cat([part.weight[0].T for part in parts]))
        theirs.self_attn.in_proj_bias.copy_(torch.cat([part.bias[0, 0] for part in parts]))
        pairs = (
            (theirs.self_attn.out_proj, attention.branch.output),
            (theirs.linear1, ffn.branch.expand),
            (theirs.linear2, ffn.branch.contract),
        )
        for target, source in pairs:
            target.weight.copy_(source.weight[0].T)
            target.bias.copy_(source.bias[0, 0])
        x = torch.randn(1, 3, 6, 16, generator=torch.Generator().manual_seed(1))
        theirs.train()
        torch.testing.assert_close(block(x)[0], theirs(x[0]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "spec",
    [
        Transformer(layers=2, width=16, heads=2),
        Transformer(layers=2, width=16, heads=2, norm="pre", activation="gelu", positions="sinusoidal"),
        Transformer(layers=2, width=16, heads=2, norm="none", attention=False, positions="none"),
        GAU(layers=2, width=16, key=8, causal=True),
        GAU(layers=1, width=16, key=8, kernel="diagonal", norm="none"),
    ],
)
def test_seeds_in_one_pass_are_the_seeds_alone(spec: Transformer | GAU) -> None:
    together = build(spec, TASK, (1, 2, 3))
    batch = TOKENS.expand(3, -1, -1)
    logits = together(batch)
    for position, seed in enumerate((1, 2, 3)):
        alone = build(spec, TASK, (seed,))
        for (name, one), (_, all_) in zip(alone.named_parameters(), together.named_parameters(), strict=True):
            assert torch.equal(one[0], all_[position]), name
        torch.testing.assert_close(alone(TOKENS)[0], logits[position], rtol=1e-5, atol=1e-6)


def test_a_causal_model_does_not_see_the_future() -> None:
    for spec in (Transformer(layers=2, width=16, heads=2), GAU(layers=2, width=16, key=8, causal=True)):
        network = build(spec, TASK, (1,))
        changed = TOKENS.clone()
        changed[..., -1] = (changed[..., -1] + 1) % 8
        before, after = network(TOKENS), network(changed)
        torch.testing.assert_close(before[..., :-1, :], after[..., :-1, :], rtol=0, atol=1e-6)
        assert not torch.allclose(before[..., -1, :], after[..., -1, :])


@pytest.mark.parametrize(("init", "expected"), [(Xavier(), (2 / 400) ** 0.5), (He(), 0.1), (LeCun(), 200**-0.5)])
def test_initial_standard_deviations(init: Xavier | He | LeCun, expected: float) -> None:
    network = build(Transformer(layers=1, width=200, init=init), TASK, (1, 2))
    for role in ("query", "key", "value", "output"):
        weight = network.get_parameter(f"layers.0.attention.branch.{role}.weight")
        assert weight.std(dim=(1, 2)).tolist() == pytest.approx([expected] * 2, rel=0.03)
    assert layer(network).ffn.branch.expand.bias.abs().max() == 0


def test_gains_belong_to_their_roles() -> None:
    plain = build(Transformer(layers=1, width=32), TASK, (1,))
    gains = Xavier(gain=0.5, value=0.25, ffn_out=2.0)
    scaled = build(Transformer(layers=1, width=32, init=gains), TASK, (1,))
    for name, factor in (("query", 0.5), ("value", 0.25), ("output", 0.5)):
        ours, base = (getattr(layer(net).attention.branch, name).weight for net in (scaled, plain))
        torch.testing.assert_close(ours, base * factor)
    torch.testing.assert_close(layer(scaled).ffn.branch.contract.weight, layer(plain).ffn.branch.contract.weight * 2)


def test_another_layer_leaves_the_first_ones_weights_as_they_were() -> None:
    """Draws depend on the parameter's name, not on the order of creation."""
    shallow = dict(build(Transformer(layers=1, width=16), TASK, (1,)).named_parameters())
    deep = dict(build(Transformer(layers=3, width=16, norm="pre"), TASK, (1,)).named_parameters())
    for name, value in shallow.items():
        if name.endswith("weight"):
            assert torch.equal(value, deep[name]), name


def test_residual_scale_multiplies_the_stream() -> None:
    spec = Transformer(layers=1, width=16, heads=2, norm="none", residual_scale=3.0)
    residual = layer(build(spec, TASK, (1,))).ffn
    x = torch.randn(1, 2, 3, 16, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(residual(x), 3 * x + residual.branch(x))


def test_the_gated_attention_unit_is_its_formula() -> None:
    spec = GAU(width=8, key=4, norm="none")
    unit = layer(build(spec, Gaussian(tokens=5), (1,))).gau.branch
    x = torch.randn(1, 2, 5, 8, generator=torch.Generator().manual_seed(3))
    u, v, z = (functional.silu(x[0] @ part.weight[0]) for part in (unit.gate, unit.value, unit.shared))
    attention = functional.relu(z @ z.transpose(1, 2)) ** 2 / (5 * 4)
    torch.testing.assert_close(unit(x)[0], (u * (attention @ v)) @ unit.output.weight[0], rtol=1e-5, atol=1e-6)
    diagonal = layer(build(dataclasses.replace(spec, kernel="diagonal"), Gaussian(tokens=5), (1,))).gau.branch
    own = attention.diagonal(dim1=1, dim2=2).unsqueeze(-1)
    torch.testing.assert_close(diagonal(x)[0], (u * own * v) @ unit.output.weight[0], rtol=1e-5, atol=1e-6)
