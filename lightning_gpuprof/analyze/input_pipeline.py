"""The verdict on the input pipeline, with all its numbers."""

import math
from collections.abc import Mapping, Sequence

from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.analyze.signals import during_training, values_of
from lightning_gpuprof.model.input_pipeline import (
    InputLoader,
    InputPart,
    InputPipeline,
    InputQueue,
    InputVerdictKind,
    InputWorker,
    Padding,
    PartKind,
    enough_workers,
)
from lightning_gpuprof.model.journal import Sample
from lightning_gpuprof.model.numbers import millis, percent
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.share import Share

SOURCE = "input"
MIN_BATCHES = 10
"""Measured batches that a statement about the making of batches needs. Heuristic."""
MIN_STEPS = 20
"""Steady steps likewise."""
MIN_WAIT_RATIO = 0.05
"""Lower bound of the share of the step from which waiting for data counts. torch-tb-profiler: DataLoader above 5 %."""
MIN_H2D_RATIO = 0.10
"""Share of the step from which the copy to the device counts as the limit. Heuristic: as TraceML's first threshold."""
EMPTY_RATIO = 0.30
"""Share of steps that find no batch ready from which the queue counts as empty. MindInsight: above 30 %."""
SLACK_RATIO = 0.8
"""Workers that could make a batch in less than this share of the step time are not what the training waits for.
Heuristic."""
TRANSFER_MARGIN_MS = 0.5
"""A wait that is not longer than this is what any fetch from a worker may cost. Heuristic: as the rules have it."""
_SEEN_RATIO = 0.5
"""Of the mean time of all batches, what those measured in detail take at least to tell how it divides. Heuristic: below
it, a few that were not among them take most of the time."""


def input_pipeline(
    journal: Journal,
    shares: Mapping[Phase, Share],
    *,
    period_ms: float | None,
    steady_steps: int,
    waited_ratio: float | None,
) -> InputPipeline | None:
    """Everything about how the steps are fed.

    Args:
        journal: Has the samples.
        shares: Of the phases in steady steps.
        period_ms: Median step time of these.
        steady_steps: How many of these there are.
        waited_ratio: Share of them that found no batch ready.

    Returns:
        None if nothing was measured in the input pipeline.
    """
    last: dict[str, Sample] = {}
    queues: dict[int, list[Sample]] = {}
    for sample in journal.samples:
        if sample.source == SOURCE and (loader := _loader_of(sample.subject)) is not None:
            if sample.subject.endswith(".queue"):
                queues.setdefault(loader, []).append(sample)
            else:
                last[sample.subject] = sample
    workers = tuple(_worker(sample) for subject, sample in last.items() if _is_process(subject))
    if not workers and not queues:
        return None
    found_queues = tuple(_queue(loader, during_training(journal, of)) for loader, of in sorted(queues.items()))
    loaders = _loaders(workers, last, found_queues)
    wait, h2d = shares.get("data_wait"), shares.get("h2d")
    step_ms = None if wait is None or period_ms is None else max(0.0, period_ms - wait.median_ms)
    known = [one for one in loaders if one.deliver_ms is not None]
    slowest = max(known, key=lambda one: one.deliver_ms or 0.0, default=None)
    kind, summary = _verdict(slowest, period_ms, wait, h2d, steady_steps, waited_ratio, workers)
    order_ms = 0.0 if slowest is None else slowest.order_ms or 0.0
    if period_ms is not None and order_ms >= MIN_WAIT_RATIO * period_ms:
        summary += f"; the sampler takes {millis(order_ms)} of each step in the main process"
    return InputPipeline(
        verdict=kind,
        summary=summary,
        step_ms=step_ms,
        wait_ms=None if wait is None else wait.median_ms,
        waited_ratio=waited_ratio,
        enough_workers=None if kind == "not-enough-data" else _enough_workers(slowest, step_ms, kind),
        loaders=loaders,
        workers=tuple(sorted(workers, key=lambda w: (w.loader, len(w.process), w.process))),
        parts=_parts(last, _own_regions(journal, workers)),
        queues=found_queues,
        slowest=None if slowest is None else slowest.loader,
    )


def _loader_of(subject: str) -> int | None:
    """``loader0.worker1`` -> 0."""
    number = subject.partition(".")[0].removeprefix("loader")
    return int(number) if number.isdecimal() and len(number) < 9 else None


def _is_process(subject: str) -> bool:
    process = subject.partition(".")[2]
    return process == "process" or (process.startswith("worker") and ":" not in process)


