"""Metrics of one trace, of which everything else is unknown: for rules without a run."""

import math
from collections.abc import Mapping

import msgspec

from lightning_gpuprof.analyze.derived import with_derived
from lightning_gpuprof.model.host import HostUse
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.memory import Memory
from lightning_gpuprof.model.metrics import CpuFacts, Metrics, Recurring
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.report import Distribution, Steps, Validity, Wall
from lightning_gpuprof.model.share import Share
from lightning_gpuprof.model.trace.step_trace import StepRow
from lightning_gpuprof.model.waiting import Blocked, Waiting
from lightning_gpuprof.model.window import WindowFacts

JUDGED_STEPS = 20
"""What the steps of a trace count as. Guards against few steps are about the noise of host times over a run; a trace
has no such statistics, and its idle causes and kernels come from thousands of events rather than by steps."""


def trace_metrics(window: WindowFacts, run: Mapping[str, Value] | None = None) -> Metrics:
    """A run whose steps are those of a trace.

    The step time is the device's window over the traced steps, without a device the mean of the steps. A trace without
    steps counts as one. What no phase shows is forward.

    Args:
        window: Facts of the trace, with its analysis.
        run: Conditions that the trace shows, by their dotted names.

    Returns:
        What a trace does not show is None or empty; the usable CPUs are NaN.
    """
    period_us = _period_us(window)
    window = msgspec.structs.replace(window, inflation_ratio=1.0, steps_us=window.steps_us or (period_us,))
    period_ms = period_us / 1e3
    metrics = with_derived(
        Metrics(
            run={"device.type": "cuda" if window.devices else "cpu", **(run or {})},
            validity=Validity(ok=True),
            status="trace",
            wall=Wall(total_s=0.0, parts={}),
            steps=Steps(
                count=JUDGED_STEPS,
                optimizer_steps=JUDGED_STEPS,
                steady_from=None,
                steady_count=JUDGED_STEPS if period_ms > 0 else 0,
                period_ms=_constant(period_ms) if period_ms > 0 else None,
                samples_per_s=None,
            ),
            phases=(),
            shares={phase: _share(ms, period_ms) for phase, ms in _phases_ms(window, period_ms).items()},
            callbacks=(),
            callback_shares=(),
            loader=None,
            cpu=CpuFacts(usable_cpus=math.nan, process_cpus=None, worker_cpus=None),
            fetch_waited_ratio=None,
            epoch_starts=(),
            validation=Recurring(count=0, total_s=0.0, median_s=None),
            checkpoint=Recurring(count=0, total_s=0.0, median_s=None),
            blocked=None,
            outliers=None,
            devices=(),
            host=HostUse(),
            memory=Memory(),
            windows=(window,),
            overhead={},
        )
    )
    steps = window.results.step_trace
    mean = steps.mean if steps is not None else None
    if window.devices or mean is None or not mean.waiting_for_ranks_us:
        return metrics
    return msgspec.structs.replace(metrics, waiting=_waiting_for_ranks(mean, period_ms))


def _waiting_for_ranks(mean: StepRow, period_ms: float) -> Waiting:
    backward_ms, waiting_ms = (us / 1e3 for us in (mean.phases_us["backward"], mean.waiting_for_ranks_us))
    blocked = Blocked(
        phase="backward", wall_ms=backward_ms, blocked=_share(waiting_ms, period_ms), samples=JUDGED_STEPS
    )
    return Waiting(
        phases=(),
        period_ms=period_ms,
        threads=None,
        process_companions_ratio=0.0,  # the ranges of collectives are no work of companion threads
        crowded=False,
        for_ranks=blocked,
    )


def _period_us(window: WindowFacts) -> float:
    steps = max(1, len(window.steps_us))
    if window.devices:
        return max(device.window_us for device in window.devices) / steps
    return sum(window.steps_us) / steps


def _share(ms: float, period_ms: float) -> Share:
    ratio = ms / period_ms
    return Share(median_ratio=ratio, lower_ratio=ratio, median_ms=ms, total_ratio=ratio)


def _constant(ms: float) -> Distribution:
    return Distribution(mean=ms, std=0.0, median=ms, p05=ms, p95=ms, p99=ms, min=ms, max=ms)


def _phases_ms(window: WindowFacts, period_ms: float) -> dict[Phase, float]:
    """Time of each phase in a step, which together are no longer than it.

    Fetches before the first and after the last work of the device are no part of its step time.
    """
    if period_ms <= 0:
        return {}
    steps = window.results.step_trace
    found: dict[Phase, float] = {}
    if steps is not None and steps.mean is not None:
        found = {phase: us / 1e3 for phase, us in steps.mean.phases_us.items()}
    elif window.dataloader_us:
        found = {"data_wait": window.dataloader_us / 1e3 / len(window.steps_us)}
    if "data_wait" in found and window.dataloader_beside_device_us is not None:
        found["data_wait"] = min(found["data_wait"], window.dataloader_beside_device_us / 1e3 / len(window.steps_us))
    known_ms = sum(found.values())
    if known_ms > period_ms:
        found = {phase: ms * period_ms / known_ms for phase, ms in found.items()}
    found["forward"] = found.get("forward", 0.0) + max(0.0, period_ms - known_ms)
    return found
