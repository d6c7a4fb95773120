"""What was set for pools of threads flows in from the environment and torch, as numbers, facts of the run flow out."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from lightning_gpuprof.model.journal import Value

_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def thread_settings(environ: Mapping[str, str]) -> dict[str, Value]:
    """Threads between operators of torch, and the variables that size pools, where they hold a number.

    ``torch.get_num_threads()`` is not asked here: OMP answers for the thread that asks.

    Args:
        environ: The environment.
    """
    found: dict[str, Value] = {"host.torch_interop_threads": torch.get_num_interop_threads()}
    for name in _VARIABLES:
        value = environ.get(name, "").strip()
        if value.isascii() and value.isdigit():
            found[f"host.{name.lower()}"] = int(value)
    return found
