"""What only a card can show, in one JSON object within eight minutes; on the CPU what can be shown there.

Each check stands alone: what it raises is written down and the next one runs. ``passed`` is true, false, or null
where a check could not run; the exit status is 0 when every check that could run passed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stabilitysuite.lab.environment import fingerprint
from stabilitysuite.lab.loop import Loop
from stabilitysuite.lab.subject import ZooSubject, make_subject
from stabilitysuite.lab.train import conditions, run
from stabilitysuite.plan import ALWAYS
from stabilitysuite.quantity import QUANTITIES
from stabilitysuite.spec import Adam, AdamW, Markov, Run, Training, Transformer, Xavier
from stabilitysuite.trace import TROUBLE, Trace

LIMIT = 460.0
"""Wall-clock seconds for everything."""
FIRST_STEPS = 10
"""Steps over which the losses of two seed batches are compared: later on rounding is amplified without bound."""
SAME_ENOUGH = 1e-3
"""Largest relative difference of a loss in those steps, far above the rounding of float32 kernels."""
EVERYTHING = frozenset(QUANTITIES)
FAILS = frozenset({"stalled", "collapsed", "diverged", "nonfinite"})
Result = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """How large the trainings are."""

    layers: int
    width: int
    steps: int
    seeds: int
    twin_layers: int
    twin_steps: int


FULL = Sizes(layers=6, width=64, steps=60, seeds=16, twin_layers=24, twin_steps=200)
SMALL = Sizes(layers=2, width=16, steps=25, seeds=4, twin_layers=2, twin_steps=20)


class Checks:
    """The checks on one device.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        sizes: How large the trainings are.
        until: Value of ``time.monotonic()`` at which everything should be over.
    """

    def __init__(self, device: str, sizes: Sizes, until: float) -> None:
        self.device = device
        self.cuda = device != "cpu"
        self.sizes = sizes
        self.until = until

    def _runs(self, seeds: int, quantities: frozenset[str] = ALWAYS, **changes: Any) -> list[Run]:
        training = Training(
            model=Transformer(layers=self.sizes.layers, width=self.sizes.width, norm="pre"),
            task=Markov(vocab=32, length=16, batch=8),
            optimizer=AdamW(lr=1e-3),
            steps=self.sizes.steps,
        )
        return _of(dataclasses.replace(training, **changes), seeds, quantities)

    def _train(self, runs: Sequence[Run]) -> list[Trace]:
        return run(runs, device=self.device)

    def same_seed_twice(self) -> Result:
        """The same seeds twice, clipping included, are the same to the last bit."""
        runs = self._runs(2, EVERYTHING, clip=1.0)
        once, again = self._train(runs), self._train(runs)
        return {"passed": all(one.series == two.series for one, two in zip(once, again, strict=True))}

    def probes_do_not_disturb(self) -> Result:
        """The losses with every probe at every step are those without, to the last bit."""
        bare = self._train(self._runs(2, frozenset({"training_loss"})))
        watched = self._train([dataclasses.replace(one, every=True) for one in self._runs(2, EVERYTHING)])
        return {"passed": [losses(one) for one in bare] == [losses(one) for one in watched]}

    def bfloat16_twins(self) -> Result:
        """Under bfloat16 Post-LN fails to train without warmup and converges with it."""
        cold = Training(
            model=Transformer(layers=self.sizes.twin_layers, width=32, norm="post", init=Xavier(gain=0.7)),
            task=Markov(vocab=32),
            optimizer=Adam(lr=1.8e-3),
            steps=self.sizes.twin_steps,
            precision="bfloat16",
        )
        twins = {"cold": cold, "warm": dataclasses.replace(cold, warmup=self.sizes.twin_steps // 2)}
        found = {
            name: [trace.outcome.name for trace in self._train(_of(training, 3, ALWAYS))]
            for name, training in twins.items()
        }
        if self.sizes is not FULL:
            ended = not TROUBLE & {name for names in found.values() for name in names}
            return {"passed": ended, "outcomes": found, "not_checked": "the contrast: it needs the full size"}
        told = set(found["cold"]) <= FAILS and set(found["warm"]) == {"converged"}
        return {"passed": told, "outcomes": found}

    def seed_batch(self) -> Result:
        """Seeds in one pass end as the same seeds one by one, and start alike."""
        runs = self._runs(self.sizes.seeds)
        together, alone = self._train(runs), [self._train([one])[0] for one in runs]
        outcomes = [(one.outcome.name, two.outcome.name) for one, two in zip(together, alone, strict=True)]
        pairs = [
            pair
            for one, two in zip(together, alone, strict=True)
            for pair in zip(losses(one)[:FIRST_STEPS], losses(two)[:FIRST_STEPS], strict=True)
        ]
        worst = max(abs(one - two) / abs(two) for one, two in pairs)
        agree = all(one == two for one, two in outcomes)
        return {
            "passed": agree and worst <= SAME_ENOUGH,
            "seeds": len(runs),
            "outcomes_agree": agree,
            "largest_relative_loss_difference": worst,
        }

    def out_of_memory(self) -> Result:
        """Seeds that do not fit together run in halves; on the CPU the shortage is a pretended one."""
        runs = self._runs(self.sizes.seeds, steps=5)
        with self._memory_for_half(runs):
            traces = self._train(runs)
        survived = [trace.outcome.name not in TROUBLE for trace in traces]
        retried = all(any("ran out of memory" in note for note in trace.warnings) for trace in traces)
        result = {"passed": all(survived) and retried, "engines": sorted({trace.engine for trace in traces})}
        return result if self.cuda else result | {"not_checked": "a real shortage of device memory"}

    def _memory_for_half(self, runs: Sequence[Run]) -> contextlib.AbstractContextManager[None]:
        return self._small_card(runs) if self.cuda else _pretended_shortage(len(runs) // 2)

    @contextlib.contextmanager
    def _small_card(self, runs: Sequence[Run]) -> Iterator[None]:
        peaks = []
        for count in (len(runs) // 2, len(runs)):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self._train(runs[:count])
            peaks.append(torch.cuda.max_memory_reserved())
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(torch.device(self.device)).total_memory
        torch.cuda.set_per_process_memory_fraction(sum(peaks) / 2 / total, self._index())
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, self._index())

    def _index(self) -> int:
        return torch.device(self.device).index or 0

    def no_host_synchronisation(self) -> Result:
        """No step waits for the card between two looks, which the driver itself says."""
        if not self.cuda:
            return {"passed": None, "not_checked": "needs CUDA; the tests do it on the meta device"}
        (one,) = self._runs(1, EVERYTHING)
        device = torch.device(self.device)
        with conditions(device, threads=1):
            loop = Loop(make_subject(one.training, (1, 2), device), one, device, lambda step, loss: None)
            look = loop.watch.look

            def looking() -> float:
                torch.cuda.set_sync_debug_mode("default")
                found = look()
                torch.cuda.set_sync_debug_mode("error")
                return found

            loop.watch.look = looking  # type: ignore[method-assign]
            torch.cuda.set_sync_debug_mode("error")
            try:
                loop.train()
            finally:
                torch.cuda.set_sync_debug_mode("default")
        return {"passed": loop.step == one.training.steps}

    def probe_overhead(self) -> Result:
        """Wall time with the default probes over that with none: a figure, with no bound here."""
        contestants = {"bare": frozenset({"training_loss"}), "probes": ALWAYS}
        times: dict[str, list[float]] = {name: [] for name in contestants}
        for turn in range(4):
            for name, quantities in contestants.items():
                started = time.perf_counter()
                self._train(self._runs(1, quantities))
                if turn:  # the first warms up
                    times[name].append(time.perf_counter() - started)
        ratios = [probes / bare for probes, bare in zip(times["probes"], times["bare"], strict=True)]
        per_step = statistics.median(times["bare"]) / self.sizes.steps
        return {"passed": True, "ratio": statistics.median(ratios), "bare_seconds_a_step": per_step}

    def quick_tier(self) -> Result:
        """Wall time of ``pytest --stability``, and its exit status."""
        left = self.until - time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pytest", "--stability", "-q", "-n", "2", "-p", "no:cacheprovider"]
            command += ["--stability-device", self.device, f"--stability-out={folder}"]
            started = time.perf_counter()
            try:
                ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=left)
            except subprocess.TimeoutExpired:
                return {"passed": None, "not_checked": f"it was not done after {left:.0f} s"}
        last = (ran.stdout.strip() or ran.stderr.strip()).rpartition("\n")[2]
        seconds = time.perf_counter() - started
        return {"passed": ran.returncode == 0, "seconds": seconds, "exit_status": ran.returncode, "said": last}


def _of(training: Training, seeds: int, quantities: frozenset[str]) -> list[Run]:
    """Runs of a training, from seed 1."""
    return [
        Run(
            arm="",
            training=training,
            seed=seed,
            quantities=quantities,
            record_at=frozenset(),
            judge_at=(training.steps,),
        )
        for seed in range(1, seeds + 1)
    ]


def losses(trace: Trace) -> list[float]:
    """Training losses of a run."""
    return [row[0] for row in trace.series["training_loss"].values]


@contextlib.contextmanager
def _pretended_shortage(most: int) -> Iterator[None]:
    whole = ZooSubject.next_batch

    def hungry(self: ZooSubject) -> Any:
        if len(self.seeds) > most:
            raise MemoryError("pretended")
        return whole(self)

    ZooSubject.next_batch = hungry  # type: ignore[method-assign]
    try:
        yield
    finally:
        ZooSubject.next_batch = whole  # type: ignore[method-assign]


def attempt(check: Callable[[], Result], until: float) -> Result:
    """Carry one check out; what it raises is its result."""
    started = time.monotonic()
    if started > until:
        return {"passed": None, "not_checked": "no time was left"}
    try:
        found = check()
    except Exception as error:  # noqa: BLE001 -- one broken check must not hide the others
        found = {"passed": False, "error": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {"seconds": time.monotonic() - started} | found


def report(device: str, sizes: Sizes, *, quick_tier: bool, limit: float = LIMIT) -> Result:
    """The whole object.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        sizes: How large the trainings are.
        quick_tier: Whether the quick tier is run too.
        limit: Wall-clock seconds for everything.
    """
    until = time.monotonic() + limit
    checks = Checks(device, sizes, until)
    wanted: dict[str, Callable[[], Result]] = {
        "same_seed_twice": checks.same_seed_twice,
        "probes_do_not_disturb": checks.probes_do_not_disturb,
        "no_host_synchronisation": checks.no_host_synchronisation,
        "seed_batch": checks.seed_batch,
        "out_of_memory": checks.out_of_memory,
        "probe_overhead": checks.probe_overhead,
        "bfloat16_twins": checks.bfloat16_twins,
    }
    if quick_tier:
        wanted["quick_tier"] = checks.quick_tier
    found = {name: attempt(check, until) for name, check in wanted.items()}
    if not quick_tier:
        found["quick_tier"] = {"passed": None, "not_checked": "left out by --no-quick-tier"}
    return {
        "device": torch.device(device).type,
        "environment": fingerprint(device, 1),
        "passed": all(result["passed"] is not False for result in found.values()),
        "checks": found,
        "not_checked": {name: result["not_checked"] for name, result in found.items() if "not_checked" in result},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the object; returns 0 when every check that could run passed, else 1."""
    parser = argparse.ArgumentParser(prog="make gpu-check", description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-quick-tier", action="store_true", help="leave out the run of pytest --stability")
    asked = parser.parse_args(arguments)
    sizes = SMALL if asked.device == "cpu" else FULL
    found = report(asked.device, sizes, quick_tier=not asked.no_quick_tier)
    print(json.dumps(found, indent=1))  # noqa: T201 -- a command
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
