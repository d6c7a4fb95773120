"""What device time belongs to: operator, module, line of user code and phase."""

import numpy as np

from lightning_gpuprof.model.phases import PHASES
from lightning_gpuprof.model.trace.attribution import (
    Attributed,
    Attribution,
    Level,
    LineTime,
    ModuleTime,
    PhaseTime,
    Reason,
    Unattributed,
)
from lightning_gpuprof.trace.analyses.code.waits import launches_into_full_queue, waits_of
from lightning_gpuprof.trace.analyses.joins.call_places import CallPlaces, call_places
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import exclusive_ns, take_or_absent
from lightning_gpuprof.trace.tables import ABSENT, Int64, Mask, Rows, is_in, ratio, summed


def attribution(linked: LinkedTrace) -> Attribution:
    """Attribute the time of the devices to the code that launched it.

    A kernel belongs to the call that launched it, by its correlation id; the call to what was running on its thread.
    What a backward pass launched belongs to the forward operator that made the autograd node, and so to that
    operator's line and module.

    Returns:
        The attribution; its tables are empty where the trace has no stacks, modules or phases.
    """
    places = call_places(linked)
    time = _DeviceTime(linked, places)
    blocked = waits_of(linked).calls
    queued = launches_into_full_queue(linked)
    queued = queued[~is_in(queued, blocked)]
    duration_ns = linked.trace.runtime.duration_ns
    full_queue_ns = int(duration_ns[queued].sum())
    return Attribution(
        stacks=places.source.stacks,
        device_us=time.total_ns / 1000,
        levels=tuple(_levels(linked, places, time)),
        lines=_lines(linked, places, time, np.concatenate((blocked, queued))),
        modules=_modules(linked, places, time),
        phases=_phases(time),
        blocked_us=(int(duration_ns[blocked].sum()) + full_queue_ns) / 1000,
        full_queue_us=full_queue_ns / 1000,
    )


class _DeviceTime:
    """Device work by the place of its launch; columns have one row for each device work."""

    def __init__(self, linked: LinkedTrace, places: CallPlaces) -> None:
        self.duration_ns = linked.work.duration_ns
        self.total_ns = int(self.duration_ns.sum())
        first = len(linked.trace.kernel)
        rows = np.arange(len(linked.work))
        self.is_copy: Mask = (rows >= first) & (rows < first + len(linked.trace.memcpy))
        self.launched = linked.launched
        self.line = take_or_absent(places.line, linked.launch)
        self.module = take_or_absent(places.module, linked.launch)
        self.phase = take_or_absent(places.phase, linked.launch)
        self.operator = linked.operator
        self.backward = take_or_absent(places.in_backward, linked.launch) > 0
        self.forward = take_or_absent(places.forward, linked.launch)

    def ratio(self, ns: int) -> float | None:
        return ratio(ns, self.total_ns)

    def by(self, place: Rows, count: int, chosen: Mask | None = None) -> tuple[Int64, Int64]:
        """Time and number of the works at each place."""
        known = place > ABSENT if chosen is None else chosen & (place > ABSENT)
        return summed(place[known], self.duration_ns[known], count), np.bincount(place[known], minlength=count)


def _levels(linked: LinkedTrace, places: CallPlaces, time: _DeviceTime) -> list[Attributed]:
    of_level: dict[Level, tuple[Rows, bool]] = {
        "operator": (time.operator, bool(len(linked.trace.cpu_op))),
        "module": (time.module, places.modules.recorded),
        "line": (time.line, places.source.stacks is not None),
        "phase": (time.phase, bool(len(linked.phases.ranges)) or bool((time.phase > ABSENT).any())),
    }
    levels = []
    for level, (place, recorded) in of_level.items():
        left = place == ABSENT
        attributed_ns = int(time.duration_ns[~left].sum())
        reasons: dict[Reason, Mask] = {
            "launch_unknown": ~time.launched,
            "not_recorded": np.full(len(left), not recorded),
            "forward_unknown": time.backward & (time.forward == ABSENT) & np.bool_(level in ("line", "module")),
            "outside": np.ones(len(left), np.bool_),
        }
        rest = []
        for reason, holds in reasons.items():
            if (left & holds).any():
                ns = int(time.duration_ns[left & holds].sum())
                rest.append(Unattributed(reason=reason, device_us=ns / 1000))
            left = left & ~holds
        rest.sort(key=lambda one: -one.device_us)
        levels.append(
            Attributed(level=level, device_us=attributed_ns / 1000, ratio=time.ratio(attributed_ns), rest=tuple(rest))
        )
    return levels


def _lines(linked: LinkedTrace, places: CallPlaces, time: _DeviceTime, waiting: Rows) -> tuple[LineTime, ...]:
    count = len(places.lines)
    device_ns, kernels = time.by(time.line, count)
    backward_ns, _ = time.by(time.line, count, time.backward)
    host_ns = _host_ns(linked, places)
    hits = _hits(linked, places)
    moved = (time.line > ABSENT) & time.is_copy
    copied_bytes = summed(time.line[moved], np.maximum(linked.work.size_bytes[moved], 0), count)
    of_call = places.line[waiting]
    known = of_call > ABSENT
    weights = linked.trace.runtime.duration_ns[waiting[known]]
    blocked_ns = summed(of_call[known], weights, count)
    seen = np.flatnonzero((device_ns > 0) | (host_ns > 0) | (blocked_ns > 0) | (hits > 0))
    order = sorted(seen.tolist(), key=lambda row: (-device_ns[row], -host_ns[row], row))
    return tuple(
        LineTime(
            line=places.lines[row],
            hits=int(hits[row]),
            host_us=int(host_ns[row]) / 1000,
            device_us=int(device_ns[row]) / 1000,
            backward_us=int(backward_ns[row]) / 1000,
            blocked_us=int(blocked_ns[row]) / 1000,
            device_ratio=time.ratio(int(device_ns[row])),
            copied_bytes=int(copied_bytes[row]),
            kernels=int(kernels[row]),
        )
        for row in order
    )


