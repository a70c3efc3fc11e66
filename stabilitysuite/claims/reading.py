"""Which number of a trace a claim is about, and how it is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from stabilitysuite.errors import DeclarationError, NoData, nearest
from stabilitysuite.quantity import quantity
from stabilitysuite.spec import GAU, KnownTask, Spec, Training, Transformer
from stabilitysuite.trace import Series, Trace

__all__ = ["REDUCTIONS", "Measured", "Reading", "place"]

REDUCTIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "max": max,
    "min": min,
    "mean": lambda values: math.fsum(values) / len(values),
}
Where = int | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One number of one trace, and where it was found."""

    value: float
    label: str
    """Layer, sub-layer or parameter; empty where the quantity has one value a step."""
    step: int


@dataclass(frozen=True, kw_only=True)
class Reading(Spec):
    """One number of a trace: a quantity, where along its axis, at which step, over what."""

    quantity: str
    where: int | str | None = None
    """Layer number, label, ``first``, ``last``, or ``max`` / ``min`` / ``mean`` over all of them."""
    step: int | Literal["last", "max", "min", "mean"] = "last"
    """Step number, the last one, or a reduction over the recorded steps."""
    over: Reading | None = None
    """Denominator, where the number is a ratio."""

    def _check(self) -> None:
        kind = quantity(self.quantity)
        if kind.axis is None and self.where is not None:
            raise DeclarationError(f"{self.quantity} has one value a step: it takes no layer or parameter")
        if isinstance(self.step, int) and self.step < 0:
            raise DeclarationError(f"{self.quantity}: step must be 0 or later, not {self.step}")

    def words(self) -> str:
        """Such as ``token_cosine of the last layer at step 60``."""
        kind = quantity(self.quantity)
        place = ""
        if self.where in REDUCTIONS:
            place = f" ({self.where} over {kind.axis}s)"
        elif self.where in ("first", "last"):
            place = f" of the {self.where} {kind.axis}"
        elif self.where is not None:
            place = f" of {kind.axis} {self.where}" if isinstance(self.where, int) else f" of {self.where}"
        when = f" at step {self.step}" if isinstance(self.step, int) else ""
        when = f" ({self.step} over steps)" if self.step in REDUCTIONS else when
        own = f"{self.quantity}{place}{when}"
        return own if self.over is None else f"{own} / {self.over.words()}"

    def quantities(self) -> frozenset[str]:
        """Names of the quantities it reads."""
        return frozenset({self.quantity}) | (self.over.quantities() if self.over else frozenset())

    def steps_read(self) -> frozenset[int]:
        """Steps that must be recorded for it."""
        own = frozenset({self.step}) if isinstance(self.step, int) else frozenset[int]()
        return own | (self.over.steps_read() if self.over else frozenset())

    def on_log_scale(self) -> bool:
        """Whether its seeds are averaged as factors."""
        return self.over is not None or quantity(self.quantity).ratio

    def never_negative(self) -> bool:
        """Whether it is a share or a count, of which a mean of zero is zero in every seed."""
        return self.over is None and quantity(self.quantity).never_negative

    def check(self, training: Training) -> None:
        """Refuse what this training can never have.

        Raises:
            DeclarationError: It needs an update, a later step, a task, or a layer that the model lacks.
        """
        kind = quantity(self.quantity)
        if kind.training and training.steps < 1:
            raise DeclarationError(f"{self.quantity} needs an optimizer update, but steps={training.steps}")
        if isinstance(self.step, int) and self.step > max(training.steps - 1, 0):
            last = max(training.steps - 1, 0)
            raise DeclarationError(f"{self.words()}: the last step is {last}, as steps={training.steps}")
        refused = _refused(self.quantity, training)
        if refused:
            raise DeclarationError(f"{self.quantity} {refused}")
        if isinstance(training.model, Transformer | GAU):
            self._check_place(training.model)
        if self.over is not None:
            self.over.check(training)

    def _check_place(self, model: Transformer | GAU) -> None:
        axis = quantity(self.quantity).axis
        if axis in ("layer", "sublayer"):
            labels = model.sublayers() if axis == "sublayer" else tuple(f"layer {i}" for i in range(model.layers))
            place(labels, self.where, self.words())

    def read(self, trace: Trace) -> Measured:
        """The number in one trace.

        Returns:
            Its value, NaN where the run ended before the step.

        Raises:
            NoData: The quantity, layer or step was never recorded.
        """
        own = self._read_own(trace)
        if self.over is None:
            return own
        value = _quotient(own.value, self.over.read(trace).value)
        return Measured(value=value, label=own.label, step=own.step)

    def profile(self, trace: Trace, step: int) -> tuple[Measured, ...]:
        """The quantity itself at every place along its axis, at one recorded step."""
        series = trace.series[self.quantity]
        row = series.at(step) or ()
        return tuple(
            Measured(value=value, label=label, step=step) for value, label in zip(row, series.labels, strict=False)
        )

    def _read_own(self, trace: Trace) -> Measured:
        series = trace.series.get(self.quantity)
        if series is None or not series.values:
            raise NoData(
                f"{self.quantity} has no data for seed {trace.seed}: its probe never fired. "
                + _HINTS.get(self.quantity, "")
            )
        if isinstance(self.step, int) and self.step not in series.steps:
            if trace.outcome.name in ("nonfinite", "diverged"):
                return Measured(value=math.nan, label="", step=self.step)
            raise NoData(f"{self.words()}: step {self.step} was not recorded for seed {trace.seed}")
        if not isinstance(self.step, int) and trace.outcome.name == "nonfinite" and trace.outcome.step > 0:
            # What was recorded ends before the run broke: its last, largest or smallest value is none of the run's.
            return Measured(value=math.nan, label="", step=trace.outcome.step)
        steps = (series.steps[-1],) if self.step == "last" else series.steps
        steps = (self.step,) if isinstance(self.step, int) else steps
        found = [self._along(series, step) for step in steps]
        return found[0] if len(found) == 1 else _reduced(found, str(self.step))

    def _along(self, series: Series, step: int) -> Measured:
        row = series.at(step)
        assert row is not None
        try:
            chosen = place(series.labels, self.where, self.words())
        except DeclarationError as error:
            raise NoData(f"{error}; this is what was recorded") from error
        found = [Measured(value=row[index], label=series.labels[index], step=step) for index in chosen]
        return found[0] if len(found) == 1 else _reduced(found, str(self.where))


