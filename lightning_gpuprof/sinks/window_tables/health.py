"""The health tables of a trace."""

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.trace.health import Health
from lightning_gpuprof.sinks.tables import COUNT, FIGURE, SENTENCE, Column, Table, name, sentence_table
from lightning_gpuprof.sinks.window_tables.short_names import ms


def problem_table(health: Health) -> Table:
    """What makes numbers of the trace doubtful, then what to know when reading them."""
    return sentence_table(
        "Can the trace be trusted?", (*health.problems, *health.notes), "No problem found in this trace."
    )


def health_table(health: Health) -> Table:
    """What was counted."""
    rows = (
        ("entries in the file", numbers.count(health.events), ""),
        ("size of the JSON", numbers.size(health.bytes_json), "decompressed"),
        ("window", ms(health.window_us), "from the first start to the last end, on host and device"),
        ("device window", ms(health.device_window_us), ""),
        ("steps", numbers.count(health.steps), "ProfilerStep# ranges"),
        ("kernel launches", numbers.count(health.kernel_launches), "calls that launch kernels or graphs"),
        ("without a kernel", numbers.count(health.kernel_launches_without_work), "their kernels were not recorded"),
        ("device activities", numbers.count(health.device_work), "kernels, copies and memsets"),
        ("with a recorded launch", numbers.count(health.work_matched), ""),
        ("launched before the window", numbers.count(health.work_launched_before), "operator and phase are not known"),
        (
            "launch missing",
            numbers.count(health.work_launch_lost),
            "launched in the window, but the call was not recorded",
        ),
        ("started before its launch", numbers.count(health.starts_before_launch), "clock skew"),
        ("overlaps in a stream", numbers.count(health.overlaps_in_stream), "starts before the previous one ended"),
        (
            "crossing operators",
            numbers.count(health.crossing_operators),
            "end after the operator in which they started",
        ),
        (
            "resolution",
            numbers.ABSENT if health.resolution_ns is None else f"{health.resolution_ns} ns",
            "of all timestamps",
        ),
        ("profiler overhead", ms(health.profiler_overhead_us), "as far as reported"),
    )
    return Table.of(
        "Trace",
        rows,
        Column("what", lambda row: row[0], hover=lambda row: row[2]),
        Column("value", lambda row: row[1], FIGURE),
        Column("meaning", lambda row: row[2]),
    )


def signal_table(health: Health) -> Table:
    """What the trace holds, and what follows where something is missing."""
    return Table.of(
        "Signals",
        health.signals,
        Column("signal", lambda one: one.name),
        Column(
            "recorded",
            lambda one: {True: "yes", False: "no", None: numbers.ABSENT}[one.present],
            help="-: not recorded, or not applicable",
        ),
        Column(
            "events",
            lambda one: numbers.count(one.count) if one.count else numbers.ABSENT,
            FIGURE,
            help="events that have it",
        ),
        Column("without it", lambda one: one.without, SENTENCE),
        Column("to record it", lambda one: one.advice, SENTENCE),
        absent="No signal was looked for.",
    )


def launch_call_table(health: Health) -> Table:
    """Calls that can start device work, and how many of them did."""
    return Table.of(
        "Launches",
        health.calls,
        Column("call", lambda one: one.name, name(50)),
        Column("count", lambda one: one.count, COUNT),
        Column("with work", lambda one: one.with_work, COUNT, help="whose kernel or copy is in the trace"),
        Column("without", lambda one: one.without_work, COUNT, help="copies and memsets of no bytes start nothing"),
        absent="The trace has no launch calls.",
    )


def category_table(health: Health) -> Table:
    """Spans of each category."""
    return Table.of(
        "Categories",
        sorted(health.categories.items(), key=lambda item: (-item[1], item[0])),
        Column("category", lambda row: row[0], name(40), help="as spelled in the file"),
        Column("spans", lambda row: row[1], COUNT),
        absent="The trace has no spans.",
    )
