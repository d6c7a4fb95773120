"""What a reader sees first, as data: the page, the tab, the notebook, the terminal and loggers show the same answer.

The slowest thing in plain words, today's step and the step after the fix, the change, and the command that proves it.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Literal

import msgspec

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.conditions import GOAL
from lightning_gpuprof.model.finding import Finding, NotEvaluated, Severity
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.phases import STEP_PARTS, words_of
from lightning_gpuprof.model.report import MIN_STEADY_STEPS, OWN_NAME, Report
from lightning_gpuprof.sinks import plain, trial_tables, wording
from lightning_gpuprof.sinks.fix import SENTENCE_END, Fix, fix_of, line_of
from lightning_gpuprof.sinks.gains import (
    Likely,
    Scale,
    at_best,
    claimed_of_bar,
    expectation,
    faster,
    is_rest,
    likely_faster,
    likely_saved_ms,
    run_after_s,
    run_of_steps,
    saved_of_bar,
    saved_words,
    scale_of,
    speedup_of,
    speedup_shown,
    steps_s,
    times_faster,
)
from lightning_gpuprof.sinks.step_bars import StepBar, after_fix, cause_of, run_bar, step_bar

ReliabilityKind = Literal["ok", "conditional", "not reliable", "warming up", "too little"]

MIN_GAIN_RATIO = 0.03
"""Below it no rule proposes a change."""
MAX_TWO_SENTENCES = 220
"""Characters; a finding without a change in code is explained by two sentences, if they are no longer."""
MANY_RATIO = 0.25
"""Checks that could not be run, of those that apply: above it a report without findings may not know what it missed.
Healthy and planted runs on a CPU stay below 0.22, a GPU that was not sampled is above."""

NEW_RUN = "<folder of the new run>"
"""In a command, where the reader has to name one."""
_NOTABLE_CPUS = 0.3
"""CPUs of this run that other programs use, from which they are the likely reason of noise. As in caveats."""
MIN_PART_RATIO = 0.01
"""Parts of the run below it are not named."""
_PLACE = re.compile(r" \(([^() ]+:\d+)\)")
"""``take() (train.py:36)``"""
_VERSION = re.compile(r"(version_)(\d+)")


class Reliability(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the numbers can be relied on."""

    kind: ReliabilityKind
    words: str
    """``reliable (200 of 225 steps, median step ±0.8 %)``, without a mark before it."""
    details: tuple[str, ...] = ()
    """Sentences."""

    @property
    def mark(self) -> str:
        """One character before the words."""
        return {"ok": "✓", "conditional": "~", "not reliable": "✗"}.get(self.kind, "…")

    @property
    def is_too_little(self) -> bool:
        """Whether too few steps were steady, so far or in all."""
        return self.kind in ("warming up", "too little")


class Opportunity(msgspec.Struct, frozen=True, kw_only=True):
    """A finding in one line."""

    rule: str
    title: str
    severity: Severity
    subject: str
    saved_ms: float | None
    """Of a step, as expected, or else at most; None: not known, or the time of another finding."""
    saved: str = ""
    """The same in words: ``20.9 ms per step``, of what is outside of steps ``1.47 s per run``."""
    speedup: float | None
    faster: str = ""
    """In words: ``up to 1.7x faster``, and of what, unless it is what the first screen is about; empty: not known."""
    same_as: int | None = None
    """Number of the finding, from 1, that has the gain of the same time."""
    rest_of: int | None = None
    """Number of the finding, from 1, whose fix leaves no more than this could save: no gain of its own is known."""
    sentence: str = ""
    """What a hint is about, as its gain is not known; else empty."""


