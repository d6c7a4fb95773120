"""What is computed from measured metrics once, for all who ask: each reads those before it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from lightning_gpuprof.analyze.algorithm_trials import algorithm_trials
from lightning_gpuprof.analyze.beside_model import beside_model, idle_causes
from lightning_gpuprof.analyze.device_kernels import device_run
from lightning_gpuprof.analyze.device_step import device_step
from lightning_gpuprof.analyze.epochs import epoch_gaps, worker_starts
from lightning_gpuprof.analyze.gpus import copies_to_device_ms, gpus
from lightning_gpuprof.analyze.loading import fetch, loading, starving
from lightning_gpuprof.analyze.memory_holders import memory_holders
from lightning_gpuprof.analyze.optimizer_update import optimizer_update
from lightning_gpuprof.analyze.python_time import python_time
from lightning_gpuprof.analyze.stalls import stalls
from lightning_gpuprof.analyze.unevenness import growth, level_change
from lightning_gpuprof.analyze.waiting import interpreter_wait, waiting
from lightning_gpuprof.model.collectives import CollectiveRun, CollectiveWindow
from lightning_gpuprof.model.cpu_demand import QUOTA_RATIO, exceeds_its_cpus, quota_exhausted_ratio
from lightning_gpuprof.model.device_kernels import is_ordinary
from lightning_gpuprof.model.device_step import DeviceStep
from lightning_gpuprof.model.host_time import Contention, HostLimit, MetricCalls
from lightning_gpuprof.model.loading import Loading
from lightning_gpuprof.model.metrics import CallbackCost, Metrics
from lightning_gpuprof.model.missing import MissingSignal, NotApplicable, Unmeasured, or_unmeasured
from lightning_gpuprof.model.numbers import possible
from lightning_gpuprof.model.phases import PHASES, Phase
from lightning_gpuprof.model.share import Share, usable
from lightning_gpuprof.model.signals import delayed_ratio, ordinary_ratio
from lightning_gpuprof.model.trace.attribution import ModuleTime
from lightning_gpuprof.model.waiting import MIN_SAMPLES
from lightning_gpuprof.model.window import WindowFacts

_FAR_BEYOND = 10.0
"""Times its share of the ordinary step, with waiting for a CPU, that pauses do not make of a callback. Heuristic."""


def with_derived(metrics: Metrics) -> Metrics:
    """The metrics with everything that follows from their other fields."""
    metrics = replace(metrics, windows=tuple(_with_link(metrics)))
    metrics = replace(metrics, device_step=device_step(metrics), waiting=waiting(metrics))
    metrics = replace(metrics, gpus=gpus(metrics), copies_to_device_ms=copies_to_device_ms(metrics))
    metrics = replace(metrics, idle_causes=idle_causes(metrics), beside_model=beside_model(metrics))
    metrics = replace(metrics, holders=memory_holders(metrics))
    metrics = replace(metrics, epoch_gaps=epoch_gaps(metrics), worker_starts=worker_starts(metrics))
    metrics = replace(metrics, interpreter_wait=interpreter_wait(metrics), host_limit=host_limit(metrics))
    metrics = replace(metrics, fetch=fetch(metrics))
    metrics = replace(
        metrics, level_change=level_change(metrics), growth=growth(metrics.evenness.drift), stalls=stalls(metrics)
    )
    metrics = replace(metrics, loading=loading(metrics), device_run=device_run(metrics))
    metrics = replace(
        metrics, starving=starving(metrics), callback_costs=callback_costs(metrics), contention=contention(metrics)
    )
    metrics = replace(metrics, optimizer_update=optimizer_update(metrics), metric_calls=metric_calls(metrics))
    metrics = replace(metrics, algorithm_trials=algorithm_trials(metrics))
    return replace(metrics, collectives=collectives(metrics), python_time=python_time(metrics))


def _with_link(metrics: Metrics) -> Iterator[WindowFacts]:
    """The windows with the ceiling of their copies, where all GPUs have the same link."""
    links = {device.facts.pcie_bytes_per_s for device in metrics.devices}
    most = links.pop() if len(links) == 1 else None
    for window in metrics.windows:
        found = window.analysis
        if found is None or found.api_tables is None:
            yield window
        else:
            tables = replace(found.api_tables, pcie_bytes_per_s=most)
            yield replace(window, analysis=replace(found, api_tables=tables))


def contention(metrics: Metrics) -> Contention:
    """Who takes the CPUs; the run's ``loading`` is read."""
    machine, state = metrics.host.machine, metrics.loading
    ranks = None if machine is None else machine.cpu_ranks_cpus
    workers = max(0, metrics.num_workers or 0)
    exhausted_ratio = quota_exhausted_ratio(metrics.host)
    waits = isinstance(state, Loading) and state.made is not None and state.cpu_bound is False
    return Contention(
        delay=_delay(metrics),
        by_this_run=exceeds_its_cpus(metrics.cpu, metrics.host),
        quota_exhausted_ratio=exhausted_ratio,
        by_quota=exhausted_ratio is not None and exhausted_ratio >= QUOTA_RATIO,
        threads=metrics.positive("torch.num_threads"),
        workers=workers,
        computing_workers=0 if waits else workers,
        others_cpus=metrics.host.others_cpus,
        ranks_cpus=ranks.mean if ranks is not None and possible(ranks.mean) else None,
    )


