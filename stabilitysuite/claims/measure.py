"""Typed quantities: the functions that a claim starts with, and the methods that make it one.

``gradient_norm("last")`` is the gradient norm of the last layer at the last step; ``/`` makes a ratio::

    (gradient_norm("first", step=50) / gradient_norm("first", step=0)).at_most(1 / 30)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stabilitysuite.claims.bound import Bound
from stabilitysuite.claims.order import Order
from stabilitysuite.claims.reading import Reading
from stabilitysuite.claims.scaling import Scaling
from stabilitysuite.errors import DeclarationError

__all__ = [
    "Measure",
    "area_under_curve",
    "attention_entropy",
    "attention_logit_max",
    "attention_logit_std",
    "branch_ratio",
    "evaluated_loss",
    "gradient_kurtosis",
    "gradient_norm",
    "gradient_std",
    "gradient_zeros",
    "layer_cosine",
    "loss_drop",
    "magnitude_gradient",
    "movement",
    "no_spikes",
    "norm_gain",
    "output_change",
    "output_logit_std",
    "perturbation_change",
    "residual_gradient",
    "residual_std",
    "shortcut_weight",
    "spikes",
    "steps_to_converge",
    "token_cosine",
    "training_loss",
    "update_ratio",
    "weight_kurtosis",
    "weight_std",
    "weight_zeros",
]


When = int | Literal["last", "max", "min", "mean"]
"""A step, the last recorded one, or a reduction over the recorded steps."""


@dataclass(frozen=True, kw_only=True)
class Measure(Reading):
    """A number that claims can be made of; call the function of its quantity to get one."""

    def __truediv__(self, other: Measure) -> Measure:
        """The ratio of two measures, such as the first layer's over the last layer's.

        Raises:
            DeclarationError: One of them is a ratio already.
        """
        if not isinstance(other, Measure):
            return NotImplemented
        if self.over is not None or other.over is not None:
            raise DeclarationError("a ratio of ratios has no name: divide two plain quantities")
        return Measure(quantity=self.quantity, where=self.where, step=self.step, over=other)

    def near(self, value: float, *, within: float, published: float | None = None) -> Bound:
        """The number is ``value`` up to the relative deviation ``within``.

        Args:
            value: What is expected.
            within: Allowed deviation as a share of ``value``, such as 0.2 for 20 %.
            published: The source's figure, where it is another one.
        """
        for name, given in (("value", value), ("within", within)):
            if isinstance(given, bool) or not isinstance(given, int | float):
                raise DeclarationError(f"near: {name} must be a number, not {given!r}")
        if within <= 0:
            raise DeclarationError(f"within={within!r}: a deviation of zero can never be shown, allow a positive share")
        ends = sorted((value * (1 - within), value * (1 + within)))
        return self.between(ends[0], ends[1], published=published)

    def between(self, low: float, high: float, *, published: float | None = None) -> Bound:
        """The number lies in [low, high].

        Args:
            low: Lower end.
            high: Upper end.
            published: The source's figure, where it is another one.
        """
        return Bound(measure=self, low=low, high=high, published=published)

    def at_most(self, high: float, *, published: float | None = None) -> Bound:
        """The number is at most ``high``; ``published`` is the source's figure, where it is another one."""
        return Bound(measure=self, high=high, published=published)

    def scales_with(self, field: str, *, exponent: float, within: float, published: float | None = None) -> Scaling:
        """Along the case's sweep of ``field`` the number grows as ``field`` to the power ``exponent``.

        Args:
            field: The swept field.
            exponent: What is expected.
            within: Allowed deviation of the exponent, a plain difference.
            published: The source's exponent, where it is another one.
        """
        return Scaling(measure=self, field=field, exponent=exponent, within=within, published=published)

    def ordered(
        self,
        below: str,
        above: str,
        *,
        factor: float | None = None,
        difference: float | None = None,
        published: float | None = None,
    ) -> Order:
        """The number is smaller in the variant ``below`` than in ``above``, paired by seed.

        Args:
            below: Name of a variant.
            above: Name of another one.
            factor: By what factor at least; by default 1.05 where the number is a ratio.
            difference: Or by what difference at least; by default 0.02 where it is a plain number.
            published: The source's factor or difference, where it is another one.
        """
        return Order(measure=self, below=below, above=above, factor=factor, difference=difference, published=published)

    def at_least(self, low: float, *, published: float | None = None) -> Bound:
        """The number is at least ``low``; ``published`` is the source's figure, where it is another one."""
        return Bound(measure=self, low=low, published=published)


