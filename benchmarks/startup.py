"""What the installed plugin adds to every start of pytest that does not ask for it."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable

from benchmarks.measure import child, interleaved, table

__all__ = ["startup"]

GOAL = 10.0


def startup(turns: int = 25) -> str:
    """CPU milliseconds of an empty collection in an empty folder, with and without the plugin."""
    with tempfile.TemporaryDirectory() as folder:

        def start(*args: str) -> Callable[[], float]:
            command = [sys.executable, "-c", COLLECT, "-q", "-p", "no:cacheprovider", *args]
            return lambda: child(command, folder)[0]

        found = interleaved({"without": start("-p", "no:stabilitysuite"), "idle": start()}, turns)
    added = sorted(1e3 * (one - other) for one, other in zip(found["idle"], found["without"], strict=True))
    quarter = len(added) // 4
    row = [
        f"{1e3 * statistics.median(found['without']):.0f}",
        f"{1e3 * statistics.median(found['idle']):.0f}",
        f"{statistics.median(added):+.1f}",
        f"{added[quarter]:+.1f} to {added[-1 - quarter]:+.1f}",
        f"{1e3 * (min(found['idle']) - min(found['without'])):+.1f}",
        f"{GOAL:.0f}",
    ]
    return table(["without, ms", "with it idle, ms", "more, ms", "middle half", "best of each, ms", "goal"], [row])


COLLECT = "import sys, pytest; code = pytest.main(sys.argv[1:]); sys.exit(0 if code == 5 else code)"
"""Nothing to collect is what is wanted here: exit code 5 is well."""