def _delay(metrics: Metrics) -> Share | Unmeasured:
    share, samples = metrics.cpu.run_delay, metrics.cpu.run_delay_samples
    if share is None or not usable(share):
        return Unmeasured(why="waiting for a CPU was not measured: the kernel has no schedstat")
    if samples < MIN_SAMPLES:
        return Unmeasured(why=f"waiting for a CPU was sampled in {samples} of the {MIN_SAMPLES} steps needed")
    return share


def host_limit(metrics: Metrics) -> HostLimit:
    """What time of the host costs; the run's ``device_step`` is read."""
    cpu_only = metrics.is_cpu_only
    step = metrics.device_step if isinstance(metrics.device_step, DeviceStep) else None
    if cpu_only:
        return HostLimit(ratio=1.0, by_phase=dict.fromkeys(PHASES, 1.0))
    idle_ratio = 0.0 if step is None else max(step.idle_ratio, step.utilization_idle_ratio or 0.0)
    stalls_ratio = 1.0 if cpu_only is None else idle_ratio
    by_window = step if step is not None and step.window is not None else None
    by_phase = {} if by_window is None else {phase: _in_phase(metrics, by_window, phase) for phase in PHASES}
    ratio: float | Unmeasured
    if cpu_only is None:
        ratio = Unmeasured(why="the device of the run is not known, so it is not known whether host time counts")
    elif by_window is None:
        ratio = Unmeasured(why="no trace window shows how long the device is idle, and host time counts only then")
    else:
        ratio = by_window.idle_ratio
    return HostLimit(ratio=ratio, by_phase=by_phase, stalls_ratio=stalls_ratio)


def _in_phase(metrics: Metrics, step: DeviceStep, phase: Phase) -> float:
    part, share = step.idle_in_phase.get(phase), metrics.share(phase)
    if part is None or share is None:
        return step.idle_ratio
    return min(step.idle_ratio, part * max(share.median_ratio, share.total_ratio))


def callback_costs(metrics: Metrics) -> tuple[CallbackCost, ...]:
    """What the hooks of each owner take, largest share first."""
    return tuple(sorted((*_callbacks(metrics), *_module_hooks(metrics)), key=lambda cost: cost.ratio, reverse=True))


def _callbacks(metrics: Metrics) -> Iterator[CallbackCost]:
    for one in metrics.callback_shares:
        if usable(one.share):
            ratio = max(ordinary_ratio(metrics, one.share, "callbacks"), _in_few_steps(metrics, one.share))
            yield CallbackCost(owner=one.class_name, hook=one.hook, ratio=ratio, median_ms=one.share.median_ms)


def _in_few_steps(metrics: Metrics, share: Share) -> float:
    """Share of a callback that works in few steps, however long the main thread waits for a CPU; 0 if it does not.

    Its lower bound, which one or two accidents do not reach, without the excess of outliers. Pauses of the machine hit
    a callback in proportion to its time in the ordinary step, and make no such share of it.
    """
    outliers, whole = metrics.outliers, share.total_lower_ratio
    if outliers is None or isinstance(metrics.stalls, Unmeasured) or whole is None or not possible(whole):
        return 0.0
    if whole <= _FAR_BEYOND * share.median_ratio / (1.0 - delayed_ratio(metrics)):
        return 0.0
    return max(0.0, whole - outliers.excess_by_phase_ms.get("callbacks", 0.0) / outliers.total_ms)


