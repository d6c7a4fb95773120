"""A trace window with some of everything, and one in which every name tries to leave the page."""

import io
import json

import msgspec
import sample_report
from tiny_traces import Json, document, span

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.trace.analysis import analyse, first_rows
from lightning_gpuprof.trace.reader import Trace

FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
HUGE = sample_report.HOSTILE + "n" * 10_000


def events(suffix: str = "", *, on_device: bool = True) -> list[Json]:
    """Three steps of 1 ms with a fetch, fourteen operators with shapes, and two streams; times in µs."""
    found: list[Json] = []
    for step in range(3):
        begin = 1000 * step
        found += [
            span("user_annotation", f"ProfilerStep#{step + 7}", begin, 1000),
            span("user_annotation", FETCH, begin, 200),
        ]
        for number in range(14):
            at, correlation = begin + 250 + 50 * number, 100 * step + number + 1
            shapes = {"Input_Dims": [[32, 64], [64, 8 * (number + 1)]], "Input_type": ["float", "float"]}
            found += [span("cpu_op", f"aten::op{number}{suffix}", at, 40, External_id=correlation, **shapes)]
            if on_device:
                place = {"pid": 0, "tid": 7 + number % 2, "device": 0, "stream": 7 + number % 2}
                found += [
                    span("cuda_runtime", "cudaLaunchKernel", at + 5, 5, correlation=correlation),
                    span("kernel", f"kernel{number}{suffix}", at + 15, 20 + number, correlation=correlation, **place),
                ]
    return found


def analysis(suffix: str = "", *, on_device: bool = True) -> TraceAnalysis:
    """Everything that is known of it."""
    text = json.dumps(document(events(suffix, on_device=on_device), record_shapes=1)).encode()
    return first_rows(analyse(Trace.read(io.BytesIO(text))))


def report(*windows: WindowFacts) -> Report:
    """The full report with these windows."""
    return msgspec.structs.replace(sample_report.full_report(), windows=windows)


def window(found: TraceAnalysis, *, file: str = "rank0.17.pt.trace.json.gz") -> WindowFacts:
    """The facts around an analysis."""
    return WindowFacts(start_step=200, stop_step=202, file=file, events=100, analysis=found)