class CheckList(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all rules."""

    found: int
    passed: tuple[str, ...]
    not_made: tuple[NotEvaluated, ...]
    """A signal was missing."""
    not_applicable: tuple[NotEvaluated, ...]

    @property
    def words(self) -> str:
        """``65 checks passed, 1 could not be run, 33 do not apply``."""
        said = [f"{numbers.counted(len(self.passed), 'check')} passed"] if self.passed else []
        said += [f"{len(self.not_made)} could not be run"] if self.not_made else []
        said += [f"{n} do{'es' if n == 1 else ''} not apply"] if (n := len(self.not_applicable)) else []
        return ", ".join(said)

    @property
    def applicable(self) -> int:
        """Those that apply, made or not."""
        return self.found + len(self.passed) + len(self.not_made)

    @property
    def misses_many(self) -> bool:
        """Whether so many could not be run that a report without findings may not know what it missed."""
        return len(self.not_made) > MANY_RATIO * self.applicable


class FirstScreen(msgspec.Struct, frozen=True, kw_only=True):
    """The answer in five seconds."""

    meta: tuple[str, ...]
    """Run, model, device, batch size, steps in time: what is known of it."""
    goal: str
    """The numbers of the goal that was given, or that they are not known; empty for throughput."""
    reliability: Reliability
    ended: tuple[str, ...]
    """How the run ended, in sentences, where it did not finish; of several ranks, how each of these ended."""
    headline: str
    """One line; never empty."""
    sentence: str
    """Explains it; may be empty."""
    severity: Severity | None
    """Of the first finding; None where there is nothing to change."""
    scale: Scale
    """``step``: the bars are a step; ``run``: the run's time per step, as the fix is outside of it."""
    bar_name: str
    """What the bars are: ``median step``, ``mean step`` or ``whole run``, and of which rank where there are several."""
    today: StepBar | None
    """None: no step was steady."""
    after: StepBar | None
    """After the first fix, as expected, or else at best; None: its gain is not known."""
    likely: Likely
    cause: str
    """What it is that the fix saves, where no segment has its name: it is a part of several. Else empty."""
    saved_ms: float | None
    claimed_ms: float | None
    """What the fix itself ends of ``saved_ms``, at most; None: no gain is known."""
    speedup: float | None
    """Of the step or of the run: that of the two times shown."""
    steps: int
    """Of the run."""
    steps_s: float
    """What all of them took."""
    wall_s: float
    wall_after_s: float | None
    fix: Fix | None
    proof: str
    """A command; empty where there is nothing to prove."""
    outside: str
    """What of the run is not in its steps: ``Outside the steps: 2.00 s of setup``; empty if next to nothing, or if
    the bar has it."""
    timed: str
    """The costliest line of the function of ``lines=`` that took most time; empty where none was timed."""
    tried: str
    """What ``gpuprof try`` measured of the fix; empty where nobody tried."""
    opportunities: tuple[Opportunity, ...]
    checks: CheckList

    @property
    def bar_steps(self) -> int:
        """Steps that a bar stands for, whose times are of one: all of them where it is the run."""
        return self.steps if self.scale == "run" else 1

    def shown(self, ms: float) -> str:
        """A time of the bars as people read it: ``163 ms``, of the run ``1.47 s``."""
        return numbers.seconds(ms * self.bar_steps / 1e3)

    @property
    def gain(self) -> str:
        """``23.6 ms -> about 2.67 ms (2.05 to 3.77 ms)``; empty where no gain is known."""
        if self.today is None or self.after is None:
            return ""
        after = f"{self.likely.before}{self.shown(self.after.ms)}{self.likely.behind}"
        return f"{self.shown(self.today.ms)} -> {after}{self.interval and f' ({self.interval})'}"

    @property
    def interval(self) -> str:
        """``2.05 to 3.77 ms``: 90 % of what is expected after the fix; empty for a bound."""
        if self.likely.ends_ms is None:
            return ""
        low, high = (self.shown(ms) for ms in self.likely.ends_ms)
        same_unit = low.partition(" ")[2] == high.partition(" ")[2]
        return f"{low.partition(' ')[0] if same_unit else low} to {high}"

    @property
    def bridge(self) -> str:
        """Why the run gains less: ``2x faster: 21 % of the run is outside these steps``; empty: it gains as much."""
        if self.scale == "run" or self.wall_after_s is None or self.speedup is None or self.today is None:
            return ""
        of_run = faster(times_faster(self.wall_s, self.wall_after_s))
        if of_run == faster(self.speedup):
            return ""
        rest = 1 - min(self.steps * self.today.ms / 1e3, self.steps_s) / self.wall_s
        return f"{of_run}: {numbers.percent(rest)} of the run is outside these steps"

    @property
    def others(self) -> tuple[tuple[int, Opportunity], ...]:
        """Findings that are not about the first one's time, with their numbers."""
        return tuple((n, one) for n, one in enumerate(self.opportunities, 1) if not self._is_of_first(n))

    @property
    def same_time(self) -> str:
        """``Also, same cause: Steps wait for data``; empty where no other finding is about the first one's time."""
        if self.severity is None:
            return ""
        titles = [one.title for n, one in enumerate(self.opportunities, 1) if n > 1 and self._is_of_first(n)]
        more = f" and {len(titles) - 1} more" if len(titles) > 1 else ""
        return f"Also, same cause: {titles[0]}{more}" if titles else ""

    def _is_of_first(self, number: int) -> bool:
        counted = self.opportunities[0].same_as or 1
        return number == 1 or counted in (number, self.opportunities[number - 1].same_as)

    @property
    def whole_run(self) -> str:
        """``4.78 s -> 3.44 s at best``; empty where no gain is known."""
        if self.wall_after_s is None:
            return ""
        sure = " at best" if self.likely.sure == "up to" else ""
        return f"{numbers.seconds(self.wall_s)} -> {self.likely.before}{numbers.seconds(self.wall_after_s)}{sure}"


def first_screen(report: Report, folder: Path | None = None) -> FirstScreen:
    """The first screen of a report.

    Args:
        report: The report.
        folder: Of the run, for the command that proves the fix; None: not known.

    Returns:
        Without a finding ``fix`` and ``severity`` are None, without a known gain ``after``, ``saved_ms`` and
        ``speedup``; without steady steps there is no bar of a step.
    """
    first = wording.leading(report)
    gained = None if first is None else _finding_with_gain(report, first)
    about = gained or first
    claim = None if about is None else about.explains
    scale = scale_of(claim)
    today = run_bar(report, claim) if scale == "run" else step_bar(report, claim)
    saved_ms = claimed_ms = after = wall_after_s = None
    times, words = speedup_of(gained), at_best(report, gained)
    if today is not None and gained is not None and gained.gain is not None:
        saved_ms, claimed_ms = saved_of_bar(gained, today.ms, claim), claimed_of_bar(gained.gain, today.ms, claim)
        after = after_fix(today, gained, claimed_ms=claimed_ms, saved_ms=saved_ms, phases=report.phases)
        wall_after_s = run_after_s(report, likely_saved_ms(gained) or 0.0, scale, saved_ms / today.ms)
        times = times_faster(today.ms, after.ms) if scale == "step" else times_faster(report.wall.total_s, wall_after_s)
        words = words if gained.expected is None else expectation(report, gained, gained.expected, today.ms)
    fix = None if first is None else _without_said(fix_of(first, report.run, line_of(first, report.lines)), first)
    could = ""
    if times is not None:
        whole = run_of_steps(report.wall.total_s, wall_after_s, times) if scale == "step" else ""
        what = "Steps" if scale == "step" else "The whole run"
        could = f" {what} could be {words.sure} {faster(times)}{words.when}{whole}."
    return FirstScreen(
        meta=(*_run_name(folder), *_meta(report)),
        goal=_goal(report),
        reliability=reliability(report),
        ended=_ended(report, first),
        headline=_headline(report, first, could),
        sentence=_without_place(_sentence(report, first), fix.where if fix is not None else ""),
        severity=None if first is None else first.severity,
        scale=scale,
        bar_name=f"{_bar_name(claim)}{_of_rank(report.run)}",
        today=today,
        after=after,
        likely=words,
        cause="" if today is None or after is None or gained is None else cause_of(today, gained),
        saved_ms=saved_ms,
        claimed_ms=claimed_ms,
        speedup=times,
        steps=report.steps.count,
        steps_s=steps_s(report),
        wall_s=report.wall.total_s,
        wall_after_s=wall_after_s,
        fix=fix,
        proof="" if first is None else proof(folder),
        outside=_outside_steps(report) if scale == "step" else _own_part(report),
        timed=_timed(report),
        tried="" if first is None or report.trial is None else trial_tables.outcome_of(report.trial, first.rule),
        opportunities=_opportunities(report, gained, saved_ms, times, words.sure),
        checks=_checks(report),
    )


def _ended(report: Report, first: Finding | None) -> tuple[str, ...]:
    if report.rank_ends:
        return tuple(plain.sentence(text) for text in report.rank_ends)
    status, place = str(report.run.get("status") or "finished"), str(report.run.get("ended_at") or "")
    if _is_unfinished(report):
        if first is None and _too_short(report):
            return ()  # the headline says it
        return ("No end was recorded: the run was killed or is still running.",)
    if status == "finished":
        return ()
    after = numbers.counted(report.steps.count, "step")
    return (f"Ended by {status.removeprefix('interrupted: ')}{place and ' at '}{place} after {after}.",)


def _checks(report: Report) -> CheckList:
    return CheckList(
        found=len({finding.rule for finding in report.findings}),
        passed=report.checks.passed,
        not_made=report.not_evaluated,
        not_applicable=report.checks.not_applicable,
    )


def reliability(report: Report) -> Reliability:
    """Whether the numbers of a report can be relied on, in a few words."""
    steps, caveats = report.steps, tuple(plain.sentence(caveat) for caveat in report.validity.caveats)
    if steps.steady_count < MIN_STEADY_STEPS:
        kind: ReliabilityKind = "warming up" if _is_unfinished(report) else "too little"
        words = f"{steps.steady_count} of the {MIN_STEADY_STEPS} steady steps needed"
        return Reliability(kind=kind, words=words, details=caveats)
    known = f"{numbers.count(steps.steady_count)} of {numbers.counted(steps.count, 'step')}"
    around = steps.half_interval_ratio
    if around is not None:
        known += f", median step ±{round(100 * around, 1):g} %"
    if not report.validity.ok:
        return Reliability(kind="not reliable", words=f"not reliable: incomplete recording ({known})", details=caveats)
    if report.line_times:
        words = f"less reliable: lines= slows the functions that it times ({known})"
        return Reliability(kind="conditional", words=words, details=caveats)
    if report.validity.conditional:
        return Reliability(kind="conditional", words=f"less reliable: other programs ran ({known})", details=caveats)
    if steps.drift_ms is not None:
        moved = " -> ".join(numbers.significant(ms) for ms in steps.drift_ms)
        words = f"less reliable: the speed changed, {moved} ms ({known})"
        return Reliability(kind="conditional", words=words, details=caveats)
    if steps.is_noisy:
        others = report.host.others_cpus or 0.0
        why = f", as other programs used {others:.2g} CPUs" if others >= _NOTABLE_CPUS else ""
        return Reliability(kind="conditional", words=f"less reliable: noisy{why} ({known})", details=caveats)
    if not_made := _not_made(report):
        why, rules = max(wording.by_reason(report.not_evaluated), key=lambda group: len(group[1]))
        most = f"{numbers.counted(len(rules), 'check')} could not be run: {why}."
        holds = "the findings hold; " if report.findings else ""
        return Reliability(kind="conditional", words=f"{holds}{not_made} ({known})", details=(most, *caveats))
    return Reliability(kind="ok", words=f"reliable ({known})", details=caveats)


def _not_made(report: Report) -> str:
    """How many checks could not be run, if those are many."""
    checks = _checks(report)
    if not checks.passed or not checks.misses_many:  # none passed: a report of an old version
        return ""
    return f"{len(checks.not_made)} of {checks.applicable} checks could not be run"


def _own_s(report: Report) -> dict[str, float]:
    """What this profiler itself takes of each part of the run."""
    ours: dict[str, float] = defaultdict(float)
    for row in report.ledger:
        ours[row.part] += row.total_s if row.name == OWN_NAME else 0.0
    return ours


def _seconds_of(part: str, whole_s: float, own_s: float) -> str:
    """``384 ms of teardown (346 ms of it the profiler's)``."""
    whole = f"{numbers.seconds(whole_s)} {'' if part == 'epoch_gap' else 'of '}{words_of(part)}"
    return whole + (f" ({numbers.seconds(own_s)} of it the profiler's)" if own_s > whole_s / 2 else "")


def _own_part(report: Report) -> str:
    """The part of a whole run that is mostly this profiler's, as it is among the bars."""
    ours, least_s = _own_s(report), MIN_PART_RATIO * report.wall.total_s
    mostly = [(ours[part], part, s) for part, s in report.wall.parts.items() if ours[part] > s / 2 > 0]
    own_s, part, whole_s = max(mostly, default=(0.0, "", 0.0))
    if not part or own_s < least_s:
        return ""
    return _seconds_of(part, whole_s, own_s)


def _outside_steps(report: Report) -> str:
    """What takes long outside the steps, and how much of it this profiler itself, where that is most of it."""
    total, inside, ours = report.wall.total_s, STEP_PARTS[wording.stage(report)], _own_s(report)
    parts = [
        _seconds_of(part, seconds, ours[part])
        for part, seconds in sorted(report.wall.parts.items(), key=lambda item: -item[1])
        if part != inside and seconds >= MIN_PART_RATIO * total > 0
    ]
    return f"Outside the steps: {', '.join(parts[:4])}" if parts else ""


def _timed(report: Report) -> str:
    if not report.line_times:
        return ""
    function = max(report.line_times, key=lambda one: one.total_s)
    line = max(function.lines, key=lambda one: one.total_s)
    if function.total_s <= 0:
        return ""
    place, share = f"{plain.name(PurePath(function.file).name, 40)}:{line.line}", line.total_s / function.total_s
    code = f": {plain.name(line.code, 80)}" if line.code else ""
    return f"{place} takes {numbers.percent(share)} of {plain.name(function.name, 60)} (lines=){code}"


def title_of(finding: Finding) -> str:
    """The fault in one short line; of a rule without a title its id."""
    return plain.name(finding.title or finding.rule.replace("-", " ").capitalize())


def first_sentence(text: str) -> str:
    """The first sentence of a summary."""
    return plain.sentence(SENTENCE_END.split(text.strip(), maxsplit=1)[0])


def proof(folder: Path | None) -> str:
    """The command that compares a run with the next one; its folder may be ``gpuprof`` in the run's, or not known."""
    if folder is None:
        return f"gpuprof compare <folder of this run> {NEW_RUN}"
    run = _run_folder(folder)
    counted = _VERSION.fullmatch(run.name)
    after = NEW_RUN if counted is None else plain.visible(str(run.parent / f"{counted[1]}{int(counted[2]) + 1}"))
    return f"gpuprof compare {plain.visible(str(run))} {after}"


def _run_folder(folder: Path) -> Path:
    return folder.parent if folder.name == "gpuprof" else folder


def _run_name(folder: Path | None) -> tuple[str, ...]:
    """The run's folder as the commands have it, of a deep one the end: ``…/digits/lightning_logs/version_0``."""
    if folder is None:
        return ()
    parts = _run_folder(folder).parts
    last = parts[-3:] if parts[-2:-1] == ("lightning_logs",) else parts[-2:]
    return (plain.name(f"…/{'/'.join(last)}" if len(parts) > len(last) else str(_run_folder(folder)), 60),)


def _meta(report: Report) -> tuple[str, ...]:
    run, steps = report.run, report.steps
    batch = run.get("loader.batch_size")
    known = [
        _text(run, "model.class").rpartition("<locals>.")[2],  # of a class within a function
        _text(run, "device.name") or _text(run, "device.type").upper(),
        _ranks(run.get("rank"), run.get("world_size")),
        f"batch {batch}" if isinstance(batch, int) else "",
        f"{numbers.counted(steps.count, 'step')} in {numbers.seconds(report.wall.total_s)}",
    ]
    return tuple(one for one in known if one)


def _goal(report: Report) -> str:
    goal, of_steps, cost = report.run.get(GOAL), report.steps.period_ms, report.cost
    said = "not known"
    if goal not in ("latency", "memory", "cost"):
        return ""
    if goal == "latency" and of_steps is not None:
        named = {"median": of_steps.median, "p95": of_steps.p95, "p99": of_steps.p99, "max": of_steps.max}
        said = ", ".join(f"{name} {numbers.seconds(ms / 1e3)}" for name, ms in named.items())
    elif goal == "memory":
        device = next(iter(report.memory.devices), None)
        peak = report.memory.process_rss_peak_bytes if device is None else device.allocated_peak_bytes
        where = "of the process" if device is None else "on the GPU"
        said = said if peak is None else f"peak {numbers.size(peak)} {where}"
    elif goal == "cost" and cost is None:
        said += ", as no GPU was used"
    elif goal == "cost" and cost is not None and cost.gpu_hours_per_epoch is not None:
        said = f"{numbers.significant(cost.gpu_hours_per_epoch)} GPU-hours per epoch"
    return f"{goal}: {said}"


def _ranks(rank: Value, world_size: Value) -> str:
    if not isinstance(world_size, int) or world_size < 2:
        return ""
    return f"rank {rank} of {world_size}" if rank else f"{world_size} ranks"


def _of_rank(run: Mapping[str, Value]) -> str:
    """`` of rank 0`` where there are several."""
    rank = run.get("rank", 0)
    return f" of rank {rank}" if _ranks(rank, run.get("world_size")) and isinstance(rank, int) else ""


def _text(run: Mapping[str, Value], key: str) -> str:
    value = run.get(key)
    return "" if value is None else plain.name(str(value), 60)


def _finding_with_gain(report: Report, first: Finding) -> Finding | None:
    """The finding that has the gain of the first one's time."""
    if first.gain is not None or first.explains is None:
        return first if first.gain is not None else None
    return next((f for f in report.findings if f.gain is not None and f.explains == first.explains), None)


def _bar_name(claim: Claim | None) -> str:
    if scale_of(claim) == "run":
        return "whole run"
    return "mean step" if claim is not None and claim.resource == "uneven steps" else "median step"


def _saved(report: Report, saved_ms: float, scale: Scale) -> str:
    """In time, and where cost is the goal, in GPU-hours of an epoch."""
    words = saved_words(saved_ms, report.steps.count, scale)
    batches, ranks = (report.run.get(f"trainer.{name}") for name in ("num_training_batches", "world_size"))
    if report.run.get(GOAL) != "cost" or report.cost is None or not isinstance(batches, (int, float)):
        return words
    hours = saved_ms / 3.6e6 * batches * (ranks if isinstance(ranks, int) else 1)
    return f"{words}, {numbers.significant(hours)} GPU-hours per epoch"


def _of_what(finding: Finding, scale: Scale) -> str:
    """What gets faster, if it is not what others of the list are about."""
    own = scale_of(finding.explains)
    return "" if own == scale or finding.gain is None else "the run " if own == "run" else "steps "


def _headline(report: Report, first: Finding | None, could: str) -> str:
    if first is not None:
        return f"{title_of(first)}.{could}"
    if _too_short(report):
        few = numbers.counted(report.steps.count, "step")
        if _is_unfinished(report):
            return f"Still warming up: {few} so far."
        return f"Too short to judge ({few}). Run at least {MIN_STEADY_STEPS + 10}."
    if not report.validity.ok:
        return "Part of the run was not recorded: no conclusion can be drawn."
    hints = f" {_hints(report)}." if report.findings else ""
    if report.validity.conditional:
        none = "Nothing certain" if hints else "No finding"
        return f"{none}, as other programs ran: re-run on a quiet machine.{hints}"
    if reliability(report).kind == "conditional":
        return f"No finding, but {_doubt(report)}.{hints}"
    most = f"o potential speedup above {100 * MIN_GAIN_RATIO:.0f} %."
    return f"N{most}{hints}" if hints or _ended(report, first=None) else f"Healthy: n{most}"


def _doubt(report: Report) -> str:
    """Why a run without a finding is not called healthy, and what to do about it."""
    if report.line_times:
        return "lines= slows the functions that it times: train without it"
    unsteady = "its speed changed" if report.steps.drift_ms is not None else "the step time is noisy"
    return _not_made(report) or f"{unsteady}: run more steps"


def _hints(report: Report) -> str:
    """The one finding that is a hint, or how many there are."""
    first, *others = report.findings
    unknown = ", gain unknown" if all(one.gain is None for one in report.findings) else ""
    return f"{1 + len(others)} hints{unknown}" if others else f"Hint: {title_of(first)}"


def _is_unfinished(report: Report) -> bool:
    return report.run.get("status") == "unfinished"


def _too_short(report: Report) -> bool:
    return report.verdict.kind == "not-enough-data" or report.steps.steady_count < MIN_STEADY_STEPS


def _sentence(report: Report, first: Finding | None) -> str:
    if first is not None:
        return _short(first.summary) if first.change is None else first_sentence(first.summary)
    if _too_short(report):
        killed = " If it no longer trains, it was killed." if _is_unfinished(report) else ""
        return f"The first steps of a run are slower.{killed}"
    return plain.sentence(report.verdict.summary)


def _without_said(fix: Fix, first: Finding) -> Fix:
    """A fix whose advice does not name again the place that is its title or in the summary."""
    places = {fix.where, *_PLACE.findall(first.summary)} - {""}
    return msgspec.structs.replace(fix, advice=_without_place(fix.advice, *places))


def _without_place(text: str, *places: str) -> str:
    for place in places:
        text = text.replace(f" ({place})", "") if place else text
    return text


def _short(summary: str) -> str:
    """The first two sentences, or only one if they are long."""
    two = " ".join(SENTENCE_END.split(plain.sentence(summary.strip()))[:2])
    return two if len(two) <= MAX_TWO_SENTENCES else first_sentence(summary)


def _opportunities(
    report: Report, first: Finding | None, saved_ms: float | None, times: float | None, sure: str
) -> tuple[Opportunity, ...]:
    """All findings; the one in the headline saves as much of the bar, by as many times, as is said there."""
    findings, scale = report.findings, scale_of(None if first is None else first.explains)
    with_gain: dict[Claim, int] = {}
    for number, finding in enumerate(findings, 1):
        if finding.gain is not None and finding.explains is not None:
            with_gain.setdefault(finding.explains, number)
    return tuple(
        Opportunity(
            rule=plain.name(finding.rule),
            title=title_of(finding),
            severity=finding.severity,
            subject=plain.name(finding.subject),
            saved_ms=(saves := saved_ms if finding is first and saved_ms is not None else likely_saved_ms(finding)),
            saved="" if saves is None else _saved(report, saves, scale_of(finding.explains)),
            speedup=(by := times if finding is first and times is not None else speedup_shown(report, finding)),
            faster=_of_what(finding, scale) + likely_faster(finding, by, sure if finding is first else ""),
            same_as=with_gain.get(finding.explains) if finding.gain is None and finding.explains is not None else None,
            rest_of=findings.index(first) + 1 if first is not None and is_rest(finding, first) else None,
            sentence=_short(finding.summary) if finding.gain is None and finding.severity == "info" else "",
        )
        for finding in findings
    )
