"""Which files and which cases become items, and what happens to broken ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.conftest import Project


def collected(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line and not line.startswith(("ERROR", "FAILED"))]


def test_names_dict_entries_and_functions_are_items(project: Project) -> None:
    project.cases("""
plain = _base.but(says="plain", lr=1.0)
alias = plain
widths = {"narrow": _base.but(says="narrow", width=4), 2: _base.but(says="two", lr=2.0)}
_templates = {"a": _base.but(says="a template", lr=3.0)}
slow = _base.but(says="slow", lr=1.1, tier="full", marks=(pytest.mark.xfail(strict=True),))
def test_imperative(): pass
""")
    project.cases("from net import plain\nown = _base.but(says='own', lr=1.5)\n", name="stability/importing.py")
    project.pytester.makeini("[pytest]\naddopts = --strict-markers\npythonpath = stability\n")
    result = project.inside("--collect-only", "-q")
    assert collected(result) == [
        "stability/importing.py::own",
        "stability/net.py::plain",
        "stability/net.py::widths[narrow]",
        "stability/net.py::widths[2]",
        "stability/net.py::test_imperative",
    ]
    result.stdout.fnmatch_lines(["5/6 tests collected (1 deselected)*"])
    assert not project.results.exists()


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (("stability/net.py::plain",), ["plain"]),
        (("stability/net.py::widths",), ["widths[a]", "widths[b]"]),
        (("stability/net.py::widths[b]",), ["widths[b]"]),
        (("-k", "plain or a]"), ["plain", "widths[a]"]),
        (("-m", "quick and slow_machine"), ["plain"]),
        (("--stability-tier", "full", "-m", "full"), ["big"]),
        (("--deselect", "stability/net.py::plain"), ["widths[a]", "widths[b]"]),
    ],
)
def test_selection_is_pytests_own(project: Project, args: tuple[str, ...], names: list[str]) -> None:
    project.pytester.makeini("[pytest]\naddopts = --strict-markers\nmarkers = slow_machine\n")
    project.cases("""
