"""The README's example, typed off the page into a repository of its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from stabilitysuite.store import read

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def readme() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme", ROOT / "docs" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_passes(readme: ModuleType, tmp_path: Path) -> None:
    readme.make_repository(tmp_path, lose_residual=False)
    result = readme.run(tmp_path)
    assert result.returncode == 0, result.stdout
    assert "2 passed" in result.stdout
    assert {record.verdict for record in read(tmp_path / "stability-results")} == {"holds"}


def test_a_lost_residual_connection_is_named(readme: ModuleType, tmp_path: Path) -> None:
    readme.make_repository(tmp_path, lose_residual=True)
    result = readme.run(tmp_path)
    assert result.returncode == 1, result.stdout
    assert "blocks_are_residual" in result.stdout
    first = next(line for line in result.stdout.splitlines() if "VIOLATED" in line)
    assert "first outside at blocks.2" in first


def test_the_captures_are_of_this_example() -> None:
    """`make readme` was run: both captures show what the example shows."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "2 cases: 2 hold" in text
    assert "first outside at blocks.2" in text
