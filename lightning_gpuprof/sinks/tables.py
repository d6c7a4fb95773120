"""The tables of a report; terminal, HTML and Markdown only draw them.

Text in a cell shows every character it holds (see :mod:`lightning_gpuprof.sinks.plain`), but is not escaped for any
format: that is the drawing sink's part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.phases import PARTS, PHASE_TERMS, Part, Phase, words_of
from lightning_gpuprof.model.report import OVERHEAD_TERMS, Device, Distribution, LineRow, PhaseRow, Report
from lightning_gpuprof.model.window import OperatorRow, WindowFacts
from lightning_gpuprof.sinks import plain, step_bars, wording

PART_TERMS: dict[Part, str] = {
    "setup": "from the call to the first step: loaders, model transfer, callbacks' setup",
    "sanity": "sanity validation before training",
    "train": "training steps",
    "validation": "validation runs, with their hooks",
    "validate": "steps of trainer.validate",
    "test": "steps of trainer.test",
    "predict": "steps of trainer.predict",
    "checkpoint": "checkpoints are written",
    "epoch_gap": "between the last step of an epoch and the first of the next, without validation and checkpoints",
    "teardown": "from the last step to the end of the call",
    "unexplained": "wall time without a name",
}
"""One sentence per part of the wall time, as reports explain it."""

MEDIAN = "half of the steady, untraced steps are faster"
OF_MEDIAN_STEP = "median; of an ordinary step where the medians of the phases do not sum to the median step time"
P95 = "95 % of the steady, untraced steps are faster"
_UTILIZATION = 'NVML\'s "a kernel was running": says nothing about efficiency'


class Format(msgspec.Struct, frozen=True):
    """How the values of a column are written, in which unit; a value of None is "-"."""

    show: Callable[[Any], str]
    unit: str = ""
    numeric: bool = True

    def __call__(self, value: Any) -> str:
        """The text of a value."""
        return numbers.ABSENT if value is None else self.show(value)

    def in_unit(self, unit: str, of: float = 1.0) -> Format:
        """The same for a column with a unit.

        Args:
            unit: Beside the title.
            of: So much of what is measured is one of it: 1000 for µs that are shown as ms.

        Returns:
            A new format, for numbers.
        """
        return Format((lambda value: self.show(value / of)) if of != 1.0 else self.show, unit)


TEXT = Format(str, numeric=False)
"""Text that is known to be harmless: our own words."""
NAME = Format(plain.name, numeric=False)
SENTENCE = Format(plain.sentence, numeric=False)
FIGURE = Format(str)
"""A number with its unit, written already."""
COUNT = Format(numbers.count)
NUMBER = Format(numbers.fixed)
SIGNIFICANT = Format(numbers.significant)
PERCENT = Format(numbers.exact_percent)
SIZE = Format(numbers.size)
SECONDS = Format(numbers.seconds)
US = NUMBER.in_unit("µs")
MS = NUMBER.in_unit("ms")
S = NUMBER.in_unit("s")
US_AS_MS = NUMBER.in_unit("ms", of=1e3)
GB_PER_S = NUMBER.in_unit("GB/s", of=1e9)
TFLOPS = NUMBER.in_unit("", of=1e12)
"""A rate in a column whose title is its unit."""
_BAR = Format(lambda ratio: "", numeric=False)

R = TypeVar("R")
_R = TypeVar("_R", contravariant=True)


def name(limit: int) -> Format:
    """A name of at most so many characters."""
    return Format(lambda text: plain.name(text, limit), numeric=False)


class Column(msgspec.Struct, Generic[_R], frozen=True):
    """What a column shows of each row, how, and what its heading means: for every output."""

    title: str
    value: Callable[[_R], Any]
    format: Format = TEXT
    help: str = ""
    """What the heading means, shown where it is pointed at."""
    hover: Callable[[_R], str] | None = None
    """The same of a cell."""
    key: Callable[[_R], str] | str = ""
    """Phase or part whose colour a bar has."""
    is_step: bool = False
    """It belongs to a step, as others of the table do: on a page a slider shows one of them at a time."""
    word_cells: int = 0
    """A column of text keeps words of so many letters whole on a narrow terminal, before columns of numbers."""

    @property
    def unit(self) -> str:
        """Of all values, shown beside the title."""
        return self.format.unit

    @property
    def numeric(self) -> bool:
        """Whether it holds numbers: they stand to the right and are never cut."""
        return self.format.numeric

    @property
    def bar(self) -> bool:
        """Whether the cells' ``ratio`` is drawn; their text is empty."""
        return self.format is _BAR

    def cell(self, row: _R) -> Cell:
        """What it shows of a row."""
        value = self.value(row)
        return Cell(
            text=self.format(value),
            ratio=value if self.bar else None,
            help="" if self.hover is None else self.hover(row),
            key=self.key if isinstance(self.key, str) else self.key(row),
        )


