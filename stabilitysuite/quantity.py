"""The vocabulary of measured things: the one place where a quantity is named.

A quantity has a name, a unit, the axes along which it is recorded, and whether its differences are judged as
ratios (on the log scale) or as plain differences. The probe that measures it lives in ``lab/probes``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stabilitysuite.errors import DeclarationError, nearest

__all__ = ["QUANTITIES", "Axis", "Quantity", "quantity"]

Axis = Literal["layer", "sublayer", "parameter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One measured thing."""

    name: str
    """Its name in code, records and words."""
    unit: str
    """Unit of its values; ``1`` for a pure number."""
    axis: Axis | None
    """What it has one value of at each step, besides the step itself; ``None`` for one value a step."""
    ratio: bool
    """True where only factors have a meaning (norms, scales): intervals are then built on the log scale."""
    training: bool
    """True where an optimizer update is needed, so that ``steps=0`` cannot have it."""
    backward: bool
    """True where a backward pass is needed."""
    means: str
    """One sentence: what is measured, in words a person who trains models knows."""
    always: bool = False
    """True where every training records it, as evidence; else a claim on it turns its recording on."""
    never_negative: bool = False
    """True of shares and counts: one seed above zero puts the mean above zero for certain. Ratios are so too."""


QUANTITIES: dict[str, Quantity] = {
    item.name: item
    for item in (
        Quantity(
            name="training_loss",
            unit="nats",
            axis=None,
            ratio=False,
            training=False,
            backward=False,
            always=True,
            means="loss of the batch that step trains on, before the update",
        ),
        Quantity(
            name="evaluated_loss",
            unit="nats",
            axis=None,
            ratio=False,
            training=False,
            backward=False,
            always=True,
            means="exact cross-entropy against the task's own conditional, on one evaluation set common to all",
        ),
        Quantity(
            name="gradient_norm",
            unit="nats per unit weight",
            axis=None,
            ratio=True,
            training=False,
            backward=True,
            always=True,
            means="Euclidean norm of the gradient over all parameters, before clipping",
        ),
        Quantity(
            name="layer_gradient_norm",
            unit="nats per unit weight",
            axis="layer",
            ratio=True,
            training=False,
            backward=True,
            always=True,
            means="Euclidean norm of the gradient over the parameters of one layer, before clipping",
        ),
        Quantity(
            name="parameter_gradient_norm",
            unit="nats per unit weight",
            axis="parameter",
            ratio=True,
            training=False,
            backward=True,
            means="Euclidean norm of the gradient of one parameter tensor, before clipping",
        ),
        Quantity(
            name="residual_gradient",
            unit="nats per unit activation",
            axis="layer",
            ratio=True,
            training=False,
            backward=True,
            always=True,
            means="Euclidean norm of the gradient with respect to the residual stream after one layer",
        ),
        Quantity(
            name="residual_std",
            unit="1",
            axis="layer",
            ratio=True,
            training=False,
            backward=False,
            always=True,
            means="standard deviation of the residual stream after one layer, over all its elements",
        ),
        Quantity(
            name="branch_ratio",
            unit="1",
            axis="sublayer",
            ratio=True,
            training=False,
            backward=False,
            always=True,
            means="standard deviation of what a residual branch adds, over that of the stream it adds to",
        ),
        Quantity(
            name="shortcut_weight",
            unit="1",
            axis="sublayer",
            ratio=True,
            training=False,
            backward=False,
            means="weight of the model's input in the residual stream after a sub-layer of a Post-LN model",
        ),
        Quantity(
            name="token_cosine",
            unit="1",
            axis="layer",
            ratio=False,
            training=False,
            backward=False,
            always=True,
            means="mean pairwise cosine between the tokens of one sequence, in the residual stream after one layer",
        ),
        Quantity(
            name="update_ratio",
            unit="1",
            axis="parameter",
            ratio=True,
            training=True,
            backward=True,
            means="update-to-weight ratio: norm of one optimizer update of a tensor over the norm of the tensor",
        ),
        Quantity(
            name="layer_cosine",
            unit="1",
            axis="layer",
            ratio=False,
            training=False,
            backward=False,
            means="cosine between a token's vector after a layer and before it, mean over the tokens",
        ),
        Quantity(
            name="attention_logit_std",
            unit="1",
            axis="layer",
            ratio=True,
            training=False,
            backward=False,
            means="standard deviation of the attention logits of a query, pooled over queries and heads",
        ),
        Quantity(
            name="attention_logit_max",
            unit="1",
            axis="layer",
            ratio=True,
            training=False,
            backward=False,
            means="largest absolute attention logit of a layer, over the pairs of query and key that see each other",
        ),
        Quantity(
            name="attention_entropy",
            unit="nats",
            axis="layer",
            ratio=False,
            training=False,
            backward=False,
            never_negative=True,
            means="entropy of a query's attention over the keys it sees, mean over queries and heads, not normalised",
        ),
        Quantity(
            name="output_logit_std",
            unit="1",
            axis=None,
            ratio=True,
            training=False,
            backward=False,
            means="standard deviation of the model's output on the training batch, over all its elements",
        ),
        Quantity(
            name="weight_std",
            unit="1",
            axis="parameter",
            ratio=True,
            training=False,
            backward=False,
            means="standard deviation of one weight matrix, over all its elements",
        ),
        Quantity(
            name="weight_kurtosis",
            unit="1",
            axis="parameter",
            ratio=False,
            training=False,
            backward=False,
            means="excess kurtosis of one weight matrix: 0 for a normal law, more for heavy tails",
        ),
        Quantity(
            name="weight_zeros",
            unit="1",
            axis="parameter",
            ratio=False,
            training=False,
            backward=False,
            never_negative=True,
            means="share of the elements of one weight matrix that are exactly zero",
        ),
        Quantity(
            name="gradient_std",
            unit="nats per unit weight",
            axis="parameter",
            ratio=True,
            training=False,
            backward=True,
            means="standard deviation of the gradient of one weight matrix over all its elements, before clipping",
        ),
        Quantity(
            name="gradient_kurtosis",
            unit="1",
            axis="parameter",
            ratio=False,
            training=False,
            backward=True,
            means="excess kurtosis of the gradient of one weight matrix: 0 for a normal law, more for heavy tails",
        ),
        Quantity(
            name="gradient_zeros",
            unit="1",
            axis="parameter",
            ratio=False,
            training=False,
            backward=True,
            never_negative=True,
            means="share of the elements of the gradient of one weight matrix that are exactly zero",
        ),
        Quantity(
            name="magnitude_gradient",
            unit="nats",
            axis="parameter",
            ratio=False,
            training=False,
            backward=True,
            means="derivative of the loss with respect to the magnitude of one weight matrix",
        ),
        Quantity(
            name="movement",
            unit="1",
            axis="layer",
            ratio=True,
            training=True,
            backward=False,
            means="norm of the difference of a layer's parameters from their initial values, over that of those values",
        ),
        Quantity(
            name="norm_gain",
            unit="1",
            axis="parameter",
            ratio=False,
            training=False,
            backward=False,
            means="mean gain of one normalisation, over its features",
        ),
        Quantity(
            name="output_change",
            unit="1",
            axis=None,
            ratio=True,
            training=True,
            backward=False,
            means="relative change of the output on a fixed batch that one optimizer update makes",
        ),
        Quantity(
            name="perturbation_change",
            unit="1",
            axis=None,
            ratio=True,
            training=False,
            backward=False,
            means="relative change of the output on a fixed batch per relative random change of every weight matrix",
        ),
        Quantity(
            name="loss_drop",
            unit="1",
            axis=None,
            ratio=False,
            training=True,
            backward=True,
            means="fall of the batch's loss by one update, over its first-order prediction",
        ),
        Quantity(
            name="steps_to_converge",
            unit="updates",
            axis=None,
            ratio=True,
            training=True,
            backward=False,
            means="updates until the progress of the loss counts as converged, infinite where it never does",
        ),
        Quantity(
            name="area_under_curve",
            unit="1",
            axis=None,
            ratio=False,
            training=True,
            backward=False,
            means="mean over the steps of the progress of the loss, or of the loss itself where no floor is known",
        ),
        Quantity(
            name="spikes",
            unit="steps",
            axis=None,
            ratio=False,
            training=True,
            backward=False,
            never_negative=True,
            means="number of steps whose training loss lies far above those of the steps before it",
        ),
    )
}
"""All quantities, by name."""


def quantity(name: str) -> Quantity:
    """The quantity of that name.

    Raises:
        DeclarationError: There is none; the message names the nearest.
    """
    if name not in QUANTITIES:
        raise DeclarationError(f"unknown quantity {name!r}: {nearest(name, QUANTITIES)}")
    return QUANTITIES[name]
