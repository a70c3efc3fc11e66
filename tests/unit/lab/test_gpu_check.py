"""``make gpu-check`` runs through without a card, says what it could not check, and notices what is wrong."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

import pytest

from benchmarks import gpu_check
from benchmarks.gpu_check import SMALL, Checks, attempt, main
from stabilitysuite.trace import Trace

TINY = dataclasses.replace(SMALL, steps=6, seeds=2, twin_steps=4)


@pytest.fixture
def checks() -> Checks:
    return Checks("cpu", TINY, time.monotonic() + 60)


def test_on_the_cpu_it_runs_through_and_says_what_it_could_not_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_check, "SMALL", TINY)
    assert main(["--device", "cpu", "--no-quick-tier"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["device"], found["passed"]) == ("cpu", True)
    assert {name for name, result in found["checks"].items() if result["passed"] is None} == {
        "no_host_synchronisation",
        "quick_tier",
    }
    assert set(found["not_checked"]) == {"no_host_synchronisation", "out_of_memory", "bfloat16_twins", "quick_tier"}
    assert found["checks"]["seed_batch"]["largest_relative_loss_difference"] < 1e-3
    assert found["checks"]["probe_overhead"]["ratio"] > 0


def nudged(checks: Checks, monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Multiply the losses of every second training by that factor."""
    train, turns = checks._train, [0]

    def other(runs: Any) -> list[Trace]:
        turns[0] += 1
        traces = train(runs)
        return [_scaled(trace, factor) for trace in traces] if turns[0] % 2 == 0 else traces

    monkeypatch.setattr(checks, "_train", other)


def _scaled(trace: Trace, factor: float) -> Trace:
    series = trace.series["training_loss"]
    values = tuple((row[0] * factor,) for row in series.values)
    changed = {**trace.series, "training_loss": dataclasses.replace(series, values=values)}
    return dataclasses.replace(trace, series=changed)


@pytest.mark.parametrize("name", ["same_seed_twice", "probes_do_not_disturb"])
def test_a_last_bit_is_noticed(name: str, checks: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    assert getattr(checks, name)()["passed"]
    nudged(checks, monkeypatch, 1 + 1e-15)
    assert not getattr(checks, name)()["passed"]


def test_another_loss_in_another_batch_is_noticed(checks: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    nudged(checks, monkeypatch, 1.01)
    found = checks.seed_batch()
    assert not found["passed"]
    assert found["largest_relative_loss_difference"] == pytest.approx(0.01, rel=0.02)


def test_a_check_that_raises_is_written_down_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Checks) -> Any:
        raise ValueError("what happened\nand more")

    monkeypatch.setattr(Checks, "seed_batch", broken)
    found = gpu_check.report("cpu", TINY, quick_tier=False)
    assert not found["passed"]
    assert found["checks"]["seed_batch"]["error"] == "ValueError: what happened"
    assert found["checks"]["probe_overhead"]["passed"]


def test_what_no_time_was_left_for_is_not_passed(checks: Checks) -> None:
    assert attempt(checks.seed_batch, time.monotonic() - 1) == {"passed": None, "not_checked": "no time was left"}
