"""The fingerprint of where a record was made: what may change a number without the code changing."""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
from pathlib import Path
from typing import Any

import numpy
import torch

from stabilitysuite.case import Case
from stabilitysuite.declaration import callable_name
from stabilitysuite.lab.device import require_cublas_workspace

__all__ = ["fingerprint", "sources"]

Value = str | int | float | bool | None


def fingerprint(device: str, threads: int) -> dict[str, Value]:
    """Versions, processor and numerical settings, as builtins.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        threads: torch threads of the runs.
    """
    found: dict[str, Value] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": platform.system(),
        "machine": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "device": device,
        "threads": threads,
        "flush_denormal": True,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic_algorithms": device != "cpu" or torch.are_deterministic_algorithms_enabled(),
        "mkldnn": torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
        "blas_coretype": os.environ.get("OPENBLAS_CORETYPE"),
    }
    if device != "cpu" and torch.cuda.is_available():
        require_cublas_workspace()  # asking for the card's name starts CUDA
        index = torch.device(device).index or 0
        found |= {
            "gpu": torch.cuda.get_device_name(index),
            "gpu_capability": ".".join(map(str, torch.cuda.get_device_capability(index))),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
            "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
            "tf32_cudnn": torch.backends.cudnn.allow_tf32,
            "cublas_workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        }
    return found


def sources(case: Case) -> dict[str, str]:
    """SHA-256 of the source file of each callable of a case, by its reference; builtins have none."""
    found: dict[str, str] = {}
    for name in ("model", "data", "loss", "step", "optimizer", "scheduler"):
        value: Any = getattr(case, name)
        if value is None or not callable(value):
            continue
        try:
            path = inspect.getsourcefile(inspect.unwrap(value))
        except TypeError:
            continue
        if path is not None and Path(path).is_file():
            found[callable_name(value)] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return found
