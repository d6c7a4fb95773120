"""Plain facts of a trace, under the names and definitions of a slow program that checks them."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lightning_gpuprof.model.trace.kineto_facts import DeviceFacts, KinetoFacts
from lightning_gpuprof.trace.analyses.joins.device_parts import DeviceParts, device_parts
from lightning_gpuprof.trace.host_phases import is_fetch
from lightning_gpuprof.trace.intervals import Coverage
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.steps import STEP
from lightning_gpuprof.trace.tables import ABSENT, OperatorSpans, Spans, distinct, joined, summed

_BLOCK_BYTES = 1 << 20
_STEP = STEP.removesuffix("#")
_TOP_KERNELS = 5
_TOP_CALLS = 15
_TOP_ANNOTATIONS = 6
_NAME_CHARACTERS = 160
_DISTRIBUTED = ("rank", "world_size", "backend", "nccl_version")


def facts_of_file(path: Path, *, fork: bool = False) -> KinetoFacts:
    """The plain facts of a file.

    Args:
        path: The file.
        fork: See :meth:`Trace.read`.

    Returns:
        As :func:`kineto_facts`; digest and size are of the file as it is, compressed or not.
    """
    linked = LinkedTrace(Trace.read(path, frames=False, fork=fork))
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
        size = file.tell()
    return kineto_facts(linked, sha256=digest.hexdigest(), bytes_file=size)


def kineto_facts(linked: LinkedTrace, *, sha256: str, bytes_file: int) -> KinetoFacts:
    """Compute the plain facts of a trace.

    Args:
        linked: The trace.
        sha256: Of the file.
        bytes_file: Size of the file as it is.

    Returns:
        All times in microseconds; None and empty where the trace has nothing of the kind.
    """
    trace, work = linked.trace, linked.work
    kernel_ns = _by_name(linked, trace.kernel)
    calls_ns = _by_name(linked, trace.runtime)
    ranges = (trace.annotation, trace.cpu_op)
    latency = (linked.work.start_ns - linked.launch_start_ns)[linked.launched]
    sync = linked.named(trace.runtime, lambda name: "synchronize" in name.lower())
    item = linked.named(trace.cpu_op, lambda name: name == "aten::item")
    fetches = [part.where(linked.named(part, is_fetch)) for part in ranges]
    kernel_dur = trace.kernel.duration_ns
    return KinetoFacts(
        sha256=sha256,
        bytes_file=bytes_file,
        bytes_json=trace.bytes_json,
        encoding=trace.encoding,
        n_events=trace.events,
        n_X=sum(trace.categories.values()),
        meta=dict(trace.about.values),
        distributed={key: trace.about.distributed[key] for key in _DISTRIBUTED if key in trace.about.distributed},
        gpus=trace.about.gpus,
        categories=dict(sorted(trace.categories.items(), key=lambda item: -item[1])),
        n_kernel=len(trace.kernel),
        n_memcpy=len(trace.memcpy),
        n_memset=len(trace.memset),
        devices={
            trace.devices[device]: _device(linked, device, parts) for device, parts in device_parts(linked).items()
        },
        kernel_sum_us=int(kernel_dur.sum()) / 1000,
        n_kernel_names=len(kernel_ns),
        top5_kernels=[
            (name[:_NAME_CHARACTERS], count, total / 1000)
            for name, (count, total) in sorted(kernel_ns.items(), key=lambda row: (-row[1][1], row[0]))[:_TOP_KERNELS]
        ],
        kernel_dur_median_us=float(np.median(kernel_dur)) / 1000 if len(kernel_dur) else None,
        kernels_under_10us=int((kernel_dur < 10_000).sum()),
        memcpy=_copies(linked),
        api={
            name: (count, total / 1000)
            for name, (count, total) in sorted(calls_ns.items(), key=lambda row: -row[1][1])[:_TOP_CALLS]
        },
        n_launch={name: count for name, (count, _) in calls_ns.items() if "launch" in name.lower()},
        sync_us=int(trace.runtime.duration_ns[sync].sum()) / 1000,
        n_sync=int(sync.sum()),
        idle_pct_matched_only=_idle_pct(work.where(linked.launched)),
        idle_pct_kernels_only=_idle_pct(trace.kernel),
        gpu_matched=int(linked.launched.sum()),
        gpu_unmatched=int((~linked.launched).sum()),
        launch_to_start_median_us=float(np.median(latency)) / 1000 if len(latency) else None,
        launch_to_start_max_us=int(latency.max()) / 1000 if len(latency) else None,
        negative_launch_latency=int((latency < 0).sum()),
        n_item=int(item.sum()),
        n_local_scalar_dense=int(linked.named(trace.cpu_op, lambda name: name == "aten::_local_scalar_dense").sum()),
        item_us=int(trace.cpu_op.duration_ns[item].sum()) / 1000,
        n_dataloader_next=sum(len(part) for part in fetches),
        dataloader_us=sum(int(part.duration_ns.sum()) for part in fetches) / 1000,
        steps=_steps(linked, ranges),
        n_call_stack_args=trace.call_stacks,
        n_python_function=trace.categories.get("python_function", 0),
        n_with_shapes=sum(int((part.inputs > ABSENT).sum()) for part in ranges),
        collectives_from_metadata=_collectives(linked),
        user_annotations=_annotations(linked),
    )


def _device(linked: LinkedTrace, device: int, parts: DeviceParts) -> DeviceFacts:
    work, busy = linked.work.where(linked.device_rows[device]), parts.busy
    gaps = busy.start_ns[1:] - busy.end_ns[:-1]
    idle_ns = busy.length_ns - busy.total_ns
    overlap_ns = parts.communication.common_ns(parts.computation)
    return DeviceFacts(
        n=len(work),
        streams=len(distinct(np.where(work.stream == ABSENT, -2 - work.thread, work.stream))),
        window_us=busy.length_ns / 1000,
        busy_us=busy.total_ns / 1000,
        idle_us=idle_ns / 1000,
        idle_pct=_percent(idle_ns, busy.length_ns),
        kernel_union_us=parts.kernels.total_ns / 1000,
        n_gaps=len(gaps),
        max_gap_us=int(gaps.max(initial=0)) / 1000,
        comp_us=parts.computation.total_ns / 1000,
        comm_us=parts.communication.total_ns / 1000,
        mem_us=parts.copies.total_ns / 1000,
        comm_comp_overlap_us=overlap_ns / 1000,
        comm_exposed_us=(parts.communication.total_ns - overlap_ns) / 1000,
    )


def _copies(linked: LinkedTrace) -> dict[str, tuple[int, int, float]]:
    copies = linked.trace.memcpy
    bytes_ = np.maximum(copies.size_bytes, 0)
    found = {}
    for number in distinct(copies.name):
        own = copies.name == number
        total = int(copies.duration_ns[own].sum())
        found[linked.trace.names[number]] = (int(own.sum()), int(bytes_[own].sum()), total / 1000)
    return dict(sorted(found.items()))


def _steps(linked: LinkedTrace, ranges: Sequence[OperatorSpans]) -> list[tuple[str, float]]:
    chosen = joined(Spans, [part.where(linked.named(part, lambda name: name.startswith(_STEP))) for part in ranges])
    rows = zip(chosen.start_ns.tolist(), chosen.name.tolist(), chosen.duration_ns.tolist(), strict=True)
    named = sorted((start, linked.trace.names[name], duration) for start, name, duration in rows)
    return [(name, duration / 1000) for _, name, duration in named]


def _collectives(linked: LinkedTrace) -> dict[str, tuple[int, float]]:
    found: dict[str, tuple[int, int]] = {}
    work = linked.work
    for number in distinct(work.collective[work.collective > ABSENT]):
        own = work.collective == number
        name = linked.trace.collectives[number].name
        count, total = found.get(name, (0, 0))
        found[name] = (count + int(own.sum()), total + int(work.duration_ns[own].sum()))
    return {name: (count, total / 1000) for name, (count, total) in found.items()}


def _annotations(linked: LinkedTrace) -> list[tuple[str, int]]:
    names, first, counts = np.unique(linked.trace.annotation.name, return_index=True, return_counts=True)
    order = np.lexsort((first, -counts))[:_TOP_ANNOTATIONS]
    return [(linked.trace.names[names[row]], int(counts[row])) for row in order]


def _by_name(linked: LinkedTrace, spans: Spans) -> dict[str, tuple[int, int]]:
    """Count and sum of durations (ns) of each name."""
    names = linked.trace.names
    total = summed(spans.name, spans.duration_ns, len(names))
    count = np.bincount(spans.name, minlength=len(names))
    return {names[number]: (int(count[number]), int(total[number])) for number in np.flatnonzero(count)}


def _idle_pct(work: Spans) -> float | None:
    busy = Coverage(work.start_ns, work.end_ns)
    return _percent(busy.length_ns - busy.total_ns, busy.length_ns) if len(work) else None


def _percent(part_ns: int, whole_ns: int) -> float:
    return 100 * part_ns / whole_ns if whole_ns else 0.0
