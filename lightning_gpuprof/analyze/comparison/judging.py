"""Judges throughput and wall time of two runs, given the uncertainty of their step times.

The test: a difference counts if it is at least the threshold and the 95 % interval of the speed-up, from independent
draws of both runs, leaves 1 out. Steps of one run cannot show how much a second run of the same program would differ
(another layout of memory, other programs on the machine): that is what the threshold stands for. Where other programs
took CPUs, the threshold grows by what their turns can explain: the share of time that the main thread was ready to
run but had no CPU, as far as it changed in the direction of the difference, and a tenth of it.
"""

import math

import msgspec
import numpy as np
from msgspec.structs import replace

from lightning_gpuprof.analyze.comparison import too_few
from lightning_gpuprof.analyze.comparison.resampling import Drawn
from lightning_gpuprof.analyze.comparison.uncertainty import NORMAL_95, Draws
from lightning_gpuprof.analyze.statistics import Floats
from lightning_gpuprof.model.comparison import Judgement, Outcome
from lightning_gpuprof.model.loading import STREAM_SAMPLER
from lightning_gpuprof.model.report import Report

MIN_STEADY_STEPS = 10
"""Fewer steady steps than this say nothing about a median (the rules' own minimum for a warning)."""

WALL_NOISE_FLOOR_S = 0.2
"""Start and end of a ``fit`` vary by about so much (heuristic); it matters in runs of a few seconds."""

OTHERS_CPUS = 0.25
"""Other programs that take no more of a CPU than this are not what the main thread waited for (heuristic)."""

MAX_HALF_WIDTH = math.log(2)
"""A speed-up that is known only to within a factor of two in each direction says nothing (heuristic)."""

_GROWTH = "step-drift"
"""The finding that steps get longer, phase by phase, and that it is not the machine."""

_MIN_LENGTH_RATIO = 0.75
"""Of the earlier run's steady steps: in a much shorter run the same growth is not seen (heuristic)."""

