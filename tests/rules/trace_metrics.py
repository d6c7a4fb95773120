"""Builds the Metrics of a GPU run of which only the trace windows are known."""

import io
from collections.abc import Callable, Mapping
from functools import cache
from statistics import median

import msgspec
from metrics_builder import build, distribution, outliers, replace, share
from recorded_traces import recorded_analysis, recorded_trace
from truths.gpu_trace import GpuTrace

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.share import Share
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.trace.analysis import analyse, first_rows
from lightning_gpuprof.trace.facts import window_facts
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace


def window_of(document: Mapping[str, object]) -> WindowFacts:
    """The facts of a trace as a run's report keeps them."""
    linked = LinkedTrace(Trace.read(io.BytesIO(msgspec.json.encode(document))))
    return _window(linked, analyse(linked))


def recorded_steps(step: Callable[[GpuTrace], None], steps: int = 5) -> WindowFacts:
    """A window of some equal steps, begun while the device has work of the step before."""
    trace = GpuTrace()
    for _ in range(steps):
        with trace.step():
            step(trace)
    return window_of(trace.document())


@cache
def recorded_window(name: str) -> WindowFacts:
    """The same of a recorded trace. One without steps counts as one step."""
    facts = _window(recorded_trace(name), recorded_analysis(name))
    if facts.steps_us or not facts.devices:
        return facts
    return msgspec.structs.replace(facts, steps_us=(max(device.window_us for device in facts.devices),))


def _window(trace: LinkedTrace, analysis: TraceAnalysis) -> WindowFacts:
    assert not analysis.problems
    facts = window_facts(trace, start_step=100, stop_step=104)
    return msgspec.structs.replace(facts, analysis=first_rows(analysis), reason="planned")


def metrics_of(
    *windows: WindowFacts,
    period_ms: float | None = None,
    phases_ms: Mapping[Phase, float] | None = None,
    steps: int = 400,
    run: Mapping[str, Value] | None = None,
    pin_memory: bool | None = True,
) -> Metrics:
    """A run on a CUDA device with these windows.

    Args:
        windows: Its trace windows.
        period_ms: Median period of steps that were not traced; default: that of the first window's steps, as if
            tracing cost nothing.
        phases_ms: Untraced time of phases on the host; default: those of the first window.
        steps: All steps, 20 of which are not steady.
        run: Conditions that differ.
        pin_memory: Of the loader.
    """
    first = windows[0] if windows else None
    if period_ms is None:
        period_ms = median(first.steps_us) / 1e3 if first is not None and first.steps_us else 50.0
    if phases_ms is None:
        step_trace = first.analysis.step_trace if first is not None and first.analysis is not None else None
        mean = step_trace.mean if step_trace is not None else None
        phases_ms = {} if mean is None else {phase: us / 1e3 for phase, us in mean.phases_us.items()}
    healthy = build(steps=steps, run={"device.type": "cuda", "trainer.world_size": 1, **(run or {})})
    shares: dict[Phase, Share] = {phase: share(min(ms, period_ms), period_ms) for phase, ms in phases_ms.items()}
    return replace(
        healthy,
        shares=shares,
        steps=msgspec.structs.replace(healthy.steps, period_ms=distribution(period_ms)),
        outliers=outliers(count=0, stall_ms=0.0, phases={}, steps=steps - 20, period_ms=period_ms),
        loader=None if healthy.loader is None else replace(healthy.loader, pin_memory=pin_memory),
        windows=tuple(windows),
    )
