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
