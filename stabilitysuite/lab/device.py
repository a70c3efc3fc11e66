"""What depends on the device: when a number may be looked at, and what CUDA must be told before it starts."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator

import torch

from stabilitysuite.errors import MeasurementError

__all__ = ["LOOK_EVERY", "deterministic", "free_memory", "look_every", "require_cublas_workspace"]

LOOK_EVERY = 20
"""Steps between two looks at the numbers of a device that the host would have to wait for."""
WORKSPACES = (":4096:8", ":16:8")
"""The two values with which cuBLAS promises the same bits twice."""


def look_every(device: torch.device) -> int:
    """Steps between two looks: 1 on the CPU, where a number can be read for nothing, elsewhere ``LOOK_EVERY``.

    Whoever may want to read a number while a run goes on asks here.
    """
    return 1 if device.type == "cpu" else LOOK_EVERY


def require_cublas_workspace() -> None:
    """Set ``CUBLAS_WORKSPACE_CONFIG``, which cuBLAS reads once, when CUDA starts.

    It stays set: the next run of this process needs it too.

    Raises:
        MeasurementError: CUDA has started without it, or it has a value that does not promise the same bits twice.
    """
    found = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    if found in WORKSPACES:
        return
    wanted = f"set CUBLAS_WORKSPACE_CONFIG={WORKSPACES[0]} in the environment before pytest starts"
    if found is not None:
        raise MeasurementError(f"CUBLAS_WORKSPACE_CONFIG={found} does not give the same bits twice on CUDA: {wanted}")
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise MeasurementError(
            "CUDA was started in this process before CUBLAS_WORKSPACE_CONFIG was set, so its matrix products need "
            f"not give the same bits twice: {wanted}, or let nothing use CUDA before the first case"
        )
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = WORKSPACES[0]


@contextlib.contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """On CUDA strictly deterministic algorithms, and the caller's own settings afterwards; nothing on the CPU.

    Raises:
        MeasurementError: As :func:`require_cublas_workspace` says.
    """
    strict = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    search = torch.backends.cudnn.benchmark
    try:
        if device.type == "cuda":
            require_cublas_workspace()
            # warn_only would leave the backward pass of fused attention as it is
            torch.use_deterministic_algorithms(True, warn_only=False)
            torch.backends.cudnn.benchmark = False  # a search may choose another convolution the second time
        yield
    finally:
        torch.use_deterministic_algorithms(strict, warn_only=warn_only)
        torch.backends.cudnn.benchmark = search


def free_memory() -> None:
    """Give back what a run that failed still holds."""
    gc.collect()  # hooks and their modules refer to each other
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