INTERVAL = (0.025, 0.975)
MAX_WAIT_RATIO = 0.95
WAIT_NOISE_RATIO = 0.1
"""Of the share of time that was waited: others' programs also empty caches and come at other moments. Heuristic, chosen
on 36 pairs of fits of one script under a steady load, of which none was then judged changed (10 without it). It did not
hold on 28 fresh pairs under a load that came and went: 16 were. It is no protection on a machine that others use."""
MIN_DRAW = 1e-3
"""Of the median draw: an interval drawn as a normal sample has a tail below 0, of which there is no logarithm."""


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs that are compared with each other, and what they are judged by."""

    before: Report
    after: Report
    draws: tuple[Draws, Draws] | None = None
    """Of both; None if the steps of one say nothing, or cannot be compared with those of the other."""
    threshold_ratio: float
    """Smallest change that counts, 0 to 1."""

    @property
    def named(self) -> tuple[tuple[str, Report], tuple[str, Report]]:
        """Both, with what they are called in sentences."""
        return ("earlier", self.before), ("later", self.after)

    @property
    def growth_ended(self) -> bool:
        """Whether the steps of the earlier run got longer and longer for a reason of its own, which is gone."""
        grew = [one.severity for one in self.before.findings if one.rule == _GROWTH]
        long_enough = self.after.steps.steady_count >= _MIN_LENGTH_RATIO * self.before.steps.steady_count
        return bool(grew) and "info" not in grew and long_enough and _GROWTH in self.after.checks.passed


def not_comparable(measure: str, why: str) -> Judgement:
    """A judgement that there can be none.

    Args:
        measure: Name for ``--metric``.
        why: One phrase.

    Returns:
        Without a speed-up and an interval.
    """
    return Judgement(measure=measure, outcome="not comparable", why=why)


def training(runs: Runs) -> Judgement:
    """Judge the throughput of steady steps: samples/s where both know them, else the median step time."""
    before, after, draws = runs.before, runs.after, runs.draws
    reason = steps_obstacle(runs) or _step_work_difference(runs)
    rate_before, rate_after = before.steps.samples_per_s, after.steps.samples_per_s
    measure = "samples/s" if rate_before and rate_after else "median step time"
    if reason or draws is None:
        return not_comparable(measure, reason)
    if rate_before and rate_after:
        drawn = draws[0].mean_ms, draws[1].mean_ms
        speedup = rate_after / rate_before
    else:
        drawn = draws[0].median_ms, draws[1].median_ms
        speedup = _median(before) / _median(after)
    floor = noise(runs, slower=speedup < 1)
    waits = _waits_words(cpu_waits(runs))
    few = too_few.interval_obstacle(*drawn)
    if few:
        return _judged_of_few(runs, measure, speedup, drawn, floor=floor, few=few, why=waits)
    speedups = _speedups(drawn[0].at, drawn[1].at)
    centre = float(np.median(speedups))
    low, high = (float(end) - centre for end in np.quantile(speedups, INTERVAL))
    if high - low > 2 * MAX_HALF_WIDTH:
        why = f"too noisy: the 95 % confidence interval spans a factor of {math.exp(high - low):.3g}; train longer"
        return not_comparable(measure, why)
    return _judged(measure, speedup, (low, high), floor=floor, why=waits)


def cpu_waits(runs: Runs) -> tuple[float, float] | None:
    """Shares of the time that the main threads waited for a CPU because other programs used them.

    0 for a run beside which no others used CPUs: its own workers made it wait. None for two of them, or if it is not
    known.
    """
    shares = []
    for _, report in runs.named:
        process, machine = report.host.process, report.host.machine
        if process is None or process.run_delay_ratio is None or machine is None or machine.cpu_others_cpus is None:
            return None
        waited_ratio = min(max(process.run_delay_ratio.mean, 0.0), MAX_WAIT_RATIO)
        shares.append(waited_ratio if machine.cpu_others_cpus.mean > OTHERS_CPUS else 0.0)
    return (shares[0], shares[1]) if any(shares) else None


def noise(runs: Runs, *, slower: bool) -> float:
    """The threshold with what other programs' turns on the CPUs can explain, as a difference of logarithms.

    Args:
        runs: Both.
        slower: Whether the later run is; waiting that changed the other way explains nothing.

    Returns:
        Natural ones; at least that of 1 plus the threshold.
    """
    floor, waits = math.log1p(runs.threshold_ratio), cpu_waits(runs)
    if waits is None:
        return floor
    longer = math.log((1 - waits[0]) / (1 - waits[1]))
    return floor + max(0.0, longer if slower else -longer) + WAIT_NOISE_RATIO * max(waits)


def _waits_words(waits: tuple[float, float] | None) -> str:
    if waits is None:
        return ""
    named = zip(("earlier", "later"), waits, strict=True)
    waited = " and ".join(f"{100 * ratio:.0f} % of the {name} run" for name, ratio in named if ratio)
    return f"other programs used the CPUs: the main thread waited for one in {waited}, which widens the noise"


def stage_obstacle(runs: Runs) -> str:
    """Which stages they are of, if not of the same; else empty."""
    stages = [str(report.run.get("stage") or "fit") for _, report in runs.named]
    return "" if stages[0] == stages[1] else f"one is a {stages[0]}, the other a {stages[1]}"


_LENGTHS = (
    "loader.batch_size",
    "trainer.max_epochs",
    "trainer.max_steps",
    "trainer.limit_train_batches",
    "world_size",
    "stage",
)
"""Conditions that say how many steps a run has."""


def repeated_data(runs: Runs) -> str:
    """Why one run trains on each sample several times, as each worker reads the whole iterable dataset; else empty.

    Its steps are then as many times more as it has more workers, and nothing else says how many there are to be.
    """
    (fewer, _, of_fewer), (more, name, of_more) = sorted(
        (report.steps.count, name, report.run) for name, report in runs.named
    )
    workers = [run.get("loader.num_workers") for run in (of_fewer, of_more)]
    same = all(of_fewer.get(one) == of_more.get(one) for one in _LENGTHS)
    streams = {run.get("loader.sampler") for run in (of_fewer, of_more)} == {STREAM_SAMPLER}
    finished = {run.get("status", "finished") for run in (of_fewer, of_more)} == {"finished"}
    if not (fewer and same and streams and finished) or not isinstance(workers[1], int):
        return ""
    times = workers[1] / max(1, workers[0]) if isinstance(workers[0], int) else 0.0
    if times < 2 or not math.isclose(more, times * fewer, rel_tol=0.05):
        return ""
    return (
        f"the {name} run trains on each sample {times:.3g} times as often ({fewer:,} and {more:,} steps), because each "
        f"of its {workers[1]} workers reads the whole iterable dataset"
    )


def steps_obstacle(runs: Runs) -> str:
    """Why the step times of one of two runs say nothing; empty if both do."""
    for name, report in runs.named:
        if not report.validity.ok:
            caveats = "; ".join(report.validity.caveats) or "no reason given"
            return f"the measurement of the {name} run is not valid: {caveats}"
        if report.steps.period_ms is None or report.steps.steady_count < MIN_STEADY_STEPS:
            return (
                f"the {name} run has {report.steps.steady_count} steady steps, at least "
                f"{MIN_STEADY_STEPS} are needed: train longer"
            )
        if report.steps.period_ms.median <= 0:
            return f"the {name} run has a median step time of 0"
    return ""


def _step_work_difference(runs: Runs) -> str:
    unequal = step_work_obstacle(runs)
    if not unequal or (runs.before.steps.samples_per_s and runs.after.steps.samples_per_s):
        return ""
    return f"{unequal} and samples/s are not known for both"


def step_work_obstacle(runs: Runs) -> str:
    """Why a step of one run is not the work of a step of the other; empty if nothing says so."""
    ranks = ranks_of(runs.before), ranks_of(runs.after)
    if ranks[0] != ranks[1]:
        return f"the runs have {ranks[0]} and {ranks[1]} ranks"
    sizes = batch_size(runs.before), batch_size(runs.after)
    if None not in sizes and sizes[0] != sizes[1]:
        return f"the batch sizes differ ({sizes[0]:g} and {sizes[1]:g})"
    return ""


def wall(runs: Runs) -> Judgement:
    """Judge the wall time of the whole stage; the profiler's own time at start and end is left out.

    Below 0.2 s no change counts.
    """
    before, after, draws = runs.before, runs.after, runs.draws
    measure = "wall time of fit"
    reason = _wall_obstacle(before, after)
    if reason:
        return not_comparable(measure, reason)
    own_s = profiler_s(runs)
    net_s = before.wall.total_s - own_s[0], after.wall.total_s - own_s[1]
    floor = max(noise(runs, slower=net_s[1] > net_s[0]), math.log1p(WALL_NOISE_FLOOR_S / min(net_s)))
    why = "one measurement per run: repeat both to be sure of a small difference"
    if any(own_s):
        why = f"without the profiler's own {own_s[0]:.3g} s and {own_s[1]:.3g} s at start and end; {why}"
    speedup = net_s[0] / net_s[1]
    if draws is not None and (few := too_few.interval_obstacle(*(means := (draws[0].mean_ms, draws[1].mean_ms)))):
        sides = [_wall_drawn(one, report, net) for one, report, net in zip(means, (before, after), net_s, strict=True)]
        return _judged_of_few(runs, measure, speedup, (sides[0], sides[1]), floor=floor, few=few, why=why)
    errors = [
        _wall_relative_error(report, draws[side].mean_ms if draws and draws[side].source == "journal" else None)
        for side, report in enumerate((before, after))
    ]
    half_width = NORMAL_95 * math.hypot(*errors)
    return _judged(measure, speedup, (-half_width, half_width), floor=floor, why=why)


def _wall_drawn(mean_ms: Drawn, report: Report, net_s: float) -> Drawn:
    """The wall time, per step, at each draw and level of the mean step time; what lies outside the steps is added."""
    outside_ms = net_s * 1e3 / report.steps.count - float(np.mean(mean_ms.at))
    levels = None if mean_ms.levels is None else (mean_ms.levels[0] + outside_ms, mean_ms.levels[1] + outside_ms)
    return replace(mean_ms, at=mean_ms.at + outside_ms, levels=levels)


def batch_size(report: Report) -> float | None:
    """Samples in a batch of one rank; None if not known."""
    value = report.run.get("loader.batch_size")
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def ranks_of(report: Report) -> int:
    """Ranks of the run; a report that does not say is of a run with one."""
    value = report.run.get("world_size")
    return value if isinstance(value, int) else 1


def _median(report: Report) -> float:
    return report.steps.period_ms.median if report.steps.period_ms is not None else math.nan


def _speedups(before_ms: Floats, after_ms: Floats) -> Floats:
    """Logarithms of ``before / after``."""
    sides = [np.log(np.maximum(side, MIN_DRAW * float(np.median(side)))) for side in (before_ms, after_ms)]
    return np.asarray(sides[0] - sides[1], np.float64)


def profiler_s(runs: Runs) -> tuple[float, float]:
    """Seconds that the profiler itself took outside the steps; 0 for both if it is not known of one, or impossible."""
    before, after = runs.before, runs.after
    first, second = before.overhead.get("hooks_s"), after.overhead.get("hooks_s")
    if first is None or second is None:
        return 0.0, 0.0
    possible = 0 <= first < before.wall.total_s and 0 <= second < after.wall.total_s
    return (first, second) if possible else (0.0, 0.0)


def _wall_relative_error(report: Report, mean_ms: Drawn | None) -> float:
    """Standard error of the wall time that its steps' scatter makes: that of their mean times their number.

    Without a journal it is ``std * sqrt(steps)``, as if they were independent.
    """
    if report.steps.period_ms is None:
        return 0.0
    count = report.steps.count
    error_ms = report.steps.period_ms.std / math.sqrt(max(count, 1)) if mean_ms is None else float(mean_ms.at.std())
    return error_ms / 1e3 * count / report.wall.total_s


def _wall_obstacle(before: Report, after: Report) -> str:
    """Why the two wall times cannot be compared with each other; empty if they can."""
    for name, report in (("earlier", before), ("later", after)):
        if report.wall.total_s <= 0:
            return f"the {name} run has no wall time"
        status = report.run.get("status")
        if status is not None and status != "finished":
            return f"the {name} run did not finish ({status})"
    sizes = batch_size(before), batch_size(after)
    work = (float(before.steps.count * ranks_of(before)), float(after.steps.count * ranks_of(after)))
    if sizes[0] is not None and sizes[1] is not None:
        work = (work[0] * sizes[0], work[1] * sizes[1])
    # The last batch of an epoch may be smaller than batch_size: within one batch per hundred the work is the same.
    if not math.isclose(work[0], work[1], rel_tol=0.01):
        return f"the runs did a different amount of work ({before.steps.count} and {after.steps.count} steps)"
    return ""


def _judged(measure: str, speedup: float, ends: tuple[float, float], *, floor: float, why: str = "") -> Judgement:
    """Judge a speed-up; ``ends`` are those of its interval around it, and like ``floor`` differences of logarithms."""
    change = math.log(speedup)
    band = max(-ends[0] if change > 0 else ends[1], floor)
    outcome: Outcome = "within noise"
    if change > band:
        outcome = "improved"
    elif change < -band:
        outcome = "regressed"
    return Judgement(
        measure=measure,
        outcome=outcome,
        why=why,
        speedup=speedup,
        lower=math.exp(change + ends[0]),
        upper=math.exp(change + ends[1]),
        noise_ratio=math.expm1(band),
    )


def _judged_of_few(
    runs: Runs, measure: str, speedup: float, drawn: tuple[Drawn, Drawn], *, floor: float, few: str, why: str
) -> Judgement:
    """Judge a speed-up of too few independent steps: only if the runs lie clearly apart, or clearly together.

    Apart are levels, if a step of one run is the work of a step of the other, or means that differ by more than the
    spread of the steps, or by a large factor that a cautious interval confirms.
    """
    change = math.log(speedup)
    ends, apart = None, ""
    if not step_work_obstacle(runs):
        ends, apart = too_few.levels_apart(*drawn), too_few.levels_words(*drawn)
        if ends is None and runs.growth_ended:
            ends, apart = too_few.after_growth(*drawn), too_few.growth_words(drawn[1])
    if ends is not None and max(ends[0], -ends[1]) > floor:
        words = f"{apart}; {why}" if why else apart
        judged = _judged(measure, speedup, (ends[0] - change, ends[1] - change), floor=floor, why=words)
        return replace(judged, from_levels=True)
    half_width = too_few.half_width(drawn[0].usual, drawn[1].usual)
    if half_width is not None:
        words = f"{why}; {few}" if why else few
        judged = _judged(measure, speedup, (-half_width, half_width), floor=floor, why=words)
        if judged.outcome != "within noise" or abs(change) + half_width < floor:
            return judged
    large = too_few.large_half_width(*drawn)
    if abs(change) > max(large + floor, math.log(too_few.MIN_LARGE_SPEEDUP)):
        words = f"the interval is rough: {few}"
        judged = _judged(measure, speedup, (-large, large), floor=floor, why=f"{why}; {words}" if why else words)
        return replace(judged, rough=True)
    return not_comparable(measure, few)
