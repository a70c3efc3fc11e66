"""Everything that is kept of a case: what was asked, where, what was measured, what was found, what it cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stabilitysuite.claims.finding import Finding, Verdict, worst
from stabilitysuite.errors import RecordError
from stabilitysuite.trace import Trace

__all__ = ["FORMAT", "Record", "Status"]

FORMAT = 1
"""Version of the written form. A change that old readers would misread raises it and adds an upgrade below."""

UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""For each old version, the step that makes the next one of it."""

Status = Literal["judged", "error", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One case in one session."""

    id: str
    """``file stem/name``, unique in a session."""
    case: Mapping[str, Any]
    """The case as it was declared, in its written form."""
    digest: str
    """The case's digest."""
    sources: Mapping[str, str]
    """SHA-256 of the source file of each callable of the case, by its reference."""
    control: bool
    """Whether the control was run in place of the case."""
    status: Status
    """``judged``: findings are there; ``error``: nothing could be judged, ``message`` says why."""
    findings: tuple[Finding, ...]
    """One a claim and arm."""
    traces: tuple[Trace, ...]
    """One a run."""
    message: str
    """The error of a case that could not be judged."""
    environment: Mapping[str, Any]
    """Fingerprint of where it ran."""
    started: str
    """UTC time at which it began, ISO 8601."""
    seconds: float
    """Wall-clock seconds for everything."""
    cpu_seconds: float
    """CPU seconds of the process for everything."""
    estimated_seconds: float = 0.0
    """CPU seconds that were expected of it; 0 where it is not known."""
    file: str = ""
    """The file that declares the case, relative to pytest's rootdir, with ``/``; ``""`` where it is not known."""
    line: int = 0
    """Its line in that file, from 1; 0 where it is not known."""
    admission: str = ""
    """What calibration knows of the case, or why it does not gate; empty where no records of it are kept."""
    gates: bool = True
    """Whether a violated claim fails the session: not where calibration records are kept and none admits the case."""

    @property
    def verdict(self) -> Verdict | None:
        """The verdict that decides the case; ``None`` where nothing was judged."""
        return self.deciding.verdict if self.deciding is not None else None

    @property
    def deciding(self) -> Finding | None:
        """The finding that decides the case."""
        return worst(self.findings) if self.findings else None

    def to_json(self) -> dict[str, Any]:
        """As builtins that strict JSON can hold."""
        return {
            "format": FORMAT,
            "id": self.id,
            "case": dict(self.case),
            "digest": self.digest,
            "sources": dict(self.sources),
            "control": self.control,
            "status": self.status,
            "verdict": self.verdict,
            "findings": [finding.to_json() for finding in self.findings],
            "traces": [trace.to_json() for trace in self.traces],
            "message": self.message,
            "environment": dict(self.environment),
            "started": self.started,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "estimated_seconds": self.estimated_seconds,
            "file": self.file,
            "line": self.line,
            "admission": self.admission,
            "gates": self.gates,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Record:
        """The inverse of :meth:`to_json`, for this and every older format.

        Raises:
            RecordError: The record is newer than this version can read, or is no record.
        """
        fields = dict(data) if isinstance(data, Mapping) else {}
        version = fields.get("format")
        if not isinstance(version, int) or isinstance(version, bool):
            raise RecordError("this is no record: it has no format number")
        if version > FORMAT:
            raise RecordError(
                f"a record of format {version} was written by a newer stabilitysuite; this one reads up to {FORMAT}: "
                "upgrade it, or read the record where it was written"
            )
        try:
            while version < FORMAT:
                fields = UPGRADES[version](fields)
                version += 1
            del fields["format"], fields["verdict"]
            fields["findings"] = tuple(Finding.from_json(item) for item in fields["findings"])
            fields["traces"] = tuple(Trace.from_json(item) for item in fields["traces"])
            return cls(**fields)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordError(f"this record is not complete: {type(error).__name__}: {error}") from error
