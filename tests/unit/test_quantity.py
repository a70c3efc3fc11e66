from __future__ import annotations

import pytest

from stabilitysuite.errors import DeclarationError
from stabilitysuite.quantity import QUANTITIES, Quantity, quantity


def test_a_misspelt_quantity_names_the_nearest() -> None:
    with pytest.raises(DeclarationError, match=r"^unknown quantity 'gradient_nrom': did you mean 'gradient_norm'\?$"):
        quantity("gradient_nrom")


@pytest.mark.parametrize("kind", QUANTITIES.values(), ids=list(QUANTITIES))
def test_a_quantity_is_described(kind: Quantity) -> None:
    assert kind.unit
    assert len(kind.means.split()) >= 5
    assert "\n" not in kind.means
    assert quantity(kind.name) is kind
