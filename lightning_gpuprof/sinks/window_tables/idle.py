"""Tables of when, why and how long a window's devices were idle."""

from typing import NamedTuple

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.model.trace.idle import (
    IDLE_CAUSE_TERMS,
    LONG_GAP_US,
    DeviceIdle,
    Idle,
    IdleCause,
    IdleGap,
    IdleShare,
    StepIdle,
)
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import COUNT, PERCENT, US_AS_MS, Column, Table, bar, name
from lightning_gpuprof.sinks.window_tables import short_names
from lightning_gpuprof.sinks.window_tables.short_names import ms

STEP_CAUSES = 4
"""Causes that have a column of their own in the table of steps."""
MAX_STEPS = 20
MAX_GAPS = 10

_NAME = 60
_PREFIX = "ProfilerStep#"

_WORDS: dict[IdleCause, str] = {
    "host_sync": "host sync",
    "between_steps": "between steps",
    "host_work": "host work",
    "launch": "slow launches",
    "launch_latency": "launch latency",
    "back_to_back": "back to back",
}


def cause_word(cause: IdleCause) -> str:
    """The cause as people read it."""
    return _WORDS.get(cause, cause)


def chunk_table(device: DeviceIdle) -> Table:
    """How busy the device was in equal parts of its window; the parts below half are what nsys warns of."""
    chunk_us = device.window_us / len(device.chunks) if device.chunks else 0.0
    long_gaps = f"{numbers.counted(device.long_gaps, 'gap')} of {numbers.seconds(LONG_GAP_US / 1e6)} or more"
    if device.long_gaps:
        long_gaps += f", together {numbers.seconds(device.long_gaps_us / 1e6)}"
    return Table.of(
        f"{plain.device(device.device)} in {len(device.chunks)} equal parts; {long_gaps}",
        list(enumerate(device.chunks)),
        Column("from", lambda part: part[0] * chunk_us, US_AS_MS, help="since the first kernel or copy"),
        bar(lambda part: part[1], "forward"),
        Column("busy", lambda part: part[1], PERCENT),
        absent=f"{plain.device(device.device)} was active too briefly to divide its window.",
    )


def cause_table(device: DeviceIdle) -> Table:
    """Why the device was idle, longest first; the causes sum to the last row."""
    longest = device.causes[0].idle_ratio if device.causes else 0.0
    total = IdleSum(idle_us=device.idle_us, idle_ratio=1.0, window_ratio=device.idle_ratio, gaps=device.gaps)
    rows: list[IdleShare | IdleSum] = [*device.causes, total] if device.causes else []
    window = f"{numbers.significant(device.window_us / 1e3)} ms from the first to the last kernel or copy"
    return Table.of(
        f"Why {plain.device(device.device)} was idle",
        rows,
        Column(
            "cause",
            lambda row: "all idle time" if isinstance(row, IdleSum) else cause_word(row.cause),
            help="each moment of idle time has one cause; together they are all of it",
            hover=lambda row: _ALL_IDLE if isinstance(row, IdleSum) else IDLE_CAUSE_TERMS[row.cause],
        ),
        bar(
            lambda row: 0.0 if isinstance(row, IdleSum) else row.idle_ratio / longest,
            lambda row: "" if isinstance(row, IdleSum) else f"idle_{row.cause}",
        ),
        Column("idle", lambda row: row.idle_us, US_AS_MS, help="no stream of the device was busy"),
        Column("of idle", lambda row: row.idle_ratio, PERCENT, help="share of all idle time; adds up to 100 %"),
        Column("of window", lambda row: row.window_ratio, PERCENT, help=f"share of {window}"),
        Column("gaps", lambda row: row.gaps, COUNT, help="gaps in which this cause occurs; a gap can have several"),
        absent=f"{plain.device(device.device)} was never idle between its first and last kernel.",
        foot=1 if rows else 0,
    )


def host_table(device: DeviceIdle) -> Table:
    """What the host did while it launched too slowly or was at other work."""
    host = device.host
    recorded = host.operators_us is not None
    outside = "outside both" if recorded else "outside such calls; operators were not recorded"
    rows = [
        ("CUDA or HIP calls", host.calls_us, "launches and other calls of the runtime and driver"),
        *([("operators", host.operators_us or 0.0, "torch operators, outside such calls")] if recorded else []),
        (
            "Python and others" if recorded else "anything else",
            host.elsewhere_us,
            f"{outside}: Python, or unrecorded work",
        ),
    ]
    total_us = sum(spent_us for _, spent_us, _ in rows)
    return Table.of(
        f"What the host did while {plain.device(device.device)} waited for a launch",
        rows if total_us > 0 else (),
        Column("host in", lambda row: row[0], hover=lambda row: row[2]),
        bar(lambda row: row[1] / total_us, "idle_launch"),
        Column(
            "idle", lambda row: row[1], US_AS_MS, help="adds up to host work plus slow launches; inflated by tracing"
        ),
        Column("share", lambda row: row[1] / total_us, PERCENT),
        absent=f"{plain.device(device.device)} waited neither for slow launches nor for other host work.",
    )


