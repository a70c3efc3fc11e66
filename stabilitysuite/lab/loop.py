"""One pass through the training loop, for one seed or several. Shape letter: S seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from stabilitysuite.errors import MeasurementError
from stabilitysuite.lab.ending import ending, own_ending
from stabilitysuite.lab.optim import clip_per_seed, make_optimizer, make_scheduler, rate
from stabilitysuite.lab.precision import HALF, LossScale, SeedOptimizers, autocast, dtype_of, explained
from stabilitysuite.lab.probes.gradient_norm import joint_norm, numbers, parameter_norms, total_norm
from stabilitysuite.lab.probes.recorder import Recorder
from stabilitysuite.lab.subject import OwnSubject, Subject, scalar
from stabilitysuite.lab.summary import summaries
from stabilitysuite.lab.watch import Watch
from stabilitysuite.quantity import QUANTITIES
from stabilitysuite.spec import Run
from stabilitysuite.trace import Outcome, Reference, Series, Trace

__all__ = ["Loop"]

EVALUATIONS = 10
"""How often the exact loss is taken on the way to the declared step; evenly, and at the start."""


class Loop:
    """Trains a subject as a run says and keeps what was seen.

    Args:
        subject: What is trained.
        run: How; its seed is that of the first of the pass.
        device: Where.
        report: Called after each step with the step and the mean loss; on a device that the host would have to
            wait for, at each look.
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
        self.watch = Watch(subject, self.recorder, device, self.training)
        self.scale = LossScale(len(subject.seeds)) if self.training.precision == "float16" else None
        self._exact: list[tuple[int, Tensor]] = []  # step and losses [S], on the device until the end
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
        batch = self.subject.next_batch()
        self.recorder.begin(0, batch)
        with torch.set_grad_enabled(backward):
            losses_S = self._forward(batch)
        self.watch.saw_losses(self.step, losses_S, batch)
        if backward:
            self._backward(losses_S)
            self._after_backward()
        self.recorder.end()
        self.watch.look()

    def _train(self) -> None:
        optimizer: torch.optim.Optimizer | SeedOptimizers
        if self.scale is not None:
            optimizer = SeedOptimizers(self.training, self.subject, self.scale)
            scheduler = make_scheduler(self.training, optimizer.first)
        else:
            optimizer = make_optimizer(self.training, self.subject.module)
            scheduler = make_scheduler(self.training, optimizer)
        base = [group["lr"] for group in optimizer.param_groups]
        for step in range(self.training.steps):
            self.step = step
            if scheduler is None:
                factor = rate(self.training, step, self.run.judge_at[0])
                for group, full in zip(optimizer.param_groups, base, strict=True):
                    group["lr"] = full * factor
            batch = self.subject.next_batch()
            self.recorder.begin(step, batch)
            losses_S = self._forward(batch)
            self.watch.saw_losses(self.step, losses_S, batch)
            self._backward(losses_S)
            self._after_backward()
            self.recorder.before_update()
            optimizer.step()
            self.recorder.after_update()
            self.recorder.end()
            optimizer.zero_grad()
            if scheduler is not None:
                scheduler.step()
            if self._after_update():
                return

    def _train_by_user(self) -> None:
        """The user's own step; gradients are looked at just before its optimizer consumes them."""
        user_step = self.training.step
        assert user_step is not None
        assert isinstance(self.subject, OwnSubject)
        optimizer = make_optimizer(self.training, self.subject.module)
        scheduler = make_scheduler(self.training, optimizer)
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
                batch = self.subject.next_batch()
                self.recorder.begin(step, batch)
                loss = scalar(user_step(self.subject.module, batch, optimizer), user_step)
                self.recorder.end()
                if step == 0 and not updates[0]:
                    self.notes.append("step= never called optimizer.step() on the first batch")
                if scheduler is not None:
                    scheduler.step()
                self.watch.saw_losses(step, loss.reshape(1).double(), batch)
                if self._after_update():
                    return
        finally:
            for handle in handles:
                handle.remove()

    def _forward(self, batch: object) -> Tensor:
        if self.training.precision not in HALF:  # tiny models are bound by calls, and these two cost some
            return self.subject.losses(batch).to(dtype_of(self.training))
        with explained(self.training, self.device), autocast(self.training, self.device):
            return self.subject.losses(batch).to(dtype_of(self.training))

    def _backward(self, losses_S: Tensor) -> None:
        if not losses_S.requires_grad:
            raise MeasurementError(
                "the loss has no gradient graph: it does not depend on a trainable parameter, or was made under "
                "no_grad or detach"
            )
        if self.scale is None:
            losses_S.sum().backward()  # type: ignore[no-untyped-call]
            return
        self.recorder.scale_S = scale_S = self.scale.tensor(self.device)
        with explained(self.training, self.device):
            (losses_S * scale_S).sum().backward()  # type: ignore[no-untyped-call]
        self.scale.undo(self.subject, scale_S)

    def _after_backward(self) -> None:
        """Norms, non-finite gradients, clipping."""
        norms_SP = self.recorder.gradients()
        totals_S = joint_norm(norms_SP) if norms_SP is not None else self._totals()
        if self.scale is not None:
            totals_S = self.scale.saw_norms(self.step, totals_S)
        if totals_S is None:
            return
        self.watch.saw_norms(self.step, totals_S)
        if self.training.clip is not None:
            parameters = [value for _, value in self.subject.named_parameters]
            clip_per_seed(parameters, totals_S, self.training.clip, self.subject.batched)

    def _totals(self) -> Tensor | None:
        """Total norms [S] off the record steps.

        On the CPU exact norms are taken only to clip, or where a cheap one is not finite; the next loss need not show
        what such a gradient did to the weights. Where looking would wait for the device, the total is taken at once.
        """
        if self.training.clip is None and self.watch.every == 1:
            # under a loss scale the sum that a bias gets may overflow float16 alone
            watched = self.subject.telling if self.scale is None else self.subject.named_parameters
            there = _numbers([value.grad for _, value in watched])
            if not there or math.isfinite(sum(norm.item() for norm in torch._foreach_norm(there))):
                return None
        gradients = [value.grad for _, value in self.subject.named_parameters]
        if self.training.clip is None and self.watch.every > 1:
            there = _numbers(gradients)
            return total_norm(there, self.subject.batched) if there else None
        return joint_norm(parameter_norms(gradients, self.subject.batched, len(self.subject.seeds)))

    # ------------------------------------------------------------------------------------------------- watching

    def _after_update(self) -> bool:
        """Look where it is time to, evaluate where due; returns whether nothing is left to watch."""
        done = self.step + 1
        look = done % self.watch.every == 0 or done == self.training.steps
        loss = self.watch.look() if look else 0.0
        over = look and self.watch.over
        if over or done in self._evaluate_at:
            self._evaluate(done)
        if over:
            return True
        self.step = done
        if look:
            self.report(done, loss)
        return False

    def _evaluate(self, step: int) -> None:
        with torch.no_grad():
            losses_S = self.subject.exact_losses()
        if losses_S is not None:
            self._exact.append((step, losses_S))

    # -------------------------------------------------------------------------------------------------- the end

    def traces(self, trouble: Outcome | None = None) -> list[Trace]:
        """What each seed left; ``trouble`` is the outcome of a run that was cut short."""
        self.notes += [note for note in self.subject.remarks() if note not in self.notes]
        self.watch.look()  # what a run that was cut short has not looked at yet
        recorded = self.recorder.series()
        evaluated = [(step, losses_S.tolist()) for step, losses_S in self._exact]
        found: list[Trace] = []
        for position, seed in enumerate(self.subject.seeds):
            exact = [(step, values[position]) for step, values in evaluated]
            outcomes, reference = self._outcomes(position, exact)
            found.append(
                Trace(
                    arm=self.run.arm,
                    seed=seed,
                    outcomes=(trouble,) if trouble is not None else outcomes,
                    series=self._loss_series(position, exact, reference) | recorded[position],
                    reference=reference,
                    warnings=self._remarks(position),
                )
            )
        return found

    def _remarks(self, position: int) -> tuple[str, ...]:
        remark = self.scale.remark(position) if self.scale is not None else ""
        return (remark,) if remark else ()

    def _outcomes(
        self, position: int, exact: Sequence[tuple[int, float]]
    ) -> tuple[tuple[Outcome, ...], Reference | None]:
        broken, taken = self.watch.broken[position], self.watch.losses
        reference = self.subject.reference
        found: list[Outcome] = []
        for step in self.run.judge_at:
            if broken is not None and broken.step <= step:
                return (*found, broken), reference
            if step == 0:
                return (Outcome(name="initialised", step=0),), reference
            if not taken:
                return (*found, Outcome(name="learning", step=0, detail="no step was finished")), reference
            if reference is not None and self.subject.reference is not None:
                known = [(at, loss) for at, loss in exact if at <= step]
                bad = next(((at, loss) for at, loss in known if not math.isfinite(loss)), None)
                if bad is not None:  # evaluation may take another way through the model than training
                    detail = f"loss {bad[1]}, while the training losses are finite"
                    return (
                        *found,
                        Outcome(name="nonfinite", step=bad[0], tensor="evaluated loss", detail=detail),
                    ), reference
                found.append(_at(ending(known, self.subject.reference), step, len(taken)))
            else:
                losses = [values[position] for values in taken[:step]]
                outcome, reference = own_ending(losses, self.training.target)
                found.append(_at(outcome, step, len(taken)))
        return tuple(found), reference

    def _loss_series(
        self, position: int, exact: Sequence[tuple[int, float]], reference: Reference | None
    ) -> dict[str, Series]:
        losses = tuple((values[position],) for values in self.watch.losses)
        found = {}
        if losses:
            found["training_loss"] = Series(
                quantity="training_loss", steps=tuple(range(len(losses))), labels=("",), values=losses
            )
        if exact:
            steps, known = zip(*exact, strict=True)
            found["evaluated_loss"] = Series(
                quantity="evaluated_loss", steps=steps, labels=("",), values=tuple((loss,) for loss in known)
            )
        if not self.training.steps:
            return found
        return found | summaries(self.run.quantities, [loss for (loss,) in losses], exact, reference)


def _numbers(gradients: Sequence[Tensor | None]) -> list[Tensor]:
    return [numbers(gradient) for gradient in gradients if gradient is not None]


def _at(outcome: Outcome, step: int, reached: int) -> Outcome:
    """The outcome as of the step it is judged at, or of the step at which the run was given up."""
    return Outcome(name=outcome.name, step=min(step, reached), detail=outcome.detail)
