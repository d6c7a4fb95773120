"""Builds one rank's Metrics: everything that rules and reports read."""

import datetime
import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import TypedDict

import msgspec
import numpy as np

from lightning_gpuprof.analyze import (
    blocked,
    budget,
    call_sites,
    compilation,
    devices,
    epochs,
    memory,
    outliers,
    signals,
    statistics,
    steady,
)
from lightning_gpuprof.analyze.accumulation import accumulation
from lightning_gpuprof.analyze.batch_shapes import batch_shapes
from lightning_gpuprof.analyze.blocked import interpreter_lock
from lightning_gpuprof.analyze.callback_names import callback_names
from lightning_gpuprof.analyze.conditions import conditions_hash
from lightning_gpuprof.analyze.cpu_time import SampledSteps, device_caveats, device_medians_ms
from lightning_gpuprof.analyze.curves import curves
from lightning_gpuprof.analyze.derived import with_derived
from lightning_gpuprof.analyze.evenness import evenness
from lightning_gpuprof.analyze.every_kernel import every_kernel
from lightning_gpuprof.analyze.hook_share import hook_share, logger_writes, transfer_hooks
from lightning_gpuprof.analyze.host_use import host_use
from lightning_gpuprof.analyze.input_pipeline import input_pipeline
from lightning_gpuprof.analyze.journal_columns import Ints, Journal, PhaseColumns
from lightning_gpuprof.analyze.ledger import ledger
from lightning_gpuprof.analyze.marks import MAX_MARKS, marks
from lightning_gpuprof.analyze.rank_notices import notable
from lightning_gpuprof.analyze.steady import Selection
from lightning_gpuprof.analyze.step_facts import caveats as step_caveats
from lightning_gpuprof.analyze.step_facts import step_facts
from lightning_gpuprof.analyze.windows_cost import windows_s, with_inflation
from lightning_gpuprof.model.conditions import HASH_NAME, SAMPLES, condition_of
from lightning_gpuprof.model.journal import DISTURBED, PROFILED, Notice, Value
from lightning_gpuprof.model.metrics import CallbackShare, LoaderFacts, Metrics
from lightning_gpuprof.model.numbers import counted
from lightning_gpuprof.model.phases import PHASES
from lightning_gpuprof.model.report import MIN_STEADY_STEPS, OWN_NAME, CallbackRow, LedgerRow, Steps, Validity, Wall
from lightning_gpuprof.model.window import WindowFacts

WAIT_MIN_NS = 200_000
WAIT_MIN_RATIO = 0.02
MAX_UNEXPLAINED_RATIO = 0.01
"""Of the wall time; what is recorded whole leaves nothing."""
MIN_UNEXPLAINED_S = 0.05
"""Less is what a busy host takes between two clock reads: a time slice or a few of them."""
VITAL_PARTS = ("steps", "journal")
"""Parts without which the numbers do not stand for the run."""
SERIES_POINTS = 2000
LONGEST_STEPS = 100
"""These are in the curves, whatever else is near them."""


