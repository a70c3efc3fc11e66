"""Hypothesis strategies for everything that is written down: one home, so that tests agree on what can occur."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

from hypothesis import strategies as st

from stabilitysuite.case import TIERS, Case
from stabilitysuite.claims.bound import Bound
from stabilitysuite.claims.claim import Claim
from stabilitysuite.claims.finding import Finding, Verdict
from stabilitysuite.claims.measure import Measure
from stabilitysuite.claims.outcome import Ends, converges, diverges, fails_to_train, stalls
from stabilitysuite.claims.reading import REDUCTIONS
from stabilitysuite.quantity import QUANTITIES
from stabilitysuite.record import Record, Status
from stabilitysuite.spec import (
    GAU,
    SGD,
    Adam,
    AdamW,
    Classification,
    Gaussian,
    He,
    Induction,
    KnownTask,
    LeCun,
    Markov,
    MaskedToken,
    Precision,
    Training,
    Transformer,
    Xavier,
)
from stabilitysuite.trace import Outcome, OutcomeName, Reference, Series, Trace

__all__ = [
    "bounds",
    "cases",
    "findings",
    "inits",
    "models",
    "numbers",
    "optimizers",
    "outcomes",
    "positive",
    "records",
    "references",
    "series",
    "tasks",
    "texts",
    "traces",
    "trainings",
]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
"""What a person may have written, without lone surrogates."""
numbers = st.floats(allow_nan=True, allow_infinity=True)
"""Every float: what a measurement may leave."""
positive = st.floats(1e-6, 1e6)
"""Positive numbers of a size that occurs."""
counts = st.integers(1, 8)
steps = st.integers(0, 1000)


# ------------------------------------------------------------------------------------------------- declarations

_inits: list[type[Xavier] | type[He] | type[LeCun]] = [Xavier, He, LeCun]
inits = st.builds(
    lambda kind, **gains: kind(**gains),
    st.sampled_from(_inits),
    gain=st.floats(0, 10),
    query=st.none() | st.floats(0, 10),
    output=st.none() | st.floats(0, 10),
)
_norms = st.sampled_from(["post", "pre", "none"])
_activations = st.sampled_from(["relu", "gelu", "swish"])
models = st.one_of(
    st.builds(
        lambda heads, times, **fields: Transformer(heads=heads, width=heads * times, **fields),
        counts,
        counts,
        layers=counts,
        ffn=counts,
        norm=_norms,
        activation=_activations,
        residual_scale=positive,
        attention=st.booleans(),
        init=inits,
    ),
    st.builds(
        GAU,
        width=counts,
        key=counts,
        layers=counts,
        norm=_norms,
        activation=_activations,
        kernel=st.sampled_from(["full", "diagonal"]),
        init=inits,
    ),
)
tasks: st.SearchStrategy[Markov | MaskedToken | Classification | Induction] = st.one_of(
    st.builds(
        lambda lag, more, **fields: Markov(lag=lag, length=lag + more, **fields),
        counts,
        counts,
        vocab=st.integers(2, 99),
        batch=counts,
        sharpness=positive,
    ),
    st.builds(MaskedToken, vocab=st.integers(2, 99), length=st.integers(4, 99), batch=counts, sharpness=positive),
    st.builds(Classification, classes=st.integers(2, 8), length=st.integers(2, 9), batch=counts),
    st.builds(Induction, vocab=st.integers(2, 99), queries=counts, batch=counts),
)
optimizers = st.one_of(
    st.builds(SGD, lr=positive, momentum=st.floats(0, 0.99)),
    st.builds(Adam, lr=positive, betas=st.tuples(st.floats(0, 0.99), st.floats(0, 0.99)), eps=st.floats(0, 1)),
    st.builds(AdamW, lr=positive, weight_decay=st.floats(0, 1)),
)


@st.composite
def measures(draw: st.DrawFn, training: Training) -> Measure:
    """A measure that this training can have."""
    able = sorted(name for name, kind in QUANTITIES.items() if _able(name, kind.training, training))
    name = draw(st.sampled_from(able))
    where = None if QUANTITIES[name].axis is None else draw(st.sampled_from(["first", "last", *REDUCTIONS]))
    step: Any = draw(st.sampled_from(["last", *REDUCTIONS]) | st.integers(0, max(training.steps - 1, 0)))
    return Measure(quantity=name, where=where, step=step)


def _able(name: str, needs_update: bool, training: Training) -> bool:
    if name == "shortcut_weight":
        return isinstance(training.model, Transformer | GAU) and training.model.norm == "post"
    if name.startswith("attention_"):
        return isinstance(training.model, Transformer) and training.model.attention
    if name in ("evaluated_loss", "steps_to_converge") and not isinstance(training.task, KnownTask):
        return False
    return training.steps > 0 or not needs_update


@st.composite
def bounds(draw: st.DrawFn, training: Training) -> Bound:
    """A bound on what this training can have."""
    measure = draw(measures(training))
    if draw(st.booleans()) and measure.over is None:
        measure = measure / draw(measures(training))
    low, high = sorted(draw(st.lists(positive, min_size=2, max_size=2, unique=True)))
    published = draw(st.none() | positive)
    kept = draw(st.sampled_from([(low, high), (low, None), (None, high)]))
    return Bound(measure=measure, low=kept[0], high=kept[1], published=published)


_endings: st.SearchStrategy[Ends] = st.one_of(
    st.builds(converges, progress=st.none() | st.floats(0.01, 1)),
    st.just(diverges()),
    st.just(fails_to_train()),
    st.just(stalls()),
)


@st.composite
def trainings(draw: st.DrawFn) -> Training:
    """A training of the zoo, or a measurement at initialisation."""
    if draw(st.booleans()):
        return Training(model=draw(models), task=Gaussian(tokens=draw(counts), classes=draw(counts)))
    model, task = draw(models), draw(tasks)
    return Training(
        model=model if task.causal is None else dataclasses.replace(model, causal=task.causal),
        task=task,
        optimizer=draw(optimizers),
        steps=draw(st.integers(0, 500)),
        warmup=draw(st.integers(0, 500)),
        schedule=draw(st.sampled_from(["constant", "cosine", "inverse_sqrt"])),
        clip=draw(st.none() | positive),
        precision=draw(st.sampled_from(get_args(Precision))),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A case of the zoo, with or without control, variants or a sweep."""
    training = draw(trainings())
    claims: list[Claim] = [draw(bounds(training))]
    if training.steps:
        claims += draw(st.lists(_endings, max_size=2))
        if training.schedule == "cosine":  # a stall is watched beyond the end of the schedule
            claims = [claim for claim in claims if not claim.needs_twin()]
    more: dict[str, Any] = {}
    if any(claim.needs_twin() for claim in claims) or draw(st.booleans()):
        more["control"] = {"gain": draw(st.floats(11, 12))}
    arms = draw(st.sampled_from(["none", "variants", "sweep"]))
    widened = training.model.residual_scale if isinstance(training.model, Transformer | GAU) else 1.0
    if arms == "variants":
        more["variants"] = {"plain": {}, "scaled": {"residual_scale": widened + 1.0}}
    elif arms == "sweep":
        more["sweep"] = {"residual_scale": (widened, widened + 1.0, widened + 2.0)}
    return Case(
        says=draw(texts.filter(str.strip)),
        source=draw(texts),
        expect=tuple(claims),
        seeds=draw(st.none() | counts),
        tier=draw(st.sampled_from(TIERS)),
        **{item.name: getattr(training, item.name) for item in dataclasses.fields(training)},
        **more,
    )


