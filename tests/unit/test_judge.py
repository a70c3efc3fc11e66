from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from stabilitysuite.case import Case
from stabilitysuite.claims.measure import gradient_norm
from stabilitysuite.claims.outcome import converges, stalls
from stabilitysuite.errors import MeasurementError
from stabilitysuite.judge import judge
from stabilitysuite.plan import TWIN
from stabilitysuite.spec import Markov, Transformer
from stabilitysuite.trace import Outcome
from tests.fakes import ends, trace, traces_of


def case(**changed: Any) -> Case:
    fields: dict[str, Any] = {
        "says": "trains",
        "model": Transformer(layers=2, width=8, heads=2),
        "task": Markov(),
        "steps": 100,
        "expect": converges(),
    }
    return Case(**fields | changed)


def test_every_claim_is_judged_on_every_arm_in_declared_order() -> None:
    asked = case(expect=(converges(), gradient_norm().at_most(9)), variants={"plain": {}, "long": {"warmup": 9}})
    found = judge(asked, traces_of(asked))
    assert [(one.arm, one.claim) for one in found] == [
        (arm, claim) for arm in ("plain", "long") for claim in ("converges", "gradient_norm at most 9")
    ]
    assert {one.verdict for one in found} == {"holds"}


@pytest.mark.parametrize("name", ["crashed", "out-of-memory", "timeout"])
def test_trouble_is_never_a_finding(name: Any) -> None:
    traces = [ends("converged", seed=1), ends("converged", seed=2)]
    broken = dataclasses.replace(
        trace(("converged", 1), seed=3), outcomes=(Outcome(name=name, step=7, detail="no luck"),)
    )
    with pytest.raises(MeasurementError, match=f"seed 3 ended as {name} at step 7: no luck"):
        judge(case(), [*traces, broken])


def test_an_arm_without_traces_cannot_be_judged() -> None:
    with pytest.raises(MeasurementError, match=r"no trace: there is nothing to judge"):
        judge(case(), [])
    asked = case(sweep={"warmup": (1, 2)})
    with pytest.raises(MeasurementError, match="no trace of arm 'warmup=2'"):
        judge(asked, [one for one in traces_of(asked) if one.arm == "warmup=1"])


def test_a_stall_without_its_twin_cannot_be_judged() -> None:
    asked = case(expect=stalls(), control={"warmup": 50})
    own = [ends("stalled", early="stalled", seed=seed) for seed in range(3)]
    with pytest.raises(MeasurementError, match="no trace of the twin"):
        judge(asked, own)
    (found,) = judge(asked, [*own, *(ends("converged", seed=seed, arm=TWIN) for seed in range(3))])
    assert found.verdict == "holds"


def test_an_arm_is_judged_at_its_own_number_of_steps() -> None:
    asked = case(expect=stalls(), control={"warmup": 50}, variants={"short": {"steps": 40}})
    own = [ends("stalled", early="learning", steps=40, arm="short", seed=seed) for seed in range(3)]
    twins = [ends("converged", steps=40, arm="short" + TWIN, seed=seed) for seed in range(3)]
    (found,) = judge(asked, [*own, *twins])
    assert found.verdict == "violated"
    assert "3 learning" in found.reason
