"""Forward and backward of a training on the CPU flow in, what of them no operator of torch takes flows out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lightning_gpuprof.model.metrics import Blocked, Metrics
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules.base import (
    MissingSignal,
    is_distributed,
    is_slow_step_window,
    possible,
    steady_period_ms,
    step_share,
    usable,
)
from lightning_gpuprof.rules.steps.waiting import LEAST_SAMPLES

_PHASES: tuple[Phase, ...] = ("forward", "backward")
"""The phases in which the model's own code runs."""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """Time per step of the training thread in Python, or in native code that is not torch's; milliseconds."""

    period_ms: float
    phases_ms: float
    """Of forward and backward in untraced steps; with several ranks, where backward waits for others, of forward."""
    operators_ms: float
    """Self time of all operators in traced steps, which tracing makes longer."""
    python_ms: float
    """The part of :attr:`phases_ms` that is neither waiting nor an operator's: tracing makes only operators longer. Of
    windows with Python's stacks, which tracing does make longer, the lower bound."""
    lower_ms: float
    """The same as if operators took as long in untraced steps as in traced ones."""
    place: str
    """Where the training thread was most often seen in the longer of the two; empty if it was not looked at."""

    @property
    def python_ratio(self) -> float:
        """Share of :attr:`phases_ms` that is certainly not torch's."""
        return self.lower_ms / self.phases_ms if self.phases_ms > 0 else 0.0


def interpreter(metrics: Metrics) -> Interpreter:
    """What is known of it.

    Waiting, also for a CPU, and pauses of the garbage collector are taken off: other rules name them.

    Raises:
        MissingSignal: No window of ordinary steps holds operators, or the thread's CPU time was not measured or in too
            few steps.
    """
    period_ms = steady_period_ms(metrics)
    windows = [window for window in metrics.windows if _tells(window)]
    if not windows:
        raise MissingSignal("no trace window of ordinary steps holds operators and phases")
    blocked = {row.phase: row for row in metrics.blocked or () if usable(row.blocked) and row.samples >= LEAST_SAMPLES}
    several = is_distributed(metrics) or any(_ranks(window) > 1 for window in windows)
    phases = _PHASES[:1] if several else _PHASES
    if not blocked.keys() >= set(phases):
        raise MissingSignal(f"the training thread's CPU times of {LEAST_SAMPLES} steps are needed")
    shares = {phase: step_share(metrics, phase).median_ms for phase in phases}
    phases_ms = sum(shares.values())
    waited_ms = sum(max(0.0, blocked[phase].blocked.median_ms) for phase in phases)
    waited_ms += (metrics.cpu.run_delay_ratio or 0.0) * period_ms
    collector = metrics.host.gc
    paused_ms = (collector.pause_ms_per_step or 0.0) if collector is not None else 0.0
    lost_ms = waited_ms + paused_ms
    operators_ms = max(_operators_ms(window) for window in windows)
    traced_ms = min(_traced_ms(window, phases) for window in windows)
    if not all(map(possible, (phases_ms, lost_ms, operators_ms, traced_ms))):
        raise MissingSignal("the times of operators or phases are no possible numbers")
    # what untraced steps take longer than traced ones is nothing that windows tell of
    own_ms = max(0.0, min(phases_ms, traced_ms) - lost_ms)
    lower_ms = max(0.0, own_ms - operators_ms)
    python_ms = min(own_ms, max(lower_ms, traced_ms - operators_ms - lost_ms))
    return Interpreter(
        period_ms=period_ms,
        phases_ms=phases_ms,
        operators_ms=operators_ms,
        python_ms=lower_ms if any(map(_has_stacks, windows)) else python_ms,
        lower_ms=lower_ms,
        place=_place(blocked[max(phases, key=lambda one: shares[one])]),
    )


def _tells(window: WindowFacts) -> bool:
    analysis = window.analysis
    return (
        analysis is not None
        and not is_slow_step_window(window)
        and len(window.steps_us) > 0
        and analysis.operators is not None
        and analysis.operators.calls > 0
        and analysis.step_trace is not None
        and analysis.step_trace.mean is not None
    )


def _operators_ms(window: WindowFacts) -> float:
    operators = window.analysis.operators if window.analysis is not None else None
    return operators.host_self_us / 1e3 / len(window.steps_us) if operators is not None else 0.0


def _ranks(window: WindowFacts) -> int:
    return (window.analysis.world_size or 1) if window.analysis is not None else 1


def _traced_ms(window: WindowFacts, phases: Sequence[Phase]) -> float:
    trace = window.analysis.step_trace if window.analysis is not None else None
    phases_us = trace.mean.phases_us if trace is not None and trace.mean is not None else {}
    return sum(phases_us.get(phase, 0.0) for phase in phases) / 1e3


def _has_stacks(window: WindowFacts) -> bool:
    health = window.analysis.health if window.analysis is not None else None
    return health is None or any(one.name == "stacks" and one.present for one in health.signals)


def _place(row: Blocked) -> str:
    return row.sites[0][0] if row.sites else ""
