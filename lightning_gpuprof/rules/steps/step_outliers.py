"""Most steps are fine, but some take many times as long and cost a noticeable part of the run.

## What it means
A median hides stalls: twelve stalls of 0.4 s in a run of 8 s leave it unchanged and take 60 % of the time. Typical
causes are a file that is read now and then, a callback or logger that works every N steps, recompilation, or another
process.

## How it is measured
A step is an outlier if it is longer than median + max(5 * 1.4826 * MAD, 0.5 * median). MAD is the median absolute
deviation, which outliers do not widen. With accumulated gradients, steps with and without an optimizer step have
separate medians. Traced steps, steps with a validation or after a checkpoint, and the first and last of an epoch are
left out. Of a step that saves a checkpoint, the time of writing it is left out.

The finding names the phases with most of the excess. The gain is the excess, spread over the checked steps. If other
programs use the CPUs, the share of the excess in which the main thread had no CPU is subtracted: off each phase by its
share of the ordinary step, as a thread loses its CPU anywhere.

## When it is wrong
The finding is information only, with half the confidence, if

- one or two stalls are the whole excess: any machine pauses now and then;
- the excess is spread over the phases like an ordinary step (total variation below 0.3) and comes at no fixed interval:
  batches differ in size, or something stops the whole process;
- the CPUs were 80 % busy, or other programs used a quarter of them, and too little of the excess lies outside the
  model's own phases and the wait for workers that are in time, unless stalls come at a fixed interval;
- the stalls are waits for batches, but all batches took less time to load, as far as enough of them were measured;
- on a GPU, nothing shows that it idles for that long (trace windows or NVML): a host that runs ahead may pause for
  free. The phase that waits for the device then has the excess, whichever phase caused it.

The rule is silent if a whole part of the run is slow: that is `phase-change`. It is also silent

- if all stalls together take less than half a second and chance explains them: they are few, or lie in the phases that
  fill the step anyway at no fixed interval, or are spread over all phases;
- if they may be waits for a CPU, or are spread over all phases, and the report already says that other programs crowd
  the CPUs.

## What to do
Look at the named phase in the named batches. A fixed interval between stalls points to something that runs every N
steps.
"""

from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.numbers import counted, listed, seconds
from lightning_gpuprof.model.outliers import UNLIKELY, Stalls, dominant_phases
from lightning_gpuprof.model.phases import PHASE_TERMS, Phase, words_of
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import Advice, BaseRule, Change, Cost, Metrics, measured, millis, percent, threshold
from lightning_gpuprof.rules.callbacks import logging_change, own_setting
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.host_time import HIDDEN
from lightning_gpuprof.rules.steps.uneven import LIMIT_S, UNTIL_FULL, costly_callback, queue_against, site_in

_RARER = 10
"""How many times less often one of Lightning's own callbacks that stalls the training is to work. Heuristic."""

_LIMIT = "median + max(5 * 1.4826 * MAD, 0.5 * median)"
_DOUBT = " The machine's CPUs were fully used: these steps may have waited for a CPU."
_IN_TIME = " All batches together took less time to load: something else held them up."
_ORDINARY_RATIO = 0.5
"""Of what a line takes, the most that ordinary steps may take for it to be what stalls the others. Heuristic."""
_CHANCE = " Stalls this rare may be pauses of the machine."
_ALIKE = " All phases slowed down alike: larger batches, or something stopped the whole process."

_STALLS = {"count": 12, "stall_ms": 400.0, "phases": "forward"}
_LATE = {"count": 40, "stall_ms": 80.0, "phases": "data_wait"}
_SHORT = {"count": 4, "stall_ms": 100.0, "phases": "forward"}


