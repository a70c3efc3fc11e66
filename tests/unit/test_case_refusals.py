"""Every refusal of a Case, by its message: one line that names the nearest right thing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from stabilitysuite.case import Case
from stabilitysuite.claims.measure import (
    Measure,
    branch_ratio,
    evaluated_loss,
    gradient_norm,
    token_cosine,
    update_ratio,
)
from stabilitysuite.claims.outcome import converges, diverges, fails_to_train, stalls
from stabilitysuite.errors import DeclarationError
from stabilitysuite.spec import GAU, Gaussian, Induction, Markov, MaskedToken, Transformer
from tests.unit.test_case import build, data, initial, loss, own, step, trained


def untyped(kind: Any) -> Any:
    """What a user without a type checker can write."""
    return kind


def refusal(make: Callable[[], Any]) -> str:
    with pytest.raises(DeclarationError) as caught:
        make()
    assert "\n" not in str(caught.value)
    return str(caught.value)


class _Built:
    """Looks like a module, as far as a declaration can tell without torch."""

    def parameters(self) -> None: ...

    def __call__(self) -> None: ...


# ----------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        # a field
        (
            lambda: own(model=untyped(_Built())),
            "Case 'ours': model is a module already: give a callable that builds a fresh one for each seed, "
            "() -> nn.Module",
        ),
        (lambda: trained(warmpu=5), "Case: unknown field 'warmpu': did you mean 'warmup'?"),
        (lambda: untyped(Case)(says="x"), "Case: the field model= is missing"),
        (lambda: untyped(Case)("x"), "Case takes named fields only, such as says=..."),
        (lambda: trained(says=" "), "Case: says must state the claim in one sentence"),
        (lambda: trained(says=3), "Case: says must state the claim in one sentence"),
        (lambda: trained(tier="quik"), "Case 'trains': tier='quik' is not known: did you mean 'quick'?"),
        (lambda: trained(seeds=0), "Case 'trains': seeds=0: a case without seeds decides nothing"),
        (lambda: trained(seeds=True), "Case 'trains': seeds must be a whole number, not True"),
        (lambda: trained(steps=-1), "Case 'trains': steps must not be negative, it is -1"),
        (lambda: trained(steps=True), "Case 'trains': Training: steps must be a whole number, not True"),
        (lambda: trained(warmup=-1), "Case 'trains': warmup must not be negative, it is -1"),
        (
            lambda: trained(clip=0),
            "Case 'trains': clip must be positive, it is 0.0; leave it out for no clipping",
        ),
        (lambda: trained(clip=math.nan), "Case 'trains': Training: clip must be a finite number, not nan"),
        (
            lambda: trained(schedule="cosin"),
            "Case 'trains': Training: schedule='cosin' is not known: did you mean 'cosine'?",
        ),
        (
            lambda: trained(optimizer="adam"),
            "Case 'trains': Training: optimizer must be SGD or Adam or AdamW or Callable, not 'adam'",
        ),
        (lambda: trained(source=3), "Case 'trains': source must be text, not 3"),
        # what is expected
        (lambda: trained(expect=()), "Case 'trains': expect takes claims such as converges()"),
        (lambda: trained(expect=converges), "Case 'trains': expect takes claims such as converges()"),
        (lambda: trained(expect=gradient_norm()), "Case 'trains': expect takes claims such as converges()"),
        (
            lambda: Measure(quantity="brunch_ratio"),
            "unknown quantity 'brunch_ratio': did you mean 'branch_ratio'?",
        ),
        (lambda: trained(steps=0), "Case 'trains': converges is about training, but steps=0"),
        (
            lambda: own(expect=converges()),
            "Case 'ours': converges needs a known floor: use a task such as Markov(), or declare target=",
        ),
        (
            lambda: own(expect=fails_to_train()),
            "Case 'ours': fails to train needs a known floor: use a task such as Markov(), or declare target=",
        ),
        (
            lambda: trained(expect=stalls()),
            "Case 'trains': stalls needs control=: the one change with which the same training converges",
        ),
        # a quantity that the training cannot have
        (
            lambda: initial(expect=branch_ratio("layer 9 ffn").at_most(1)),
            "Case 'is small': branch_ratio of layer 9 ffn: did you mean 'layer 1 ffn'?",
        ),
        (
            lambda: initial(expect=branch_ratio(9).at_most(1)),
            "Case 'is small': branch_ratio of sublayer 9: there is no number 9, only 0 to 3",
        ),
        (
            lambda: initial(expect=branch_ratio().at_most(1)),
            "Case 'is small': branch_ratio: there are 4 (layer 0 attention, layer 0 ffn, layer 1 attention, ...): say",
        ),
        (
            lambda: initial(model=Transformer(layers=0, width=8), expect=token_cosine("max").at_most(1)),
            "Case 'is small': token_cosine (max over layers): there is none, as the model has no layers",
        ),
        (
            lambda: initial(expect=update_ratio().at_most(1)),
            "Case 'is small': update_ratio needs an optimizer update, but steps=0",
        ),
        (
            lambda: initial(expect=(gradient_norm() / update_ratio()).at_most(1)),
            "Case 'is small': update_ratio needs an optimizer update, but steps=0",
        ),
        (
            lambda: initial(expect=gradient_norm(step=60).at_most(1)),
            "Case 'is small': gradient_norm at step 60: the last step is 0, as steps=0",
        ),
        (
            lambda: own(expect=evaluated_loss().at_most(1)),
            "Case 'ours': evaluated_loss needs a task with known losses, such as Markov()",
        ),
        # control, variants, sweep
        (
            lambda: trained(control={"lr": 1e-3}),
            "Case 'trains': control: lr is 0.001 already, the change changes nothing",
        ),
        (
            lambda: trained(control={"lr": 1, "warmup": 5}),
            "Case 'trains': control changes 2 fields at once (optimizer.lr, warmup): a control differs in one",
        ),
        (
            lambda: trained(control={"model": Transformer(layers=3, width=16, heads=2)}),
            "Case 'trains': control changes 2 fields at once (model.layers, model.width): a control differs in one",
        ),
        (
            lambda: trained(control={"steps": 500}),
            "Case 'trains': control changes steps: a control trains as long as",
        ),
        (
            lambda: trained(control={"wramup": 5}),
            "Case 'trains': control: no field 'wramup' to change: did you mean 'warmup'?",
        ),
        (lambda: trained(control={}), "Case 'trains': control takes a mapping from names to values, not {}"),
        (
            lambda: trained(control="warmup"),
            "Case 'trains': control takes a mapping from names to values, not 'warmup'",
        ),
        (
            lambda: trained(control={"lr": math.nan}),
            "Case 'trains': Adam: lr must be a finite number, not nan",
        ),
        (
            lambda: trained(expect=(converges(), branch_ratio(3).at_most(1)), control={"layers": 1}),
            "Case 'trains': branch_ratio of sublayer 3: there is no number 3, only 0 to 1",
        ),
        (
            lambda: trained(variants={"hot": {"lr": 1e-2}, "same": {"lr": 1e-3}}),
            "Case 'trains': variant 'same': lr is 0.001 already, the change changes nothing",
        ),
        (
            lambda: trained(variants={"hot": {"lr": 1e-2}}, control={"lr": 1e-2}),
            "Case 'trains': control: lr is 0.01 already, the change changes nothing",
        ),
        (
            lambda: trained(variants={"hot": {"rl": 1e-2}}),
            "Case 'trains': variant 'hot': no field 'rl' to change: ",
        ),
        (
            lambda: trained(variants={"hot": 1e-2}),
            "Case 'trains': variant 'hot' takes a mapping from fields to values",
        ),
        (lambda: trained(variants={"a|b": {"lr": 1}}), "Case 'trains': 'a|b' cannot name a variant"),
        (lambda: trained(variants={"": {"lr": 1}}), "Case 'trains': '' cannot name a variant"),
        (
            lambda: trained(variants={"off": {"task": None}}),
            "Case 'trains': a zoo model needs task=: Markov()",
        ),
        (
            lambda: trained(variants={"off": {"steps": 0}}),
            "Case 'trains': converges is about training, but steps=0",
        ),
        (
            lambda: trained(variants={"hot": {"lr": 1}}, sweep={"lr": (1, 2)}),
            "Case 'trains': variants and sweep are both given: an arm would have two names, use one of them",
        ),
        (
            lambda: trained(sweep={"kernel": ("full", "diagonal")}),
            "Case 'trains': sweep: no field 'kernel' to change: ",
        ),
        (
            lambda: trained(sweep={"lr": 1e-3}),
            "Case 'trains': sweep over lr: give its values as a tuple, not 0.001",
        ),
        (
            lambda: trained(sweep={"lr": (1,)}),
            "Case 'trains': sweep over lr: give at least two different values",
        ),
        (
            lambda: trained(sweep={"lr": (1, 1)}),
            "Case 'trains': sweep over lr: give at least two different values",
        ),
        (
            lambda: trained(sweep={"lr": (1, 2), "lag": (1, 2)}),
            "Case 'trains': sweep takes one field, not 2: lr, lag",
        ),
        # callables and what goes with them
        (
            lambda: own(model=loss),
            "Case 'ours': model must be callable as () -> nn.Module; "
            f"{loss.__module__}:loss(model: 'Any', batch: 'Any') -> 'None' is not",
        ),
        (lambda: own(data=build), "Case 'ours': data must be callable as (seed) -> iterable of batches; "),
        (lambda: own(loss=step), "Case 'ours': loss must be callable as (model, batch) -> scalar tensor; "),
        (
            lambda: own(loss=None, step=loss),
            "Case 'ours': step must be callable as (model, batch, optimizer) -> loss; ",
        ),
        (
            lambda: own(optimizer=build),
            "Case 'ours': optimizer must be callable as (model) -> torch optimizer; ",
        ),
        (
            lambda: own(scheduler=build),
            "Case 'ours': scheduler must be callable as (optimizer) -> scheduler; ",
        ),
        (lambda: own(loss=None), "Case 'ours': give either loss=, (model, batch) -> scalar, or step="),
        (lambda: own(step=step), "Case 'ours': give either loss=, (model, batch) -> scalar, or step="),
        (lambda: own(data=None), "Case 'ours': a module of your own needs data= with loss= or step="),
        (lambda: own(loss=None, step=step, clip=1), "Case 'ours': step= does its own clip: leave out clip="),
        (lambda: own(scheduler=data, warmup=3), "Case 'ours': scheduler replaces warmup and schedule"),
        (lambda: own(task=Markov()), "Case 'ours': task= brings its own data and loss: leave out data="),
        (
            lambda: own(task=Gaussian(), data=None, loss=None),
            "Case 'ours': Gaussian() feeds vectors of a zoo model's width; give data= and loss= instead",
        ),
        (lambda: trained(target=1.0), "Case 'trains': target= goes with a module of your own"),
        (lambda: trained(layers="h.*"), "Case 'trains': layers= names the blocks of a module of your own"),
        (lambda: trained(task=None), "Case 'trains': a zoo model needs task=: Markov() to train on"),
        (
            lambda: trained(task=Gaussian(), expect=diverges()),
            "Case 'trains': Gaussian() has random labels, nothing to learn",
        ),
        (
            lambda: trained(task=MaskedToken()),
            "Case 'trains': MaskedToken() hides tokens between two neighbours, and a causal model sees one of them "
            "only: give the model causal=False",
        ),
        (
            lambda: trained(task=Induction(), model=GAU(width=8)),
            "Case 'trains': Induction() shows each answer right after its question, where other models than causal "
            "ones see it: give the model causal=True",
        ),
        # .but
        (lambda: trained().but(lr=1), "Case 'trains': .but needs says=, what the derived case claims"),
        (
            lambda: trained().but(says="trains"),
            "Case 'trains': says is 'trains' already, the change changes nothing",
        ),
        (
            lambda: trained().but(says="x", warmup=0),
            "Case 'x': warmup is 0 already, the change changes nothing",
        ),
        (
            lambda: trained().but(says="x", lr=1e-3),
            "Case 'x': lr is 0.001 already, the change changes nothing",
        ),
        (
            lambda: trained().but(says="x", expect=converges()),
            "Case 'x': expect is Ends(side='converges', progress=None, rate=None, against=None) already",
        ),
        (
            lambda: untyped(trained()).but(says="x", wamup=3),
            "Case 'x': no field 'wamup' to change: did you mean 'warmup'?",
        ),
        (
            lambda: untyped(trained()).but(says="x", seedz=3),
            "Case 'x': no field 'seedz' to change: did you mean 'seeds'?",
        ),
        (lambda: trained().but(says="x", kernel="full"), "Case 'x': no field 'kernel' to change: "),
        (lambda: trained().but(says="x", lr=math.nan), "Adam: lr must be a finite number, not nan"),
        (
            lambda: untyped(trained()).but(says="x", norm="pree"),
            "Transformer: norm='pree' is not known: did you mean 'pre'?",
        ),
        (lambda: trained().twin(""), "Case 'trains' has no control: give it control="),
        (
            lambda: Case.from_json({"says": "x", "modle": {}}),
            "Case: unknown field 'modle': did you mean 'model'?",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refusal_is_one_line_that_names_the_nearest_right_thing(make: Callable[[], Any], message: str) -> None:
    assert refusal(make).startswith(message)
