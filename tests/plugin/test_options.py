"""Options, their twins in the configuration file, and values that cannot be."""

from __future__ import annotations

import pytest

from stabilitysuite.plugin import SETTINGS
from stabilitysuite.plugin.options import Options
from tests.plugin.conftest import Project

ONE_CASE = "case = _base.but(says='it', lr=1.0)\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--stability-seeds", "0"), "--stability-seeds: 0 is too few*"),
        (("--stability-seeds", "-3"), "--stability-seeds: -3 is too few*"),
        (("--stability-seeds", "many"), "*--stability-seeds: invalid int value*"),
        (("--stability-seed", "-1"), "--stability-seed: a seed is a whole number from 0, not -1"),
        (("--stability-seeds", "3", "--stability-seed", "7"), "*both given*"),
        (("--stability-tier", "fuul"), "--stability-tier: 'fuul' is not known: did you mean 'full'?"),
        (("--stability-undecided", "ignore"), "--stability-undecided: *known: fail, neutral*"),
        (("--stability-threads", "0"), "--stability-threads: 0 is too few*"),
        (("--stability-budget", "-1"), "--stability-budget: *"),
        (("--stability-budget", "nan"), "--stability-budget: *"),
        (("--stability-device", "auto"), "--stability-device: 'auto' is not a device: use cpu, cuda or cuda:N"),
        (("--stability-out", "stability"), "--stability-out: the output folder * cannot be used: *"),
        (("--dist", "each", "--tx", "popen"), "--dist each would run every case on every worker*"),
        (("-o", "stability_files=/absolute/*.py"), "stability_files: '/absolute/[*].py' must be a glob relative to*"),
        (("-o", "stability_tier=papers"), "stability_tier in tox.ini: 'papers' *did you mean 'paper'?"),
        (("-o", "stability_seed=1 two"), "stability_seed in tox.ini: a seed is a whole number*"),
        (("-o", "stability_seeds=many"), "stability_seeds in tox.ini: *"),
    ],
)
def test_a_bad_value_is_refused_before_anything_runs(project: Project, args: tuple[str, ...], words: str) -> None:
    project.cases("raise RuntimeError('imported')")
    project.write("stability/net.py", "raise RuntimeError('imported')")
    if args[1] == "stability":
        args = ("--stability-out", "stability/net.py")
    result = project.inside(*args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{words}"])
    assert "imported" not in result.stdout.str()


def test_a_card_that_is_not_there_is_refused_before_collection(project: Project) -> None:
    project.write("stability/net.py", "raise RuntimeError('imported')")
    result = project.outside("--stability-device", "cuda:7")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --stability-device: device 'cuda:7' is not there: *use cpu"])
    assert "imported" not in result.stdout.str()


def test_every_setting_has_a_twin_and_the_command_line_wins(project: Project) -> None:
    project.write(
        "tox.ini",
        """[pytest]
stability_tier = paper
stability_seeds = 4
stability_device = cpu
stability_threads = 2
stability_budget = 1.5
stability_out = there
stability_undecided = fail
stability_controls = true
stability_calibration = records
stability_calibrate = false
stability_calibration_seeds = 16
stability_calibration_factor = 2
""",
    )
    options = Options.of(project.pytester.parseconfig())
    assert (options.tier, options.seeds, options.seed, options.device) == ("paper", 4, (), "cpu")
    assert (options.threads, options.budget, options.undecided, options.controls) == (2, 1.5, "fail", True)
    assert options.out == project.path / "there"
    assert (options.calibration, options.calibrate) == (project.path / "records", False)
    assert (options.calibration_seeds, options.calibration_factor) == (16, 2.0)
    assert Options.of(project.pytester.parseconfig("-o", "stability_calibration=")).calibration is None
    given = ("--stability-tier=full", "--stability-seeds=2", "--stability-threads=1", "--stability-budget=9")
    options = Options.of(project.pytester.parseconfig(*given, "--stability-undecided=neutral"))
    assert (options.tier, options.seeds, options.threads, options.budget) == ("full", 2, 1, 9.0)
    assert options.undecided == "neutral"
    project.write("tox.ini", "[pytest]\nstability_seed = 3 5 3\n")
    assert Options.of(project.pytester.parseconfig()).seed == (3, 5)
    assert {setting.ini for setting in SETTINGS} == {f"stability_{name}" for name in Options.__slots__}


def test_typed_values_of_a_toml_file_are_taken_as_they_are(project: Project) -> None:
    (project.path / "tox.ini").unlink()
    project.write(
        "pytest.toml",
        "[pytest]\nstability_seeds = 4\nstability_budget = 1.5\nstability_controls = true\n"
        'stability_files = ["a.py"]\n',
    )
    options = Options.of(project.pytester.parseconfig())
    assert (options.seeds, options.budget, options.controls) == (4, 1.5, True)


def test_seeds_reach_the_case_and_the_head_of_the_session(project: Project) -> None:
    project.fake_lab()
    project.cases(ONE_CASE)
    result = project.inside("--stability-seed", "5", "--stability-seed", "3")
    result.stdout.fnmatch_lines(["stabilitysuite: 0.*, tier quick, cpu, 1 thread, seed 5, 3 only"])
    result.stdout.fnmatch_lines(["holds *net/case*2 of 2 seeds*"])
    project.inside("--stability-seeds", "7").stdout.fnmatch_lines(["holds *7 of 7 seeds*"])


def test_a_folder_elsewhere_does_not_move_the_rootdir(project: Project) -> None:
    project.fake_lab()
    project.cases(ONE_CASE)
    elsewhere = project.path.parent / "elsewhere"
    for there in (False, True):
        if there:
            elsewhere.mkdir()
        refused = project.inside("--stability-out", str(elsewhere))
        assert refused.ret == pytest.ExitCode.USAGE_ERROR
        refused.stderr.fnmatch_lines([f"*--stability-out {elsewhere}: write --stability-out={elsewhere}; *"])
    for parallel in ((), ("-n", "2")):
        project.inside(f"--stability-out={elsewhere}", *parallel).assert_outcomes(passed=1)
    assert len(list(elsewhere.glob("*.jsonl"))) >= 2
    project.inside("--stability-out", "within").assert_outcomes(passed=1)
