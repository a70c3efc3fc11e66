"""From a stability file to items: its Cases, beside the test functions that pytest collects itself."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import stabilitysuite
from stabilitysuite.case import Case
from stabilitysuite.errors import StabilityError, nearest
from stabilitysuite.plugin.calibrating import CalibrationItem
from stabilitysuite.plugin.item import CaseItem
from stabilitysuite.plugin.suite import SUITE

__all__ = ["CaseModule", "Collection"]


class Built(NamedTuple):
    """A case that was built while the body of a module ran."""

    case: Case
    module: dict[str, Any]
    """The globals of that module."""
    line: int
    """Its line that was running."""


class Collection:
    """What the stability files of a session share: the cases that they built, and the ids that are taken."""

    def __init__(self) -> None:
        self.built: list[Built] = []
        self.homes: dict[str, Path] = {}

    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module:
        """Every file of a stability run is collected as a module that knows cases."""
        module: CaseModule = CaseModule.from_parent(parent, path=module_path)
        module.collection = self
        return module

    def pytest_pycollect_makeitem(
        self, collector: pytest.Module | pytest.Class, name: str, obj: object
    ) -> list[pytest.Item | pytest.Collector] | None:
        """A Case, or a dict of them, becomes items."""
        return collector.case_items(name, obj) if isinstance(collector, CaseModule) else None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Note every case that is built, so that none that was written can be lost unseen."""
        original = Case._check

        def check(case: Case) -> None:
            original(case)
            self._note(case)

        Case._check = check  # type: ignore[assignment, method-assign]
        try:
            yield
        finally:
            Case._check = original  # type: ignore[method-assign]

    def _note(self, case: Case) -> None:
        frame = sys._getframe(2)
        while frame.f_code.co_name != "<module>" and frame.f_back is not None:
            frame = frame.f_back
        if frame.f_code.co_name == "<module>":
            self.built.append(Built(case, frame.f_globals, frame.f_lineno))


class CaseModule(pytest.Module):
    """pytest's own module, which also finds the cases that the file built."""

    collection: Collection

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """The items of the file.

        Raises:
            CollectError: The file ends the program, or holds a case that could never run.
        """
        self.bound: list[Case] = []
        try:
            with self.collection.watching():
                found = list(super().collect())
        except SystemExit as error:
            raise self.CollectError(
                f"{self.nodeid} ends the program while it is imported (SystemExit: {error.code}): "
                "a stability file only declares"
            ) from error
        self._check_bound()
        return found

    def case_items(self, name: str, obj: object) -> list[pytest.Item | pytest.Collector] | None:
        """The items that a name of the module stands for; ``None`` where it is for pytest to say.

        Raises:
            CollectError: Another case of the session has the same id.
        """
        if isinstance(obj, Case):
            named = {name: obj}
        elif isinstance(obj, dict) and not name.startswith("__"):
            named = {f"{name}[{key}]": case for key, case in obj.items() if isinstance(case, Case)}
            if len(named) < sum(isinstance(case, Case) for case in obj.values()):
                raise self.CollectError(f"{self.nodeid}: two keys of {name} are spelled the same: rename one")
        else:
            return None
        own = {spelled: case for spelled, case in named.items() if self._is_new(case)}
        self.bound += own.values()
        return [] if name.startswith("_") else [self._item(spelled, case) for spelled, case in own.items()]

    def _is_new(self, case: Case) -> bool:
        """Built by this file, not imported into it, and not the second name of a case."""
        if any(case is known for known in self.bound):
            return False
        here = any(case is built.case for built in self._built())
        return here or Path(case.built_in) == self.path

    def _built(self) -> list[Built]:
        return [built for built in self.collection.built if built.module is self.obj.__dict__]

    def _item(self, name: str, case: Case) -> CaseItem:
        case_id = f"{self.path.stem}/{name}"
        home = self.collection.homes.setdefault(case_id, self.path)
        if home != self.path:
            first, second = (os.path.relpath(path, self.config.rootpath) for path in (home, self.path))
            raise self.CollectError(
                f"two cases have the id {case_id}: one in {first}, one in {second}; rename a file or a case"
            )
        kind = CalibrationItem if self.config.stash[SUITE].options.calibrate else CaseItem
        item: CaseItem = kind.from_parent(self, name=name, case=case, case_id=case_id)
        return item

    def _check_bound(self) -> None:
        lost = [built for built in self._built() if not any(built.case is case for case in self.bound)]
        if lost:
            lines = "\n".join(f"{self.nodeid}:{built.line}: {built.case.says}" for built in lost)
            raise self.CollectError(
                f"{lines}\nno name of the module, and no entry of a dict of the module, stands for this "
                "case, so it would never run: give it a name (with a leading _ if it is a template only)"
            )

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """A refused declaration is shown as file, line and message; other errors as pytest shows them."""
        if not isinstance(excinfo.value, StabilityError):
            shown = super().repr_failure(excinfo)  # pytest finds the style itself
            return f"{shown}{_nearest_name(excinfo.value.__cause__)}" if isinstance(shown, str) else shown
        lines = [entry.lineno + 1 for entry in excinfo.traceback if Path(entry.path) == self.path]
        return f"{self.nodeid}:{lines[-1] if lines else 0}: {excinfo.value}"


def _nearest_name(error: BaseException | None) -> str:
    """For a name that this package has not: the one that was meant."""
    missing = re.search(r"cannot import name '(\w+)'", str(error))
    if not isinstance(error, ImportError) or error.name != stabilitysuite.__name__ or missing is None:
        return ""
    return f"\n{missing[1]}: {nearest(missing[1], stabilitysuite.__all__)}"
