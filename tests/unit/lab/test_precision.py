"""float16 with a loss scale a seed, against torch's own scaler; float64 throughout."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stabilitysuite.errors import MeasurementError
from stabilitysuite.lab import precision
from stabilitysuite.lab.ensemble import EnsembleSubject
from stabilitysuite.lab.loop import Loop
from stabilitysuite.lab.subject import OwnSubject, Subject, ZooSubject
from stabilitysuite.lab.train import run
from stabilitysuite.spec import GAU, SGD, Adam, AdamW, Classification, Gaussian, MaskedToken, Training, Xavier
from stabilitysuite.trace import Trace
from tests.unit.lab.runs import EVERYTHING, MODEL, run_of, training

CPU = torch.device("cpu")


def losses(trace: Trace) -> list[float]:
    return [values[0] for values in trace.series["training_loss"].values]


# ------------------------------------------------------------------------------------- one seed: torch's own scaler

SPIKES = {0: 1e6, 6: 1e5, 7: 1e9}
"""Factors on the loss of some steps: it stays finite, its gradient is too large for float16."""


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(torch.tanh(self.hidden(x)))
        return out


def spiked_batches(seed: int) -> Iterator[tuple[Tensor, float]]:
    source = torch.Generator().manual_seed(seed)
    for step in range(30):
        yield torch.randn(16, 4, generator=source), SPIKES.get(step, 1.0)


def spiked_loss(model: nn.Module, batch: tuple[Tensor, float]) -> Tensor:
    x, factor = batch
    loss: Tensor = (model(x).float() - x.sum(1, keepdim=True)).square().mean() * factor
    return loss


OWN = Training(model=Small, data=spiked_batches, loss=spiked_loss, optimizer=Adam(lr=1e-2), steps=30, clip=1.0)


@pytest.mark.parametrize("optimizer", [Adam(lr=1e-2), AdamW(lr=1e-2), SGD(lr=0.1, momentum=0.9)], ids=repr)
def test_a_seed_is_scaled_as_by_torchs_own_scaler(optimizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow twin: a plain loop with ``torch.amp.GradScaler``, which doubles more often here."""
    monkeypatch.setattr(precision, "GROWN_AFTER", 3)
    kept: list[nn.Module] = []
    scales: list[float] = []
    saw = precision.LossScale.saw_norms

    def watched(self: precision.LossScale, step: int, norms_S: Tensor | None) -> Tensor | None:
        found = saw(self, step, norms_S)
        scales.append(self.values[0])
        return found

    monkeypatch.setattr(precision.LossScale, "saw_norms", watched)

    def build() -> nn.Module:
        kept.append(Small())
        return kept[-1]

    (trace,) = run([run_of(dataclasses.replace(OWN, model=build, optimizer=optimizer, precision="float16"))])
    trained_model = kept[-1]
    run([run_of(dataclasses.replace(OWN, model=build, steps=0))])
    model = kept[-1]  # as the other was at first
    kinds: dict[type, Any] = {Adam: torch.optim.Adam, AdamW: torch.optim.AdamW, SGD: torch.optim.SGD}
    fields = {item.name: getattr(optimizer, item.name) for item in dataclasses.fields(optimizer)}
    torchs = kinds[type(optimizer)](model.parameters(), **fields)
    scaler = torch.amp.GradScaler("cpu", growth_interval=3)
    expected, expected_scales = [], []
    for batch in spiked_batches(1):
        with torch.autocast("cpu", torch.float16):
            loss = spiked_loss(model, batch)
        expected.append(loss.item())
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.unscale_(torchs)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(torchs)
        scaler.update()
        torchs.zero_grad()
        expected_scales.append(scaler.get_scale())
    assert scales == expected_scales
    assert any(later > earlier for earlier, later in itertools.pairwise(scales)), "it is doubled, too"
    assert losses(trace) == pytest.approx(expected, rel=1e-5)
    for one, other in zip(trained_model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert trace.outcome.name != "nonfinite"
    assert any(", the first at step 0; the loss scale ended at" in note for note in trace.warnings)


# ------------------------------------------------------------------------------------------------ several seeds


class Spiked(ZooSubject):
    """A zoo model in which the gradient of seed 2 overflows float16 at some steps, and its loss does not."""

    spikes: tuple[int, ...] = (0, 3, 4)
    factor = 1e8
    drawn = -1

    def next_batch(self) -> tuple[Tensor, Tensor]:
        self.drawn += 1
        return super().next_batch()

    def losses(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        factor = [self.factor if seed == 2 and self.drawn in self.spikes else 1.0 for seed in self.seeds]
        return super().losses(batch).float() * torch.tensor(factor)


def trained(
    seeds: Sequence[int], spikes: tuple[int, ...] = Spiked.spikes, factor: float = 1e8, **changes: Any
) -> list[Trace]:
    declared = training(**{"precision": "float16", "clip": 1.0, **changes})
    subject = Spiked(declared, seeds, CPU)
    subject.spikes, subject.factor = spikes, factor
    return carried_out(subject, declared)


def carried_out(subject: Subject, declared: Training) -> list[Trace]:
    loop = Loop(subject, run_of(declared, quantities=EVERYTHING), CPU, lambda step, loss: None)
    loop.train()
    return loop.traces()


def calm(trace: Trace) -> list[float]:
    return [loss for step, loss in enumerate(losses(trace)) if step not in Spiked.spikes]


@pytest.mark.parametrize(
    "changes", [{}, {"clip": None}, {"optimizer": SGD(lr=0.1, momentum=0.9)}, {"model": GAU(width=16, key=8)}], ids=repr
)
def test_one_seed_skips_its_update_and_is_as_alone(changes: dict[str, Any]) -> None:
    together = trained((1, 2, 3), **changes)
    alone = [trained((seed,), **changes)[0] for seed in (1, 2, 3)]
    for one, other in zip(together, alone, strict=True):
        assert one.outcome.name != "nonfinite"
        assert calm(one) == pytest.approx(calm(other), rel=2e-3)
        assert one.warnings == other.warnings
    assert [len(trace.warnings) for trace in together] == [0, 1, 0]
    assert together[1].warnings[0] == (
        "float16: updates skipped, as scaled gradients were not finite: 3, the first at step 0; "
        "the loss scale ended at 8192"
    )


def test_modules_of_ones_own_in_one_pass_skip_as_alone() -> None:
    """Rounding to float16 is seldom proved equal, so that they mostly run one by one; where they do not, this holds."""

    def batches(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        for step, (x, _) in enumerate(spiked_batches(seed)):
            yield x, torch.tensor(1e6 if seed == 2 and step in Spiked.spikes else 0.1)

    declared = dataclasses.replace(OWN, data=batches, precision="float16")
    together = carried_out(EnsembleSubject(declared, (1, 2, 3), CPU), declared)
    for seed, one in zip((1, 2, 3), together, strict=True):
        (other,) = carried_out(OwnSubject(declared, seed, CPU), declared)
        assert calm(one) == pytest.approx(calm(other), rel=5e-3)
        assert one.warnings == other.warnings
        assert bool(one.warnings) == (seed == 2)


def test_an_overflow_of_one_seed_never_touches_another() -> None:
    spiked, plain = trained((1, 2, 3), clip=None), trained((1, 2, 3), clip=None, spikes=())
    for position in (0, 2):
        assert losses(spiked[position]) == losses(plain[position])
        assert spiked[position].series["evaluated_loss"] == plain[position].series["evaluated_loss"]
    assert losses(spiked[1])[5:] != losses(plain[1])[5:]


def test_a_skipped_update_changes_no_weight() -> None:
    (trace,) = trained((2,))
    ratios = trace.series["update_ratio"]
    for step in range(6):
        assert (max(ratios.at(step) or ()) == 0) == (step in Spiked.spikes)


def test_gradients_that_overflow_at_every_scale_are_nonfinite() -> None:
    """From 2^16 down to 1 it is the scale's fault; at a half, step 17, it is the gradient's."""
    traces = trained((1, 2), spikes=tuple(range(25)), factor=1e30, steps=25)
    assert [trace.outcome.name for trace in traces] == ["converged", "nonfinite"]
    assert traces[1].outcome.step == 17
    assert traces[1].outcome.tensor is not None
    assert traces[1].outcome.tensor.startswith("gradient of")


def test_what_is_recorded_carries_no_scale() -> None:
    full, half = (
        run([run_of(training(precision=name, clip=1.0), seed=seed, quantities=EVERYTHING) for seed in (1, 2)])
        for name in ("float32", "float16")
    )
    for one, other in zip(full, half, strict=True):
        assert set(one.series) == set(other.series)
        assert not other.warnings
        for name in ("gradient_norm", "layer_gradient_norm", "residual_gradient", "training_loss", "evaluated_loss"):
            for row, expected in zip(other.series[name].values, one.series[name].values, strict=True):
                assert row == pytest.approx(expected, rel=0.05)
    assert losses(half[0]) != losses(full[0])


def test_the_gradient_at_initialisation_carries_no_scale() -> None:
    at_start = training(task=Gaussian(tokens=8, classes=8), steps=0)
    seen = [
        run([run_of(dataclasses.replace(at_start, precision=name), quantities=EVERYTHING)])[0]
        for name in ("float32", "float16", "bfloat16")
    ]
    norms = [trace.series["gradient_norm"].values[0][0] for trace in seen]
    assert norms[1:] == pytest.approx([norms[0]] * 2, rel=0.02)


def test_a_loss_that_is_not_finite_is_not_the_scales_fault() -> None:
    (trace,) = trained((2,), spikes=(2,), factor=math.inf)
    assert (trace.outcome.name, trace.outcome.step) == ("nonfinite", 2)


def test_an_activation_that_float16_cannot_hold_is_found_where_it_was() -> None:
    hot = dataclasses.replace(MODEL, norm="pre", init=Xavier(ffn_in=1e3, ffn_out=1e3))
    (trace,) = run([run_of(training(precision="float16", model=hot))])
    assert trace.outcome.name == "nonfinite"
    assert trace.outcome.layer is not None
    assert (run([run_of(training(model=hot, steps=1))])[0]).outcome.name != "nonfinite"


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": lambda model: torch.optim.Adam(model.parameters(), lr=1e-3)},
        {"scheduler": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 3)},
    ],
    ids=["optimizer", "scheduler"],
)
def test_an_optimizer_of_the_users_has_one_seed_in_a_pass(changes: dict[str, Any]) -> None:
    traces = run([run_of(training(precision="float16", **changes), seed=seed) for seed in (1, 2)])
    assert [trace.engine for trace in traces] == ["sequential"] * 2
    assert losses(traces[0])[-1] < losses(traces[0])[0]


