"""One pass through the training loop, for one seed or several. Shape letter: S seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from stabilitysuite.errors import MeasurementError
from stabilitysuite.lab.ending import ending, own_ending
from stabilitysuite.lab.nonfinite import first_bad_gradient, first_bad_output
from stabilitysuite.lab.optim import clip_per_seed, make_optimizer, rate
from stabilitysuite.lab.probes.gradient_norm import joint_norm, parameter_norms
from stabilitysuite.lab.probes.recorder import Recorder
from stabilitysuite.lab.subject import OwnSubject, Subject, scalar
from stabilitysuite.quantity import QUANTITIES
from stabilitysuite.spec import Run
from stabilitysuite.trace import Outcome, Reference, Series, Trace

__all__ = ["Loop", "OutOfTime"]

EVALUATIONS = 10
"""How often the exact loss is taken on the way to the declared step; evenly, and at the start."""
HOPELESS_FACTOR = 10.0
HOPELESS_STEPS = 20


class OutOfTime(Exception):  # noqa: N818 -- a signal, not an error
    """The time budget is spent."""


class Loop:
    """Trains a subject as a run says and keeps what was seen.

    Args:
        subject: What is trained.
        run: How; its seed is that of the first of the pass.
        device: Where.
        report: Called after each step with the step and the mean loss.
    """

    def __init__(self, subject: Subject, run: Run, device: torch.device, report: Callable[[int, float], None]) -> None:
        self.subject = subject
        self.run = run
        self.training = run.training
        self.device = device
        self.report = report
        self.step = 0
        self.notes: list[str] = []
        self.recorder = Recorder(subject, run, device)
        count = len(subject.seeds)
        self._losses: list[list[float]] = []  # [step][S]
        self._evaluated: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        self._broken: list[Outcome | None] = [None] * count
        self._above = [0] * count
        declared = run.judge_at[0]
        spaced = {round(declared * turn / EVALUATIONS) for turn in range(EVALUATIONS + 1)}
        later = {step + declared * times for step in spaced for times in range(len(run.judge_at))}
        self._evaluate_at = {0} | (later if declared else set()) | set(run.judge_at)

    # ------------------------------------------------------------------------------------------------ training

    def train(self) -> None:
        """Carry the run out; stops early only when every seed is non-finite or hopelessly above its start."""
        with self.recorder:
            if self.training.steps == 0:
                self._initial_pass()
                return
            self._evaluate(0)
            if self.training.step is not None:
                self._train_by_user()
            else:
                self._train()

    def _initial_pass(self) -> None:
        """One forward pass, and a backward pass where a gradient is wanted; no update."""
        self._evaluate(0)
        backward = any(QUANTITIES[name].backward for name in self.run.quantities)
        self.recorder.begin(0)
        batch = self.subject.next_batch()
        with torch.set_grad_enabled(backward):
            losses_S = self._forward(batch)
        values = losses_S.detach().tolist()
        self._check_losses(values, batch)
        if backward:
            self._backward(losses_S)
            self._after_backward()
        self.recorder.end()
        self._note_losses(values)

    def _train(self) -> None:
        optimizer = make_optimizer(self.training, self.subject.module)
        scheduler = self.training.scheduler(optimizer) if self.training.scheduler is not None else None
        base = [group["lr"] for group in optimizer.param_groups]
        for step in range(self.training.steps):
            self.step = step
            if scheduler is None:
                factor = rate(self.training, step, self.run.judge_at[0])
                for group, full in zip(optimizer.param_groups, base, strict=True):
                    group["lr"] = full * factor
            self.recorder.begin(step)
            batch = self.subject.next_batch()
            losses_S = self._forward(batch)
            values = losses_S.detach().tolist()
            self._check_losses(values, batch)
            self._backward(losses_S)
            self._after_backward()
            self.recorder.before_update()
            optimizer.step()
            self.recorder.after_update()
            self.recorder.end()
            optimizer.zero_grad()
            if scheduler is not None:
                scheduler.step()
            if self._after_update(values):
                return

    def _train_by_user(self) -> None:
        """The user's own step; gradients are looked at just before its optimizer consumes them."""
        user_step = self.training.step
        assert user_step is not None
        assert isinstance(self.subject, OwnSubject)
        optimizer = make_optimizer(self.training, self.subject.module)
        scheduler = self.training.scheduler(optimizer) if self.training.scheduler is not None else None
        base = [group["lr"] for group in optimizer.param_groups]
        updates = [0]

        def before(*_: object) -> None:
            updates[0] += 1
            self._after_backward()
            self.recorder.before_update()

        handles = (
            optimizer.register_step_pre_hook(before),
            optimizer.register_step_post_hook(lambda *_: self.recorder.after_update()),
        )
        try:
            for step in range(self.training.steps):
                self.step = step
                if scheduler is None:
                    for group, full in zip(optimizer.param_groups, base, strict=True):
                        group["lr"] = full * rate(self.training, step, self.run.judge_at[0])
                self.recorder.begin(step)
                batch = self.subject.next_batch()
                loss = scalar(user_step(self.subject.module, batch, optimizer), user_step)
                self.recorder.end()
                if step == 0 and not updates[0]:
                    self.notes.append("step= never called optimizer.step() on the first batch")
                if scheduler is not None:
                    scheduler.step()
                values = [float(loss.detach())]
                self._check_losses(values, batch)
                if self._after_update(values):
                    return
        finally:
            for handle in handles:
                handle.remove()

    def _forward(self, batch: object) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.precision == "bfloat16"):
            return self.subject.losses(batch).float()

    def _backward(self, losses_S: Tensor) -> None:
        if not losses_S.requires_grad:
            raise MeasurementError(
                "the loss has no gradient graph: it does not depend on a trainable parameter, or was made under "
                "no_grad or detach"
            )
        losses_S.sum().backward()  # type: ignore[no-untyped-call]

    def _after_backward(self) -> None:
        """Norms, non-finite gradients, clipping."""
        named = self.subject.named_parameters
        norms_SP = self.recorder.gradients()
        gradients = [value.grad for _, value in named if value.grad is not None and not value.grad.is_sparse]
        if norms_SP is None and gradients and self._needs_norms(gradients):
            all_gradients = [value.grad for _, value in named]
            norms_SP = parameter_norms(all_gradients, self.subject.batched, len(self.subject.seeds))
        if norms_SP is None:
            return
        totals_S = joint_norm(norms_SP)
        for position, total in enumerate(totals_S.tolist()):
            if not math.isfinite(total) and self._broken[position] is None:
                self._broken[position] = first_bad_gradient(self.subject, position, self.step)
        if self.training.clip is not None:
            parameters = [value for _, value in named]
            clip_per_seed(parameters, totals_S, self.training.clip, self.subject.batched)

    def _needs_norms(self, gradients: Sequence[Tensor]) -> bool:
        """Off the record steps exact norms are taken only to clip, or where a cheap joint norm is not finite."""
        if self.training.clip is not None:
            return True
        joint = torch.stack(torch._foreach_norm(list(gradients))).sum()
        return not bool(torch.isfinite(joint))

    # ------------------------------------------------------------------------------------------------- watching

    def _check_losses(self, values: Sequence[float], batch: object) -> None:
        for position, loss in enumerate(values):
            if not math.isfinite(loss) and self._broken[position] is None:
                self.recorder.end()
                self._broken[position] = first_bad_output(self.subject, position, self.step, batch, loss)
                self.recorder.begin(self.step)

    def _note_losses(self, values: list[float]) -> None:
        self._losses.append(values)
        for position, loss in enumerate(values):
            start = self._losses[0][position]
            hopeless = loss > start + HOPELESS_FACTOR * abs(start)
            self._above[position] = self._above[position] + 1 if hopeless else 0

    def _after_update(self, values: list[float]) -> bool:
        """Keep the losses, evaluate where due; returns whether nothing is left to watch."""
        self._note_losses(values)
        done = self.step + 1
        over = [
            broken is not None or above >= HOPELESS_STEPS
            for broken, above in zip(self._broken, self._above, strict=True)
        ]
        if all(over):
            self._evaluate(done)
            return True
        if done in self._evaluate_at:
            self._evaluate(done)
        self.step = done
        self.report(done, math.fsum(values) / len(values))
        return False

    def _evaluate(self, step: int) -> None:
        with torch.no_grad():
            losses_S = self.subject.exact_losses()
        if losses_S is None:
            return
        for position, loss in enumerate(losses_S.tolist()):
            self._evaluated[position].append((step, loss))

    # -------------------------------------------------------------------------------------------------- the end

    def traces(self, trouble: Outcome | None = None) -> list[Trace]:
        """What each seed left; ``trouble`` is the outcome of a run that was cut short."""
        if isinstance(self.subject, OwnSubject):
            self.notes += [note for note in self.subject.notes if note not in self.notes]
        recorded = self.recorder.series()
        found: list[Trace] = []
        for position, seed in enumerate(self.subject.seeds):
            outcomes, reference = self._outcomes(position)
            found.append(
                Trace(
                    arm=self.run.arm,
                    seed=seed,
                    outcomes=(trouble,) if trouble is not None else outcomes,
                    series=self._loss_series(position) | recorded[position],
                    reference=reference,
                )
            )
        return found

    def _outcomes(self, position: int) -> tuple[tuple[Outcome, ...], Reference | None]:
        broken = self._broken[position]
        reference = self.subject.reference
        found: list[Outcome] = []
        for step in self.run.judge_at:
            if broken is not None and broken.step <= step:
                return (*found, broken), reference
            if step == 0:
                return (Outcome(name="initialised", step=0),), reference
            if not self._losses:
                return (*found, Outcome(name="learning", step=0, detail="no step was finished")), reference
            if reference is not None and self.subject.reference is not None:
                known = [(at, loss) for at, loss in self._evaluated[position] if at <= step]
                found.append(_at(ending(known, self.subject.reference), step, len(self._losses)))
            else:
                losses = [values[position] for values in self._losses[:step]]
                outcome, reference = own_ending(losses, self.training.target)
                found.append(_at(outcome, step, len(self._losses)))
        return tuple(found), reference

    def _loss_series(self, position: int) -> dict[str, Series]:
        losses = tuple((values[position],) for values in self._losses)
        found = {}
        if losses:
            found["training_loss"] = Series(
                quantity="training_loss", steps=tuple(range(len(losses))), labels=("",), values=losses
            )
        if self._evaluated[position]:
            steps, exact = zip(*self._evaluated[position], strict=True)
            found["evaluated_loss"] = Series(
                quantity="evaluated_loss", steps=steps, labels=("",), values=tuple((loss,) for loss in exact)
            )
        return found


def _at(outcome: Outcome, step: int, reached: int) -> Outcome:
    """The outcome as of the step it is judged at, or of the step at which the run was given up."""
    return Outcome(name=outcome.name, step=min(step, reached), detail=outcome.detail)
