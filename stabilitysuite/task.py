"""The tasks that a training can be declared on: frozen, checked data, without torch.

A :class:`KnownTask` knows its losses exactly, so that a run on it can be told to have converged or stalled. The
``lab`` turns it into batches, and works out its losses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from stabilitysuite.declaration import Spec

__all__ = ["Classification", "Gaussian", "Induction", "KnownTask", "Markov", "MaskedToken", "Task"]

MOST_TERMS = 200_000
"""Terms of the sum that is a classification's floor; more take seconds."""


@dataclass(frozen=True, kw_only=True)
class KnownTask(Spec):
    """A task whose plateau, floor and shallow floor are known exactly."""

    causal: ClassVar[bool | None] = None
    """What a model's ``causal`` must be; ``None`` where both learn the same."""
    why_causal: ClassVar[str] = ""
    one_label: ClassVar[bool] = False
    """Whether a whole sequence has one label, [batch, classes]; else every token has, [batch, tokens, classes]."""

    @property
    def batch(self) -> int:
        """Sequences of a batch."""
        raise NotImplementedError

    @property
    def length(self) -> int:
        """Tokens of a sequence."""
        raise NotImplementedError

    @property
    def symbols(self) -> int:
        """Number of different tokens that a model is fed."""
        raise NotImplementedError

    @property
    def outputs(self) -> int:
        """Number of classes that it predicts."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Markov(KnownTask):
    """Next-token prediction on a Markov chain whose losses are known exactly.

    The next token depends on the token ``lag`` places back, by rows softmax(``sharpness`` N(0, 1)) that are the
    same for every seed. With ``lag=1`` a model needs neither depth nor attention; from ``lag=2`` on a causal
    model without attention cannot leave the plateau.
    """

    vocab: int = 64
    length: int = 16
    batch: int = 16
    lag: int = 1
    sharpness: float = 3.0

    def _check(self) -> None:
        self._require(self.vocab >= 2, "vocab must be at least 2")
        self._require(self.batch >= 1, "batch must be at least 1")
        self._require(self.lag >= 1, "lag must be at least 1")
        self._require(self.length >= self.lag, f"length {self.length} is shorter than the lag {self.lag}")
        self._require(self.sharpness > 0, "sharpness must be positive: at 0 every token is equally likely")

    @property
    def symbols(self) -> int:
        """The chain's tokens."""
        return self.vocab

    @property
    def outputs(self) -> int:
        """The chain's tokens."""
        return self.vocab


@dataclass(frozen=True, kw_only=True)
class MaskedToken(KnownTask):
    """Prediction of masked tokens of a Markov chain, as BERT is trained (Devlin et al., 2019).

    A fixed number of positions, ``share`` of the sequence, show token ``vocab``, the mask, and only they are
    scored. They are drawn anew for each sequence, with both neighbours visible, which makes P(token | neighbours)
    of the chain the exact posterior. The chain is that of :class:`Markov` with ``lag=1``. A model that sees one
    token at a time sees the mask alone, and cannot leave the plateau.
    """

    causal: ClassVar[bool | None] = False
    why_causal: ClassVar[str] = "hides tokens between two neighbours, and a causal model sees one of them only"
    vocab: int = 16
    length: int = 16
    batch: int = 32
    share: float = 0.25
    sharpness: float = 3.0

    def _check(self) -> None:
        self._require(self.vocab >= 2, "vocab must be at least 2")
        self._require(self.batch >= 1, "batch must be at least 1")
        self._require(self.length >= 3, "length must be at least 3: a masked token has two neighbours")
        self._require(0 < self.share < 1, f"share must be between 0 and 1, it is {self.share}")
        most = (self.length - 1) // 2
        self._require(
            self.masked <= most,
            f"share {self.share} of {self.length} tokens masks {self.masked}, but with both neighbours visible "
            f"there is room for {most}",
        )
        self._require(self.sharpness > 0, "sharpness must be positive: at 0 every token is equally likely")

    @property
    def masked(self) -> int:
        """Masked tokens of a sequence."""
        return max(1, round(self.share * self.length))

    @property
    def symbols(self) -> int:
        """The chain's tokens and the mask."""
        return self.vocab + 1

    @property
    def outputs(self) -> int:
        """The chain's tokens."""
        return self.vocab