# -------------------------------------------------------------------------------------------- what a run leaves

outcomes = st.builds(
    Outcome,
    name=st.sampled_from(get_args(OutcomeName)),
    step=steps,
    layer=st.none() | texts,
    tensor=st.none() | texts,
    detail=texts,
)
references = st.builds(
    Reference, plateau=numbers, floor=numbers, shallow_floor=st.none() | numbers, enough=st.floats(0, 1)
)


@st.composite
def series(draw: st.DrawFn) -> Series:
    """A series of any shape, empty ones too."""
    at = sorted(draw(st.sets(steps, max_size=4)))
    labels = draw(st.lists(texts, max_size=3))
    row = st.tuples(*(numbers for _ in labels))
    return Series(
        quantity=draw(st.sampled_from(sorted(QUANTITIES))),
        steps=tuple(at),
        labels=tuple(labels),
        values=tuple(draw(row) for _ in at),
    )


traces = st.builds(
    Trace,
    arm=texts,
    seed=st.integers(0, 2**31),
    outcomes=st.lists(outcomes, min_size=1, max_size=2).map(tuple),
    series=st.lists(series(), max_size=2).map(lambda kept: {one.quantity: one for one in kept}),
    reference=st.none() | references,
    warnings=st.lists(texts, max_size=2).map(tuple),
    engine=texts,
    seconds=st.floats(0, 1e6),
)
findings = st.builds(
    Finding,
    arm=texts,
    claim=texts,
    verdict=st.sampled_from(get_args(Verdict)),
    number=texts,
    value=st.none() | numbers,
    interval=st.none() | st.tuples(numbers, numbers),
    threshold=texts,
    margin=st.none() | numbers,
    margin_unit=st.sampled_from(["factor", "difference"]),
    seeds=st.lists(st.integers(0, 2**31), max_size=3).map(tuple),
    values=st.lists(numbers, max_size=3).map(tuple),
    reason=texts,
    remedy=st.sampled_from(["", "more seeds", "more steps"]),
    false_holds=st.none() | st.floats(0, 1),
    published=st.none() | positive,
    wrong=st.lists(st.integers(0, 2**31), max_size=3).map(tuple),
)
records = st.builds(
    Record,
    id=texts,
    case=cases().map(Case.to_json),
    digest=texts,
    sources=st.dictionaries(texts, texts, max_size=2),
    control=st.booleans(),
    status=st.sampled_from(get_args(Status)),
    findings=st.lists(findings, max_size=2).map(tuple),
    traces=st.lists(traces, max_size=2).map(tuple),
    message=texts,
    environment=st.dictionaries(texts, st.none() | texts | st.integers() | st.booleans(), max_size=3),
    started=st.just("2026-01-01T00:00:00+00:00"),
    seconds=st.floats(0, 1e6),
    cpu_seconds=st.floats(0, 1e6),
    estimated_seconds=st.floats(0, 1e6),
    admission=texts,
    gates=st.booleans(),
)
