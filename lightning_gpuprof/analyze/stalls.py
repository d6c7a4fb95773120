"""What long steps can be blamed on: the program, or a machine that has other things to do."""

import itertools
import math
from collections.abc import Mapping

from msgspec.structs import replace

from lightning_gpuprof.analyze.signals import OTHERS_CPUS
from lightning_gpuprof.analyze.unevenness import ALIKE_RATIO, concentration
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.numbers import possible
from lightning_gpuprof.model.outliers import UNLIKELY, Outliers, Stalls, dominant_phases
from lightning_gpuprof.model.phases import COMPUTE_PHASES, Phase
from lightning_gpuprof.model.share import usable
from lightning_gpuprof.model.signals import machine_busy_ratio

_CROWDED_RATIO = 0.8
"""Use of the machine's CPUs from which long steps may be those that waited for one. Heuristic: on a machine with two
CPUs that others used, healthy runs had outliers in the model's phases from here on."""

_OTHERS_RATIO = 0.25
"""Share of the usable CPUs that other processes use, from which the same holds. Heuristic: with 27 % a healthy run had
outliers in ``forward`` for 12 % of its time."""

_SLOW_SAMPLE_RATIO = 0.5
"""Of the longest stall, what one sample must have taken to be its reason on a machine that others use. Heuristic."""

_MADE_RATIO = 0.8
"""Of the stalls, what making all batches takes at least if it is their reason. Heuristic: handing over adds some."""

_OF_PARTS_RATIO = 0.8
"""Share of the excess that slow parts of the run must hold to be all there is to say. Heuristic."""

_LEAST_RATIO = 1e-6
"""Share of the ordinary step of a phase that is not in it."""

_SPREAD_RATIO = 0.8
"""No single phase holds so much of an excess that is spread over several. Heuristic, as for naming them."""

_GRID_STALLS = 4
_LEAST_GRID = 5
"""So many of the longest stalls, at least, must lie on a grid of at least so many steps. Heuristic: rare by chance."""


def stalls(metrics: Metrics) -> Stalls | Unmeasured:
    """The outlying steps with what else is known of the run."""
    found = metrics.outliers
    if found is None or found.checked <= 0:
        return Unmeasured(why="too few comparable steps (50 are needed) to find outliers")
    if not _coherent(found):
        return Unmeasured(why="the times of the outliers are not valid numbers")
    shares = {phase: share for phase, share in metrics.shares.items() if usable(share)}
    usual_ratio = {phase: share.median_ratio for phase, share in shares.items()}
    outliers = _without_delay(metrics, found, usual_ratio)
    every = _distance(outliers)
    ordinary_ms = {phase: share.median_ms for phase, share in shares.items()}
    excess_ms = outliers.excess_by_phase_ms
    longest_ms = outliers.worst_ms - (metrics.period_ms or 0.0)
    known = Stalls(
        outliers=outliers,
        attributed_ms=excess_ms,
        every=every,
        made_in_time=every is None and _made_in_time(metrics, outliers),
        alike=every is None
        and len(dominant_phases(excess_ms, _SPREAD_RATIO)) > 1
        and concentration(excess_ms, ordinary_ms) < ALIKE_RATIO,
        in_slow_levels=_in_slow_levels(metrics, found),
        usual_ratio=usual_ratio,
        as_many=outliers.excess_ms / longest_ms if longest_ms > 0 else 0.0,
    )
    return replace(known, attributed_ms=_attributed_ms(metrics, known))


def _without_delay(metrics: Metrics, outliers: Outliers, usual_ratio: Mapping[Phase, float]) -> Outliers:
    """What of the excess is left when the main thread's waiting for a CPU is taken off, which other programs had.

    A thread loses its CPU anywhere: the waiting is taken off the phases by their share of the ordinary step. Where it
    was the run's own threads or workers that had the CPU, the stalls are the run's.
    """
    ratio, others = outliers.delayed_ratio, metrics.host.others_cpus
    if ratio is None or not possible(ratio) or (others is not None and others < OTHERS_CPUS):
        return outliers
    left, rest_ms = max(0.0, 1.0 - ratio), outliers.rest_excess_ms
    waited_ms = (1.0 - left) * sum(outliers.excess_by_phase_ms.values())
    return replace(
        outliers,
        excess_ms=left * outliers.excess_ms,
        excess_by_phase_ms=_without(waited_ms, outliers.excess_by_phase_ms, usual_ratio),
        rest_excess_ms=None if rest_ms is None else left * rest_ms,
    )


def _without(
    waited_ms: float, excess_ms: Mapping[Phase, float], usual_ratio: Mapping[Phase, float]
) -> dict[Phase, float]:
    """Waiting taken off each phase by its share of the ordinary step; what one has no room for, off the others."""
    weights = {phase: max(usual_ratio.get(phase, 0.0), _LEAST_RATIO) for phase in excess_ms}
    left_ms, weight = dict(excess_ms), sum(weights.values())
    for phase in sorted(excess_ms, key=lambda phase: excess_ms[phase] / weights[phase]):
        part_ms = min(left_ms[phase], waited_ms * weights[phase] / weight)
        left_ms[phase] -= part_ms
        waited_ms, weight = waited_ms - part_ms, weight - weights[phase]
    return left_ms


