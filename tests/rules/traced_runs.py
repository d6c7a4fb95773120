"""Builds the Metrics of a run whose untraced steps took as long as the traced ones."""

from collections.abc import Mapping

import msgspec
from metrics_builder import build, distribution, replace, share

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import PHASES, Phase
from lightning_gpuprof.model.report import Wall
from lightning_gpuprof.model.window import WindowFacts


def traced_run(window: WindowFacts, run: Mapping[str, Value] | None = None) -> Metrics:
    """400 steps like those of the window, on a GPU if it saw one.

    The period is the device's window over its steps, else the mean duration of the steps; a window without steps
    counts as one. What no phase tells of is forward.
    """
    period_us = _period_us(window)
    if not window.steps_us:
        window = msgspec.structs.replace(window, steps_us=(period_us,))
    times_ms = _phases_ms(window, period_us)
    period_ms = period_us / 1e3
    metrics = build(
        times_ms={**dict.fromkeys(PHASES, 0.0), **times_ms},
        blocked_known=False,
        validation=(0, 0.0),
        checkpoint=(0, 0.0),
        run={"device.type": "cuda" if window.devices else "cpu", **(run or {})},
    )
    train_s = metrics.steps.count * period_ms / 1e3
    return replace(
        metrics,
        wall=Wall(total_s=train_s, parts={**dict.fromkeys(metrics.wall.parts, 0.0), "train": train_s}),
        windows=(msgspec.structs.replace(window, inflation_ratio=1.0),),
        steps=msgspec.structs.replace(metrics.steps, period_ms=distribution(period_ms)),
        shares={phase: share(ms, period_ms) for phase, ms in times_ms.items()},
    )


def _period_us(window: WindowFacts) -> float:
    steps = max(1, len(window.steps_us))
    if window.devices:
        return max(device.window_us for device in window.devices) / steps
    return sum(window.steps_us) / steps


def _phases_ms(window: WindowFacts, period_us: float) -> dict[Phase, float]:
    steps = window.analysis.step_trace if window.analysis is not None else None
    found: dict[Phase, float] = {}
    if steps is not None and steps.mean is not None:
        found = {phase: us / 1e3 for phase, us in steps.mean.phases_us.items()}
    elif window.dataloader_us:
        found = {"data_wait": window.dataloader_us / 1e3 / max(1, len(window.steps_us))}
    told = sum(found.values())
    if told > period_us / 1e3:
        found = {phase: ms * period_us / 1e3 / told for phase, ms in found.items()}
    found["forward"] = found.get("forward", 0.0) + max(0.0, period_us / 1e3 - told)
    return found
