"""Regenerate the terminal captures in README.md from the files that stand in it: ``make readme``.

The README's own code blocks, marked ``<!-- file: PATH -->``, make a repository in a temporary folder with a broken
ordinary test beside them; pytest runs there as a reader would run it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
FILE = re.compile(r"<!-- file: (?P<path>\S+) -->\n```python\n(?P<text>.*?)```\n", re.DOTALL)
CAPTURE = r"(<!-- capture: {name} -->\n)```.*?```\n"
PROJECT = '[tool.pytest.ini_options]\ntestpaths = ["tests"]\npythonpath = ["src"]\n'
WHOLE = "        return x + self.mlp(self.norm2(x))\n"
CUT = "        return self.mlp(self.norm2(x)) if self.cut else x + self.mlp(self.norm2(x))\n"
LINES_BEFORE_RESULTS = re.compile(r"^(platform|benchmark:|configfile:|plugins:|testpaths:|rootdir:).*\n", re.MULTILINE)


def make_repository(folder: Path, *, lose_residual: bool) -> None:
    """Write the README's files, and what a real repository has besides them.

    Args:
        folder: Where.
        lose_residual: Leave out one residual connection of the third block.
    """
    (folder / "tests").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (folder / "tests" / "test_broken.py").write_text("import does_not_exist\n", encoding="utf-8")
    for found in FILE.finditer(README.read_text(encoding="utf-8")):
        path, text = folder / found["path"], found["text"]
        if lose_residual and WHOLE in text:
            text = text.replace(WHOLE, CUT)
            text = text.replace(
                "        self.norm, self.head", "        self.blocks[2].cut = True\n        self.norm, self.head"
            )
            text = text.replace("class Block(nn.Module):\n", "class Block(nn.Module):\n    cut = False\n\n")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """``pytest --stability`` in a repository, 100 columns wide."""
    command = [sys.executable, "-m", "pytest", "--stability", "-p", "no:cacheprovider"]
    environment = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


def captured(text: str, folder: Path) -> str:
    """What a reader sees, without the lines that differ from machine to machine."""
    text = LINES_BEFORE_RESULTS.sub("", text).replace(f"{folder}/", "")
    return f"$ pytest --stability\n{text.strip()}\n"


def main() -> None:
    """Run both repositories and put what they print into the README."""
    for name, lose_residual in (("passing", False), ("failing", True)):
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made).resolve()
            make_repository(folder, lose_residual=lose_residual)
            shown = captured(run(folder).stdout, folder)
        pattern = re.compile(CAPTURE.format(name=name), re.DOTALL)
        head, found, tail = _split(pattern, README.read_text(encoding="utf-8"), name)
        README.write_text(f"{head}{found}```\n{shown}```\n{tail}", encoding="utf-8")


def _split(pattern: re.Pattern[str], text: str, name: str) -> tuple[str, str, str]:
    """The README before a capture, the mark of the capture, and what follows it."""
    found = pattern.search(text)
    if found is None:
        raise SystemExit(f"README.md has no place '<!-- capture: {name} -->' to put the output into")
    return text[: found.start()], found[1], text[found.end() :]


if __name__ == "__main__":
    main()
