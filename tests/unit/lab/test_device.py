"""What CUDA is told before it starts, and memory that does not suffice for all seeds; neither needs a card."""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn

from stabilitysuite.errors import MeasurementError
from stabilitysuite.lab.device import deterministic, require_cublas_workspace
from stabilitysuite.lab.subject import ZooSubject
from stabilitysuite.lab.train import run
from stabilitysuite.lab.zoo.build import build
from stabilitysuite.trace import Trace

from .runs import run_of, training

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@pytest.fixture
def cuda_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)


def test_the_workspace_is_set_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, "")
    monkeypatch.delenv(WORKSPACE)
    require_cublas_workspace()
    assert os.environ[WORKSPACE] == ":4096:8"


@pytest.mark.usefixtures("cuda_started")
def test_cuda_that_started_without_the_workspace_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WORKSPACE, raising=False)
    with pytest.raises(MeasurementError, match=r"was started .* set CUBLAS_WORKSPACE_CONFIG=:4096:8"):
        require_cublas_workspace()
    assert WORKSPACE not in os.environ


@pytest.mark.usefixtures("cuda_started")
@pytest.mark.parametrize("value", [":4096:8", ":16:8"])
def test_a_workspace_that_promises_the_same_bits_is_kept(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, value)
    require_cublas_workspace()
    assert os.environ[WORKSPACE] == value


def test_any_other_workspace_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, ":0:0")
    with pytest.raises(MeasurementError, match=":0:0 does not give the same bits"):
        require_cublas_workspace()


def test_cuda_is_strictly_deterministic_inside_and_as_before_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, ":16:8")
    before = torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = True
    try:
        with deterministic(torch.device("cuda")):
            assert torch.are_deterministic_algorithms_enabled()
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
            assert not torch.backends.cudnn.benchmark
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.backends.cudnn.benchmark
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark = before


def test_the_cpu_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, "anything")
    with deterministic(torch.device("cpu")):
        assert not torch.are_deterministic_algorithms_enabled()


# --- memory


def losses(trace: Trace) -> list[float]:
    return [row[0] for row in trace.series["training_loss"].values]


def only_for(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let memory suffice for that many seeds in one pass."""

    def hungry(spec: object, task: object, seeds: tuple[int, ...]) -> nn.Module:
        if len(seeds) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")
        return build(spec, task, seeds)  # type: ignore[arg-type]

    monkeypatch.setattr("stabilitysuite.lab.subject.build", hungry)


def test_seeds_that_do_not_fit_run_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run_of(training(), seed=seed) for seed in (1, 2, 3, 4, 5)]
    expected = [losses(trace) for trace in run(runs[:3]) + run(runs[3:])]
    only_for(3, monkeypatch)
    traces = run(runs)
    assert [trace.engine for trace in traces] == ["3 seeds in one pass"] * 3 + ["2 seeds in one pass"] * 2
    assert [losses(trace) for trace in traces] == expected
    assert all("5 seeds in one pass ran out of memory (CUDA out of memory" in trace.warnings[-1] for trace in traces)


def test_halves_that_do_not_fit_either_are_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    only_for(2, monkeypatch)
    traces = run([run_of(training(), seed=seed) for seed in range(5)])
    names = [trace.outcome.name for trace in traces]
    assert names[:3] == ["out-of-memory"] * 3
    assert "out-of-memory" not in names[3:]


def test_one_seed_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    only_for(0, monkeypatch)
    (trace,) = run([run_of(training())])
    assert trace.outcome.name == "out-of-memory"
    assert not trace.warnings


@pytest.mark.parametrize("error", [MemoryError("no room"), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_memory_that_runs_out_on_the_way_starts_again_from_the_first_step(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ZooSubject.next_batch
    turns = [0]

    def hungry(self: ZooSubject) -> object:
        turns[0] += 1
        if len(self.seeds) > 2 and turns[0] > 4:
            raise error
        return whole(self)

    monkeypatch.setattr(ZooSubject, "next_batch", hungry)
    traces = run([run_of(training(), seed=seed) for seed in (1, 2, 3)])
    assert [len(losses(trace)) for trace in traces] == [12] * 3
    assert [trace.engine for trace in traces] == ["2 seeds in one pass"] * 2 + ["sequential"]
