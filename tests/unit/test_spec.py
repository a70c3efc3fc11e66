from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest

from stabilitysuite.declaration import Spec, callable_name, from_builtins, leaves, same, to_builtins
from stabilitysuite.errors import DeclarationError
from stabilitysuite.spec import (
    GAU,
    SGD,
    Adam,
    AdamW,
    Classification,
    Gaussian,
    He,
    Induction,
    Initialisation,
    LeCun,
    Markov,
    MaskedToken,
    Run,
    Training,
    Transformer,
    Xavier,
    same_training,
)

SMALL = Transformer(layers=2, width=8, heads=2)


def untyped(kind: Any) -> Any:
    """What a user without a type checker can write."""
    return kind


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: untyped(Transformer)(layers=2, width=8, head=2),
            "Transformer: unknown field 'head': did you mean 'heads'?",
        ),
        (lambda: untyped(Transformer)(width=8), "Transformer: the field layers= is missing"),
        (lambda: untyped(Transformer)(2, 8), "Transformer takes named fields only, such as layers=..."),
        (lambda: untyped(Adam)(lr=math.nan), "Adam: lr must be a finite number, not nan"),
        (lambda: untyped(Adam)(lr=math.inf), "Adam: lr must be a finite number, not inf"),
        (lambda: untyped(Adam)(lr=10**400), "Adam: lr must be a finite number, not 10000000000000000000"),
        (lambda: untyped(Adam)(lr=0), "Adam: lr must be positive, it is 0.0"),
        (lambda: untyped(Adam)(lr="1e-3"), "Adam: lr must be a number, not '1e-3'"),
        (lambda: untyped(Adam)(lr=True), "Adam: lr must be a number, not True"),
        (lambda: untyped(Adam)(lr=1, betas=(0.9,)), "Adam: betas takes 2 values, not (0.9,)"),
        (lambda: untyped(Adam)(lr=1, betas=(0.9, 1)), "Adam: betas must be in [0, 1)"),
        (lambda: untyped(SGD)(lr=1, momentum=1), "SGD: momentum must be in [0, 1)"),
        (lambda: untyped(AdamW)(lr=1, weight_decay=-1), "AdamW: weight_decay must not be negative"),
        (lambda: untyped(Adam)(lr=1, eps=-1), "Adam: eps must not be negative"),
        (
            lambda: untyped(Transformer)(layers=True, width=8),
            "Transformer: layers must be a whole number, not True",
        ),
        (
            lambda: untyped(Transformer)(layers=2.0, width=8),
            "Transformer: layers must be a whole number, not 2.0",
        ),
        (lambda: untyped(Transformer)(layers=-1, width=8), "Transformer: layers must not be negative"),
        (
            lambda: untyped(Transformer)(layers=1, width=9),
            "Transformer: width 9 is not a multiple of heads 4",
        ),
        (lambda: untyped(Transformer)(layers=1, width=8, heads=0), "Transformer: heads must be at least 1"),
        (
            lambda: untyped(Transformer)(layers=1, width=8, causal=1),
            "Transformer: causal must be True or False, not 1",
        ),
        (
            lambda: untyped(Transformer)(layers=1, width=8, norm="pots"),
            "Transformer: norm='pots' is not known: did you mean 'post'?",
        ),
        (
            lambda: untyped(Transformer)(layers=1, width=8, norm=None),
            "Transformer: norm must be 'post' or 'pre' or 'none', not None",
        ),
        (
            lambda: untyped(Transformer)(layers=1, width=8, residual_scale=0),
            "Transformer: residual_scale must be positive",
        ),
        (
            lambda: untyped(Transformer)(layers=1, width=8, init=Adam(lr=1)),
            "Transformer: init must be Initialisation, not Adam(",
        ),
        (lambda: untyped(GAU)(width=0), "GAU: width must be at least 1"),
        (lambda: untyped(Xavier)(gain=-1), "Xavier: gain must not be negative, it is -1.0"),
        (lambda: untyped(Markov)(length=2, lag=3), "Markov: length 2 is shorter than the lag 3"),
        (lambda: untyped(Markov)(vocab=1), "Markov: vocab must be at least 2"),
        (lambda: untyped(Markov)(sharpness=0), "Markov: sharpness must be positive"),
        (lambda: untyped(Gaussian)(tokens=0), "Gaussian: tokens must be at least 1"),
        (lambda: untyped(MaskedToken)(length=2), "MaskedToken: length must be at least 3: a masked token has two"),
        (lambda: untyped(MaskedToken)(share=0), "MaskedToken: share must be between 0 and 1, it is 0.0"),
        (
            lambda: untyped(MaskedToken)(share=0.5),
            "MaskedToken: share 0.5 of 16 tokens masks 8, but with both neighbours visible there is room for 7",
        ),
        (lambda: untyped(MaskedToken)(sharpness=0), "MaskedToken: sharpness must be positive"),
        (lambda: untyped(Classification)(classes=1), "Classification: classes must be at least 2"),
        (lambda: untyped(Classification)(length=1), "Classification: length must be at least 2: pairs of tokens"),
        (lambda: untyped(Classification)(vocab=3), "Classification: vocab 3 is smaller than classes 4"),
        (
            lambda: untyped(Classification)(signal=0.125),
            "Classification: signal must be above chance, 1 / vocab = 0.125, and below 1, it is 0.125",
        ),
        (
            lambda: untyped(Classification)(length=99),
            "Classification: length 99 with 4 classes: the floor is a sum of 4249575 terms, more than 200000",
        ),
        (lambda: untyped(Induction)(vocab=1), "Induction: vocab must be at least 2"),
        (lambda: untyped(Induction)(queries=0), "Induction: queries must be at least 1"),
    ],
)
def test_a_wrong_declaration_is_refused_in_one_line(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        build()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_whole_numbers_and_lists_become_what_the_field_is() -> None:
    made = Adam(lr=1, betas=[0, 0.5])  # type: ignore[arg-type]
    assert (made.lr, made.betas) == (1.0, (0.0, 0.5))
    assert isinstance(made.lr, float)
    assert isinstance(made.betas, tuple)


@pytest.mark.parametrize(
    ("init", "variance"),
    [(Xavier(), 2 / (30 + 10)), (He(), 2 / 30), (LeCun(), 1 / 30)],
    ids=lambda value: str(value)[:6],
)
def test_a_standard_deviation_follows_its_paper(init: Initialisation, variance: float) -> None:
    assert init.std("query", 30, 10) == pytest.approx(math.sqrt(variance))


def test_a_gain_of_a_role_replaces_the_common_one() -> None:
    init = LeCun(gain=2, output=0)
    assert init.std("query", 25, 9) == pytest.approx(2 / 5)
    assert init.std("output", 25, 9) == 0


def test_branches_are_named_in_the_order_in_which_they_are_applied() -> None:
    assert SMALL.sublayers() == ("layer 0 attention", "layer 0 ffn", "layer 1 attention", "layer 1 ffn")
    assert Transformer(layers=1, width=8, attention=False).sublayers() == ("layer 0 ffn",)
    assert GAU(width=8, layers=2).sublayers() == ("layer 0 gau", "layer 1 gau")


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"unknown kind 'Transfromer': did you mean 'Transformer'\?"):
        Spec.from_json({"kind": "Transfromer"})
    with pytest.raises(DeclarationError, match="unknown kind None"):
        Spec.from_json({"layers": 2})


