"""The Case: a declared question about a training, flat and frozen, that checks itself when it is built.

One idea serves four purposes: *changes*, a mapping from field names to values. A name is a field of the Case
(``warmup``), or of its model, task or optimizer (``layers``, ``lag``, ``lr``). ``but`` derives a case by them,
``control`` names the change for which the case must be violated, ``variants`` and ``sweep`` make arms.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypedDict, Unpack

from stabilitysuite import declaration
from stabilitysuite.changes import changed, is_part_field
from stabilitysuite.claims import edge, identity, measure, outcome, sensitivity  # noqa: F401 -- a written case may hold a claim of any family
from stabilitysuite.claims.claim import Claim
from stabilitysuite.declaration import Declared, callable_name, from_builtins, leaves, same, to_builtins
from stabilitysuite.errors import DeclarationError, nearest
from stabilitysuite.spec import (
    GAU,
    SGD,
    Adam,
    AdamW,
    Initialisation,
    Precision,
    Task,
    Training,
    Transformer,
    check_training,
)

__all__ = ["TIERS", "Case", "Changes"]

Tier = Literal["quick", "full", "paper"]
TIERS: tuple[Tier, ...] = ("quick", "full", "paper")
MEANING = 1
"""Part of every digest. A digest leaves defaults out: raise this when a default changes, and it changes too."""
LOOKS = (3, 5, 8)
"""Numbers of seeds at which a training is judged: with a calibrated spread three nearly always decide."""
INITIAL_SEEDS = 16
"""Seeds of a case that only initialises: one forward and backward pass each."""


class Changes(TypedDict, total=False):
    """What a case may be changed in: fields of the Case, and of its model, task and optimizer."""

    says: str
    source: str
    model: Transformer | GAU | Callable[..., Any]
    task: Task | None
    data: Callable[..., Any] | None
    loss: Callable[..., Any] | None
    step: Callable[..., Any] | None
    optimizer: SGD | Adam | AdamW | Callable[..., Any]
    scheduler: Callable[..., Any] | None
    steps: int
    warmup: int
    schedule: Literal["constant", "cosine", "inverse_sqrt"]
    clip: float | None
    precision: Precision
    target: float | None
    expect: Claim | tuple[Claim, ...]
    seeds: int | None
    tier: Tier
    control: Mapping[str, Any] | None
    variants: Mapping[str, Mapping[str, Any]] | None
    sweep: Mapping[str, tuple[Any, ...]] | None
    marks: tuple[Any, ...]
    # of the model
    layers: Any
    width: int
    heads: int
    ffn: int
    activation: Literal["relu", "gelu", "swish"]
    norm: Literal["post", "pre", "none"]
    residual_scale: float
    attention: bool
    init: Initialisation
    positions: Literal["learned", "sinusoidal", "none"]
    causal: bool
    key: float | None
    expansion: int
    kernel: Literal["full", "diagonal"]
    # of the initialisation
    gain: float
    query: float | None
    value: float | None
    output: float | None
    ffn_in: float | None
    ffn_out: float | None
    # of the task
    vocab: int
    length: int
    batch: int
    lag: int
    sharpness: float
    share: float
    signal: float
    queries: int
    tokens: int
    classes: int
    # of the optimizer
    lr: float
    betas: tuple[float, float]
    eps: float
    momentum: float
    weight_decay: float


@dataclass(frozen=True, kw_only=True)
class Case(metaclass=Declared):
    """A declared question: what it says, what is trained, and what must hold.

    Raises:
        DeclarationError: A field is unknown, of the wrong kind, or cannot go with another; the message names
            the field and the nearest right thing.
    """

    says: str
    """The claim in one sentence, as a person would state it."""
    source: str = ""
    """Where the claim comes from: a paper, an article, or ``measured here``."""
    model: Transformer | GAU | Callable[..., Any]
    """A model of the zoo, or ``() -> nn.Module``; every global generator is seeded just before the call."""
    task: Task | None = None
    """What it is trained on, with known losses; or give ``data`` with ``loss`` or ``step``."""
    data: Callable[..., Any] | None = None
    """``(seed) -> iterable of batches``."""
    loss: Callable[..., Any] | None = None
    """``(model, batch) -> scalar tensor``."""
    step: Callable[..., Any] | None = None
    """``(model, batch, optimizer) -> loss``: a whole training step of one's own, in place of ``loss``."""
    optimizer: SGD | Adam | AdamW | Callable[..., Any] = Adam(lr=1e-3)  # noqa: RUF009 -- frozen
    """An optimizer declared here, or ``(model) -> torch optimizer``."""
    scheduler: Callable[..., Any] | None = None
    """``(optimizer) -> torch scheduler``, stepped after each update; in place of warmup and schedule."""
    steps: int = 0
    """Number of updates; 0 measures at initialisation only."""
    warmup: int = 0
    """Updates over which the learning rate rises linearly: update k uses lr (k + 1) / warmup."""
    schedule: Literal["constant", "cosine", "inverse_sqrt"] = "constant"
    """Learning rate after the warmup: cosine falls to zero at the last step."""
    clip: float | None = None
    """Largest gradient norm over all parameters; ``None`` for no clipping."""
    precision: Precision = "float32"
    """``bfloat16`` and ``float16`` run the forward pass under autocast, ``float16`` with a loss scale for each seed;
    ``float64`` keeps weights, data and losses in it."""
    target: float | None = None
    """On one's own data: the loss at which training counts as done."""
    layers: str | None = None
    """Pattern of the names of one's own module's blocks, such as ``transformer.h.*``; found when not given."""
    expect: Claim | tuple[Claim, ...]
    """What must hold: one claim or several."""
    seeds: int | None = None
    """Seeds to judge on; by default as many as are needed, 3, 5 or 8, and 16 where nothing is trained."""
    tier: Tier = "quick"
    """When it runs: ``quick``, ``full`` or ``paper``."""
    control: Mapping[str, Any] | None = dataclasses.field(default=None, hash=False)
    """The smallest change for which the case must be violated: proof that it can fail."""
    variants: Mapping[str, Mapping[str, Any]] | None = dataclasses.field(default=None, hash=False)
    """Named arms, each a change of the case; what is expected must hold in every one."""
    sweep: Mapping[str, tuple[Any, ...]] | None = dataclasses.field(default=None, hash=False)
    """One field and its values, an arm each."""
    marks: tuple[Any, ...] = dataclasses.field(default=(), hash=False)
    """pytest marks of the item, such as ``pytest.mark.xfail(strict=True)``."""
    built_in: str = dataclasses.field(default="", repr=False, compare=False)
    """File that built it; filled in."""
    built_at: int = dataclasses.field(default=0, repr=False, compare=False)
    """Line that built it; filled in."""

    def __post_init__(self) -> None:
        file, line = _caller()
        object.__setattr__(self, "built_in", self.built_in or file)
        object.__setattr__(self, "built_at", self.built_at or line)
        if not isinstance(self.says, str) or not self.says.strip():
            raise DeclarationError("Case: says must state the claim in one sentence")
        try:
            self._check()
        except DeclarationError as error:
            raise DeclarationError(f"Case {self.says!r}: {error}") from None

    # ------------------------------------------------------------------------------------------------ checks

    def _check(self) -> None:
        expect = tuple(self.expect) if isinstance(self.expect, tuple | list) else (self.expect,)
        object.__setattr__(self, "expect", expect)
        if not expect or not all(isinstance(claim, Claim) for claim in expect):
            raise DeclarationError(
                f"expect takes claims such as converges() or branch_ratio().at_most(0.1), not {self.expect!r}"
            )
        if not isinstance(self.source, str):
            raise DeclarationError(f"source must be text, not {self.source!r}")
        if self.tier not in TIERS:
            raise DeclarationError(f"tier={self.tier!r} is not known: {nearest(str(self.tier), TIERS)}")
        if self.seeds is not None and (isinstance(self.seeds, bool) or not isinstance(self.seeds, int)):
            raise DeclarationError(f"seeds must be a whole number, not {self.seeds!r}")
        if self.seeds is not None and self.seeds < 1:
            raise DeclarationError(f"seeds={self.seeds}: a case without seeds decides nothing")
        marks = self.marks if isinstance(self.marks, tuple | list) else (self.marks,)
        object.__setattr__(self, "marks", tuple(marks))
        training = self.training()
        check_training(training)
        for claim in expect:
            claim.check(training)
        self._check_changes()

    def _check_changes(self) -> None:
        if self.variants is not None and self.sweep is not None:
            raise DeclarationError("variants and sweep are both given: an arm would have two names, use one of them")
        if self.control is not None:
            _check_mapping("control", self.control)
            object.__setattr__(self, "control", MappingProxyType(dict(self.control)))
        if self.variants is not None:
            _check_mapping("variants", self.variants)
            for name, changes in self.variants.items():
                if not isinstance(changes, Mapping):
                    raise DeclarationError(f"variant {name!r} takes a mapping from fields to values, not {changes!r}")
                if not isinstance(name, str) or not name or "|" in name:
                    raise DeclarationError(f"{name!r} cannot name a variant: take a word without '|'")
            frozen = {name: MappingProxyType(dict(changes)) for name, changes in self.variants.items()}
            object.__setattr__(self, "variants", MappingProxyType(frozen))
        if self.sweep is not None:
            _check_mapping("sweep", self.sweep)
            if len(self.sweep) != 1:
                raise DeclarationError(f"sweep takes one field, not {len(self.sweep)}: {', '.join(self.sweep)}")
            name, points = next(iter(self.sweep.items()))
            if not isinstance(points, tuple | list | range):
                raise DeclarationError(f"sweep over {name}: give its values as a tuple, not {points!r}")
            points = tuple(points)
            object.__setattr__(self, "sweep", MappingProxyType({name: points}))
            if len(points) < 2 or len(set(map(repr, points))) < len(points):
                raise DeclarationError(f"sweep over {name}: give at least two different values, not {points!r}")
        for claim in self.claims:
            if claim.needs_twin() and self.control is None:
                raise DeclarationError(
                    f"{claim.words()} needs control=: the one change with which the same training converges, "
                    "so that a stall can be told from slowness"
                )
            claim.check_arms(tuple(self.variants or ()), self.sweep or {})
            if claim.looks() and self.tier == "quick":
                raise DeclarationError(f"{claim.words()} takes many runs: it needs tier='full' or 'paper'")
            if claim.explores() and len(self.claims) > 1:
                raise DeclarationError(f"{claim.words()} chooses its own runs: give it a case of its own")
        for arm in self.arms():
            check_training(self.arm(arm))
            for claim in self.claims:
                claim.check(self.arm(arm))
            if self.control is not None:
                self._check_control(arm)

    def _check_control(self, arm: str) -> None:
        twin = self.twin(arm)
        check_training(twin)
        for claim in self.claims:
            claim.check(twin)
        before, after = leaves(self.arm(arm)), leaves(twin)
        differing = sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
        # A part of another kind is one difference, whatever its fields are.
        differing = [name for name in differing if not any(name.startswith(f"{part}.") for part in differing)]
        # An initialisation is one declared field: a lost or inverted factor touches several roles at once.
        differing = sorted({"model.init" if name.startswith("model.init.") else name for name in differing})
        if differing == ["steps"]:
            raise DeclarationError(
                "control changes steps: a control trains as long as the case does, change another field"
            )
        if len(differing) > 1:
            raise DeclarationError(
                f"control changes {len(differing)} fields at once ({', '.join(differing)}): a control differs in one"
            )

    # --------------------------------------------------------------------------------------------- derivation

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What must hold."""
        expect = self.expect
        return expect if isinstance(expect, tuple) else (expect,)

    def training(self) -> Training:
        """The training that the case's own fields declare."""
        return Training(**{item.name: getattr(self, item.name) for item in dataclasses.fields(Training)})

    def arms(self) -> tuple[str, ...]:
        """Names of the arms: ``""`` alone, or those of the variants or of the sweep."""
        if self.variants is not None:
            return tuple(self.variants)
        if self.sweep is not None:
            name, points = next(iter(self.sweep.items()))
            return tuple(f"{name}={_spoken(point)}" for point in points)
        return ("",)

    def arm(self, name: str) -> Training:
        """The training of one arm.

        Raises:
            DeclarationError: A change names an unknown field, or changes nothing.
        """
        if self.variants is not None:
            return changed(self.training(), dict(self.variants[name]), f"variant {name!r}")
        if self.sweep is not None:
            field, points = next(iter(self.sweep.items()))
            point = points[self.arms().index(name)]
            return changed(self.training(), {field: point}, "sweep", may_equal=True)
        return self.training()

    def twin(self, name: str) -> Training:
        """The training of one arm with the control's change.

        Raises:
            DeclarationError: The case has no control, or its change changes nothing.
        """
        if self.control is None:
            raise DeclarationError(f"Case {self.says!r} has no control: give it control=, one change that violates it")
        return changed(self.arm(name), dict(self.control), "control")

    def looks(self) -> tuple[int, ...]:
        """Numbers of seeds at which it is judged, ascending; the first that decides is the last."""
        if self.seeds is not None:
            return (self.seeds,)
        own = [claim.looks() for claim in self.claims if claim.looks()]
        return max(own, key=lambda sizes: sizes[-1]) if own else LOOKS if self.steps else (INITIAL_SEEDS,)

    def but(self, **changes: Unpack[Changes]) -> Case:
        """A case that differs from this one in the given fields, and says something new.

        The control is not inherited: what proves that a case can fail is its own.

        Raises:
            DeclarationError: ``says`` is missing, a field is unknown, or a change changes nothing.
        """
        given: dict[str, Any] = dict(changes)
        if "says" not in given:
            raise DeclarationError(f"Case {self.says!r}: .but needs says=, what the derived case claims")
        fields = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        model = given.get("model", self.model)
        own = {name: value for name, value in given.items() if name in fields and not is_part_field(name, model)}
        parts = {name: value for name, value in given.items() if name not in own}
        for name, value in own.items():
            if name not in ("control", "marks", "source", "tier", "seeds") and _same(fields[name], value):
                raise DeclarationError(
                    f"Case {given['says']!r}: {name} is {value!r} already, the change changes nothing"
                )
        fields |= {"control": None, "built_in": "", "built_at": 0} | own
        if parts:
            base = Training(**{item.name: fields[item.name] for item in dataclasses.fields(Training)})
            training = changed(base, parts, f"Case {given['says']!r}", known=set(Changes.__annotations__))
            fields |= {item.name: getattr(training, item.name) for item in dataclasses.fields(Training)}
        return Case(**fields)

    # ------------------------------------------------------------------------------------------ written form

    def to_json(self) -> dict[str, Any]:
        """As builtins: every field that differs from its default; marks are left out."""
        out: dict[str, Any] = {}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.name in ("marks", "built_in", "built_at") or value == item.default:
                continue
            out[item.name] = to_builtins(value)
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Case:
        """The inverse of :meth:`to_json`.

        Raises:
            DeclarationError: A field is unknown, or a callable cannot be imported here.
        """
        known = {item.name for item in dataclasses.fields(cls)}
        for name in data:
            if name not in known:
                raise DeclarationError(f"Case: unknown field {name!r}: {nearest(name, known)}")
        return cls(**{name: from_builtins(value) for name, value in data.items()})

    def digest(self) -> str:
        """Twelve hexadecimal digits that change exactly when the meaning does.

        The meaning is what is trained and what must hold; not the words, the source, the tier, the number of
        seeds, the control or a published figure. A callable counts by its reference.
        """
        meaning: dict[str, Any] = {"version": MEANING}
        meaning["arms"] = {arm: self.arm(arm).to_json() for arm in self.arms()}
        meaning["expect"] = [_without_published(claim) for claim in self.claims]
        if any(claim.needs_twin() for claim in self.claims):
            meaning["twins"] = {arm: self.twin(arm).to_json() for arm in self.arms()}
        text = json.dumps(meaning, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _without_published(claim: Claim) -> dict[str, Any]:
    return {name: value for name, value in claim.to_json().items() if name != "published"}


def _caller() -> tuple[str, int]:
    """File and line outside of this module and the generated ``__init__`` that is building the case."""
    frame = sys._getframe(1)
    ours = (__file__, declaration.__file__, "<string>")
    while frame.f_back is not None and frame.f_code.co_filename in ours:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, tuple) and not isinstance(new, tuple | list):
        new = (new,)
    return same(old, new)


def _spoken(point: Any) -> str:
    """A point of a sweep in the name of its arm, the same in every process."""
    return callable_name(point) if callable(point) else str(point)


def _check_mapping(name: str, value: Any) -> None:
    if not isinstance(value, Mapping) or not value:
        raise DeclarationError(f"{name} takes a mapping from names to values, not {value!r}")