def _count(sample: Sample, name: str) -> int:
    value = sample.values.get(name)
    return int(value) if value is not None and math.isfinite(value) and value > 0 else 0


def _ms(sample: Sample, name: str, over: float = 1.0) -> float | None:
    value = sample.values.get(name)
    if value is None or not math.isfinite(value) or value < 0 or over <= 0:
        return None
    return value * 1e3 / over


def _worker(sample: Sample) -> InputWorker:
    measured = _count(sample, "measured_count")
    items = None if sample.values.get("items_count") is None else _count(sample, "items_count")
    batches = _count(sample, "batches_count")
    items_ms = _ms(sample, "item_sum_s", measured)
    collate_ms = _ms(sample, "collate_sum_s", measured)
    made_ms = _ms(sample, "made_sum_s", batches)
    cpu_ms = _ms(sample, "cpu_sum_s", measured)
    make_ms = seen_ms = None if items_ms is None or collate_ms is None else items_ms + collate_ms
    if made_ms and seen_ms:
        # Batches that are costly, or follow such, are measured in detail too often: only how they divide is taken.
        make_ms, scale = made_ms, made_ms / seen_ms
        representative = seen_ms >= _SEEN_RATIO * made_ms
        items_ms, collate_ms, cpu_ms = (
            value * scale if representative and value is not None else None for value in (items_ms, collate_ms, cpu_ms)
        )
    idle_ms = _ms(sample, "idle_sum_s", _count(sample, "idle_count"))
    idle_ratio = None
    if idle_ms is not None and make_ms is not None:
        idle_ratio = idle_ms / (idle_ms + make_ms) if idle_ms + make_ms > 0 else None
    return InputWorker(
        loader=_loader_of(sample.subject) or 0,
        process=sample.subject.partition(".")[2],
        batches=batches,
        measured=measured,
        items=items,
        item_mean_ms=_ms(sample, "item_sum_s", items or 0),
        item_p95_ms=_ms(sample, "item_p95_s"),
        item_max_ms=_ms(sample, "item_max_s"),
        make_ms=make_ms,
        items_ms=items_ms,
        collate_mean_ms=collate_ms,
        collate_max_ms=_ms(sample, "collate_max_s"),
        idle_ms=idle_ms,
        idle_ratio=idle_ratio,
        cpu_ms=cpu_ms,
    )


def _queue(loader: int, samples: list[Sample]) -> InputQueue:
    depths, unpinned = values_of(samples, "depth_count"), values_of(samples, "unpinned_count")
    return InputQueue(
        loader=loader,
        looks=len(depths),
        workers=max((_count(s, "workers_count") for s in samples), default=0),
        capacity=max((_count(s, "capacity_count") for s in samples), default=0) or None,
        depth_mean=sum(depths) / len(depths) if depths else None,
        depth_max=max(depths, default=None),
        empty_ratio=sum(d == 0 for d in depths) / len(depths) if depths else None,
        unpinned_mean=sum(unpinned) / len(unpinned) if unpinned else None,
    )


def _loaders(
    workers: Sequence[InputWorker], last: Mapping[str, Sample], queues: Sequence[InputQueue]
) -> tuple[InputLoader, ...]:
    found = []
    for loader in sorted({w.loader for w in workers}):
        own = [w for w in workers if w.loader == loader and w.measured]
        inside = any(w.process == "process" for w in workers if w.loader == loader)
        of_queue = next((q.workers for q in queues if q.loader == loader), 0)
        count = 0 if inside else max(of_queue, len([w for w in workers if w.loader == loader]))
        make_ms = _mean([(w.make_ms, w.batches) for w in own])
        items_ms, collate_ms, cpu_ms = _parts_of(own, make_ms)
        order_of, order_ms = _order(last, loader)
        found.append(
            InputLoader(
                loader=loader,
                workers=count,
                make_ms=make_ms,
                items_ms=items_ms,
                collate_ms=collate_ms,
                deliver_ms=None if make_ms is None else make_ms / max(1, count),
                idle_ratio=None if inside else _mean([(w.idle_ratio, w.batches) for w in own]),
                cpu_ms=cpu_ms,
                order_ms=order_ms,
                order_of=order_of,
                padding=_padding(last, loader),
            )
        )
    return tuple(found)