def training_loss(*, step: When = "last") -> Measure:
    """Loss of the training batch at a step, in nats."""
    return Measure(quantity="training_loss", step=step)


def evaluated_loss(*, step: When = "last") -> Measure:
    """Exact loss on the evaluation set after training, in nats."""
    return Measure(quantity="evaluated_loss", step=step)


def gradient_norm(
    layer: int | str | None = None,
    *,
    parameter: str | None = None,
    step: When = "last",
) -> Measure:
    """Gradient norm before clipping: of all parameters, of one layer, or of one parameter tensor.

    Args:
        layer: Layer number, label, ``first``, ``last``, ``max``, ``min`` or ``mean``.
        parameter: Name of one parameter, or ``max`` / ``min`` / ``mean`` over all.
        step: Step, or a reduction over steps.

    Raises:
        DeclarationError: Both a layer and a parameter are named.
    """
    if layer is not None and parameter is not None:
        raise DeclarationError("gradient_norm: name a layer or a parameter, not both")
    if parameter is not None:
        return Measure(quantity="parameter_gradient_norm", where=parameter, step=step)
    if layer is not None:
        return Measure(quantity="layer_gradient_norm", where=layer, step=step)
    return Measure(quantity="gradient_norm", step=step)


def residual_gradient(layer: int | str | None = None, *, step: When = "last") -> Measure:
    """Norm of the loss gradient with respect to the residual stream after a layer."""
    return Measure(quantity="residual_gradient", where=layer, step=step)


def residual_std(layer: int | str | None = None, *, step: When = "last") -> Measure:
    """Standard deviation of the residual stream after a layer."""
    return Measure(quantity="residual_std", where=layer, step=step)


def branch_ratio(sublayer: int | str | None = None, *, step: When = "last") -> Measure:
    """Standard deviation of what a residual branch adds, over that of the stream it adds to.

    On a module of one's own a branch is one block, and what it adds is its output minus its input.
    """
    return Measure(quantity="branch_ratio", where=sublayer, step=step)


def shortcut_weight(sublayer: int | str | None = "last", *, step: When = "last") -> Measure:
    """Weight with which the model's input is still in the residual stream of a Post-LN zoo model."""
    return Measure(quantity="shortcut_weight", where=sublayer, step=step)


def token_cosine(layer: int | str | None = "last", *, step: When = "last") -> Measure:
    """Mean pairwise cosine between the tokens of a sequence after a layer: 1 is full collapse."""
    return Measure(quantity="token_cosine", where=layer, step=step)


def update_ratio(parameter: str = "max", *, step: When = "last") -> Measure:
    """Update-to-weight ratio of a parameter tensor."""
    return Measure(quantity="update_ratio", where=parameter, step=step)


def layer_cosine(layer: int | str | None = "min", *, step: When = "last") -> Measure:
    """Cosine between a token's vector after a layer and before it, mean over tokens: 1 where it keeps direction."""
    return Measure(quantity="layer_cosine", where=layer, step=step)


def attention_logit_std(layer: int | str | None = "max", *, step: When = "last") -> Measure:
    """Standard deviation of the attention logits of a query over the keys it sees, of a zoo model's layer.

    Softmax saturates where it nears sqrt(2 ln T) of T keys. Of a GAU they are what its squared ReLU is taken of.
    """
    return Measure(quantity="attention_logit_std", where=layer, step=step)


def attention_logit_max(layer: int | str | None = "max", *, step: When = "last") -> Measure:
    """Largest absolute attention logit of a zoo model's layer (Wortsman et al., 2023; QK-clip's S_max)."""
    return Measure(quantity="attention_logit_max", where=layer, step=step)


def attention_entropy(layer: int | str | None = "min", *, step: When = "last") -> Measure:
    """Entropy in nats of a query's attention, mean over queries and heads, of a Transformer's layer.

    At most ln T over T keys, and not divided by it; under a causal mask at most the mean of ln t over t = 1 ... T.
    Its fall is the entropy collapse of Zhai et al. (2023).
    """
    return Measure(quantity="attention_entropy", where=layer, step=step)


