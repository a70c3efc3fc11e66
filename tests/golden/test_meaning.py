"""What a digest stands for does not drift: a digest leaves defaults out, so the defaults are pinned beside it."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

from stabilitysuite import claims
from stabilitysuite.case import MEANING, Case
from stabilitysuite.claims.measure import gradient_norm, token_cosine, update_ratio
from stabilitysuite.claims.outcome import converges, stalls
from stabilitysuite.declaration import Spec, to_builtins
from stabilitysuite.spec import GAU, AdamW, Gaussian, Markov, Transformer, Xavier

PINNED = Path(__file__).with_name("meaning.json")
CASES = {
    "trained": Case(
        says="a small model trains",
        model=Transformer(layers=2, width=8, heads=2, norm="pre", init=Xavier(gain=0.7, output=0)),
        task=Markov(lag=2),
        optimizer=AdamW(lr=1e-3, weight_decay=0),
        steps=50,
        warmup=5,
        clip=1,
        expect=(converges(progress=0.7), update_ratio(step=10).at_most(0.1, published=0.01)),
    ),
    "stalled": Case(
        says="two of them stall",
        model=Transformer(layers=2, width=8, heads=2),
        task=Markov(),
        steps=50,
        expect=stalls(),
        control={"warmup": 20},
        variants={"cold": {}, "hot": {"lr": 1}},
    ),
    "initial": Case(
        says="the gradient falls with depth",
        model=GAU(width=8),
        task=Gaussian(),
        expect=(gradient_norm("first") / token_cosine("last")).near(2, within=0.1),
        sweep={"layers": (2, 4, 8)},
    ),
}


def defaults() -> dict[str, dict[str, Any]]:
    """The default of every field of every declared part, whichever test was run before."""
    for family in pkgutil.iter_modules(claims.__path__):
        importlib.import_module(f"{claims.__name__}.{family.name}")
    return {
        kind: {
            item.name: to_builtins(item.default)
            for item in dataclasses.fields(part)
            if item.default is not dataclasses.MISSING
        }
        for kind, part in sorted(Spec.kinds.items())
        if part.__module__.startswith("stabilitysuite.")
    }


def pinned() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(PINNED.read_text(encoding="utf-8"))
    return data


def test_no_default_changes_in_silence() -> None:
    before, now = pinned()["defaults"], json.loads(json.dumps(defaults()))
    changed = [
        f"{kind}.{name}: {before[kind][name]!r} -> {now.get(kind, {}).get(name, 'gone')!r}"
        for kind in before
        for name in before[kind]
        if before[kind][name] != now.get(kind, {}).get(name, "gone")
    ]
    assert not changed or pinned()["version"] != MEANING, (
        f"a default changed ({'; '.join(changed)}), and digests leave defaults out: raise MEANING in "
        "stabilitysuite/case.py, so that records of before are not compared with those of after"
    )


def test_the_pinned_meaning_is_that_of_today() -> None:
    today = {
        "version": MEANING,
        "digests": {name: case.digest() for name, case in CASES.items()},
        "defaults": defaults(),
    }
    assert pinned() == json.loads(json.dumps(today)), (
        "a digest, a default or MEANING changed, so every seed and every baseline of these cases does. If that is "
        f"meant and MEANING was raised, write this into tests/golden/{PINNED.name}:\n{json.dumps(today, indent=2)}"
    )
