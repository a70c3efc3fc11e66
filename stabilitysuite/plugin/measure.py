"""One case, from its plan to its record: the story of an item, without pytest."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stabilitysuite.calibration import gate
from stabilitysuite.case import Case
from stabilitysuite.catalogue import read_calibration
from stabilitysuite.claims.finding import Finding
from stabilitysuite.errors import DeclarationError, RecordError, StabilityError
from stabilitysuite.judge import judge
from stabilitysuite.plan import Plan, gate_seeds, plan
from stabilitysuite.plugin.options import Options
from stabilitysuite.plugin.warned import hand_on
from stabilitysuite.plugin.words import quoted
from stabilitysuite.record import Record, Status
from stabilitysuite.store import Session, now
from stabilitysuite.trace import Trace

if TYPE_CHECKING:
    from stabilitysuite.lab.train import Progress
    from stabilitysuite.lab.warned import Warned

__all__ = ["Watch", "admitted", "measure", "planned", "words"]

Watch = Callable[[Plan], "Callable[[Progress], None]"]
"""Given the plan that is about to run, what to call at each step."""


def planned(case: Case, options: Options) -> Plan:
    """The plan of a case, with the seeds and the control that were asked for.

    Raises:
        DeclarationError: The control is asked for and there is none.
    """
    if options.controls and case.control is None:
        raise DeclarationError(
            f"{case.says!r} has no control=, so nothing proves that it can fail: "
            "declare the smallest change that breaks it"
        )
    seeds = gate_seeds(case, options.seeds) if options.seeds else options.seed or None
    return plan(case, seeds=seeds, control=options.controls)


def measure(
    case: Case,
    case_id: str,
    place: tuple[str, int],
    options: Options,
    store: Session,
    watch: Watch | None,
    path: Path,
) -> tuple[Record, BaseException | None]:
    """Run a case, judge it and write its record down, whatever happens.

    Args:
        case: What is asked.
        case_id: Its id.
        place: File, relative to rootdir, and line that declare it.
        options: The settings of the session.
        store: Where the record goes.
        watch: Shows where the run is, or ``None``.
        path: The file that declares it.

    Returns:
        The record, and what went wrong where the case could not be judged.
    """
    traces: Sequence[Trace] = ()
    findings: tuple[Finding, ...] = ()
    surroundings: Mapping[str, Any] = {}
    hashes: dict[str, str] = {}
    trouble: BaseException | None = None
    admission, gates = "", True
    warned: list[Warned] = []
    # Warnings of the training are noted by the lab; all others are none of the user's concern.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started, wall, cpu = _clocks()
        try:
            store.started(case_id)  # before anything that may never come back
            from stabilitysuite.lab.environment import fingerprint, sources
            from stabilitysuite.lab.train import run

            started, wall, cpu = _clocks()  # once more: the first import takes seconds that are not the case's
            admission, gates = admitted(case, case_id, place[0], options)
            decided = planned(case, options)
            surroundings = fingerprint(options.device, options.threads)
            hashes = sources(case)
            traces = run(
                decided.runs,
                device=options.device,
                threads=options.threads,
                budget=options.budget,
                progress=watch(decided) if watch else None,
                warned=warned.append,
            )
            findings = judge(case, traces)
        except (KeyboardInterrupt, pytest.exit.Exception):
            raise
        except BaseException as error:  # noqa: BLE001 -- the caller raises it, after the record is written
            trouble = error
    refused = hand_on(warned, traces, path, place[1])
    if refused is not None and trouble is None:
        trouble, findings = refused, ()
    record = Record(
        id=case_id,
        case=case.to_json(),
        digest=case.digest(),
        sources=hashes,
        control=options.controls,
        status=_status(trouble),
        findings=findings,
        traces=tuple(traces),
        message=words(trouble) if trouble else "",
        environment=surroundings,
        started=started,
        seconds=time.perf_counter() - wall,
        cpu_seconds=time.process_time() - cpu,
        file=place[0],
        line=place[1],
        admission=admission,
        gates=gates,
    )
    try:
        store.record(record)
    except RecordError as error:  # the folder is full or gone: the case is an error, and has a row all the same
        trouble = error
        record = dataclasses.replace(record, status="error", findings=(), message=str(error))
    return record, trouble


def admitted(case: Case, case_id: str, file: str, options: Options) -> tuple[str, bool]:
    """What the kept calibration records say of a case, and whether it gates; nothing where none are kept.

    Args:
        case: The case.
        case_id: Its id.
        file: File that declares it, relative to rootdir.
        options: The settings of the session.

    Raises:
        RecordError: Its record cannot be read.
    """
    if options.calibration is None or options.controls:
        return "", True
    calibration = read_calibration(options.calibration, case_id)
    reason = gate(case, calibration)
    if not reason:
        assert calibration is not None
        return calibration.words(), True
    nodeid = f"{file}::{case_id.partition('/')[2]}"
    command = f"stabilitysuite calibrate {quoted(nodeid)}"
    command += f" --stability-tier {case.tier}" if case.tier != "quick" else ""
    return f"it does not gate: {reason}; to calibrate it: {command}", False


def _clocks() -> tuple[str, float, float]:
    return now(), time.perf_counter(), time.process_time()


def words(trouble: BaseException) -> str:
    """An error in words: our own say it all, others need their kind."""
    return str(trouble) if isinstance(trouble, StabilityError) else f"{type(trouble).__name__}: {trouble}"


def _status(trouble: BaseException | None) -> Status:
    if trouble is None:
        return "judged"
    return "skipped" if isinstance(trouble, pytest.skip.Exception) else "error"