def step_table(device: DeviceIdle) -> Table:
    """Busy share of each step, and its idle time by the device's largest causes."""
    named = _largest_of_steps(device.steps)
    columns: list[Column[StepIdle]] = [
        Column(
            "step",
            lambda step: step.step.removeprefix(_PREFIX),
            name(12),
            help="ProfilerStep range on the host; the device may still run earlier work",
        ),
        Column("length", lambda step: step.step_us, US_AS_MS, help="on the host; inflated by tracing"),
        Column("busy", lambda step: step.busy_ratio, PERCENT, help="share of the step in which a stream was busy"),
        Column("idle", lambda step: step.idle_us, US_AS_MS, help="the rest; the next columns add up to it"),
        *(_of_cause(cause) for cause in named),
    ]
    if any(cause not in named for step in device.steps for cause in step.causes_us):
        columns.append(
            Column(
                "other",
                lambda step: sum(us for cause, us in step.causes_us.items() if cause not in named),
                US_AS_MS,
                help="all other causes",
            )
        )
    return Table.of(
        f"Idle time in each step, inside the window of {plain.device(device.device)}",
        device.steps,
        *columns,
        limit=MAX_STEPS,
        absent="The trace has no steps (ProfilerStep ranges), so idle time cannot be split by step.",
    )


def longest_table(device: DeviceIdle) -> Table:
    """The longest gaps, with what the host did and in which line."""
    shown = device.longest[:MAX_GAPS]
    lines = tuple(gap.line for gap in shown if gap.line)
    what = short_names.line_or_function(*lines)
    return Table.of(
        f"Longest gaps of {plain.device(device.device)}",
        shown,
        *_WHEN,
        Column("cause", lambda gap: cause_word(gap.cause), help="the cause of most of the gap", hover=_mixture),
        Column(
            "step",
            lambda gap: gap.step.removeprefix(_PREFIX) if gap.step else None,
            name(12),
            help="the host's step in the middle of its part of the gap",
        ),
        Column(
            "host in",
            lambda gap: short_names.host(gap.host, _NAME) if gap.host else words_of(gap.phase or numbers.ABSENT),
            help="innermost operator, range, call or function that the host was in for most of the gap",
            hover=lambda gap: (
                f"{numbers.exact_percent(gap.host_ratio)} of the time that the host was late" if gap.host else ""
            ),
        ),
        Column(
            what,
            lambda gap: short_names.code_line(gap.line, _NAME) if gap.line else None,
            help=short_names.line_meaning(lines),
            hover=lambda gap: short_names.line_hover(gap.line, what) if gap.line else "",
        ),
        absent=f"{plain.device(device.device)} was never idle between its first and last kernel.",
    )


def neighbour_table(device: DeviceIdle) -> Table:
    """The longest gaps, with the work before and after and who launched it."""
    return Table.of(
        f"Kernels and copies around the longest gaps of {plain.device(device.device)}",
        device.longest[:MAX_GAPS],
        *_WHEN,
        Column("before", lambda gap: short_names.work(gap.before, _NAME)),
        Column("after", lambda gap: short_names.work(gap.after, _NAME)),
        Column("operator", lambda gap: gap.operator or None, name(_NAME), help="that launched what follows the gap"),
        Column(
            "thread",
            lambda gap: gap.launch_thread.rpartition("/")[2] if gap.launch_thread else None,
            name(12),
            help="that launched it",
        ),
        absent=f"{plain.device(device.device)} was never idle between its first and last kernel.",
    )


def unseen_sentence(idle: Idle) -> str:
    """Which causes the trace could not show, empty if it could show all."""
    if not idle.unseen:
        return ""
    words = ", ".join(cause_word(cause) for cause in idle.unseen)
    return f"Not recorded: {words}. Such time counts as host work or slow launches."


def _mixture(gap: IdleGap) -> str:
    """``data 56.8 ms, slow launches 0.5 ms``."""
    largest = sorted(gap.causes_us.items(), key=lambda item: -item[1])
    return ", ".join(f"{cause_word(cause)} {ms(us)}" for cause, us in largest)


def _largest_of_steps(steps: tuple[StepIdle, ...]) -> list[IdleCause]:
    total_us: dict[IdleCause, float] = {}
    for step in steps:
        for cause, us in step.causes_us.items():
            total_us[cause] = total_us.get(cause, 0.0) + us
    return sorted(total_us, key=lambda cause: -total_us[cause])[:STEP_CAUSES]


_ALL_IDLE = "the window minus the time in which at least one stream was busy"


class IdleSum(NamedTuple):
    """All causes together."""

    idle_us: float
    idle_ratio: float
    window_ratio: float | None
    gaps: int


def _of_cause(cause: IdleCause) -> Column[StepIdle]:
    return Column(
        cause_word(cause), lambda step: step.causes_us.get(cause, 0.0), US_AS_MS, help=IDLE_CAUSE_TERMS[cause]
    )


_WHEN: tuple[Column[IdleGap], ...] = (
    Column("at", lambda gap: gap.start_us, US_AS_MS, help="from the start of the first kernel or copy"),
    Column("length", lambda gap: gap.duration_us, US_AS_MS),
)
