"""What the input rules share: the severity of a wait, and the advice on workers as data and as the sentence why."""

from lightning_gpuprof.model.finding import SHARD_FIRST, at_most_warning
from lightning_gpuprof.model.loading import MAX_WORKERS, Loading, WorkerPlan
from lightning_gpuprof.rules.base import (
    Change,
    Evidence,
    Metrics,
    Severity,
    Value,
    cpus,
    decimal_size,
    millis,
    severity,
)

CHEAPER = (
    "decode and resize once before the run, keep decoded samples in memory, or augment whole batches in "
    "LightningModule.on_after_batch_transfer"
)
"""How a batch gets cheaper."""

_LEFT_RATIO = 0.1
"""Of the wait, what a plan leaves of it that is worth a word. Heuristic."""

_BUSY_RATIO = 0.75
"""Of the CPUs, from which what workers load slows the model. Heuristic."""

_NAMED_CPUS = 0.25
"""Use of the CPUs by others from which it is worth a word. Heuristic."""


def wait_severity(idle_ratio: float | None, certain: float, steps: int) -> Severity:
    """Severity of a wait for data: at most a warning where the device may have work meanwhile.

    Args:
        idle_ratio: As :attr:`Loading.idle_ratio`.
        certain: Lower bound of the wait's share of the step.
        steps: Steps that it rests on.

    Returns:
        By what is certain, but no more than the device idles; at most a warning if that is not known.
    """
    if idle_ratio is not None:
        return severity(min(certain, idle_ratio), steps)
    return at_most_warning(severity(certain, steps))


def wait_words(state: Loading, *, in_bursts: bool) -> str:
    """``each 123 ms step waits 119 ms for its batch``.

    Args:
        state: How the training loop is fed.
        in_bursts: Whether that is the mean step, as few steps wait, but for long.

    Returns:
        One clause without its full stop.
    """
    step, waited = millis(state.period_ms), millis(state.waited_ms)
    if in_bursts:
        return f"on average, a step takes {step} and waits {waited} of that for data"
    return f"each {step} step waits {waited} for its batch"


def loader_change(metrics: Metrics, workers: int, **more: Value) -> Change:
    """Arguments of the DataLoader for this many workers, without those that are set already.

    Args:
        metrics: The run.
        workers: To set.
        more: Further arguments.

    Returns:
        Of earlier values it has ``num_workers`` alone, if that is known.
    """
    facts = metrics.loader
    arguments: dict[str, Value] = {"num_workers": workers, **more}
    if metrics.condition("device.type") == "cuda" and not (facts and facts.pin_memory):
        arguments["pin_memory"] = True
    if not (facts and facts.num_workers and facts.persistent_workers):
        arguments["persistent_workers"] = True
    before: dict[str, Value] = {"num_workers": facts.num_workers} if facts and facts.num_workers is not None else {}
    return Change(call="DataLoader", arguments=arguments, before=before)


def more_workers(metrics: Metrics, state: Loading, workers: int) -> Change:
    """As :func:`loader_change`, with fewer threads for a model that computes on the CPUs that the workers need.

    Args:
        metrics: Metrics of the run.
        state: How the training loop is fed.
        workers: The new ``num_workers``.

    Returns:
        With fewer threads it has a line that sets them.
    """
    change = loader_change(metrics, workers)
    threads = state.compute_threads or 1
    if threads == 1 or state.cpu_bound is False or threads + workers <= state.usable_cpus:
        return change
    left = max(1, int(state.usable_cpus) - workers)
    return Change(
        call=change.call, arguments=change.arguments, before=change.before, add=(f"torch.set_num_threads({left})",)
    )


def why_workers(metrics: Metrics, state: Loading, change: Change) -> str:
    """Why this number of workers, and what else to know about it.

    Args:
        metrics: The run.
        state: How the training loop is fed.
        change: The change that :func:`more_workers` gives.

    Returns:
        Sentences with their full stops.
    """
    workers = change.arguments["num_workers"]
    most = "" if state.made or not state.num_workers else "up to "
    words = f"Why {workers}: {_reason(metrics, state, workers, f'{most}{millis(state.batch_ms)}')}"
    others = state.others_cpus or 0.0
    if others >= _NAMED_CPUS:
        less = ": while they do, workers gain less" if state.lacks_cpus else ""
        words += f" Other processes use {cpus(others)}{less}."
    if change.add:
        words += f" The model computes on the same CPUs: also call {change.add[0]}."
    if state.is_stream and not state.num_workers:
        words += (
            f" {SHARD_FIRST}, or every worker yields all of it: in __iter__, with "
            "info = torch.utils.data.get_worker_info(), read only every info.num_workers-th record from info.id on."
        )
    return words


def loading_left(state: Loading, plan: WorkerPlan) -> str:
    """What of the wait more workers leave at best, or what they take of the model's CPUs.

    Args:
        state: How the training loop is fed.
        plan: The number of workers.

    Returns:
        A phrase for ``leaves`` of a finding; empty if that is little, or the CPU time of loading is not known.
    """
    left_ms = plan.period_ms - state.compute_ms
    if left_ms >= _LEFT_RATIO * state.wait.median_ms:
        return f"a wait of at least {millis(left_ms)} in each step"
    if state.cpu_ms is None or state.cpu_bound is not True:
        return ""
    needed_ms = state.compute_ms + state.cpu_ms.least_ms
    if needed_ms < _BUSY_RATIO * plan.period_ms * state.usable_cpus:
        return ""
    return f"the CPU time of loading, {millis(state.cpu_ms.least_ms)} a batch, on the CPUs that the model computes on"


def _reason(metrics: Metrics, state: Loading, workers: Value, batch: str) -> str:
    enough = state.recommended_workers
    if workers == enough:
        many = _more_than_cpus(state) if enough > state.usable_cpus else ""
        rest = f"the rest of the step {millis(state.compute_ms)}"
        return f"loading a batch takes {batch}, {rest}, plus a spare worker{many}."
    if state.cpu_bound is False:
        held = metrics.host.held_by_worker_bytes
        needs = "each is a process with its own memory"
        if held is not None:
            needs = f"more than {MAX_WORKERS} would need over {decimal_size(held * MAX_WORKERS)} of memory"
        many = _more_than_cpus(state) if isinstance(workers, int) and workers > state.usable_cpus else ""
        return f"{enough} workers would remove the wait completely, but {needs}{many}."
    if state.cpu_bound is None:
        return "one worker per usable CPU, because the CPU time of loading a batch was not measured."
    costs = f"took {batch} while other programs ran," if state.is_crowded else f"costs {batch} of CPU time"
    return f"a batch {costs} and you have {cpus(state.usable_cpus)}. To go faster still, make the batch cheaper."


def _more_than_cpus(state: Loading) -> str:
    return f"; on {cpus(state.usable_cpus)} this holds because loading mostly waits, as long as the storage keeps up"


def making_evidence(state: Loading) -> list[Evidence]:
    """The time to load a batch, and its parts where they were measured."""
    made = state.made
    name = "time to load a batch" if state.num_workers == 0 else "time for a worker to load a batch"
    if made is None and state.num_workers:
        name += ", at most"
    whole = Evidence(name=name, value=state.batch_ms, unit="ms")
    if made is None or made.items_ms is None or made.collate_ms is None:
        return [whole]
    return [
        whole,
        Evidence(name="time in its items", value=made.items_ms, unit="ms"),
        Evidence(name="time in collate_fn", value=made.collate_ms, unit="ms"),
    ]
