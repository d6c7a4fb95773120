"""Communication: time, overlap with computation, and the speed of each collective."""

from collections.abc import Mapping

import numpy as np

from lightning_gpuprof.model.trace.communication import (
    CollectiveTimes,
    Communication,
    DeviceCommunication,
    StreamCommunication,
)
from lightning_gpuprof.trace.analyses.communication.collectives import (
    CollectiveCalls,
    CollectiveDescription,
    bus_factor,
    collective_calls,
)
from lightning_gpuprof.trace.analyses.joins.device_parts import DeviceParts, device_parts
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import Float64, Int64, Mask, ratio


def communication_of(linked: LinkedTrace, *, sizes: int = 40) -> Communication:
    """Communication of all devices.

    Args:
        linked: The trace.
        sizes: Most rows of :attr:`Communication.sizes`.

    Returns:
        Rows of collectives longest total first; times in microseconds.
    """
    calls = collective_calls(linked)
    parts = device_parts(linked)
    start_ns, end_ns = linked.work.start_ns[calls.rows], linked.work.end_ns[calls.rows]
    exposed_ns = end_ns - start_ns
    for device, part in parts.items():
        own = linked.work.device[calls.rows] == device
        exposed_ns[own] -= part.computation.overlap_ns(start_ns[own], end_ns[own])
    rows = _CollectiveGroups(calls, end_ns - start_ns, exposed_ns)
    of_size = rows.by_description()
    about = linked.trace.about
    backend = about.distributed.get("backend")
    return Communication(
        rank=about.rank,
        world_size=about.world_size,
        backend=backend if isinstance(backend, str) else None,
        devices=tuple(_device(linked, device, part) for device, part in parts.items()),
        kinds=rows.by_kind(),
        sizes=of_size[:sizes],
        sizes_left_out=max(len(of_size) - sizes, 0),
        streams=_streams(linked, calls, parts),
        notes=_notes(linked, calls),
    )


def _device(linked: LinkedTrace, device: int, part: DeviceParts) -> DeviceCommunication:
    overlap_ns = part.communication.common_ns(part.computation)
    exposed_ns = part.communication.total_ns - overlap_ns
    return DeviceCommunication(
        device=linked.trace.devices[device],
        collectives=int(linked.is_communication[linked.device_rows[device]].sum()),
        window_us=part.busy.length_ns / 1000,
        communication_us=part.communication.total_ns / 1000,
        computation_us=part.computation.total_ns / 1000,
        overlap_us=overlap_ns / 1000,
        exposed_us=exposed_ns / 1000,
        exposed_ratio=ratio(exposed_ns, part.busy.length_ns),
        copy_us=part.copies.total_ns / 1000,
        copy_exposed_us=(part.copies.total_ns - part.copies.common_ns(part.computation)) / 1000,
    )


def _streams(
    linked: LinkedTrace, calls: CollectiveCalls, parts: Mapping[int, DeviceParts]
) -> tuple[StreamCommunication, ...]:
    work, found = linked.work, []
    for device, stream in set(zip(work.device[calls.rows].tolist(), work.stream[calls.rows].tolist(), strict=True)):
        rows = linked.device_rows[device]
        rows = rows[work.stream[rows] == stream]
        communicates = linked.is_communication[rows]
        own = linked.covered(rows[communicates])
        found.append(
            StreamCommunication(
                device=linked.trace.devices[device],
                stream=stream,
                collectives=int(communicates.sum()),
                communication_us=own.total_ns / 1000,
                exposed_us=(own.total_ns - own.common_ns(parts[device].computation)) / 1000,
                computation_us=linked.covered(rows[linked.is_kernel[rows] & ~communicates]).total_ns / 1000,
            )
        )
    return tuple(sorted(found, key=lambda one: (one.device, -one.communication_us, one.stream)))