def build(journal: Journal, windows: Sequence[WindowFacts], notices: Sequence[Notice] = ()) -> Metrics:
    """Compute everything.

    Args:
        journal: One rank's journal.
        windows: Facts of its windows, in order.
        notices: Notices that did not reach the journal.

    Returns:
        With what follows from other fields; what was not measured is None, empty or Unmeasured.
    """
    steps = journal.steps
    phases = journal.phases
    compiled = compilation.compiled_steps(journal)
    chosen = steady.select(steps, phases, compiled)
    period = chosen.steady_of(steps.period_ns)
    steady_from_ns = None if chosen.first_steady is None else int(steps.start_ns[chosen.first_steady])
    host = host_use(journal, steady_from_ns)
    shares = {
        phase: found
        for phase in PHASES
        if (found := statistics.share(chosen.steady_of(phases[phase]), period)) is not None
    }
    batch = _samples(journal.conditions) or _loader_batch(journal.conditions)
    summary = step_facts(journal, chosen, batch * journal.header.world_size if batch else None)
    unsaved, unsaved_phases = _without_checkpoints(journal)
    ordinary = chosen.steady | chosen.saving(steps, phases)
    undisturbed = ordinary & ((steps.flags & DISTURBED) == 0)
    far = outliers.outlier_indices(unsaved.steps, undisturbed)
    waited_ratio = _fetch_waited(chosen.steady_of(phases["data_wait"]), period)
    del period  # of a long run it would be in the way of what comes next
    fed = input_pipeline(
        journal,
        shares,
        period_ms=summary.period_ms.median if summary.period_ms else None,
        steady_steps=summary.steady_count,
        waited_ratio=waited_ratio,
    )
    sampled = SampledSteps(journal, chosen.steady)
    run_delay = sampled.delay()
    cpu = msgspec.structs.replace(
        signals.cpus(journal, host),
        run_delay_ratio=sampled.delay_ratio(),
        run_delay=run_delay,
        run_delay_samples=len(sampled) if run_delay is not None else 0,
    )
    crowd = signals.caveats(cpu, host, journal.header.world_size)
    wall = budget.wall(journal)
    metrics = Metrics(
        **_account(journal, wall, chosen),
        validity=_validity(journal, wall, summary, chosen, notable(journal, notices), crowd),
        windows=with_inflation(windows, journal, chosen.steady, _own_ns(journal)),
        sources=journal.sources,
        steps=summary,
        phases=budget.phase_rows(
            phases,
            chosen.steady,
            sampled.cpu_ms(),
            device_medians_ms(journal, chosen.steady),
        ),
        shares=shares,
        callback_shares=_callback_shares(
            journal, ordinary, np.where(chosen.steady, steps.period_ns, unsaved.steps.period_ns)[ordinary]
        ),
        loader=_loader(journal.conditions, None if fed is None else fed.slowest),
        cpu=cpu,
        fetch_waited_ratio=waited_ratio,
        epoch_starts=epochs.epoch_starts(journal),
        validation=epochs.recurring(journal, "validation"),
        checkpoint=epochs.recurring(journal, "checkpoint"),
        lines=call_sites.lines(journal),
        stacks=call_sites.stacks(journal),
        line_times=journal.line_times,
        kernels=every_kernel(journal),
        blocked=blocked.blocked(sampled),
        outliers=outliers.outliers(unsaved, unsaved_phases, undisturbed),
        devices=devices.devices(journal),
        host=host,
        memory=memory.memory(
            journal,
            summary.steady_from,
            host.process.rss_bytes.max if host.process and host.process.rss_bytes else None,
        ),
        compile=compilation.compile_facts(journal, chosen, compiled),
        series=_series(journal, far[:MAX_MARKS]),
        curves=curves(journal),
        marks=marks(journal, far, summary.speed_levels),
        input=fed,
        evenness=evenness(journal, chosen, sampled),
        logging_without_delay=blocked.without_delay(sampled, "logging"),
        log_calls=hook_share(journal, chosen.steady, "self.log"),
        logger_writes=logger_writes(journal, chosen.steady),
        lr_scheduler=hook_share(journal, chosen.steady, "lr_scheduler_step"),
        interpreter_lock=interpreter_lock(sampled),
        transfer_hooks=transfer_hooks(journal, chosen.steady),
        batch_shapes=batch_shapes(journal, chosen.labels),
        accumulation=accumulation(journal, chosen.steady),
    )
    return with_derived(metrics)


def with_end(metrics: Metrics, journal: Journal) -> Metrics:
    """The metrics of a run that has come to its end since: only the time outside of its steps is computed again.

    Args:
        metrics: Built when the steps were over and no samples were taken any more.
        journal: As it is now.

    Returns:
        Shares what is not computed again with ``metrics``.
    """
    chosen = steady.select(journal.steps, journal.phases, compilation.compiled_steps(journal))
    return msgspec.structs.replace(metrics, **_account(journal, budget.wall(journal), chosen))


class _Account(TypedDict):
    """What the end of a run still changes."""

    run: dict[str, Value]
    status: str
    wall: Wall
    callbacks: tuple[CallbackRow, ...]
    overhead: dict[str, float | None]
    ledger: tuple[LedgerRow, ...]


def _account(journal: Journal, wall: Wall, chosen: Selection) -> _Account:
    return {
        "run": _run(journal),
        "status": journal.footer.status if journal.footer else "unfinished",
        "wall": wall,
        "callbacks": budget.callback_rows(journal, wall.total_s),
        "overhead": _overhead(journal, chosen.steady),
        "ledger": ledger(journal),
    }


def _run(journal: Journal) -> dict[str, Value]:
    header = journal.header
    started = datetime.datetime.fromtimestamp(header.epoch_ns / 1e9, tz=datetime.timezone.utc)
    return {
        "run_id": header.run_id,
        "stage": header.stage,
        "started": started.isoformat(timespec="seconds"),
        "status": journal.footer.status if journal.footer else "unfinished",
        **({"ended_at": journal.footer.place} if journal.footer and journal.footer.place else {}),
        "gpuprof": header.gpuprof,
        "host": header.host,
        "rank": header.rank,
        "world_size": header.world_size,
        HASH_NAME: conditions_hash(journal.conditions),
        **dict(sorted(journal.conditions.items())),
    }


