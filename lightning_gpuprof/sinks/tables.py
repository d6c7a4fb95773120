"""A Report flows in, tables of readable text flow out; terminal, HTML and Markdown only draw them.

Text in a cell shows every character it holds (see :mod:`lightning_gpuprof.sinks.plain`), but is not escaped for any
format: that is the drawing sink's part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lightning_gpuprof.model.phases import PARTS, PHASE_TERMS, Part
from lightning_gpuprof.model.report import OVERHEAD_TERMS, Device, Distribution, PhaseRow, Report
from lightning_gpuprof.model.window import DeviceActivity, OperatorRow, WindowFacts
from lightning_gpuprof.sinks import numbers, plain, wording

PART_TERMS: dict[Part, str] = {
    "setup": "from the call to the first step: loaders, model transfer, callbacks' set-up",
    "sanity": "sanity validation before training",
    "train": "training steps",
    "validation": "validation runs, with their hooks",
    "validate": "steps of trainer.validate",
    "test": "steps of trainer.test",
    "predict": "steps of trainer.predict",
    "checkpoint": "checkpoints are written",
    "epoch_gap": "between the last step of an epoch and the first of the next, without validation and checkpoints",
    "teardown": "from the last step to the end of the call",
    "unexplained": "wall time that no named part accounts for",
}
"""One sentence per part of the wall time, as reports explain it."""

MEDIAN = "half of the steady, unprofiled steps are below this value"
P95 = "95 % of the steady, unprofiled steps are below this value"


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column: what it holds, in which unit, and what the word means."""

    title: str
    unit: str = ""
    term: str = ""
    numeric: bool = False
    bar: bool = False
    """The cells' ``ratio`` is drawn as a bar; their text is empty."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One readable value."""

    text: str
    ratio: float | None = None
    """Length of the bar, 0 to 1."""
    term: str = ""
    """Explains the text."""
    key: str = ""
    """Phase or part whose colour a bar has."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under columns, or the one sentence that says why there are none."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    absent: str
    """Stands in place of the table if it has no rows."""
    foot: int = 0
    """So many of the last rows sum up or stand for the others: where rows are sorted, they stay last."""

    def without(self, title: str) -> Table:
        """The table without a column, for sinks that are too narrow for it."""
        kept = [index for index, column in enumerate(self.columns) if column.title != title]
        return replace(
            self,
            columns=tuple(self.columns[index] for index in kept),
            rows=tuple(tuple(row[index] for index in kept) for row in self.rows),
        )


def wall_table(report: Report) -> Table:
    """Parts of the wall time in their order; they sum to the total."""
    total = report.wall.total_s
    rows = []
    for part in PARTS:
        if part not in report.wall.parts:
            continue
        spent = report.wall.parts[part]
        share = spent / total if total > 0 else None
        rows.append(
            (
                Cell(text=part, term=PART_TERMS[part]),
                Cell(text="", ratio=share, key=part),
                Cell(text=numbers.fixed(spent)),
                Cell(text=numbers.percent(share)),
            )
        )
    return Table(
        title="Wall time",
        columns=(
            Column(title="part"),
            Column(title="", bar=True),
            Column(title="time", unit="s", numeric=True),
            Column(
                title=OF_WALL,
                term=f"of the wall time of {wording.stage(report)}; the shares sum to 100 %",
                numeric=True,
            ),
        ),
        rows=tuple(rows),
        absent="The wall time was not measured.",
    )


OF_STEP = "of step"
OF_ALL_STEPS = "of all steps"
OF_WALL = "of wall"


def share_of_step(report: Report, row: PhaseRow) -> float | None:
    """Median time of a phase over the median step time: the one share of a step, as in verdict and findings."""
    period = report.steps.period_ms
    return None if row.median_ms is None or period is None or period.median <= 0 else row.median_ms / period.median


def phase_table(report: Report) -> Table:
    """Phases of a step, in the report's order, with both shares, each under its name."""
    columns = [
        Column(title="phase", term="disjoint slice of host time in a step; the phases sum to the period"),
        Column(title="", bar=True),
        Column(title="wall", unit="ms", term=f"median: {MEDIAN}", numeric=True),
    ]
    with_cpu = any(row.cpu_ms is not None for row in report.phases)
    with_device = any(row.device_ms is not None for row in report.phases)
    if with_cpu:
        busy = "median CPU time of the training thread in sampled steps; wall time without it was spent waiting"
        columns.append(Column(title="CPU", unit="ms", term=busy, numeric=True))
    if with_device:
        columns.append(
            Column(title="device span", unit="ms", term="on the device's clock; contains launch gaps", numeric=True)
        )
    columns += [
        Column(title="p95", unit="ms", term=f"wall: {P95}", numeric=True),
        Column(title=OF_STEP, term="the median over the median period; rare long steps do not move it", numeric=True),
        Column(title=OF_ALL_STEPS, term="of the time of all steps; the shares sum to 100 %", numeric=True),
        Column(title="total", unit="s", term="over all steps, warm-up and profiled ones too", numeric=True),
    ]
    rows = []
    for row in report.phases:
        of_step = share_of_step(report, row)
        cells = [
            Cell(text=row.phase, term=PHASE_TERMS[row.phase]),
            Cell(text="", ratio=row.share if of_step is None else min(1.0, of_step), key=row.phase),
            Cell(text=numbers.fixed(row.median_ms)),
            *([Cell(text=numbers.fixed(row.cpu_ms))] if with_cpu else []),
            *([Cell(text=numbers.fixed(row.device_ms))] if with_device else []),
            Cell(text=numbers.fixed(row.p95_ms)),
            Cell(text=numbers.percent(of_step)),
            Cell(text=numbers.percent(row.share)),
            Cell(text=numbers.fixed(row.total_s)),
        ]
        rows.append(tuple(cells))
    return Table(
        title="Phases of a step",
        columns=tuple(columns),
        rows=tuple(rows),
        absent="No step was measured.",
    )


