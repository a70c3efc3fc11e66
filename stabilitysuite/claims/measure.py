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
    "branch_ratio",
    "evaluated_loss",
    "gradient_norm",
    "residual_gradient",
    "residual_std",
    "shortcut_weight",
    "token_cosine",
    "training_loss",
    "update_ratio",
]


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


def training_loss(*, step: int | Literal["last", "max", "min", "mean"] = "last") -> Measure:
    """Loss of the training batch at a step, in nats."""
    return Measure(quantity="training_loss", step=step)


def evaluated_loss(*, step: int | Literal["last", "max", "min", "mean"] = "last") -> Measure:
    """Exact loss on the evaluation set after training, in nats."""
    return Measure(quantity="evaluated_loss", step=step)


def gradient_norm(
    layer: int | str | None = None,
    *,
    parameter: str | None = None,
    step: int | Literal["last", "max", "min", "mean"] = "last",
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


def residual_gradient(
    layer: int | str | None = None, *, step: int | Literal["last", "max", "min", "mean"] = "last"
) -> Measure:
    """Norm of the loss gradient with respect to the residual stream after a layer."""
    return Measure(quantity="residual_gradient", where=layer, step=step)


def residual_std(
    layer: int | str | None = None, *, step: int | Literal["last", "max", "min", "mean"] = "last"
) -> Measure:
    """Standard deviation of the residual stream after a layer."""
    return Measure(quantity="residual_std", where=layer, step=step)


def branch_ratio(
    sublayer: int | str | None = None, *, step: int | Literal["last", "max", "min", "mean"] = "last"
) -> Measure:
    """Standard deviation of what a residual branch adds, over that of the stream it adds to.

    On a module of one's own a branch is one block, and what it adds is its output minus its input.
    """
    return Measure(quantity="branch_ratio", where=sublayer, step=step)


def shortcut_weight(
    sublayer: int | str | None = "last", *, step: int | Literal["last", "max", "min", "mean"] = "last"
) -> Measure:
    """Weight with which the model's input is still in the residual stream of a Post-LN zoo model."""
    return Measure(quantity="shortcut_weight", where=sublayer, step=step)


def token_cosine(
    layer: int | str | None = "last", *, step: int | Literal["last", "max", "min", "mean"] = "last"
) -> Measure:
    """Mean pairwise cosine between the tokens of a sequence after a layer: 1 is full collapse."""
    return Measure(quantity="token_cosine", where=layer, step=step)


def update_ratio(parameter: str = "max", *, step: int | Literal["last", "max", "min", "mean"] = "last") -> Measure:
    """Update-to-weight ratio of a parameter tensor."""
    return Measure(quantity="update_ratio", where=parameter, step=step)
