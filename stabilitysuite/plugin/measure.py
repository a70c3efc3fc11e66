"""One case, from its plan to its record: the story of an item, without pytest."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stabilitysuite.calibration import gate, moved, needs_calibration
from stabilitysuite.case import Case
from stabilitysuite.catalogue import read_calibration
from stabilitysuite.claims.finding import Finding
from stabilitysuite.claims.look import Spread
from stabilitysuite.errors import DeclarationError, RecordError, StabilityError
from stabilitysuite.plan import Plan, estimated_seconds
from stabilitysuite.plugin.options import Options
from stabilitysuite.plugin.warned import hand_on
from stabilitysuite.plugin.words import quoted
from stabilitysuite.record import Record, Status
from stabilitysuite.settle import settle
from stabilitysuite.store import Session, now
from stabilitysuite.trace import Trace

if TYPE_CHECKING:
    from stabilitysuite.lab.train import Progress
    from stabilitysuite.lab.warned import Warned

__all__ = ["Admission", "Watch", "admitted", "looks_of", "measure", "words"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What calibration says of a case."""

    words: str = ""
    """In one sentence; empty where no records are kept."""
    gates: bool = True
    """Whether a violated claim fails the session."""
    spreads: Mapping[tuple[str, str], Spread] = field(default_factory=dict)
    """How its numbers differ from seed to seed, by arm and claim."""


Watch = Callable[[Plan], "Callable[[Progress], None]"]
"""Given the plan that is about to run, what to call at each step."""


def looks_of(case: Case, options: Options) -> tuple[int, ...]:
    """At how many seeds a case is judged: its own numbers, unless the session names how many or which.

    Raises:
        DeclarationError: The control is asked for and there is none.
    """
    if options.controls and case.control is None:
        raise DeclarationError(
            f"{case.says!r} has no control=, so nothing proves that it can fail: "
            "declare the smallest change that breaks it"
        )
    if options.seed:
        return (len(options.seed),)
    return (options.seeds,) if options.seeds else case.looks()


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
    traces: list[Trace] = []
    findings: tuple[Finding, ...] = ()
    surroundings: Mapping[str, Any] = {}
    hashes: dict[str, str] = {}
    trouble: BaseException | None = None
    admission, expected = Admission(), 0.0
    warned: list[Warned] = []
    # Warnings of the training are noted by the lab; all others are none of the user's concern.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started, wall, cpu = _clocks()
        try:
            store.started(case_id)  # before anything that may never come back
            from stabilitysuite.lab.environment import fingerprint, sources

            train, once_more = (_trainer(options, watch, traces, warned) for _ in range(2))
            started, wall, cpu = _clocks()  # once more: the first import takes seconds that are not the case's
            surroundings = fingerprint(options.device, options.threads)
            admission = admitted(case, case_id, place[0], options, surroundings)
            looks = looks_of(case, options)
            expected = round(estimated_seconds(case, seeds=looks[0]), 1)
            hashes = sources(case)
            findings = settle(
                case,
                train,
                looks=looks,
                seeds=options.seed or None,
                control=options.controls,
                spreads=admission.spreads,
                again=once_more if admission.gates and not options.controls and not options.seed else None,
            )
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
        estimated_seconds=expected,
        file=place[0],
        line=place[1],
        admission=admission.words,
        gates=admission.gates,
    )
    try:
        store.record(record)
    except RecordError as error:  # the folder is full or gone: the case is an error, and has a row all the same
        trouble = error
        record = dataclasses.replace(record, status="error", findings=(), message=str(error))
    return record, trouble


def _trainer(
    options: Options, watch: Watch | None, traces: list[Trace], warned: list[Warned]
) -> Callable[[Plan], Sequence[Trace]]:
    """What carries out the plans of a case, within one budget from its first plan on, and keeps what they left."""
    from stabilitysuite.lab.train import run

    ends: float | None = None

    def train(decided: Plan) -> Sequence[Trace]:
        nonlocal ends
        if ends is None and options.budget is not None:
            ends = time.monotonic() + options.budget
        found = run(
            decided.runs,
            device=options.device,
            threads=options.threads,
            budget=None if ends is None else ends - time.monotonic(),
            progress=watch(decided) if watch else None,
            warned=warned.append,
        )
        traces.extend(found)
        return found

    return train


def admitted(case: Case, case_id: str, file: str, options: Options, here: Mapping[str, Any]) -> Admission:
    """What the kept calibration records say of a case; nothing where none are kept.

    Args:
        case: The case.
        case_id: Its id.
        file: File that declares it, relative to rootdir.
        options: The settings of the session.
        here: Fingerprint of where it runs.

    Raises:
        RecordError: Its record cannot be read.
    """
    if options.calibration is None:
        return Admission()
    calibration = read_calibration(options.calibration, case_id)
    reason = gate(case, calibration)
    spreads = calibration.spreads() if calibration is not None and calibration.digest == case.digest() else {}
    if options.controls:
        return Admission(spreads=spreads)
    if not needs_calibration(case):
        return Admission(words="it needs no calibration: its claim counts its own seeds")
    if not reason:
        assert calibration is not None
        elsewhere = moved(calibration.environment, here)
        first = f"environment first: {elsewhere} since it was calibrated; " if elsewhere else ""
        return Admission(words=first + calibration.words(), spreads=spreads)
    nodeid = f"{file}::{case_id.partition('/')[2]}"
    command = f"stabilitysuite calibrate {quoted(nodeid)}"
    command += f" --stability-tier {case.tier}" if case.tier != "quick" else ""
    return Admission(words=f"it does not gate: {reason}; to calibrate it: {command}", gates=False, spreads=spreads)


def _clocks() -> tuple[str, float, float]:
    return now(), time.perf_counter(), time.process_time()


def words(trouble: BaseException) -> str:
    """An error in words: our own say it all, others need their kind."""
    return str(trouble) if isinstance(trouble, StabilityError) else f"{type(trouble).__name__}: {trouble}"


def _status(trouble: BaseException | None) -> Status:
    if trouble is None:
        return "judged"
    return "skipped" if isinstance(trouble, pytest.skip.Exception) else "error"
