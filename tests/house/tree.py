"""The repository as the house tests see it: its files, its modules and what they import."""

from __future__ import annotations

import ast
import functools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PACKAGE", "ROOT", "Import", "committed", "imports", "module_name", "modules", "parsed"]

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "stabilitysuite"


@dataclass(frozen=True, kw_only=True)
class Import:
    """One import statement's target."""

    module: str
    """What is imported, a module or a name of one."""
    line: int
    late: bool
    """Whether it stands in a function."""
    types_only: bool
    """Whether it stands under ``if TYPE_CHECKING``."""


@functools.cache
def committed() -> tuple[Path, ...]:
    """All files that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    return tuple(sorted(path for name in listed.split("\0") if name and (path := ROOT / name).is_file()))


def modules(folder: Path = PACKAGE) -> list[Path]:
    """All modules under a folder."""
    return sorted(path for path in folder.rglob("*.py"))


def module_name(path: Path) -> str:
    """The dotted name of a module of the repository."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[Import]:
    """All imports of a module, wherever they stand; ``from a import b`` is of ``a.b``."""
    yield from _within(parsed(path), path, late=False, types_only=False)


def _within(node: ast.AST, path: Path, *, late: bool, types_only: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            for target in _targets(child, path):
                yield Import(module=target, line=child.lineno, late=late, types_only=types_only)
        inside = late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        guarded = types_only or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
        yield from _within(child, path, late=inside, types_only=guarded)


def _targets(statement: ast.Import | ast.ImportFrom, path: Path) -> list[str]:
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    home = statement.module or ""
    if statement.level:
        package = module_name(path).split(".")
        package = package if path.name == "__init__.py" else package[:-1]
        package = package[: len(package) - statement.level + 1]
        home = ".".join([*package, *([home] if home else [])])
    return [f"{home}.{alias.name}" for alias in statement.names]
