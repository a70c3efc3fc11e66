from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from stabilitysuite.claims.claim import Claim
from stabilitysuite.claims.finding import Finding
from stabilitysuite.claims.measure import branch_ratio, evaluated_loss, gradient_norm
from stabilitysuite.claims.outcome import converges, diverges, stalls
from stabilitysuite.plan import TWIN
from stabilitysuite.report.cause import cause
from stabilitysuite.trace import OutcomeName, Series, Trace

from .records import finding, outcome_finding, record, scalar, series, trace

PLATEAU = [3.4, 3.35, 3.32, 3.31, 3.31, 3.31]
TRAINED = [3.4, 3.0, 2.6, 2.2, 2.0, 1.9]


def ended(name: OutcomeName, losses: Sequence[float], *measured: Series, seed: int = 1, arm: str = "") -> Trace:
    return trace(name, seed=seed, arm=arm, measured=[scalar("training_loss", losses), *measured])


def caused(claim: Claim, judged: Finding, *traces: Trace) -> list[str]:
    return cause(record(judged, claims=[claim], traces=traces), judged).splitlines()


def failed(claim: Claim, *traces: Trace, verdict: str = "undecided") -> list[str]:
    judged = claim.judge("", [one for one in traces if not one.arm], [], 50)
    assert judged.verdict == verdict
    return caused(claim, judged, *traces)


# ------------------------------------------------------------------------------------------------ non-finite


def test_nonfinite_names_step_layer_tensor_and_the_norm_just_before() -> None:
    broken = trace(
        "nonfinite",
        step=37,
        layer="blocks.3",
        tensor="gradient of blocks.3.ffn.weight",
        measured=[
            scalar("training_loss", [3.4, 3.2, 3.1, 3.3]),
            scalar("gradient_norm", [1.0, 1.0, 2.0, 41.0, math.nan], steps=[0, 10, 20, 30, 40]),
        ],
    )
    assert failed(converges(), broken) == [
        "nearest cause: the first non-finite value is at step 37 in blocks.3 (gradient of blocks.3.ffn.weight)",
        "gradient_norm just before is 41, at step 30, 27.3 times its median until then",
    ]


def test_nonfinite_without_a_recorded_norm_still_names_the_place() -> None:
    broken = trace("nonfinite", step=1, tensor="loss", measured=[scalar("training_loss", [3.4])])
    assert failed(converges(), broken) == ["nearest cause: the first non-finite value is at step 1 (loss)"]


def test_a_bound_on_a_run_that_turned_nonfinite_is_explained_by_that() -> None:
    claim = gradient_norm(step=40).at_most(5)
    broken = trace("nonfinite", step=37, layer="head", measured=[scalar("gradient_norm", [1.0, 9.0], steps=[0, 30])])
    assert failed(claim, broken, verdict="violated")[0].endswith("the first non-finite value is at step 37 in head")


# --------------------------------------------------------------------------------------------------- stalled

COSINE = series("token_cosine", {"layer 0": [0.1] * 6, "layer 11": [0.731, 0.995, 0.98, 0.9992, 0.9999, 0.99998]})
VANISHED = series("layer_gradient_norm", {"layer 0": [0.43, 0.1, 0.005, 0.006, 0.004, 0.005], "layer 11": [0.4] * 6})


def test_a_stall_with_collapsed_tokens_says_since_when_and_by_how_much_the_gradient_fell() -> None:
    assert failed(converges(), ended("stalled", PLATEAU, COSINE, VANISHED)) == [
        "nearest cause: token_cosine of layer 11 is above 0.99 from step 30 on (0.731 at step 0, 0.99998 at step 50)",
        "gradient norm of layer 0 fell by a factor 86 by step 20, 108 by step 40 (0.43 to 0.004)",
    ]


def test_a_stall_is_compared_with_the_twin_of_the_same_seed() -> None:
    trained = series("token_cosine", {"layer 0": [0.1] * 6, "layer 11": [0.73, 0.6, 0.55, 0.5, 0.45, 0.44]})
    traces = [
        ended("stalled", PLATEAU, COSINE),
        ended("converged", TRAINED, trained, arm=TWIN),
        ended("converged", TRAINED, trained, arm=TWIN, seed=2),
    ]
    assert failed(converges(), *traces)[1:] == [
        "the twin, same seed, converged: token_cosine of layer 11 is 0.44 at step 50"
    ]