def bar(ratio: Callable[[R], float | None], key: Callable[[R], str] | str = "forward") -> Column[R]:
    """A column of bars.

    Args:
        ratio: Length of a row's bar, 0 to 1.
        key: Phase or part whose colour it has.

    Returns:
        Without a title; a row without a ratio has a bar of 0.
    """
    return Column("", lambda row: ratio(row) or 0.0, _BAR, key=key)


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One readable value."""

    text: str
    ratio: float | None = None
    """Length of the bar, 0 to 1."""
    help: str = ""
    """Explains the text."""
    key: str = ""
    """Phase or part whose colour a bar has."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows under columns, or the one sentence that says why there are none."""

    title: str
    columns: tuple[Column[Any], ...]
    rows: tuple[tuple[Cell, ...], ...]
    absent: str
    """Stands in place of the table if it has no rows."""
    foot: int = 0
    """So many of the last rows sum up or stand for the others: where rows are sorted, they stay last."""

    @classmethod
    def of(
        cls,
        title: str,
        rows: Iterable[R],
        *columns: Column[R],
        absent: str = "",
        foot: int = 0,
        limit: int | None = None,
        all_rows: int | None = None,
    ) -> Table:
        """Make a table.

        Args:
            title: Of the table.
            rows: What the columns take their values from.
            *columns: From left to right.
            absent: Stands in place of a table without rows.
            foot: So many of the last rows sum up or stand for the others.
            limit: Most rows; the title says of how many they are the first.
            all_rows: How many there are, where ``rows`` are cut already.

        Returns:
            Cells of text, in the order of the rows and columns.
        """
        rows = list(rows)
        count = len(rows) if all_rows is None else all_rows
        if limit is not None and count > limit:
            title, rows = f"{title} (first {limit} of {numbers.count(count)})", rows[:limit]
        cells = tuple(tuple(column.cell(row) for column in columns) for row in rows)
        return cls(title=title, columns=columns, rows=cells, absent=absent, foot=foot)

    def without(self, *titles: str) -> Table:
        """The table without some columns, for sinks that are too narrow for them."""
        return self.only([index for index, column in enumerate(self.columns) if column.title not in titles])

    def containing(self, text: str) -> Table:
        """The table with the rows in which a name contains this text, in any case."""
        wanted = text.lower()
        named = [index for index, column in enumerate(self.columns) if not column.numeric]
        kept = [row for row in self.rows if any(wanted in f"{row[i].text} {row[i].help}".lower() for i in named)]
        title = f"{self.title}: {len(kept)} of {numbers.counted(len(self.rows), 'row')} searched"
        return replace(self, title=title, rows=tuple(kept), absent="No row contains the text.", foot=0)

    def only(self, kept: Sequence[int]) -> Table:
        """The table with these columns."""
        return replace(
            self,
            columns=tuple(self.columns[index] for index in kept),
            rows=tuple(tuple(row[index] for index in kept) for row in self.rows),
        )


def facts(title: str, rows: Iterable[tuple[str, ...]], absent: str, value: Format = FIGURE) -> Table:
    """What was measured and its value, a row each.

    Args:
        title: Of the table.
        rows: Name, value as people read it, and what explains the name, if it needs that.
        absent: Stands in place of a table without rows.
        value: Of the values: numbers, unless it says that they are text.

    Returns:
        Two columns, ``what`` and ``value``, with the rows in their order.
    """
    return Table.of(
        title,
        rows,
        Column("what", lambda row: row[0], hover=lambda row: "".join(row[2:])),
        Column("value", lambda row: row[1], value),
        absent=absent,
    )