class StepOutliers(BaseRule):
    id = "step-outliers"
    title = "Some steps are far slower than the rest"
    is_clue = True

    least_ratio: float = threshold(0.05, source="heuristic: 5 % of the time of the checked steps")
    least_count: int = threshold(3, source="heuristic: fewer can be an accident (SageMaker Debugger asks for 10)")
    least_cost_s: float = threshold(LIMIT_S, source="heuristic: shorter ones may be pauses of the machine")
    most_chance: float = threshold(
        UNLIKELY, source="heuristic: of as many pauses of the machine all lying in these phases"
    )
    named_ratio: float = threshold(0.80, source="heuristic: phases are named until they hold so much of the excess")

    examples = (
        fires("12 steps stall for 0.4 s", "critical", "12 of 380 steps stalled", stalls=_STALLS),
        fires("one does, for 2 s", "info", "pauses of the machine", stalls={**_STALLS, "count": 1, "stall_ms": 2000.0}),
        fires("every 12th", "warning", "every 12 steps", stalls={**_SHORT, "every": 12}, steady=60),
        fires("all of them in the loop", "warning", "in loop", stalls={**_SHORT, "phases": "loop"}, steady=60),
        quiet("no step is outlying"),
        looks_alike("the machine pauses four times for 0.1 s", stalls=_SHORT, steady=60),
        looks_alike("other programs had the CPU", stalls={**_STALLS, "delayed_ratio": 0.95}),
        looks_alike("every step waits", times_ms={"data_wait": 60.0}),
        fires("batches were ready", "info", "less time to load", samples_ms=(1.0, 1.5), items_ms=4.0, stalls=_LATE),
        not_evaluated("there are too few steps", "too few comparable steps", outliers_known=False),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        median_ms, stalls = metrics.step_ms, measured(metrics.stalls)
        outliers, least_ms = stalls.outliers, self.least_ratio * stalls.outliers.total_ms
        if outliers.count == 0 or not outliers.excess_ms >= least_ms or stalls.in_slow_levels:
            return None
        doubtful = sum(stalls.attributed_ms.values()) < least_ms
        shown_ms = outliers.excess_by_phase_ms if doubtful else stalls.attributed_ms
        excess_ms = min(outliers.excess_ms, sum(shown_ms.values()) or outliers.excess_ms)
        ratio, worst_ms = excess_ms / outliers.total_ms, outliers.worst_ms
        mean_ms = outliers.total_ms / outliers.checked
        certain_ms = min(ratio, metrics.host_limit.stalls_ratio) * mean_ms
        cost = Cost(ms=excess_ms / outliers.checked, lower_ms=certain_ms, step_ms=mean_ms, steps=outliers.checked)
        if not cost.is_worth():
            return None
        holders, alike = dominant_phases(shown_ms, self.named_ratio), stalls.alike
        phase = holders[0][0]
        hidden = cost.lower_ratio < self.least_ratio
        accidents = self._may_be_accidents(stalls, holders)
        small = outliers.excess_ms < self.least_cost_s * 1e3
        crowded = metrics.validity.conditional  # then that is said already
        if ((accidents or alike) and small) or ((doubtful or alike) and crowded):
            return None
        weak = doubtful or alike or hidden or accidents
        where = listed([f"{percent(part)} in {words_of(name)}" for name, part in holders])
        doubt = _IN_TIME if stalls.made_in_time else _DOUBT
        notes = ((doubtful, doubt), (accidents and not alike, _CHANCE), (alike, _ALIKE), (hidden, HIDDEN))
        advice, change = _advice(metrics, stalls, phase, median_ms=median_ms)
        return self.finding(
            title="Some steps stall waiting for data" if phase == "data_wait" else self.title,
            severity="info" if weak else cost.severity,
            subject=(costly_callback(metrics) if phase == "callbacks" else "") or words_of(phase),
            summary=(
                f"{outliers.count:,} of {counted(outliers.checked, 'step')} stalled and took up to {millis(worst_ms)}; "
                f"an ordinary step takes {millis(median_ms)}. The stalls cost {seconds(excess_ms / 1e3)} of "
                f"{seconds(outliers.total_ms / 1e3)} ({percent(ratio)}): {where}."
            )
            + "".join(words for holds, words in notes if holds),
            advice=f"First look for other processes on the CPUs. If there are none: {advice[0].lower()}{advice[1:]}"
            if doubtful
            else advice,
            evidence=(
                self.evidence("least_ratio", ratio, "excess of the outliers, share of the time"),
                self.evidence("least_count", outliers.count, "outliers"),
                Evidence(name="longest step", value=worst_ms, unit="ms", limit=outliers.limit_ms, source=_LIMIT),
                *(self.fact(f"{name} share of the excess", part, "ratio") for name, part in holders),
                self.fact("batches", outliers.some_batches()),
            ),
            cost=cost.uncertain if doubtful or alike else cost,
            confidence=0.5 if weak else 0.85,
            explains=claims.OUTLIERS,
            phase=phase if len(holders) == 1 else None,
            change=change,
            leaves="" if change is None else _left(change),
        )

    def _may_be_accidents(self, stalls: Stalls, holders: list[tuple[Phase, float]]) -> bool:
        """Whether a machine that pauses now and then may have made the stalls: few of them, or short in all.

        Short ones are the program's if they come at a fixed distance, or all in phases that hold so little of the step
        that as many pauses would hardly all lie there.
        """
        if stalls.outliers.count < self.least_count or stalls.mostly_two(self.least_ratio):
            return True
        if stalls.outliers.excess_ms >= self.least_cost_s * 1e3:
            return False
        return stalls.may_be_pauses((phase for phase, _ in holders), self.most_chance)


def _stalling_line(metrics: Metrics, phase: Phase) -> str:
    """The line that takes most of a phase, where ordinary steps take too little of it to be what it takes."""
    row, share = next((row for row in metrics.lines if row.phase == phase), None), metrics.share(phase)
    ordinary_s = 0.0 if share is None else share.median_ms * metrics.steps.count / 1e3
    return row.place if row is not None and ordinary_s < _ORDINARY_RATIO * row.total_s else ""


def _left(change: Change) -> str:
    """Of the stalls, what a change leaves that makes them rarer or hides them; empty for others."""
    if "prefetch_factor" in change.arguments:
        return UNTIL_FULL
    then = change.arguments.get("log_every_n_steps")
    return f"a stall every {then} steps" if then else ""


def _advice(metrics: Metrics, stalls: Stalls, phase: Phase, *, median_ms: float) -> Advice:
    outliers, every = stalls.outliers, stalls.every
    batch = "batch" if len(outliers.batches) == 1 else "batches"
    shown = f"in {batch} {outliers.some_batches(every)}" if outliers.batches else "in the outlying steps"
    if stalls.alike:
        return (
            f"Compare the samples {shown} with others by size (tokens, points, boxes). If they are "
            "larger, batch samples of similar size together or limit the total per batch. If not, look for what "
            "stops the whole process: other jobs, a lower clock, garbage collection."
        ), None
    when = f"every {every} steps ({shown})" if every else shown
    found, loader = metrics.input, metrics.loader
    has_workers = loader is not None and bool(loader.num_workers)
    if phase == "data_wait" and found is not None and found.verdict == "processing" and has_workers:
        return f"Make batches faster, not the queue longer: {found.summary} Stalls: {when}.", None
    if phase == "data_wait" and stalls.made_in_time:
        return f"A trace window over one shows what it waits for: GpuProfiler(windows=[...]). Stalls: {when}.", None
    if phase == "data_wait":
        queue, change = queue_against(metrics, outliers.worst_ms, median_ms)
        site = "" if has_workers else _stalling_line(metrics, phase)
        what, them = (f"what {in_words(site)} does", "it") if site else ("the slow samples", "them")
        return f"Find {what} {when} and make {them} cheaper.{queue}", change
    if phase == "callbacks":
        name = costly_callback(metrics)
        setting = own_setting(metrics, name, _RARER)
        if setting is not None:
            return f"{setting[0]} Why: {name} stalls the run {when}.", setting[1]
        return f"Call {name or 'the hooks around the batch'} less often or make it cheaper. Stalls: {when}.", None
    if phase == "logging":
        change = logging_change(metrics, _RARER)
        if change is None:
            return f"Log fewer keys, or to a faster logger. Stalls: {when}.", None
        return f"Log less often or to a faster logger: {change.added[0]}. Stalls: {when}.", change
    site = site_in(metrics, phase)
    place = (
        f"{words_of(phase)}, most often seen in {in_words(site)}"
        if site
        else f"{words_of(phase)} ({PHASE_TERMS[phase]})"
    )
    what = f"Find what runs {when} in {place}: file or network access, recompilation, garbage collection."
    return f"{what} A trace window over one of these steps shows it: GpuProfiler(windows=[...]).", None
