"""Peak memory of a worker on the quick case that needs most of it."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import child, table
from stabilitysuite.case import Case
from stabilitysuite.plan import plan
from stabilitysuite.spec import GAU, Run, Transformer

__all__ = ["memory", "train_briefly"]

ROOT = Path(__file__).parents[1]
GOAL = 2048
STEPS = 3
"""A step needs what the next one needs; all the rest of a run is its series, which are small."""


def memory(count: int = 3) -> str:
    """Peak resident memory of a process that trains the arm of a case, for the cases estimated heaviest."""
    heaviest = sorted(_arms(), key=lambda one: -_numbers(one[1]))
    names = list(dict.fromkeys(name for name, _ in heaviest))[:count]
    rows = []
    for name in names:
        arm = next(runs[0] for known, runs in heaviest if known == name)
        _, said = child([sys.executable, "-m", "benchmarks.memory", name], ROOT)
        peak = float(said.split()[-1])
        model = arm.training.model
        shape = f"{getattr(model, 'layers', '?')} x {getattr(model, 'width', '?')}"
        rows.append([name, shape, f"{peak:.0f}", str(GOAL)])
    return table(["case", "layers x width", "peak MiB", "goal"], rows)


def _cases() -> Iterator[tuple[str, Case]]:
    for path in sorted((ROOT / "cases").glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"cases_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        for name, value in vars(module).items():
            if isinstance(value, Case) and not name.startswith("_") and value.tier == "quick":
                yield f"{path.stem}/{name}", value


def _arms() -> list[tuple[str, list[Run]]]:
    """The runs of each arm of each quick case."""
    found: list[tuple[str, list[Run]]] = []
    for name, case in _cases():
        arms: dict[str, list[Run]] = {}
        for run in plan(case).runs:
            arms.setdefault(run.arm, []).append(run)
        found += [(name, runs) for runs in arms.values()]
    return found


def _numbers(runs: list[Run]) -> int:
    """Roughly how many numbers an arm keeps: weights four times, activations about thirty a token and width."""
    model, task = runs[0].training.model, runs[0].training.task
    if not isinstance(model, Transformer | GAU):
        return 0
    tokens = getattr(task, "batch", 16) * getattr(task, "length", getattr(task, "tokens", 16))
    return len(runs) * max(model.layers, 1) * (4 * 12 * model.width**2 + 30 * tokens * model.width)


def train_briefly(name: str) -> None:
    """A few steps of the heaviest arm of that case, all its seeds."""
    from stabilitysuite.lab.train import run  # as a worker does: torch only now

    runs = max((runs for known, runs in _arms() if known == name), key=_numbers)
    run([_shortened(one) for one in runs])


def _shortened(run: Run) -> Run:
    steps = min(run.training.steps, STEPS)
    return dataclasses.replace(run, training=dataclasses.replace(run.training, steps=steps), judge_at=(steps,))


def _peak() -> float:
    """Peak resident MiB of this process; ``ru_maxrss`` would begin with that of the one that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    train_briefly(sys.argv[1])
    print(_peak())  # noqa: T201
