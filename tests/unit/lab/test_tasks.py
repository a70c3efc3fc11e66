"""The task's losses are known exactly: checked against brute force and simulation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stabilitysuite.lab.randomness import generator
from stabilitysuite.lab.tasks import MarkovStream, chain, reference
from stabilitysuite.spec import Markov

CPU = torch.device("cpu")


def test_plateau_and_floor_are_the_entropies_of_a_long_sample() -> None:
    known = chain(8, 3.0)
    sample = known.sample(generator("test"), (400,), 500, 1)
    counts = np.bincount(sample.ravel(), minlength=8) / sample.size
    np.testing.assert_allclose(counts, known.stationary, atol=0.01)
    pairs = np.zeros((8, 8))
    np.add.at(pairs, (sample[:, :-1].ravel(), sample[:, 1:].ravel()), 1)
    rows = pairs / pairs.sum(1, keepdims=True)
    np.testing.assert_allclose(rows, known.rows, atol=0.03)
    assert known.plateau == pytest.approx(-(counts * np.log(counts)).sum(), abs=0.01)


def test_the_stationary_distribution_is_left_as_it_is() -> None:
    known = chain(32, 3.0)
    np.testing.assert_allclose(known.stationary @ known.rows, known.stationary, atol=1e-12)
    assert known.floor < known.plateau < np.log(32)


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_the_best_predictors_reach_floor_and_plateau(lag: int) -> None:
    """Feeding the conditional itself as logits gives the floor, feeding the unigram gives the plateau."""
    task = Markov(vocab=8, length=12, batch=4, lag=lag)
    stream, known = MarkovStream(task, (0, 1), CPU), chain(8, task.sharpness)
    inputs = stream.evaluation_inputs()
    perfect = torch.zeros(*inputs.shape, 8)
    perfect[:, :, lag - 1 :] = torch.from_numpy(known.rows).float().log()[inputs[:, :, : 12 - lag + 1]]
    # the evaluation set is finite: its own mean conditional entropy and the floor differ by sampling
    assert stream.exact_loss(perfect).tolist() == pytest.approx([known.floor] * 2, abs=0.05)
    constant = torch.from_numpy(known.stationary).float().log().expand(*inputs.shape, 8)
    assert stream.exact_loss(constant).tolist() == pytest.approx([known.plateau] * 2, abs=0.05)


def test_a_longer_lag_hides_the_next_token_from_a_model_without_attention() -> None:
    """The current token and the next one are independent: the best table of pairs is the unigram."""
    known = chain(8, 3.0)
    sample = known.sample(generator("lag"), (4000,), 20, 2)
    pairs = np.zeros((8, 8))
    np.add.at(pairs, (sample[:, :-1].ravel(), sample[:, 1:].ravel()), 1)
    rows = pairs / pairs.sum(1, keepdims=True)
    assert np.abs(rows - known.stationary).max() < 0.03
    assert reference(Markov(vocab=8, lag=2)).shallow_floor == reference(Markov(vocab=8, lag=2)).plateau
    assert reference(Markov(vocab=8)).shallow_floor == reference(Markov(vocab=8)).floor


def test_a_longer_training_starts_with_the_batches_of_a_shorter_one() -> None:
    task = Markov(vocab=8, length=8, batch=4)
    one, other = MarkovStream(task, (3,), CPU), MarkovStream(task, (3, 4), CPU)
    for _ in range(40):
        alone, together = one.batch()[0], other.batch()[0]
        assert torch.equal(alone[0], together[0])


def test_training_loss_is_the_exact_loss_in_expectation() -> None:
    task = Markov(vocab=8, length=8, batch=512, lag=2)
    stream = MarkovStream(task, (5,), CPU)
    constant = torch.from_numpy(chain(8, task.sharpness).stationary).float().log()
    _, targets = stream.batch()
    sampled = stream.loss(constant.expand(1, 512, 8, 8), targets).item()
    assert sampled == pytest.approx(chain(8, task.sharpness).plateau, abs=0.05)