def _parts_of(own: Sequence[InputWorker], make_ms: float | None) -> tuple[float | None, float | None, float | None]:
    """Items, collation and CPU time of a mean batch, divided as in the workers of which that is known.

    None if these take less than half of the time of all, as where a worker's slow batches were not measured in detail.
    """
    known = [w for w in own if w.items_ms is not None]
    all_s, known_s = (sum((w.make_ms or 0.0) * w.batches for w in of) for of in (own, known))
    if make_ms is None or known_s <= 0 or known_s < _SEEN_RATIO * all_s:
        return None, None, None
    scale = make_ms * sum(w.batches for w in known) / known_s
    parts = ([(getattr(w, name), w.batches) for w in known] for name in ("items_ms", "collate_mean_ms", "cpu_ms"))
    items_ms, collate_ms, cpu_ms = (None if (mean := _mean(of)) is None else scale * mean for of in parts)
    return items_ms, collate_ms, cpu_ms


def _order(last: Mapping[str, Sample], loader: int) -> tuple[str, float | None]:
    """Who gives the order of a loader's samples, and in which time for a batch."""
    head = f"loader{loader}.order:"
    found = next(((subject, sample) for subject, sample in last.items() if subject.startswith(head)), None)
    if found is None or _count(found[1], "calls_count") < MIN_BATCHES:
        return "", None
    return found[0].removeprefix(head), _ms(found[1], "median_s")


def _padding(last: Mapping[str, Sample], loader: int) -> Padding | None:
    """The last sums are those with the name of a tensor, if any batch had rows of tokens."""
    head = f"loader{loader}.padding:"
    found = [(subject.removeprefix(head), sample) for subject, sample in last.items() if subject.startswith(head)]
    if not found:
        return None
    name, sample = max(found, key=lambda pair: _count(pair[1], "looks_count"))
    looks, cells = _count(sample, "looks_count"), _count(sample, "cells_count")
    if not cells:
        return Padding(name="", looks=looks)
    width = _count(sample, "width_max_count")
    real, to_longest = _count(sample, "real_count"), _count(sample, "to_longest_count")
    return Padding(
        name=name,
        looks=looks,
        width=width,
        fixed=_count(sample, "width_min_count") == width,
        mean_width=cells / rows if (rows := _count(sample, "rows_count")) else None,
        real_ratio=min(1.0, real / cells),
        to_longest_ratio=min(1.0, max(real, to_longest) / cells),
    )


def _mean(weighted: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in weighted if value is not None and weight > 0]
    whole = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / whole if whole else None


def _own_regions(journal: Journal, workers: Sequence[InputWorker]) -> list[tuple[float, InputPart]]:
    """Regions marked in a dataset whose items are made in the main process: they are slots of its steps."""
    inside = next((w for w in workers if w.process == "process" and w.make_ms), None)
    if inside is None:
        return []
    spent_ms: dict[str, float] = {}
    for slot_id, column in journal.steps.charged.items():
        slot = journal.slots[slot_id]
        if slot.annotation and slot.step_phase == "data_wait":
            spent_ms[slot.annotation] = spent_ms.get(slot.annotation, 0.0) + float(column.sum()) / 1e6
    whole_ms = (inside.items_ms or 0.0) * len(journal.steps)
    return [
        (
            ms,
            InputPart(
                loader=inside.loader,
                kind="region",
                name=name,
                calls=None,
                mean_ms=None,
                max_ms=None,
                share=min(1.0, ms / whole_ms) if whole_ms > 0 else None,
            ),
        )
        for name, ms in spent_ms.items()
        if ms > 0
    ]


def _parts(last: Mapping[str, Sample], own_regions: Sequence[tuple[float, InputPart]]) -> tuple[InputPart, ...]:
    made_ms: dict[int, float] = {}
    for subject, sample in last.items():
        if _is_process(subject):  # parts are timed in the batches measured in detail
            loader = _loader_of(subject) or 0
            made_ms[loader] = made_ms.get(loader, 0.0) + (_ms(sample, "item_sum_s") or 0.0)
    kinds: tuple[PartKind, ...] = ("transform", "region")
    found: list[tuple[float, InputPart]] = list(own_regions)
    for subject, sample in last.items():
        loader = _loader_of(subject) or 0
        for kind in kinds:
            head, mark, name = subject.partition(f".{kind}:")
            sum_ms = _ms(sample, "sum_s")
            if not mark or "." in head or sum_ms is None:
                continue
            whole_ms = made_ms.get(loader, 0.0)
            calls = _count(sample, "calls_count")
            part = InputPart(
                loader=loader,
                kind=kind,
                name=name,
                calls=calls,
                mean_ms=sum_ms / calls if calls else None,
                max_ms=_ms(sample, "max_s"),
                share=min(1.0, sum_ms / whole_ms) if whole_ms > 0 else None,
            )
            found.append((sum_ms, part))
    return tuple(part for _, part in sorted(found, key=lambda pair: -pair[0]))


