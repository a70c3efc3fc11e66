from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from stabilitysuite.calibrate import FACTOR, Round, calibrate, rounds, seeds_of
from stabilitysuite.calibration import Calibration
from stabilitysuite.case import Case
from stabilitysuite.claims.measure import branch_ratio, gradient_norm
from stabilitysuite.claims.outcome import converges, fails_to_train, stalls
from stabilitysuite.errors import MeasurementError
from stabilitysuite.plan import TWIN, Plan, gate_seeds
from stabilitysuite.spec import Adam, Markov, Run, Transformer
from stabilitysuite.trace import OutcomeName, Trace
from tests import fakes

CASE = Case(
    says="it trains",
    model=Transformer(layers=1, width=8, heads=2),
    task=Markov(),
    optimizer=Adam(lr=1e-3),
    steps=100,
    expect=converges(),
)
STALLED = CASE.but(says="it stalls", lr=1.0, expect=stalls(), control={"warmup": 50})
INITIAL = CASE.but(says="branches are small", steps=0, expect=branch_ratio("first").between(0.5, 2))


def rate_of(run: Run) -> float:
    assert isinstance(run.training.optimizer, Adam)
    return run.training.optimizer.lr


def calibrated(
    case: Case, end: Callable[[int, Run], OutcomeName], *, seeds: int = 30, factor: float = FACTOR
) -> Calibration:
    """A calibration in which ``end`` says how the run of the n-th seed ends."""
    todo = rounds(case, seeds=seeds, factor=factor)
    order = {seed: index for index, seed in enumerate(gate_seeds(case, seeds + 8, purpose="calibration"))}

    def train(plan: Plan) -> Sequence[Trace]:
        return [one(run) for run in plan.runs]

    def one(run: Run) -> Trace:
        early: OutcomeName | None = "stalled" if len(run.judge_at) > 1 else None
        name = end(order[run.seed], run)
        return fakes.ends(name, seed=run.seed, arm=run.arm, early=early, steps=run.judge_at[0])

    return calibrate(case, "net/it", todo, train, factor=factor, environment={}, started="then")


def test_thirty_seeds_in_rounds_and_eight_more_at_the_changed_rate() -> None:
    todo = rounds(CASE, seeds=30)
    assert [(len(one.plan.seeds), one.changed) for one in todo] == [(6, False)] * 5 + [(4, True)] * 2
    seeds = [seed for one in todo for seed in one.plan.seeds]
    assert len(set(seeds)) == 38
    assert all(2**31 <= seed < 2**32 for seed in seeds)
    assert all(seed < 2**31 for seed in gate_seeds(CASE, 99))
    assert [len(one.plan.seeds) for one in rounds(INITIAL, seeds=16)] == [5, 5, 6]


@pytest.mark.parametrize(("layers", "seeds"), [(1, 30), (99, 30), (100, 12)])
def test_deep_cases_take_fewer_seeds(layers: int, seeds: int) -> None:
    assert seeds_of(dataclasses.replace(CASE, model=Transformer(layers=layers, width=8, heads=2))) == seeds


@pytest.mark.parametrize(
    ("case", "factor", "wanted"),
    [
        (CASE, 1.4, {"": 1.4e-3}),
        (CASE, 2.0, {"": 2e-3}),
        (STALLED, 1.4, {"": 1 / 1.4, TWIN: 1 / 1.4}),
        (CASE.but(says="fails", expect=(fails_to_train(), gradient_norm().at_least(0))), 2.0, {"": 5e-4}),
        (CASE.but(says="bound", expect=gradient_norm().at_least(0)), 1.4, {"": 1.4e-3}),
        (CASE.but(says="two", variants={"cold": {}, "hot": {"lr": 1.0}}), 2.0, {"cold": 2e-3, "hot": 2.0}),
    ],
    ids=["trains", "asked for", "twin", "fails", "bound", "variants"],
)
def test_what_trains_is_tried_hotter_and_what_fails_colder(case: Case, factor: float, wanted: dict[str, float]) -> None:
    changed = [run for one in rounds(case, seeds=6, factor=factor) if one.changed for run in one.plan.runs]
    assert {run.arm: rate_of(run) for run in changed} == pytest.approx(wanted)


def test_an_optimizer_of_ones_own_is_scaled_in_every_group() -> None:
    def make(model: Any) -> Any:
        return SimpleNamespace(param_groups=[{"lr": 1.0}, {"lr": 0.1}])

    case = CASE.but(says="own optimizer", optimizer=make)
    (run, *_) = rounds(case, seeds=1, factor=2.0)[-1].plan.runs
    optimizer: Any = run.training.optimizer
    assert [group["lr"] for group in optimizer(None).param_groups] == [2.0, 0.2]


