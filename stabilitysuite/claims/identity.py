"""The identity family: two sides of an equation agree in float64, in every seed; no statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stabilitysuite.claims.claim import Claim
from stabilitysuite.claims.finding import Finding, short
from stabilitysuite.claims.look import ONLY, Look
from stabilitysuite.claims.reading import Reading
from stabilitysuite.errors import DeclarationError
from stabilitysuite.spec import Training
from stabilitysuite.trace import Trace

__all__ = ["Identity", "identity"]

DIFFERENCE = Reading(quantity="training_loss", step=0)


@dataclass(frozen=True, kw_only=True)
class Identity(Claim):
    """The case's ``loss`` is the difference of the two sides of an equation, and zero; built by ``identity()``.

    It holds where the difference is at most ``within`` in every seed, else it is violated: what is exact has no
    spread, and one counter-example is enough.
    """

    within: float = 1e-12

    def _check(self) -> None:
        self._require(self.within >= 0, "within must not be negative")

    def words(self) -> str:
        """Such as ``identity within 1e-12``."""
        return f"identity within {short(self.within)}"

    def exact(self) -> bool:
        """It is no matter of chance."""
        return True

    def quantities(self) -> frozenset[str]:
        """The difference is what the case names as its loss."""
        return DIFFERENCE.quantities()

    def check(self, training: Training) -> None:
        """It is about one forward pass of one's own code, in float64."""
        if training.loss is None:
            raise DeclarationError(
                f"{self.words()} takes the difference of the two sides as the case's loss=, (model, batch) -> scalar"
            )
        if training.steps:
            raise DeclarationError(f"{self.words()} is of a model at initialisation, but steps={training.steps}")
        if training.precision != "float64":
            raise DeclarationError(
                f"{self.words()} needs precision='float64': in {training.precision} rounding hides what is not exact"
            )

    def judge(
        self, arm: str, traces: Sequence[Trace], twins: Sequence[Trace], steps: int, look: Look = ONLY
    ) -> Finding:
        """Hold the largest difference against the tolerance."""
        del twins, steps, look
        values = tuple(DIFFERENCE.read(trace).value for trace in traces)
        wrong = tuple(one.seed for one, value in zip(traces, values, strict=True) if not abs(value) <= self.within)
        largest = next((value for value in values if math.isnan(value)), max(map(abs, values)))
        return Finding(
            arm=arm,
            claim=self.words(),
            verdict="violated" if wrong else "holds",
            number=f"largest difference {short(largest)} in {len(values)} seeds",
            value=largest,
            interval=None,
            threshold=f"at most {short(self.within)} in every seed",
            margin=self.within - largest if math.isfinite(largest) else None,
            margin_unit="difference",
            seeds=tuple(trace.seed for trace in traces),
            values=values,
            reason=f"{len(wrong)} of {len(values)} seeds differ by more" if wrong else "no seed differs by more",
            resolution=self.within,
            decided_by=wrong[:1],
            wrong=wrong,
        )


def identity(*, within: float = 1e-12) -> Identity:
    """Both sides of an equation agree: the case's ``loss=`` gives their difference, in float64.

    Args:
        within: Largest absolute difference that rounding explains.
    """
    return Identity(within=within)