def wall_table(report: Report) -> Table:
    """Parts of the wall time in their order; they sum to the total."""
    total = report.wall.total_s
    parts = [(part, report.wall.parts[part]) for part in PARTS if part in report.wall.parts]

    def share(row: tuple[Part, float]) -> float | None:
        return row[1] / total if total > 0 else None

    return Table.of(
        "Wall time",
        parts,
        Column("part", lambda row: words_of(row[0]), hover=lambda row: PART_TERMS[row[0]]),
        bar(share, lambda row: row[0]),
        Column("time", lambda row: row[1], S),
        wall_share_column(report, share),
        absent="The wall time was not measured.",
    )


OF_STEP = "of step"
OF_ALL_STEPS = "of step time"
OF_WALL = "of wall"


class _OfPhases(Protocol):
    @property
    def phases_ms(self) -> Mapping[Phase, float]: ...


def phase_column(phase: Callable[[R], Phase], help: str = "") -> Column[R]:
    """The column of a phase, in the words of every screen; its own name is in the hover.

    Args:
        phase: Of a row.
        help: What the column is.

    Returns:
        Titled ``phase``; text.
    """
    return Column(
        "phase",
        lambda row: words_of(phase(row)),
        help=help,
        hover=lambda row: f"{phase(row)}: {PHASE_TERMS[phase(row)]}",
    )


def phase_median(phase: Phase) -> Column[_OfPhases]:
    """The column of a phase's median time."""
    return Column(words_of(phase), lambda row: row.phases_ms.get(phase), MS, help=f"median; {PHASE_TERMS[phase]}")


def phase_table(report: Report) -> Table:
    """Phases of a step, in the report's order, with both shares, each under its name."""
    times, period = step_bars.phase_times(report), report.steps.period_ms

    def of_step(row: PhaseRow) -> float | None:
        return times[row.phase] / period.median if period is not None and row.phase in times else None

    def length(row: PhaseRow) -> float:
        share = of_step(row)
        return row.share if share is None else min(1.0, share)

    columns: list[Column[PhaseRow]] = [
        phase_column(lambda row: row.phase),
        bar(length, lambda row: row.phase),
        Column("wall", lambda row: times.get(row.phase), MS, help=OF_MEDIAN_STEP),
    ]
    if any(row.cpu_ms is not None for row in report.phases):
        busy = "median CPU time of the main thread; the rest is waiting"
        columns.append(Column("CPU", lambda row: row.cpu_ms, MS, help=busy))
    if any(row.device_ms is not None for row in report.phases):
        span = "from the first to the last kernel on the GPU, gaps between launches included"
        columns.append(Column("device span", lambda row: row.device_ms, MS, help=span))
    columns += [
        Column("p95", lambda row: row.p95_ms, MS, help=f"wall: {P95}"),
        Column(
            OF_STEP,
            of_step,
            PERCENT,
            help="that time over the median step time; rare long steps do not move it",
        ),
        Column(OF_ALL_STEPS, lambda row: row.share, PERCENT, help="of the time of all steps; sums to 100 %"),
        Column("total", lambda row: row.total_s, S, help="over all steps, warm-up and traced ones included"),
    ]
    return Table.of("Phases of a step", report.phases, *columns, absent="No step was measured.")


def line_table(report: Report, limit: int) -> Table:
    """The lines of the user's code that hold most of the steps.

    Args:
        report: The report.
        limit: Most rows.

    Returns:
        Most time first, in s; what the thread was at (Python, native, off CPU) only where it was sampled.
    """
    largest = max((row.share for row in report.lines), default=0.0)
    states: tuple[Column[LineRow], ...] = ()
    if any(row.python_ratio is not None for row in report.lines[:limit]):
        states = (
            Column(
                "Python",
                lambda row: row.python_ratio,
                PERCENT,
                help="or between calls of less than 0.1 ms; the three sum to 100 %",
            ),
            Column(
                "native",
                lambda row: row.native_ratio,
                PERCENT,
                help="in C or C++: torch's operators, most waits for a GPU",
            ),
            Column(
                "off CPU",
                lambda row: row.off_cpu_ratio,
                PERCENT,
                help="asleep, or waiting for a file, a lock or a thread",
            ),
        )
    return Table.of(
        "Your lines of code",
        report.lines[:limit],
        Column(
            "line", lambda row: row.place, NAME, help="innermost line of yours, with all that it calls in libraries"
        ),
        phase_column(lambda row: row.phase),
        bar(lambda row: row.share / largest if largest > 0 else 0.0, lambda row: row.phase),
        Column(
            "total",
            lambda row: row.total_s,
            S,
            help="over all steps: the line's share of the samples, times the phase's time",
        ),
        Column(OF_ALL_STEPS, lambda row: row.share, PERCENT, help="of the time of all steps"),
        Column(
            "samples",
            lambda row: row.looks,
            COUNT,
            help="how often the main thread was seen there; later samples are sparser and weighted 2x or 4x",
        ),
        *states,
        absent="The run was too short to see lines of code, or they were not sampled.",
    )


