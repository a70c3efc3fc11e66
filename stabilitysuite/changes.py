"""Changes applied to a training: a name finds its field in the training, or in its model, task or optimizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from stabilitysuite.declaration import Spec, same
from stabilitysuite.errors import DeclarationError, nearest
from stabilitysuite.spec import Initialisation, Training

__all__ = ["changed", "is_part_field"]


_PARTS = ("model", "task", "optimizer")
_WHOLE = (*_PARTS, "init")


def changed(
    training: Training,
    changes: Mapping[str, Any],
    what: str,
    *,
    may_equal: bool = False,
    known: Iterable[str] = (),
) -> Training:
    """The training with the changes applied, wherever in it the named fields live.

    Args:
        training: What is changed.
        changes: New values by field name.
        what: What asks for the change, for messages.
        may_equal: Whether a change may be equal to what is there.
        known: Further names that a misspelt one may have meant.

    Raises:
        DeclarationError: A name is of no field, or a change changes nothing.
    """
    # Whole parts first: a field named beside one is that of the new part.
    for name in (*(name for name in _WHOLE if name in changes), *(name for name in changes if name not in _WHOLE)):
        value = changes[name]
        path = _find(training, name, what, known)
        old: Any = training
        for part in path:
            old = getattr(old, part)
        if not may_equal and same(old, value):
            raise DeclarationError(f"{what}: {name} is {value!r} already, the change changes nothing")
        training = _replaced(training, path, value)
    return training


def _find(training: Training, name: str, what: str, also: Iterable[str]) -> tuple[str, ...]:
    """Where in a training a changed field lives."""
    if any(item.name == name for item in dataclasses.fields(Training)) and not is_part_field(name, training.model):
        return (name,)
    places: dict[str, tuple[str, ...]] = {}
    for part in _PARTS:
        declared = getattr(training, part)
        if isinstance(declared, Spec):
            places |= {item.name: (part, item.name) for item in dataclasses.fields(declared)}
    init = getattr(training.model, "init", None)
    if isinstance(init, Initialisation):
        inner = {item.name: ("model", "init", item.name) for item in dataclasses.fields(init)}
        places = inner | places
    if name not in places:
        known = {item.name for item in dataclasses.fields(Training)} | set(places) | set(also)
        known.discard(name)  # of a task or model that is not this one's
        raise DeclarationError(f"{what}: no field {name!r} to change: {nearest(name, known)}")
    return places[name]


def _replaced(part: Any, path: tuple[str, ...], value: Any) -> Any:
    head, *rest = path
    return dataclasses.replace(part, **{head: _replaced(getattr(part, head), tuple(rest), value) if rest else value})


def is_part_field(name: str, model: Any) -> bool:
    """``layers`` is a count of a zoo model, and a name pattern of one's own module."""
    return name == "layers" and isinstance(model, Spec)
