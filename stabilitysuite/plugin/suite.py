"""What belongs to one session in one process, kept in the config's stash."""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from stabilitysuite.plugin.options import Options
from stabilitysuite.plugin.progress import ProgressLine
from stabilitysuite.store import Session

if TYPE_CHECKING:
    from stabilitysuite.plugin.measure import Watch

__all__ = ["SUITE", "Suite"]


class Suite:
    """The settings, the session's identity and its folder.

    Args:
        config: Of this process.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.options = Options.of(config)
        handed: dict[str, Any] = getattr(config, "workerinput", {}).get("stability", {})
        self.session: str = handed.get("session") or _new_session()
        self.worker: str = getattr(config, "workerinput", {}).get("workerid", "main")
        self.workers: int = handed.get("workers", 0)
        self.order: list[str] = handed.get("order", [])
        self.line: ProgressLine | None = None

    @property
    def is_worker(self) -> bool:
        """Whether this process is an xdist worker."""
        return self.workers > 0

    @functools.cached_property
    def store(self) -> Session:
        """This process's part of the session folder."""
        return Session(self.options.out, self.session, self.worker)

    @contextlib.contextmanager
    def watching(self, case_id: str) -> Iterator[Watch | None]:
        """What shows where a case is, if somebody is looking; nothing of it is left afterwards."""
        if self.line is None:
            yield None
            return
        try:
            yield functools.partial(self.line.watch, case_id)
        finally:
            self.line.erase()


def _new_session() -> str:
    """A name that sorts by time and that no other session has."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


SUITE = pytest.StashKey[Suite]()
