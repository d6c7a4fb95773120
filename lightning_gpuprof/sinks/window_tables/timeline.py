"""One table of everything in the lanes of a window's timeline."""

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.phases import PHASE_TERMS, Phase, words_of
from lightning_gpuprof.model.trace.idle import IDLE_CAUSE_TERMS, IDLE_CAUSES, IdleCause
from lightning_gpuprof.model.trace.step_trace import WHOLE_WINDOW
from lightning_gpuprof.model.trace.timeline import LaneSum, PartKind, Timeline, TimelineLane
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import COUNT, PERCENT, US_AS_MS, Column, Table, bar
from lightning_gpuprof.sinks.window_tables import short_names
from lightning_gpuprof.sinks.window_tables.idle import cause_word

NAME_CELLS = 60
_STEP = "ProfilerStep#"
_CAUSES: dict[str, IdleCause] = {cause: cause for cause in IDLE_CAUSES}
_PHASES: dict[str, Phase] = {phase: phase for phase in PHASE_TERMS}

_CALLS: frozenset[PartKind] = frozenset({"launch", "wait", "memory", "call"})
_SEVERAL: dict[PartKind, str] = {
    "operator": "other operators",
    "launch": "other launches",
    "wait": "other waits",
    "memory": "other allocations",
    "call": "other calls",
    "compute": "other kernels",
    "communication": "other communication",
    "copy": "other copies",
}


def step_name(timeline: Timeline) -> str:
    """Which step it is: ``step 7, the median of 5``."""
    if timeline.step == WHOLE_WINDOW:
        return "the whole window, which has no steps"
    name = f"step {plain.name(timeline.step.removeprefix(_STEP), 12)}"
    return name if timeline.steps < 2 else f"{name}, the median of {numbers.count(timeline.steps)}"


def lane_name(lane: TimelineLane) -> str:
    """What a lane shows: ``GPU 0 stream 7``."""
    if lane.device is not None:
        device = plain.device(lane.device, 20)
        if lane.kind == "idle":
            return f"{device} idle"
        return device if lane.stream is None else f"{device} stream {lane.stream}"
    if lane.main or lane.thread is None:
        return lane.kind
    return f"{lane.kind}, thread {plain.name(lane.thread.rpartition('/')[2], 12)}"


def part_name(lane: TimelineLane, name: str, kind: PartKind, limit: int = NAME_CELLS) -> str:
    """The name of a part as people read it.

    Args:
        lane: The lane that it is in.
        name: As the trace has it; empty for several parts in one.
        kind: What the part is.
        limit: Characters at the most.

    Returns:
        Hidden characters are escapes; ``other kernels`` and such for several parts in one.
    """
    if not name:
        return _SEVERAL.get(kind, "others")
    if lane.kind == "idle":
        return cause_word(_CAUSES[name]) if name in _CAUSES else plain.name(name, limit)
    if lane.kind == "stream":
        return short_names.work(name, limit)
    return plain.name(words_of(name) if kind == "phase" else name, limit)


def part_key(name: str, kind: PartKind) -> str:
    """The key of a part's colour.

    Args:
        name: As the trace has it.
        kind: What the part is.

    Returns:
        A phase, ``idle_`` and a cause, ``call_`` and a kind, or the kind:
        :func:`~lightning_gpuprof.sinks.html_page.colour` takes it.
    """
    if kind == "phase":
        return _PHASES.get(name, "loop")
    if kind == "idle":
        return f"idle_{_CAUSES.get(name, 'unexplained')}"
    return f"call_{kind}" if kind in _CALLS else kind


def timeline_table(timeline: Timeline) -> Table:
    """Everything in the lanes of the step by name: phases and causes all, operators, calls and kernels the longest."""
    length = numbers.seconds(timeline.duration_us / 1e6)

    def share(row: tuple[TimelineLane, LaneSum]) -> float | None:
        return row[1].time_us / timeline.duration_us if timeline.duration_us else None

    return Table.of(
        f"One step, moment by moment: {step_name(timeline)} ({length} on the host)",
        [(lane, row) for lane in timeline.lanes for row in lane.sums],
        Column("row", lambda row: lane_name(row[0]), help="phases, operators and calls are on the host"),
        Column("what", lambda row: part_name(row[0], row[1].name, row[1].kind), hover=lambda row: _term(row[1])),
        bar(share, lambda row: part_key(row[1].name, row[1].kind)),
        Column("time", lambda row: row[1].time_us, US_AS_MS, help="within the step; inflated by tracing on the host"),
        Column("share", share, PERCENT, help="share of the step; adds up to what the row covers"),
        Column("count", lambda row: row[1].count, COUNT, help="calls, kernels, or stretches of time"),
        absent="The step has no timed events.",
    )


def _term(row: LaneSum) -> str:
    if row.kind == "idle" and row.name in _CAUSES:
        return IDLE_CAUSE_TERMS[_CAUSES[row.name]]
    return PHASE_TERMS[_PHASES[row.name]] if row.kind == "phase" and row.name in _PHASES else ""