def is_unaccounted(wall: Wall) -> bool:
    """Whether so much of the wall time is in no part that the numbers cannot be relied on."""
    return abs(wall.parts["unexplained"]) > max(MAX_UNEXPLAINED_RATIO * wall.total_s, MIN_UNEXPLAINED_S)


def _validity(
    journal: Journal,
    wall: Wall,
    facts: Steps,
    chosen: Selection,
    notices: Sequence[Notice],
    crowd: Sequence[str],
) -> Validity:
    against: list[str] = []
    if facts.steady_count < MIN_STEADY_STEPS:
        few = f"{facts.steady_count} of the {MIN_STEADY_STEPS} steady steps that reliable numbers need"
        against.append(f"{few}: run at least {MIN_STEADY_STEPS + 10} steps")
    if is_unaccounted(wall):
        left = f"{wall.parts['unexplained']:.3g} s of {wall.total_s:.3g} s"
        against.append(f"{left} are unaccounted for: a part was not recorded")
    against += (f"{notice.part}: {notice.message}" for notice in notices if notice.part in VITAL_PARTS)
    caveats = list(against)  # what says why it is not valid comes first
    if journal.footer is None:
        caveats.append("the run was killed or is still running: numbers up to the last write of its journal")
    elif journal.footer.status != "finished":
        at = f" at {journal.footer.place}" if journal.footer.place else ""
        caveats.append(f"the run was {journal.footer.status}{at}")
    caveats += crowd  # before what may follow from it
    caveats += step_caveats(journal, facts, chosen)
    if journal.dropped_lines:
        caveats.append(f"{counted(journal.dropped_lines, 'line')} of the journal could not be read: left out")
    if journal.lost_slots:
        plural = "s" if journal.lost_slots > 1 else ""
        caveats.append(f"the name of {journal.lost_slots} slot{plural} was lost: their time is shown as loop")
    caveats += (f"{notice.part}: {notice.message}" for notice in notices)
    caveats += device_caveats(journal)
    return Validity(ok=not against, caveats=tuple(dict.fromkeys(caveats)), conditional=bool(crowd))


def _samples(conditions: dict[str, Value]) -> int | None:
    """Samples of a batch as the user counts them; None if the batch size is to count."""
    given = conditions.get(SAMPLES)
    return given if isinstance(given, int) and given > 0 else None


