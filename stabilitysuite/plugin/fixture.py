"""What the fixture ``stability`` offers to an imperative test."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stabilitysuite.case import Case
from stabilitysuite.claims.measure import gradient_norm
from stabilitysuite.errors import DeclarationError, MeasurementError, nearest
from stabilitysuite.plan import plan
from stabilitysuite.plugin.options import Options
from stabilitysuite.plugin.warned import hand_on
from stabilitysuite.spec import Training
from stabilitysuite.trace import TROUBLE, Trace

if TYPE_CHECKING:
    from stabilitysuite.lab.warned import Warned

__all__ = ["Stability"]


class Stability:
    """Trains what a test asks for, on the session's device.

    Args:
        options: The settings of the session.
    """

    def __init__(self, options: Options) -> None:
        self.options = options

    def run(self, *, seed: int = 0, **fields: Any) -> Trace:
        """Carry out one training and give back what it left.

        Args:
            seed: Everything random comes from it.
            **fields: The training fields of a Case: ``model``, ``task``, ``data``, ``loss``, ``optimizer``,
                ``steps`` and so on.

        Raises:
            DeclarationError: A field is unknown or cannot go with another.
            MeasurementError: The run crashed, ran out of memory or out of time: there is nothing to look at. Or it
                warned, and the filters of the session make that an error.
        """
        known = {field.name for field in dataclasses.fields(Training)}
        for name in fields:
            if name not in known:
                raise DeclarationError(f"stability.run: unknown field {name!r}: {nearest(name, known)}")
        # A claim that always holds makes it a case, so that it is checked and planned like any other.
        case = Case(says="stability.run", expect=gradient_norm().at_least(0), **fields)
        from stabilitysuite.lab.train import run

        options = self.options
        warned: list[Warned] = []
        caller = sys._getframe(1)
        (trace,) = run(
            plan(case, seeds=(seed,)).runs,
            device=options.device,
            threads=options.threads,
            budget=options.budget,
            warned=warned.append,
        )
        refused = hand_on(warned, (trace,), Path(caller.f_code.co_filename), caller.f_lineno, across=False)
        outcome = trace.outcome
        if outcome.name in TROUBLE:
            raise MeasurementError(f"seed {seed} ended as {outcome.name} at step {outcome.step}: {outcome.detail}")
        if refused is not None:
            raise refused
        return trace
