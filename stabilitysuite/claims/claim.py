"""What every family of claims offers to the plan and to the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from stabilitysuite.claims.finding import Finding
from stabilitysuite.claims.look import ONLY, Look
from stabilitysuite.claims.reading import Reading
from stabilitysuite.errors import DeclarationError, nearest
from stabilitysuite.spec import Spec, Training
from stabilitysuite.trace import Trace

__all__ = ["Claim", "MeasureClaim", "check_variants"]


@dataclass(frozen=True, kw_only=True)
class Claim(Spec):
    """Base of the families: a claim says what it needs measured, and judges it."""

    horizon: ClassVar[int] = 1
    """How many times the declared steps the case itself is run."""

    def words(self) -> str:
        """The claim as a person would say it."""
        raise NotImplementedError

    def together(self) -> bool:
        """Whether it is judged over all arms together, not on each alone."""
        return False

    def check_arms(self, variants: Sequence[str], sweep: Mapping[str, Sequence[object]]) -> None:
        """Refuse arms over which it cannot be judged.

        Args:
            variants: Names of the case's variants.
            sweep: The case's swept field and its values.

        Raises:
            DeclarationError: They are none, too few, or others than the claim names.
        """

    def looks(self) -> tuple[int, ...]:
        """Numbers of seeds at which it wants to be judged, where they are not those of any other claim.

        Such a claim takes tens of runs, so it is not for the quick tier; its errors are what it says near an edge too,
        so it needs no calibration.
        """
        return ()

    def explores(self) -> bool:
        """Whether the runs it needs depend on how others ended; it is then the only claim of its case."""
        return False

    def exact(self) -> bool:
        """Whether one counter-example is enough, so that no second run can take it back."""
        return False

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

    def judge(
        self, arm: str, traces: Sequence[Trace], twins: Sequence[Trace], steps: int, look: Look = ONLY
    ) -> Finding:
        """Judge one arm.

        Args:
            arm: Name of the arm.
            traces: Its traces, one a seed.
            twins: Traces of the twin, where the claim needs one.
            steps: The declared number of steps.
            look: At how many seeds it is looked, and what calibration knows.
        """
        raise NotImplementedError

    def judge_together(
        self, points: Mapping[str, object], arms: Mapping[str, Sequence[Trace]], look: Look = ONLY
    ) -> Finding:
        """Judge all arms together, where ``together()`` says so.

        Args:
            points: By arm the value of the swept field; the arm's name itself for a variant.
            arms: By arm its traces, the same seeds in the same order.
            look: At how many seeds it is looked, and what calibration knows.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class MeasureClaim(Claim):
    """Base of the families that are about one measured number."""

    measure: Reading

    def quantities(self) -> frozenset[str]:
        """What its measure reads."""
        return self.measure.quantities()

    def steps_read(self) -> frozenset[int]:
        """Steps that its measure reads."""
        return self.measure.steps_read()

    def check(self, training: Training) -> None:
        """What its measure can never have is refused."""
        self.measure.check(training)


def check_variants(below: str, above: str, variants: Sequence[str]) -> None:
    """Refuse an order between variants that the case does not have.

    Raises:
        DeclarationError: It has none, or none of such a name; the message names the nearest.
    """
    for name in (below, above):
        if name not in variants:
            known = nearest(name, variants) if variants else "the case has no variants="
            raise DeclarationError(f"ordered({below!r}, {above!r}): no variant {name!r}: {known}")
