"""One Case as a pytest item: measured and judged in ``setup``, told in ``runtest``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from stabilitysuite.case import Case
from stabilitysuite.plugin.measure import measure, words
from stabilitysuite.plugin.suite import SUITE
from stabilitysuite.plugin.words import reproduce, user_frames
from stabilitysuite.record import Record
from stabilitysuite.report.explain import explanation
from stabilitysuite.report.row import Row

__all__ = ["NEUTRAL", "CaseItem", "ClaimFailed"]


NEUTRAL = "stability: neutral"
"""Section of a report that carries the explanation of a case that neither passed nor failed."""


class ClaimFailed(Exception):  # noqa: N818 -- a finding, not an error
    """The claim of a case does not hold, or its control was not caught; its text is the whole report."""


class CaseItem(pytest.Item):
    """One case of a stability file.

    ``setup`` measures and judges: what goes wrong there is an error. ``runtest`` only tells what was found,
    so that a failure always is the claim's.
    """

    def __init__(self, *, case: Case, case_id: str, **node: Any) -> None:
        super().__init__(**node)
        self.case = case
        self.case_id = case_id
        self.record: Record | None = None
        try:
            for mark in (*case.marks, case.tier):
                self.add_marker(mark)
        except ValueError as error:
            raise pytest.Collector.CollectError(
                f"{self.nodeid}: marks takes pytest marks, such as pytest.mark.xfail(strict=True): {error}"
            ) from error

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """File, line from 0, and name."""
        return self.path, self.line - 1, self.name

    @property
    def line(self) -> int:
        """Line that declares the case, from 1; the first where the file only called what built it."""
        return self.case.built_at if Path(self.case.built_in) == self.path else 1

    def setup(self) -> None:
        """Measure and judge.

        Raises:
            StabilityError: There is nothing to judge.
        """
        suite = self.config.stash[SUITE]
        place = (self.nodeid.partition("::")[0], self.line)
        with suite.watching(self.case_id) as watch:
            self.record, trouble = measure(self.case, self.case_id, place, suite.options, suite.store, watch, self.path)
        row = Row.of(self.record, reproduce=self.command(self.record))
        self.user_properties += [(f"stability_{name}", value) for name, value in row.to_json().items()]
        if trouble is not None:
            raise trouble

    def runtest(self) -> None:
        """Say what was found.

        Raises:
            ClaimFailed: The claim is violated, is undecided where that fails, or the control was not caught.
            Skipped: The claim is undecided, and that is neutral; or it does not hold in a case that does not gate.
        """
        assert self.record is not None
        deciding = self.record.deciding
        assert deciding is not None
        suite = self.config.stash[SUITE]
        text = explanation(self.record, reproduce=self.command(self.record))
        if suite.options.controls:
            if deciding.verdict != "violated":
                raise ClaimFailed(f"not caught: {text}")
        elif not self.record.gates and deciding.verdict != "holds":
            raise pytest.skip.Exception(f"{deciding.sentence()}; {self.record.admission}")
        elif deciding.verdict == "violated" or (deciding.verdict == "undecided" and suite.options.undecided == "fail"):
            raise ClaimFailed(text)
        elif deciding.verdict == "undecided":
            raise pytest.skip.Exception(deciding.sentence())

    def command(self, record: Record) -> str:
        """The command that runs the deciding seed again."""
        here = os.path.relpath(self.path, self.config.invocation_params.dir)
        nodeid = f"{Path(here).as_posix()}::{self.name}"
        return reproduce(nodeid, self.case.tier, self.config.stash[SUITE].options, record)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """What a person reads: plain text, the same serial, from a worker and in JUnit."""
        del style
        if isinstance(excinfo.value, ClaimFailed):
            return str(excinfo.value)
        frames = user_frames(excinfo.value, whole=bool(self.config.getoption("fulltrace")))
        if self.record is None:
            return f"{words(excinfo.value)}\n{frames}".rstrip()
        text = explanation(self.record, reproduce=self.command(self.record))
        return f"{text}\n{frames}".rstrip()

    def amend(self, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
        """Correct what pytest says of an item that measures in its setup.

        Args:
            report: What pytest made of the phase.
            call: The phase.
        """
        if call.excinfo is None:
            return
        error = call.excinfo.value
        if isinstance(error, pytest.skip.Exception):
            if report.when == "call":
                report.longrepr = (str(self.path), self.line, str(error))
                if self.record is not None and self.record.verdict is not None:
                    text = explanation(self.record, reproduce=self.command(self.record))
                    report.sections.append((NEUTRAL, text))
        elif report.when == "setup" and not isinstance(error, pytest.xfail.Exception):
            # xfail expects a violated claim; a case that could not be measured shows nothing of the kind
            report.outcome = "failed"
            vars(report).pop("wasxfail", None)
            report.longrepr = self.repr_failure(call.excinfo)
