"""The rows that an annotated trace adds: phases, and per device its use, its idle time, its queue."""

import numpy as np

from lightning_gpuprof.model.phases import PHASE_TERMS
from lightning_gpuprof.model.trace.idle import IDLE_CAUSE_TERMS, IDLE_CAUSES
from lightning_gpuprof.trace.analyses.calls.queue_depth import queue_times_ns
from lightning_gpuprof.trace.analyses.idle.idle_gaps import gaps_by_device
from lightning_gpuprof.trace.analyses.idle.idle_pieces import idle_pieces
from lightning_gpuprof.trace.analyses.joins.device_parts import device_parts
from lightning_gpuprof.trace.analyses.joins.main_thread_phases import phase_coverage
from lightning_gpuprof.trace.export.event_text import CounterTrack, Label, SliceTrack
from lightning_gpuprof.trace.intervals import Coverage
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import Int64

_NAME_LIMIT = 160
"""Characters of a kernel's name beneath a gap; C++ templates make names of some thousand."""


def slice_tracks(linked: LinkedTrace) -> tuple[SliceTrack, ...]:
    """The rows, from the top; those that would be empty are left out."""
    tracks = [_phases(linked)]
    for device, parts in device_parts(linked).items():
        name = device_name(linked, device)
        tracks += [
            _plain(f"{name} compute", "compute", parts.computation),
            _plain(f"{name} communication", "communication", parts.communication),
            _plain(f"{name} exposed communication", "exposed communication", parts.exposed_communication),
            _plain(f"{name} copies", "copies", parts.copies),
            _idle(linked, device),
        ]
    return tuple(track for track in tracks if len(track.label))


def queue_tracks(linked: LinkedTrace) -> tuple[CounterTrack, ...]:
    """Work of each device that is launched and not done: :class:`QueueDepth` at every moment."""
    tracks = []
    for device in linked.devices:
        entered, left = queue_times_ns(linked, linked.device_rows[device])
        moments = np.concatenate((entered, left))
        order = np.argsort(moments, kind="stable")
        depth = np.cumsum(np.where(order < len(entered), 1, -1))
        last = np.append(np.diff(moments[order]) > 0, True)  # of all changes at one moment
        tracks.append(
            CounterTrack(
                name=f"{device_name(linked, device)} queue",
                unit="works",
                time_ns=moments[order][last],
                value=depth[last].astype(np.float64),
            )
        )
    return tuple(tracks)


def device_name(linked: LinkedTrace, device: int) -> str:
    """Name of a device for people.

    Args:
        linked: The trace.
        device: A key of :attr:`LinkedTrace.device_rows`.

    Returns:
        ``GPU 0`` for a number, else the trace's own name; ``device`` if that is empty.
    """
    name = linked.trace.devices[device]
    return f"GPU {name}" if name.isdecimal() else name or "device"


def _phases(linked: LinkedTrace) -> SliceTrack:
    found = phase_coverage(linked)
    phases = tuple(found)
    return _track(
        "phase",
        [(found[phase].start_ns, found[phase].end_ns) for phase in phases],
        tuple(Label(name=phase, notes={"what": PHASE_TERMS[phase]}) for phase in phases),
    )


def _plain(row: str, name: str, coverage: Coverage) -> SliceTrack:
    return _track(row, [(coverage.start_ns, coverage.end_ns)], (Label(name=name, notes={}),))


def _track(name: str, parts: list[tuple[Int64, Int64]], labels: tuple[Label, ...]) -> SliceTrack:
    """Stretches with one label each, in order of time; empty ones are left out."""
    none = np.zeros(0, np.int64)
    starts = np.concatenate([none, *(starts for starts, _ in parts)])
    ends = np.concatenate([none, *(ends for _, ends in parts)])
    label = np.repeat(np.arange(len(parts)), [len(starts) for starts, _ in parts])
    order = np.argsort(starts, kind="stable")
    order = order[ends[order] > starts[order]]
    return SliceTrack(name=name, start_ns=starts[order], end_ns=ends[order], label=label[order], labels=labels)


def _idle(linked: LinkedTrace, device: int) -> SliceTrack:
    gaps = gaps_by_device(linked)[device]
    pieces = idle_pieces(linked, gaps).merged()
    names = linked.trace.names
    next_name = linked.work.name[gaps.after[pieces.gap]]
    pairs, label = np.unique(pieces.cause.astype(np.int64) * len(names) + next_name, return_inverse=True)
    labels = []
    for cause, name in zip(*divmod(pairs, max(len(names), 1)), strict=True):
        what = IDLE_CAUSES[cause]
        notes = {"why": IDLE_CAUSE_TERMS[what], "next work": _shortened(names[name])}
        labels.append(Label(name=f"idle: {what}", notes=notes))
    return SliceTrack(
        name=f"{device_name(linked, device)} idle",
        start_ns=pieces.start_ns,
        end_ns=pieces.end_ns,
        label=label.reshape(-1),
        labels=tuple(labels),
    )


def _shortened(name: str) -> str:
    return name if len(name) <= _NAME_LIMIT else f"{name[: _NAME_LIMIT - 3]}..."
