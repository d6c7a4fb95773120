"""Finds that a few very long steps hold a noticeable part of the time, and in which phase."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.metrics import Metrics, Outliers
from lightning_gpuprof.model.phases import COMPUTE_PHASES, PHASE_TERMS, Phase
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    condition,
    gain,
    machine_busy_ratio,
    possible,
    severity,
    steady_period_ms,
    threshold,
    usable,
    worthwhile,
)
from lightning_gpuprof.rules.callbacks import class_name, own_setting
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.host_time import HIDDEN, stalled_ratio
from lightning_gpuprof.rules.steps.uneven import ALIKE_RATIO, LIMIT_S, concentration
from lightning_gpuprof.rules.wording import counted, listed, millis, percent, seconds

_DEFAULT_PREFETCH = 2
"""torch's, where there are workers."""

_RARER = 10
"""How many times less often one of Lightning's own callbacks that stalls the training is to work. Heuristic."""

_MAX_PREFETCH = 64

_CROWDED_RATIO = 0.8
"""Use of the machine's CPUs from which long steps may be those that waited for one. Heuristic: on a machine with two
CPUs that others used, healthy runs had outliers in the model's phases from here on."""

_OTHERS_RATIO = 0.25
"""Share of the usable CPUs that other processes use, from which the same holds. Heuristic: with 27 % a healthy run had
outliers in ``forward`` for 12 % of its time."""

_SLOW_SAMPLE_RATIO = 0.5
"""Of the longest stall, what one sample must have taken to be its reason on a machine that others use. Heuristic."""

_DOUBT = " The machine's CPUs were fully used: these steps may have waited for a CPU."

_CHANCE = " So few and short stalls may be pauses of the machine."

_ALIKE = " All phases took longer alike: larger batches, or something stopped the whole process."

_OF_PARTS_RATIO = 0.8
"""Share of the excess that slow parts of the run must hold to be all there is to say. Heuristic."""

_SPREAD_RATIO = 0.8
"""No single phase holds so much of an excess that is spread over several. Heuristic, as for naming them."""

_GRID_STALLS = 4
_LEAST_GRID = 5
"""So many of the longest stalls, at least, must lie on a grid of at least so many steps. Heuristic: rare by chance."""


_STALLS = {"count": 12, "stall_ms": 400.0, "phases": "forward"}
_SHORT = {"count": 4, "stall_ms": 100.0, "phases": "forward"}


