"""Without --stability the plugin is not there, as far as anybody can measure."""

from __future__ import annotations

import json

import pytest

PROBE = """
import json, pathlib, sys

def pytest_unconfigure():
    heavy = [name for name in ("torch", "numpy", "scipy") if name in sys.modules]
    ours = sorted(name for name in sys.modules if name.split(".")[0] == "stabilitysuite")
    pathlib.Path("loaded.json").write_text(json.dumps([ours, heavy]))
"""


@pytest.mark.parametrize("args", [(), ("--help",), ("--collect-only",)], ids=["run", "help", "collect"])
def test_exactly_two_modules_are_loaded(pytester: pytest.Pytester, args: tuple[str, ...]) -> None:
    pytester.makeconftest(PROBE)
    pytester.makepyfile(test_ordinary="def test_passes(): pass")
    pytester.mkdir("stability").joinpath("net.py").write_text("raise RuntimeError('imported')")
    assert pytester.runpytest_subprocess(*args).ret == 0
    loaded = json.loads(pytester.path.joinpath("loaded.json").read_text())
    assert loaded == [["stabilitysuite", "stabilitysuite.plugin"], []]


def test_other_plugins_see_no_marks_nor_python_files_of_ours(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--markers")
    assert "stability case" not in result.stdout.str()
    assert not pytester.path.joinpath("stability-results").exists()


def test_a_stability_file_that_is_named_asks_for_the_switch(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("stability")
    folder.joinpath("net.py").write_text("from stabilitysuite import Case\n")
    folder.joinpath("foreign.py").write_text("def test_of_another_project(): pass\n")
    folder.joinpath("test_ordinary.py").write_text("import stabilitysuite\ndef test_ordinary(): pass\n")
    for arg in ("stability/net.py", "stability/net.py::post_ln"):
        result = pytester.runpytest_inprocess(arg)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["ERROR: stability/net.py declares stability cases*: add --stability"])
    # a folder, an ordinary test in such a folder and a file that has nothing to do with us are left alone
    for arg, passed in (("stability", 1), ("stability/test_ordinary.py", 1), ("stability/foreign.py", 1)):
        pytester.runpytest_inprocess(arg).assert_outcomes(passed=passed)


def test_the_fixture_without_the_switch_is_an_error_in_words(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_ordinary="def test_trains(stability): pass")
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*only a stability run does: add --stability"])
    result.stdout.no_fnmatch_line("*plugin/__init__.py*")


def test_the_plugin_can_be_left_out(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_ordinary="def test_passes(): pass")
    assert pytester.runpytest_inprocess("-p", "no:stabilitysuite").ret == 0
    assert pytester.runpytest_inprocess("-p", "no:stabilitysuite", "--stability").ret == 4
