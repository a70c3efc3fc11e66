"""What is committed holds together: versions agree, words are explained, and no file names a machine."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib

import pytest

from stabilitysuite.quantity import QUANTITIES
from tests.house.tree import ROOT, committed

# Spelled apart, so that this file does not hold them.
MACHINE = re.compile(r"(?<![\w.$}])/(?:" + "|".join(["root", "work", "home", "Users"]) + r")/[\w.]")


def test_no_committed_text_names_a_place_on_a_machine() -> None:
    found = []
    for path in committed():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
            for number, line in enumerate(text.splitlines(), start=1)
            if MACHINE.search(line)
        ]
    assert not found


def test_the_pattern_of_a_machine_finds_one() -> None:
    for line in ("see " + "/root" + "/x", "'" + "/work" + "/main'", "file://" + "/home" + "/me"):
        assert MACHINE.search(line), line
    for line in (
        "https://example.org/home" + "/page",
        "https://example.org/work" + "/x",
        "frame/work" + "/x",
        "$x/root" + "/y",
    ):
        assert not MACHINE.search(line), line


def declared_version() -> str:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    version: str = data["project"]["version"]
    return version


def test_the_installed_version_is_the_declared_one() -> None:
    assert importlib.metadata.version("stabilitysuite") == declared_version(), "install it again: make clean, make test"


def test_the_changelog_has_an_entry_for_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(declared_version())}\]", text, re.MULTILINE), (
        f"CHANGELOG.md has no heading '## [{declared_version()}]': pyproject.toml declares that version"
    )


@pytest.mark.parametrize("name", QUANTITIES)
def test_a_quantity_has_a_line_in_the_glossary(name: str) -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if re.match(rf"\W*`{name}`", line)]
    assert f"| {QUANTITIES[name].unit} |" in line, "the glossary gives it another unit"
