"""``--stability-calibrate``: an item runs the calibration of its case in place of the case."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Sequence

import pytest

from stabilitysuite.calibrate import calibrate, rounds, seeds_of
from stabilitysuite.calibration import Calibration, percent
from stabilitysuite.case import Case
from stabilitysuite.catalogue import write_calibration
from stabilitysuite.plan import Plan
from stabilitysuite.plugin.item import CaseItem, ClaimFailed
from stabilitysuite.plugin.measure import Watch
from stabilitysuite.plugin.options import Options
from stabilitysuite.plugin.suite import SUITE, Suite
from stabilitysuite.report.admission import AdmissionRow, admission_table, sight_table
from stabilitysuite.sight import POWER
from stabilitysuite.store import now
from stabilitysuite.trace import Trace

__all__ = ["CalibrationItem", "CalibrationTable", "calibrated"]

PREFIX = "calibration_"
"""Of the names under which a row travels in the properties of a report."""


def calibrated(case: Case, case_id: str, options: Options, watch: Watch | None) -> Calibration:
    """Calibrate a case.

    Args:
        case: The case.
        case_id: Its id.
        options: The settings of the session.
        watch: Shows where the run is, or ``None``.

    Raises:
        StabilityError: There is nothing to count.
    """
    from stabilitysuite.lab.environment import fingerprint
    from stabilitysuite.lab.train import run

    started, cpu = now(), time.process_time()
    todo = rounds(case, seeds=options.calibration_seeds or seeds_of(case), factor=options.calibration_factor)
    progress = None
    if watch is not None:  # one line for all rounds, so that the time left is that of the whole
        seeds = tuple(seed for one in todo for seed in one.plan.seeds)
        whole = tuple(single for one in todo for single in one.plan.runs)
        progress = watch(Plan(case=case, seeds=seeds, runs=whole))

    def train(one: Plan) -> Sequence[Trace]:
        # the budget is of a case on its own seeds, and a round may have more of them
        share = max(1.0, len(one.seeds) / case.looks()[0])
        budget = None if options.budget is None else options.budget * share
        return run(one.runs, device=options.device, threads=options.threads, budget=budget, progress=progress)

    found = calibrate(
        case,
        case_id,
        todo,
        train,
        factor=options.calibration_factor,
        environment=fingerprint(options.device, options.threads),
        started=started,
    )
    return dataclasses.replace(found, cpu_seconds=time.process_time() - cpu)


class CalibrationItem(CaseItem):
    """The calibration of one case: passed where the case is admitted."""

    calibration: Calibration

    def setup(self) -> None:
        """Calibrate, and write the record.

        Raises:
            StabilityError: There is nothing to count, or the record cannot be written.
        """
        suite = self.config.stash[SUITE]
        assert suite.options.calibration is not None
        with suite.watching(self.case_id) as watch, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the user's training; none is the calibration's concern
            self.calibration = calibrated(self.case, self.case_id, suite.options, watch)
        write_calibration(suite.options.calibration, self.calibration)
        row = AdmissionRow.of(self.calibration, self.case)
        self.user_properties += [(f"{PREFIX}{name}", value) for name, value in row.to_json().items()]

    def runtest(self) -> None:
        """Say whether it was admitted.

        Raises:
            ClaimFailed: It was not.
        """
        if not self.calibration.admitted:
            raise ClaimFailed(f"{self.case_id} is not admitted: {self.calibration.reason}")


class CalibrationTable:
    """The hooks that gather the calibrations of a session and say what came of them.

    Args:
        suite: Of the session.
    """

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        self.rows: list[AdmissionRow] = []

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out test functions: they claim nothing that could be calibrated."""
        out = [item for item in items if not isinstance(item, CalibrationItem)]
        if out:
            config.hook.pytest_deselected(items=out)
            items[:] = [item for item in items if isinstance(item, CalibrationItem)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the row of each case."""
        fields = {name.removeprefix(PREFIX): value for name, value in report.user_properties if name.startswith(PREFIX)}
        if fields and report.when == "call":
            self.rows.append(AdmissionRow.from_json(fields))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table, and where the records are."""
        if not self.rows:
            return
        terminalreporter.section("calibration")
        for line in admission_table(self.rows):
            terminalreporter.write_line(line.text, **({line.style: True} if line.style else {}))
        seen = sight_table(self.rows)
        if seen:
            terminalreporter.write_line("")
            terminalreporter.write_line(f"what they see with all their seeds, {percent(POWER)} of the time:")
            for line in seen:
                terminalreporter.write_line(line.text)
        terminalreporter.write_line(f"calibration records: {self.suite.options.calibration}")
