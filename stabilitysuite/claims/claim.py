"""What every family of claims offers to the plan and to the judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from stabilitysuite.claims.finding import Finding
from stabilitysuite.spec import Spec, Training
from stabilitysuite.trace import Trace

__all__ = ["Claim"]


@dataclass(frozen=True, kw_only=True)
class Claim(Spec):
    """Base of the families: a claim says what it needs measured, and judges it."""

    horizon: ClassVar[int] = 1
    """How many times the declared steps the case itself is run."""
    default_seeds: ClassVar[int] = 3
    """Seeds when the case names none and trains."""

    def words(self) -> str:
        """The claim as a person would say it."""
        raise NotImplementedError

    def along(self) -> str:
        """The field of the sweep over whose arms it is judged together; empty where each arm is judged alone."""
        return ""

    def needs_twin(self) -> bool:
        """Whether it is judged beside the control as a twin that must train."""
        return False

    def expects_failure(self) -> bool:
        """Whether it claims that training goes wrong: a lower learning rate is then what brings its edge near."""
        return False

    def quantities(self) -> frozenset[str]:
        """Names of the quantities it reads."""
        return frozenset()

    def steps_read(self) -> frozenset[int]:
        """Steps at which it reads them, besides the last."""
        return frozenset()

    def check(self, training: Training) -> None:
        """Refuse what can never be judged on this training.

        Raises:
            DeclarationError: The training has no floor, no steps, or no such layer.
        """

    def judge(self, arm: str, traces: Sequence[Trace], twins: Sequence[Trace], steps: int) -> Finding:
        """Judge one arm.

        Args:
            arm: Name of the arm.
            traces: Its traces, one a seed.
            twins: Traces of the twin, where the claim needs one.
            steps: The declared number of steps.
        """
        raise NotImplementedError

    def judge_along(self, points: Sequence[float], arms: Sequence[Sequence[Trace]]) -> Finding:
        """Judge all arms of a sweep together, where ``along()`` names its field.

        Args:
            points: Values of the swept field.
            arms: For each value its traces, the same seeds in the same order.
        """
        raise NotImplementedError
