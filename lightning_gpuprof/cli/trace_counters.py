"""GPU and host samples of a run as counters on its trace's clock."""

from collections import defaultdict
from pathlib import Path

import numpy as np

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.errors import JournalError
from lightning_gpuprof.model import clock_events, numbers
from lightning_gpuprof.trace.export.event_text import CounterTrack
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace

AROUND_NS = 2_000_000_000
"""Samples up to so far before and behind the trace's events are taken: they come every half second or second."""


def counters_beside(path: Path, linked: LinkedTrace) -> tuple[CounterTrack, ...]:
    """What the journal of the same rank in the trace's folder holds of the time of the trace.

    Args:
        path: The trace; that of a run is called ``rank0.<number>.pt.trace.json.gz``, its journal ``rank0.jsonl``.
        linked: The trace.

    Returns:
        One track for each sampled value; empty if there is no journal beside the trace.
    """
    journal_file = path.parent / f"{path.name.partition('.')[0]}.jsonl"
    bounds = _bounds_ns(linked.trace)
    if not journal_file.is_file() or bounds is None:
        return ()
    try:
        journal = read_journal(journal_file)
    except JournalError:  # the trace is whole without it
        return ()
    to_trace_ns = journal.header.epoch_ns - journal.header.start_ns - (linked.trace.base_time_ns or 0)
    found: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for sample in journal.samples:
        at_ns = sample.t_ns + to_trace_ns
        if bounds[0] - AROUND_NS <= at_ns <= bounds[1] + AROUND_NS:
            for name, value in clock_events.split(sample.values).items():
                if value is not None:
                    found[sample.subject, name].append((at_ns, value))
    return tuple(_track(subject, name, values) for (subject, name), values in sorted(found.items()))


def _track(subject: str, name: str, values: list[tuple[int, float]]) -> CounterTrack:
    unit = numbers.unit_of(name)
    values.sort()
    return CounterTrack(
        name=f"{subject} {numbers.label(name)}",
        unit=unit,
        time_ns=np.array([at_ns for at_ns, _ in values], np.int64),
        value=np.array([100 * value if unit == "%" else value for _, value in values], np.float64),
    )


def _bounds_ns(trace: Trace) -> tuple[int, int] | None:
    parts = [part for part in (trace.device_work, trace.cpu_op, trace.runtime, trace.annotation) if len(part)]
    if not parts:
        return None
    return min(int(part.start_ns.min()) for part in parts), max(int(part.end_ns.max()) for part in parts)
