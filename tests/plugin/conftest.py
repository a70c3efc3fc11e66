"""A small project to run the plugin in, with a real lab or one that ends as the test says."""

from __future__ import annotations

from pathlib import Path

import pytest

# pytester forgets the modules that a run inside this process imports; these cannot be imported twice.
import scipy.stats  # noqa: F401
import torch._dynamo  # noqa: F401 -- what building an optimizer imports

import stabilitysuite.plugin.session  # noqa: F401 -- nor need it be imported again for each test

CASES = """
import pytest
from stabilitysuite import Adam, Case, Markov, Transformer, converges, gradient_norm, training_loss

_base = Case(
    says="it trains",
    model=Transformer(layers=1, width=8, heads=2),
    task=Markov(vocab=8, length=6, batch=8),
    optimizer=Adam(lr=9.0),
    steps=20,
    expect=converges(),
)
"""

FAKE_LAB = '''
"""A lab without torch: the learning rate of a run names its end."""

import os, random, signal, sys, time, types
from stabilitysuite.errors import MeasurementError
from stabilitysuite.trace import Outcome, Reference, Series, Trace

MEASURED = []

def run(runs, *, device="cpu", threads=1, budget=None, progress=None, warned=None):
    traces = []
    for index, one in enumerate(runs):
        lr = one.training.optimizer.lr
        MEASURED.append(one.seed)
        random.seed(0)
        if lr == 4:
            raise MeasurementError("the model has no parameters: return one that has")
        if lr == 5:
            try:
                {}["weight"]
            except KeyError as error:
                raise MeasurementError("model() failed: KeyError") from error
        if lr == 7:
            raise KeyboardInterrupt
        if lr == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        if lr == 10:
            with open("begun", "w") as pipe:
                pipe.write("begun\\n")
            time.sleep(1000)
        name = "converged" if lr == 1 or (lr == 3 and index) else "timeout" if lr == 6 else "stalled"
        value = 1.0 if name == "converged" else 2.0
        loss = Series(quantity="evaluated_loss", steps=(20,), labels=("",), values=((value,),))
        traces.append(Trace(
            arm=one.arm, seed=one.seed, outcomes=(Outcome(name=name, step=20, detail="the budget is spent"),),
            series={"evaluated_loss": loss}, reference=Reference(plateau=2.0, floor=1.0)))
    return traces

train = types.ModuleType("stabilitysuite.lab.train")
train.run = run
environment = types.ModuleType("stabilitysuite.lab.environment")
environment.fingerprint = lambda device, threads: {"device": device, "threads": threads}
environment.sources = lambda case: {}
sys.modules["stabilitysuite.lab.train"] = train
sys.modules["stabilitysuite.lab.environment"] = environment
'''


class Project:
    """A folder with stability files, and pytest in it."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        pytester.makeini("[pytest]\n")

    def fake_lab(self) -> None:
        """Let learning rates name the ends: 1 converges, 2 stalls, 3 stalls in one seed, 4 to 8 and 10 are trouble."""
        self.write("conftest.py", FAKE_LAB)

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def cases(self, text: str, name: str = "stability/net.py") -> Path:
        return self.write(name, CASES + text)

    def inside(self, *args: str) -> pytest.RunResult:
        """In this process: for runs with the fake lab, or without any."""
        return self.pytester.runpytest_inprocess("--stability", *args)

    def outside(self, *args: str) -> pytest.RunResult:
        """In a process of its own."""
        return self.pytester.runpytest_subprocess("--stability", *args)

    @property
    def results(self) -> Path:
        return self.path / "stability-results"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    for name in ("CI", "BUILD_NUMBER", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return Project(pytester)
