"""Builds the facts of traces, as a run's report has them, from programs of a host that launches."""

import io
from collections.abc import Callable

import msgspec
from truths import gpu_trace

from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.trace.analysis import analyse, first_rows
from lightning_gpuprof.trace.facts import window_facts
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace


class GpuTrace(gpu_trace.GpuTrace):
    """A window that is recorded while its methods are called."""

    def window(self, **changes: object) -> WindowFacts:
        """The facts of what was recorded."""
        trace = Trace.read(io.BytesIO(msgspec.json.encode(self.document())))
        facts = window_facts(trace, start_step=100, stop_step=105)
        analysis = first_rows(analyse(LinkedTrace(trace)))
        assert not analysis.problems
        return msgspec.structs.replace(facts, analysis=analysis, reason="planned", **changes)


def recorded_steps(step: Callable[[GpuTrace], None], steps: int = 5) -> WindowFacts:
    """A window of some equal steps, begun while the device has work of the step before."""
    trace = GpuTrace()
    for _ in range(steps):
        with trace.step():
            step(trace)
    return trace.window()
