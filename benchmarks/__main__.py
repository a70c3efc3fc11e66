"""``python -m benchmarks [NAME ...]``: print the tables and put them into docs/benchmarks.md."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch

from benchmarks.growth import growth
from benchmarks.measure import publish, where
from benchmarks.memory import memory
from benchmarks.overhead import overhead
from benchmarks.seeds import seeds_in_one_pass
from benchmarks.startup import startup
from benchmarks.verdict import verdict

TABLES: dict[str, Callable[[], str]] = {
    "overhead": overhead,
    "seeds": seeds_in_one_pass,
    "startup": startup,
    "growth": growth,
    "memory": memory,
    "verdict": verdict,
}


def main(names: list[str]) -> None:
    """Measure the named tables, or all."""
    unknown = set(names) - set(TABLES)
    if unknown:
        raise SystemExit(f"no table {', '.join(sorted(unknown))}: there are {', '.join(TABLES)}")
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    for name in names or TABLES:
        started = time.monotonic()
        text = f"{TABLES[name]()}\n{where()}"
        print(f"{name}, measured in {time.monotonic() - started:.0f} s\n{text}\n", flush=True)  # noqa: T201
        publish(name, text)


if __name__ == "__main__":
    main(sys.argv[1:])