def output_logit_std(*, step: When = "last") -> Measure:
    """Standard deviation of the model's output on the training batch: small logits mean a loss near ln(vocabulary)."""
    return Measure(quantity="output_logit_std", step=step)


def weight_std(parameter: str = "max", *, step: When = "last") -> Measure:
    """Standard deviation of a weight matrix."""
    return Measure(quantity="weight_std", where=parameter, step=step)


def weight_kurtosis(parameter: str = "max", *, step: When = "last") -> Measure:
    """Excess kurtosis of a weight matrix: 0 for normal draws, -1.2 for uniform ones, NaN where all are the same."""
    return Measure(quantity="weight_kurtosis", where=parameter, step=step)


def weight_zeros(parameter: str = "max", *, step: When = "last") -> Measure:
    """Share of a weight matrix that is exactly zero, from 0 to 1."""
    return Measure(quantity="weight_zeros", where=parameter, step=step)


def gradient_std(parameter: str = "max", *, step: When = "last") -> Measure:
    """Standard deviation of the gradient of a weight matrix, before clipping, in nats per unit weight."""
    return Measure(quantity="gradient_std", where=parameter, step=step)


def gradient_kurtosis(parameter: str = "max", *, step: When = "last") -> Measure:
    """Excess kurtosis of the gradient of a weight matrix: 0 for a normal law, more for heavy tails."""
    return Measure(quantity="gradient_kurtosis", where=parameter, step=step)


def gradient_zeros(parameter: str = "max", *, step: When = "last") -> Measure:
    """Share of the gradient of a weight matrix that is exactly zero, from 0 to 1; 1 where it gets none."""
    return Measure(quantity="gradient_zeros", where=parameter, step=step)


def magnitude_gradient(parameter: str = "max", *, step: When = "last") -> Measure:
    """dL/dlambda in nats, with a matrix W = lambda U and U as orthogonal as possible (kexue.fm/archives/8978).

    lambda is |W W^T| / |W| in Frobenius norms, so this is <dL/dW, W> / lambda.
    """
    return Measure(quantity="magnitude_gradient", where=parameter, step=step)


def movement(layer: int | str | None = "max", *, step: When = "last") -> Measure:
    """Norm of the difference of a layer's parameters from their initial values, over the norm of those values."""
    return Measure(quantity="movement", where=layer, step=step)


def norm_gain(parameter: str = "max", *, step: When = "last") -> Measure:
    """Mean gain (gamma) of a normalisation; a parameter is one of its gains, such as ``layers.0.ffn.norm.gain``."""
    return Measure(quantity="norm_gain", where=parameter, step=step)


def output_change(*, step: When = "last") -> Measure:
    """Relative change |f(x; W') - f(x; W)| / |f(x; W)| of the output on a fixed batch by one update from W to W'.

    The batch is the task's first evaluation sequences, or the first batch of one's own data.
    """
    return Measure(quantity="output_change", step=step)


def perturbation_change(*, step: When = "last") -> Measure:
    """How much a small random change of the weights is amplified in the output (Liu et al., 2020, Admin).

    The relative change of the output on a fixed batch, where every weight matrix is moved in a random direction by a
    thousandth of its norm, divided by that thousandth.
    """
    return Measure(quantity="perturbation_change", step=step)


def loss_drop(*, step: When = "last") -> Measure:
    """Fall of the batch's loss by one update over its first-order prediction: (L(W) - L(W')) / <g, W - W'>.

    1 for small updates of any optimizer; with plain SGD the prediction is lr |g|^2.
    """
    return Measure(quantity="loss_drop", step=step)


def steps_to_converge() -> Measure:
    """Updates until progress counts as converged, interpolated between evaluations; infinite where it never does."""
    return Measure(quantity="steps_to_converge")


def area_under_curve() -> Measure:
    """Mean of progress over the steps, by trapezoids; of the loss in nats where no floor is known."""
    return Measure(quantity="area_under_curve")


def spikes() -> Measure:
    """Number of steps whose training loss lies above the running median by more than six standard deviations.

    Both are those of the 50 steps before, the deviation from the median absolute deviation; the first 20 are exempt.
    """
    return Measure(quantity="spikes")


def no_spikes() -> Bound:
    """No training loss of any seed is a spike: ``spikes().at_most(0)``."""
    return spikes().at_most(0)
