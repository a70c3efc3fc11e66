"""The loop on real trainings: determinism, probes that do not disturb, isolation of seeds, outcomes."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from stabilitysuite.errors import MeasurementError
from stabilitysuite.lab.optim import rate
from stabilitysuite.lab.tasks import MarkovStream
from stabilitysuite.lab.train import Progress, run
from stabilitysuite.lab.zoo.build import build
from stabilitysuite.spec import SGD, Adam, AdamW, Training, Transformer
from stabilitysuite.trace import Trace

from .runs import EVERYTHING, MODEL, TASK, run_of, training


def losses(trace: Trace) -> list[float]:
    return [row[0] for row in trace.series["training_loss"].values]


def test_the_same_seed_twice_is_the_same_to_the_last_bit() -> None:
    one = run_of(training(), quantities=EVERYTHING)
    first, second = run([one])[0], run([one])[0]
    assert first.series == second.series
    assert first.outcomes == second.outcomes


def test_probes_do_not_disturb() -> None:
    bare = run_of(training(), quantities=frozenset({"training_loss"}))
    watched = run_of(training(), quantities=EVERYTHING, every=True)
    assert losses(run([bare])[0]) == losses(run([watched])[0])


def test_another_seed_is_another_run() -> None:
    one, two = run([run_of(training(), seed=1), run_of(training(), seed=2)])
    assert losses(one) != losses(two)


def test_seeds_in_one_pass_are_the_seeds_alone() -> None:
    declared = training(steps=25, clip=1.0)
    together = run([run_of(declared, seed=seed, quantities=EVERYTHING) for seed in (1, 2, 3)])
    assert [trace.engine for trace in together] == ["3 seeds in one pass"] * 3
    for trace in together:
        alone = run([run_of(declared, seed=trace.seed, quantities=EVERYTHING)])[0]
        for name, series in alone.series.items():
            for ours, theirs in zip(trace.series[name].values, series.values, strict=True):
                assert ours == pytest.approx(theirs, rel=2e-3, abs=1e-6), name
        assert losses(trace) == pytest.approx(losses(alone), abs=1e-5)


def test_the_loop_is_the_hand_written_one() -> None:
    """Bit for bit, warmup, clipping and weight decay included."""
    declared = training(optimizer=AdamW(lr=1e-2, weight_decay=0.1), warmup=5, clip=0.5)
    trace = run([run_of(declared)])[0]
    torch.set_flush_denormal(True)
    network, stream = build(MODEL, TASK, (1,)), MarkovStream(TASK, (1,), torch.device("cpu"))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2, weight_decay=0.1, fused=True)
    by_hand = []
    for step in range(12):
        optimizer.param_groups[0]["lr"] = 1e-2 * min(1.0, (step + 1) / 5)
        inputs, targets = stream.batch()
        loss = stream.loss(network(inputs), targets)
        loss.sum().backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        by_hand.append(loss.item())
    torch.set_flush_denormal(False)
    assert losses(trace) == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        (
            "cosine",
            [0.5, 1.0, 1.0, 0.5 * (1 + math.cos(math.pi / 4)), 0.5, 0.5 * (1 + math.cos(3 * math.pi / 4))],
        ),
        ("inverse_sqrt", [0.5, 1.0, *[math.sqrt(2 / (step + 1)) for step in range(2, 6)]]),
    ],
)
def test_schedules(schedule: str, expected: list[float]) -> None:
    declared = training(warmup=2, schedule=schedule)
    assert [rate(declared, step, 6) for step in range(6)] == pytest.approx(expected)


def test_gradient_norms_add_up() -> None:
    trace = run([run_of(training(), quantities=EVERYTHING)])[0]
    parameters, total = trace.series["parameter_gradient_norm"], trace.series["gradient_norm"]
    layers = trace.series["layer_gradient_norm"]
    for by_parameter, by_layer, all_ in zip(parameters.values, layers.values, total.values, strict=True):
        assert math.hypot(*by_parameter) == pytest.approx(all_[0], rel=1e-9)
        own = [value for label, value in zip(parameters.labels, by_parameter, strict=True) if "layers.1." in label]
        assert math.hypot(*own) == pytest.approx(by_layer[1], rel=1e-9)


def test_initialisation_only_leaves_the_weights_and_reads_step_zero() -> None:
    trace = run([run_of(training(steps=0), quantities=EVERYTHING)])[0]
    assert trace.outcome.name == "initialised"
    assert {series.steps for series in trace.series.values()} == {(0,)}
    assert "update_ratio" not in trace.series


def test_a_nan_in_one_seed_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(*args: Any) -> nn.Module:
        network = build(*args)
        if len(network.get_parameter("readout.weight")) > 1:
            network.get_parameter("layers.1.ffn.branch.expand.weight").data[1, 0, 0] = math.nan
        return network

    declared = training(steps=15, clip=1.0)
    alone = [run([run_of(declared, seed=seed)])[0] for seed in (1, 3)]
    monkeypatch.setattr("stabilitysuite.lab.subject.build", poisoned)
    first, broken, third = run([run_of(declared, seed=seed) for seed in (1, 2, 3)])
    assert (broken.outcome.name, broken.outcome.step) == ("nonfinite", 0)
    assert broken.outcome.layer == "layer 1"
    assert broken.outcome.tensor == "weight layers.1.ffn.branch.expand.weight"
    for ours, theirs in zip((first, third), alone, strict=True):
        assert losses(ours) == pytest.approx(losses(theirs), abs=1e-5)
        assert ours.outcome.name == theirs.outcome.name


def test_a_far_too_large_rate_is_told_as_diverged_or_nonfinite() -> None:
    model = dataclasses.replace(MODEL, norm="none")
    declared = training(model=model, optimizer=SGD(lr=1e4), steps=40)
    for trace in run([run_of(declared, seed=seed) for seed in (1, 2)]):
        assert trace.outcome.name in ("diverged", "nonfinite")
        assert len(losses(trace)) < 40, "a hopeless run is given up"


def test_a_small_model_learns_its_chain() -> None:
    trace = run([run_of(training(steps=150, optimizer=Adam(lr=1e-2)))])[0]
    assert trace.outcome.name == "converged"
    assert trace.reference is not None
    assert trace.series["evaluated_loss"].values[-1][0] > trace.reference.floor - 0.05


def test_only_attention_leaves_the_plateau_of_a_longer_lag() -> None:
    task = dataclasses.replace(TASK, lag=2, batch=16)
    declared = training(task=task, steps=250, optimizer=Adam(lr=1e-2), model=dataclasses.replace(MODEL, norm="pre"))
    blind = training(**{**_fields(declared), "model": dataclasses.replace(declared.model, attention=False)})  # type: ignore[type-var]
    seeing, unseeing = run([run_of(declared), run_of(blind)])
    assert seeing.outcome.name == "converged"
    assert unseeing.outcome.name == "stalled"


def _fields(declared: Training) -> dict[str, object]:
    return {item.name: getattr(declared, item.name) for item in dataclasses.fields(declared)}


def test_bfloat16_runs_under_autocast_and_differs() -> None:
    plain, half = run([run_of(training()), run_of(training(precision="bfloat16"))])
    assert losses(half) != losses(plain)
    assert losses(half) == pytest.approx(losses(plain), abs=0.05)


def test_global_state_is_as_before() -> None:
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    expected = (random.random(), float(np.random.rand()), float(torch.rand(())))
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    torch.set_num_threads(2)
    run([run_of(training(steps=2))])
    assert torch.get_num_threads() == 2
    assert (random.random(), float(np.random.rand()), float(torch.rand(()))) == expected
    assert torch.tensor([1e-39]).mul(1.0).item() != 0, "denormals are back"


def test_a_spent_budget_ends_as_timeout_and_says_so() -> None:
    traces = run([run_of(training(steps=2000), seed=1), run_of(training(steps=3), seed=2)], budget=0.3)
    assert [trace.outcome.name for trace in traces] == ["timeout", "timeout"]
    assert traces[0].outcome.step > 0
    assert len(losses(traces[0])) == traces[0].outcome.step


def test_progress_is_reported_each_step() -> None:
    seen: list[Progress] = []
    run([run_of(training(steps=3), seed=seed) for seed in (4, 5)], progress=seen.append)
    assert [(one.step, one.steps, one.seeds) for one in seen] == [(step, 3, (4, 5)) for step in (1, 2, 3)]


def test_memory_that_runs_out_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def starving(*args: object) -> nn.Module:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr("stabilitysuite.lab.subject.build", starving)
    (trace,) = run([run_of(training())])
    assert trace.outcome.name == "out-of-memory"
    assert "allocate" in trace.outcome.detail


@pytest.mark.parametrize("device", ["tpu", "cuda:77", "meta"])
def test_a_device_that_is_not_there(device: str) -> None:
    with pytest.raises(MeasurementError, match=device):
        run([run_of(training())], device=device)


def test_a_transformer_of_many_shapes_trains(subtests: pytest.Subtests) -> None:
    for changes in (
        {"layers": 0},
        {"norm": "none"},
        {"causal": False},
        {"positions": "none"},
        {"attention": False},
    ):
        with subtests.test(str(changes)):
            model = Transformer(**{"layers": 2, "width": 16, "heads": 2, **changes})  # type: ignore[arg-type]
            assert run([run_of(training(model=model, steps=3))])[0].outcome.step == 3
