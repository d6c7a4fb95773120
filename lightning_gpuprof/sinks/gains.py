"""What a fix saves of a step and of the run: as expected, or else at most, in numbers and in words."""

from typing import Literal

import msgspec

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.finding import Expected, Finding, Gain
from lightning_gpuprof.model.phases import STEP_PARTS
from lightning_gpuprof.model.report import Report, Wall
from lightning_gpuprof.sinks import wording

Scale = Literal["step", "run"]
MISLEADING_RATIO, MISLEADING_FACTOR = 0.5, 1.5
"""Part of the run that a fix saves, over the part of a step, and the other way round speed-ups: beyond one of them the
headline says both."""
REST_RATIO = 0.01
"""Of what a fix leaves, by which the bound of another finding differs from it at most where it is nothing else."""


class Likely(msgspec.Struct, frozen=True, kw_only=True):
    """In words, how sure the time after the fix is; by default it is a bound."""

    label: str = "after the fix (best case)"
    """Of its bar."""
    before: str = ""
    """Said before the time."""
    behind: str = " at best"
    """Said behind it."""
    ends_ms: tuple[float, float] | None = None
    """The interval of what is expected, on the scale of the bar; None: it is a bound."""
    sure: str = "up to"
    """Said before the speed-up."""
    when: str = ""
    """Said behind the speed-up: the condition under which it holds."""


def likely_saved_ms(finding: Finding) -> float | None:
    """Of a step, as expected, or else at most; None: no gain is known."""
    if finding.gain is None or finding.expected is None:
        return None if finding.gain is None else finding.gain.saved_ms_per_step
    return finding.expected.whole_ms - finding.expected.step_ms


def likely_faster(finding: Finding, times: float | None, sure: str = "") -> str:
    """``about 2x faster`` as expected, or else ``up to 2x faster``.

    Args:
        finding: The finding.
        times: The speed-up; None: not known.
        sure: What to say before it, in place of what the finding says.

    Returns:
        ``about 5 % faster`` below 1.1x; empty where no gain is known.
    """
    sure = sure or ("up to" if finding.expected is None else "about")
    return "" if times is None else f"{sure} {faster(times)}"


def scale_of(claim: Claim | None) -> Scale:
    """Whether what a finding explains lies in the steps or between them."""
    return "run" if claim is not None and claim.resource == "outside steps" else "step"


def speedup_of(finding: Finding | None) -> float | None:
    """As expected, or else at most; None: no gain is known."""
    if finding is None or finding.gain is None or finding.expected is None:
        return None if finding is None or finding.gain is None else finding.gain.speedup_max
    return finding.expected.speedup


def speedup_shown(report: Report, finding: Finding) -> float | None:
    """The speed-up as screens say it: of what lies between steps that of the whole run.

    Args:
        report: Of the run.
        finding: One of it.

    Returns:
        A factor, 1 for no gain; None: no gain is known.
    """
    saved_ms = likely_saved_ms(finding)
    if saved_ms is None or scale_of(finding.explains) == "step":
        return speedup_of(finding)
    return run_faster(report.wall, saved_ms * report.steps.count / 1e3)


def saved_of_bar(finding: Finding, today_ms: float, claim: Claim | None) -> float:
    """What is saved of a bar, as expected or else at most.

    Args:
        finding: The finding.
        today_ms: The bar.
        claim: What the bar is about.

    Returns:
        ms, not more than the bar; 0 without a gain.
    """
    if (expected := finding.expected) is not None:
        return min(today_ms, _of_bar(expected.whole_ms - expected.step_ms, expected.whole_ms, today_ms, claim))
    return 0.0 if finding.gain is None else claimed_of_bar(finding.gain, today_ms, claim)


def claimed_of_bar(gain: Gain, today_ms: float, claim: Claim | None) -> float:
    """What a fix itself ends of a bar at most.

    Args:
        gain: Of a finding.
        today_ms: The bar.
        claim: What the bar is about.

    Returns:
        ms, not more than the bar.
    """
    whole_ms = gain.whole_ms if gain.speedup_max > 1 else today_ms
    return min(today_ms, _of_bar(gain.saved_ms_per_step, whole_ms, today_ms, claim))


def _of_bar(ms: float, whole_ms: float, today_ms: float, claim: Claim | None) -> float:
    """Time of a step on the scale of the bar: of the mean step the same share of the median one.

    What is outside of the steps is as long in the time of the run.
    """
    return ms * today_ms / whole_ms if scale_of(claim) == "step" and whole_ms > 0 else ms


def at_best(report: Report, finding: Finding | None) -> Likely:
    """A bound; workers reach it only where other programs leave them CPUs.

    Args:
        report: Says whether those used any.
        finding: The one whose gain it is.

    Returns:
        Words for a bound, with that condition where the fix needs CPUs; it has no interval.
    """
    change = None if finding is None else finding.change
    needs_cpus = change is not None and change.call == "DataLoader" and "num_workers" in change.arguments
    return Likely(when=" on free CPUs" if needs_cpus and report.validity.conditional else "")