def _coherent(outliers: Outliers) -> bool:
    """Whether the numbers can be true together."""
    times_ms = (outliers.worst_ms, outliers.limit_ms, *outliers.excess_by_phase_ms.values())
    return (
        all(possible(ms) for ms in times_ms)
        and 0 <= outliers.count <= outliers.checked
        and 0 <= outliers.excess_ms <= outliers.total_ms
        and 0 < outliers.total_ms < math.inf
    )


def _in_slow_levels(metrics: Metrics, outliers: Outliers) -> bool:
    """Whether four fifths of the excess are that of parts of the run whose ordinary step is an outlying one."""
    parts, usual_ms = metrics.evenness.speed_levels, metrics.period_ms
    if len(parts) < 2 or usual_ms is None:
        return False
    of_parts_ms = sum((p.period_ms - usual_ms) * p.count for p in parts if p.period_ms > outliers.limit_ms)
    return of_parts_ms >= _OF_PARTS_RATIO * outliers.excess_ms


def _attributed_ms(metrics: Metrics, known: Stalls) -> Mapping[Phase, float]:
    """The excess per phase that is not waiting for a CPU, nor for batches that were made in time.

    Where the machine's CPUs were fully used, a step can be long because another process had the CPU, and the model's
    own phases, which need it most, show that, as does the wait for workers that have no CPU although they had made
    their batches in time. There, only the excess of the other phases counts, unless stalls come at a fixed distance,
    as nothing from outside would, or batches were slow enough to make for such stalls.
    """
    crowded = known.every is None and _crowded(metrics)
    left_out: set[Phase] = set(COMPUTE_PHASES) if crowded else set()
    if known.made_in_time or (crowded and not _slow_batches(metrics, known)):
        left_out.add("data_wait")
    return {phase: ms for phase, ms in known.outliers.excess_by_phase_ms.items() if phase not in left_out}


def _crowded(metrics: Metrics) -> bool:
    busy = machine_busy_ratio(metrics)
    others = metrics.host.others_cpus or 0.0
    usable_cpus = metrics.host.usable_cpus or metrics.cpu.usable_cpus
    return (busy is not None and busy >= _CROWDED_RATIO) or others >= _OTHERS_RATIO * usable_cpus


def _slow_batches(metrics: Metrics, known: Stalls) -> bool:
    """Whether the making of batches can be the reason of stalls in ``data_wait``, as far as that is known.

    One sample of the batch of the longest stall took a good part of that, and all batches took about as long as all
    stalls. Or the main process makes them, which waits for no worker, and pauses of the machine would hardly all lie
    there.
    """
    found, outliers = metrics.input, known.outliers
    if found is None or found.verdict not in ("compute", "transfer"):
        return True
    alone = metrics.loader is not None and not metrics.loader.num_workers
    if alone and not known.may_be_pauses(["data_wait"], UNLIKELY):
        return True
    slowest_ms = max((worker.item_max_ms or 0.0 for worker in found.workers), default=0.0)
    return slowest_ms >= _SLOW_SAMPLE_RATIO * outliers.worst_ms and not _are_quick(metrics, outliers)


def _made_in_time(metrics: Metrics, outliers: Outliers) -> bool:
    """Whether stalls in ``data_wait`` are not for the making of batches, of which enough were measured to know that.

    Of the batches that would be slow, one at least would hardly have been missed.
    """
    found = metrics.input
    if found is None or found.verdict not in ("compute", "transfer") or not _are_quick(metrics, outliers):
        return False
    looks = sum(worker.measured for worker in found.workers)
    return (1.0 - outliers.count / outliers.checked) ** looks < UNLIKELY


def _are_quick(metrics: Metrics, outliers: Outliers) -> bool:
    """Whether making all batches takes less time than the stalls in ``data_wait``.

    A stall is hardly longer than the making of the batch that it waits for.
    """
    loaders = () if metrics.input is None else metrics.input.loaders
    make_ms = max(((one.make_ms or 0.0) + (one.order_ms or 0.0) for one in loaders), default=0.0)
    stalled_ms = outliers.excess_by_phase_ms.get("data_wait", 0.0) / max(outliers.checked, metrics.steps.count)
    return make_ms < _MADE_RATIO * stalled_ms


def _distance(outliers: Outliers) -> int | None:
    """Number of steps after which the longest stalls come again, if they lie on such a grid; others may lie between."""
    longest = sorted(outliers.batches[: max(_GRID_STALLS, len(outliers.batches) // 2)])
    gaps = [after - before for before, after in itertools.pairwise(longest)]
    if len(longest) < _GRID_STALLS or min(gaps) < _LEAST_GRID:
        return None
    return min(gaps) if all(gap % min(gaps) == 0 for gap in gaps) else None
