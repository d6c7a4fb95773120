"""Entry points of Lightning's callback factories: ``GPUPROF=1 python train.py`` profiles any Lightning script."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning_gpuprof.callback import GpuProfiler

OFF = ("", "0", "false", "no", "off")


def lightning_callbacks() -> list[GpuProfiler]:
    """One profiler if the environment variable ``GPUPROF`` asks for it, else none."""
    if os.environ.get("GPUPROF", "").strip().lower() in OFF:
        return []
    from lightning_gpuprof.callback import GpuProfiler

    return [GpuProfiler()]
