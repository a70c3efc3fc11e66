"""What is told of a whole run: against curves whose answer is known."""

from __future__ import annotations

import math
import random

import pytest

from stabilitysuite.lab.summary import SHORTEST, SUMMARIES, area_under_curve, spikes, steps_to_converge, summaries
from stabilitysuite.trace import Reference

REFERENCE = Reference(plateau=4.0, floor=2.0)
NOISE = random.Random(0)


@pytest.mark.parametrize(
    ("progress", "steps"),
    [
        ([(0, 0.0), (10, 0.4), (20, 0.6)], 15.0),
        ([(0, 0.0), (10, 0.5)], 10.0),
        ([(0, 0.7), (10, 0.1)], 0.0),
        ([(0, 0.0), (10, 0.4)], math.inf),
        ([(0, 0.0), (10, 0.9), (20, 0.1), (30, 0.9)], 10 * 0.5 / 0.9),
        ([(0, 0.0), (10, math.nan), (20, 0.9)], math.nan),
        ([(0, 0.0), (10, 1.0), (20, math.nan)], 5.0),
    ],
)
def test_steps_to_converge_lie_between_two_evaluations(progress: list[tuple[int, float]], steps: float) -> None:
    assert steps_to_converge(progress, 0.5) == pytest.approx(steps, nan_ok=True)


def test_the_area_under_a_line_is_its_middle() -> None:
    assert area_under_curve([(0, 0.0), (7, 0.7), (10, 1.0)]) == pytest.approx(0.5)
    assert area_under_curve([(0, 0.3)]) == 0.3
    assert math.isnan(area_under_curve([(0, 0.0), (5, math.nan)]))


def falling(steps: int, noise: float = 0.02) -> list[float]:
    return [1 + 3 * math.exp(-step / 30) + NOISE.gauss(0, noise) for step in range(steps)]


def test_each_spike_of_a_noisy_curve_is_counted_and_nothing_else() -> None:
    losses = falling(300)
    assert spikes(losses) == 0
    for at in (100, 120, 121, 299):
        losses[at] += 2
    assert spikes(losses) == 4
    assert spikes([5.0, *losses[:SHORTEST], math.inf]) == 1
    assert math.isnan(spikes([*losses, math.nan]))


def test_the_first_steps_are_exempt() -> None:
    losses = falling(60)
    losses[SHORTEST - 1] += 50
    assert spikes(losses) == 0
    assert spikes([]) == 0


def test_noise_alone_makes_no_spike() -> None:
    assert sum(spikes([NOISE.gauss(3, 0.1) for _ in range(200)]) for _ in range(100)) == 0


def test_rounding_of_a_constant_loss_is_no_spike() -> None:
    assert spikes([2.0] * 40 + [2.0 + 1e-7]) == 0
    assert spikes([2.0] * 40 + [2.1]) == 1


def test_only_what_is_wanted_and_known_is_told() -> None:
    losses = [4.0, 3.5, 3.0]
    found = summaries(frozenset({"spikes", "residual_std"}), losses, [], None)
    assert set(found) == {"spikes"}
    assert (found["spikes"].steps, found["spikes"].values) == ((2,), ((0.0,),))
    assert set(summaries(SUMMARIES, losses, [], None)) == SUMMARIES - {"steps_to_converge"}
    assert summaries(SUMMARIES, [], [], REFERENCE) == {}
    known = summaries(SUMMARIES, losses, [(0, 4.0), (2, 2.0)], REFERENCE)
    assert known["steps_to_converge"].values == ((1.0,),)
    assert known["area_under_curve"].values == ((0.5,),)


def test_on_ones_own_data_medians_take_the_place_of_evaluations() -> None:
    losses = [5.0] + [4.0] * 9 + [2.0] * 10
    losses[4] = 0.0  # one lucky batch is no convergence
    target = Reference(plateau=5.0, floor=2.0, enough=1.0)
    found = summaries(SUMMARIES, losses, [], target)
    assert 10 < found["steps_to_converge"].values[0][0] <= 13
    assert summaries(SUMMARIES, [3.0] * 20, [], None)["area_under_curve"].values == ((3.0,),)