def test_the_seed_is_named_where_there_are_several() -> None:
    traces = [
        ended("converged", TRAINED, seed=5),
        ended("stalled", PLATEAU, COSINE, seed=7),
        ended("stalled", PLATEAU, COSINE, seed=8),
    ]
    first = failed(converges(), *traces, verdict="violated")[0]
    assert first.startswith("nearest cause: in seed 7 (2 of 3 stalled), token_cosine of layer 11")


def test_a_stall_with_nothing_recorded_or_nothing_striking_has_no_cause() -> None:
    healthy = series("token_cosine", {"layer 0": [0.1] * 6})
    steady = series("layer_gradient_norm", {"layer 0": [0.4, 0.3, 0.2, 0.2, 0.2, 0.2]})
    assert failed(converges(), ended("stalled", PLATEAU)) == []
    assert failed(converges(), ended("stalled", PLATEAU, healthy, steady)) == []


def test_tokens_that_are_alike_from_the_start_are_said_to_be() -> None:
    alike = series("token_cosine", {"layer 0": [0.999] * 6})
    assert failed(converges(), ended("stalled", PLATEAU, alike)) == [
        "nearest cause: token_cosine of layer 0 is above 0.99 from the start (0.99900)"
    ]


def test_a_stall_that_is_wanted_is_explained_by_the_slow_twin() -> None:
    slow = ended("learning", [3.4, 3.2, 3.1, 3.0, 2.9, 2.8], arm=TWIN)
    stalled = ended("stalled", PLATEAU, COSINE)
    judged = stalls().judge("", [stalled], [slow], 50)
    assert judged.verdict == "undecided"
    assert caused(stalls(), judged, stalled, slow)[0].startswith("nearest cause: the twin: progress is 0.25 at step 50")


# ----------------------------------------------------------------------------------- collapsed and diverged


def test_a_collapse_names_the_best_progress_and_the_gradient_norm_when_it_fell_back() -> None:
    norms = scalar("gradient_norm", [1.0, 1.0, 1.0, 35.0, 2.0, 0.5])
    assert failed(converges(), ended("collapsed", [3.3, 2.7, 2.3, 2.9, 3.25, 3.3], norms)) == [
        "nearest cause: best progress 0.5 at step 20, back below 0.1 by step 40",
        "gradient_norm reached 35 at step 30, 35 times its median before",
    ]


def test_a_divergence_names_since_when_and_the_widest_layer() -> None:
    wide = series("residual_std", {"layer 0": [1.0, 1, 1, 2, 2, 2], "layer 1": [1.0, 2, 9, 50, 310, math.inf]})
    assert failed(converges(), ended("diverged", [3.4, 3.2, 3.5, 6.0, 20.0, 18.0], wide)) == [
        "nearest cause: the loss is above its start (3.4) from step 20 on, at most 20 at step 40",
        "residual_std is largest in layer 1 at step 40: 310 (1 at step 0)",
    ]


def test_only_seeds_on_the_wrong_side_are_explained() -> None:
    traces = [ended("diverged", [3.4, 9.0], seed=1), ended("converged", TRAINED, seed=2)]
    assert failed(diverges(), *traces) == []


# -------------------------------------------------------------------------------------------------- learning


def test_a_run_that_is_still_learning_says_how_many_steps_more() -> None:
    assert failed(converges(), ended("learning", [3.3, 3.2, 3.1, 3.0, 2.9, 2.8])) == [
        "nearest cause: progress is 0.25 at step 50, rising by 0.5 per 100 steps over the last 10 steps",
        "at that rate it reaches 0.5 near step 100: more steps",
    ]


def test_the_claim_s_own_progress_is_what_is_waited_for() -> None:
    lines = failed(converges(progress=0.95), ended("converged", [3.3, 3.0, 2.6, 2.2, 2.0, 1.8]))
    assert lines[1] == "at that rate it reaches 0.95 near step 70: more steps"


