"""Only some analyses of a trace."""

from pathlib import Path

import pytest
from tiny_traces import document, training_step, write

from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.trace.analysis import analyse
from lightning_gpuprof.trace.reader import Trace

ALWAYS = {"gpus", "rank", "world_size", "problems"}


def trace_in(folder: Path) -> Trace:
    return Trace.read(write(folder / "t.json", document(training_step())))


def test_what_is_not_wanted_is_not_computed_and_the_rest_is_as_ever(tmp_path: Path) -> None:
    trace, timings = trace_in(tmp_path), dict[str, float]()
    whole, some = analyse(trace), analyse(trace, only=("idle", "kernels"), timings=timings)
    assert set(timings) == {"idle", "kernels"}
    assert (some.idle, some.kernels) == (whole.idle, whole.kernels)
    others = set(TraceAnalysis.__struct_fields__) - ALWAYS - {"idle", "kernels"}
    assert {name for name in others if getattr(some, name) is not None} == set()


def test_a_name_that_there_is_not_is_told(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"only must name analyses out of health, idle, .*\['idles'\]"):
        analyse(trace_in(tmp_path), only=("idle", "idles"))