def test_an_operation_without_half_precision_is_told() -> None:
    def lacking(model: nn.Module, batch: tuple[Tensor, float]) -> Tensor:
        raise RuntimeError("\"weird_cpu\" not implemented for 'Half'")

    declared = dataclasses.replace(OWN, loss=lacking, precision="float16")
    with pytest.raises(MeasurementError, match=r"float16': \"weird_cpu\" .* has no float16 form on cpu; keep"):
        run([run_of(declared)])
    with pytest.raises(RuntimeError, match="weird_cpu"):
        run([run_of(dataclasses.replace(declared, precision="float32"))])


# ----------------------------------------------------------------------------------------------------- float64


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"clip": 1.0, "optimizer": AdamW(lr=3e-3)},
        {"model": GAU(width=16, key=8, causal=True)},
        {"task": MaskedToken(vocab=8, length=8), "model": dataclasses.replace(MODEL, causal=False)},
        {"task": Classification(), "model": dataclasses.replace(MODEL, positions="sinusoidal")},
    ],
    ids=repr,
)
def test_float64_agrees_with_float32(changes: dict[str, object]) -> None:
    narrow, wide = (run([run_of(training(precision=name, **changes))])[0] for name in ("float32", "float64"))
    assert losses(wide) == pytest.approx(losses(narrow), rel=1e-5)
    assert losses(wide) != losses(narrow)
    for name in ("evaluated_loss", "residual_std", "gradient_norm"):
        for row, expected in zip(wide.series[name].values, narrow.series[name].values, strict=True):
            assert row == pytest.approx(expected, rel=1e-4)