def _host_ns(linked: LinkedTrace, places: CallPlaces) -> Int64:
    """Time of the main thread in which each line was the innermost of user code."""
    count = len(places.lines)
    if len(linked.trace.python_function):
        frames = linked.trace.python_function
        user = places.source.user_frame
        rows = np.flatnonzero((user == np.arange(len(user))) & (frames.thread == linked.main_thread))
        around = take_or_absent(user, linked.frames.parent[rows])
        line, spans = places.source.line_of_frame, frames.spans
    else:
        ops = linked.trace.cpu_op
        line, spans = places.source.line_of_operator, ops.spans
        rows = np.flatnonzero((line > ABSENT) & (ops.thread == linked.main_thread))
        around = np.where(
            take_or_absent(line, linked.operators.parent[rows]) > ABSENT, linked.operators.parent[rows], ABSENT
        )
    parent: Rows = np.full(len(spans), ABSENT, np.intp)
    parent[rows] = around
    own_ns = exclusive_ns(spans.start_ns, spans.end_ns, parent)
    return summed(line[rows], own_ns[rows], count)


def _hits(linked: LinkedTrace, places: CallPlaces) -> Int64:
    """Operators outside of backward passes that each line called."""
    line = places.source.line_of_operator
    called = (line > ABSENT) & ~places.backward.is_backward
    called &= line != take_or_absent(line, linked.operators.parent)
    return np.bincount(line[called], minlength=len(places.lines))


def _modules(linked: LinkedTrace, places: CallPlaces, time: _DeviceTime) -> tuple[ModuleTime, ...]:
    names, parents, whole_names = places.modules.names, places.modules.parents, places.modules.whole_names
    facts = linked.trace.about.modules
    steps_ns = int((linked.steps.end_ns - linked.steps.start_ns).sum())
    own_ns, kernels = time.by(time.module, len(names))
    backward_ns, _ = time.by(time.module, len(names), time.backward)
    calls, host_ns, own_host_ns = places.modules.host_ns()
    sums = np.stack((own_ns, backward_ns, kernels, _backward_host_ns(linked, places))).T.tolist()
    inner: list[list[int]] = [[] for _ in names]
    for path in range(len(names) - 1, -1, -1):  # a path comes after the one around it
        if parents[path] > ABSENT:
            inner[parents[path]].append(path)
            sums[parents[path]] = [a + b for a, b in zip(sums[parents[path]], sums[path], strict=True)]
    modules: list[ModuleTime] = []
    waiting: list[tuple[int, tuple[str, ...]]] = [(p, ()) for p in range(len(names)) if parents[p] == ABSENT]
    order = [(device_ns, int(host_ns[path])) for path, (device_ns, *_) in enumerate(sums)]
    waiting.sort(key=lambda one: order[one[0]])
    while waiting:
        path, outer = waiting.pop()
        device_ns, of_backward_ns, count, backward_host_ns = sums[path]
        chain = (*outer, names[path])
        kind, parameters = facts.get(whole_names[path], ("", None))
        modules.append(
            ModuleTime(
                path=chain,
                calls=int(calls[path]),
                host_us=int(host_ns[path]) / 1000,
                own_host_us=int(own_host_ns[path]) / 1000,
                backward_host_us=backward_host_ns / 1000,
                host_ratio=ratio(int(host_ns[path]) + backward_host_ns, steps_ns),
                device_us=device_ns / 1000,
                own_us=int(own_ns[path]) / 1000,
                backward_us=of_backward_ns / 1000,
                device_ratio=time.ratio(device_ns),
                kernels=count,
                parameters=parameters,
                type=kind,
            )
        )
        waiting += [(one, chain) for one in sorted(inner[path], key=lambda one: order[one])]
    return tuple(modules)


def _backward_host_ns(linked: LinkedTrace, places: CallPlaces) -> Int64:
    """Time of the host in the backward of the operators of each module, not of those in it."""
    module = take_or_absent(places.module_of_operator, places.backward.forward_of_operator)
    known = module > ABSENT
    return summed(module[known], linked.operators.exclusive_ns[known], len(places.modules.names))


def _phases(time: _DeviceTime) -> tuple[PhaseTime, ...]:
    device_ns, kernels = time.by(time.phase, len(PHASES))
    order = sorted(np.flatnonzero(kernels).tolist(), key=lambda row: -device_ns[row])
    return tuple(
        PhaseTime(
            phase=PHASES[row],
            device_us=int(device_ns[row]) / 1000,
            device_ratio=time.ratio(int(device_ns[row])),
            kernels=int(kernels[row]),
        )
        for row in order
    )
