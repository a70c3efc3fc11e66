from __future__ import annotations

import pytest

from stabilitysuite import errors
from stabilitysuite.errors import StabilityError, nearest


def test_a_close_name_is_suggested() -> None:
    assert nearest("warmpu", ["warmup", "steps"]) == "did you mean 'warmup'?"


def test_without_a_close_name_all_are_listed_in_order() -> None:
    assert nearest("q", ["width", "depth"]) == "known: depth, width"


@pytest.mark.parametrize("name", sorted(set(errors.__all__) - {"nearest", "StabilityError", "StabilityWarning"}))
def test_every_error_can_be_caught_as_one(name: str) -> None:
    assert issubclass(getattr(errors, name), StabilityError)


def test_the_drawn_tree_names_every_error() -> None:
    for name in set(errors.__all__) - {"nearest"}:
        assert name in (errors.__doc__ or "")