def _loader_batch(conditions: dict[str, Value]) -> int | None:
    value = conditions.get("loader.batch_size")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _loader(conditions: dict[str, Value], slowest: int | None) -> LoaderFacts | None:
    """Facts of the slowest of several training loaders, where it is known; its batch size is the largest."""

    def fact(name: str) -> Value:
        return condition_of(conditions, f"loader.{name}", slowest)

    def number(name: str) -> int | None:
        value = fact(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def flag(name: str) -> bool | None:
        value = fact(name)
        return value if isinstance(value, bool) else None

    kind = fact("kind")
    if not isinstance(kind, str):
        return None

    return LoaderFacts(
        kind=kind,
        num_workers=number("num_workers"),
        batch_size=_loader_batch(conditions),
        pin_memory=flag("pin_memory"),
        persistent_workers=flag("persistent_workers"),
        prefetch_factor=number("prefetch_factor"),
        dataset=str(fact("dataset") or ""),
    )


def _without_checkpoints(journal: Journal) -> tuple[Journal, PhaseColumns]:
    """Steps and phases as if checkpoints took no time: what else is in such a step has to be seen."""
    steps, phases, saved_ns = journal.steps, journal.phases, journal.phases["checkpoint"]
    if not saved_ns.any():
        return journal, phases
    steps = msgspec.structs.replace(steps, period_ns=steps.period_ns - saved_ns)
    return msgspec.structs.replace(journal, steps=steps), phases.without("checkpoint")


def _callback_shares(journal: Journal, chosen: steady.Mask, period: Ints) -> tuple[CallbackShare, ...]:
    names = callback_names(journal.slots)
    by_hook: dict[str, dict[str, Ints]] = defaultdict(dict)
    for slot_id in journal.steps.charged:
        slot = journal.slots[slot_id]
        if slot.callback and slot.step_phase == "callbacks":
            hooks = by_hook[names[slot.callback]]
            column = journal.steps.charged[slot_id][chosen]
            hooks[slot.hook] = hooks.get(slot.hook, np.zeros(len(period), np.int64)) + column
    found: list[CallbackShare] = []
    for name, hooks in by_hook.items():
        total = sum(hooks.values(), np.zeros(len(period), np.int64))
        share = statistics.share(total, period)
        if name == OWN_NAME or share is None:
            continue
        worst = max(hooks, key=lambda hook: int(hooks[hook].sum()))
        found.append(CallbackShare(name=name, hook=worst, share=share))
    return tuple(sorted(found, key=lambda callback: -callback.share.median_ratio))


def _fetch_waited(wait: Ints, period: Ints) -> float | None:
    if not len(period):
        return None
    long = wait > WAIT_MIN_NS
    return float(np.count_nonzero(wait[long] > WAIT_MIN_RATIO * period[long]) / len(period))


def _overhead(journal: Journal, steady_steps: steady.Mask) -> dict[str, float | None]:
    """The profiler's own cost.

    Edges are counted from the slots that steps used: each was entered and left at least once, so that the figure is a
    lower bound where an action repeats within a step.
    """
    measured = journal.footer.overhead if journal.footer else {}
    steps = journal.steps
    n = len(steps)
    total_s = (journal.end_ns - journal.header.start_ns) / 1e9
    plain = (steps.flags & (PROFILED | DISTURBED)) == 0
    own_ns = _own_ns(journal)
    period = steps.period_ns[steady_steps]
    boundary_ns = int(own_ns[plain].sum())
    edge_ns = measured.get("edge_ns")
    edges = 2.0 * sum(int(np.count_nonzero(steps.charged[slot])) for slot in steps.charged) / n if n else None
    edges_us = edges * edge_ns / 1e3 if edges is not None and edge_ns is not None else None
    background_s = [measured.get(name) for name in ("journal_cpu_s", "samplers_cpu_s")]
    median_us = statistics.median(period) / 1e3 if len(period) else None
    boundary_us = boundary_ns / int(plain.sum()) / 1e3 if plain.any() else None
    per_step = None if edges_us is None or boundary_us is None else edges_us + boundary_us
    return {
        "edge_ns": edge_ns,
        "edges_per_step": edges,
        "timing_us_per_step": edges_us,
        "boundary_us_per_step": boundary_us,
        "share_of_step_ratio": per_step / median_us if per_step is not None and median_us else None,
        "background_cpu_ratio": (
            sum(s for s in background_s if s is not None) / total_s
            if total_s and all(s is not None for s in background_s)
            else None
        ),
        "windows_s": windows_s(journal, steady_steps, own_ns),
        "hooks_s": _own_between_ns(journal) / 1e9,
        "conditions_s": measured.get("conditions_s"),
    }


def _own_ns(journal: Journal) -> Ints:
    """What the profiler itself took at each step's boundary."""
    own = next((s.id for s in journal.slots if s.callback == OWN_NAME), -1)
    return journal.steps.charged.get(own, np.zeros(len(journal.steps), np.int32))


def _own_between_ns(journal: Journal) -> int:
    """What the profiler's own hooks took outside the steps: at the start, between epochs and at the end."""
    own = {s.id for s in journal.slots if s.callback == OWN_NAME}
    return sum(ns for segment in journal.segments for slot, ns in segment.charged.items() if slot in own)


def _series(journal: Journal, far: Ints) -> dict[str, list[float]]:
    """Curves over steps. Of many steps the longest of each stretch stay, the longest of the run, and the outliers."""
    steps = journal.steps
    n = len(steps)
    if not n:
        return {}
    if n <= SERIES_POINTS:
        index = np.arange(n)
    else:
        edges = np.linspace(0, n, SERIES_POINTS + 1).astype(np.int64)
        of_stretches = [a + int(np.argmax(steps.period_ns[a:b])) for a, b in itertools.pairwise(edges)]
        least = np.partition(steps.period_ns, n - LONGEST_STEPS)[n - LONGEST_STEPS]
        longer = np.flatnonzero(steps.period_ns > least)
        as_long = np.flatnonzero(steps.period_ns == least)[: LONGEST_STEPS - len(longer)]
        index = np.unique(np.concatenate([of_stretches, longer, as_long, far]))

    def ms(column: Ints) -> list[float]:
        return [round(float(v), 4) for v in column[index] / 1e6]

    return {
        "batch": [float(b) for b in steps.batch[index]],
        "t_s": [round(float(t), 4) for t in (steps.start_ns[index] - journal.header.start_ns) / 1e9],
        "period_ms": ms(steps.period_ns),
        **{f"{phase}_ms": ms(journal.phases[phase]) for phase in journal.phases.timed},
    }
