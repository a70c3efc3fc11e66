"""Gradient with respect to the magnitude of a weight matrix. Shape letters: S seeds, M and N its sides."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["magnitude", "magnitude_gradient"]


def magnitude(weight_SMN: Tensor) -> Tensor:
    """Lambda of W = lambda U with U as orthogonal as possible: [S, M, N] -> [S], float64.

    The argmin over kappa of |W W^T / kappa^2 - 1| (kexue.fm/archives/8978) is |W W^T| / |W| in Frobenius norms, for
    W^T as for W. It is c for c times an orthogonal matrix, and sqrt(1 + M/N) c for independent elements N(0, c^2/N).
    """
    weight = weight_SMN.double()
    short = weight if weight.shape[1] <= weight.shape[2] else weight.mT
    found: Tensor = torch.linalg.matrix_norm(short @ short.mT) / torch.linalg.matrix_norm(weight)
    return found


def magnitude_gradient(weight: Tensor, gradient: Tensor) -> Tensor:
    """dL/dlambda = <dL/dW, U> with U = W / lambda: [S, ...], [S, ...] -> [S], float64; NaN where W is zero.

    A tensor of more than two sides is a matrix of its first side by all others; sides of size one do not count.
    """
    sides = [size for size in weight.shape[1:] if size > 1] or [1]
    inner_S = (weight.double() * gradient.double()).flatten(1).sum(1)
    return inner_S / magnitude(weight.reshape(len(weight), sides[0], -1))
