"""What a training is made of: models, tasks, optimizers, and the one Run that fixes them all.

Everything here is frozen, keyword-only data that checks itself when built, imports no torch, and can be written
as JSON. The ``lab`` turns it into modules and loops.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from stabilitysuite.declaration import Spec, callable_name
from stabilitysuite.errors import DeclarationError
from stabilitysuite.task import Classification, Gaussian, Induction, KnownTask, Markov, MaskedToken, Task

__all__ = [
    "GAU",
    "SGD",
    "Adam",
    "AdamW",
    "Classification",
    "Gaussian",
    "He",
    "Induction",
    "Initialisation",
    "KnownTask",
    "LeCun",
    "Markov",
    "MaskedToken",
    "Precision",
    "Run",
    "Spec",
    "Task",
    "Training",
    "Transformer",
    "Xavier",
    "callable_name",
    "check_training",
]

Precision = Literal["float32", "float64", "bfloat16", "float16"]
Schedule = Literal["constant", "cosine", "inverse_sqrt"]

# ---------------------------------------------------------------------------------------------- initialisation

ROLES = ("query", "key", "value", "output", "ffn_in", "ffn_out")


@dataclass(frozen=True, kw_only=True)
class Initialisation(Spec):
    """Normal draws with a standard deviation from the fans, times a gain; biases are zero.

    A gain of a role (``query`` ... ``ffn_out``) replaces ``gain`` for the matrices of that role. A GAU has
    ``query`` (its shared Z), ``value``, ``ffn_in`` (its gate U) and ``output``.
    """

    gain: float = 1.0
    query: float | None = None
    key: float | None = None
    value: float | None = None
    output: float | None = None
    ffn_in: float | None = None
    ffn_out: float | None = None

    def _check(self) -> None:
        for name in ("gain", *ROLES):
            gain = getattr(self, name)
            self._require(gain is None or gain >= 0, f"{name} must not be negative, it is {gain!r}")

    def _variance(self, fan_in: int, fan_out: int) -> float:
        raise NotImplementedError

    def std(self, role: str, fan_in: int, fan_out: int) -> float:
        """Standard deviation of a matrix of that role.

        Args:
            role: One of ``query``, ``key``, ``value``, ``output``, ``ffn_in``, ``ffn_out``.
            fan_in: Number of inputs.
            fan_out: Number of outputs.
        """
        own: float | None = getattr(self, role)
        return (self.gain if own is None else own) * math.sqrt(self._variance(fan_in, fan_out))


@dataclass(frozen=True, kw_only=True)
class Xavier(Initialisation):
    """Variance 2 / (fan_in + fan_out) (Glorot and Bengio, 2010)."""

    def _variance(self, fan_in: int, fan_out: int) -> float:
        return 2 / (fan_in + fan_out)


@dataclass(frozen=True, kw_only=True)
class He(Initialisation):
    """Variance 2 / fan_in (He et al., 2015)."""

    def _variance(self, fan_in: int, fan_out: int) -> float:
        return 2 / fan_in


@dataclass(frozen=True, kw_only=True)
class LeCun(Initialisation):
    """Variance 1 / fan_in (LeCun et al., 1998)."""

    def _variance(self, fan_in: int, fan_out: int) -> float:
        return 1 / fan_in


# ------------------------------------------------------------------------------------------------------ models


@dataclass(frozen=True, kw_only=True)
class Transformer(Spec):
    """A Transformer of ``layers`` blocks, each attention then feed-forward, every choice a field of its own.

    ``post``: x = LN(a x + F(x)); ``pre``: x = a x + F(LN(x)) with a last LN before the readout; ``none``:
    x = a x + F(x); a is ``residual_scale`` (DeepNorm's alpha). Token embeddings are N(0, 1/width), positions
    are added and the sum is layer-normalised, the readout is N(0, 1/width), untied.
    """

    layers: int
    width: int
    heads: int = 4
    ffn: int = 4
    """Width of the feed-forward hidden layer, in multiples of ``width``."""
    activation: Literal["relu", "gelu", "swish"] = "relu"
    norm: Literal["post", "pre", "none"] = "post"
    residual_scale: float = 1.0
    attention: bool = True
    """False leaves the attention sub-layers out: blocks are feed-forward only."""
    init: Initialisation = Xavier()
    positions: Literal["learned", "sinusoidal", "none"] = "learned"
    causal: bool = True

    def _check(self) -> None:
        for name in ("width", "heads", "ffn"):
            self._require(getattr(self, name) >= 1, f"{name} must be at least 1")
        self._require(self.layers >= 0, "layers must not be negative")
        self._require(self.width % self.heads == 0, f"width {self.width} is not a multiple of heads {self.heads}")
        self._require(self.residual_scale > 0, "residual_scale must be positive")

    @classmethod
    def deepnorm(cls, *, layers: int, width: int, **fields: Any) -> Transformer:
        """DeepNorm for an encoder or decoder alone: alpha = (2 N)^(1/4), beta = (8 N)^(-1/4).

        Beta is the Xavier gain of value, output and feed-forward matrices; query and key keep gain 1
        (Wang et al., 2022, arXiv 2203.00555, figure 2).

        Args:
            layers: N; the two factors are computed from it once, so derive another depth by this function.
            width: Width.
            fields: Other fields of the Transformer.
        """
        beta = (8 * layers) ** -0.25
        init = Xavier(value=beta, output=beta, ffn_in=beta, ffn_out=beta)
        return cls(layers=layers, width=width, norm="post", residual_scale=(2 * layers) ** 0.25, init=init, **fields)

    def sublayers(self) -> tuple[str, ...]:
        """Names of the residual branches, in the order in which they are applied."""
        kinds = ("attention", "ffn") if self.attention else ("ffn",)
        return tuple(f"layer {index} {kind}" for index in range(self.layers) for kind in kinds)


@dataclass(frozen=True, kw_only=True)
class GAU(Spec):
    """Gated attention units (Hua et al., 2022, in the form of kexue.fm/archives/8990): O = (U * A V) W_o.

    U = f(X W_u), V = f(X W_v), Z = f(X W_z), A = relu(Z Z^T)^2 / (tokens key), f the activation; inner width is
    ``expansion`` times ``width``. ``kernel="diagonal"`` keeps only A's diagonal, as the article's estimate does.
    """

    width: int
    key: int = 128
    layers: int = 1
    expansion: int = 2
    activation: Literal["relu", "gelu", "swish"] = "swish"
    norm: Literal["post", "pre", "none"] = "post"
    residual_scale: float = 1.0
    kernel: Literal["full", "diagonal"] = "full"
    init: Initialisation = LeCun()
    positions: Literal["learned", "sinusoidal", "none"] = "learned"
    causal: bool = False

    def _check(self) -> None:
        for name in ("width", "key", "expansion"):
            self._require(getattr(self, name) >= 1, f"{name} must be at least 1")
        self._require(self.layers >= 0, "layers must not be negative")
        self._require(self.residual_scale > 0, "residual_scale must be positive")

    def sublayers(self) -> tuple[str, ...]:
        """Names of the residual branches, in the order in which they are applied."""
        return tuple(f"layer {index} gau" for index in range(self.layers))


ZooModel = Transformer | GAU

# -------------------------------------------------------------------------------------------------- optimizers


@dataclass(frozen=True, kw_only=True)
class SGD(Spec):
    """Stochastic gradient descent, as in ``torch.optim.SGD``."""

    lr: float
    momentum: float = 0.0

    def _check(self) -> None:
        self._require(self.lr > 0, f"lr must be positive, it is {self.lr}")
        self._require(0 <= self.momentum < 1, "momentum must be in [0, 1)")


@dataclass(frozen=True, kw_only=True)
class Adam(Spec):
    """Adam (Kingma and Ba, 2015), as in ``torch.optim.Adam``."""

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def _check(self) -> None:
        self._require(self.lr > 0, f"lr must be positive, it is {self.lr}")
        self._require(all(0 <= beta < 1 for beta in self.betas), "betas must be in [0, 1)")
        self._require(self.eps >= 0, "eps must not be negative")


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019), as in ``torch.optim.AdamW``."""

    weight_decay: float = 0.01

    def _check(self) -> None:
        super()._check()
        self._require(self.weight_decay >= 0, "weight_decay must not be negative")


Optimizer = SGD | Adam | AdamW

# ---------------------------------------------------------------------------------------------------- training


@dataclass(frozen=True, kw_only=True)
class Training(Spec):
    """Everything that fixes a training but its seed."""

    model: Transformer | GAU | Callable[..., Any]
    task: Task | None = None
    data: Callable[..., Any] | None = None
    loss: Callable[..., Any] | None = None
    step: Callable[..., Any] | None = None
    optimizer: SGD | Adam | AdamW | Callable[..., Any] = Adam(lr=1e-3)
    scheduler: Callable[..., Any] | None = None
    steps: int = 0
    warmup: int = 0
    schedule: Schedule = "constant"
    clip: float | None = None
    precision: Precision = "float32"
    target: float | None = None
    layers: str | None = None


def check_training(training: Training) -> None:
    """Refuse a training whose fields do not go together.

    Raises:
        DeclarationError: The message names the field that is wrong, missing or too many.
    """
    for name in ("steps", "warmup"):
        if getattr(training, name) < 0:
            raise DeclarationError(f"{name} must not be negative, it is {getattr(training, name)}")
    if training.clip is not None and training.clip <= 0:
        raise DeclarationError(f"clip must be positive, it is {training.clip}; leave it out for no clipping")
    if isinstance(training.model, Transformer | GAU):
        _check_zoo(training)
    else:
        _check_own(training)
    if training.scheduler is not None and (training.warmup or training.schedule != "constant"):
        raise DeclarationError("scheduler replaces warmup and schedule: give one or the other")
    _check_signature("optimizer", training.optimizer, 1, "(model) -> torch optimizer")
    _check_signature("scheduler", training.scheduler, 1, "(optimizer) -> scheduler")


def _check_zoo(training: Training) -> None:
    assert isinstance(training.model, Transformer | GAU)
    for name in ("data", "loss", "step", "target"):
        if getattr(training, name) is not None:
            raise DeclarationError(f"{name}= goes with a module of your own; a zoo model takes task=Markov()")
    if training.layers is not None:
        raise DeclarationError("layers= names the blocks of a module of your own; a zoo model knows its own")
    if training.task is None:
        raise DeclarationError("a zoo model needs task=: Markov() to train on, or Gaussian() at initialisation")
    wanted = training.task.causal if isinstance(training.task, KnownTask) else None
    if isinstance(training.task, KnownTask) and wanted not in (None, training.model.causal):
        kind = type(training.task).__name__
        raise DeclarationError(f"{kind}() {training.task.why_causal}: give the model causal={wanted}")
    if isinstance(training.task, Gaussian) and training.steps:
        raise DeclarationError("Gaussian() has random labels, nothing to learn: use steps=0, or task=Markov()")


def _check_own(training: Training) -> None:
    if hasattr(training.model, "parameters") and not isinstance(training.model, type):
        raise DeclarationError(
            "model is a module already: give a callable that builds a fresh one for each seed, () -> nn.Module"
        )
    _check_signature("model", training.model, 0, "() -> nn.Module")
    if training.task is not None:
        if isinstance(training.task, Gaussian):
            raise DeclarationError("Gaussian() feeds vectors of a zoo model's width; give data= and loss= instead")
        for name in ("data", "loss", "step", "target"):
            if getattr(training, name) is not None:
                raise DeclarationError(f"task= brings its own data and loss: leave out {name}=")
        return
    if training.data is None:
        raise DeclarationError("a module of your own needs data= with loss= or step=, or task=Markov()")
    if (training.loss is None) == (training.step is None):
        raise DeclarationError(
            "give either loss=, (model, batch) -> scalar, or step=, (model, batch, optimizer) -> loss"
        )
    _check_signature("data", training.data, 1, "(seed) -> iterable of batches")
    _check_signature("loss", training.loss, 2, "(model, batch) -> scalar tensor")
    _check_signature("step", training.step, 3, "(model, batch, optimizer) -> loss")
    if training.step is not None:
        for name in ("clip", "precision"):
            if getattr(training, name) not in (None, "float32"):
                raise DeclarationError(f"step= does its own {name}: leave out {name}=")


def _check_signature(name: str, function: Any, arguments: int, form: str) -> None:
    if function is None or isinstance(function, Spec):
        return
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # some builtins have none to look at
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        raise DeclarationError(
            f"{name} must be callable as {form}; {callable_name(function)}{signature} is not"
        ) from None


@dataclass(frozen=True, kw_only=True)
class Run:
    """One fully decided training of one seed: nothing random is left after its seed."""

    arm: str
    """Which arm of the case: ``""`` for the case itself."""
    training: Training
    seed: int
    quantities: frozenset[str]
    """Names of the quantities to record."""
    record_at: frozenset[int]
    """Steps that a claim reads, recorded besides the regular ones."""
    judge_at: tuple[int, ...]
    """Steps at which an outcome is wanted, ascending; the last is the number of steps."""
    every: bool = False
    """Record every quantity at every step, not densely at the start and then every tenth."""


def same_training(runs: Iterable[Run]) -> bool:
    """Whether these runs differ in their seeds only."""
    return len({dataclasses.replace(run, seed=0) for run in runs}) <= 1
