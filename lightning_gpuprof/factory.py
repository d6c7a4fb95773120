"""Entry points of Lightning's callback factories: ``GPUPROF=1 python train.py`` profiles any Lightning script."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_gpuprof.capture.fence import warn, warn_of_fabric
from lightning_gpuprof.capture.switches import GPUPROF, TRIAL, is_switched_on

if TYPE_CHECKING:
    from lightning_gpuprof.callback import GpuProfiler


def lightning_callbacks() -> list[GpuProfiler]:
    """One profiler if the environment variable ``GPUPROF`` asks for it; none in a trial of ``gpuprof try``, or else."""
    if folder := os.environ.get(TRIAL):
        from lightning_gpuprof.trial.attach import attach  # every Trainer made where this package is installed asks

        attach(Path(folder))
        return []
    if not is_switched_on(GPUPROF, os.environ):
        return []
    try:
        from lightning_gpuprof.callback import GpuProfiler

        return [GpuProfiler()]
    except Exception as error:  # a script that does not know of us must not fail through us
        warn(f"gpuprof: nothing is measured: {type(error).__name__}: {error}")
        return []


def fabric_callbacks() -> list[GpuProfiler]:
    """None: where ``GPUPROF`` asks for a profiler, a warning says that Fabric's loops are not measured."""
    if is_switched_on(GPUPROF, os.environ):
        warn_of_fabric()
    return []
