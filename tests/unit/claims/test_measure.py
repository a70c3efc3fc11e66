from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from stabilitysuite.claims import measure as measures
from stabilitysuite.claims.bound import Bound
from stabilitysuite.claims.measure import (
    Measure,
    branch_ratio,
    evaluated_loss,
    gradient_norm,
    residual_gradient,
    residual_std,
    token_cosine,
    training_loss,
    update_ratio,
)
from stabilitysuite.errors import DeclarationError, NoData
from stabilitysuite.quantity import QUANTITIES
from stabilitysuite.spec import GAU, Gaussian, Markov, Training, Transformer
from stabilitysuite.trace import Trace
from tests.fakes import series, trace

LABELS = ("layer 0", "layer 1", "layer 2")
KEPT = [
    series("residual_std", {0: [1, 5, 3], 10: [2, 4, 6]}, LABELS),
    series("residual_gradient", {0: [2, 2, 2], 10: [4, 8, 0]}, LABELS),
    series("training_loss", {0: [4.0], 10: [3.0]}),
]


def left(**changed: Any) -> Trace:
    return trace(changed.pop("outcome", ("learning", 11)), seed=7, kept=changed.pop("kept", KEPT))


@pytest.mark.parametrize(
    ("measure", "value", "label", "step"),
    [
        (training_loss(), 3.0, "", 10),
        (training_loss(step=0), 4.0, "", 0),
        (training_loss(step="max"), 4.0, "", 0),
        (training_loss(step="min"), 3.0, "", 10),
        (training_loss(step="mean"), 3.5, "mean", 10),
        (residual_std("first"), 2, "layer 0", 10),
        (residual_std("last"), 6, "layer 2", 10),
        (residual_std(1), 4, "layer 1", 10),
        (residual_std("layer 1"), 4, "layer 1", 10),
        (residual_std("max"), 6, "layer 2", 10),
        (residual_std("min"), 2, "layer 0", 10),
        (residual_std("mean"), 4, "mean", 10),
        (residual_std("max", step=0), 5, "layer 1", 0),
        (residual_std("max", step="max"), 6, "layer 2", 10),
        (residual_std("min", step="max"), 2, "layer 0", 10),
        (residual_std("max", step="min"), 5, "layer 1", 0),
        (residual_std("last") / residual_std("first"), 3, "layer 2", 10),
        (residual_std("last", step=10) / residual_std("last", step=0), 2, "layer 2", 10),
        (residual_std("last") / residual_gradient("last"), math.inf, "layer 2", 10),
    ],
    ids=lambda value: value.words() if isinstance(value, Measure) else "",
)
def test_a_number_is_found_with_its_place(measure: Measure, value: float, label: str, step: int) -> None:
    found = measure.read(left())
    assert found.value == pytest.approx(value)
    assert (found.label, found.step) == (label, step)


@pytest.mark.parametrize("above", [0.0, 1.0, math.inf, math.nan])
@pytest.mark.parametrize("below", [0.0, math.inf, -math.inf, math.nan])
def test_a_ratio_is_never_finite_where_its_parts_say_nothing(above: float, below: float) -> None:
    kept = [series("residual_std", {0: [above]}, ["layer 0"]), series("residual_gradient", {0: [below]}, ["layer 0"])]
    value = (residual_std("last") / residual_gradient("last")).read(left(kept=kept)).value
    assert not math.isfinite(value)


def test_not_a_number_beats_every_reduction() -> None:
    kept = [series("residual_std", {0: [1.0, math.nan, 9.0]}, LABELS)]
    for how in ("max", "min", "mean"):
        found = residual_std(how).read(left(kept=kept))
        assert math.isnan(found.value)
        assert found.label == "layer 1"


@pytest.mark.parametrize("step", ["last", "max", "min", "mean"])
def test_a_run_that_broke_has_no_last_or_largest_value(step: Any) -> None:
    found = residual_std("max", step=step).read(left(outcome=("nonfinite", 11)))
    assert math.isnan(found.value)
    assert residual_std("max", step=0).read(left(outcome=("nonfinite", 11))).value == 5


