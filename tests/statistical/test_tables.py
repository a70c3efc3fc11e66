"""docs/statistics.md shows what the code gives: some rows are computed again, exactly."""

from __future__ import annotations

import re

import pytest

from benchmarks.statistics import PAGE, TABLES


def printed(name: str) -> list[list[str]]:
    """The rows of a table on the page."""
    page = PAGE.read_text(encoding="utf-8")
    (block,) = re.findall(rf"<!-- printed: {name} -->\n```\n(.*?)\n```\n", page, re.DOTALL)
    lines = [re.split(r"\s{2,}", line) for line in block.splitlines()]
    assert lines[0] == list(TABLES[name].head)
    return lines[2:]


@pytest.mark.parametrize("name", TABLES)
def test_each_table_is_on_the_page_and_whole(name: str) -> None:
    rows = printed(name)
    assert len(rows) == len(TABLES[name].rows)
    assert all(len(row) == len(TABLES[name].head) for row in rows)
    assert "nan" not in str(rows)


@pytest.mark.parametrize(("name", "place"), [("slopes", 0), ("outcomes", 7), ("orders", 4)])
def test_a_row_computed_again_is_the_same(name: str, place: int) -> None:
    assert TABLES[name].rows[place]() == printed(name)[place]


def test_the_page_links_to_its_own_headings() -> None:
    page = PAGE.read_text(encoding="utf-8")
    headings = {line[3:].lower().replace(" ", "-") for line in page.splitlines() if line.startswith("## ")}
    assert set(re.findall(r"\]\(#([\w-]+)\)", page)) <= headings