def callback_table(report: Report, limit: int) -> Table:
    """The costliest hooks of callbacks.

    Args:
        report: The report.
        limit: Most rows.
    """
    largest = max((row.share for row in report.callbacks), default=0.0)
    rows = tuple(
        (
            Cell(text=plain.name(row.name)),
            Cell(text=plain.name(row.hook)),
            Cell(text="", ratio=row.share / largest if largest > 0 else 0.0, key="callbacks"),
            Cell(text=numbers.fixed(row.total_s)),
            Cell(text=numbers.percent(row.share)),
        )
        for row in report.callbacks[:limit]
    )
    return Table(
        title="Callbacks",
        columns=(
            Column(title="callback"),
            Column(title="hook", term="the method of the callback that the time was spent in"),
            Column(title="", bar=True),
            Column(title="total", unit="s", term="exclusive time over the whole run", numeric=True),
            Column(title=OF_WALL, term=f"of the wall time of {wording.stage(report)}", numeric=True),
        ),
        rows=rows,
        absent="No callback took measurable time.",
    )


def period_table(report: Report) -> Table:
    """Statistics of the period of steady, unprofiled steps."""
    period = report.steps.period_ms
    columns = tuple(
        Column(title=title, unit="ms", term=term, numeric=True)
        for title, term in (
            ("median", MEDIAN),
            ("mean", "sum of the periods over their number"),
            ("std", "standard deviation"),
            ("p05", "5 % of the steady, unprofiled steps are below this value"),
            ("p95", P95),
            ("p99", "99 % of the steady, unprofiled steps are below this value"),
            ("min", "shortest step"),
            ("max", "longest step"),
            ("median, 95 %", "interval by a block bootstrap (Kuensch 1989)"),
            ("mean, 95 %", "interval by a block bootstrap (Kuensch 1989)"),
        )
    )
    rows: tuple[tuple[Cell, ...], ...] = ()
    if period is not None:
        values = (period.median, period.mean, period.std, period.p05, period.p95, period.p99, period.min, period.max)
        intervals = (report.steps.period_median_interval_ms, report.steps.period_mean_interval_ms)
        rows = (
            (
                *(Cell(text=numbers.significant(value)) for value in values),
                *(Cell(text=numbers.interval(ends) or numbers.ABSENT) for ends in intervals),
            ),
        )
    return Table(
        title="Period of a step",
        columns=columns,
        rows=rows,
        absent="No step was steady and unprofiled, so there are no statistics of the period.",
    )


