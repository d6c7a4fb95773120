"""Builds the facts of traces, as a run's report has them, from programs of a host that launches."""

import io
from collections.abc import Callable

import msgspec
from trace_metrics import window_of
from truths import gpu_trace

from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.trace.reader import Trace


class GpuTrace(gpu_trace.GpuTrace):
    """A window that is recorded while its methods are called."""

    def window(self, **changes: object) -> WindowFacts:
        """The facts of what was recorded."""
        trace = Trace.read(io.BytesIO(msgspec.json.encode(self.document())))
        return msgspec.structs.replace(window_of(trace), **changes)


def recorded_steps(step: Callable[[GpuTrace], None], steps: int = 5) -> WindowFacts:
    """A window of some equal steps, begun while the device has work of the step before."""
    trace = GpuTrace()
    for _ in range(steps):
        with trace.step():
            step(trace)
    return trace.window()
