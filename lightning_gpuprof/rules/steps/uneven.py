"""What rules on uneven runs say of a change of speed, and where they send the reader."""

import math

from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.evenness import SpeedChange, Stretch
from lightning_gpuprof.model.loading import MAX_PREFETCH, Loading
from lightning_gpuprof.model.numbers import round_number
from lightning_gpuprof.model.phases import COMPUTE_PHASES, words_of
from lightning_gpuprof.rules.base import Advice, Change, Metrics, Phase, Value, millis, possible, seconds

LIMIT_S = 0.5
"""Least time that an uneven run must cost. Heuristic: shorter ones are accidents of the machine."""


def computing_words(change: SpeedChange) -> str:
    """A clause on whether the main thread computes or waits longer; empty if that was not measured."""
    if change.waits_longer:
        return " The main thread waits longer there and computes no longer."
    if change.computes_longer and change.computed_ms is not None:
        return f" The main thread computes {millis(change.computed_ms)} longer there."
    return ""


WITHOUT_WAITS = ", not counting waits for a CPU"
"""Said of times that are without them, as other programs hide a change in this one."""

UNTIL_FULL = "slow samples that come before the queue is full"
"""What a longer queue leaves."""

_READ_AHEAD = 2
"""Batches that one worker has ready, torch's default of ``prefetch_factor``."""

UNKNOWN = " Whether other processes took the CPUs was not measured."
"""Said of a change that may be the machine's for lack of a measurement."""


def elapsed_words(part: Stretch) -> str:
    """When a part begins: `` (12.3 s into the run)``, empty if that is not known."""
    return f" ({seconds(part.from_s)} into the run)" if part.from_s is not None and possible(part.from_s) else ""


def suspect_words(metrics: Metrics, change: SpeedChange) -> str:
    """The callback, the line or the data that the change points at, as the object of "find what changed in".

    Args:
        metrics: Metrics of the run.
        change: The difference between a slow and a fast part of the run.

    Returns:
        A phrase without its full stop.
    """
    if change.phase == "callbacks" and metrics.callback_shares:
        return costly_callback(metrics)
    if change.phase == "data_wait":
        dataset = metrics.loader.dataset if metrics.loader is not None else ""
        return f"{dataset or 'the dataset'} (its files, its cache, the size of its samples)"
    site = site_in(metrics, change.phase)
    return (
        f"{words_of(change.phase)}, around {in_words(site)}"
        if site and change.phase in COMPUTE_PHASES
        else words_of(change.phase)
    )


def costly_callback(metrics: Metrics) -> str:
    """The callback that takes most time in all, with its most expensive hook; empty if there is none."""
    costly = max(metrics.callback_shares, key=lambda c: c.share.total_ratio, default=None)
    return f"{costly.class_name}.{costly.hook}" if costly is not None else ""


def site_in(metrics: Metrics, phase: Phase) -> str:
    """The line of your code where the main thread was most often seen in a phase.

    Args:
        metrics: Metrics of the run.
        phase: A phase of the step.

    Returns:
        ``file:line function``; empty if it was not seen in it.
    """
    return next((row.sites[0][0] for row in metrics.blocked or () if row.phase == phase and row.sites), "")


def window_at(metrics: Metrics, batch: int) -> tuple[int, int]:
    """Optimizer steps of a trace window at a batch.

    Args:
        metrics: Metrics of the run.
        batch: Number of the batch, from 0, over all epochs.

    Returns:
        First and last step, both included, as an entry of ``windows`` of the profiler.
    """
    start = max(1, batch // (metrics.positive("trainer.accumulate_grad_batches") or 1))
    return start, start + 2


def queue_against(metrics: Metrics, worst_ms: float, median_ms: float) -> Advice:
    """A queue that hides the longest stall from the step, as the end of an advice.

    Args:
        metrics: The run.
        worst_ms: The longest step.
        median_ms: An ordinary step.

    Returns:
        The text begins with a space. It is empty, without a change, if there is nothing to say; without a change it
        says that a longer queue does not help, or not enough.
    """
    loader = metrics.loader
    if loader is None or loader.num_workers is None:
        return "", None
    workers = loader.num_workers
    if workers == 0:
        plan = metrics.loading.helpful_plan if isinstance(metrics.loading, Loading) else None
        if plan is None and worst_ms > (1 + _READ_AHEAD) * median_ms:  # one worker hides no such stall
            return "", None
        wanted = 1 if plan is None else plan.num_workers  # as rules on the wait of every step advise
        arguments: dict[str, Value] = {"num_workers": wanted, "persistent_workers": True}
        change = Change(call="DataLoader", arguments=arguments, before={"num_workers": 0})
        hides = "A worker that reads ahead hides" if wanted == 1 else "Workers that read ahead hide"
        return f" {hides} a stall from the step: {change.added[0]}", change
    now, state = loader.queued_per_worker, metrics.loading
    slowest_ms = state.slowest_batch_ms if isinstance(state, Loading) else None
    if isinstance(state, Loading) and slowest_ms is not None and slowest_ms >= worst_ms - median_ms:
        worst_ms, depth = slowest_ms, state.queue_for(slowest_ms)  # as input-jitter advises
    else:
        depth = min(MAX_PREFETCH, round_number(math.ceil(worst_ms / median_ms / workers)))
    if depth <= now:
        return f" A longer queue does not help: {workers} workers read far enough ahead.", None
    if isinstance(state, Loading) and state.one_worker_lags:
        worker_ms = millis(state.queue_pace_ms * workers)
        return (
            f" A longer queue hides only some of the stalls: one worker needs {worker_ms} per batch on average.",
            None,
        )
    change = Change(call="DataLoader", arguments={"prefetch_factor": depth}, before={"prefetch_factor": now})
    hides = f"A queue of {depth * workers} batches hides a stall of {millis(worst_ms)}"
    return f" {hides}: {change.added[0]}", change
