"""The health of a trace flows in, tables for people flow out."""

from __future__ import annotations

from lightning_gpuprof.model.trace.health import Health
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table, sentence_table


def problem_table(health: Health) -> Table:
    """What makes numbers of the trace doubtful, then what to know when reading them."""
    return sentence_table(
        "Is the trace worth believing?", (*health.problems, *health.notes), "Nothing speaks against this trace."
    )


def health_table(health: Health) -> Table:
    """What was counted."""
    rows = (
        ("entries of the file", numbers.count(health.events), ""),
        ("size of the JSON", numbers.size(health.bytes_json), "decompressed"),
        ("window", _ms(health.window_us), "first start to last end of host and device"),
        ("window of the device", _ms(health.device_window_us), ""),
        ("steps", numbers.count(health.steps), "ProfilerStep# ranges"),
        ("kernel launches", numbers.count(health.kernel_launches), "calls that launch kernels or graphs"),
        ("without a kernel", numbers.count(health.kernel_launches_without_work), "their kernels were not recorded"),
        ("device work", numbers.count(health.device_work), "kernels, copies and memsets"),
        ("with its launch", numbers.count(health.work_matched), ""),
        ("launched before the window", numbers.count(health.work_launched_before), "has no operator and no phase"),
        ("launch lost", numbers.count(health.work_launch_lost), "launched in the window, but the call is missing"),
        ("starts before its launch", numbers.count(health.starts_before_launch), "clocks do not agree"),
        ("overlaps in a stream", numbers.count(health.overlaps_in_stream), "begins before the work ahead has ended"),
        ("crossing operators", numbers.count(health.crossing_operators), "outlast the one they began in"),
        (
            "resolution",
            numbers.ABSENT if health.resolution_ns is None else f"{health.resolution_ns} ns",
            "of all times",
        ),
        ("profiler's own work", _ms(health.profiler_overhead_us), "as far as it says"),
    )
    return Table(
        title="Trace",
        columns=(Column(title="what"), Column(title="value", numeric=True), Column(title="meaning")),
        rows=tuple(
            (Cell(text=what, term=meaning), Cell(text=value), Cell(text=meaning)) for what, value, meaning in rows
        ),
        absent="Nothing was counted.",
    )


def signal_table(health: Health) -> Table:
    """What the trace holds, and what follows where something is missing."""
    return Table(
        title="Signals",
        columns=(
            Column(title="signal"),
            Column(title="there", term="-: the trace does not say, or has no use for it"),
            Column(title="events", term="how many have it", numeric=True),
            Column(title="without it"),
            Column(title="to record it"),
        ),
        rows=tuple(
            (
                Cell(text=one.name),
                Cell(text={True: "yes", False: "no", None: numbers.ABSENT}[one.present]),
                Cell(text=numbers.count(one.count) if one.count else numbers.ABSENT),
                Cell(text=plain.sentence(one.without)),
                Cell(text=plain.sentence(one.advice)),
            )
            for one in health.signals
        ),
        absent="No signal was looked for.",
    )


def launch_call_table(health: Health) -> Table:
    """Calls that can start device work, and how many of them did."""
    return Table(
        title="Launches",
        columns=(
            Column(title="call"),
            Column(title="count", numeric=True),
            Column(title="with work", term="whose device work is in the trace", numeric=True),
            Column(title="without", term="a copy or memset of no bytes starts none", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=plain.name(one.name, 50)),
                Cell(text=numbers.count(one.count)),
                Cell(text=numbers.count(one.with_work)),
                Cell(text=numbers.count(one.without_work)),
            )
            for one in health.calls
        ),
        absent="The trace holds no call that starts device work.",
    )


def category_table(health: Health) -> Table:
    """Spans of each category."""
    ordered = sorted(health.categories.items(), key=lambda item: (-item[1], item[0]))
    return Table(
        title="Categories",
        columns=(Column(title="category", term="as it is spelled in the file"), Column(title="spans", numeric=True)),
        rows=tuple((Cell(text=plain.name(name, 40)), Cell(text=numbers.count(count))) for name, count in ordered),
        absent="The trace holds no spans.",
    )


def _ms(us: float | None) -> str:
    return numbers.ABSENT if us is None else f"{numbers.fixed(us / 1e3)} ms"
