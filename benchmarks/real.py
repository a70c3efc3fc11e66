"""The judge on real trainings: many of one tiny training, dealt out to sessions as their seeds.

Every training has a seed of its own and is used once a claim. What is claimed holds, lies exactly on its bound, or is
about a learning rate at which a share of the seeds fails.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Sequence

from benchmarks.simulation import CALIBRATED, Frequencies, Spreads, frequencies, generator
from stabilitysuite.calibration import RATE_SEEDS
from stabilitysuite.case import LOOKS, Case
from stabilitysuite.claims.claim import Claim
from stabilitysuite.claims.look import Spread
from stabilitysuite.claims.measure import evaluated_loss
from stabilitysuite.claims.outcome import converges
from stabilitysuite.lab.train import run
from stabilitysuite.plan import Plan, plan
from stabilitysuite.spec import Adam, Markov, Transformer
from stabilitysuite.stats.interval import Prior, spread
from stabilitysuite.trace import Trace

__all__ = ["EDGE", "SAFE", "Stream", "failing", "loss_on_its_bound", "loss_within_its_bound", "outcomes", "real_rows"]

SAFE, EDGE = 2e-2, 9e-2
"""Learning rates at which every seed trains, and at which some do not."""
IN_ONE_PASS = 16


def case_at(rate: float, claim: Claim) -> Case:
    """A Post-LN layer of width 16 on a chain of eight states, for forty steps: 30 ms a seed."""
    return Case(
        says="a tiny model trains",
        model=Transformer(layers=1, width=16, heads=2, norm="post"),
        task=Markov(vocab=8, length=8, batch=8),
        optimizer=Adam(lr=rate),
        steps=40,
        expect=claim,
    )


class Stream:
    """Trainings of seeds 0, 1, 2, ... at one learning rate, as many as are asked for."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.known: list[Trace] = []

    def first(self, count: int) -> list[Trace]:
        """The first trainings."""
        case = case_at(self.rate, converges())
        while len(self.known) < count:
            start = len(self.known)
            self.known += run(plan(case, seeds=tuple(range(start, start + IN_ONE_PASS))).runs)
        return self.known[:count]

    def losses(self, count: int) -> list[float]:
        """The losses with which they ended."""
        return [trace.series["evaluated_loss"].values[-1][0] for trace in self.first(count)]

    def dealt(self) -> Callable[[Plan], Sequence[Trace]]:
        """Hands them out in order, each as the seed that is asked for."""
        used = 0

        def train(decided: Plan) -> Sequence[Trace]:
            nonlocal used
            used += len(decided.runs)
            found = self.first(used)[used - len(decided.runs) :]
            return [dataclasses.replace(one, seed=of.seed) for one, of in zip(found, decided.runs, strict=True)]

        return train


@functools.cache
def stream(rate: float) -> Stream:
    """One a learning rate, so that every claim on it shares the trainings."""
    return Stream(rate)


def failing(rate: float, count: int) -> float:
    """Share of the first trainings that did not converge."""
    return sum(one.outcome.name != "converged" for one in stream(rate).first(count)) / count


def outcomes(rate: float, cases: int, *, again: bool) -> Frequencies:
    """``converges()``."""
    case = case_at(rate, converges())
    return frequencies(case, stream(rate).dealt(), cases, looks=LOOKS, again=again)


def _loss_at_most(high: float, cases: int, *, known: bool, again: bool) -> Frequencies:
    """Each session has a calibration of its own, drawn from all trainings: one for all would be one draw for all."""
    claim = evaluated_loss().at_most(high)
    losses, source = stream(SAFE).losses(8 * cases), generator(9, known, again)

    def spreads() -> Spreads:
        seen = source.choice(losses, CALIBRATED, replace=False).tolist()
        return {("", claim.words()): Spread(prior=Prior(deviation=spread(seen), degrees=CALIBRATED - 1), log=False)}

    train, asked = stream(SAFE).dealt(), case_at(SAFE, claim)
    return frequencies(asked, train, cases, looks=LOOKS, spreads=spreads if known else None, again=again, truth=high)


def loss_on_its_bound(cases: int, *, known: bool, again: bool = False) -> Frequencies:
    """The loss is at most its own mean over as many trainings as there are: every decision is an error."""
    return _loss_at_most(statistics.mean(stream(SAFE).losses(8 * cases)), cases, known=known, again=again)


def loss_within_its_bound(cases: int, *, known: bool, again: bool = False) -> Frequencies:
    """The loss is at most two standard deviations more than its mean."""
    losses = stream(SAFE).losses(8 * cases)
    high = statistics.mean(losses) + 2 * statistics.stdev(losses)
    return _loss_at_most(high, cases, known=known, again=again)


def real_rows(cases: int) -> list[Callable[[], list[str]]]:
    """The rows of the table.

    Args:
        cases: Sessions of each row.
    """

    def row(name: str, rate: float, make: Callable[..., Frequencies]) -> list[str]:
        once, twice = make(again=False), make(again=True)
        wrong = failing(rate, 8 * cases)
        admitted = (1 - wrong) ** (CALIBRATED + RATE_SEEDS)
        return [
            f"{rate:g}",
            f"{100 * wrong:.1f}",
            name,
            f"{100 * once.share('violated'):.1f}",
            f"{100 * once.share('holds'):.1f}",
            f"{once.seeds:.2f}",
            f"{100 * twice.share('violated'):.1f}",
            "< 0.01" if admitted < 1e-4 else f"{100 * admitted:.3g}",
        ]

    def loss(make: Callable[..., Frequencies], *, known: bool) -> Callable[..., Frequencies]:
        return lambda *, again: make(cases, known=known, again=again)

    def ends(rate: float) -> Callable[..., Frequencies]:
        return lambda *, again: outcomes(rate, cases, again=again)

    return [
        lambda: row("converges", SAFE, ends(SAFE)),
        lambda: row("loss 2 deviations inside, own", SAFE, loss(loss_within_its_bound, known=False)),
        lambda: row("loss 2 deviations inside, calibrated", SAFE, loss(loss_within_its_bound, known=True)),
        lambda: row("loss on the bound, own", SAFE, loss(loss_on_its_bound, known=False)),
        lambda: row("loss on the bound, calibrated", SAFE, loss(loss_on_its_bound, known=True)),
        lambda: row("converges", EDGE, ends(EDGE)),
    ]