def device_table(report: Report) -> Table:
    """Every sampled signal of every GPU."""
    rows = tuple(
        (Cell(text=device_name(device)), *_distribution_cells(field, values))
        for device in report.devices
        for field, values in device.values.items()
    )
    return Table(
        title="GPUs",
        columns=(
            Column(title="GPU"),
            Column(title="signal", term="sampled through NVML beside the training thread"),
            Column(title="median", numeric=True),
            Column(title="p05", term="5 % of the samples are below this value", numeric=True),
            Column(title="p95", term="95 % of the samples are below this value", numeric=True),
            Column(title="max", numeric=True),
        ),
        rows=rows,
        absent="GPUs: not measured (no GPU of this process was sampled through NVML).",
    )


def traced_device(activity: DeviceActivity) -> str:
    """Name of a device as a trace gives it; a bare number becomes ``GPU 0``."""
    shown = plain.name(activity.device, 40)
    return f"GPU {shown}" if shown.isdecimal() else shown


def device_name(device: Device) -> str:
    """Name of a GPU with as much of its UUID as tells it from the others."""
    return plain.name(f"{device.name} ({device.uuid[:12]})" if device.uuid else device.name, 60)


def _distribution_cells(field: str, values: Distribution | None) -> tuple[Cell, ...]:
    if values is None:
        shown: tuple[float | None, ...] = (None, None, None, None)
    else:
        shown = (values.median, values.p05, values.p95, values.max)
    term = 'NVML\'s "a kernel was running"; says nothing about efficiency' if field == "utilization_ratio" else ""
    return (
        Cell(text=plain.name(numbers.label(field)), term=term),
        *(Cell(text=numbers.quantity(field, value)) for value in shown),
    )


def values_table(
    title: str, values: Mapping[str, float | None], absent: str, terms: Mapping[str, str] | None = None
) -> Table:
    """Named values whose names carry their unit; one that is None is shown as not measured.

    Args:
        title: Title of the table.
        values: Field names with units, e.g. ``process_cpus``.
        absent: Sentence for "there is none".
        terms: What names mean, of those that do not say it themselves.
    """
    rows = tuple(
        (
            Cell(text=plain.name(numbers.label(field)), term=(terms or {}).get(field, "")),
            Cell(text=numbers.quantity(field, value)),
        )
        for field, value in values.items()
    )
    return Table(
        title=title,
        columns=(Column(title="what"), Column(title="value", numeric=True)),
        rows=rows,
        absent=absent,
    )


def overhead_table(report: Report) -> Table:
    """What the profiler itself cost."""
    absent = "The profiler's own cost was not measured."
    return values_table("Cost of the profiler", report.overhead, absent, OVERHEAD_TERMS)


def window_table(report: Report) -> Table:
    """One row per trace window."""
    rows = tuple(
        (
            Cell(text=window_steps(window)),
            Cell(text=plain.name(window.file) if window.file else numbers.ABSENT),
            Cell(text=numbers.count(window.events) if window.events else numbers.ABSENT),
            Cell(text=numbers.count(window.kernels) if window.events else numbers.ABSENT),
            *_busy_cells(window.devices),
            Cell(text=numbers.significant(window.stop_cost_ms)),
            Cell(text=window_inflation(window) or numbers.ABSENT),
            Cell(text=plain.sentence(window.reason) or numbers.ABSENT),
            Cell(text=plain.sentence(window.problem)),
        )
        for window in report.windows
    )
    return Table(
        title="Trace windows",
        columns=(
            Column(title="steps", term="optimizer steps, both ends included"),
            Column(title="file", term="opens in TensorBoard, Perfetto and chrome://tracing"),
            Column(title="events", numeric=True),
            Column(title="kernels", term="pieces of device work other than copies", numeric=True),
            Column(title="busy", term="union of kernels and copies over all streams, per device", numeric=True),
            Column(title="idle", term="the rest of the window, per device", numeric=True),
            Column(title="closing", unit="ms", term="what closing the window cost the training thread", numeric=True),
            Column(title="times", term="median period inside the window, against that of untraced steps", numeric=True),
            Column(title="opened", term="why the window was opened"),
            Column(title="problem", term="why there is no trace, or what is missing in it"),
        ),
        rows=rows,
        absent="No trace window was recorded.",
    )


