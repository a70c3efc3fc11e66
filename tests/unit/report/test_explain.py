from __future__ import annotations

import dataclasses
import math

import pytest

from stabilitysuite.claims.outcome import converges, stalls
from stabilitysuite.plan import TWIN
from stabilitysuite.report.explain import explanation, reproduction

from .records import finding, outcome_finding, record, scalar, trace

PLATEAU = scalar("training_loss", [3.4, 3.31, 3.31])
TRAINED = scalar("training_loss", [3.4, 1.9, 1.9])
COMMAND = "pytest --stability cases/warmup.py::post_ln_warm"

STALLED = """\
converges: VIOLATED, 1 of 3 seeds (2 stalled, 1 converged), worst progress -0.005, \
wanted progress at least 0.5 in every seed; seeds 1238712, 22, 3

  case      warmup/post_ln_warm: Post-LN with warmup converges
  source    kexue.fm/archives/8747
  because   2 of 3 seeds on the wrong side (2 stalled, 1 converged)
  margin    -0.505
  seeds     1238712  stalled at step 50    progress -0.005
            22       stalled at step 50    progress -0.005
            3        converged at step 50  progress 0.7
  reproduce: pytest --stability cases/warmup.py::post_ln_warm"""


def test_a_violated_outcome_is_told_seed_by_seed() -> None:
    traces = [trace("stalled", seed=seed, measured=[PLATEAU]) for seed in (1238712, 22)]
    traces.append(trace("converged", seed=3, measured=[TRAINED]))
    failed = record(outcome_finding("violated", traces), claims=[converges()], traces=traces)
    assert explanation(failed, reproduce=COMMAND) == STALLED


def test_the_first_line_is_the_sentence_of_the_deciding_finding() -> None:
    failed = record(finding("holds"), finding("violated", arm="post"), finding("undecided", arm="pre"))
    assert failed.deciding is not None
    assert explanation(failed, reproduce="").splitlines()[0] == failed.deciding.sentence()


def test_other_findings_that_do_not_hold_have_a_line_each_and_the_rest_is_counted() -> None:
    failed = record(
        finding("violated", arm="post", margin=0.5),
        finding("undecided", arm="pre"),
        finding("holds", arm="none"),
        finding("holds", arm="deep"),
    )
    text = explanation(failed, reproduce=COMMAND)
    assert "  undecided [pre] branch_ratio of the first sublayer in [0.045, 0.065]: 0.0563 (99 % interval" in text
    assert "2 other findings hold" in text
    assert "[none]" not in text


@pytest.mark.parametrize(("published", "words"), [(0.01, "differs"), (0.056, "agrees")])
def test_the_published_figure_is_compared_with_the_interval(published: float, words: str) -> None:
    text = explanation(record(finding("undecided", published=published)), reproduce="")
    assert f"x1.13, published {published:.3g}: {words}" in text


def test_an_undecided_finding_says_what_would_decide_it() -> None:
    judged = finding("undecided", reason="the interval reaches across the bound", remedy="more seeds")
    text = explanation(record(judged), reproduce="")
    assert "  because   the interval reaches across the bound; more seeds would decide it" in text


def test_many_seeds_are_counted() -> None:
    seeds = tuple(range(16))
    traces = [trace("initialised", step=0, seed=seed) for seed in seeds]
    judged = finding("violated", seeds=seeds, values=tuple(0.05 + seed / 1000 for seed in seeds))
    text = explanation(record(judged, traces=traces), reproduce=COMMAND)
    assert "  seeds     16: 16 at initialisation\n  values    0.05 0.051 0.052" in text


def test_very_many_values_are_summed_up() -> None:
    judged = finding("violated", seeds=tuple(range(64)), values=(0.05, 0.06, 0.07, math.nan) * 16)
    text = explanation(record(judged), reproduce="")
    assert "  values    0.05 to 0.07, median 0.06, 48 of them finite" in text


def test_a_nonfinite_seed_names_its_place() -> None:
    broken = trace("nonfinite", step=3, layer="blocks.1", tensor="loss", measured=[PLATEAU])
    text = explanation(record(outcome_finding("undecided", [broken]), traces=[broken]), reproduce="")
    assert "seeds     1  nonfinite at step 3 in blocks.1 (loss)  progress nan" in text
    assert "margin    none" in text


def test_the_twin_of_a_stall_is_counted() -> None:
    traces = [trace("stalled", measured=[PLATEAU]), trace("learning", arm=TWIN, measured=[PLATEAU])]
    judged = stalls().judge("", traces[:1], traces[1:], 50)
    assert "  twin      1 learning at step 50" in explanation(record(judged, traces=traces), reproduce="")


def test_an_error_is_told_by_its_own_message() -> None:
    message = "seed 3 ended as crashed: boom\nTraceback:\n  File x"
    text = explanation(record(status="error", message=message), reproduce=COMMAND)
    assert text.splitlines() == [
        "seed 3 ended as crashed: boom",
        "",
        "  case      warmup/post_ln_warm: Post-LN with warmup converges",
        "  source    kexue.fm/archives/8747",
        "  Traceback:",
        "    File x",
        f"  reproduce: {COMMAND}",
    ]


def test_a_long_error_keeps_its_end() -> None:
    text = explanation(
        record(status="error", message="boom\n" + "\n".join(f"line {n}" for n in range(99))), reproduce=""
    )
    assert "line 98" in text
    assert "line 50" not in text
    assert len(text.splitlines()) <= 25


def test_a_control_says_what_was_changed() -> None:
    missed = record(finding("holds"), control=True)
    missed = dataclasses.replace(missed, case={**missed.case, "control": {"warmup": 0}})
    assert "  control   warmup=0: with this change the case must be violated" in explanation(missed, reproduce="")


def test_a_large_record_stays_a_page_of_lines_that_fit() -> None:
    seeds = tuple(range(64))
    judged = [
        finding("violated", arm=f"layers={arm}", seeds=seeds, values=(0.0563,) * 64, reason="reason " * 9)
        for arm in range(12)
    ]
    lines = explanation(record(*judged, says="word " * 60), reproduce=COMMAND).splitlines()
    assert len(lines) <= 35
    assert max(map(len, lines[1:])) <= 98


def test_text_of_others_cannot_break_the_layout() -> None:
    text = explanation(record(finding("violated"), says="first\nsecond \x1b[31mred", source="a\r\nb"), reproduce="")
    assert "warmup/post_ln_warm: first second [31mred\n" in text
    assert "  source    a b\n" in text


def test_reproduction_names_the_case_its_tier_and_the_control() -> None:
    assert reproduction(record()) == COMMAND
    assert reproduction(record(control=True)) == f"{COMMAND} --stability-controls"
    assert reproduction(record(tier="full")) == f"{COMMAND} --stability-tier full"
    assert reproduction(record(file="", id="a/b c")) == "pytest --stability -k 'b c'"