def beyond_cpus(change: Change | None, usable_cpus: float | None) -> bool:
    """Whether a change has more workers than CPUs, so that its estimate is a bound.

    Args:
        change: Of a finding.
        usable_cpus: Of the run.
    """
    workers = None if change is None else change.arguments.get("num_workers")
    return isinstance(workers, int) and workers > (usable_cpus or workers)


def expectation(report: Report, finding: Finding, expected: Expected, today_ms: float) -> Likely:
    """Of more workers than CPUs a bound: nobody knows whether storage serves all of them at once.

    Args:
        report: Has the CPUs.
        finding: The one whose gain it is.
        expected: What it expects.
        today_ms: The bar.

    Returns:
        Else an estimate, with the interval of the time after the fix in ms, on the scale of the bar.
    """
    if beyond_cpus(finding.change, report.host.usable_cpus):
        return at_best(report, finding)
    ends_ms = expected.lower_ms, expected.upper_ms
    saved = (_of_bar(expected.whole_ms - end, expected.whole_ms, today_ms, finding.explains) for end in ends_ms)
    low_ms, high_ms = (max(0.0, today_ms - ms) for ms in saved)
    return Likely(label="after the fix (estimate)", before="about ", behind="", ends_ms=(low_ms, high_ms), sure="about")


def run_of_steps(wall_s: float, wall_after_s: float | None, times: float | None) -> str:
    """What faster steps are for the whole run, where that is far less.

    Args:
        wall_s: The run.
        wall_after_s: The run after the fix; None: not known.
        times: Speed-up of the steps.

    Returns:
        ``, the whole run 1.2x faster``, to end a sentence with; empty where it is about as much, or not known.
    """
    if times is None or wall_after_s is None or not 0 < wall_after_s <= wall_s:
        return ""
    of_run = times_faster(wall_s, wall_after_s)
    far_less = 1 - 1 / of_run < MISLEADING_RATIO * (1 - 1 / times) or times > MISLEADING_FACTOR * of_run
    return f", the whole run {faster(of_run)}" if far_less else ""


def times_faster(before: float, after: float) -> float:
    """How many times faster, of the times as they are shown, with three digits.

    Args:
        before: A time.
        after: In the same unit.

    Returns:
        A factor, at most 100; 1 if ``before`` is 0.
    """
    before, after = (float(f"{time:.3g}") for time in (before, after))
    return before / max(after, 0.01 * before) if before > 0 else 1.0


def faster(times: float) -> str:
    """``2x faster``; of small gains ``4 % faster``."""
    if times < 1.1:
        return f"{round(100 * (times - 1), 1):g} % faster"
    return f"{times:.1f}x faster".replace(".0x", "x") if times < 10 else f"{times:.0f}x faster"


def saved_words(ms: float, steps: int, scale: Scale) -> str:
    """``11.6 ms per step``; of what lies between steps ``1.47 s per run``.

    Args:
        ms: Per step.
        steps: Of the run.
        scale: Where it lies.

    Returns:
        The time of one step, or that of all ``steps``, in the unit that suits it.
    """
    return f"{numbers.seconds(ms * steps / 1e3)} per run" if scale == "run" else f"{numbers.seconds(ms / 1e3)} per step"


def steps_s(report: Report) -> float:
    """Wall time of all steps of a run."""
    return report.wall.parts.get(STEP_PARTS[wording.stage(report)], 0.0)


def run_after_s(report: Report, saved_ms: float, scale: Scale, ratio: float) -> float:
    """Wall time of the run with so much less per step.

    Args:
        report: Of the run.
        saved_ms: Per step.
        scale: Where that lies.
        ratio: Of a step, what is saved: where most steps are longer than the mean one, they save no more of all steps.

    Returns:
        Seconds, not more than today; at most ``ratio`` of the steps, or all between setup and teardown, is saved.
    """
    most_s = steps_s(report) * ratio if scale == "step" else _between_ends_s(report.wall)
    return report.wall.total_s - max(0.0, min(saved_ms * report.steps.count / 1e3, most_s))


def run_faster(wall: Wall, saved_s: float) -> float:
    """How many times faster the whole run gets by what is saved between its steps.

    Args:
        wall: Of the run.
        saved_s: Of all of it.

    Returns:
        A factor of 1 to 100; setup and teardown stay as they are.
    """
    return times_faster(wall.total_s, wall.total_s - max(0.0, min(saved_s, _between_ends_s(wall))))


def _between_ends_s(wall: Wall) -> float:
    return wall.total_s - wall.parts.get("setup", 0.0) - wall.parts.get("teardown", 0.0)


def is_rest(finding: Finding, first: Finding) -> bool:
    """Whether its bound is just what the first fix leaves of the step, to which the engine cuts it.

    Args:
        finding: Another one.
        first: The one of the headline.
    """
    if finding is first or finding.gain is None or first.gain is None or first.gain.speedup_max <= 1:
        return False
    left_ms = first.gain.whole_ms - first.gain.saved_ms_per_step
    return abs(finding.gain.saved_ms_per_step - left_ms) <= REST_RATIO * left_ms
