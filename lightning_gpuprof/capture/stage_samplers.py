"""Chooses the samplers of a stage by the options of the run."""

from __future__ import annotations

import os
from typing import Any

from lightning_gpuprof.capture import conditions
from lightning_gpuprof.capture.call_sites import CallSiteSampler
from lightning_gpuprof.capture.compilation import CompileSampler, Counters
from lightning_gpuprof.capture.fence import must_propagate
from lightning_gpuprof.capture.host.gc_pauses import GcSampler
from lightning_gpuprof.capture.host.sampler import HostSampler
from lightning_gpuprof.capture.nvml.sampler import NvmlSampler
from lightning_gpuprof.capture.recorder import Sampler
from lightning_gpuprof.capture.step_clock import StepClock
from lightning_gpuprof.model.config import Options


def stage_samplers(
    options: Options,
    trainer: Any,
    clock: StepClock,
    *,
    thread_id: int,
    epoch_ns: int,
    compiled_before: Counters | None,
) -> list[Sampler]:
    """Samplers of what is outside of the steps: call sites, compiler, GPUs, host.

    Args:
        options: What is switched on.
        trainer: At the start of its steps.
        clock: Knows the current slot.
        thread_id: The main thread.
        epoch_ns: Calendar time at the entry of the stage.
        compiled_before: The compiler's counters then.
    """
    samplers: list[Sampler] = [
        CallSiteSampler(thread_id=thread_id, current_slot=clock.current_slot, charged_since_ns=clock.charged_since_ns),
        CompileSampler(compiled_before, epoch_ns),
    ]
    if options.nvml is not None:
        samplers.append(
            NvmlSampler(
                uuids=_cuda_uuids(trainer),
                environ=os.environ,
                interval_s=options.nvml.interval_s,
                gpm=options.nvml.gpm,
            )
        )
    if options.host is not None:
        samplers += [
            HostSampler(options.host.interval_s, other_ranks=lambda: _ranks_started_by(trainer)),
            GcSampler(options.host.interval_s),
        ]
    return samplers


def _cuda_uuids(trainer: Any) -> list[str] | None:
    """None where torch cannot tell: NVML goes by ``CUDA_VISIBLE_DEVICES`` then."""
    try:
        return conditions.cuda_uuids(trainer)
    except (AttributeError, RuntimeError, AssertionError) as error:
        if must_propagate(error):
            raise
        return None


def _ranks_started_by(trainer: Any) -> list[int]:
    """Process ids of the other ranks of this host, if Lightning's launcher started them from here."""
    processes = getattr(getattr(trainer.strategy, "launcher", None), "procs", None) or ()
    return [pid for process in processes if isinstance(pid := getattr(process, "pid", None), int)]
