"""What ``gpuprof try`` measured, as a table and sentences: for terminal, page and tab."""

from __future__ import annotations

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.trial import NotTried, Outcome, Trial, Tried
from lightning_gpuprof.sinks import plain, wording
from lightning_gpuprof.sinks.tables import FIGURE, SENTENCE, Column, Format, Table

TITLE = "Tried"
_WORDS: dict[Outcome, str] = {
    "faster": "worth it",
    "no gain": "no gain",
    "slower": "slower",
    "undecided": "not decided",
    "failed": "failed",
}
_CEILINGS = {"input": "ceiling: a perfect loader", "around the model": "ceiling: no callbacks, logging, progress bar"}
SAME_RATIO = 0.02
"""Speed-ups that lie closer than this are the same. Heuristic: the width of a narrow interval."""
_NAME = Format(plain.sentence, numeric=False)
_FACTOR = Format(numbers.factor)


def tried_table(trial: Trial) -> Table:
    """A row for each arm, the fastest first; all that is worth it together comes last.

    Args:
        trial: The result.
    """
    rows = trial.tried if trial.together is None else (*trial.tried, trial.together)
    expected = Column("expected", _expected, help="what the finding expects, or the most that it can gain")
    device = "the CPU" if trial.device == "cpu" else plain.name(trial.device)
    return Table.of(
        f"{TITLE} on {device}" if device else TITLE,
        rows,
        Column("change", lambda row: _name(trial, row), _NAME, help="what was set while these steps ran"),
        *((expected,) if any(map(_expected, rows)) else ()),
        Column("measured", lambda row: row.speedup, _FACTOR, help="speed-up of the step, paired by rounds"),
        Column("90 % interval", _interval, FIGURE, help="Student's interval of the mean log ratio over rounds"),
        Column("step", lambda row: row.step_ms, Format(numbers.significant, "ms"), help="mean step with the change"),
        Column("worth it?", lambda row: verdict(trial, row), help="worth it from 3 % on"),
        absent="Nothing could be tried.",
    )


def left_table(trial: Trial) -> Table:
    """Advice that was not tried, and why.

    Args:
        trial: The result.
    """
    return Table.of(
        "Not tried",
        trial.not_tried,
        Column("advice", lambda row: row.advice, SENTENCE, help="of the finding"),
        Column("why not", lambda row: row.why, SENTENCE, help="what stands in the way of trying it"),
        Column("gain", bound, help="the most that the finding said it gains"),
        absent="",
    )


def _name(trial: Trial, row: Tried) -> str:
    if row.arm.ceiling:
        return f"{row.arm.name} ({_CEILINGS[row.arm.ceiling]})"
    name = f"{row.arm.name} (per sample)" if row.per_sample else row.arm.name
    return f"together: {name}" if row is trial.together else name


def _expected(row: Tried) -> str | None:
    if row.arm.expected is not None:
        return wording.about(row.arm.expected)
    return None if row.arm.promised_speedup is None else f"at most {numbers.factor(row.arm.promised_speedup)}"


def bound(row: NotTried) -> str | None:
    """The most that the finding said it gains; None if it has no gain."""
    return None if row.promised_speedup is None else f"at most {numbers.factor(row.promised_speedup)}"


def _interval(row: Tried) -> str | None:
    if row.speedup_lower is None or row.speedup_upper is None:
        return None
    return f"{numbers.factor(row.speedup_lower)} to {numbers.factor(row.speedup_upper)}"


def verdict(trial: Trial, row: Tried) -> str:
    """Whether a change is worth making, in words.

    Args:
        trial: That it is part of.
        row: It.
    """
    if row.arm.ceiling:
        return "not a change"
    joined = " " if row.outcome == "undecided" else ": "
    words = f"{_WORDS[row.outcome]}{joined}{plain.sentence(row.why)}" if row.why else _WORDS[row.outcome]
    return f"{words}; the weights come out differently" if row.changes_numbers and row.outcome != "failed" else words


def best(trial: Trial) -> Tried | None:
    """What to change: all that is worth it together, where that is faster than each alone; None: nothing is."""
    faster = [row for row in trial.tried if row.outcome == "faster" and not row.arm.ceiling]
    most = max((row.speedup or 0.0 for row in faster), default=0.0)
    as_good = [row for row in faster if (row.speedup or 0.0) >= (1 - SAME_RATIO) * most]
    alone = min(as_good, key=lambda row: (_workers(row), -(row.speedup or 0.0)), default=None)
    both = trial.together
    if both is None or both.outcome != "faster" or alone is None:
        return alone
    return both if (both.speedup or 0.0) > (alone.speedup or 0.0) else alone


def outcome_of(trial: Trial, rule: str) -> str:
    """What the advice of a rule really gained, in words; empty where it was not tried.

    Args:
        trial: The result.
        rule: Its id.
    """
    row = next((one for one in trial.tried if rule in one.arm.rules), None)
    if row is None or row.speedup is None:
        return ""
    interval = _interval(row)
    words = f"{numbers.factor(row.speedup)} measured" + (f" ({interval})" if interval else "")
    return words if row.outcome == "faster" else f"{words}: {_WORDS[row.outcome]}"


def _workers(row: Tried) -> int:
    """That a change asks for: of settings that are as fast, the one with fewer is better."""
    found = [change.arguments.get("num_workers") for change in row.arm.changes]
    return max((count for count in found if isinstance(count, int)), default=0)


def is_undecided(trial: Trial) -> bool:
    """Whether something could still be worth it.

    Args:
        trial: The result.
    """
    return any(row.outcome == "undecided" for row in trial.tried if not row.arm.ceiling)


def headline(trial: Trial) -> str:
    """The result in a sentence.

    Args:
        trial: It.
    """
    found, base = best(trial), trial.base_step_ms
    if base is None:
        return "Nothing was measured in this time: try longer, with --seconds."
    if found is None or found.step_ms is None or found.speedup is None:
        if is_undecided(trial):
            return "Nothing is decided yet: try longer, with --seconds."
        return "Nothing that was tried is faster."
    per = "for as many samples" if found.per_sample else "a step"
    return (
        f"{found.arm.name}: {numbers.factor(found.speedup)} faster, "
        f"{numbers.significant(base)} -> {numbers.significant(found.step_ms)} ms {per}."
    )
