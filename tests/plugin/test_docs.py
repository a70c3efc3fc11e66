"""Every block of Python in the how-to pages is a stability file that can be collected."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.plugin.conftest import Project

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "how-to").glob("*.md"))
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_is_collected(project: Project, page: Path) -> None:
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    for index, block in enumerate(blocks):
        project.write(f"stability/block_{index}.py", block)
    result = project.inside("--collect-only", "-q")
    assert result.ret == (pytest.ExitCode.OK if blocks else pytest.ExitCode.NO_TESTS_COLLECTED), page.name
