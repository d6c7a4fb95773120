"""What a step is expected to take once the change of a finding is made."""

from lightning_gpuprof.model.finding import Expected, worthwhile
from lightning_gpuprof.model.loading import Loading
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import Claim, Finding, Gain, Metrics, Value, possible

WARM_RATIO = 0.12
"""What the rest of a step on a CPU gets faster once something in the step ends, as its caches stay warm: of what ends.
Heuristic: waits were taken out of fits on two CPUs, three times each; medians of 0.3 ms for waits of 4 ms, 0.6 for 6,
1.2 for 8, 1.4 for 12, 2.2 for 15. Computing, likewise: 0.9 ms for 8 ms, 1.3 for 10, 1.5 for 12."""

WARM_MS = 2.0
"""The most that this is: 2.1 and 2.4 ms for waits of 20 ms in the same measurement."""

MOST_WARM_RATIO = 0.3
"""Of the rest of the step, the most that this is. Heuristic, same measurement."""

BETWEEN_RUNS_RATIO = 0.04
"""By which the step times of two runs of the same program differ. Heuristic: ten pairs of fits on two quiet CPUs, alike
but for a change without effect, differed by up to 3.4 %. With 0.06, intervals that are to hold nine of ten held 23 of
24 changes (``benchmarks/advice.py``)."""

FREED_RATIO = 0.8
"""What the model waits for a CPU beside workers that compute batches, the part that ends when they need not. Heuristic:
some of their work is left."""

SAVED_RATIO = 0.03
"""By which the time that a change ends differs between two runs of a program: files are written, and batches of a
validation made, at another speed. Heuristic: 2 % where a validation was made rarer."""

_ENDED = frozenset(
    (
        claims.BATCH_TRANSFER,
        claims.CALLBACKS,
        claims.CHECKPOINT,
        claims.EPOCH_START,
        claims.GARBAGE_COLLECTOR,
        claims.LOGGING,
        claims.LR_SCHEDULER,
        claims.SAMPLER,
        claims.SANITY_CHECK,
        claims.VALIDATION,
    )
)
"""Measured time that the change of such a finding ends. What compilation, another precision or other kernels bring is
only known once it was tried."""

_PARTS_OF_LOADING = frozenset(("transform-hotspot", "collate-hotspot"))
"""Rules whose gain is that of a named part, measured; the whole of loading a batch never ends."""

MOSTLY = 0.8
"""Of a gain, what has to be waiting for its fix to end it. Heuristic: a sleep in ``training_step`` has 0.95."""

_MAY_WAIT = frozenset((claims.FORWARD, claims.BACKWARD, claims.OPTIMIZER))
"""Of these phases the fix ends what is spent waiting; what is computed there may be needed."""


def expected(finding: Finding, metrics: Metrics) -> Expected | None:
    """The step time after the change of a finding, by itself.

    Args:
        finding: As its rule has it, before findings on the same time share their gain.
        metrics: The run.

    Returns:
        None if the finding has no gain above 1, or a change whose effect only a trial shows; also without a change that
        is known outside of the steps, where a fix rarely ends all of it.
    """
    gain, change, claim = finding.gain, finding.change, finding.explains
    if gain is None or claim is None or gain.speedup_max <= 1:
        return None
    if change is None:
        if not claim.is_in_step:
            return None
        if claim == claims.WAIT_FOR_BATCHES:
            return _with_cheaper_batches(finding.rule, gain, metrics)
    elif change.inside:
        return None
    elif change.call == "DataLoader" and claim in (claims.WAIT_FOR_BATCHES, claims.OUTLIERS):
        return _with_more_workers(change.arguments.get("num_workers"), claim, metrics)
    ends = claim in _ENDED or (claim in _MAY_WAIT and _is_waiting(claim, gain, metrics))
    return _without(gain, claim, metrics) if ends and _is_known_to_hold_the_step(claim, metrics) else None


def _without(gain: Gain, claim: Claim, metrics: Metrics) -> Expected:
    """Without what a gain saves; on a CPU, the rest of a step is then faster, too."""
    rest_ms = max(0.0, gain.whole_ms - gain.saved_ms_per_step)
    warm_ms = _warm_ms(gain.saved_ms_per_step, rest_ms) if metrics.is_cpu_only and claim.is_in_step else 0.0
    most_ms = gain.whole_ms - gain.lower_ms
    return _between(gain.whole_ms, rest_ms - 2 * warm_ms, rest_ms - warm_ms, most_ms, in_step=claim.is_in_step)


