"""All events of a trace as one table for other programs."""

import numpy as np

from lightning_gpuprof.model.data_table import DataTable
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.tables import ABSENT, DeviceSpans, Spans, joined


def event_table(trace: Trace, name: str) -> DataTable:
    """One row per event, in order of time.

    Args:
        trace: The trace.
        name: Name of the table.

    Returns:
        ``start_us`` on the trace's clock, ``duration_us``, ``category``, ``name``, ``thread`` (``process/thread``),
        and of what ran on a device ``device`` and ``stream``; None elsewhere.
    """
    parts = trace.by_category
    spans = joined(Spans, [part.spans for part in parts.values()])
    category = np.repeat(list(parts), [len(part) for part in parts.values()])
    device, stream = (
        np.concatenate(
            [
                getattr(part, column) if isinstance(part, DeviceSpans) else np.full(len(part), ABSENT)
                for part in parts.values()
            ]
        )
        for column in ("device", "stream")
    )
    order = np.lexsort((-spans.end_ns, spans.start_ns))
    return DataTable(
        name=name,
        columns={
            "start_us": spans.start_ns[order] / 1000,
            "duration_us": spans.duration_ns[order] / 1000,
            "category": category[order].tolist(),
            "name": [trace.names[number] for number in spans.name[order].tolist()],
            "thread": [trace.threads[number] for number in spans.thread[order].tolist()],
            "device": [None if number == ABSENT else trace.devices[number] for number in device[order].tolist()],
            "stream": [None if number == ABSENT else number for number in stream[order].tolist()],
        },
    )
