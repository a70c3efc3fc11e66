"""The cases of a collection as a table, in place of pytest's own list."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from stabilitysuite.plan import estimated_seconds
from stabilitysuite.plugin.item import CaseItem

__all__ = ["Listing"]


class Listing:
    """A plugin for ``--collect-only``: what there is, and what it would cost."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> Generator[None]:
        """Hold the items back while pytest would print them."""
        items = list(session.items)
        self.lines = _lines(items)
        session.items.clear()
        try:
            return (yield)
        finally:
            session.items.extend(items)

    def pytest_report_collectionfinish(self) -> list[str]:
        """One line a case."""
        return self.lines


def _lines(items: list[pytest.Item]) -> list[str]:
    cases = [item for item in items if isinstance(item, CaseItem)]
    others = [item.nodeid for item in items if not isinstance(item, CaseItem)]
    if not cases:
        return others
    width = max(len(item.case_id) for item in cases)
    lines = [f"{'case':{width}}  tier   seeds  seconds  says"]
    for item in cases:
        case = item.case
        seconds, looks = f"{estimated_seconds(case):.1f}", case.looks()
        seeds = f"{looks[0]}-{looks[-1]}" if len(looks) > 1 else str(looks[0])
        lines.append(f"{item.case_id:{width}}  {case.tier:5}  {seeds:>5}  {seconds:>7}  {case.says}")
    return lines + others
