"""A case that hangs ends as a timeout and the session goes on; nothing of the alarm is left behind."""

from __future__ import annotations

from stabilitysuite.record import Record
from stabilitysuite.store import read
from tests.plugin.conftest import Project

HANGING = """
import signal, time, torch
from torch import nn

def batches(seed):
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randn(8, 4, generator=generator)

def build():
    return nn.Linear(4, 1)

def loss(model, batch):
    return model(batch).square().mean()

def sleeping_factory():
    time.sleep(1000)

def sleeping_data(seed):
    yield torch.randn(8, 4)
    time.sleep(1000)

def looping_step(model, batch, optimizer):
    while True:
        pass

def deaf_loss(model, batch):
    while True:
        try:
            time.sleep(1000)
        except Exception:
            pass

def renaming_loss(model, batch):
    try:
        time.sleep(1000)
    except BaseException as error:
        raise ValueError("it failed") from error

def swallowing_loss(model, batch):
    for _ in range(2):
        try:
            time.sleep(1000)
        except BaseException:
            pass
    time.sleep(1000)

class Stuck(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(1000)

def stuck_backward(model, batch):
    return Stuck.apply(model(batch)).square().mean()

seen = {}

def late_data(seed):  # the second seed hangs
    seen[seed] = True
    yield from (torch.randn(8, 4) for _ in range(3))
    if len(seen) > 1:
        time.sleep(1000)
    yield from (torch.randn(8, 4) for _ in range(9))

_own = Case(says="it", model=build, data=batches, loss=loss, steps=4, seeds=1, expect=training_loss().at_most(50))
a_fine = _own.but(says="it does not hang", seeds=2)
b_factory = _own.but(says="its factory hangs", model=sleeping_factory)
c_data = _own.but(says="its data hang", data=sleeping_data)
d_step = _own.but(says="its step hangs", step=looping_step, loss=None)
e_deaf = _own.but(says="it catches every Exception", loss=deaf_loss)
f_renaming = _own.but(says="it makes another error of it", loss=renaming_loss)
g_swallowing = _own.but(says="it swallows the first interrupt", loss=swallowing_loss)
h_backward = _own.but(says="its backward pass hangs", loss=stuck_backward)
i_late = _own.but(says="its second seed hangs", data=late_data, seeds=3)
j_many = _own.but(says="the proof that seeds can share a pass hangs", model=sleeping_factory, seeds=5, steps=30)

def test_nothing_is_left():
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
"""

LINES = {
    "b_factory": "sleeping_factory",
    "c_data": "sleeping_data",
    "d_step": "looping_step",
    "e_deaf": "deaf_loss",
    "f_renaming": "renaming_loss",
    "g_swallowing": "swallowing_loss",
    "h_backward": "backward",
    "i_late": "late_data",
    "j_many": "sleeping_factory",
}


def records_of(project: Project) -> dict[str, Record]:
    return {record.id.removeprefix("net/"): record for record in read(project.results)}


def test_what_hangs_ends_as_a_timeout_in_workers_too(project: Project) -> None:
    project.cases(HANGING)
    result = project.outside("--stability-budget", "1", "-n", "2", "-k", "b_ or c_ or d_ or e_ or nothing")
    result.assert_outcomes(passed=1, errors=4)
    assert all("ended as timeout at step " in record.message for record in records_of(project).values())


def test_what_hangs_ends_as_a_timeout(project: Project) -> None:
    project.cases(HANGING)
    result = project.outside("--stability-budget", "1")
    result.assert_outcomes(passed=2, errors=len(LINES))
    records = records_of(project)
    assert set(records) == {"a_fine", *LINES}
    for name, function in LINES.items():
        message = records[name].message
        assert "ended as timeout at step " in message, name
        assert "the time budget of the case is spent" in message, name
        assert "; --stability-budget gives it more" in message, name
        assert f", in {function}; " in message, name
        assert records[name].seconds < 60, name
    late = records["i_late"].traces
    assert [trace.outcome.name == "timeout" for trace in late] == [False, True, True]
    assert len(late[0].series["training_loss"].values) == 4


OTHERS = """
import signal, time

rung = []
theirs = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))

def batches(seed):
    if not rung and seed == 1:
        while not rung:  # the earlier alarm of somebody else rings
            time.sleep(0.01)
    yield from iter(lambda: torch.randn(8, 4), None)

def test_an_earlier_alarm_rings(stability):
    handler = signal.getsignal(signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    stability.run(model=build, data=batches, loss=loss, steps=3, seed=1)
    assert rung and signal.getsignal(signal.SIGALRM) is handler

def test_a_later_alarm_is_set_again(stability):
    handler = signal.getsignal(signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, 1000, 7)
    stability.run(model=build, data=batches, loss=loss, steps=3, seed=2)
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
    assert 900 < left < 1000 and interval == 7
    assert signal.getsignal(signal.SIGALRM) is handler

def test_off_the_main_thread_only_steps_are_looked_at(stability):
    import dataclasses, threading
    from stabilitysuite import MeasurementError
    stability.options = dataclasses.replace(stability.options, budget=0.2)
    said = []
    def train():
        try:
            stability.run(model=build, data=batches, loss=loss, steps=1_000_000, seed=3)
        except MeasurementError as error:
            said.append(str(error))
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert "ended as timeout" in said[0]
"""


def test_alarms_of_others_are_left_alone(project: Project) -> None:
    project.write("stability/net.py", HANGING[: HANGING.index("_own = ")] + OTHERS)
    project.outside("--stability-budget", "30").assert_outcomes(passed=3)