def test_a_run_that_has_stopped_learning_says_so() -> None:
    assert failed(converges(), ended("learning", [3.3, 3.0, 2.8, 2.8, 2.8, 2.8])) == [
        "nearest cause: progress is 0.25 at step 50 and does not rise over the last 10 steps"
    ]


# ------------------------------------------------------------------------------------------ layers of a bound


def profiled(claim: Claim, name: str, values: Sequence[float]) -> list[str]:
    rows = {f"blocks.{index}": [value] for index, value in enumerate(values)}
    traces = [trace("initialised", seed=seed, measured=[series(name, rows)]) for seed in (1, 2)]
    judged = finding("violated", claim=claim.words(), seeds=(1, 2))
    return caused(claim, judged, *traces)


def test_the_first_layer_outside_is_named_with_those_before_it() -> None:
    """What is behind it inherits what it does: a block after a lost residual shows the larger ratio."""
    claim = branch_ratio("max").at_most(0.5)
    assert profiled(claim, "branch_ratio", [0.21, 0.18, 1.02, 1.59, 0.19]) == [
        "nearest cause: blocks.2 is the first sublayer outside, with branch_ratio 1.02; in the sublayers before it "
        "0.18 to 0.21"
    ]
    assert profiled(claim, "branch_ratio", [1.2, 0.18, 0.2, 0.3]) == [
        "nearest cause: blocks.0 is the first sublayer outside, with branch_ratio 1.2"
    ]


def test_a_layer_on_the_good_side_is_never_named() -> None:
    assert "blocks.1" in profiled(branch_ratio("max").at_most(0.5), "branch_ratio", [0.2, 1.0, 1.6, 1.5])[0]
    assert profiled(branch_ratio("max").at_most(2), "branch_ratio", [0.01, 1.0, 1.6, 1.5]) == []


def test_a_layer_that_is_too_small_is_named_as_well() -> None:
    lines = profiled(gradient_norm("min").at_least(0.1), "layer_gradient_norm", [0.5, 0.4, 0.01, 0.45])
    assert lines == [
        "nearest cause: blocks.2 is the first layer outside, with layer_gradient_norm 0.01; in the layers before it "
        "0.4 to 0.5"
    ]


def test_the_norm_over_all_parameters_is_explained_by_its_layers() -> None:
    lines = profiled(gradient_norm().at_most(1), "layer_gradient_norm", [0.5, 0.4, 9.0, 0.45])
    assert "blocks.2 has layer_gradient_norm 9" in lines[0]


def test_a_norm_that_grows_all_the_way_is_said_to() -> None:
    lines = profiled(gradient_norm().at_most(1), "layer_gradient_norm", [1, 2, 4, 8, 16, 32])
    assert lines == ["nearest cause: layer_gradient_norm grows with every layer, from 1 in blocks.0 to 32 in blocks.5"]


@pytest.mark.parametrize("values", [[0.1, 0.12, 0.14, 0.15], [0.1, 9.0], [0.1, 0.3, 0.2, 0.7], [0.1, math.nan, 0.1]])
def test_nothing_is_said_where_no_layer_stands_out(values: list[float]) -> None:
    assert profiled(gradient_norm().at_most(0.01), "layer_gradient_norm", values) == []


# ------------------------------------------------------------------------------------------------- edges of it


def test_what_holds_has_no_cause() -> None:
    runs = [ended("converged", TRAINED, COSINE, seed=seed) for seed in (1, 2)]
    assert caused(converges(), outcome_finding("holds", runs), *runs) == []


def test_a_finding_without_traces_and_one_of_an_unknown_claim_have_no_wrong_cause() -> None:
    assert caused(converges(), finding("violated")) == []
    unknown = finding("violated", claim="a claim of a later version", seeds=(1,))
    assert cause(record(unknown, traces=[ended("converged", TRAINED)]), unknown) == ""


def test_a_bound_on_a_loss_has_no_layers_to_name() -> None:
    claim = evaluated_loss().at_most(1)
    run = trace(measured=[scalar("evaluated_loss", [3.0, 2.0])])
    assert caused(claim, finding("violated", claim=claim.words(), seeds=(1,)), run) == []
