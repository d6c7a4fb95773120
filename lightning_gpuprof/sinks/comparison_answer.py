"""What a reader of a comparison sees first, as data: did it work, as promised, what changed, what next.

The terminal, the page and the tab show the same answer.
"""

import math
import textwrap
from collections.abc import Iterator
from pathlib import Path

import msgspec

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.comparison import Comparison, Judgement
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.sinks import comparison_tables, first_screen, gains, plain, step_bars, wording
from lightning_gpuprof.sinks.json_report import FILE_NAME

STATUS = "status"
"""The condition how a run ended."""
MEAN, MEDIAN = "mean step time", "median step time"
MIN_PHASE_RATIO = 0.03
"""Phases with less of the longer step in both runs are one row."""
MAX_PHASES = 4
LONGEST_FACT = 160
"""Characters of a fact; all of it is under ``--all``."""
LONGEST_REASON = 320
"""Characters of a note, and of the reason why runs are not comparable."""
CONDITIONS_CELLS = 110
MAX_FILES = 2
MAX_DIFF = 2
"""Lines of a change of code that a first screen shows: a longer one is under ``--all``."""
_OTHER_REASONS = ": something else changed, too, or the machine was less busy"
"""Where more was saved than promised."""


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The step of both runs, by the statistic that the judgement rests on."""

    name: str
    """:data:`MEAN` or :data:`MEDIAN`."""
    before_ms: float
    after_ms: float


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The step that the earlier run's report expected, or else the one that it promised at best."""

    ms: float
    words: str


