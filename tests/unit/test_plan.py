from __future__ import annotations

import itertools
from typing import Any

import pytest

from stabilitysuite.case import Case
from stabilitysuite.claims.measure import gradient_norm, token_cosine, update_ratio
from stabilitysuite.claims.outcome import converges, stalls
from stabilitysuite.errors import DeclarationError
from stabilitysuite.plan import TWIN, estimated_seconds, gate_seeds, plan
from stabilitysuite.quantity import QUANTITIES
from stabilitysuite.spec import Adam, Markov, Transformer, same_training

EVIDENCE = {
    "training_loss",
    "evaluated_loss",
    "gradient_norm",
    "layer_gradient_norm",
    "residual_gradient",
    "residual_std",
    "branch_ratio",
    "token_cosine",
}
"""What every training records: more of it would make every training slower."""


def case(**changed: Any) -> Case:
    fields: dict[str, Any] = {
        "says": "trains",
        "model": Transformer(layers=2, width=8, heads=2),
        "task": Markov(),
        "optimizer": Adam(lr=1e-3),
        "steps": 50,
        "expect": converges(),
    }
    return Case(**fields | changed)


def test_seeds_come_from_the_digest_and_a_purpose() -> None:
    one, other = case(), case(warmup=1)
    assert gate_seeds(one, 8) == gate_seeds(case(says="in other words"), 8)
    drawn = [*gate_seeds(one, 50), *gate_seeds(other, 50), *gate_seeds(one, 50, purpose="second")]
    assert len(set(drawn)) == len(drawn)
    assert all(0 <= seed < 2**31 for seed in drawn)


def test_more_seeds_keep_the_first_ones() -> None:
    assert gate_seeds(case(), 8)[:3] == gate_seeds(case(), 3)


def test_every_arm_runs_on_the_same_seeds_and_differs_in_nothing_else() -> None:
    made = plan(case(sweep={"lr": (1e-3, 2e-3, 4e-3)}, seeds=4))
    assert len(made.seeds) == 4
    for arm, runs in itertools.groupby(made.runs, key=lambda run: run.arm):
        group = list(runs)
        assert tuple(run.seed for run in group) == made.seeds, arm
        assert same_training(group)
    assert [run.arm for run in made.runs[::4]] == ["lr=0.001", "lr=0.002", "lr=0.004"]


def test_given_seeds_are_used() -> None:
    assert [run.seed for run in plan(case(), seeds=(7, 8)).runs] == [7, 8]


def test_the_last_judged_step_is_the_last_step() -> None:
    for made in (plan(case()), plan(case(expect=stalls(), control={"warmup": 5}))):
        for run in made.runs:
            assert run.judge_at[-1] == run.training.steps
            assert list(run.judge_at) == sorted(run.judge_at)


def test_an_initial_case_is_judged_at_step_zero() -> None:
    (run, *_) = plan(case(steps=0, expect=gradient_norm().at_most(1))).runs
    assert (run.judge_at, run.training.steps) == ((0,), 0)


def test_a_stall_is_watched_twice_as_long_beside_a_twin_that_is_not() -> None:
    made = plan(case(expect=stalls(), control={"warmup": 5}))
    own = [run for run in made.runs if run.arm == ""]
    twins = [run for run in made.runs if run.arm == TWIN]
    assert [run.judge_at for run in own] == [(50, 100)] * 3
    assert [run.judge_at for run in twins] == [(50,)] * 3
    assert [run.seed for run in own] == [run.seed for run in twins]
    assert {run.training.warmup for run in own} == {0}
    assert {run.training.warmup for run in twins} == {5}


def test_a_planned_control_takes_the_place_of_the_case() -> None:
    plain = case(control={"warmup": 5})
    made, control = plan(plain), plan(plain, control=True)
    assert control.seeds == made.seeds
    assert {run.training.warmup for run in control.runs} == {5}
    assert [run.arm for run in control.runs] == [run.arm for run in made.runs]


def test_the_control_of_a_stall_has_the_case_for_its_twin() -> None:
    control = plan(case(expect=stalls(), control={"warmup": 5}), control=True)
    assert {(run.arm, run.training.warmup) for run in control.runs} == {("", 5), (TWIN, 0)}


def test_a_control_is_not_planned_where_there_is_none() -> None:
    with pytest.raises(DeclarationError, match="Case 'trains' has no control"):
        plan(case(), control=True)


def test_a_run_records_what_the_claims_read() -> None:
    claims = (converges(), update_ratio().at_most(1), token_cosine(step=7).at_most(1))
    (run, *_) = plan(case(expect=claims)).runs
    assert "update_ratio" in run.quantities
    assert run.record_at == {7}
    (plain, *_) = plan(case()).runs
    assert plain.quantities == {name for name, kind in QUANTITIES.items() if kind.always}
    assert plain.quantities == EVIDENCE


def test_the_estimate_grows_with_the_work() -> None:
    base = estimated_seconds(case())
    for changed in (
        {"steps": 500},
        {"seeds": 30},
        {"task": Markov(batch=4096)},
        {"sweep": {"lr": (1e-3, 1e-2)}},
    ):
        assert estimated_seconds(case(**changed)) > 1.2 * base
    deeper = case(model=Transformer(layers=24, width=64, heads=2))
    assert estimated_seconds(deeper) > 10 * base
    own = case(
        model=lambda: None,
        data=lambda seed: [],
        loss=lambda model, batch: 0,
        task=None,
        expect=gradient_norm().at_most(1),
    )
    assert estimated_seconds(own, seeds=16) == pytest.approx(2 * estimated_seconds(own, seeds=8))
