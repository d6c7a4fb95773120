"""The input pipeline's tables and its lines for the terminal."""

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.input_pipeline import INPUT_VERDICT_TERMS, InputPipeline
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import (
    COUNT,
    FIGURE,
    MS,
    NAME,
    PERCENT,
    SIGNIFICANT,
    TEXT,
    Column,
    Table,
    bar,
    facts,
)

ABSENT = "Nothing was measured inside the input pipeline."
TITLE = "Input pipeline"
MIN_SHARE = 0.05
"""Transforms below this share of the items' time are not worth a word on the terminal."""


def lines(report: Report) -> list[str]:
    """What matters, in one or two lines; none if nothing was measured."""
    found = report.input
    if found is None:
        return []
    said = [f"{found.verdict}: {plain.sentence(found.summary)}"]
    costly = [part for part in found.parts if (part.share or 0.0) >= MIN_SHARE][:3]
    if costly:
        named = ", ".join(f"{plain.name(part.name, 40)} {numbers.exact_percent(part.share)}" for part in costly)
        said.append(f"of the items' time: {named}")
    return said


def verdict_table(report: Report) -> Table:
    """What limits the input pipeline, and the numbers that say so."""
    found = report.input
    rows: list[tuple[str, str]] = []
    if found is not None:
        rows = [
            ("verdict", f"{found.verdict}: {INPUT_VERDICT_TERMS[found.verdict]}"),
            ("because", plain.sentence(found.summary)),
            ("step without its wait", _ms(found.step_ms)),
            ("wait for data", _ms(found.wait_ms)),
            ("steps that had to wait", numbers.exact_percent(found.waited_ratio)),
            ("workers needed (one spare)", "" if found.enough_workers is None else str(found.enough_workers)),
        ]
    known = [row for row in rows if row[1] not in ("", numbers.ABSENT)]
    return facts(TITLE, known, absent=ABSENT, value=TEXT)


def _ms(value: float | None) -> str:
    return numbers.quantity("x_ms", value)


def worker_table(found: InputPipeline) -> Table:
    """One row per process that makes batches."""
    several = len(found.loaders) > 1
    return Table.of(
        "Loading processes",
        found.workers,
        Column(
            "process",
            lambda one: (
                ("main process" if one.process == "process" else one.process)
                + (f" of loader {one.loader}" if several else "")
            ),
        ),
        Column("batches", lambda one: one.batches, COUNT, help="made by this process"),
        Column("items", lambda one: one.items_ms, MS, help="mean time for the items of a batch"),
        Column("item", lambda one: one.item_mean_ms, MS, help="mean time of one item"),
        Column("p95", lambda one: one.item_p95_ms, MS, help="of one item; up to a quarter too high"),
        Column("max", lambda one: one.item_max_ms, MS, help="of one item"),
        Column("collate", lambda one: one.collate_mean_ms, MS, help="mean time to put the items of a batch together"),
        Column(
            "waits",
            lambda one: numbers.ABSENT if one.process == "process" else numbers.exact_percent(one.idle_ratio),
            FIGURE,
            help="share of its time spent idle",
        ),
        absent="No loading process was measured.",
    )


def part_table(found: InputPipeline) -> Table:
    """Transforms and annotated regions by what they take of the items' time."""
    return Table.of(
        "Transforms and regions",
        found.parts,
        Column("what", lambda part: part.name, NAME),
        Column(
            "kind",
            lambda part: part.kind,
            help="a transform of a Compose, or a region marked with lightning_gpuprof.annotate",
        ),
        bar(lambda part: part.share, "data_wait"),
        Column("calls", lambda part: part.calls, COUNT),
        Column("mean", lambda part: part.mean_ms, MS),
        Column("max", lambda part: part.max_ms, MS),
        Column(
            "share", lambda part: part.share, PERCENT, help="of the time that items take; regions may contain others"
        ),
        absent="The dataset has no list of transforms and no region was marked with annotate.",
    )


def queue_table(found: InputPipeline) -> Table:
    """How full the queues of finished batches were."""
    return Table.of(
        "Queues of finished batches",
        found.queues,
        Column("loader", lambda queue: queue.loader, FIGURE),
        Column("workers", lambda queue: queue.workers, FIGURE),
        Column("room", lambda queue: queue.capacity, FIGURE, help="batches being made or ready at one time"),
        Column("ready", lambda queue: queue.depth_mean, SIGNIFICANT, help="mean number of finished batches"),
        Column("max", lambda queue: queue.depth_max, SIGNIFICANT),
        Column("empty", lambda queue: queue.empty_ratio, PERCENT, help="share of samples without a ready batch"),
        Column("unpinned", lambda queue: queue.unpinned_mean, SIGNIFICANT, help="mean number not yet in pinned memory"),
        Column("samples", lambda queue: queue.looks, COUNT),
        absent="There was no queue of finished batches.",
    )


def inner_tables(report: Report) -> list[Table]:
    """The tables below the verdict that have rows."""
    if report.input is None:
        return []
    found = (worker_table(report.input), part_table(report.input), queue_table(report.input))
    return [table for table in found if table.rows]