plain = _base.but(says="plain", lr=1.0, marks=(pytest.mark.slow_machine,))
widths = {"a": _base.but(says="a", lr=1.1), "b": _base.but(says="b", lr=1.2)}
big = _base.but(says="big", lr=1.3, tier="full")
""")
    result = project.inside("--collect-only", "-q", *args)
    assert collected(result) == [f"stability/net.py::{name}" for name in names]


def test_ordinary_tests_are_not_imported_and_the_current_folder_does_not_matter(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.pytester.makeini("""
        [pytest]
        testpaths = tests
        pythonpath = src
        norecursedirs = build
        stability_files = cases/*.py one.py
        addopts = --doctest-modules
    """)
    for name in ("tests/test_broken.py", "tests/sub/conftest.py", "src/package/module.py", "cases/sub/deep.py"):
        project.write(name, "raise RuntimeError('imported')")
    project.write("tests/test_words.txt", ">>> 1 / 0\n")
    project.write("cases/conftest.py", "")
    project.cases("inner = _base.but(says='inner', lr=1.0)\n", name="cases/x.py")
    project.cases("top = _base.but(says='top', lr=1.0)\n", name="one.py")
    result = project.inside("--collect-only", "-q")
    assert result.ret == 0
    assert collected(result) == ["cases/x.py::inner", "one.py::top"]
    monkeypatch.chdir(project.path / "cases")
    assert collected(project.inside("--collect-only", "-q")) == ["cases/x.py::inner"]
    assert collected(project.inside("--collect-only", "-q", "../one.py")) == ["one.py::top"]
    assert project.inside("../tests").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_asserts_of_stability_files_are_rewritten_and_of_nothing_else(project: Project) -> None:
    project.write("helper.py", "def check():\n    value = 1\n    assert value == 2\n")
    project.pytester.makeini("[pytest]\npythonpath = .\n")
    project.write(
        "stability/net.py",
        "import helper\ndef test_own():\n    value = 1\n    assert value == 3\ndef test_other():\n    helper.check()\n",
    )
    result = project.inside()
    result.stdout.fnmatch_lines(["E       assert 1 == 3"])
    assert "E       assert 1 == 2" not in result.stdout.str()


def test_a_broken_file_is_one_error_and_the_others_run(project: Project) -> None:
    project.fake_lab()
    project.cases("fine = _base.but(says='fine', lr=1.0)\n", name="stability/a_fine.py")
    project.cases("typo = _base.but(says='typo', lrr=1.0)\n", name="stability/b_typo.py")
    project.write("stability/c_exits.py", "import sys\nsys.exit('no GPU')\n")
    project.write("stability/d_raises.py", "{}['key']\n")
    project.cases("_base.but(says='lost', lr=1.0)\n", name="stability/e_lost.py")
    project.cases("cases = [\n    _base.but(says='in a list', lr=1.0),\n]\n", name="stability/f_list.py")
    project.cases("a = _base.but(says='mark', lr=1.0, marks=(3,))\n", name="stability/g_marks.py")
    result = project.inside()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, errors=6)
    line = CASES_LINES + 1
    result.stdout.fnmatch_lines(
        [
            f"stability/b_typo.py:{line}: *lrr*did you mean 'lr'?",
            "stability/c_exits.py ends the program while it is imported (SystemExit: no GPU)*",
            "E   KeyError: 'key'",
            f"stability/e_lost.py:{line}: lost",
            "*would never run: give it a name*",
            f"stability/f_list.py:{line + 1}: in a list",
            "*marks takes pytest marks*",
        ]
    )
    assert "case.py" not in result.stdout.str()


CASES_LINES = Path(__file__).with_name("conftest.py").read_text(encoding="utf-8").split('"""')[3].count("\n")


def test_two_cases_of_one_id_are_an_error_that_names_both_files(project: Project) -> None:
    project.pytester.makeini("[pytest]\nstability_files = stability/*.py more/*.py\n")
    project.fake_lab()
    project.cases("same = _base.but(says='one', lr=1.0)\n")
    project.cases("same = _base.but(says='other', lr=1.0, width=4)\n", name="more/net.py")
    project.cases("d = {1: _base.but(says='1', lr=1.1), '1': _base.but(says='one', lr=1.0)}\n", "stability/d.py")
    result = project.inside()
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(
        ["two cases have the id net/same: one in more/net.py, one in stability/net.py; rename *"]
    )
    result.stdout.fnmatch_lines(["stability/d.py: two keys of d are spelled the same*"])


def test_a_case_made_by_an_imported_helper_belongs_to_the_file_that_called_it(project: Project) -> None:
    project.pytester.makeini("[pytest]\npythonpath = .\n")
    project.write("helper.py", CASES_OF_A_HELPER)
    project.write("stability/net.py", "from helper import make\nmine = make(1.0)\nmake(2.0)\n")
    result = project.inside("--collect-only", "-q")
    result.stdout.fnmatch_lines(["stability/net.py:3: made", "*would never run*"])
    project.write("stability/net.py", "from helper import make\nmine = make(1.0)\n")
    assert collected(project.inside("--collect-only", "-q")) == ["stability/net.py::mine"]


CASES_OF_A_HELPER = """
from stabilitysuite import Adam, Case, Markov, Transformer, converges

def make(lr):
    return Case(says="made", model=Transformer(layers=1, width=8, heads=2), task=Markov(), optimizer=Adam(lr=lr),
                steps=5, expect=converges())
"""


def test_nothing_to_run_is_pytests_exit_code(project: Project) -> None:
    assert project.inside().ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "stability ==" not in project.inside().stdout.str()
    assert project.inside("no/such/file.py").ret == pytest.ExitCode.USAGE_ERROR
