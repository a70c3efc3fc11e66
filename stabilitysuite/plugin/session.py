"""The session: what starts it, its head, its order, and what it says at the end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from importlib.metadata import version
from types import FrameType
from typing import Any

import pytest

from stabilitysuite.case import TIERS
from stabilitysuite.errors import RecordError
from stabilitysuite.plan import estimated_seconds
from stabilitysuite.plugin.calibrating import CalibrationTable
from stabilitysuite.plugin.collect import Collection
from stabilitysuite.plugin.files import Files
from stabilitysuite.plugin.item import NEUTRAL, CaseItem
from stabilitysuite.plugin.options import check_device
from stabilitysuite.plugin.progress import progress_line
from stabilitysuite.plugin.suite import SUITE, Suite
from stabilitysuite.plugin.workers import Controller, spread
from stabilitysuite.report.row import Row
from stabilitysuite.report.terminal import run_again, styled_table
from stabilitysuite.store import unfinished

__all__ = ["start"]

NAMED = 5
"""Cases without a gate that are named; the others are counted."""
PREFIX = "stability_"
"""Of the names under which a row travels in the properties of a report."""


def start(config: pytest.Config) -> None:
    """Turn a pytest session into a stability session.

    Args:
        config: Of this process.

    Raises:
        pytest.UsageError: A setting cannot be.
    """
    suite = Suite(config)
    config.stash[SUITE] = suite
    for tier in TIERS:
        config.addinivalue_line("markers", f"{tier}: a stability case of the {tier} tier")
    config.option.continue_on_collection_errors = True
    # a file of cases may bear the name of any module, of another file of cases too
    config.option.importmode = "importlib"
    plugins = config.pluginmanager
    plugins.register(Files(config), "stabilitysuite-files")
    plugins.register(Collection(), "stabilitysuite-collection")
    plugins.register(Hooks(suite), "stabilitysuite-session")
    if suite.options.calibrate:
        plugins.register(CalibrationTable(suite), "stabilitysuite-calibration")
    if plugins.hasplugin("xdist") and not suite.is_worker:
        _prepare_xdist(config, suite)


def _prepare_xdist(config: pytest.Config, suite: Suite) -> None:
    if config.option.dist == "each":
        raise pytest.UsageError("--dist each would run every case on every worker: use -n alone")
    if config.option.maxschedchunk is None:
        config.option.maxschedchunk = 1
    config.pluginmanager.register(Controller(suite), "stabilitysuite-controller")


class Hooks:
    """pytest's hooks of one process.

    Args:
        suite: Of the session.
    """

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        self.rows: dict[str, list[Row]] = {}
        self.neutral: list[tuple[str, str]] = []
        self.amiss: list[str] = []
        self.reported: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Refuse what this machine cannot do, before anything is collected."""
        if any(session.config.getoption(name) for name in ("collectonly", "showfixtures", "show_fixtures_per_test")):
            return
        check_device(self.suite.options.device)
        try:
            assert self.suite.store
        except RecordError as error:
            raise pytest.UsageError(f"--stability-out: {error}") from error
        self.suite.line = None if self.suite.is_worker else progress_line(session.config)

    def pytest_report_header(self) -> str:
        """Version and settings."""
        return f"stabilitysuite: {version('stabilitysuite')}, {self.suite.options.words()}"

    # ------------------------------------------------------------------------------------------------- items

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out the cases of a higher tier."""
        allows = self.suite.options.allows
        out = [item for item in items if isinstance(item, CaseItem) and not allows(item.case.tier)]
        if out:
            config.hook.pytest_deselected(items=out)
            items[:] = [item for item in items if item not in out]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> Generator[None]:
        """In a worker, put the items into the order that all workers share."""
        if self.suite.is_worker:
            session.items[:] = self._shared_order(session.items)
        return (yield)

    def _shared_order(self, items: list[pytest.Item]) -> list[pytest.Item]:
        if self.suite.order:
            by_id = {item.nodeid: item for item in items}
            return [by_id[nodeid] for nodeid in self.suite.order if nodeid in by_id]
        if items and any(items[0].config.getoption(name, False) for name in ("failedfirst", "newfirst")):
            return items
        costs = [estimated_seconds(item.case) if isinstance(item, CaseItem) else 0.0 for item in items]
        return [items[index] for index in spread(costs, self.suite.workers)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Leave every random state as it was."""
        with _random_states_kept():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Correct the report of a case."""
        report = yield
        if isinstance(item, CaseItem):
            item.amend(report, call)
        return report

    # --------------------------------------------------------------------------------------------- reporting

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, Any] | None:
        """Undecided is neither passed nor skipped, and a case that does not gate not failed: they have own words."""
        if report.when != "call" or not report.skipped or hasattr(report, "wasxfail"):
            return None
        found = dict(report.user_properties)
        if found.get(f"{PREFIX}gates") is False:
            return "uncalibrated", "c", ("UNCALIBRATED", {"yellow": True})
        if found.get(f"{PREFIX}verdict") == "undecided":
            return "undecided", "u", ("UNDECIDED", {"yellow": True})
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the row of each case."""
        self.reported.add(report.nodeid)
        if report.when == "teardown" or (report.when == "setup" and report.passed):
            return
        self.neutral += [(report.nodeid, text) for name, text in report.sections if name == NEUTRAL]
        fields = {name.removeprefix(PREFIX): value for name, value in report.user_properties if name.startswith(PREFIX)}
        if fields:
            self.rows.setdefault(report.nodeid, []).append(Row.from_json(fields))

    def pytest_keyboard_interrupt(self) -> None:
        """From here on a second Ctrl-C ends the process at once: every record that was finished is on the disk."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._end_at_once)
            self.suite.config.add_cleanup(_listen_to_ctrl_c_as_ever)

    def _end_at_once(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        text = f"\ninterrupted twice: ended at once; the finished cases are in {self.suite.options.out}\n"
        with contextlib.suppress(OSError):
            os.write(2, text.encode())
        os._exit(pytest.ExitCode.INTERRUPTED)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """An item that was handed out and never came back, or a case that came twice, fails the session."""
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            counts = Counter(row.id for rows in self.rows.values() for row in rows)
            self.amiss = [f"{case_id} was reported {count} times" for case_id, count in counts.items() if count > 1]
            self.amiss += [f"never ran: {nodeid}" for nodeid in self.suite.order if nodeid not in self.reported]
            if self.amiss and not self.suite.is_worker:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """The table, what earlier sessions left unfinished, and where the records are."""
        if config.getoption("collectonly") or self.suite.is_worker:  # nobody reads what a worker writes
            return
        rows = [row for found in self.rows.values() for row in found]
        left = self._left_by_earlier_sessions()
        if not rows and not left and not self.amiss:
            return
        self._explain_neutral(terminalreporter)
        terminalreporter.section("stability")
        if rows:
            for line in styled_table(rows, width=config.get_terminal_writer().fullwidth):
                terminalreporter.write_line(line.text, **({line.style: True} if line.style else {}))
        for text in (*_without_gate(rows), *run_again(rows), *self.amiss, *left):
            terminalreporter.write_line(text, yellow=True)
        terminalreporter.write_line(f"records: {self.suite.options.out}")

    def _explain_neutral(self, terminalreporter: pytest.TerminalReporter) -> None:
        """What pytest has no section for: a case that is neither passed nor failed needs its evidence too."""
        if self.neutral:
            terminalreporter.section("NEITHER PASSED NOR FAILED")
        for nodeid, text in self.neutral:
            terminalreporter.section(nodeid.rpartition("::")[2], "_", yellow=True, bold=True)
            terminalreporter.write_line(text)

    def _left_by_earlier_sessions(self) -> list[str]:
        said: list[str] = []
        try:
            for one in unfinished(self.suite.options.out, but=self.suite.session):
                said.append(f"never finished: {one.id}, started {one.started} in session {one.session}")
                self.suite.store.noted(one)
        except RecordError as error:
            said.append(str(error))
        return said


def _listen_to_ctrl_c_as_ever() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _without_gate(rows: Sequence[Row]) -> list[str]:
    """Which cases do not gate; a pass of theirs must not be taken for one that counts."""
    names = sorted(row.id for row in rows if not row.gates)
    if not names:
        return []
    shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    return [f"not admitted by a calibration record, so not gating: {shown} (stabilitysuite calibrate)"]


@contextlib.contextmanager
def _random_states_kept() -> Iterator[None]:
    """Restore the global generators of random, and of numpy and torch where they are loaded already."""
    state = random.getstate()
    with contextlib.ExitStack() as stack:
        stack.callback(random.setstate, state)
        if "torch" in sys.modules:
            from stabilitysuite.lab.randomness import preserved

            stack.enter_context(preserved())
        elif numpy := sys.modules.get("numpy"):
            stack.callback(numpy.random.set_state, numpy.random.get_state())
        yield
