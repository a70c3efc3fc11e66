"""A digest changes exactly when the meaning does, and is the same in every process."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from stabilitysuite.case import Case
from stabilitysuite.claims.claim import Claim
from stabilitysuite.claims.measure import gradient_norm, token_cosine
from stabilitysuite.claims.outcome import converges, diverges, stalls
from stabilitysuite.spec import GAU, SGD, AdamW, Gaussian, He, Markov, Transformer, Xavier


def build() -> None: ...
def other_build() -> None: ...
def data(seed: int) -> None: ...
def other_data(seed: int) -> None: ...
def loss(model: Any, batch: Any) -> None: ...
def other_loss(model: Any, batch: Any) -> None: ...
def step(model: Any, batch: Any, optimizer: Any) -> None: ...
def schedule(optimizer: Any) -> None: ...


ZOO = Case(
    says="a",
    model=Transformer(layers=2, width=8, heads=2),
    task=Markov(),
    optimizer=AdamW(lr=1e-3),
    steps=20,
    expect=(converges(progress=0.6), gradient_norm("first", step=3).between(0.1, 2.0, published=1.0)),
)
OWN = Case(says="a", model=build, data=data, loss=loss, steps=20, expect=gradient_norm().at_most(2.0))
INITIAL = Case(
    says="a",
    model=GAU(width=8),
    task=Gaussian(),
    expect=(gradient_norm() / token_cosine("last")).near(2.0, within=0.1),
)
STALLS = Case(
    says="a",
    model=Transformer(layers=2, width=8, heads=2),
    task=Markov(),
    steps=20,
    expect=stalls(),
    control={"warmup": 5},
)

OTHER_ZOO: dict[str, Any] = {
    "layers": 3,
    "width": 16,
    "heads": 4,
    "ffn": 2,
    "activation": "gelu",
    "norm": "pre",
    "residual_scale": 2.0,
    "attention": False,
    "init": He(),
    "positions": "none",
    "causal": False,
    "gain": 0.5,
    "query": 0.5,
    "value": 0.5,
    "output": 0.5,
    "ffn_in": 0.5,
    "ffn_out": 0.5,
    "key": 0.5,
    "vocab": 32,
    "length": 8,
    "batch": 8,
    "lag": 2,
    "sharpness": 2.0,
    "lr": 2e-3,
    "betas": (0.9, 0.95),
    "eps": 1e-6,
    "weight_decay": 0.1,
    "model": GAU(width=8),
    "task": Markov(lag=3),
    "optimizer": SGD(lr=1e-3),
    "steps": 21,
    "warmup": 3,
    "schedule": "cosine",
    "clip": 1.0,
    "precision": "bfloat16",
}
OTHER_OWN: dict[str, Any] = {
    "model": other_build,
    "data": other_data,
    "loss": other_loss,
    "scheduler": schedule,
    "target": 1.0,
    "layers": "h.*",
}
OTHER_INITIAL: dict[str, Any] = {"tokens": 32, "classes": 16, "key": 64, "expansion": 3, "kernel": "diagonal"}


@pytest.mark.parametrize(
    ("case", "changes"),
    [
        *((ZOO, {name: value}) for name, value in OTHER_ZOO.items()),
        *((OWN, {name: value}) for name, value in OTHER_OWN.items()),
        *((INITIAL, {name: value}) for name, value in OTHER_INITIAL.items()),
        (OWN, {"loss": None, "step": step}),
        (ZOO, {"variants": {"hot": {"lr": 1.0}}}),
        (ZOO, {"sweep": {"lr": (1.0, 2.0)}}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, Mapping) else "",
)
def test_a_change_of_the_training_changes_it(case: Case, changes: Mapping[str, Any]) -> None:
    assert case.but(says="b", **changes).digest() != case.digest()


def test_the_changes_above_leave_no_field_of_a_training_out() -> None:
    from stabilitysuite.spec import Training

    tried = {*OTHER_ZOO, *OTHER_OWN, "step"}
    assert {item.name for item in dataclasses.fields(Training)} <= tried
    for part in (Transformer, Markov, AdamW, Xavier):
        assert {item.name for item in dataclasses.fields(part)} <= tried


@pytest.mark.parametrize(
    "claim",
    [
        converges(),
        converges(progress=0.7),
        diverges(),
        gradient_norm("first", step=3).between(0.1, 2.5),
        gradient_norm("first", step=3).between(0.2, 2.0),
        gradient_norm("first", step=3).at_most(2.0),
        gradient_norm("first", step=3).at_least(0.1),
        gradient_norm("last", step=3).between(0.1, 2.0),
        gradient_norm("first", step=4).between(0.1, 2.0),
        gradient_norm("first").between(0.1, 2.0),
        token_cosine("first", step=3).between(0.1, 2.0),
        (gradient_norm("first", step=3) / gradient_norm("last", step=3)).between(0.1, 2.0),
    ],
    ids=lambda claim: claim.words(),
)
def test_a_change_of_a_claim_changes_it(claim: Claim) -> None:
    digests = [ZOO.digest(), *(ZOO.but(says="b", expect=one).digest() for one in (*ZOO.claims, claim))]
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize(
    "changes",
    [
        {"source": "a paper"},
        {"tier": "full"},
        {"seeds": 9},
        {"control": {"lr": 1.0}},
        {"marks": (pytest.mark.xfail,)},
        {"expect": (ZOO.claims[0], gradient_norm("first", step=3).between(0.1, 2.0, published=3.0))},
    ],
    ids=lambda value: "-".join(value) if isinstance(value, Mapping) else "",
)
def test_words_and_ways_of_running_do_not_change_it(changes: Mapping[str, Any]) -> None:
    assert ZOO.but(says="b", **changes).digest() == ZOO.digest()


def test_the_twin_of_a_stall_is_part_of_its_meaning() -> None:
    assert dataclasses.replace(STALLS, control={"warmup": 6}).digest() != STALLS.digest()


def test_what_an_arm_is_counts_and_not_how_it_is_spelled() -> None:
    def arm(**changes: Any) -> Case:
        return dataclasses.replace(ZOO, variants={"other": changes})

    assert arm(layers=3).digest() == arm(model=Transformer(layers=3, width=8, heads=2)).digest()
    assert arm(lr=1).digest() == arm(lr=1.0).digest()
    assert arm(layers=3).digest() != arm(layers=4).digest()


def test_it_is_the_same_in_every_process() -> None:
    program = f"from {__name__} import *; print(ZOO.digest(), OWN.digest(), INITIAL.digest(), STALLS.digest())"
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert printed == {" ".join(case.digest() for case in (ZOO, OWN, INITIAL, STALLS))}
