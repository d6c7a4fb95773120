"""The longest single events of each category."""

import numpy as np

from lightning_gpuprof.model.trace.events import EventRow, Events, EventsOfCategory
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.tables import ABSENT, DeviceSpans, Spans

MAX_EACH = 5
"""Events of a category; ``--csv`` has all."""


def longest_events(linked: LinkedTrace) -> Events:
    """The longest events of each category of a trace."""
    found = {category: spans for category, spans in linked.trace.by_category.items() if len(spans)}
    begin_ns = min((int(spans.start_ns.min()) for spans in found.values()), default=0)
    return Events(
        categories=tuple(
            EventsOfCategory(category=category, count=len(spans), longest=_longest(linked.trace, spans, begin_ns))
            for category, spans in found.items()
        )
    )


def _longest(trace: Trace, spans: Spans, begin_ns: int) -> tuple[EventRow, ...]:
    longest = spans.where(np.argsort(-spans.duration_ns, kind="stable")[:MAX_EACH])
    devices, streams = (
        getattr(longest, column).tolist() if isinstance(longest, DeviceSpans) else [ABSENT] * len(longest)
        for column in ("device", "stream")
    )
    return tuple(
        EventRow(
            start_us=(start_ns - begin_ns) / 1000,
            duration_us=duration_ns / 1000,
            name=trace.names[name],
            thread=trace.threads[thread],
            device=None if device == ABSENT else trace.devices[device],
            stream=None if stream == ABSENT else stream,
        )
        for start_ns, duration_ns, name, thread, device, stream in zip(
            longest.start_ns.tolist(),
            longest.duration_ns.tolist(),
            longest.name.tolist(),
            longest.thread.tolist(),
            devices,
            streams,
            strict=True,
        )
    )
