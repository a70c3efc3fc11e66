"""Outcomes from losses alone."""

from __future__ import annotations

import pytest

from stabilitysuite.lab.ending import ending, own_ending
from stabilitysuite.trace import Reference

KNOWN = Reference(plateau=3.0, floor=1.0)


@pytest.mark.parametrize(
    ("losses", "name"),
    [
        ([3.5, 3.0, 1.9], "converged"),
        ([3.5, 3.0, 2.0], "converged"),
        ([3.5, 3.1, 2.1], "learning"),
        ([3.5, 3.0, 3.19], "stalled"),
        ([3.5, 3.0, 2.81], "stalled"),
        ([3.5, 2.3, 3.05], "collapsed"),
        ([3.5, 2.5, 2.7], "learning"),
        ([3.5, 4.6, 9.0], "diverged"),
        ([3.5, 9.0, 3.6], "learning"),
        ([3.5, 2.0, 9.0], "collapsed"),
    ],
)
def test_ending(losses: list[float], name: str) -> None:
    assert ending(list(enumerate(losses)), KNOWN).name == name


def test_own_data_without_a_target_is_learning_or_diverged() -> None:
    assert own_ending([4.0] * 30, None)[0].name == "learning"
    assert own_ending([4.0] + [3.0] * 30, None)[1] is None
    assert own_ending([4.0] + [9.0] * 30, None)[0].name == "diverged"
    assert own_ending([-4.0] + [1.0] * 30, None)[0].name == "diverged"


def test_own_data_with_a_target_converges_when_it_is_reached() -> None:
    falling = [4 - 0.1 * step for step in range(31)]
    assert own_ending(falling, 1.2)[0].name == "converged"
    assert own_ending(falling, 0.9)[0].name == "learning"
    assert own_ending([4.0, *[3.99] * 40], 1.0)[0].name == "stalled"
    assert own_ending([4.0, *[1.5] * 20, *[3.95] * 40], 1.0)[0].name == "collapsed"
    assert own_ending(falling, 5.0)[0].name == "converged"
