"""How a declaration checks itself, and how it is written as JSON: the base of everything a user declares."""

from __future__ import annotations

import dataclasses
import importlib
import math
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from stabilitysuite.errors import DeclarationError, nearest

__all__ = ["Declared", "Spec", "callable_name", "from_builtins", "leaves", "same", "to_builtins"]


class Declared(type):
    """Metaclass of declarations: refuses an unknown or missing field with a message that names the nearest."""

    if not TYPE_CHECKING:  # type checkers know the fields themselves

        def __call__(cls, *args, **fields):  # noqa: D102 -- the class says it
            known = {item.name: item for item in dataclasses.fields(cls) if item.init}
            for name in fields:
                if name not in known:
                    raise DeclarationError(f"{cls.__name__}: unknown field {name!r}: {nearest(name, known)}")
            if args:
                raise DeclarationError(f"{cls.__name__} takes named fields only, such as {next(iter(known))}=...")
            for name, item in known.items():
                no_default = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
                if no_default and name not in fields:
                    raise DeclarationError(f"{cls.__name__}: the field {name}= is missing")
            return super().__call__(**fields)


def _problem(owner: str, text: str) -> DeclarationError:
    return DeclarationError(f"{owner}: {text}")


@dataclass(frozen=True, kw_only=True)
class Spec(metaclass=Declared):
    """Base of all declared parts: checks field types and choices, and knows its JSON form."""

    kinds: ClassVar[dict[str, type[Spec]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Spec.kinds[cls.__name__] = cls

    def __post_init__(self) -> None:
        hints = _hints(type(self))
        for item in dataclasses.fields(self):
            value = _coerced(type(self).__name__, item.name, getattr(self, item.name), hints[item.name])
            object.__setattr__(self, item.name, value)
        self._check()

    def _check(self) -> None:
        """Refuse what the field types alone cannot."""

    def _require(self, condition: bool, text: str) -> None:
        if not condition:
            raise _problem(type(self).__name__, text)

    def to_json(self) -> dict[str, Any]:
        """As builtins: the kind, and every field that differs from its default."""
        out: dict[str, Any] = {"kind": type(self).__name__}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if value != item.default:
                out[item.name] = to_builtins(value)
        return out

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Spec:
        """The inverse of :meth:`to_json`.

        Raises:
            DeclarationError: The kind is unknown.
        """
        fields = dict(data)
        kind = fields.pop("kind", None)
        if kind not in Spec.kinds:
            raise DeclarationError(f"unknown kind {kind!r}: {nearest(str(kind), Spec.kinds)}")
        return Spec.kinds[kind](**{name: from_builtins(value) for name, value in fields.items()})


_HINTS: dict[type, dict[str, Any]] = {}


def _hints(cls: type) -> dict[str, Any]:
    if cls not in _HINTS:
        _HINTS[cls] = get_type_hints(cls)
    return _HINTS[cls]


def _coerced(owner: str, name: str, value: Any, hint: Any) -> Any:
    """The value as the field's type wants it (ints become floats, lists tuples), or a refusal."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    choices = [choice for option in options if get_origin(option) is Literal for choice in get_args(option)]
    if value in choices if isinstance(value, str) else value is None and type(None) in options:
        return value
    if choices and isinstance(value, str) and str not in options:
        raise _problem(owner, f"{name}={value!r} is not known: {nearest(value, choices)}")
    for option in options:
        if isinstance(value, bool) and option is not bool:
            continue  # Python takes True for a 1; a declaration does not
        if option is float and isinstance(value, int | float):
            if not _finite(value):
                raise _problem(owner, f"{name} must be a finite number, not {value!r:.20}")
            return float(value)
        if isinstance(option, type) and isinstance(value, option):
            return value
        if get_origin(option) is tuple and isinstance(value, tuple | list):
            inner = get_args(option)
            wanted = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
            if len(wanted) != len(value):
                raise _problem(owner, f"{name} takes {len(wanted)} values, not {value!r}")
            return tuple(_coerced(owner, name, one, kind) for one, kind in zip(value, wanted, strict=True))
        if option in (Callable, Callable[..., Any]) and callable(value):
            return value
        if option in (Any, object):
            return value
    kinds = " or ".join(_hint_name(option) for option in options)
    raise _problem(owner, f"{name} must be {kinds}, not {value!r}")


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


def _hint_name(hint: Any) -> str:
    named = {int: "a whole number", float: "a number", str: "text", bool: "True or False", type(None): "None"}
    if hint in named:
        return named[hint]
    choices = [repr(arg) for arg in get_args(hint) if isinstance(arg, str)]
    if choices:
        return " or ".join(choices)
    return getattr(hint, "__name__", str(hint))


def callable_name(function: Callable[..., Any]) -> str:
    """A callable as ``module:qualname``, the form in which it is written down.

    What has no name (a ``functools.partial``, an instance) is written as its repr, without the addresses in it:
    they are other ones in every process.
    """
    name = getattr(function, "__qualname__", None) or re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(function))
    return f"{getattr(function, '__module__', '?')}:{name}"


def to_builtins(value: Any) -> Any:
    """A declared value as JSON-able builtins."""
    if isinstance(value, Spec):
        return value.to_json()
    if isinstance(value, Mapping):
        return {str(key): to_builtins(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_builtins(item) for item in value]
    if callable(value):
        return {"callable": callable_name(value)}
    return value


def from_builtins(value: Any) -> Any:
    """The inverse of :func:`to_builtins`; lists come back as tuples.

    Raises:
        DeclarationError: A callable's module or name cannot be imported here.
    """
    if isinstance(value, Mapping):
        if isinstance(value.get("kind"), str):
            return Spec.from_json(value)
        if set(value) == {"callable"} and isinstance(value["callable"], str):
            return _import(value["callable"])
        return {key: from_builtins(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(from_builtins(item) for item in value)
    return value


def _import(reference: str) -> Any:
    module, _, name = reference.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise DeclarationError(f"{reference} cannot be imported here: {error}") from error
    return found


def same(old: Any, new: Any) -> bool:
    """Whether two declared values mean the same; callables only if they are equal, as lambdas share a name."""
    if callable(old) and callable(new):
        return bool(old == new)
    return bool(to_builtins(old) == to_builtins(new))


def leaves(value: Any, prefix: str = "") -> dict[str, Any]:
    """A declaration as a flat mapping from dotted field name to plain value, defaults included.

    A part of another kind counts as one difference: its fields are not comparable.
    """
    if isinstance(value, Spec):
        flat: dict[str, Any] = {f"{prefix}": type(value).__name__}
        for item in dataclasses.fields(value):
            flat |= leaves(getattr(value, item.name), f"{prefix}.{item.name}" if prefix else item.name)
        return flat
    return {prefix: to_builtins(value)}
