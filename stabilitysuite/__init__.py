"""Stability cases for neural networks: declare what must hold in training, and let pytest judge it.

Names are loaded when they are first used, so that an idle plugin costs next to nothing.
PYTEST_DONT_REWRITE: the command line imports this before pytest starts, which pytest would otherwise warn of.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stabilitysuite.case import Case
    from stabilitysuite.claims.edge import learning_rate_edge
    from stabilitysuite.claims.identity import identity
    from stabilitysuite.claims.measure import (
        area_under_curve,
        attention_entropy,
        attention_logit_max,
        attention_logit_std,
        branch_ratio,
        evaluated_loss,
        gradient_kurtosis,
        gradient_norm,
        gradient_std,
        gradient_zeros,
        layer_cosine,
        loss_drop,
        magnitude_gradient,
        movement,
        no_spikes,
        norm_gain,
        output_change,
        output_logit_std,
        perturbation_change,
        residual_gradient,
        residual_std,
        shortcut_weight,
        spikes,
        steps_to_converge,
        token_cosine,
        training_loss,
        update_ratio,
        weight_kurtosis,
        weight_std,
        weight_zeros,
    )
    from stabilitysuite.claims.outcome import collapses, converges, diverges, fails_to_train, stalls
    from stabilitysuite.claims.sensitivity import learning_rate_sensitivity
    from stabilitysuite.errors import DeclarationError, MeasurementError, RecordError, StabilityError
    from stabilitysuite.spec import GAU, SGD, Adam, AdamW, He, LeCun, Transformer, Xavier
    from stabilitysuite.task import Classification, Gaussian, Induction, Markov, MaskedToken

_HOMES = {
    "stabilitysuite.case": ("Case",),
    "stabilitysuite.claims.edge": ("learning_rate_edge",),
    "stabilitysuite.claims.identity": ("identity",),
    "stabilitysuite.claims.measure": (
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
    ),
    "stabilitysuite.claims.outcome": ("collapses", "converges", "diverges", "fails_to_train", "stalls"),
    "stabilitysuite.claims.sensitivity": ("learning_rate_sensitivity",),
    "stabilitysuite.errors": ("DeclarationError", "MeasurementError", "RecordError", "StabilityError"),
    "stabilitysuite.spec": (
        "GAU",
        "SGD",
        "Adam",
        "AdamW",
        "He",
        "LeCun",
        "Transformer",
        "Xavier",
    ),
    "stabilitysuite.task": ("Classification", "Gaussian", "Induction", "Markov", "MaskedToken"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "GAU",
    "SGD",
    "Adam",
    "AdamW",
    "Case",
    "Classification",
    "DeclarationError",
    "Gaussian",
    "He",
    "Induction",
    "LeCun",
    "Markov",
    "MaskedToken",
    "MeasurementError",
    "RecordError",
    "StabilityError",
    "Transformer",
    "Xavier",
    "area_under_curve",
    "attention_entropy",
    "attention_logit_max",
    "attention_logit_std",
    "branch_ratio",
    "collapses",
    "converges",
    "diverges",
    "evaluated_loss",
    "fails_to_train",
    "gradient_kurtosis",
    "gradient_norm",
    "gradient_std",
    "gradient_zeros",
    "identity",
    "layer_cosine",
    "learning_rate_edge",
    "learning_rate_sensitivity",
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
    "stalls",
    "steps_to_converge",
    "token_cosine",
    "training_loss",
    "update_ratio",
    "weight_kurtosis",
    "weight_std",
    "weight_zeros",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