def test_a_case_whose_seeds_all_train_at_both_rates_is_admitted() -> None:
    found = calibrated(CASE, lambda index, run: "converged")
    assert found.admitted
    assert (found.worst.counted(), found.rate and found.rate.counted()) == (
        "0 of 30 wrong (at most 9.5 %)",
        "x1.4: 0 of 8 wrong",
    )
    assert found.worst.outcomes == {"converged": 30}
    assert found.worst.values == (0.9,) * 30
    assert (found.worst.mean, found.worst.deviation, found.worst.log) == (0.9, 0.0, False)


def test_it_stops_at_the_first_wrong_seed() -> None:
    ran: list[int] = []

    def end(index: int, run: Run) -> OutcomeName:
        ran.append(index)
        return "learning" if index == 8 else "converged"

    found = calibrated(CASE, end)
    assert ran == list(range(12))
    assert not found.admitted
    assert (found.worst.wrong, found.worst.seeds, found.worst.deviation) == (1, 12, None)
    assert found.rate is not None
    assert found.rate.claims == ()


def test_the_changed_rate_refuses_a_case_near_its_edge() -> None:
    found = calibrated(CASE, lambda index, run: "stalled" if rate_of(run) > 1.2e-3 and index == 31 else "converged")
    assert not found.admitted
    assert "at 1.4 times the learning rate 1 of 4 on the wrong side" in found.reason


def test_a_stall_counts_only_beside_a_twin_that_trains() -> None:
    def end(index: int, run: Run) -> OutcomeName:
        return "stalled" if not run.arm else "learning" if index == 2 and late else "converged"

    late = False
    assert calibrated(STALLED, end).admitted
    late = True
    found = calibrated(STALLED, end)
    assert (found.worst.wrong, found.worst.seeds) == (1, 6)
    assert found.worst.outcomes == {"stalled": 6}
    assert "twins: 5 converged, 1 learning" in found.reason


@pytest.mark.parametrize(
    ("level", "odd_one", "admitted", "wrong"),
    [
        (1.0, 1.0, True, 0),
        (1.0, 2.1, True, 0),  # a bound is held by the mean over the seeds: one beside it says nothing
        (2.5, 2.5, False, 20),
        (1.0, float("nan"), False, 1),
        (1.95, 3.0, False, 0),  # inside, but the case's own seeds would not decide it
    ],
)
def test_a_bound_is_held_by_the_mean_of_the_seeds(level: float, odd_one: float, admitted: bool, wrong: int) -> None:
    todo = rounds(INITIAL, seeds=20)
    odd = todo[-1].plan.seeds[-1]

    def train(plan: Plan) -> Sequence[Trace]:
        values = [odd_one if seed == odd else level * (1 + 0.001 * (seed % 7)) for seed in plan.seeds]
        traces = fakes.measured("branch_ratio", values)
        return [dataclasses.replace(one, seed=seed) for one, seed in zip(traces, plan.seeds, strict=True)]

    found = calibrate(INITIAL, "net/it", todo, train, environment={}, started="then")
    assert (found.admitted, found.worst.wrong) == (admitted, wrong)
    assert found.rate is None
    if not admitted and not wrong:
        assert "reaches across the bound" in found.reason


@pytest.mark.parametrize("within", [0.01, 5.0])
def test_an_exponent_that_its_seeds_cannot_decide_is_refused(within: float) -> None:
    case = CASE.but(
        says="an exponent",
        steps=0,
        sweep={"layers": (1, 2, 4, 8)},
        expect=branch_ratio("first").scales_with("layers", exponent=0.0, within=within),
    )
    found = calibrate(
        case,
        "net/it",
        rounds(case, seeds=20),
        lambda plan: fakes.run(plan.runs),
        environment={},
        started="then",
    )
    assert found.worst.wrong == 0
    assert found.worst.outcomes == {"initialised": 80}
    assert found.admitted is (within == 5.0)
    assert found.admitted or "give it more seeds" in found.reason


def test_trouble_of_the_machine_is_no_count() -> None:
    with pytest.raises(MeasurementError, match="timeout"):
        calibrated(CASE, lambda index, run: "timeout" if index == 3 else "converged")


def test_a_round_is_a_plan_of_the_case_itself() -> None:
    first: Round = rounds(CASE, seeds=6)[0]
    assert {run.training for run in first.plan.runs} == {CASE.training()}
