"""The recorded traces beside the repository, which may be absent; each is read once for all tests of a process."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.trace.analysis import analyse
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace

TRACES = Path(__file__).resolve().parents[2].parent / "shared" / "traces"
NAMES = sorted(path.name for path in TRACES.glob("*.json.gz"))
TRUTH: dict[str, Any] = json.loads((TRACES / "FACTS.json").read_text()) if (TRACES / "FACTS.json").is_file() else {}
"""What a slow, independent program found in them."""

FLOAT_TIMES = ("a100_2rank", "a100_triton", "h100", "mi2", "mi3", "v100_ns", "cpu_only")
"""Traces whose times are floats: the truth rounds each time to a float64, so it is off by up to a tick per event."""


@cache
def recorded_trace(name: str) -> LinkedTrace:
    """With its Python frames; name of a file. Tests are skipped where it is absent."""
    if not (TRACES / name).is_file():
        pytest.skip(f"no recorded trace {name} beside the repository (../shared/traces)")
    return LinkedTrace(Trace.read(TRACES / name))


@cache
def recorded_analysis(name: str) -> TraceAnalysis:
    """All analyses of a trace."""
    return analyse(recorded_trace(name))


def tolerance_us(name: str, events: int) -> float:
    """How far the truth of a trace may be off for a sum of so many events' times."""
    tick_us = 0.25 if name.startswith("v100_ns") else 0.001
    return 0.001 + (tick_us * (1 + events) if name.startswith(FLOAT_TIMES) else 0.0)
