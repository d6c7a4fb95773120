"""What Python takes of a training on the CPU."""

from collections.abc import Sequence

import msgspec

from lightning_gpuprof.model.host_time import PythonTime
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal, or_unmeasured
from lightning_gpuprof.model.numbers import lower_share, possible
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.share import usable
from lightning_gpuprof.model.waiting import MIN_SAMPLES
from lightning_gpuprof.model.window import WindowFacts

LEAST_ASKED = 10
"""How often the interpreter has to be asked for in these phases, where no window shows it. Heuristic: if it comes late
each time, that is four fifths of the time for certain."""

_BUSY_CPUS = 0.05
"""CPUs of another Python thread from which it may be the one that has the interpreter. Heuristic."""

_PHASES: tuple[Phase, ...] = ("forward", "backward")
"""The phases in which the model's own code runs."""


@or_unmeasured
def python_time(metrics: Metrics) -> PythonTime:
    """What of forward and backward no operator of torch takes.

    Waiting, also for a CPU, and pauses of the garbage collector are taken off: other rules name them. Where no
    window shows it, the part is known in which the interpreter was not to be had for a millisecond: an operator of
    torch lets go of it at once. A thread that loses its CPU keeps the interpreter if it was in Python, and may lose it
    anywhere: the part is the same of the time in which it has one.

    Raises:
        MissingSignal: The model is not on the CPU; no window of ordinary steps holds operators and the interpreter was
            asked for too rarely, or by others as well; the thread's CPU time was not measured or in too few steps.
    """
    if not metrics.is_cpu_only:
        raise MissingSignal("the model does not run on the CPU")
    period_ms = metrics.step_ms
    windows = [window for window in metrics.windows if _tells(window)]
    blocked = {row.phase: row for row in metrics.blocked or () if usable(row.blocked) and row.samples >= MIN_SAMPLES}
    several = metrics.is_distributed or any((window.results.world_size or 1) > 1 for window in windows)
    evaluates = metrics.condition("stage") not in (None, "fit")  # nothing is propagated back then
    phases = _PHASES[:1] if several or evaluates else _PHASES
    traced: Sequence[Phase] = ("validation", "forward") if evaluates else phases
    if not blocked.keys() >= set(phases):
        raise MissingSignal(f"the main thread's CPU times of {MIN_SAMPLES} steps are needed")
    shares = {phase: metrics.share_of(phase).median_ms for phase in phases}
    waited_ms = sum(max(0.0, blocked[phase].blocked.median_ms) for phase in phases)
    delayed_ms = (metrics.cpu.run_delay_ratio or 0.0) * period_ms
    # Not the phases' time without the delay: where that is most of them, their medians leave no difference.
    cpu_ms = sum(row.cpu_ms or 0.0 for row in metrics.phases if row.phase in phases)
    collector = metrics.host.gc
    paused_ms = (collector.pause_ms_per_step or 0.0) if collector is not None else 0.0
    lost_ms = waited_ms + delayed_ms + paused_ms
    phase = max(phases, key=lambda one: shares[one])
    sites = blocked[phase].sites
    place = sites[0][0] if sites else ""
    if not windows:
        found = _without_a_window(metrics, phases, cpu_ms, waited_ms, paused_ms)
        return msgspec.structs.replace(found, phase=phase, place=place)
    operators_ms = max(_operators_ms(window) for window in windows)
    traced_ms = min(_traced_ms(window, traced) for window in windows)
    if not all(map(possible, (cpu_ms, lost_ms, operators_ms, traced_ms))):
        raise MissingSignal("the times of operators or phases are not valid numbers")
    # what untraced steps take longer than traced ones is nothing that windows show
    own_ms = max(0.0, min(cpu_ms, traced_ms) - paused_ms)
    lower_ms = max(0.0, own_ms - operators_ms)
    python_ms = min(own_ms, max(lower_ms, traced_ms - operators_ms - lost_ms))
    return PythonTime(
        period_ms=period_ms,
        own_ms=own_ms,
        operators_ms=operators_ms,
        python_ms=lower_ms if any(map(_has_stacks, windows)) else python_ms,
        lower_ms=lower_ms,
        phase=phase,
        place=place,
        calls=max(_calls(window) for window in windows),
    )


def _without_a_window(
    metrics: Metrics, phases: Sequence[Phase], cpu_ms: float, waited_ms: float, paused_ms: float
) -> PythonTime:
    lock = metrics.interpreter_lock
    found = [lock.by_phase.get(phase, (0, 0)) for phase in phases] if lock is not None else []
    asked, late = sum(one for one, _ in found), sum(one for _, one in found)
    if lock is None or asked < LEAST_ASKED or any(thread.cpus >= _BUSY_CPUS for thread in lock.threads):
        raise MissingSignal("no trace window of ordinary steps holds operators and phases")
    if not all(map(possible, (cpu_ms, waited_ms, paused_ms))):
        raise MissingSignal("the times of phases are not valid numbers")
    own_ms = max(0.0, cpu_ms - paused_ms)
    ratio = late / asked

    def held_ms(part: float) -> float:
        """We ask at any moment of the phases; the collector keeps the interpreter as well."""
        return min(own_ms, max(0.0, part * (cpu_ms + waited_ms) - paused_ms))

    return PythonTime(
        period_ms=metrics.step_ms,
        own_ms=own_ms,
        operators_ms=None,
        python_ms=held_ms(ratio),
        lower_ms=held_ms(lower_share(ratio, asked)),
    )


def _tells(window: WindowFacts) -> bool:
    operators, trace = window.results.operators, window.results.step_trace
    seen = operators is not None and operators.calls > 0 and trace is not None and trace.mean is not None
    return seen and not window.is_on_slow_step and len(window.steps_us) > 0


def _operators_ms(window: WindowFacts) -> float:
    operators = window.results.operators
    return operators.host_self_us / 1e3 / len(window.steps_us) if operators is not None else 0.0


def _calls(window: WindowFacts) -> float:
    operators = window.results.operators
    return operators.calls / len(window.steps_us) if operators is not None else 0.0


def _traced_ms(window: WindowFacts, phases: Sequence[Phase]) -> float:
    trace = window.results.step_trace
    phases_us = trace.mean.phases_us if trace is not None and trace.mean is not None else {}
    return sum(phases_us.get(phase, 0.0) for phase in phases) / 1e3


def _has_stacks(window: WindowFacts) -> bool:
    health = window.results.health
    return health is None or any(one.name == "stacks" and one.present for one in health.signals)
