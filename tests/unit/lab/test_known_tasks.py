"""Masked tokens, classification and induction: their losses against brute force, and what trains on them."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stabilitysuite.errors import MeasurementError
from stabilitysuite.lab.randomness import generator
from stabilitysuite.lab.tasks import IGNORED, KnownStream, between, chain, reference, stream
from stabilitysuite.lab.train import run
from stabilitysuite.spec import Adam, Classification, Induction, Markov, MaskedToken, Training, Transformer
from tests.unit.lab.runs import run_of

CPU = torch.device("cpu")
Known = Markov | MaskedToken | Classification | Induction
TASKS: list[Known] = [
    MaskedToken(),
    MaskedToken(vocab=5, length=9, share=0.3),
    Classification(),
    Induction(),
    Markov(lag=2),
]


def arrays(task: Known, sequences: int) -> tuple[Tensor, Tensor]:
    """Many sequences of one seed, and their targets."""
    inputs, targets = stream(dataclasses.replace(task, batch=sequences), (1,), CPU).batch()
    return inputs[0], targets[0]


# ---------------------------------------------------------------------------------------------------- known losses


@pytest.mark.parametrize("task", TASKS, ids=repr)
def test_the_best_predictor_has_the_floor_and_the_constant_one_the_plateau(task: Known) -> None:
    """On the evaluation set, which is finite: up to what its sequences differ from the source."""
    own, known = stream(task, (0, 1), CPU), reference(task)
    rows = own._rows.float().clamp_min(1e-12).log()
    best = torch.zeros(2, *own.evaluation_inputs().shape[1:], task.outputs)
    best = best[:, :, 0] if task.one_label else best
    own._scored(best)[:] = rows  # a view of the logits, where only a part is scored
    assert own.exact_loss(best).tolist() == pytest.approx([known.floor] * 2, abs=0.06)
    constant = torch.zeros_like(best)
    if isinstance(task, MaskedToken | Markov):
        constant = constant + torch.from_numpy(chain(task.vocab, task.sharpness).stationary).float().log()
    assert own.exact_loss(constant).tolist() == pytest.approx([known.plateau] * 2, abs=0.06)
    worse = own.exact_loss(best + torch.randn(best.shape, generator=torch.Generator().manual_seed(1)))
    assert (worse >= own.exact_loss(best)).all()


@pytest.mark.parametrize("task", TASKS, ids=repr)
def test_the_training_loss_is_the_exact_loss_in_expectation(task: Known) -> None:
    many = stream(dataclasses.replace(task, batch=4096), (5,), CPU)
    inputs, targets = many.batch()
    bias = torch.linspace(-1, 1, task.outputs)
    shape = (*inputs.shape[: 2 if task.one_label else 3], task.outputs)
    held_out = torch.zeros(1, *many.evaluation_inputs().shape[1 : 2 if task.one_label else 3], task.outputs) + bias
    sampled, exact = many.loss(bias.expand(shape), targets).item(), many.exact_loss(held_out).item()
    assert sampled == pytest.approx(exact, abs=0.06)


def test_the_conditional_of_a_masked_token_is_that_of_counting() -> None:
    task = MaskedToken(vocab=3, length=9, share=0.3)
    inputs, targets = arrays(task, 60_000)
    sequence, place = torch.nonzero(targets != IGNORED, as_tuple=True)
    seen = np.zeros((3, 3, 3))
    left, right = inputs[sequence, place - 1], inputs[sequence, place + 1]
    np.add.at(seen, (left.numpy(), right.numpy(), targets[sequence, place].numpy()), 1)
    rows, (one, other) = chain(3, task.sharpness).rows, np.indices((3, 3))
    exact = between(rows, one, other)
    often = seen.sum(-1) > 2000
    np.testing.assert_allclose((seen / seen.sum(-1, keepdims=True))[often], exact[often], atol=0.03)
    share = seen.sum(-1) / seen.sum()
    entropies = -(exact * np.log(exact)).sum(-1)
    assert (share * entropies).sum() == pytest.approx(reference(task).floor, abs=0.01)


def test_masks_have_both_neighbours_visible_and_are_everywhere_alike() -> None:
    task = MaskedToken(vocab=5, length=10, share=0.3)
    inputs, targets = arrays(task, 4000)
    masked = inputs == 5
    assert torch.equal(masked, targets != IGNORED)
    assert (masked.sum(1) == task.masked).all()
    assert not (masked[:, 1:] & masked[:, :-1]).any()
    assert not masked[:, [0, -1]].any()
    assert masked.float().mean(0)[1:-1].min() > 0.25
    assert ((targets >= 0) | (targets == IGNORED)).all()


@pytest.mark.parametrize(
    "task",
    [
        Classification(classes=3, vocab=3, length=5, signal=0.7),  # every step is some label's
        Classification(classes=2, vocab=4, length=6, signal=0.4),
    ],
    ids=repr,
)
def test_the_floor_of_a_classification_is_the_sum_over_all_sequences(task: Classification) -> None:
    other = (1 - task.signal) / (task.vocab - 1)
    risk = 0.0
    for sequence in itertools.product(range(task.vocab), repeat=task.length):
        steps = np.diff(sequence) % task.vocab
        likely = np.array([np.where(steps == label, task.signal, other).prod() for label in range(task.classes)]) / (
            task.vocab * task.classes
        )
        risk -= (likely * np.log(likely / likely.sum())).sum()
    assert reference(task).floor == pytest.approx(risk, rel=1e-12)
    assert reference(task).plateau == math.log(task.classes)


def test_single_tokens_tell_nothing_of_a_label() -> None:
    task = Classification()
    inputs, labels = arrays(task, 20_000)
    for label in range(task.classes):
        counts = torch.bincount(inputs[labels == label].flatten(), minlength=task.vocab).double()
        assert (counts / counts.sum() * task.vocab - 1).abs().max() < 0.05


def test_each_answer_was_shown_beside_its_key() -> None:
    task = Induction(vocab=3, queries=4)
    inputs, targets = arrays(task, 3000)
    assert inputs.shape == (3000, task.length)
    for tokens, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
        value = {tokens[place]: tokens[place + 1] for place in range(0, 6, 2)}
        for place in range(6, task.length, 2):
            assert wanted[place] + 3 == value[tokens[place]]
    keys, answers = inputs[:, 6::2].flatten(), targets[:, 6::2].flatten()
    alone = torch.bincount(keys * 3 + answers, minlength=9).double()
    assert (alone / alone.sum() * 9 - 1).abs().max() < 0.15, "a key alone tells nothing"


@pytest.mark.parametrize("task", TASKS, ids=repr)
def test_the_evaluation_set_is_one_for_all_and_batches_are_each_seeds_own(task: Known) -> None:
    one, other = stream(task, (3,), CPU), stream(dataclasses.replace(task, batch=5), (4, 5), CPU)
    assert torch.equal(one.evaluation_inputs()[0], other.evaluation_inputs()[1])
    alone, together = stream(task, (4,), CPU), stream(task, (3, 4), CPU)
    for _ in range(34):  # more than are drawn at once
        (inputs, targets), (both_inputs, both_targets) = alone.batch(), together.batch()
        assert torch.equal(inputs[0], both_inputs[1])
        assert torch.equal(targets[0], both_targets[1])
        assert not torch.equal(both_inputs[0], both_inputs[1])


# ------------------------------------------------------------------------------------------------------- trainings


def declared(task: Known, steps: int, lr: float, **model: object) -> Training:
    fields: dict[str, object] = {"norm": "pre", "causal": task.causal is not False} | model
    network = Transformer(layers=2, width=32)
    return Training(
        model=dataclasses.replace(network, **fields),  # type: ignore[arg-type]
        task=task,
        optimizer=Adam(lr=lr),
        steps=steps,
        warmup=20,
    )


SMALL: list[tuple[Known, int, float, dict[str, object]]] = [
    (MaskedToken(vocab=8), 120, 1e-2, {}),
    (Classification(signal=0.8), 60, 5e-3, {}),
    (Classification(signal=0.8), 60, 5e-3, {"causal": False}),
    (Induction(), 100, 1e-2, {}),
]


@pytest.mark.parametrize(("task", "steps", "lr", "model"), SMALL, ids=repr)
def test_a_healthy_model_converges_and_one_without_attention_stays_on_the_shallow_floor(
    task: Known, steps: int, lr: float, model: dict[str, object]
) -> None:
    healthy = run([run_of(declared(task, steps, lr, **model), seed=seed, quantities=frozenset()) for seed in (1, 2)])
    assert [trace.outcome.name for trace in healthy] == ["converged"] * 2
    for shallow in ({"attention": False}, {"layers": 0}):
        (trace,) = run([run_of(declared(task, steps, lr, **model, **shallow), quantities=frozenset())])
        assert trace.outcome.name == "stalled"
        assert trace.reference is not None
        assert trace.series["evaluated_loss"].values[-1][0] == pytest.approx(trace.reference.shallow_floor, rel=0.05)


def test_one_layer_finds_no_induction() -> None:
    traces = run([run_of(declared(Induction(), 100, 1e-2, layers=1), seed=seed) for seed in (1, 2)])
    assert [trace.outcome.name for trace in traces] == ["learning"] * 2


class Bag(nn.Module):
    """A module of the user's: one label for the pairs of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(64, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.table(tokens[:, :-1] * 8 + tokens[:, 1:]).sum(1)
        return out


def test_a_module_of_ones_own_gives_one_row_of_logits_a_sequence() -> None:
    own = Training(model=Bag, task=Classification(), optimizer=Adam(lr=3e-2), steps=60)
    traces = run([run_of(own, seed=seed, quantities=frozenset()) for seed in range(5)])
    assert {trace.outcome.name for trace in traces} == {"converged"}
    assert "torch.func" in traces[0].engine


def test_logits_of_another_shape_are_told() -> None:
    own = Training(model=lambda: nn.Embedding(8, 4), task=Classification(), steps=2)
    with pytest.raises(
        MeasurementError, match=r"on task=Classification\(\) .*\(256, 8\) and must return logits \(256, 4\)"
    ):
        run([run_of(own)])


def test_a_stream_says_what_it_must() -> None:
    assert generator("masked", "evaluation").random() != generator("induction", "evaluation").random()
    assert len({kind.purpose for kind in KnownStream.__subclasses__()}) == 4
