from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from stabilitysuite.case import Case, Changes
from stabilitysuite.claims.measure import (
    gradient_norm,
)
from stabilitysuite.claims.outcome import converges, diverges
from stabilitysuite.spec import (
    GAU,
    SGD,
    Adam,
    AdamW,
    He,
    Initialisation,
    LeCun,
    Markov,
    Task,
    Training,
    Transformer,
    Xavier,
)

MODEL = Transformer(layers=2, width=8, heads=2)
TRAINED: dict[str, Any] = {
    "says": "trains",
    "model": MODEL,
    "task": Markov(),
    "optimizer": Adam(lr=1e-3),
    "steps": 50,
    "expect": converges(),
}
INITIAL: dict[str, Any] = {
    "says": "is small",
    "model": MODEL,
    "task": Markov(),
    "expect": gradient_norm().at_most(1),
}


def build() -> None: ...
def data(seed: int) -> None: ...
def loss(model: Any, batch: Any) -> None: ...
def step(model: Any, batch: Any, optimizer: Any) -> None: ...


OWN: dict[str, Any] = {
    "says": "ours",
    "model": build,
    "data": data,
    "loss": loss,
    "steps": 5,
    "expect": gradient_norm().at_most(1),
}


def trained(**changed: Any) -> Case:
    return Case(**TRAINED | changed)


def initial(**changed: Any) -> Case:
    return Case(**INITIAL | changed)


def own(**changed: Any) -> Case:
    return Case(**OWN | changed)


def test_diverges_needs_no_floor() -> None:
    assert own(expect=diverges()).claims == (diverges(),)


def test_a_declared_target_is_a_floor() -> None:
    assert own(expect=converges(), target=2.0).target == 2.0


def test_a_part_of_another_kind_is_one_difference() -> None:
    assert trained(control={"optimizer": SGD(lr=0.5)}).twin("").optimizer == SGD(lr=0.5)
    assert trained(control={"init": He(gain=2)}).control == {"init": He(gain=2)}


# -------------------------------------------------------------------------------------------------------- .but


def test_but_keeps_what_is_not_changed_and_does_not_inherit_the_control() -> None:
    case = trained(source="here", tier="full", seeds=5, warmup=7, control={"lr": 1}, marks=["slow"])
    derived = case.but(says="hotter", lr=2e-3)
    assert derived.control is None
    assert derived.optimizer == Adam(lr=2e-3)
    for name in ("source", "tier", "seeds", "warmup", "model", "task", "expect", "marks", "steps"):
        assert getattr(derived, name) == getattr(case, name)


def test_but_reaches_into_the_parts() -> None:
    derived = trained().but(
        says="all", layers=3, lag=2, betas=(0.8, 0.9), gain=0.5, query=0.1, expect=converges(progress=0.7)
    )
    assert derived.model == Transformer(layers=3, width=8, heads=2, init=Xavier(gain=0.5, query=0.1))
    assert derived.task == Markov(lag=2)
    assert derived.optimizer == Adam(lr=1e-3, betas=(0.8, 0.9))
    assert derived.claims == (converges(progress=0.7),)


def test_but_takes_a_new_part_and_a_field_of_it() -> None:
    derived = trained().but(says="gau", model=GAU(width=8), key=4, optimizer=SGD(lr=1), momentum=0.5)
    assert derived.model == GAU(width=8, key=4)
    assert derived.optimizer == SGD(lr=1, momentum=0.5)
    assert trained(control={"optimizer": SGD(lr=1)}).twin("").optimizer == SGD(lr=1)


def test_layers_are_a_count_of_a_zoo_model_and_a_pattern_of_ones_own() -> None:
    assert own(layers="h.*").but(says="others", layers="blocks.*").layers == "blocks.*"
    zoo = own().but(says="zoo", model=MODEL, task=Markov(), data=None, loss=None, layers=3)
    assert (zoo.layers, zoo.model) == (None, Transformer(layers=3, width=8, heads=2))


def test_two_lambdas_of_one_name_are_a_change() -> None:
    first = own(loss=lambda model, batch: 1)
    assert first.but(says="other", loss=lambda model, batch: 2).loss is not first.loss


TASKS: tuple[Any, ...] = get_args(Task)


def test_every_field_that_can_be_changed_is_known_to_editors() -> None:
    kinds: tuple[Any, ...] = (Transformer, GAU, Xavier, He, LeCun, *TASKS, SGD, Adam, AdamW)
    reachable = {item.name for kind in kinds for item in fields(kind)}
    own_fields = {item.name for item in fields(Case)} - {"built_in", "built_at"}
    assert set(Changes.__annotations__) == reachable | own_fields


def test_no_field_name_lives_in_two_parts() -> None:
    parts: list[tuple[Any, ...]] = [(Transformer, GAU), TASKS, (SGD, AdamW)]
    names = [{item.name for kind in part for item in fields(kind)} for part in parts]
    names.append({item.name for item in fields(Training)} - {"layers"})
    for index, some in enumerate(names):
        for others in names[index + 1 :]:
            assert not some & others


def test_a_case_points_at_the_line_that_built_it() -> None:
    here = Path(__file__).read_text(encoding="utf-8").split("\n")
    case = Case(says="this very line", model=MODEL, task=Markov(), expect=gradient_norm().at_most(1))
    derived = case.but(says="that other line", lr=0.5)
    for one, words in ((case, "this very line"), (derived, "that other line")):
        assert Path(one.built_in) == Path(__file__)
        assert f'says="{words}"' in here[one.built_at - 1]


def test_a_case_can_be_told_apart_and_kept_in_a_set() -> None:
    one, other = trained(control={"lr": 1}), trained(control={"lr": 2})
    assert one == trained(control={"lr": 1})
    assert len({one, other, trained(control={"lr": 1})}) == 2


def test_a_case_cannot_be_changed_in_place() -> None:
    case = trained(control={"lr": 1}, variants={"long": {"steps": 99}})
    assert case.control is not None
    assert case.variants is not None
    for changes in (case.control, case.variants, case.variants["long"]):
        assert isinstance(changes, Mapping)
        with pytest.raises(TypeError):
            changes["lr"] = 3  # type: ignore[index]


# --------------------------------------------------------------------------------------------------------- arms


def test_arms_are_the_case_or_its_variants_or_its_sweep() -> None:
    assert trained().arms() == ("",)
    variants = trained(variants={"plain": {}, "hot": {"lr": 1}})
    assert variants.arms() == ("plain", "hot")
    assert variants.arm("plain") == trained().training()
    assert variants.arm("hot").optimizer == Adam(lr=1)
    sweep = trained(sweep={"layers": (2, 4)})
    assert sweep.arms() == ("layers=2", "layers=4")
    assert sweep.arm("layers=4").model == Transformer(layers=4, width=8, heads=2)


def test_a_swept_callable_names_its_arm_the_same_in_every_process() -> None:
    arms = own(sweep={"loss": (loss, math.hypot)}).arms()
    assert arms == (f"loss={__name__}:loss", "loss=math:hypot")


def test_initial_cases_have_more_seeds() -> None:
    assert initial().looks() == (16,)
    assert trained().looks() == (3, 5, 8)
    assert trained(seeds=8).looks() == (8,)


def test_one_mark_needs_no_tuple() -> None:
    assert trained(marks=pytest.mark.xfail).marks == (pytest.mark.xfail,)


def test_the_initialisation_of_a_control_is_found() -> None:
    twin = trained(control={"gain": 0.1}).twin("")
    assert isinstance(twin.model, Transformer)
    assert isinstance(twin.model.init, Initialisation)
    assert twin.model.init.gain == 0.1
