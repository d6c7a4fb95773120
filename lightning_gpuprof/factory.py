"""Entry points of Lightning's callback factories: ``GPUPROF=1 python train.py`` profiles any Lightning script."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lightning_gpuprof.capture.fence import warn

if TYPE_CHECKING:
    from lightning_gpuprof.callback import GpuProfiler

OFF = ("", "0", "false", "no", "off")


def lightning_callbacks() -> list[GpuProfiler]:
    """One profiler if the environment variable ``GPUPROF`` asks for it, else none."""
    if os.environ.get("GPUPROF", "").strip().lower() in OFF:
        return []
    try:
        from lightning_gpuprof.callback import GpuProfiler

        return [GpuProfiler()]
    except Exception as error:  # a script that does not know of us must not fail through us
        warn(f"gpuprof: nothing is measured: {type(error).__name__}: {error}")
        return []
