"""The code is built in floors: an import only goes downward, wherever in a module it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import PACKAGE, ROOT, imports, module_name, modules

FLOORS = (
    ("errors",),
    ("quantity", "declaration", "trace", "stats"),
    ("task",),
    ("spec",),
    ("changes", "claims"),
    ("case",),
    ("plan",),
    ("judge", "record", "calibration"),
    ("sight",),
    ("calibrate", "settle", "catalogue", "store", "report", "compare"),
    ("plugin",),
    ("cli",),
)
"""From the ground up; what stands on one floor does not know of its neighbours."""
LAB_RESTS_ON = {"errors", "quantity", "declaration", "trace", "task", "spec", "case", "lab"}
"""``case`` for the sources of its callables."""
LAZY = {("plugin", "lab"), ("cli", "lab")}
"""Reached only from inside a function, or for types: so torch is not imported before a case runs."""
HEIGHT = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}


def room(module: str) -> str:
    """The part of the package that a module belongs to; empty for the door, ``stabilitysuite`` itself."""
    return [*module.split("."), ""][1]


def known_module(target: str) -> str:
    """The module of which an imported name is, or the name where it is a module itself."""
    path = ROOT.joinpath(*target.split("."))
    return target if path.is_dir() or path.with_suffix(".py").is_file() else target.rpartition(".")[0]


def ours() -> list[Path]:
    return [path for path in modules() if path != PACKAGE / "__init__.py"]


def test_every_room_has_its_floor() -> None:
    assert {room(module_name(path)) for path in ours()} <= {*HEIGHT, "lab"}


@pytest.mark.parametrize("path", ours(), ids=module_name)
def test_an_import_only_goes_downward(path: Path) -> None:
    here = room(module_name(path))
    wrong = []
    for item in imports(path):
        if item.module.split(".")[0] != PACKAGE.name or item.module == PACKAGE.name:
            continue  # the door itself is open already; its names are not to be asked for
        there = room(known_module(item.module))
        if here == there:
            continue
        if there == "lab":
            allowed = (here, there) in LAZY and (item.late or item.types_only)
        elif here == "lab":
            allowed = there in LAB_RESTS_ON
        else:
            allowed = there != "" and HEIGHT[there] < HEIGHT[here]
        if not allowed:
            wrong.append(f"{path.relative_to(ROOT)}:{item.line} imports {item.module}")
    assert not wrong


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_torch_stays_in_the_lab_and_nothing_imports_what_is_built_on_the_package(path: Path) -> None:
    for item in imports(path):
        top = item.module.split(".")[0]
        assert top not in {"cases", "ci", "tests"}, f"line {item.line}"
        assert top != "torch" or room(module_name(path)) == "lab", f"line {item.line}"


PROGRAM = """
import sys
import stabilitysuite
loaded = sorted(name for name in sys.modules if name.startswith("stabilitysuite"))
assert loaded == ["stabilitysuite"], loaded
from stabilitysuite import AdamW, Case, Markov, Transformer, converges, gradient_norm
case = Case(
    says="x", model=Transformer(layers=2, width=8), task=Markov(), optimizer=AdamW(lr=1e-3), steps=9,
    expect=(converges(), gradient_norm("last").at_most(9)), control=dict(lr=1), sweep=dict(warmup=(0, 1)),
)
case.but(says="y", layers=3).digest()
print([name for name in ("torch", "numpy", "scipy", "jinja2", "click") if name in sys.modules])
"""


def test_building_a_case_loads_nothing_heavy() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")
