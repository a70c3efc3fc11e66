"""Time to a verdict with seeds as needed over that with a fixed eight: in seeds by simulation, in CPU time for real."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from benchmarks.measure import interleaved, ratio, table
from benchmarks.overhead import training, watched
from benchmarks.simulation import Frequencies
from benchmarks.statistics import FIXED, ended, off_the_bound, ordered
from stabilitysuite.case import LOOKS
from stabilitysuite.claims.outcome import converges

__all__ = ["verdict"]

GOAL = 0.6
SHAPES = ((16, 4, 8), (32, 8, 16))
"""Width, sequences, tokens of a sequence."""
Settled = Callable[[Sequence[int]], Frequencies]
"""How a family is settled with the given looks."""


def _bound(distance: float, known: bool, draws: int, looks: Sequence[int]) -> Frequencies:
    return off_the_bound(distance, known, draws, looks)


def _order(effect: float, draws: int, looks: Sequence[int]) -> Frequencies:
    return ordered(effect, 0.0, True, draws, looks)


def _outcome(wrong: float, draws: int, looks: Sequence[int]) -> Frequencies:
    return ended(converges(), wrong, draws=draws, looks=looks)


def _families(draws: int) -> dict[str, tuple[Settled, Sequence[int], str, str]]:
    """By name: how it is settled, its looks, and what both errors are, with seeds as needed and with eight."""
    both = "0.01"
    return {
        "bound, calibrated, 1 deviation inside": (partial(_bound, 1.0, True, draws), LOOKS, both, both),
        "bound, calibrated, 2 deviations inside": (partial(_bound, 2.0, True, draws), LOOKS, both, both),
        "bound, calibrated, 3 deviations inside": (partial(_bound, 3.0, True, draws), LOOKS, both, both),
        "bound, own spread, 3 deviations inside": (partial(_bound, 3.0, False, draws), LOOKS, both, both),
        "order, calibrated, 2 deviations above": (partial(_order, 2.0, draws), LOOKS, both, both),
        "order, calibrated, 3 deviations above": (partial(_order, 3.0, draws), LOOKS, both, both),
        "outcome, 2 % wrong, as a smoke test": (partial(_outcome, 0.02, draws), LOOKS, "0.125", "0.004"),
        "outcome, 2 % wrong, seeds=8": (partial(_outcome, 0.02, draws), FIXED, "0.004", "0.004"),
        "outcome, broken in 50 %": (partial(_outcome, 0.5, draws), LOOKS, both, both),
        "outcome, broken in 95 %": (partial(_outcome, 0.95, draws), LOOKS, both, both),
    }


def passes(
    shape: tuple[int, int, int], *, layers: int, steps: int, turns: int, sizes: Sequence[int] = (2, 3, 8)
) -> dict[int, float]:
    """CPU time of a pass of so many seeds over that of a pass of eight, everything a run does included."""
    width, batch, length = shape
    one = training(layers, steps, width=width, batch=batch, length=length)
    found = interleaved({str(size): watched(one, seeds=range(size), exact=True) for size in sizes}, turns)
    return {size: ratio(found, str(size), "8")[0] for size in sizes}


def cpu(found: Frequencies, cost: Mapping[int, float]) -> float:
    """Expected CPU time over that of a pass of eight: every look is a pass of the seeds that it adds."""
    whole = {3: cost[3], 5: cost[3] + cost[2], 8: cost[3] + cost[2] + cost[3]}
    return sum(whole[size] * count for size, count in found.sizes.items()) / found.draws


def verdict(
    shapes: Sequence[tuple[int, int, int]] = SHAPES,
    *,
    draws: int = 2000,
    layers: int = 6,
    steps: int = 40,
    turns: int = 5,
) -> str:
    """The table of ratios.

    Args:
        shapes: Width, sequences and tokens of a sequence of the trainings that are timed.
        draws: Simulated sessions of a row.
        layers: Layers.
        steps: Steps.
        turns: Counted turns.
    """
    costs = [passes(shape, layers=layers, steps=steps, turns=turns) for shape in shapes]
    rows = []
    for name, (settled, looks, error, fixed_error) in _families(draws).items():
        found, eight = settled(looks), settled(FIXED)
        ratios = [found.seeds / FIXED[0]]
        ratios += [1.0 if looks == FIXED else cpu(found, cost) for cost in costs]
        alike = error == fixed_error
        reached = ("yes" if max(ratios) <= GOAL else "seeds only" if ratios[0] <= GOAL else "no") if alike else "-"
        shares = [f"{100 * one.decided:.1f}" for one in (found, eight)]
        errors = error if alike else f"{error}, not {fixed_error}"
        rows.append([name, errors, *shares, f"{found.seeds:.2f}", *(f"{one:.2f}" for one in ratios), reached])
    cells = [f"CPU, width {width}" for width, _, _ in shapes]
    head = ["settled", "error", "decided %", "by 8, %", "seeds", "of 8", *cells, f"at most {GOAL:g}"]
    return table(head, rows)