def _with_more_workers(workers: Value, claim: Claim, metrics: Metrics) -> Expected | None:
    state = metrics.loading
    if not isinstance(workers, int) or isinstance(state, Unmeasured) or workers <= state.num_workers:
        return None
    per_step = state.bursts if claim == claims.OUTLIERS else state
    if per_step is None or per_step.idle_ratio is None:
        return None
    found = with_workers(per_step, workers, metrics)
    unknown = state.lacks_cpus and not worthwhile(found.whole_ms - found.upper_ms, found.whole_ms)
    return None if unknown else found  # it depends on what other programs leave next time


def _with_cheaper_batches(rule: str, gain: Gain, metrics: Metrics) -> Expected | None:
    """Without the wait; where workers leave the model too few CPUs, also without most of what the model waits."""
    state = metrics.loading
    if isinstance(state, Unmeasured):
        return None
    if state.num_workers == 0:
        known = rule in _PARTS_OF_LOADING and metrics.is_cpu_only
        return _without(gain, claims.WAIT_FOR_BATCHES, metrics) if known else None
    if not state.delayed_ms or gain.saved_ms_per_step < MOSTLY * state.wait.median_ms:
        return None
    rest_ms, floor_ms = gain.whole_ms - gain.saved_ms_per_step, max(0.0, state.period_ms - state.idle_ms)
    least_ms, likely_ms = (max(floor_ms, rest_ms - ratio * state.delayed_ms) for ratio in (1.0, FREED_RATIO))
    return _between(gain.whole_ms, least_ms, likely_ms, gain.whole_ms - gain.lower_ms)


def _is_known_to_hold_the_step(claim: Claim, metrics: Metrics) -> bool:
    """Not where a device may work meanwhile, or the step would wait for the workers instead."""
    if claim.resource != "training thread":
        return True
    known = claim.phase is None or metrics.host_limit.by_phase.get(claim.phase) is not None
    return known and not metrics.fetch.workers_set_the_pace


def with_workers(state: Loading, workers: int, metrics: Metrics) -> Expected:
    """The mean step with another number of DataLoader workers.

    Args:
        state: How the training loop is fed now.
        workers: At least one.
        metrics: The run.

    Returns:
        In ms, with the interval that also covers what two runs of one program differ by.
    """
    idles = metrics.is_cpu_only and state.cpu_bound is False
    warm_ms = _warm_ms(state.wait.median_ms, state.compute_ms) if idles else 0.0
    floor_ms = max(0.0, state.period_ms - state.idle_ms)
    least, likely, most = (max(floor_ms, time) for time in state.step_times_ms(workers, warm_ms=warm_ms))
    return _between(state.period_ms, least, likely, most)


def _between(whole_ms: float, least_ms: float, likely_ms: float, most_ms: float, *, in_step: bool = True) -> Expected:
    """An interval that also covers what two runs of one program differ by; no step gets longer than it was."""
    likely_ms = max(likely_ms, 0.01 * whole_ms)
    saved_ms = 0.0 if in_step else SAVED_RATIO * max(0.0, whole_ms - likely_ms)
    return Expected(
        whole_ms=whole_ms,
        step_ms=likely_ms,
        lower_ms=max(0.0, min(least_ms, likely_ms) * (1 - BETWEEN_RUNS_RATIO) - saved_ms),
        upper_ms=max(likely_ms, min(whole_ms, max(most_ms, likely_ms) * (1 + BETWEEN_RUNS_RATIO) + saved_ms)),
    )


def _warm_ms(ended_ms: float, rest_ms: float) -> float:
    """How much faster the rest of a step on a CPU gets once so much of it ends."""
    return min(WARM_RATIO * ended_ms, WARM_MS, MOST_WARM_RATIO * rest_ms)


def _is_waiting(claim: Claim, gain: Gain, metrics: Metrics) -> bool:
    """Whether in most of what a gain saves the CPU that trains has nothing to do; False if unknown, or on a device."""
    row = next((row for row in metrics.phases if row.phase == claim.phase), None)
    if not metrics.is_cpu_only or row is None or row.cpu_ms is None or not possible(row.cpu_ms):
        return False
    return (row.median_ms or 0.0) - row.cpu_ms >= MOSTLY * gain.saved_ms_per_step