def test_a_run_that_was_broken_from_the_start_shows_what_it_has() -> None:
    kept = [series("residual_std", {0: [1.0, 9.0, 2.0]}, LABELS)]
    assert residual_std("max").read(left(outcome=("nonfinite", 0), kept=kept)).value == 9.0


@pytest.mark.parametrize("name", ["nonfinite", "diverged"])
def test_a_step_after_the_end_is_not_a_number(name: str) -> None:
    assert math.isnan(residual_std("max", step=20).read(left(outcome=(name, 11))).value)


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (
            token_cosine(),
            "token_cosine has no data for seed 7: its probe never fired. It needs blocks whose output is "
            "[batch, tokens, width]; name them with layers='blocks.*'.",
        ),
        (evaluated_loss(), "evaluated_loss has no data for seed 7: its probe never fired."),
        (residual_std("last", step=5), "residual_std of the last layer at step 5: step 5 was not recorded for seed 7"),
        (residual_std("layer 9"), "residual_std of layer 9: did you mean 'layer 2'?; this is what was recorded"),
        (residual_std(3), "residual_std of layer 3: there is no number 3, only 0 to 2; this is what was recorded"),
        (residual_std(), "residual_std: there are 3 (layer 0, layer 1, layer 2, ...): say which, or 'max', 'min'"),
    ],
    ids=lambda value: value.words() if isinstance(value, Measure) else "",
)
def test_no_data_is_an_error_that_names_what_to_do(measure: Measure, message: str) -> None:
    with pytest.raises(NoData) as caught:
        measure.read(left())
    assert str(caught.value).strip().startswith(message)
    assert "\n" not in str(caught.value)


def test_an_empty_series_is_no_data() -> None:
    with pytest.raises(NoData, match="its probe never fired"):
        training_loss().read(left(kept=[series("training_loss", {})]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Measure(quantity="gradient_norm", where="last"), "gradient_norm has one value a step: it takes no"),
        (lambda: gradient_norm(step=-1), "gradient_norm: step must be 0 or later, not -1"),
        (lambda: gradient_norm("last", parameter="max"), "gradient_norm: name a layer or a parameter, not both"),
        (
            lambda: (gradient_norm() / training_loss()) / training_loss(),
            "a ratio of ratios has no name: divide two plain quantities",
        ),
        (
            lambda: Measure(quantity="training_loss", step="lst"),  # type: ignore[arg-type]
            "Measure: step='lst' is not known: did you mean 'last'?",
        ),
    ],
)
def test_a_measure_that_cannot_be_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        make()
    assert str(caught.value).startswith(message)


def test_a_measure_is_divided_by_a_measure_only() -> None:
    with pytest.raises(TypeError):
        gradient_norm() / 2  # type: ignore[operator]


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        (training_loss(), "training_loss"),
        (training_loss(step="max"), "training_loss (max over steps)"),
        (token_cosine(step=60), "token_cosine of the last layer at step 60"),
        (branch_ratio("max"), "branch_ratio (max over sublayers)"),
        (branch_ratio("layer 0 ffn"), "branch_ratio of layer 0 ffn"),
        (gradient_norm(0), "layer_gradient_norm of layer 0"),
        (gradient_norm(parameter="head"), "parameter_gradient_norm of head"),
        (update_ratio(), "update_ratio (max over parameters)"),
        (
            gradient_norm("first", step=50) / gradient_norm("first", step=0),
            "layer_gradient_norm of the first layer at step 50 / layer_gradient_norm of the first layer at step 0",
        ),
    ],
)
def test_a_measure_in_words(measure: Measure, words: str) -> None:
    assert measure.words() == words


def test_ratios_and_norms_are_averaged_as_factors() -> None:
    assert gradient_norm().on_log_scale()
    assert (token_cosine() / token_cosine(step=0)).on_log_scale()
    assert not token_cosine().on_log_scale()


