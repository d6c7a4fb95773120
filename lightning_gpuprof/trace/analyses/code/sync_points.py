"""Where the host waited for the device, and how long the device then was idle."""

import re

import numpy as np

from lightning_gpuprof.model.phases import PHASES
from lightning_gpuprof.model.trace.sync_points import SyncPoints, SyncSite
from lightning_gpuprof.trace.analyses.code.waits import Waits, operation_of_call, waits_of
from lightning_gpuprof.trace.analyses.joins.call_places import call_places
from lightning_gpuprof.trace.analyses.joins.grouped import Groups, groups_of
from lightning_gpuprof.trace.host_phases import LIGHTNING
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import Nesting, take_or_absent
from lightning_gpuprof.trace.steps import STEP
from lightning_gpuprof.trace.tables import ABSENT, Int64, Mask, Rows, distinct, ratio

_CONVOLUTION = re.compile(r"^aten::_?(cudnn_|miopen_)?conv(olution|_transpose|[123]d|_)")
_WAITS_FOR_EVENT = re.compile(r"^(cuda|hip)EventSynchronize")
_WAITS_FOR_DEVICE = re.compile(r"^(cuda|hip)DeviceSynchronize")


def sync_points(linked: LinkedTrace) -> SyncPoints:
    """Find where the host waited for the device, and what it cost.

    Returns:
        All sync points; empty without a GPU or without waits.
    """
    trace = linked.trace
    waits = waits_of(linked)
    idle_after_ns, cost_ns, idle_ns = idle_after(linked, waits)
    in_step = linked.steps.at(waits.start_ns) > ABSENT
    steps = len(linked.steps)
    synchronises = linked.named(trace.runtime, lambda name: "synchronize" in name.lower())
    item = linked.named(trace.cpu_op, lambda name: name == "aten::item")
    trials = _trials(linked, waits)

    def per_step(values: Int64) -> float | None:
        return ratio(int(values[in_step].sum()) / 1000, steps)

    return SyncPoints(
        devices=len(linked.device_rows),
        sites=_sites(linked, waits, idle_after_ns, cost_ns),
        count=len(waits),
        blocked_us=int(waits.blocked_ns.sum()) / 1000,
        idle_after_us=int(idle_after_ns.sum()) / 1000,
        cost_us=int(cost_ns.sum()) / 1000,
        idle_us=idle_ns / 1000,
        cost_ratio=ratio(int(cost_ns.sum()), idle_ns),
        steps=steps,
        count_per_step=ratio(int(in_step.sum()), steps),
        blocked_us_per_step=per_step(waits.blocked_ns),
        idle_after_us_per_step=per_step(idle_after_ns),
        cost_us_per_step=per_step(cost_ns),
        left_out_calls=waits.left_out,
        synchronize_calls=int(synchronises.sum()),
        synchronize_us=int(trace.runtime.duration_ns[synchronises].sum()) / 1000,
        item_calls=int(item.sum()),
        item_us=int(trace.cpu_op.duration_ns[item].sum()) / 1000,
        timed_convolutions=len(trials),
        timed_convolutions_us=int(_trial_ns(linked, waits, trials).sum()) / 1000,
        steps_with_timed_convolutions=len(set(linked.steps.at(waits.start_ns[trials]).tolist()) - {ABSENT}),
    )


def _trials(linked: LinkedTrace, waits: Waits) -> Rows:
    """Which waits are convolutions that time algorithms: only for that the host waits for events inside of them.

    cuDNN's frontend waits for the whole device first, then runs each algorithm twice, and waits for an event after the
    second run (``time_sorted_plan`` in ``cudnn_frontend_find_plan.h``).
    """
    is_convolution = linked.named(linked.trace.cpu_op, lambda name: _CONVOLUTION.search(name) is not None)
    for_event = linked.named(linked.trace.runtime, lambda name: _WAITS_FOR_EVENT.search(name) is not None)
    has_event = np.zeros(len(waits), np.bool_)
    has_event[waits.wait_of_call[for_event[waits.calls]]] = True
    return np.flatnonzero(has_event & (take_or_absent(is_convolution, waits.operator) == 1))


