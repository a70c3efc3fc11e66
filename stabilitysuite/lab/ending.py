"""How a run ended, told from its losses. Pure: numbers in, an Outcome out."""

from __future__ import annotations

from collections.abc import Sequence

from stabilitysuite.trace import Outcome, Reference, tail

__all__ = ["BAND", "Losses", "ending", "own_ending", "tails"]

BAND = 0.1
"""Progress within which a run counts as standing on the plateau."""
ONCE_HAD = 0.3
"""Progress that a run must have had for its return to the plateau to be a collapse."""

Losses = Sequence[tuple[int, float]]


def ending(evaluated: Losses, reference: Reference) -> Outcome:
    """The outcome of a run on a task with known losses.

    Args:
        evaluated: Step and exact loss, ascending, all finite; the first is of the untrained model.
        reference: The known losses.

    Returns:
        ``diverged`` for the last two losses above both start and plateau by half the gap from plateau to floor;
        else by the last progress p: ``converged`` from ``reference.enough`` on, ``collapsed`` for p at
        most 0.1 after 0.3 or more, ``stalled`` within the band; else ``learning``.
    """
    step, last = evaluated[-1]
    gap = reference.plateau - reference.floor
    lid = max(evaluated[0][1], reference.plateau) + gap / 2
    if len(evaluated) > 2 and all(loss > lid for _, loss in evaluated[-2:]):
        return Outcome(name="diverged", step=step, detail=f"loss {last:.4g}, it started at {evaluated[0][1]:.4g}")
    progress = reference.progress(last)
    best = max(reference.progress(loss) for _, loss in evaluated)
    detail = f"loss {last:.4g}, progress {progress:.3f}"
    if progress >= reference.enough:
        return Outcome(name="converged", step=step, detail=detail)
    if progress <= BAND and best >= ONCE_HAD:
        return Outcome(name="collapsed", step=step, detail=f"{detail}, it had {best:.3f}")
    if abs(progress) <= BAND:
        return Outcome(name="stalled", step=step, detail=detail)
    return Outcome(name="learning", step=step, detail=detail)


def tails(losses: Sequence[float]) -> list[tuple[int, float]]:
    """What takes the place of evaluations on one's own data: the first loss, and the tail at every tenth of the run."""
    step, chunk = len(losses), max(3, len(losses) // 10)
    found = [(end, tail(losses[:end])) for end in range(chunk, step + 1, chunk)]
    return [(0, losses[0]), *found, (step, tail(losses))]


def own_ending(losses: Sequence[float], target: float | None) -> tuple[Outcome, Reference | None]:
    """The outcome of a run on one's own data, from its training losses.

    Without a target nothing is known but the start, so a run is ``diverged`` when it ends above its start by more
    than the start's own size, else ``learning``. With one, start and target take the place of plateau and floor,
    and a run has ``converged`` when it reached the target.

    Args:
        losses: One finite loss a step.
        target: Loss at which training counts as done.

    Returns:
        The outcome, and the reference that the target makes, where it lies below the start.
    """
    start, last, step = losses[0], tail(losses), len(losses)
    if last - start > abs(start):
        return Outcome(name="diverged", step=step, detail=f"loss {last:.4g}, it started at {start:.4g}"), None
    if target is None:
        return Outcome(name="learning", step=step, detail=f"loss {last:.4g}, it started at {start:.4g}"), None
    if target >= start:
        name: str = "converged" if last <= target else "learning"
        detail = f"loss {last:.4g}; the target {target:.4g} is no lower than the first loss {start:.4g}"
        return Outcome(name=name, step=step, detail=detail), None  # type: ignore[arg-type]
    reference = Reference(plateau=start, floor=target, enough=1.0)
    return ending(tails(losses), reference), reference
