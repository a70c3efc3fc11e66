"""``python -m benchmarks.statistics [NAME ...]``: simulate the judge and put the tables into docs/statistics.md.

Every row has generators of its own with fixed seeds: run again, on its own or with all others, it is the same.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.measure import publish, table
from benchmarks.real import real_rows
from benchmarks.simulation import (
    LAWS,
    MEASURES,
    Frequencies,
    calibrated,
    case_of,
    edge_lab,
    frequencies,
    generator,
    heap_ends,
    number_lab,
    order_case,
    outcome_lab,
    pair_lab,
    scaling_case,
    slope_lab,
)
from stabilitysuite.case import LOOKS
from stabilitysuite.claims.edge import learning_rate_edge
from stabilitysuite.claims.measure import gradient_norm
from stabilitysuite.claims.outcome import Ends, converges
from stabilitysuite.stats.sequential import confidence_of

__all__ = ["PAGE", "TABLES", "Rows", "session_red"]

PAGE = Path(__file__).parents[1] / "docs" / "statistics.md"
DRAWS = 4000
"""Sessions of a row: a frequency of 1 % is known to 0.16 %."""
FIXED = (8,)

Row = list[str]


@dataclass(frozen=True)
class Rows:
    """A table whose rows are computed one by one."""

    head: Sequence[str]
    rows: Sequence[Callable[[], Row]]

    def text(self) -> str:
        """All of it."""
        return table(self.head, [row() for row in self.rows])


def percent(share: float) -> str:
    """Such as ``0.83``: the unit stands in the head."""
    return f"{100 * share:.2f}" if share < 0.0995 else f"{100 * share:.1f}"


def _verdicts(found: Frequencies) -> Row:
    return [percent(found.share("violated")), percent(found.share("holds"))]


# ----------------------------------------------------------------------------------------------------------- bounds


AS_RATIO, AS_OUTCOMES = "log-normal, log scale", "two heaps, told by outcome"
"""Laws that are judged in another way than as plain numbers."""
JUDGED = (*LAWS, AS_RATIO, AS_OUTCOMES)


def at_the_bound(law: str, known: bool, draws: int = DRAWS, looks: Sequence[int] = LOOKS) -> Frequencies:
    """A mean exactly on the bound: every decision is one of the two errors."""
    source = generator(1, JUDGED.index(law), known)
    measure, plain = MEASURES["log" if law == AS_RATIO else "plain"]
    draw = LAWS.get(law) or LAWS["normal" if law == AS_RATIO else "two heaps, one with 15 %"]
    case = case_of(measure.at_most(plain(0.0)))
    return frequencies(
        case,
        number_lab(measure, lambda: plain(draw(source)), heap_ends if law == AS_OUTCOMES else None),
        draws,
        looks=looks,
        spreads=(lambda: calibrated(case, source, log=law == AS_RATIO)) if known else None,
    )


def off_the_bound(distance: float, known: bool, draws: int = DRAWS, looks: Sequence[int] = LOOKS) -> Frequencies:
    """A mean so many standard deviations inside a bound; outside it is the mirror image."""
    measure, _ = MEASURES["plain"]
    source = generator(2, round(10 * distance), known, len(looks))
    case = case_of(measure.at_most(distance))
    return frequencies(
        case,
        number_lab(measure, lambda: float(source.normal())),
        draws,
        looks=looks,
        spreads=(lambda: calibrated(case, source)) if known else None,
    )


def other_spread(times: float, looks: Sequence[int], draws: int = DRAWS) -> Frequencies:
    """Seeds that spread so many times as much as calibration saw, with the mean on the bound."""
    measure, _ = MEASURES["plain"]
    source = generator(3, round(10 * times), *looks)
    case = case_of(measure.at_most(0.0))
    return frequencies(
        case,
        number_lab(measure, lambda: float(source.normal())),
        draws,
        looks=looks,
        spreads=lambda: calibrated(case, source, 1 / times),
        truth=0.0,
    )


def _at_the_bound_row(law: str) -> Row:
    own, known = (at_the_bound(law, one) for one in (False, True))
    return [law, *_verdicts(own), *_verdicts(known)]


def _power_row(distance: float) -> Row:
    own, known = (off_the_bound(distance, one) for one in (False, True))
    fixed = [off_the_bound(distance, one, looks=FIXED) for one in (False, True)]
    cells = [f"{distance:g}"]
    for few, eight in zip((own, known), fixed, strict=True):
        cells += [percent(few.share("holds")), f"{few.seeds:.2f}", percent(eight.share("holds"))]
    return cells


def _spread_row(times: float) -> Row:
    whole = other_spread(times, LOOKS)
    single = [other_spread(times, (look,)) for look in LOOKS]
    return [f"{times:g}", *_verdicts(whole), *(percent(one.covered) for one in single)]


# ----------------------------------------------------------------------------------------------- outcomes and rates


def ended(claim: Ends, wrong: float, again: bool = False, draws: int = DRAWS, looks: Sequence[int] = ()) -> Frequencies:
    """A claim on outcomes where each seed ends on the wrong side with that probability."""
    case = case_of(claim)
    source = generator(4, round(1000 * wrong), again, len(looks), round(1000 * (claim.rate or 0)))
    return frequencies(case, outcome_lab(source, wrong), draws, looks=looks or case.looks(), again=again)


def _outcome_row(wrong: float) -> Row:
    once, twice = (ended(converges(), wrong, again) for again in (False, True))
    eight = ended(converges(), wrong, looks=FIXED)
    cells = [f"{100 * wrong:g}", *_verdicts(once), f"{once.seeds:.2f}", *_verdicts(twice), f"{twice.seeds:.2f}"]
    return [*cells, *_verdicts(eight)]


def _rate_row(rate: float, against: float | None, true: float, draws: int) -> Row:
    found = ended(converges(rate=rate, against=against), 1 - true, draws=draws)
    name = f"{rate:g} against {against:g}" if against else f"{rate:g}, exact"
    return [name, f"{true:g}", *_verdicts(found), percent(found.share("undecided")), f"{found.seeds:.1f}"]


def session_red(session: Sequence[tuple[int, float]], sessions: int, key: int) -> float:
    """Share of sessions with a violated case.

    Args:
        session: Numbers of cases, each with the share of seeds that end on the wrong side.
        sessions: How many to simulate.
        key: Of their generator.
    """
    red = 1.0
    for index, (cases, wrong) in enumerate(session):
        source = generator(5, key, index)
        case = case_of(converges())
        draws = cases * sessions if wrong else 1  # of what never fails one says it all
        found = frequencies(case, outcome_lab(source, wrong), draws, looks=LOOKS, again=True)
        red *= (1 - found.share("violated")) ** cases
    return 1 - red


SESSIONS: tuple[tuple[str, tuple[tuple[int, float], ...]], ...] = (
    ("80 never fail, 20 in 2 %, 10 in 5 %", ((80, 0.0), (20, 0.02), (10, 0.05))),
    ("all 110 in 5 %, the most that is true", ((110, 0.05),)),
    ("100 never fail, 10 in 10 %", ((100, 0.0), (10, 0.1))),
    ("100 never fail, 10 in 20 %", ((100, 0.0), (10, 0.2))),
)
"""What a session of 110 cases may be made of."""


def _session_row(index: int, sessions: int = 1000) -> Row:
    name, session = SESSIONS[index]
    wrong = max(share for _, share in session)
    return [name, percent(session_red(session, sessions, index)), percent((1 - wrong) ** 38)]


# ------------------------------------------------------------------------------------------- orders, slopes, edges


def ordered(effect: float, spoilt: float, known: bool, draws: int = DRAWS, looks: Sequence[int] = LOOKS) -> Frequencies:
    """A claim of a factor of two on pairs that differ by it and so many deviations of a pair more."""
    measure, deviation = gradient_norm(), 0.2
    case = order_case(measure, factor=2.0)
    source = generator(6, round(10 * effect) + 100, round(100 * spoilt), known, len(looks))
    lab = pair_lab(
        source, measure, math.exp, lambda: math.log(2) + deviation * (effect + float(source.normal())), spoilt
    )
    spreads = (lambda: calibrated(case, source, deviation, log=True)) if known else None
    return frequencies(case, lab, draws, looks=looks, spreads=spreads, truth=2.0 * math.exp(deviation * effect))


def _order_row(effect: float, spoilt: float) -> Row:
    own, known = (ordered(effect, spoilt, one) for one in (False, True))
    cells = [f"{effect:+g}" if effect else "0, at the floor", f"{100 * spoilt:g}"]
    return [*cells, *_verdicts(own), f"{own.seeds:.2f}", *_verdicts(known), f"{known.seeds:.2f}"]


def sloped(true: float, of_seed: float, looks: Sequence[int], draws: int = DRAWS // 4) -> Frequencies:
    """A claim of an exponent of 2 within 0.1, on seeds whose exponents differ."""
    source = generator(7, round(100 * true), round(100 * of_seed), *looks)
    case = scaling_case(2.0, 0.1)
    return frequencies(case, slope_lab(source, true, of_seed), draws, looks=looks, truth=true)


def _slope_row(true: float, of_seed: float, looks: Sequence[int]) -> Row:
    found = sloped(true, of_seed, looks)
    cells = [f"{true:g}", f"{of_seed:g}", " ".join(map(str, looks))]
    return [*cells, percent(found.covered), percent(confidence_of(len(looks))), *_verdicts(found)]


def edged(width: float, draws: int = 300) -> Frequencies:
    """A claim that the edge is at least what it is, from a start up to a factor of seven away; none near a rung."""
    source = generator(8, round(1000 * width))
    start, whole = 1e-3, {"holds": 0, "violated": 0, "undecided": 0}
    covered, sizes = 0.0, dict[int, int]()
    for _ in range(draws):
        edge = start * math.exp(source.uniform(-2, 2))
        case = case_of(learning_rate_edge().at_least(edge))
        found = frequencies(case, edge_lab(source, edge, width), 1, truth=edge)
        covered += found.covered
        whole = {name: count + found.verdicts[name] for name, count in whole.items()}  # type: ignore[index]
        for size, count in found.sizes.items():
            sizes[size] = sizes.get(size, 0) + count
    return Frequencies(verdicts=whole, draws=draws, sizes=sizes, covered=covered / draws)  # type: ignore[arg-type]


def _edge_row(width: float) -> Row:
    found = edged(width)
    from_to = math.exp(2 * width * math.log(9))
    return [f"{width:g}", f"x{from_to:.3g}", percent(found.covered), *_verdicts(found), f"{found.seeds / 8:.1f}"]


# ----------------------------------------------------------------------------------------------------------- tables


VERDICTS = ("violated %", "holds %")
TABLES: dict[str, Rows] = {
    "false-alarms": Rows(
        ["law of the seeds", "own: violated %", "holds %", "calibrated: violated %", "holds %"],
        [partial(_at_the_bound_row, one) for one in JUDGED],
    ),
    "power": Rows(
        [
            "distance",
            "own: decided %",
            "seeds",
            "fixed 8 decided %",
            "calibrated: decided %",
            "seeds",
            "fixed 8 decided %",
        ],
        [partial(_power_row, one) for one in (0.5, 1.0, 1.5, 2.0, 3.0)],
    ),
    "spread": Rows(
        ["true over calibrated", *VERDICTS, "covers %: 3 seeds", "5 seeds", "8 seeds"],
        [partial(_spread_row, one) for one in (0.5, 1.0, 1.5, 2.0, 4.0)],
    ),
    "outcomes": Rows(
        [
            "wrong %",
            "one run: violated %",
            "holds %",
            "seeds",
            "two runs: violated %",
            "holds %",
            "seeds",
            "fixed 8: violated %",
            "holds %",
        ],
        [partial(_outcome_row, one) for one in (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.95)],
    ),
    "session": Rows(
        ["110 cases", "sessions with red %", "such a case is admitted %"],
        [partial(_session_row, one) for one in range(len(SESSIONS))],
    ),
    "rates": Rows(
        ["rate", "true rate", *VERDICTS, "undecided %", "seeds"],
        [
            partial(_rate_row, *one)
            for one in (
                (0.95, 0.8, 0.95, DRAWS),
                (0.95, 0.8, 0.8, DRAWS),
                (0.95, 0.8, 0.9, DRAWS),
                (0.95, 0.5, 0.95, DRAWS),
                (0.95, 0.5, 0.5, DRAWS),
                (0.9, None, 0.9, DRAWS // 4),
                (0.9, None, 0.99, DRAWS // 4),
            )
        ],
    ),
    "orders": Rows(
        ["effect", "spoilt %", "own: violated %", "holds %", "seeds", "calibrated: violated %", "holds %", "seeds"],
        [
            partial(_order_row, *one)
            for one in ((0.0, 0.0), (0.0, 0.05), (1.0, 0.0), (2.0, 0.0), (3.0, 0.0), (3.0, 0.05), (-2.0, 0.0))
        ],
    ),
    "slopes": Rows(
        ["true exponent", "spread over seeds", "looks", "covers %", "declared %", *VERDICTS],
        [
            partial(_slope_row, *one)
            for one in (
                (2.0, 0.0, LOOKS),
                (2.0, 0.1, LOOKS),
                (2.1, 0.1, LOOKS),
                (2.3, 0.1, LOOKS),
                (2.0, 0.1, (16,)),
                (2.1, 0.1, (16,)),
                (2.3, 0.1, (16,)),
            )
        ],
    ),
    "edges": Rows(
        ["width", "90 to 10 % trained", "covers %", *VERDICTS, "rates tried"],
        [partial(_edge_row, one) for one in (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 1.0)],
    ),
    "real": Rows(
        ["lr", "wrong %", "claim", "one run: violated %", "holds %", "seeds", "two runs: violated %", "admitted %"],
        real_rows(cases=200),
    ),
}


def main(names: list[str]) -> None:
    """Compute the named tables, or all."""
    unknown = set(names) - set(TABLES)
    if unknown:
        raise SystemExit(f"no table {', '.join(sorted(unknown))}: there are {', '.join(TABLES)}")
    for name in names or TABLES:
        started = time.monotonic()
        text = TABLES[name].text()
        print(f"{name}, in {time.monotonic() - started:.0f} s\n{text}\n", flush=True)  # noqa: T201
        publish(name, text, page=PAGE)


if __name__ == "__main__":
    main(sys.argv[1:])
