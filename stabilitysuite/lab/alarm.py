"""The end of the time budget for code that does not come back: a step, a factory or an iterator that hangs.

A run looks at the clock after each step. What hangs never gets there, so the system's interval timer rings a little
later and raises in the middle of it, where there is such a timer and this is the main thread, to which Python hands
signals. The main thread of an xdist worker is the one that runs its tests. One call into native code that never
returns cannot be ended this way.
"""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from stabilitysuite.lab.frames import place, users

__all__ = ["Alarm", "OutOfTime"]

GRACE = 0.5
"""Seconds beyond the deadline: steps that do come back end their run themselves, between two of them."""
AGAIN = 1.0
"""Seconds to the next ring: the first may fall where Python only prints an exception, or a bare except eats it."""


class OutOfTime(BaseException):
    """The time budget is spent; no ``except Exception`` of the user's training may swallow that.

    Args:
        place: Where the user's code was interrupted; empty between two steps.
    """

    def __init__(self, place: str = "") -> None:
        super().__init__(place)
        self.place = place


class Alarm:
    """Raises :class:`OutOfTime` in a block that runs beyond a deadline, and leaves the timer as it was.

    Where somebody else's alarm is due before, it is theirs to ring: nothing is set.

    Args:
        deadline: By ``time.monotonic``; ``None`` for no limit.
    """

    def __init__(self, deadline: float | None) -> None:
        self.deadline = deadline
        self.place: str | None = None
        """Where it rang first; ``None`` if it did not."""
        self._armed = False
        self._handler: Any = None
        self._earlier = (0.0, 0.0)
        self._since = 0.0

    def __enter__(self) -> Alarm:
        if self.deadline is None or not _usable():
            return self
        wait = max(self.deadline - time.monotonic(), 0.0) + GRACE
        theirs, _ = signal.getitimer(signal.ITIMER_REAL)
        if 0 < theirs <= wait:
            return self
        self._handler = signal.signal(signal.SIGALRM, self._ring)
        self._since = time.monotonic()
        self._armed = True
        self._earlier = signal.setitimer(signal.ITIMER_REAL, wait, AGAIN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._armed:
            return
        self._armed = False  # from here on a late ring does nothing
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._handler)
        left, interval = self._earlier
        if left:
            spent = time.monotonic() - self._since
            signal.setitimer(signal.ITIMER_REAL, max(left - spent, 1e-6), interval)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        del number
        if not self._armed or (frame is not None and frame.f_code in _OWN):
            return
        if self.place is None:
            own = users(frame)
            self.place = place(own) if own is not None else ""
        raise OutOfTime(self.place)


_OWN = (Alarm.__enter__.__code__, Alarm.__exit__.__code__)
"""An exception raised inside these would leave the timer running."""


def _usable() -> bool:
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return False
    return signal.getsignal(signal.SIGALRM) is not None  # one that was set outside of Python could not be restored