def test_identities_are_exact_in_float64() -> None:
    """Branches that add nothing leave the network without layers; seeds in one pass are the seeds alone."""
    pre = dataclasses.replace(MODEL, norm="pre", init=Xavier(output=0, ffn_out=0))
    start = {"steps": 1, "precision": "float64"}
    (silent,) = run([run_of(training(model=pre, **start))])
    (bare,) = run([run_of(training(model=dataclasses.replace(pre, layers=0), **start))])
    assert losses(silent) == pytest.approx(losses(bare), rel=1e-12)
    together = run([run_of(training(precision="float64"), seed=seed) for seed in (1, 2)])
    alone = [run([run_of(training(precision="float64"), seed=seed)])[0] for seed in (1, 2)]
    for one, other in zip(together, alone, strict=True):
        assert losses(one) == pytest.approx(losses(other), rel=1e-12)
        for row, expected in zip(
            one.series["evaluated_loss"].values, other.series["evaluated_loss"].values, strict=True
        ):
            assert row == pytest.approx(expected, rel=1e-12)


def test_vectors_are_float64_too() -> None:
    wide = training(task=Gaussian(tokens=8, classes=8), steps=0, precision="float64")
    (trace,) = run([run_of(wide, quantities=EVERYTHING)])
    assert trace.outcome.name == "initialised"


@pytest.mark.parametrize("seeds", [1, 5])
def test_a_module_of_ones_own_is_float64_throughout(seeds: int) -> None:
    seen: set[torch.dtype] = set()

    def watched(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        loss: Tensor = (model(batch[0]) - batch[1]).square().mean()
        seen.update({batch[0].dtype, loss.dtype, *(value.dtype for value in model.parameters())})
        return loss

    def batches(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        source = torch.Generator().manual_seed(seed)
        for _ in range(40):
            x = torch.randn(16, 4, generator=source)
            yield x, x.sum(1, keepdim=True)

    declared = Training(model=Small, data=batches, loss=watched, optimizer=Adam(lr=1e-2), steps=40)
    wide = [run_of(dataclasses.replace(declared, precision="float64"), seed=seed) for seed in range(seeds)]
    traces = run(wide)
    assert seen == {torch.float64}
    narrow = run([run_of(declared, seed=seed) for seed in range(seeds)])
    for one, other in zip(traces, narrow, strict=True):
        assert losses(one) == pytest.approx(losses(other), rel=1e-4)
    assert ("torch.func" in traces[0].engine) == (seeds > 1)
