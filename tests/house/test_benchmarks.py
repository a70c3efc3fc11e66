"""The benchmarks run: each table, in a configuration too small to mean anything."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import growth, measure, memory, overhead, peers, seeds, startup, verdict
from tests.house.tree import ROOT

TABLES: dict[str, tuple[Callable[[], str], str]] = {
    "overhead": (lambda: overhead.overhead({1: 24}, turns=1), "also parameters, each step"),
    "seeds": (lambda: seeds.seeds_in_one_pass([(8, 4, 8, 0.5)], seeds=2, layers=1, turns=1, work=128), "0.50"),
    "startup": (lambda: startup.startup(turns=1), "without, ms"),
    "growth": (lambda: growth.growth({1: 4, 2: 4}, (2, 4), turns=1), "ms a layer"),
    "verdict": (lambda: verdict.verdict([(8, 2, 4)], draws=20, layers=1, steps=3, turns=1), "broken in 95 %"),
    "peers": (lambda: peers.compare([(1, 8, 2, 4, 3)], ["bare loop", "ours"], turns=1), "each parameter"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_measured(name: str) -> None:
    measured, words = TABLES[name]
    text = measured()
    assert words in text
    assert "nan" not in text


def test_the_heaviest_case_is_found_and_trained_briefly() -> None:
    name, runs = max(memory._arms(), key=lambda one: memory._numbers(one[1]))
    assert "/" in name
    assert memory._shortened(runs[0]).training.steps <= memory.STEPS


def test_the_memory_of_a_child_is_its_own() -> None:
    held = b"x" * 800 * 2**20
    _, said = measure.child([sys.executable, "-c", "from benchmarks import memory; print(memory._peak())"], ROOT)
    assert 10 < float(said) < 700 < memory._peak()
    del held


@pytest.mark.parametrize("name", ["overhead", "seeds", "startup", "growth", "memory", "verdict", "peers"])
def test_each_table_has_its_place_on_the_page(name: str) -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert page.count(f"<!-- printed: {name} -->\n```\n") == 1


@pytest.mark.parametrize("before", ["", "old\n", "old\n\nand older\n"])
def test_a_table_takes_the_place_of_what_was_there(before: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    other = "<!-- printed: other -->\n```\nleft alone\n```\n"
    page.write_text(f"# Page\n<!-- printed: one -->\n```\n{before}```\n{other}", encoding="utf-8")
    measure.publish("one", "new", page=page)
    assert page.read_text(encoding="utf-8") == f"# Page\n<!-- printed: one -->\n```\nnew\n```\n{other}"
    with pytest.raises(ValueError, match=r"page\.md has 0 places for 'none'"):
        measure.publish("none", "new", page=page)


def test_a_line_is_found_and_its_deviation_told() -> None:
    assert measure.line([1, 2, 3], [3, 5, 7]) == pytest.approx((1, 2, 0))
    assert measure.line([1, 2, 3], [3, 5, 14])[2] > 0.1


def test_a_share_of_record_steps_is_kept_in_short_slices() -> None:
    due = overhead._due(20)
    assert len(set(due)) == 3
    assert max(due) < 20