def _enough_workers(slowest: InputLoader | None, step_ms: float | None, kind: InputVerdictKind) -> int | None:
    if slowest is None or slowest.make_ms is None or not step_ms:
        return None
    enough = enough_workers(slowest.make_ms, step_ms)
    return min(enough, slowest.workers) if kind == "transfer" and slowest.workers else enough


def _verdict(
    slowest: InputLoader | None,
    period_ms: float | None,
    wait: Share | None,
    h2d: Share | None,
    steady_steps: int,
    waited_ratio: float | None,
    workers: Sequence[InputWorker],
) -> tuple[InputVerdictKind, str]:
    measured = sum(w.measured for w in workers)
    if slowest is None or slowest.make_ms is None or slowest.deliver_ms is None or measured < MIN_BATCHES:
        return "not-enough-data", f"{measured} batches were measured while they were made, {MIN_BATCHES} are needed"
    if steady_steps < MIN_STEPS or wait is None or period_ms is None:
        return "not-enough-data", f"{steady_steps} steady steps were measured, {MIN_STEPS} are needed"
    step_ms = max(0.0, period_ms - wait.median_ms)
    makes = f"items {millis(slowest.items_ms)}, collate {millis(slowest.collate_ms)}"
    if slowest.items_ms is None:
        makes = "a few take most of it"
    needs = f"a step needs {millis(step_ms)}"
    waits = wait.lower_ratio >= MIN_WAIT_RATIO
    if not slowest.workers:
        text = f"the main process loads a batch in {millis(slowest.make_ms)} ({makes}) before each step; {needs}"
        return ("processing", text) if waits else ("compute", text)
    who = f"{slowest.workers} worker{'s' if slowest.workers > 1 else ''}"
    delivers = (
        f"{who} {'deliver' if slowest.workers > 1 else 'delivers'} a batch every {millis(slowest.deliver_ms)} "
        f"({millis(slowest.make_ms)} each: {makes}), {needs}"
    )
    if h2d is not None and h2d.median_ratio >= MIN_H2D_RATIO and h2d.median_ms > wait.median_ms:
        return "transfer", f"{delivers}; {millis(h2d.median_ms)} of it is the copy to the device"
    few_wait = waited_ratio is not None and waited_ratio < EMPTY_RATIO
    if not waits or wait.median_ms <= TRANSFER_MARGIN_MS or few_wait:
        if _bursts(slowest, wait, step_ms):
            # Exact for steps that are alike but for their wait.
            mean_ms = step_ms * wait.total_ratio / (1 - wait.total_ratio)
            return "processing", (
                f"{delivers} and, as batches come in bursts, waits {millis(mean_ms)} per step on average: "
                f"{percent(wait.total_ratio)} of the time"
            )
        if slowest.idle_ratio is None:
            return "compute", delivers
        return "compute", f"{delivers}; the workers are idle {percent(slowest.idle_ratio)} of the time"
    idle = slowest.idle_ratio or 0.0
    mean_ms = step_ms / (1 - wait.total_ratio) if wait.total_ratio < 1 else period_ms  # exact likewise
    if slowest.deliver_ms < SLACK_RATIO * max(period_ms, mean_ms) and idle > 1 - SLACK_RATIO:
        if slowest.deliver_ms >= SLACK_RATIO * period_ms:
            return (
                "transfer",
                f"{delivers}; while one batch is late, the other workers idle: {percent(idle)} of the time",
            )
        idle_text = f", although the workers are idle {percent(idle)} of the time"
        return "transfer", f"{delivers}; it still waits {millis(wait.median_ms)}{idle_text}"
    return "processing", f"{delivers} and then waits {millis(wait.median_ms)}"


def _bursts(slowest: InputLoader, wait: Share, step_ms: float) -> bool:
    """Whether workers that are behind deliver several batches at once: few steps wait then, but these for long."""
    idle = slowest.idle_ratio is not None and slowest.idle_ratio > 1 - SLACK_RATIO
    behind = slowest.deliver_ms is not None and slowest.deliver_ms > step_ms
    return behind and not idle and MIN_WAIT_RATIO <= wait.total_ratio < 1