def _trial_ns(linked: LinkedTrace, waits: Waits, trials: Rows) -> Int64:
    """Host time of operators that time algorithms, without that in which a device did what was launched before."""
    calls, ops = linked.trace.runtime, linked.trace.cpu_op
    start_ns, end_ns = ops.start_ns[waits.operator[trials]], ops.end_ns[waits.operator[trials]]
    first = waits.first_call[trials]
    drains = linked.named(calls, lambda name: _WAITS_FOR_DEVICE.search(name) is not None)[first]
    drained_ns = np.where(drains, calls.end_ns[first], start_ns)
    earlier_ns = np.zeros(len(trials), np.int64)
    for busy in linked.device_busy.values():
        earlier_ns = np.maximum(earlier_ns, busy.up_to(drained_ns) - busy.up_to(start_ns))
    return end_ns - start_ns - earlier_ns


def idle_after(linked: LinkedTrace, waits: Waits) -> tuple[Int64, Int64, int]:
    """Idle time of the devices that follows each wait, the part that the wait caused, and all idle time.

    An idle time counts for the last wait that ended before the launch of the work that ends it, if the device ran dry
    before that wait was over: else it had other work left, from another stream or thread. So it is the first work
    launched after the wait that ends the idle time. What was idle before the wait began does not count.

    Args:
        linked: The trace.
        waits: The host's waits.

    Returns:
        Two columns with one row for each wait, and one sum, in nanoseconds.
    """
    idle_after_ns, cost_ns = np.zeros(len(waits), np.int64), np.zeros(len(waits), np.int64)
    idle_ns = 0
    step = linked.steps.at(waits.start_ns)
    for device, rows in linked.device_rows.items():
        busy = linked.device_busy[device]
        dry_ns, again_ns = busy.end_ns[:-1], busy.start_ns[1:]
        idle_ns += int((again_ns - dry_ns).sum())
        if not len(waits) or not len(dry_ns):
            continue
        order = rows[np.argsort(linked.work.start_ns[rows], kind="stable")]
        ending = order[np.searchsorted(linked.work.start_ns[order], again_ns)]
        wait = np.searchsorted(waits.end_ns, linked.launch_start_ns[ending], "right") - 1
        kept = np.flatnonzero(linked.launched[ending] & (wait >= 0))
        kept = kept[dry_ns[kept] <= waits.end_ns[wait[kept]]]
        dry_ns, again_ns, wait = dry_ns[kept], again_ns[kept], wait[kept]
        after_ns = np.zeros(len(waits), np.int64)
        np.add.at(after_ns, wait, again_ns - np.maximum(dry_ns, waits.start_ns[wait]))
        idle_after_ns += after_ns
        cost_ns += _caused(after_ns, waits.blocked_ns, step)
    return idle_after_ns, cost_ns, idle_ns


def _caused(after_ns: Int64, blocked_ns: Int64, step: Rows) -> Int64:
    """Of the idle time after each wait what the waits up to it have caused: no more than the host was blocked in them.

    The host's lead that waits have taken, as a sum over a step: G(j) = min(G(j - 1) + after(j), blocked(0) + … +
    blocked(j)). Waits outside of steps stand alone.
    """
    caused_ns = np.minimum(after_ns, blocked_ns)
    for number in distinct(step[step > ABSENT]).tolist():
        rows = np.flatnonzero(step == number)
        idle_ns, lead_ns = np.cumsum(after_ns[rows]), np.cumsum(blocked_ns[rows])
        taken_ns = idle_ns + np.minimum(np.minimum.accumulate(lead_ns - idle_ns), 0)
        caused_ns[rows] = np.diff(taken_ns, prepend=0)
    return caused_ns