@dataclass(frozen=True, kw_only=True)
class StepOutliers(BaseRule):
    """Most steps are fine, but a few take many times as long and cost a noticeable part of the run.

    ## What it means

    A median hides stalls: twelve stalls of 0.4 s in a run of 8 s leave the median step untouched and are 60 % of the
    time. Causes are a file that is read now and then, a callback or logger that works every N steps, garbage
    collection, recompilation, another process.

    ## How it is measured

    A step is an outlier above median + max(5 * 1.4826 * MAD, 0.5 * median); MAD is the median absolute deviation, which
    outliers do not widen. With accumulated gradients, steps with and without an optimizer step have a median each.
    Traced steps, those with a validation or a checkpoint, and the first and last of an epoch are left out. The excess
    over the median must pass 5 % of the time of the checked steps. The phases that hold most of it are named. The gain
    is the excess, spread over the checked steps.

    ## When it is wrong

    It is information only, with half the confidence,

    - if one or two stalls are the whole excess, or if all stalls together cost less than half a second and lie where
      stalls would lie by chance (in the phases that fill the step anyway, at no fixed distance): any machine pauses now
      and then;
    - if the excess is spread over the phases as the ordinary step is (total variation below 0.3) and has no fixed
      distance: batches differ in size, or something stops the whole process;
    - if the CPUs were four fifths in use, or a quarter of them by others, and too little excess lies outside the
      model's own phases (and the wait for workers that make their batches in time), unless stalls come at a fixed
      distance;
    - on a GPU, if the device is not known to be idle for that long (trace windows or NVML): a host that is ahead may
      pause for free. The phase that waits for the device shows the excess, whichever phase gave it the work.

    Where a part of the run is slow as a whole, `phase-change` judges it and this rule is silent.

    ## What to do

    Look at the named phase in the named batches. A fixed distance between them points to something that runs every N
    steps.
    """

    id = "step-outliers"
    title = "A few steps take many times as long as the rest"

    least_ratio: float = threshold(0.05, source="heuristic: 5 % of the time of the checked steps")
    least_count: int = threshold(3, source="heuristic: fewer can be an accident (SageMaker Debugger asks for 10)")
    least_cost_s: float = threshold(LIMIT_S, source="heuristic: shorter ones may be pauses of the machine")
    most_chance: float = threshold(0.01, source="heuristic: of as many pauses of the machine all lying in these phases")
    named_ratio: float = threshold(0.80, source="heuristic: phases are named until they hold so much of the excess")

    examples = (
        fires("12 steps stall for 0.4 s", "critical", "12 of 380 steps stalled", stalls=_STALLS),
        fires("one does, for 2 s", "info", "pauses of the machine", stalls={**_STALLS, "count": 1, "stall_ms": 2000.0}),
        fires("four do, for 0.1 s", "info", "pauses of the machine", stalls=_SHORT, steady=60),
        fires("every 12th", "warning", "every 12 steps", stalls={**_SHORT, "every": 12}, steady=60),
        fires("all of them in the loop", "warning", "in loop", stalls={**_SHORT, "phases": "loop"}, steady=60),
        quiet("no step is outlying"),
        looks_alike("every step waits", times_ms={"data_wait": 60.0}),
        not_evaluated("there are too few steps", "too few comparable steps", outliers_known=False),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the steps that are far above the others."""
        median_ms = steady_period_ms(metrics)
        outliers = metrics.outliers
        if outliers is None or outliers.checked <= 0:
            raise MissingSignal("too few comparable steps (50 are needed) to tell outliers")
        if not coherent(outliers):
            raise MissingSignal("the times of the outliers are impossible numbers")
        if outliers.count == 0 or not outliers.excess_ms >= self.least_ratio * outliers.total_ms:
            return None
        if in_slow_parts(metrics, outliers):
            return None
        told_ms = attributed_excess_ms(metrics, outliers)
        doubtful = sum(told_ms.values()) < self.least_ratio * outliers.total_ms
        shown_ms = outliers.excess_by_phase_ms if doubtful else told_ms
        excess_ms = min(outliers.excess_ms, sum(shown_ms.values()) or outliers.excess_ms)
        ratio = excess_ms / outliers.total_ms
        mean_ms = outliers.total_ms / outliers.checked
        recoverable_ms = excess_ms / outliers.checked
        if not worthwhile(recoverable_ms, mean_ms):
            return None
        holders = dominant_phases(shown_ms, self.named_ratio)
        alike = spread_alike(metrics, outliers)
        certain_ratio = stalled_ratio(metrics, ratio)
        hidden = certain_ratio < self.least_ratio
        accidents = self._may_be_accidents(metrics, outliers, holders)
        weak = doubtful or alike or hidden or accidents
        level: Severity = "info" if weak else severity(certain_ratio, outliers.checked)
        advice = _advice_on_sizes(outliers) if alike else _advice(metrics, outliers, holders[0][0], median_ms=median_ms)
        return self.finding(
            severity=level,
            subject=_subject(metrics, holders[0][0]),
            summary=_summary(outliers, holders, excess_ms=excess_ms, median_ms=median_ms)
            + (_DOUBT if doubtful else "")
            + (_CHANCE if accidents and not alike else "")
            + (_ALIKE if alike else "")
            + (HIDDEN if hidden else ""),
            advice=f"First look for other processes on the CPUs. If there are none: {advice}" if doubtful else advice,
            evidence=self._evidence(outliers, holders, ratio=ratio),
            gain=gain(recoverable_ms, 0.0 if doubtful or alike else certain_ratio * mean_ms, mean_ms),
            confidence=0.5 if weak else 0.85,
            explains=claims.OUTLIERS,
        )

    def _evidence(
        self, outliers: Outliers, holders: list[tuple[Phase, float]], *, ratio: float
    ) -> tuple[Evidence, ...]:
        return (
            self.evidence("least_ratio", ratio, "excess of the outliers, share of the time"),
            self.evidence("least_count", outliers.count, "outliers"),
            Evidence(
                name="longest step",
                value=outliers.worst_ms,
                unit="ms",
                limit=outliers.limit_ms,
                source="median + max(5 * 1.4826 * MAD, 0.5 * median)",
            ),
            *(Evidence(name=f"{phase} share of the excess", value=part, unit="ratio") for phase, part in holders),
            Evidence(name="batches", value=_batches(outliers)),
        )

    def _may_be_accidents(self, metrics: Metrics, outliers: Outliers, holders: list[tuple[Phase, float]]) -> bool:
        """Whether a machine that pauses now and then may have made the stalls: few of them, or short in all.

        Short ones are the program's if they come at a fixed distance, or all in phases that hold so little of the step
        that as many pauses would hardly all lie there.
        """
        if outliers.count < self.least_count or _mostly_two(outliers, self.least_ratio):
            return True
        if outliers.excess_ms >= self.least_cost_s * 1e3 or _distance(outliers) is not None:
            return False
        shares = [metrics.share(phase) for phase, _ in holders]
        part = min(1.0, sum(share.median_ratio for share in shares if share is not None and usable(share)))
        longest_ms = outliers.worst_ms - (metrics.period_ms or 0.0)
        as_many = outliers.excess_ms / longest_ms if longest_ms > 0 else 0.0
        chance: float = part**as_many
        return chance > self.most_chance


def coherent(outliers: Outliers) -> bool:
    """Whether the numbers can be true together."""
    times_ms = (outliers.worst_ms, outliers.limit_ms, *outliers.excess_by_phase_ms.values())
    return (
        all(possible(ms) for ms in times_ms)
        and 0 <= outliers.count <= outliers.checked
        and 0 <= outliers.excess_ms <= outliers.total_ms
        and 0 < outliers.total_ms < math.inf
    )


def _mostly_two(outliers: Outliers, least_ratio: float) -> bool:
    """Whether it is the two longest that pass the threshold."""
    rest_ms = outliers.rest_excess_ms
    return rest_ms is not None and not rest_ms >= least_ratio * outliers.total_ms


def in_slow_parts(metrics: Metrics, outliers: Outliers) -> bool:
    """Whether four fifths of the excess are that of parts of the run whose ordinary step is an outlying one."""
    parts, usual_ms = metrics.evenness.regimes, metrics.period_ms
    if len(parts) < 2 or usual_ms is None:
        return False
    of_parts_ms = sum((p.period_ms - usual_ms) * p.count for p in parts if p.period_ms > outliers.limit_ms)
    return of_parts_ms >= _OF_PARTS_RATIO * outliers.excess_ms


def spread_alike(metrics: Metrics, outliers: Outliers) -> bool:
    """Whether the excess lies in several phases, in the proportions of the ordinary step.

    So it does where batches differ in size, or where something stops the process anywhere; not if stalls come at a
    fixed distance.
    """
    ordinary = {phase: share.median_ms for phase, share in metrics.shares.items() if usable(share)}
    excess_ms = outliers.excess_by_phase_ms
    return (
        len(dominant_phases(excess_ms, _SPREAD_RATIO)) > 1
        and concentration(excess_ms, ordinary) < ALIKE_RATIO
        and _distance(outliers) is None
    )


def attributed_excess_ms(metrics: Metrics, outliers: Outliers) -> Mapping[Phase, float]:
    """The excess per phase that is told from waiting for a CPU.

    Where the machine's CPUs were fully used, a step can be long because another process had the CPU, and the model's
    own phases, which need it most, show that, as does the wait for workers that have no CPU although they had made
    their batches in time. There, only the excess of the other phases counts, unless stalls come at a fixed distance,
    as nothing from outside would, or batches were slow enough to make for such stalls.
    """
    if not _crowded(metrics) or _distance(outliers) is not None:
        return outliers.excess_by_phase_ms
    left_out = COMPUTE_PHASES if _slow_batches(metrics, outliers) else (*COMPUTE_PHASES, "data_wait")
    return {phase: ms for phase, ms in outliers.excess_by_phase_ms.items() if phase not in left_out}


def _crowded(metrics: Metrics) -> bool:
    busy = machine_busy_ratio(metrics)
    machine = metrics.host.machine
    others = machine.cpu_others_cpus.mean if machine is not None and machine.cpu_others_cpus is not None else 0.0
    usable_cpus = metrics.host.usable_cpus or metrics.cpu.usable_cpus
    return (busy is not None and busy >= _CROWDED_RATIO) or others >= _OTHERS_RATIO * usable_cpus


def _slow_batches(metrics: Metrics, outliers: Outliers) -> bool:
    """Whether the making of batches can be the reason of stalls in ``data_wait``, as far as that is known.

    A stall is no longer than the making of the batch that it waits for: all stalls together take at most the time of
    all batches, and one sample of the batch of the longest stall took a good part of that.
    """
    found = metrics.input
    if found is None or found.verdict not in ("compute", "transfer"):
        return True
    slowest_ms = max((worker.item_max_ms or 0.0 for worker in found.workers), default=0.0)
    make_ms = max((loader.make_ms or 0.0 for loader in found.loaders), default=0.0)
    stalled_ms = outliers.excess_by_phase_ms.get("data_wait", 0.0) / outliers.checked
    return slowest_ms >= _SLOW_SAMPLE_RATIO * outliers.worst_ms and make_ms >= stalled_ms


def dominant_phases(excess_ms: Mapping[Phase, float], named_ratio: float) -> list[tuple[Phase, float]]:
    """The phases that together hold most of the excess, largest first, each with its share of it.

    Args:
        excess_ms: Excess per phase.
        named_ratio: Phases are taken until they hold so much.
    """
    whole_ms = sum(excess_ms.values())
    found: list[tuple[Phase, float]] = []
    held = 0.0
    for phase, ms in sorted(excess_ms.items(), key=lambda item: item[1], reverse=True):
        if ms <= 0 or (found and held >= named_ratio):
            break
        found.append((phase, ms / whole_ms))
        held += ms / whole_ms
    return found or [("loop", 0.0)]


def _summary(outliers: Outliers, holders: list[tuple[Phase, float]], *, excess_ms: float, median_ms: float) -> str:
    where = listed([f"{percent(part)} in {phase}" for phase, part in holders])
    return (
        f"{outliers.count:,} of {counted(outliers.checked, 'step')} stalled, up to {millis(outliers.worst_ms)} where "
        f"an ordinary step takes {millis(median_ms)}. The stalls cost {seconds(excess_ms / 1e3)} of "
        f"{seconds(outliers.total_ms / 1e3)} ({percent(excess_ms / outliers.total_ms)}): {where}."
    )


def _batches(outliers: Outliers) -> str:
    shown = ", ".join(str(batch) for batch in sorted(outliers.batches)[:8])
    return f"{shown}, ..." if len(outliers.batches) > 8 else shown


def _distance(outliers: Outliers) -> int | None:
    """Number of steps after which the longest stalls come again, if they lie on such a grid; others may lie between."""
    longest = sorted(outliers.batches[: max(_GRID_STALLS, len(outliers.batches) // 2)])
    gaps = [after - before for before, after in itertools.pairwise(longest)]
    if len(longest) < _GRID_STALLS or min(gaps) < _LEAST_GRID:
        return None
    return min(gaps) if all(gap % min(gaps) == 0 for gap in gaps) else None


def _subject(metrics: Metrics, phase: Phase) -> str:
    callback = _costly_callback(metrics)
    return callback if phase == "callbacks" and callback else phase


def _costly_callback(metrics: Metrics) -> str:
    costly = max(metrics.callback_shares, key=lambda c: c.share.total_ratio, default=None)
    return f"{class_name(costly)}.{costly.hook}" if costly is not None else ""


def _advice(metrics: Metrics, outliers: Outliers, phase: Phase, *, median_ms: float) -> str:
    distance = _distance(outliers)
    shown = f"in batches {_batches(outliers)}" if outliers.batches else "in the outlying steps"
    when = f"every {distance} steps ({shown})" if distance else shown
    found = metrics.input
    if phase == "data_wait" and found is not None and found.verdict == "processing" and _has_workers(metrics):
        return f"Make batches faster, not the queue longer: {found.summary} Stalls: {when}."
    if phase == "data_wait":
        return f"Find the slow samples {when} and make them cheaper.{_prefetch(metrics, outliers, median_ms=median_ms)}"
    if phase == "callbacks":
        name = _costly_callback(metrics)
        setting = own_setting(metrics, name, _RARER)
        if setting is not None:
            return f"{setting[0]} Why: {name} stalls the training {when}."
        return f"Call {name or 'the hooks around the batch'} less often or make it cheaper. Stalls: {when}."
    if phase == "logging":
        every = condition(metrics, "trainer.log_every_n_steps")
        rarer = f": Trainer(log_every_n_steps={every * 10}) instead of {every}" if isinstance(every, int) else ""
        return f"Log less often or to a faster logger{rarer}. Stalls: {when}."
    site = next((b.sites[0][0] for b in metrics.blocked or () if b.phase == phase and b.sites), "")
    place = f"{phase}, most often seen at {site}" if site else f"{phase} ({PHASE_TERMS[phase]})"
    return (
        f"Find what runs {when} in {place}: file or network access, recompilation, garbage collection. A trace "
        "window over one of these steps shows it: GpuProfiler(windows=[...])."
    )


def _advice_on_sizes(outliers: Outliers) -> str:
    return (
        f"Compare the size of batches {_batches(outliers)} (tokens, points, boxes) with others. If they are larger, "
        "batch samples of similar size together or limit the total per batch. If not, look for what stops the whole "
        "process: other jobs, a lower clock, garbage collection."
    )


def _has_workers(metrics: Metrics) -> bool:
    return metrics.loader is not None and bool(metrics.loader.num_workers)


def _prefetch(metrics: Metrics, outliers: Outliers, *, median_ms: float) -> str:
    loader = metrics.loader
    workers = loader.num_workers if loader is not None else None
    if workers is None:
        return ""
    if workers == 0:
        return (
            " A worker that reads ahead hides a stall from the step: "
            "DataLoader(..., num_workers=1, persistent_workers=True)."
        )
    depth = min(_MAX_PREFETCH, math.ceil(outliers.worst_ms / median_ms / workers))
    now = loader.prefetch_factor if loader is not None else None
    if depth <= (now if now is not None else _DEFAULT_PREFETCH):
        return f" A longer queue does not help: {workers} workers read far enough ahead."
    return (
        f" A queue of {depth * workers} batches hides a stall of {millis(outliers.worst_ms)}: "
        f"DataLoader(..., num_workers={workers}, prefetch_factor={depth})."
    )