class PhaseChange(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of both steps, or all small ones."""

    name: str
    before_ms: float
    after_ms: float


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer in ten seconds."""

    verdict: str
    """A sentence."""
    times: StepTimes | None
    target: Target | None
    statistic: str
    """What the times of the phases are of the steps: ``mean`` or ``median``."""
    phases: tuple[PhaseChange, ...]
    """In the order of their change, the small ones last."""
    facts: tuple[tuple[str, str], ...]
    """Label and text."""
    notes: tuple[str, ...]
    """Sentences, the most important first."""
    diff: tuple[str, ...]
    """Lines of the code that changed, each with its sign, where those are few."""


def answer(comparison: Comparison) -> Answer:
    """The answer of a comparison."""
    times = _step_times(comparison) if comparison.training.speedup is not None else None
    return Answer(
        verdict=_verdict(comparison, times),
        times=times,
        target=None if times is None else _target(comparison, times),
        statistic="mean" if comparison.mean_phases else "median",
        phases=() if times is None else _phase_changes(comparison),
        facts=tuple((label, plain.cut(text, LONGEST_FACT)) for label, text in _facts(comparison, times)),
        notes=_notes(comparison),
        diff=_short_diff(comparison),
    )


def run_names(comparison: Comparison) -> tuple[str, str]:
    """What distinguishes the two paths: ``version_0`` and ``version_1``; all of both if nothing does."""
    if comparison.before == comparison.after:
        return plain.visible(comparison.before), plain.visible(comparison.after)
    sides = [
        [part for part in Path(name).parts if part not in ("gpuprof", FILE_NAME)]
        for name in (comparison.before, comparison.after)
    ]
    while all(len(side) > 1 for side in sides) and sides[0][-1] == sides[1][-1]:
        sides = [side[:-1] for side in sides]
    while all(len(side) > 1 for side in sides) and sides[0][0] == sides[1][0]:
        sides = [side[1:] for side in sides]
    if sides[0] == sides[1] or not all(sides):
        return plain.visible(comparison.before), plain.visible(comparison.after)
    before, after = (plain.visible(str(Path(*side))) for side in sides)
    return before, after


def _step_times(comparison: Comparison) -> StepTimes | None:
    rows = {row.name: row for row in comparison.changes}
    row = rows.get(MEDIAN if comparison.training.measure == MEDIAN else MEAN)
    if row is None or not row.before or not row.after:
        return None
    return StepTimes(name=row.name, before_ms=row.before, after_ms=row.after)


def _promised_ms(comparison: Comparison, times: StepTimes) -> float | None:
    most = comparison.predicted_step_speedup_max
    return times.before_ms / most if most is not None and most > 1 else None


def _target(comparison: Comparison, times: StepTimes) -> Target | None:
    found = comparison.expectation
    if found is not None and found.of == "step":
        likely_ms = times.before_ms / found.expected.speedup
        ends = (amount(times.before_ms / end) for end in reversed(found.expected.speedup_range))
        return Target(ms=likely_ms, words=f"expected: about {amount(likely_ms)} ms ({' to '.join(ends)})")
    promised_ms = _promised_ms(comparison, times)
    return None if promised_ms is None else Target(ms=promised_ms, words=f"promised: at best {amount(promised_ms)} ms")


def _verdict(comparison: Comparison, times: StepTimes | None) -> str:
    training, wall = comparison.training, comparison.wall
    if comparison.outcome == "not comparable" and training.speedup is None:
        return plain.cut(_sentence(training.why), LONGEST_REASON)
    step = (
        "Step"
        if times is None
        else f"{times.name.split()[0].capitalize()} step {amount(times.before_ms)} -> {amount(times.after_ms)} ms"
    )
    if _asked(comparison):
        return f"By {', '.join(plain.name(one, 40) for one in comparison.metrics)}. {step}{_times(training)}."
    if comparison.outcome != training.outcome and wall.outcome == comparison.outcome:
        steps = {"within noise": " The steps did not change.", "regressed": f" {step}{_times(training)}."}
        return f"{_wall_words(comparison)}{_times(wall)}.{steps.get(training.outcome, '')}"
    return f"{step}{_times(training)}{_promise(comparison)}."


def _asked(comparison: Comparison) -> bool:
    return comparison.metrics not in ((), ("throughput", "wall"))


def _times(judged: Judgement) -> str:
    """``: 1.9x faster (95 % CI: 1.8x to 2x)``."""
    if judged.speedup is None:
        return ""
    if judged.outcome not in ("improved", "regressed"):
        limit = "" if judged.noise_ratio is None else f" of {numbers.percent(judged.noise_ratio)}"
        return f": no change beyond the noise{limit}"
    fast = judged.speedup > 1
    ends = [end if fast else 1 / end for end in (judged.lower, judged.upper) if end]
    sure = ""
    if len(ends) == 2:
        low, high = (_rounded_down(end) for end in sorted(ends))
        sure = f" (at least {low}x)" if judged.from_levels else f" (95 % CI: {low}x to {high}x)"
    return f": {'about ' if judged.rough else ''}{_factor(judged.speedup)}{sure}"


def _factor(speedup: float) -> str:
    return f"{numbers.significant(max(speedup, 1 / speedup))}x {'faster' if speedup >= 1 else 'slower'}"


def _rounded_down(value: float) -> str:
    """A bound never reads as more than it is; three digits, below 10 two decimals."""
    digits = 10 ** max(0, 2 - max(0, math.floor(math.log10(value)))) if value > 0 else 1
    return f"{math.floor(value * digits) / digits:g}"


def _promise(comparison: Comparison) -> str:
    most, found = comparison.predicted_step_speedup_max, comparison.expectation
    if comparison.outcome != "improved":
        return ""
    if found is not None and found.of == "step":
        return f", {found.standing}"
    if most is None or numbers.significant(most) == "1":
        return ""
    return f", promised up to {numbers.significant(most)}x"


def _phase_changes(comparison: Comparison) -> tuple[PhaseChange, ...]:
    known = [
        PhaseChange(name=row.name, before_ms=row.before or 0.0, after_ms=row.after or 0.0)
        for row in comparison.mean_phases or comparison.phases
    ]
    whole = max(sum(row.before_ms for row in known), sum(row.after_ms for row in known))
    large = [row for row in known if max(row.before_ms, row.after_ms) >= MIN_PHASE_RATIO * whole > 0][:MAX_PHASES]
    if not large:
        return ()
    small = [row for row in known if row not in large]
    rest = PhaseChange(
        name=step_bars.OTHER,
        before_ms=sum(row.before_ms for row in small),
        after_ms=sum(row.after_ms for row in small),
    )
    return (*large, rest) if rest.before_ms or rest.after_ms else tuple(large)


def _facts(comparison: Comparison, times: StepTimes | None) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if times is None and (measured := _step_times(comparison)) is not None:
        both = f"{amount(measured.before_ms)} -> {amount(measured.after_ms)} ms"
        rows.append(("measured", f"{measured.name} {both}, not comparable{_moved_most(comparison)}"))
    if _asked(comparison):
        judged = [row for row in comparison.judged if row.measure in comparison.metrics]
        rows += [(row.outcome or "not judged", comparison_tables.change_words(row)) for row in judged[:3]]
    if comparison.expectation is not None:
        rows.append(("expected", wording.came_of(comparison.expectation)))
    elif promise := _achieved_of_predicted(comparison, times):
        rows.append(("achieved", promise))
    if comparison.wall.speedup is not None and (whole := _wall_words(comparison)):
        rows.append(("whole fit", f"{whole.removeprefix('Whole fit ')}{_times(comparison.wall)}"))
    rows += [("ended", text) for text in _ends(comparison)]
    return [*rows, ("changed", _conditions(comparison)), ("next", _next(comparison))]


def _moved_most(comparison: Comparison) -> str:
    """The phase that differs most between two steps that are not judged, in the direction of the whole."""
    changes = _phase_changes(comparison)
    whole = sum(row.after_ms - row.before_ms for row in changes)
    rows = [row for row in changes if row.name != step_bars.OTHER and (row.after_ms - row.before_ms) * whole > 0]
    most = max(rows, key=lambda row: abs(row.after_ms - row.before_ms), default=None)
    if most is None or amount(most.before_ms) == amount(most.after_ms):
        return ""
    return f"; most of it in {words_of(most.name)}: {amount(most.before_ms)} -> {amount(most.after_ms)} ms"


def _ends(comparison: Comparison) -> Iterator[str]:
    """What became of a run that did not finish, where the other one did."""
    for change in comparison.conditions:
        for side, status in (("earlier", change.before), ("later", change.after)):
            if change.name != STATUS or status in (None, "finished"):
                continue
            how = str(status).removeprefix("interrupted: ")
            was = "was killed or is still running" if status == "unfinished" else f"was ended by {plain.name(how, 60)}"
            yield f"the {side} run {was}: only its completed steps are compared"


def _achieved_of_predicted(comparison: Comparison, times: StepTimes | None) -> str:
    """What was saved of what was promised."""
    promised_ms = None if times is None else _promised_ms(comparison, times)
    if times is None or promised_ms is None or comparison.training.speedup is None:
        return ""
    saved, most = times.before_ms - times.after_ms, times.before_ms - promised_ms
    if comparison.above_bound and saved > most:  # not only the whole fit
        if amount(saved) == amount(most):
            return f"all of the promised {amount(most)} ms per step and a little more{_OTHER_REASONS}"
        return f"{amount(saved)} ms per step, more than the promised {amount(most)} ms{_OTHER_REASONS}"
    if comparison.training.outcome == "within noise":
        return f"not known, hidden by noise; promised: {amount(most)} ms per step"
    if saved <= 0 or comparison.training.outcome != "improved":
        return f"none of the promised {amount(most)} ms per step"
    return f"{amount(saved)} of the promised {amount(most)} ms per step ({round(100 * saved / most)} %)"


def _wall_words(comparison: Comparison) -> str:
    rows = {row.name: row for row in comparison.changes}
    row = rows.get("net wall time") or rows.get("wall time")
    if row is None or row.before is None or row.after is None:
        return ""
    return f"Whole fit {numbers.seconds(row.before)} -> {numbers.seconds(row.after)}"


def _conditions(comparison: Comparison) -> str:
    known, _ = comparison_tables.divided_conditions(comparison.conditions)
    differing = sorted(
        (change for change in known if change.name != STATUS), key=lambda change: change.name == "arguments_hash"
    )
    code = [comparison_tables.code_words(one) for one in comparison.code or ()]
    if not differing and not code:
        unknown = "none of the known conditions; code was not compared"
        return unknown if comparison.code is None else "no known condition, and no line of the code that both runs have"
    shown: list[str] = code[:MAX_FILES]
    for change in differing:
        values = (
            plain.shorten(comparison_tables.condition_value(value), 30) for value in (change.before, change.after)
        )
        text = f"{plain.name(change.name, 40)} {' -> '.join(values)}"
        if change.name == "arguments_hash":
            text = "arguments of the program that are not shown"
        if shown and sum(map(len, shown)) + len(text) > CONDITIONS_CELLS:
            break
        shown.append(text)
    more = len(differing) + len(code) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _short_diff(comparison: Comparison) -> tuple[str, ...]:
    """Those of the one file that differs."""
    files = comparison.code or ()
    lines = [line for one in files for line in one.diff if not line.startswith(" ")]
    if len(files) != 1 or len(lines) > MAX_DIFF:
        return ()
    code = textwrap.dedent("\n".join(line[1:] for line in lines)).split("\n")
    return tuple(f"{line[0]} {text}" for line, text in zip(lines, code, strict=True))


def _next(comparison: Comparison) -> str:
    found = comparison.next_finding
    if comparison.way_out and (found is None or comparison.outcome == "not comparable"):
        return comparison.way_out
    if comparison.outcome == "regressed":
        grown = {row.name: row.after_ms - row.before_ms for row in _phase_changes(comparison)}
        grown.pop(step_bars.OTHER, None)
        longest = max(grown, key=lambda name: grown[name], default="")
        words = f"; {words_of(longest)} grew most ({signed(grown[longest])} ms)" if grown.get(longest, 0.0) > 0 else ""
        return f"revert the change{words}"
    if found is None:
        return "nothing: the later run has no finding"
    said = (first_screen.title_of(found), gains.likely_faster(found, gains.speedup_of(found)))
    return ": ".join(part for part in said if part)


def _notes(comparison: Comparison) -> tuple[str, ...]:
    training, wall = comparison.training, comparison.wall
    notes = [*comparison.notes]
    if training.why and training.outcome != "not comparable":
        notes.insert(0, training.why)
    elif wall.why and training.why != wall.why and wall.outcome == "not comparable":
        notes.insert(0, f"{wall.measure}: {wall.why}")
    return tuple(_sentence(note) for note in notes)


def _sentence(text: str) -> str:
    return numbers.capital(plain.sentence(text))


def amount(value: float) -> str:
    """A number of milliseconds."""
    return numbers.significant(value)


def signed(value: float) -> str:
    """A difference of milliseconds."""
    return f"{'+' if value > 0 else ''}{numbers.significant(value)}"
