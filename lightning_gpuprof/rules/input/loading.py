"""What the input rules say of the loading: the advice as code, and why so many workers."""

from __future__ import annotations

from lightning_gpuprof.model.finding import Evidence, Severity
from lightning_gpuprof.model.loading import MAX_WORKERS, Loading
from lightning_gpuprof.rules.base import severity
from lightning_gpuprof.rules.wording import cpus, millis

_NAMED_CPUS = 0.25
"""Use of the CPUs by others from which it is worth a word. Heuristic."""


def wait_severity(idle_ratio: float | None, certain: float, steps: int) -> Severity:
    """Severity of a wait for data: at most a warning where the device may have work meanwhile.

    Args:
        idle_ratio: As :attr:`Loading.idle_ratio`.
        certain: Lower bound of the wait's share of the step.
        steps: Steps that it rests on.
    """
    if idle_ratio is not None:
        return severity(min(certain, idle_ratio), steps)
    level = severity(certain, steps)
    return "warning" if level == "critical" else level


def code_line(state: Loading, workers: int) -> str:
    """The DataLoader call with the proposed values; pinned memory only where there is a GPU to copy to."""
    pinned = "pin_memory=True, " if state.on_gpu else ""
    return f"DataLoader(..., num_workers={workers}, {pinned}persistent_workers=True)"


def sharding_words(state: Loading) -> str:
    """What an iterable dataset has to do before it gets workers, as a sentence; empty where that is no matter."""
    if not state.is_stream or state.num_workers:
        return ""
    return (
        " The dataset is iterable: first let each worker take its part, or every worker reads all of it and an epoch "
        "has that many times the steps. In __iter__, with info = torch.utils.data.get_worker_info(), read only every "
        "info.num_workers-th file or record, from number info.id on."
    )


def cpu_words(state: Loading) -> str:
    """What is known about CPUs: ``2 CPUs are usable, 0.9 free``."""
    usable = f"{cpus(state.usable_cpus)} {'is' if state.usable_cpus == 1 else 'are'} usable"
    free = state.free_cpus
    if free is None:
        return f"{usable}, how many are free was not measured"
    others = state.others_cpus
    beside = f", {others:.1f} used by other processes" if others is not None and others >= _NAMED_CPUS else ""
    return f"{usable}, {free:.1f} free{beside}"


def batch_words(state: Loading) -> str:
    """How long a batch takes to make and how long the step is without it."""
    most = "one batch takes" if state.num_workers == 0 else f"one batch takes a worker{'' if state.made else ' up to'}"
    return f"{most} {millis(state.batch_ms)} to make, the step needs {millis(state.compute_ms)} without it"


def cap_words(state: Loading, workers: int) -> str:
    """What else to know about the proposed workers: why not more of them, and who competes with them; or empty."""
    words = _fewer_words(state) if workers < state.wanted_workers else ""
    threads = state.compute_threads
    if threads is not None and threads > 1 and state.cpu_bound is not False and threads + workers > state.usable_cpus:
        left = max(1, int(state.usable_cpus) - workers)
        words += (
            f" The model computes on these CPUs as well, on {threads} threads: call torch.set_num_threads({left}), or "
            "workers and model slow each other down."
        )
    return words


def _fewer_words(state: Loading) -> str:
    """Why fewer workers are proposed than would keep pace."""
    keep_pace = f" {state.wanted_workers} workers would keep pace with the step, but"
    if state.cpu_bound:
        return (
            f"{keep_pace} making a batch is CPU work, and {cpus(state.usable_cpus)} cannot do more of it at a time: "
            "for more, make the batch cheaper."
        )
    if state.cpu_bound is None:
        return f"{keep_pace} whether loading is CPU work was not measured, so not more than usable CPUs are proposed."
    return f"{keep_pace} each is a process with a memory of its own, so not more than {MAX_WORKERS} are proposed."


def making_evidence(state: Loading) -> list[Evidence]:
    """The time to make a batch, and its parts where they were measured."""
    made = state.made
    name = "time to make a batch" if state.num_workers == 0 else "time for a worker to make a batch"
    if made is None or made.items_ms is None or made.collate_ms is None:
        return [Evidence(name=name if state.num_workers == 0 else f"{name}, at most", value=state.batch_ms, unit="ms")]
    return [
        Evidence(name=name, value=state.batch_ms, unit="ms"),
        Evidence(name="of it items, measured there", value=made.items_ms, unit="ms"),
        Evidence(name="of it collate_fn, measured there", value=made.collate_ms, unit="ms"),
    ]