def window_inflation(window: WindowFacts) -> str:
    """By how much times inside the window are inflated: ``x1.8``; empty if that is not known."""
    return "" if window.inflation_ratio is None else f"x{window.inflation_ratio:.1f}"


def window_steps(window: WindowFacts) -> str:
    """The window's optimizer steps: ``200 to 205``."""
    if window.start_step == window.stop_step:
        return str(window.start_step)
    return f"{window.start_step} to {window.stop_step}"


def _busy_cells(devices: tuple[DeviceActivity, ...]) -> tuple[Cell, Cell]:
    known = [d for d in devices if d.window_us > 0]
    if not known:
        return Cell(text=numbers.ABSENT), Cell(text=numbers.ABSENT)
    busy = ", ".join(numbers.percent(d.busy_us / d.window_us) for d in known)
    idle = ", ".join(numbers.percent(d.idle_us / d.window_us) for d in known)
    return Cell(text=busy), Cell(text=idle)


def operator_table(window: WindowFacts) -> Table:
    """The operators of a window by their exclusive host time."""
    return named_times(f"Operators in steps {window_steps(window)}", "operator", window.top_operators)


def kernel_table(window: WindowFacts) -> Table:
    """The kernels of a window by their device time."""
    return named_times(f"Kernels in steps {window_steps(window)}", "kernel", window.top_kernels)


def named_times(title: str, what: str, rows: tuple[OperatorRow, ...], limit: int = plain.NAME_LIMIT) -> Table:
    """Names with their occurrences and total time.

    Args:
        title: Title of the table.
        what: What the names are names of, singular.
        rows: Largest first.
        limit: Most characters of a name.
    """
    largest = max((row.total_us for row in rows), default=0.0)
    return Table(
        title=title,
        columns=(
            Column(title=what),
            Column(title="", bar=True),
            Column(title="count", numeric=True),
            Column(title="total", unit="ms", term="in this window; inflated by profiling", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=plain.name(row.name, limit)),
                Cell(text="", ratio=row.total_us / largest if largest > 0 else 0.0, key="forward"),
                Cell(text=numbers.count(row.count)),
                Cell(text=numbers.fixed(row.total_us / 1e3)),
            )
            for row in rows
        ),
        absent=f"The window holds no {what}.",
    )


def not_evaluated_table(report: Report) -> Table:
    """Rules that could not judge, by the reason."""
    return Table(
        title="Not evaluated",
        columns=(Column(title="why"), Column(title="rules")),
        rows=tuple(
            (Cell(text=why), Cell(text=", ".join(names))) for why, names in wording.by_reason(report.not_evaluated)
        ),
        absent="Every rule could judge.",
    )


def of_first_rows(title: str, rows: int, limit: int | None) -> str:
    """The title with "first 20 of 152" where rows are left out.

    Args:
        title: Of the whole table.
        rows: All there are.
        limit: Most that are shown; None shows all.
    """
    return title if limit is None or rows <= limit else f"{title} (first {limit} of {numbers.count(rows)})"


def sentence_table(title: str, sentences: Sequence[str], absent: str) -> Table:
    """One row per sentence.

    Args:
        title: Title of the table.
        sentences: In the order in which they are shown.
        absent: Stands there if there are none.
    """
    return Table(
        title=title,
        columns=(Column(title=""),),
        rows=tuple((Cell(text=plain.sentence(sentence)),) for sentence in sentences),
        absent=absent,
    )