class _CollectiveGroups:
    """Sums over collectives that are alike.

    Args:
        calls: What the collectives are.
        duration_ns: Of each.
        exposed_ns: Of each, what no computation covers.
    """

    def __init__(self, calls: CollectiveCalls, duration_ns: Int64, exposed_ns: Int64) -> None:
        self._described = calls.described
        self._what = calls.what
        self._duration_ns = duration_ns
        self._exposed_ns = exposed_ns
        self._all_ns = int(duration_ns.sum())
        sizes = [one.message_bytes for one in calls.described]
        factors = [
            np.nan if one.group_size is None or one.group_size < 2 else bus_factor(one.kind, one.group_size)
            for one in calls.described
        ]
        self._bytes = np.array([-1 if size is None else size for size in sizes], np.int64)[calls.what]
        self._bus_bytes = self._bytes * np.array(factors, np.float64)[calls.what]

    def by_description(self) -> tuple[CollectiveTimes, ...]:
        """Collectives with the same description, longest total first."""
        found = [self._times(one, self._what == number) for number, one in enumerate(self._described)]
        return tuple(sorted(found, key=lambda row: (-row.total_us, row.kind, row.message_bytes or 0)))

    def by_kind(self) -> tuple[CollectiveTimes, ...]:
        """Collectives of a kind, longest total first."""
        found = []
        for kind in dict.fromkeys(one.kind for one in self._described):
            alike = [number for number, one in enumerate(self._described) if one.kind == kind]
            described = self._described[alike[0]]
            for number in alike[1:]:
                described = _in_common(described, self._described[number])
            found.append(self._times(described, np.isin(self._what, alike)))
        return tuple(sorted(found, key=lambda row: (-row.total_us, row.kind)))

    def _times(self, described: CollectiveDescription, chosen: Mask) -> CollectiveTimes:
        duration_ns = self._duration_ns[chosen]
        total_ns = int(duration_ns.sum())
        sized = chosen & (self._bytes >= 0)
        total_bytes = int(self._bytes[sized].sum()) if sized.any() else None
        rated = sized & (self._duration_ns > 0) & (self._bytes > 0)
        bus = rated & ~np.isnan(self._bus_bytes)
        return CollectiveTimes(
            kind=described.kind,
            dtype=described.dtype,
            group=described.group,
            group_size=described.group_size,
            group_size_source=described.group_size_source,
            message_bytes=described.message_bytes,
            count=len(duration_ns),
            total_us=total_ns / 1000,
            mean_us=total_ns / len(duration_ns) / 1000,
            min_us=int(duration_ns.min()) / 1000,
            max_us=int(duration_ns.max()) / 1000,
            share_ratio=ratio(total_ns, self._all_ns) or 0.0,
            exposed_us=int(self._exposed_ns[chosen].sum()) / 1000,
            sized=int(sized.sum()),
            total_bytes=total_bytes,
            algorithm_bandwidth_bytes_per_s=_per_s(self._bytes[rated], self._duration_ns[rated]),
            bus_bandwidth_bytes_per_s=_per_s(self._bus_bytes[bus], self._duration_ns[bus]),
            best_bus_bandwidth_bytes_per_s=(
                float((self._bus_bytes[bus] / self._duration_ns[bus]).max()) * 1e9 if bus.any() else None
            ),
        )


def _per_s(amount: Int64 | Float64, duration_ns: Int64) -> float | None:
    return float(amount.sum()) / int(duration_ns.sum()) * 1e9 if len(duration_ns) else None


def _in_common(one: CollectiveDescription, other: CollectiveDescription) -> CollectiveDescription:
    """What two collectives of a kind have in common."""
    same_size = one.group_size == other.group_size
    return CollectiveDescription(
        kind=one.kind,
        dtype=one.dtype if one.dtype == other.dtype else None,
        message_bytes=one.message_bytes if one.message_bytes == other.message_bytes else None,
        group=one.group if one.group == other.group else None,
        group_size=one.group_size if same_size else None,
        group_size_source=one.group_size_source if same_size else None,
    )


def _notes(linked: LinkedTrace, calls: CollectiveCalls) -> tuple[str, ...]:
    count, notes = len(calls.rows), []
    if not count:
        return ()

    def number_of(wanted: list[bool]) -> int:
        return int(np.array(wanted, np.bool_)[calls.what].sum())

    if unknown := number_of([one.kind == "unknown" for one in calls.described]):
        early = int((~linked.launched[calls.rows]).sum())
        why = f", {early} were launched before the window" if early else ""
        notes.append(
            f"The kind of {unknown} of {count} collectives is not known: their kernels' names do not show it{why}."
        )
    if unsized := number_of([one.message_bytes is None and one.kind != "unknown" for one in calls.described]):
        notes.append(
            f"The size of {unsized} of {count} collectives is not known: no bandwidth. torch 2.3 and later write it;"
            " before, record shapes: TraceConfig(record_shapes=True)."
        )
    sources = {one.group_size_source for one in calls.described if one.message_bytes is not None}
    if "world" in sources:
        notes.append(
            "The trace does not name the group of every collective: bus bandwidth assumes all ranks of the job."
        )
    if None in sources:
        notes.append("The number of participating ranks is not known: no bus bandwidth.")
    return tuple(notes)
