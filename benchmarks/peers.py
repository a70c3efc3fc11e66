"""The same training with its gradient norms recorded by others: ``make bench-peers``.

Same module, batches, fused AdamW and thread for all; each contestant times its own steps, so that what a trainer
costs to set up is left out.
"""

from __future__ import annotations

import itertools
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import interleaved, publish, ratio, table, where
from benchmarks.overhead import DEVICE, training
from stabilitysuite.lab.loop import Loop
from stabilitysuite.lab.optim import make_optimizer
from stabilitysuite.lab.subject import ZooSubject
from stabilitysuite.spec import Run, Training

__all__ = ["compare", "peers"]

BARE = "bare loop"
SHAPES = ((6, 64, 16, 32, 100), (6, 32, 4, 8, 200))
"""Layers, width, sequences, tokens, steps of a slice."""
Batch = tuple[Tensor, Tensor]
Slice = Callable[[], float]


class Model(nn.Module):
    """The network with its loss, as the trainers want it."""

    def __init__(self, subject: ZooSubject) -> None:
        super().__init__()
        self.network = subject.module
        self.subject = subject

    def forward(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """The loss, under the name by which the HF Trainer finds it."""
        return {"loss": self.subject.losses((inputs, targets)).sum()}


def _subject(declared: Training, batches: Sequence[Batch]) -> ZooSubject:
    subject = ZooSubject(declared, (1,), DEVICE)
    turning = itertools.cycle(batches)
    subject.next_batch = lambda: next(turning)  # type: ignore[method-assign]
    return subject


def _bare(declared: Training, batches: Sequence[Batch]) -> Slice:
    subject = _subject(declared, batches)

    def slice_() -> float:
        optimizer = make_optimizer(declared, subject.module)
        started = time.process_time()
        for batch in batches:
            subject.losses(batch).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
        return time.process_time() - started

    return slice_


def _ours(declared: Training, batches: Sequence[Batch]) -> Slice:
    subject = _subject(declared, batches)
    wanted = frozenset({"gradient_norm", "parameter_gradient_norm"})
    run = Run(arm="", training=declared, seed=1, quantities=wanted, record_at=frozenset(), judge_at=(0,), every=True)

    def slice_() -> float:
        loop = Loop(subject, run, DEVICE, lambda step, loss: None)
        loop._evaluate_at = set()
        started = time.process_time()
        with loop.recorder:
            loop._train()
        loop.recorder.series()
        return time.process_time() - started

    return slice_


def _lightning(declared: Training, batches: Sequence[Batch]) -> Slice:
    import pytorch_lightning as lightning  # type: ignore[import-not-found]
    from pytorch_lightning.loggers import CSVLogger  # type: ignore[import-not-found]
    from pytorch_lightning.utilities import grad_norm  # type: ignore[import-not-found]

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    subject = _subject(declared, batches)
    spent = [0.0]

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = Model(subject)

        def training_step(self, batch: Batch, index: int) -> Tensor:
            loss: Tensor = self.model(*batch)["loss"]
            return loss

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            self.log_dict(grad_norm(self.model, norm_type=2))

        def configure_optimizers(self) -> Any:
            return make_optimizer(declared, subject.module)

        def on_train_start(self) -> None:
            spent[0] = -time.process_time()

        def on_train_end(self) -> None:
            spent[0] += time.process_time()

    def slice_() -> float:
        with tempfile.TemporaryDirectory() as folder:
            trainer = lightning.Trainer(
                accelerator="cpu",
                max_steps=len(batches),
                logger=CSVLogger(folder),
                log_every_n_steps=1,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                default_root_dir=folder,
            )
            rows: Any = list(batches)
            trainer.fit(Module(), torch.utils.data.DataLoader(rows, batch_size=None))
        return spent[0]

    return slice_


def _hugging_face(declared: Training, batches: Sequence[Batch]) -> Slice:
    from transformers import (  # type: ignore[import-not-found]
        PrinterCallback,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    subject = _subject(declared, batches)
    rows = [{"inputs": inputs, "targets": targets} for inputs, targets in batches]
    spent = [0.0]

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            spent[0] = -time.process_time()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            spent[0] += time.process_time()

    def slice_() -> float:
        with tempfile.TemporaryDirectory() as folder:
            optimizer = make_optimizer(declared, subject.module)
            trainer = Trainer(
                model=Model(subject),
                args=TrainingArguments(
                    output_dir=folder,
                    max_steps=len(batches),
                    logging_steps=1,
                    save_strategy="no",
                    report_to="none",
                    use_cpu=True,
                    disable_tqdm=True,
                    per_device_train_batch_size=1,
                    remove_unused_columns=False,
                ),
                train_dataset=rows,
                data_collator=lambda items: items[0],
                optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)),
                callbacks=[Clock()],
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train()
        return spent[0]

    return slice_


CONTESTANTS: dict[str, tuple[str, Callable[[Training, Sequence[Batch]], Slice]]] = {
    BARE: ("", _bare),
    "ours": ("each parameter", _ours),
    "HF Trainer, logging_steps=1": ("total only", _hugging_face),
    "Lightning, CSV logger": ("each parameter", _lightning),
}


def compare(
    shapes: Sequence[tuple[int, int, int, int, int]] = SHAPES,
    names: Sequence[str] = tuple(CONTESTANTS),
    turns: int = 5,
) -> str:
    """The table of ratios to the bare loop.

    Args:
        shapes: Layers, width, sequences, tokens and steps of a slice.
        names: Contestants, the bare loop first.
        turns: Counted turns.
    """
    rows = []
    for layers, width, sequences, tokens, steps in shapes:
        declared = training(layers, steps, width=width, batch=sequences, length=tokens)
        drawn = ZooSubject(declared, (1,), DEVICE)
        batches = [drawn.next_batch() for _ in range(steps)]
        found = interleaved({name: CONTESTANTS[name][1](declared, batches) for name in names}, turns)
        shape = [f"{layers} x {width}", f"{sequences} x {tokens}", f"{1e3 * min(found[BARE]) / steps:.1f}"]
        for name in names[1:]:
            middle, low, high = ratio(found, name, BARE)
            own = shape if name == names[1] else [""] * 3
            rows.append([*own, name, CONTESTANTS[name][0], f"{middle:.2f}", f"{low:.2f} to {high:.2f}"])
    head = ["layers x width", "tokens", "bare ms/step", "recorded by", "gradient norms", "ratio", "range"]
    return table(head, rows)


def peers() -> None:
    """Print the table and put it into docs/benchmarks.md."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = f"{compare()}\n{where()}"
    print(text)  # noqa: T201 -- a command
    publish("peers", text)


if __name__ == "__main__":
    peers()