def _sites(linked: LinkedTrace, waits: Waits, idle_after_ns: Int64, cost_ns: Int64) -> tuple[SyncSite, ...]:
    if not len(waits):
        return ()
    trace, places, call = linked.trace, call_places(linked), waits.first_call
    line, module, phase = places.line[call], places.module[call], places.phase[call]
    no_line = line == ABSENT
    name = take_or_absent(trace.cpu_op.name, waits.operator)
    name = np.where(name > ABSENT, name, trace.runtime.name[call])
    copy = _copies(linked, waits)
    annotation = _annotations(linked, waits, hidden=~no_line)
    inside = np.where(no_line, _outermost(linked, waits), ABSENT)
    groups = groups_of(name, copy, line, module, phase, annotation, inside)
    steps = len(linked.steps)
    of_steps = groups.sums((linked.steps.at(waits.start_ns) > ABSENT).astype(np.int64))
    blocked, idle_after, cost = (groups.sums(values) / 1000 for values in (waits.blocked_ns, idle_after_ns, cost_ns))
    calls = _calls(linked, waits, groups)

    def text(number: int) -> str | None:
        return None if number == ABSENT else trace.names[number]

    sites = [
        SyncSite(
            operation=trace.names[name[first]],
            calls=calls[group],
            copy=text(copy[first]),
            line=None if no_line[first] else places.lines[line[first]],
            module=None if module[first] == ABSENT else places.modules.whole_names[module[first]],
            phase=None if phase[first] == ABSENT else PHASES[phase[first]],
            annotation=text(annotation[first]),
            inside=text(inside[first]),
            count=int(groups.counts[group]),
            count_per_step=ratio(int(of_steps[group]), steps),
            blocked_us=float(blocked[group]),
            idle_after_us=float(idle_after[group]),
            cost_us=float(cost[group]),
        )
        for group, first in enumerate(groups.first.tolist())
    ]
    return tuple(sorted(sites, key=lambda site: (-site.cost_us, -site.blocked_us, -site.count, site.operation)))


def _calls(linked: LinkedTrace, waits: Waits, groups: Groups) -> list[tuple[str, ...]]:
    """The names of the calls of each group of waits."""
    calls: list[list[str]] = [[] for _ in range(len(groups))]
    names = linked.trace.runtime.name[waits.calls]
    pairs = groups_of(groups.of_row[waits.wait_of_call], names)
    for row in np.sort(pairs.first).tolist():
        calls[groups.of_row[waits.wait_of_call[row]]].append(linked.trace.names[names[row]])
    return [tuple(sorted(one)) for one in calls]


def _copies(linked: LinkedTrace, waits: Waits) -> Rows:
    """The name of the first copy between host and device that each wait made, :data:`ABSENT` for none."""
    trace = linked.trace
    is_copy = linked.named(linked.work, lambda name: name.startswith("Memcpy") and ("HtoD" in name or "DtoH" in name))
    copies = np.flatnonzero(linked.launched & is_copy)
    copies = copies[np.argsort(linked.launch_start_ns[copies], kind="stable")][::-1]  # the first is written last
    calls = linked.launch[copies]
    of_call = np.full(len(trace.runtime), ABSENT, np.intp)
    of_call[calls] = linked.work.name[copies]
    of_operator = np.full(len(trace.cpu_op), ABSENT, np.intp)
    operator = operation_of_call(linked)[calls]
    of_operator[operator[operator > ABSENT]] = linked.work.name[copies[operator > ABSENT]]
    return np.where(waits.operator > ABSENT, take_or_absent(of_operator, waits.operator), of_call[waits.first_call])


def _annotations(linked: LinkedTrace, waits: Waits, *, hidden: Mask) -> Rows:
    """The name of the innermost range around each wait that is no step, :data:`ABSENT` for none.

    Of hidden waits only Lightning's actions are named.
    """
    ranges = linked.trace.annotation
    ranges = ranges.where(~linked.named(ranges, lambda name: name.startswith(STEP)))
    thread = linked.trace.runtime.thread[waits.first_call]
    row = Nesting(ranges.start_ns, ranges.end_ns, ranges.thread).innermost(waits.start_ns, thread)
    is_action = linked.named(ranges, lambda name: name.startswith(LIGHTNING))
    shown = ~hidden | (take_or_absent(is_action, row) == 1)
    return np.where(shown, take_or_absent(ranges.name, row), ABSENT)


def _outermost(linked: LinkedTrace, waits: Waits) -> Rows:
    """The name of the outermost operator around each wait, other than its own and steps, :data:`ABSENT` for none."""
    ops = linked.trace.cpu_op
    own = np.where(waits.operator > ABSENT, waits.operator, linked.operator_of_call[waits.first_call])
    top = own.copy()
    is_step = linked.named(ops, lambda name: name.startswith(STEP))
    climbing = np.flatnonzero(top > ABSENT)
    while len(climbing):
        above = linked.operators.parent[top[climbing]]
        climbing, above = climbing[above > ABSENT], above[above > ABSENT]
        climbing, above = climbing[~is_step[above]], above[~is_step[above]]
        top[climbing] = above
    return np.where((top == own) & (waits.operator > ABSENT), ABSENT, take_or_absent(ops.name, top))
