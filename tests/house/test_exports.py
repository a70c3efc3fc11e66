"""Public names are few, listed, and the list is true; every module says what it is for."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import stabilitysuite
from tests.house.tree import PACKAGE, ROOT, module_name, modules, parsed

LARGEST = 450
"""Lines of a file that one still reads in one go."""


def is_room_without_code(path: Path) -> bool:
    return path.name == "__init__.py" and all(isinstance(item, ast.Expr) for item in parsed(path).body)


def listed(path: Path) -> list[str] | None:
    """What a module's ``__all__`` lists."""
    for item in parsed(path).body:
        if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(item.value)
            return names
    return None


def defined(path: Path) -> set[str]:
    """Names that a module's own statements bind."""
    found: set[str] = set()
    for item in ast.walk(parsed(path)):
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(item.name)
        elif isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
            found.add(item.id)
        elif isinstance(item, ast.alias):
            found.add(item.asname or item.name)
    return found


@pytest.mark.parametrize("name", stabilitysuite.__all__)
def test_a_public_name_resolves(name: str) -> None:
    found = getattr(stabilitysuite, name)
    assert found.__name__ == name
    assert found.__doc__


def test_public_names_are_sorted_as_ruff_sorts_them() -> None:
    def order(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)

    assert stabilitysuite.__all__ == sorted(stabilitysuite.__all__, key=order)
    assert dir(stabilitysuite) == sorted(stabilitysuite.__all__)


def test_the_table_of_homes_and_the_types_agree_with_the_list() -> None:
    (guarded,) = [item for item in parsed(PACKAGE / "__init__.py").body if isinstance(item, ast.If)]
    assert ast.unparse(guarded.test) == "TYPE_CHECKING"
    for_types = {
        item.module: tuple(alias.name for alias in item.names)
        for item in guarded.body
        if isinstance(item, ast.ImportFrom)
    }
    homes = stabilitysuite._HOMES
    assert {home: sorted(names) for home, names in for_types.items()} == {
        home: sorted(names) for home, names in homes.items()
    }
    assert sorted(name for names in homes.values() for name in names) == sorted(stabilitysuite.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'stabilitysuite' has no attribute 'Cse'"):
        stabilitysuite.Cse  # noqa: B018 -- looking it up is what is tested


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_a_module_says_what_it_is_for_and_what_it_offers(path: Path) -> None:
    assert ast.get_docstring(parsed(path))
    if is_room_without_code(path):
        return
    names = listed(path)
    assert names is not None, "it has no __all__"
    assert set(names) <= defined(path)


@pytest.mark.parametrize(
    "path",
    [path for folder in ("stabilitysuite", "cases", "ci", "tests") for path in modules(ROOT / folder)],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_a_file_is_short_enough_to_read(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < LARGEST
