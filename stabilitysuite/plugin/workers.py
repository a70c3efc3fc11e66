"""Several processes: what the controller hands to its workers, and what it does when one dies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import pytest

from stabilitysuite.errors import MeasurementError
from stabilitysuite.plugin.suite import Suite
from stabilitysuite.record import Record
from stabilitysuite.report.row import Row
from stabilitysuite.store import now, unfinished

__all__ = ["Controller", "spread"]


def spread(costs: Sequence[float], workers: int) -> list[int]:
    """The order in which items are handed out, longest first, as positions in ``costs``.

    xdist starts each worker with two neighbours and keeps one waiting behind the one that runs. So the
    longest open the workers' lists, the shortest wait behind them, and the rest follows, longest first.

    Args:
        costs: Seconds that each item is expected to take.
        workers: Number of workers.
    """
    longest = sorted(range(len(costs)), key=lambda index: (-costs[index], index))
    if workers < 2 or len(longest) <= 2 * workers:
        return longest
    heads, rest, short = longest[:workers], longest[workers:-workers], longest[-workers:]
    pairs = [index for pair in zip(heads, reversed(short), strict=True) for index in pair]
    return pairs + rest


class Controller:
    """The hooks of the process that hands out the items.

    Args:
        suite: Of the session.
    """

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        self.workers = 0

    def pytest_xdist_setupnodes(self, specs: Sequence[Any]) -> None:
        """Before a worker's Python starts: its share of the cores, and one of the caller's cards."""
        self.workers = len(specs)
        for spec in specs:
            spec.env["OMP_NUM_THREADS"] = str(self.suite.options.threads)
        if self.suite.options.device == "cuda":
            cards = _cards()
            for index, spec in enumerate(specs):
                spec.env["CUDA_VISIBLE_DEVICES"] = cards[index % len(cards)]

    def pytest_configure_node(self, node: Any) -> None:
        """Hand over what all workers, late ones too, must agree on."""
        node.workerinput["stability"] = {
            "session": self.suite.session,
            "workers": self.workers,
            "order": self.suite.order,
        }

    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Keep the first worker's selection and order for the workers that replace dead ones."""
        if not self.suite.order:
            self.suite.order = [str(one) for one in ids]

    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """A worker died: write the record that it could not write, and call it an error, not a failure."""
        report.when = "setup"
        node = getattr(report, "node", None)
        name = node.gateway.id if node is not None else "a worker"
        message = (
            f"{crashitem}: {name} died while it ran this (killed by the system, often for memory, or a crash "
            "in native code): nothing was judged"
        )
        report.longrepr = message
        file, _, rest = crashitem.partition("::")
        case_id = f"{PurePosixPath(file).stem}/{rest}"
        begun = unfinished(self.suite.options.out, ended=True)
        if not any(one.id == case_id and one.session == self.suite.session for one in begun):
            return  # a test function, which leaves no record
        record = Record(
            id=case_id,
            case={},
            digest="",
            sources={},
            control=self.suite.options.controls,
            status="error",
            findings=(),
            traces=(),
            message=message,
            environment={},
            started=now(),
            seconds=0.0,
            cpu_seconds=0.0,
            file=file,
        )
        self.suite.store.record(record)
        row = Row.of(record)
        report.user_properties += [(f"stability_{key}", value) for key, value in row.to_json().items()]


def _cards() -> list[str]:
    """The names of the caller's cards, as CUDA_VISIBLE_DEVICES spells them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        return [name.strip() for name in visible.split(",") if name.strip()]
    from stabilitysuite.lab.train import usable_device

    cards: list[str] = []
    while True:
        try:
            usable_device(f"cuda:{len(cards)}")
        except MeasurementError:
            return cards
        cards.append(str(len(cards)))
