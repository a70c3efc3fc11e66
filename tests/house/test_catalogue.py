"""The cases of this repository gate: each has a calibration record that admits it as it is declared now."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

import pytest

from stabilitysuite.calibrate import rounds
from stabilitysuite.calibration import gate
from stabilitysuite.case import Case
from stabilitysuite.catalogue import place, read_calibration
from stabilitysuite.plan import estimated_seconds
from tests.house.tree import ROOT


def folder() -> Path:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    return ROOT / str(options["stability_calibration"])


def declared() -> dict[str, Case]:
    """The cases of all files in cases/, by id, as the plugin finds them."""
    found: dict[str, Case] = {}
    for path in sorted((ROOT / "cases").glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"house_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, value in vars(module).items():
            named = {f"{name}[{key}]": one for key, one in value.items()} if isinstance(value, dict) else {name: value}
            own = {spelled: one for spelled, one in named.items() if isinstance(one, Case) and name[0] != "_"}
            found |= {f"{path.stem}/{spelled}": one for spelled, one in own.items() if one.built_in == str(path)}
    return found


def test_cases_are_found() -> None:
    assert "warmup/post_ln_cold" in declared()


def test_every_quick_and_full_case_is_admitted() -> None:
    gating = {case_id: case for case_id, case in declared().items() if case.tier != "paper"}
    reasons = {case_id: gate(case, read_calibration(folder(), case_id)) for case_id, case in gating.items()}
    wrong = [f"{case_id}: {reason}" for case_id, reason in sorted(reasons.items()) if reason]
    assert not wrong, "\n".join([*wrong, "calibrate them: stabilitysuite calibrate --stability-tier full -n 2"])


def test_no_record_is_left_of_a_case_that_is_gone() -> None:
    known = {place(folder(), case_id) for case_id in declared()}
    assert sorted(set(folder().rglob("*.json")) - known) == []


def test_no_record_rests_on_so_few_seeds_that_it_says_little() -> None:
    for case_id in declared():
        record = read_calibration(folder(), case_id)
        assert record is None or record.seeds >= 12, case_id


QUICK_SECONDS = 15
"""CPU seconds that a case of the quick tier may take for all its seeds."""
FLAGSHIPS = {
    "depth/deepnorm_200",
    "depth/post_ln_200",
    "depth/deepnorm_24_attending",
    "initialisation/post_ln_full_gain",
    "norm_placement/pre_ln_cold_attending",
    "warmup/post_ln_cold",
    "warmup/post_ln_warm",
}
"""Cases of 24 and 200 layers by which the project is known: they may take more, together not above the allowance."""
ALLOWANCE = 250


def test_a_quick_case_costs_what_its_tier_allows() -> None:
    costs = {case_id: estimated_seconds(case) for case_id, case in declared().items() if case.tier == "quick"}
    dear = {case_id for case_id, seconds in costs.items() if seconds > QUICK_SECONDS}
    assert dear == FLAGSHIPS & set(costs), "give it fewer steps, layers or seeds, or move it into the full tier"
    assert sum(costs[case_id] for case_id in dear) <= ALLOWANCE


@pytest.mark.parametrize("case_id", sorted(declared()))
def test_a_declared_cost_is_that_of_the_record(case_id: str) -> None:
    case, record = declared()[case_id], read_calibration(folder(), case_id)
    assert record is not None
    declared_cost = sum(estimated_seconds(case, seeds=len(one.plan.seeds)) for one in rounds(case, seeds=record.seeds))
    assert record.cpu_seconds / 3 < declared_cost < 3 * record.cpu_seconds