def _module_hooks(metrics: Metrics) -> Iterator[CallbackCost]:
    """What is left of the phase: the LightningModule and the DataModule have hooks of the same names."""
    whole, period_ms = metrics.share("callbacks"), metrics.period_ms
    if whole is None or not period_ms:
        return
    own_us = metrics.overhead.get("boundary_us_per_step") or 0.0
    named_ms = sum(c.share.median_ms for c in metrics.callback_shares if usable(c.share))
    named_ms += own_us / 1e3 if possible(own_us) else 0.0
    yield CallbackCost(
        owner=str(metrics.condition("model.class") or "the LightningModule"),
        hook="",
        ratio=max(0.0, whole.lower_ratio - named_ms / period_ms),
        median_ms=max(0.0, whole.median_ms - named_ms),
    )


def collectives(metrics: Metrics) -> CollectiveRun | Unmeasured | None:
    """The communication that the windows show; None: there is only one rank, or the windows of a device hold none."""
    period_ms = metrics.period_ms
    if not metrics.is_distributed or not period_ms:
        return None
    known = [
        (facts, found)
        for facts in metrics.windows
        if (found := facts.results.communication) is not None
        and found.devices
        and facts.steps_us
        and not facts.is_on_slow_step
    ]
    seen = [(facts, found) for facts, found in known if is_ordinary(facts)] or known
    if not seen:
        return Unmeasured(why="no trace window has the device activity of whole steps")
    windows = tuple(
        CollectiveWindow(
            facts=facts,
            communication=found,
            steps=_traced_steps(facts, period_ms),
            in_one_node=metrics.run.get("trainer.num_nodes") == 1,
        )
        for facts, found in seen
        if any(one.collectives for one in found.devices)
    )
    if len(windows) != len(seen):
        return None
    return CollectiveRun(
        period_ms=period_ms,
        ranks=metrics.positive("trainer.world_size") or 2,
        windows=windows,
        has_earlier_work=not any(is_ordinary(facts) for facts, _ in seen),
    )


def _traced_steps(facts: WindowFacts, period_ms: float) -> float:
    if not facts.has_earlier_work:
        return len(facts.steps_us)
    return max(device.window_us for device in facts.devices) / 1e3 / period_ms


@or_unmeasured
def metric_calls(metrics: Metrics) -> MetricCalls:
    """Time of the calls of torchmetrics' modules that update twice: of each the least share of a window's steps.

    Raises:
        NotApplicable: The model holds none. Others update once and compute, which is hard to do in less.
        MissingSignal: No window of ordinary steps names the model's modules.
    """
    known = set(str(metrics.condition("model.metrics_updated_twice") or "").split(", ")) - {""}
    if not known:
        raise NotApplicable("the model has no metric that updates twice")
    in_windows = [
        _of_metrics(found.modules, sum(window.steps_us), str(metrics.condition("model.class")), known)
        for window in metrics.windows
        if (found := window.results.attribution) is not None
        and found.modules
        and sum(window.steps_us) > 0
        and not window.is_on_slow_step
    ]
    if not in_windows:
        raise MissingSignal("no trace window of ordinary steps has the model's modules")
    least = {name: min(found.get(name, 0.0) for found in in_windows) for name in in_windows[0]}
    names = tuple(sorted((name for name in least if least[name] > 0), key=lambda name: -least[name]))
    return MetricCalls(names=names, ratio=sum(least.values()))


def _of_metrics(rows: Iterable[ModuleTime], steps_us: float, model: str, known: set[str]) -> dict[str, float]:
    """Share of the steps by metric; a metric within another one, as in a wrapper, counts as a part of that."""
    found: dict[str, float] = defaultdict(float)
    for row in rows:
        path = row.path[row.path[0] == model :]  # the model itself has no name; it may be called, or its parts alone
        named = [_metric(path[: end + 1], known) for end in range(len(path))]
        if named and named[-1] and not any(named[:-1]):
            found[named[-1]] += row.host_us / steps_us
    return found


def _metric(path: Sequence[str], known: set[str]) -> str:
    """The metric that a path of calls ends in, whoever called it; empty: it ends in another module."""
    return next((name for begin in range(len(path)) if (name := ".".join(path[begin:])) in known), "")
