"""Where random numbers come from: one generator a purpose, all of them from a run's seed."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator

import numpy as np
import torch

__all__ = ["derived_seed", "generator", "preserved", "seeded"]


def derived_seed(*parts: object) -> int:
    """A 63-bit seed that depends on every part, the same on every machine."""
    digest = hashlib.sha256("\x1f".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(*parts: object) -> np.random.Generator:
    """A generator of its own for one purpose of one run, such as ``(seed, "init", parameter)``.

    NumPy's PCG64 rather than torch's generator: its draws do not depend on the torch version, the processor's
    vector width or the shape drawn, so a longer run starts with the very batches of a shorter one.
    """
    return np.random.Generator(np.random.PCG64(derived_seed(*parts)))


@contextlib.contextmanager
def preserved() -> Iterator[None]:
    """Restore the global generators of torch, numpy and random afterwards."""
    state, numpy_state, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)
        if cuda:
            torch.cuda.set_rng_state_all(cuda)


def seeded(*parts: object) -> None:
    """Seed every global generator, for code of the user's that draws from them."""
    seed = derived_seed(*parts)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