SPIKES_FROM = 20
"""Steps that a spike needs before it."""


def _refused(quantity: str, training: Training) -> str:
    """Why a training cannot have a quantity; empty where it can."""
    model = training.model
    zoo = model if isinstance(model, Transformer | GAU) else None
    known = isinstance(training.task, KnownTask)
    if quantity == "evaluated_loss" and not known:
        return "needs a task with known losses, such as Markov()"
    if quantity == "steps_to_converge" and not known and training.target is None:
        return "needs a task with known losses, such as Markov(), or target="
    if quantity == "spikes" and training.steps <= SPIKES_FROM:
        return f"looks at steps after the first {SPIKES_FROM}, but steps={training.steps}"
    if quantity == "shortcut_weight" and (zoo is None or zoo.norm != "post"):
        return "is of a zoo model with norm='post': other streams are not divided"
    if quantity.startswith("attention_"):
        if zoo is None:
            return "is of a zoo model: where a module of your own has its attention logits is not known"
        if isinstance(zoo, Transformer) and not zoo.attention:
            return "is of a model with attention, this one has attention=False"
        if isinstance(zoo, GAU) and quantity == "attention_entropy":
            return "is of a softmax, a GAU has none: it takes attention_logit_std and attention_logit_max"
        if isinstance(zoo, GAU) and zoo.kernel == "diagonal":
            return "is of pairs of tokens, a GAU with kernel='diagonal' has none"
    if quantity in ("output_change", "perturbation_change", "loss_drop") and training.step is not None:
        return "repeats a forward pass, which step= hides: use loss="
    return ""


_HINTS = {
    "layer_cosine": "It needs blocks whose output has the shape of their input; name them with layers='blocks.*'.",
    "norm_gain": "It needs a trainable gain in a module whose class has 'norm' in its name.",
    "output_logit_std": "It needs a model that is called, model(...), and returns a floating-point tensor.",
    "output_change": "It needs a loss= that calls the model, model(...), which returns a floating-point tensor.",
    "perturbation_change": "It needs a loss= that calls the model, model(...), which returns a floating-point tensor.",
    "movement": "It needs blocks with parameters; name them with layers='blocks.*'.",
    "weight_std": "It needs parameters of two dimensions or more.",
    "branch_ratio": "It needs blocks whose output has the shape of their input; name them with layers='blocks.*'.",
    "residual_std": "It needs blocks that return a floating-point tensor; name them with layers='blocks.*'.",
    "residual_gradient": "It needs blocks whose output takes part in the backward pass, which reentrant checkpointing "
    "hides; name them with layers='blocks.*'.",
    "token_cosine": "It needs blocks whose output is [batch, tokens, width]; name them with layers='blocks.*'.",
    "layer_gradient_norm": "It needs blocks with parameters; name them with layers='blocks.*'.",
}


def _quotient(above: float, below: float) -> float:
    """A ratio that is never finite where one of its parts is not: x / inf would pass for a small number."""
    if math.isnan(above) or not math.isfinite(below) or above == below == 0:
        return math.nan
    return above / below if below != 0 else math.copysign(math.inf, above)


def _reduced(found: Sequence[Measured], how: str) -> Measured:
    values = [one.value for one in found]
    broken = next((one for one in found if math.isnan(one.value)), None)
    if broken is not None:
        return broken
    value = REDUCTIONS[how](values)
    if how == "mean":
        return Measured(value=value, label="mean", step=found[-1].step)
    return found[values.index(value)]


def place(labels: Sequence[str], where: Where, words: str) -> tuple[int, ...]:
    """Positions along an axis that ``where`` names.

    Raises:
        DeclarationError: There is no such label; the message names the nearest, or asks for one of several.
    """
    count = len(labels)
    if not count:
        raise DeclarationError(f"{words}: there is none, as the model has no layers")
    if where in REDUCTIONS:
        chosen: tuple[int, ...] = tuple(range(count))
    elif where is None:
        chosen = (0,) if count == 1 else ()
    elif where in ("first", "last"):
        chosen = (0,) if where == "first" else (count - 1,)
    elif isinstance(where, int):
        chosen = (where,) if 0 <= where < count else ()
    else:
        chosen = (labels.index(where),) if where in labels else ()
    if chosen:
        return chosen
    if where is None:
        raise DeclarationError(f"{words}: there are {count} ({', '.join(labels[:3])}, ...): say which, or 'max', 'min'")
    if isinstance(where, int):
        raise DeclarationError(f"{words}: there is no number {where}, only 0 to {count - 1}")
    raise DeclarationError(f"{words}: {nearest(str(where), [*labels, 'first', 'last', *REDUCTIONS])}")