@dataclass(frozen=True, kw_only=True)
class Classification(KnownTask):
    """One of ``classes`` labels for a sequence that noisily counts on by its label.

    Label c goes from token x to x + c modulo ``vocab`` with probability ``signal``, else to any other token alike.
    Single tokens are uniform whatever the label, so that pairs alone tell it: what adds up tokens one by one
    cannot leave the plateau ln ``classes``. The floor is the Bayes risk. A causal model of the zoo answers at the
    last token, another one by the mean over tokens; a module of one's own returns logits [batch, classes].
    """

    one_label: ClassVar[bool] = True
    classes: int = 4
    vocab: int = 8
    length: int = 8
    batch: int = 32
    signal: float = 0.6

    def _check(self) -> None:
        self._require(self.classes >= 2, "classes must be at least 2")
        self._require(self.batch >= 1, "batch must be at least 1")
        self._require(self.length >= 2, "length must be at least 2: pairs of tokens tell the label")
        self._require(
            self.vocab >= self.classes,
            f"vocab {self.vocab} is smaller than classes {self.classes}: two labels would count on alike",
        )
        chance = 1 / self.vocab
        self._require(
            chance < self.signal < 1,
            f"signal must be above chance, 1 / vocab = {chance:.3g}, and below 1, it is {self.signal}",
        )
        terms = math.comb(self.length - 1 + self.classes, self.classes)
        self._require(
            terms <= MOST_TERMS,
            f"length {self.length} with {self.classes} classes: the floor is a sum of {terms} terms, "
            f"more than {MOST_TERMS}; take fewer of either",
        )

    @property
    def symbols(self) -> int:
        """The tokens counted."""
        return self.vocab

    @property
    def outputs(self) -> int:
        """The labels."""
        return self.classes


@dataclass(frozen=True, kw_only=True)
class Induction(KnownTask):
    """In-context copying, [A][B] ... [A] -> [B] (Olsson et al., 2022, arXiv 2209.11895).

    A sequence shows ``vocab`` pairs of a key and its value, the keys drawn with replacement, then ``queries`` more
    pairs whose keys are drawn from those shown. Which value goes with which key is a permutation of its own in each
    sequence. Keys are the tokens below ``vocab``, values those from ``vocab`` on. Only the values of the queries
    are scored: there the floor is 0. The key alone says nothing, so that a model without attention cannot leave the
    plateau ln ``vocab``; one layer finds out which values were shown, but not with which keys.
    """

    causal: ClassVar[bool | None] = True
    why_causal: ClassVar[str] = "shows each answer right after its question, where other models than causal ones see it"
    vocab: int = 4
    queries: int = 8
    batch: int = 32

    def _check(self) -> None:
        for name, least in (("vocab", 2), ("queries", 1), ("batch", 1)):
            self._require(getattr(self, name) >= least, f"{name} must be at least {least}")

    @property
    def length(self) -> int:
        """Pairs and queries; the last value is asked for, not shown."""
        return 2 * (self.vocab + self.queries) - 1

    @property
    def symbols(self) -> int:
        """Keys and values."""
        return 2 * self.vocab

    @property
    def outputs(self) -> int:
        """The values: class b stands for token ``vocab`` + b."""
        return self.vocab


@dataclass(frozen=True, kw_only=True)
class Gaussian(Spec):
    """Vectors from N(0, 1) as the residual stream, random labels: for measurements at initialisation only."""

    tokens: int = 64
    batch: int = 1
    classes: int = 256

    def _check(self) -> None:
        for name in ("tokens", "batch", "classes"):
            self._require(getattr(self, name) >= 1, f"{name} must be at least 1")

    @property
    def outputs(self) -> int:
        """The labels."""
        return self.classes


Task = Markov | MaskedToken | Classification | Induction | Gaussian