def test_what_must_be_recorded_is_said() -> None:
    measure = token_cosine(step=5) / residual_std("last", step=3)
    assert measure.quantities() == {"token_cosine", "residual_std"}
    assert measure.steps_read() == {3, 5}


def test_every_quantity_has_a_function() -> None:
    named = [getattr(measures, name) for name in measures.__all__ if name not in ("Measure", "no_spikes")]
    made = [make() for make in named] + [gradient_norm("last"), gradient_norm(parameter="max")]
    assert {measure.quantity for measure in made} == set(QUANTITIES)


GAUSSIAN = Training(model=Transformer(layers=2, width=8), task=Gaussian())
TRAINED = Training(model=Transformer(layers=2, width=8), task=Markov(), steps=5)


def own(**changes: Any) -> Training:
    def build() -> None:
        """Stands for a module."""

    fields: dict[str, Any] = {"data": lambda seed: [], "loss": lambda model, batch: 0, "steps": 5} | changes
    return Training(model=build, **fields)


@pytest.mark.parametrize(
    ("measure", "training", "message"),
    [
        (
            measures.attention_entropy(),
            own(),
            "attention_entropy is of a zoo model: where a module of your own has its",
        ),
        (
            measures.attention_entropy(),
            Training(model=GAU(width=8), task=Gaussian()),
            "attention_entropy is of a softmax, a GAU has none: it takes attention_logit_std and attention_logit_max",
        ),
        (
            measures.attention_logit_std(),
            Training(model=GAU(width=8, kernel="diagonal"), task=Gaussian()),
            "attention_logit_std is of pairs of tokens, a GAU with kernel='diagonal' has none",
        ),
        (
            measures.attention_logit_max(),
            Training(model=Transformer(layers=1, width=8, attention=False), task=Gaussian()),
            "attention_logit_max is of a model with attention, this one has attention=False",
        ),
        (measures.movement(), GAUSSIAN, "movement needs an optimizer update, but steps=0"),
        (measures.output_change(), GAUSSIAN, "output_change needs an optimizer update, but steps=0"),
        (
            measures.loss_drop(),
            own(loss=None, step=lambda model, batch, optimizer: 0),
            "loss_drop repeats a forward pass, which step= hides: use loss=",
        ),
        (measures.steps_to_converge(), own(), "steps_to_converge needs a task with known losses, such as Markov(), or"),
        (evaluated_loss(), own(), "evaluated_loss needs a task with known losses, such as Markov()"),
    ],
)
def test_what_a_training_cannot_have_is_refused(measure: Measure, training: Training, message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        measure.check(training)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("measure", "training"),
    [
        (measures.attention_logit_max("last"), Training(model=GAU(width=8, layers=2), task=Gaussian())),
        (measures.attention_entropy(1), TRAINED),
        (measures.perturbation_change(), GAUSSIAN),
        (measures.steps_to_converge(), own(target=1.0)),
        (measures.loss_drop(), own()),
    ],
)
def test_what_a_training_can_have_is_not(measure: Measure, training: Training) -> None:
    measure.check(training)


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (measures.attention_entropy().at_least(1), "attention_entropy (min over layers) at least 1"),
        (measures.weight_kurtosis("head").at_most(3), "weight_kurtosis of head at most 3"),
        (measures.loss_drop(step=5).between(0.5, 1.5), "loss_drop at step 5 in [0.5, 1.5]"),
        (
            measures.norm_gain("max", step="max").at_most(2),
            "norm_gain (max over parameters) (max over steps) at most 2",
        ),
        (measures.steps_to_converge().at_most(60), "steps_to_converge at most 60"),
        (measures.no_spikes(), "spikes at most 0"),
    ],
)
def test_a_bound_on_a_measure_in_words(claim: Bound, words: str) -> None:
    assert claim.words() == words


@pytest.mark.parametrize("name", ["movement", "weight_std", "perturbation_change", "steps_to_converge"])
def test_a_ratio_at_most_zero_is_refused(name: str) -> None:
    with pytest.raises(DeclarationError, match="is never negative: at most 0"):
        getattr(measures, name)().at_most(0)