def callback_table(report: Report, limit: int) -> Table:
    """The costliest hooks of callbacks.

    Args:
        report: The report.
        limit: Most rows.

    Returns:
        Most time first, in s.
    """
    largest = max((row.share for row in report.callbacks), default=0.0)
    return Table.of(
        "Callbacks",
        report.callbacks[:limit],
        Column("callback", lambda row: row.name, NAME),
        Column("hook", lambda row: row.hook, NAME, help="method of the callback"),
        bar(lambda row: row.share / largest if largest > 0 else 0.0, "callbacks"),
        Column("total", lambda row: row.total_s, S, help="over the whole run, nested rows excluded"),
        wall_share_column(report, lambda row: row.share),
        absent="No callback took measurable time.",
    )


def step_time_table(report: Report) -> Table:
    """Statistics of the step time, over steady, untraced steps."""
    steps = report.steps
    bootstrap = "95 % confidence interval of this run's {} (block bootstrap, Kuensch 1989)"
    time = SIGNIFICANT.in_unit("ms")
    interval = Format(lambda ends: numbers.interval(ends) or numbers.ABSENT, "ms")
    return Table.of(
        "Step time",
        [] if steps.period_ms is None else [steps.period_ms],
        Column("median", lambda row: row.median, time, help=MEDIAN),
        Column("mean", lambda row: row.mean, time),
        Column("std", lambda row: row.std, time, help="standard deviation"),
        Column("p05", lambda row: row.p05, time, help="5 % of the steady, untraced steps are faster"),
        Column("p95", lambda row: row.p95, time, help=P95),
        Column("p99", lambda row: row.p99, time, help="99 % of the steady, untraced steps are faster"),
        Column("min", lambda row: row.min, time, help="shortest step"),
        Column("max", lambda row: row.max, time, help="longest step"),
        Column("median 95 % CI", lambda _: steps.period_median_interval_ms, interval, help=bootstrap.format("median")),
        Column("mean 95 % CI", lambda _: steps.period_mean_interval_ms, interval, help=bootstrap.format("mean")),
        absent="No step was steady and untraced, so the step time has no statistics.",
    )


def device_table(report: Report) -> Table:
    """Every sampled signal of every GPU."""

    def statistic(
        title: str, value: Callable[[Distribution], float], help: str = ""
    ) -> Column[tuple[Device, str, Distribution | None]]:
        return Column(
            title, lambda row: numbers.quantity(row[1], None if row[2] is None else value(row[2])), FIGURE, help=help
        )

    return Table.of(
        "GPUs",
        [(device, field, values) for device in report.devices for field, values in device.values.items()],
        Column("GPU", lambda row: device_name(row[0])),
        Column(
            "signal",
            lambda row: numbers.label(row[1]),
            NAME,
            help="sampled through NVML",
            hover=lambda row: _UTILIZATION if row[1] == "utilization_ratio" else "",
        ),
        statistic("median", lambda values: values.median),
        statistic("p05", lambda values: values.p05, "5th percentile of the samples"),
        statistic("p95", lambda values: values.p95, "95th percentile of the samples"),
        statistic("max", lambda values: values.max),
        absent="GPUs: not measured (no GPU of this process was sampled through NVML).",
    )


def device_name(device: Device) -> str:
    """Name of a GPU with as much of its UUID as tells it from the others."""
    return plain.name(f"{device.name} ({device.uuid[:12]})" if device.uuid else device.name, 60)


def overhead_table(report: Report) -> Table:
    """What the profiler itself cost."""
    rows = (
        (plain.name(numbers.label(field)), numbers.quantity(field, value), OVERHEAD_TERMS.get(field, ""))
        for field, value in report.overhead.items()
    )
    return facts("Cost of the profiler", rows, absent="The profiler's own cost was not measured.")


