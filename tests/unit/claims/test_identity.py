from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stabilitysuite.case import Case
from stabilitysuite.claims.identity import identity
from stabilitysuite.errors import DeclarationError
from stabilitysuite.judge import judge
from stabilitysuite.lab.train import run
from stabilitysuite.plan import plan
from tests.fakes import measured

SCALE = 3.0


def norm_undoes_a_scale(model: nn.Module, batch: Tensor) -> Tensor:
    """LN(a x) = LN(x) where eps is 0."""
    difference: Tensor = model(SCALE * batch) - model(batch)
    return difference.abs().max()


def layer_norm() -> nn.Module:
    return nn.LayerNorm(16, eps=0.0)


def layer_norm_with_eps() -> nn.Module:
    return nn.LayerNorm(16, eps=1e-5)


def vectors(seed: int) -> list[Tensor]:
    return [torch.randn(4, 16, generator=torch.Generator().manual_seed(seed))]


def case(**changed: Any) -> Case:
    fields: dict[str, Any] = {
        "says": "a norm undoes a scale",
        "model": layer_norm,
        "data": vectors,
        "loss": norm_undoes_a_scale,
        "precision": "float64",
        "expect": identity(),
    }
    return Case(**fields | changed)


def test_it_holds_in_float64_and_sees_an_epsilon() -> None:
    (found,) = judge(case(), run(plan(case()).runs))
    assert found.verdict == "holds"
    assert found.value is not None
    assert found.value < 1e-13
    with_eps = case(model=layer_norm_with_eps)
    (found,) = judge(with_eps, run(plan(with_eps).runs))
    assert found.verdict == "violated"
    assert found.value is not None
    assert 1e-6 < found.value < 1e-3
    assert len(found.decided_by) == 1


def test_a_module_without_parameters_has_identities_too() -> None:
    one = case(model=nn.Identity, loss=lambda model, batch: (model(batch) - batch).sum())
    (found,) = judge(one, run(plan(one).runs))
    assert (found.verdict, found.value) == ("holds", 0.0)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.0, 0.0], "holds"),
        ([-1e-13], "holds"),
        ([0.0, -1e-11], "violated"),
        ([0.0, math.nan], "violated"),
        ([math.inf], "violated"),
    ],
)
def test_one_counter_example_is_enough(values: list[float], verdict: str) -> None:
    found = identity().judge("", measured("training_loss", values), [], 0)
    assert found.verdict == verdict
    assert "\n" not in found.sentence()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"precision": "float32"}, "needs precision='float64'"),
        ({"steps": 3}, "at initialisation"),
        ({"loss": None, "step": lambda model, batch, optimizer: 0, "precision": "float32"}, "as the case's loss="),
    ],
)
def test_what_cannot_be_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        case(**changed)