def test_what_cannot_be_imported_is_refused_by_its_name() -> None:
    for reference in ("no_such_module:build", "math:no_such_name", f"{__name__}:f.<locals>.<lambda>"):
        with pytest.raises(DeclarationError, match="cannot be imported here"):
            from_builtins({"callable": reference})


def test_a_callable_is_written_by_reference() -> None:
    assert to_builtins(math.sqrt) == {"callable": "math:sqrt"}
    assert from_builtins(to_builtins(functools.reduce)) is functools.reduce


def test_a_callable_without_a_name_is_written_without_addresses() -> None:
    def build(width: int) -> int:
        return width

    class Own:
        def __call__(self) -> None: ...

    for nameless in (functools.partial(build, 3), Own()):
        assert "0x" not in callable_name(nameless)
    assert callable_name(functools.partial(build, 3)) != callable_name(functools.partial(build, 4))


def test_two_lambdas_are_not_the_same() -> None:
    one, other = (lambda: 1), (lambda: 2)
    assert same(one, one)
    assert not same(one, other)
    assert same((0.9, 0.99), [0.9, 0.99])


def test_leaves_hold_the_defaults_too() -> None:
    flat = leaves(Training(model=SMALL, task=Markov()))
    assert flat["model"] == "Transformer"
    assert flat["model.init.gain"] == 1.0
    assert flat["task.lag"] == 1
    assert flat["warmup"] == 0


def test_runs_of_one_training_differ_in_their_seeds_only() -> None:
    def run(seed: int, **fields: Any) -> Run:
        training = Training(model=SMALL, task=Markov(), **fields)
        return Run(arm="", training=training, seed=seed, quantities=frozenset(), record_at=frozenset(), judge_at=(0,))

    assert same_training([run(1), run(2)])
    assert not same_training([run(1), run(2, steps=5)])