def window_table(report: Report) -> Table:
    """One row per trace window."""

    def of_devices(row: WindowFacts, busy: bool) -> str | None:
        known = [device for device in row.devices if device.window_us > 0]
        shares = ((device.busy_us if busy else device.idle_us) / device.window_us for device in known)
        return ", ".join(map(numbers.exact_percent, shares)) or None

    return Table.of(
        "Trace windows",
        report.windows,
        Column("steps", window_steps, help="optimizer steps, both ends included"),
        Column("file", lambda row: row.file or None, NAME, help="open it in TensorBoard, Perfetto or chrome://tracing"),
        Column("events", lambda row: row.events or None, COUNT),
        Column("kernels", lambda row: row.kernels if row.events else None, COUNT, help="without copies and memsets"),
        Column(
            "busy", lambda row: of_devices(row, True), FIGURE, help="a kernel or copy ran on any stream, per device"
        ),
        Column("idle", lambda row: of_devices(row, False), FIGURE, help="the rest of the window, per device"),
        Column(
            "closing",
            lambda row: row.stop_cost_ms,
            SIGNIFICANT.in_unit("ms"),
            help="how long training waited for the window to close",
        ),
        Column(
            "times",
            lambda row: window_inflation(row) or None,
            FIGURE,
            help="median step time inside the window over that of untraced steps",
        ),
        Column("opened", lambda row: row.reason or None, SENTENCE, help="why the window was opened"),
        Column("problem", lambda row: row.problem, SENTENCE, help="why there is no trace, or what it lacks"),
        absent="No trace window was recorded.",
    )


def window_inflation(window: WindowFacts) -> str:
    """By how much times inside the window are inflated: ``1.8x``; empty if that is not known."""
    return "" if window.inflation_ratio is None else f"{window.inflation_ratio:.1f}x"


def window_steps(window: WindowFacts) -> str:
    """The window's optimizer steps: ``200 to 205``."""
    if window.start_step == window.stop_step:
        return str(window.start_step)
    return f"{window.start_step} to {window.stop_step}"


def operator_table(window: WindowFacts) -> Table:
    """The operators of a window by their exclusive host time."""
    return _named_times(f"Operators in steps {window_steps(window)}", "operator", window.top_operators)


def kernel_table(window: WindowFacts) -> Table:
    """The kernels of a window by their device time."""
    return _named_times(f"Kernels in steps {window_steps(window)}", "kernel", window.top_kernels)


def _named_times(title: str, what: str, rows: tuple[OperatorRow, ...]) -> Table:
    """Names, the largest first, with their occurrences and total time."""
    largest = max((row.total_us for row in rows), default=0.0)
    return Table.of(
        title,
        rows,
        Column(what, lambda row: row.name, NAME),
        bar(lambda row: row.total_us / largest if largest > 0 else 0.0, "forward"),
        Column("count", lambda row: row.count, COUNT),
        Column("total", lambda row: row.total_us, US_AS_MS, help="in this window; inflated by tracing"),
        absent=f"The window has no {what}.",
    )


def not_evaluated_table(report: Report) -> Table:
    """Rules that could not judge, by the reason."""
    return Table.of(
        "Not evaluated",
        wording.by_reason(report.not_evaluated),
        Column("why", lambda row: row[0]),
        Column("rules", lambda row: ", ".join(row[1])),
        absent="Every rule was evaluated.",
    )


def sentence_table(title: str, sentences: Sequence[str], absent: str) -> Table:
    """One row per sentence.

    Args:
        title: Title of the table.
        sentences: In the order in which they are shown.
        absent: Stands there if there are none.

    Returns:
        One column without a title.
    """
    return Table.of(title, sentences, Column("", lambda sentence: sentence, SENTENCE), absent=absent)


def wall_share_column(report: Report, share: Callable[[R], Any], format: Format = PERCENT) -> Column[R]:
    """The column of shares of the wall time.

    Args:
        report: The report.
        share: Gives a row's share, between 0 and 1.
        format: How it is shown.

    Returns:
        Titled ``of wall``; as percent, unless the format says otherwise.
    """
    return Column(OF_WALL, share, format, help=f"share of the wall time of {wording.stage(report)}")
