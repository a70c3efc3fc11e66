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
            means="loss of the batch that step trains on, before the update",
        ),
        Quantity(
            name="evaluated_loss",
            unit="nats",
            axis=None,
            ratio=False,
            training=False,
            backward=False,
            means="exact cross-entropy against the task's own conditional, on one evaluation set common to all",
        ),
        Quantity(
            name="gradient_norm",
            unit="nats per unit weight",
            axis=None,
            ratio=True,
            training=False,
            backward=True,
            means="Euclidean norm of the gradient over all parameters, before clipping",
        ),
        Quantity(
            name="layer_gradient_norm",
            unit="nats per unit weight",
            axis="layer",
            ratio=True,
            training=False,
            backward=True,
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
            means="Euclidean norm of the gradient with respect to the residual stream after one layer",
        ),
        Quantity(
            name="residual_std",
            unit="1",
            axis="layer",
            ratio=True,
            training=False,
            backward=False,
            means="standard deviation of the residual stream after one layer, over all its elements",
        ),
        Quantity(
            name="branch_ratio",
            unit="1",
            axis="sublayer",
            ratio=True,
            training=False,
            backward=False,
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
