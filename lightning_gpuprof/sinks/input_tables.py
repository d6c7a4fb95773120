"""The input pipeline of a Report flows in, its tables and its lines for the terminal flow out."""

from __future__ import annotations

from lightning_gpuprof.model.input_pipeline import INPUT_VERDICT_TERMS, InputPipeline
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table

ABSENT = "Nothing was measured inside of the input pipeline."
TITLE = "Input pipeline"
LEAST_SHARE = 0.05
"""Transforms below this share of the items' time are not worth a word on the terminal."""


def lines(report: Report) -> list[str]:
    """What matters, in one or two lines; none if nothing was measured."""
    found = report.input
    if found is None:
        return []
    said = [f"{found.verdict}: {plain.sentence(found.summary)}"]
    costly = [part for part in found.parts if (part.share or 0.0) >= LEAST_SHARE][:3]
    if costly:
        named = ", ".join(f"{plain.name(part.name, 40)} {numbers.percent(part.share)}" for part in costly)
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
            ("steps that found no batch ready", numbers.percent(found.waited_ratio)),
            (
                "workers that keep pace, with one to spare",
                "" if found.enough_workers is None else str(found.enough_workers),
            ),
        ]
    return Table(
        title=TITLE,
        columns=(Column(title="what"), Column(title="value")),
        rows=tuple((Cell(text=name), Cell(text=value)) for name, value in rows if value not in ("", numbers.ABSENT)),
        absent=ABSENT,
    )


def _ms(value: float | None) -> str:
    return numbers.quantity("x_ms", value)


def worker_table(found: InputPipeline) -> Table:
    """One row per process that makes batches."""
    several = len(found.loaders) > 1
    return Table(
        title="Processes that make batches",
        columns=(
            Column(title="process"),
            Column(title="batches", term="that it made", numeric=True),
            Column(title="items", unit="ms", term="mean time for the items of a batch", numeric=True),
            Column(title="item", unit="ms", term="mean time of one item", numeric=True),
            Column(title="p95", unit="ms", term="of one item; at most a quarter too large", numeric=True),
            Column(title="max", unit="ms", term="of one item", numeric=True),
            Column(title="collate", unit="ms", term="mean time to put the items of a batch together", numeric=True),
            Column(title="waits", term="share of its time without work", numeric=True),
        ),
        rows=tuple(
            (
                Cell(
                    text=("training process" if one.process == "process" else one.process)
                    + (f" of loader {one.loader}" if several else "")
                ),
                Cell(text=numbers.count(one.batches)),
                Cell(text=numbers.fixed(one.items_ms)),
                Cell(text=numbers.fixed(one.item_mean_ms)),
                Cell(text=numbers.fixed(one.item_p95_ms)),
                Cell(text=numbers.fixed(one.item_max_ms)),
                Cell(text=numbers.fixed(one.collate_mean_ms)),
                Cell(text=numbers.ABSENT if one.process == "process" else numbers.percent(one.idle_ratio)),
            )
            for one in found.workers
        ),
        absent="No process that makes batches was measured.",
    )


def part_table(found: InputPipeline) -> Table:
    """Transforms and annotated regions by what they take of the items' time."""
    return Table(
        title="Transforms and regions",
        columns=(
            Column(title="what"),
            Column(title="kind", term="a transform of a Compose, or a region marked with annotate"),
            Column(title="", bar=True),
            Column(title="calls", numeric=True),
            Column(title="mean", unit="ms", numeric=True),
            Column(title="max", unit="ms", numeric=True),
            Column(title="share", term="of the time that items take; one may lie in another", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=plain.name(part.name)),
                Cell(text=part.kind),
                Cell(text="", ratio=part.share, key="data_wait"),
                Cell(text=numbers.ABSENT if part.calls is None else numbers.count(part.calls)),
                Cell(text=numbers.fixed(part.mean_ms)),
                Cell(text=numbers.fixed(part.max_ms)),
                Cell(text=numbers.percent(part.share)),
            )
            for part in found.parts
        ),
        absent="The dataset has no list of transforms and no region was marked with annotate.",
    )


def queue_table(found: InputPipeline) -> Table:
    """How full the queues of finished batches were."""
    return Table(
        title="Queues of finished batches",
        columns=(
            Column(title="loader", numeric=True),
            Column(title="workers", numeric=True),
            Column(title="room", term="batches under way or finished at one time", numeric=True),
            Column(title="ready", term="mean number of finished batches that waited", numeric=True),
            Column(title="most", numeric=True),
            Column(title="empty", term="share of looks at which none was ready", numeric=True),
            Column(title="unpinned", term="mean number of those that were not in pinned memory yet", numeric=True),
            Column(title="looks", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=str(queue.loader)),
                Cell(text=str(queue.workers)),
                Cell(text=numbers.ABSENT if queue.capacity is None else str(queue.capacity)),
                Cell(text=numbers.significant(queue.depth_mean)),
                Cell(text=numbers.significant(queue.depth_max)),
                Cell(text=numbers.percent(queue.empty_ratio)),
                Cell(text=numbers.significant(queue.unpinned_mean)),
                Cell(text=numbers.count(queue.looks)),
            )
            for queue in found.queues
        ),
        absent="There was no queue of finished batches.",
    )


def inner_tables(report: Report) -> list[Table]:
    """The tables below the verdict that have rows."""
    if report.input is None:
        return []
    found = (worker_table(report.input), part_table(report.input), queue_table(report.input))
    return [table for table in found if table.rows]
