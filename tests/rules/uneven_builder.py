"""Builds stretches, drifts and the Metrics that hold them from levels of parts of a run."""

from collections.abc import Mapping, Sequence
from typing import Any

from metrics_builder import HEALTHY_MS, build, replace

from lightning_gpuprof.model.evenness import Drift, Evenness, Stretch
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import Phase


def stretch(
    changes_ms: Mapping[Phase, float] | None = None, *, start: int = 0, count: int = 100, **more: Any
) -> Stretch:
    """A part of a healthy run of steps of 50 ms; ``changes_ms`` is added to its phases."""
    phases: dict[Phase, float] = {p: HEALTHY_MS[p] + (changes_ms or {}).get(p, 0.0) for p in HEALTHY_MS}
    period_ms = sum(phases.values())
    values: dict[str, Any] = {
        "from_batch": start,
        "to_batch": start + count - 1,
        "count": count,
        "period_ms": period_ms,
        "interval_ms": (0.99 * period_ms, 1.01 * period_ms),
        "phases_ms": phases,
        "run_delay_ratio": 0.0,
        "taken_cpus": 0.1,
        "cpu_busy_ratio": 0.5,
    }
    return Stretch(**{**values, **more})


def of_speed_levels(*speed_levels: Stretch, **more: Any) -> Metrics:
    """A run with these speed levels."""
    return replace(build(**more), evenness=Evenness(speed_levels=speed_levels))


def of_fifths(
    phase: Phase, levels_ms: Sequence[float], *, p_value: float = 1e-9, slope: float | None = None, **last: Any
) -> Metrics:
    """A run in whose fifths a phase is longer by so much; ``last`` changes the last of them.

    Without a slope they grow gradually.
    """
    slope = (levels_ms[-1] - levels_ms[0]) / (4 * 76) if slope is None else slope
    fifths = [stretch({phase: ms}, start=76 * i, count=76) for i, ms in enumerate(levels_ms)]
    fifths[-1] = stretch({phase: levels_ms[-1]}, start=304, count=76, **last)
    drift = Drift(fifths=tuple(fifths), slope_ms_per_step=slope, p_value=p_value)
    return replace(build(), evenness=Evenness(speed_levels=(stretch(count=380),), drift=drift))
