"""What ``gpuprof try`` measured, as a table and sentences: for terminal, page and tab."""

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.trial import NotTried, Outcome, Trial, Tried
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import FIGURE, SENTENCE, Column, Format, Table

TITLE = "Tried"
_WORDS: dict[Outcome, str] = {
    "faster": "worth it",
    "no gain": "no gain",
    "slower": "slower",
    "undecided": "unclear",
    "failed": "failed",
}
_CEILINGS = {"input": "with a perfect loader", "around the model": "without callbacks, logging and progress bar"}
SAME_RATIO = 0.02
"""Speed-ups that lie closer than this are the same. Heuristic: the width of a narrow interval."""
_NAME_CELLS = 25
"""``enable_progress_bar=False`` stays whole on a terminal of 80 columns."""
_NAME = Format(plain.sentence, numeric=False)


def tried_table(trial: Trial) -> Table:
    """A row for each change, the fastest first; all that is worth it together comes last."""
    rows = [row for row in (*trial.tried, trial.together) if row is not None and not row.arm.ceiling]
    expected = Column("expected", _expected, FIGURE, help="the finding's estimate, or its upper bound")
    device = "the CPU" if trial.device == "cpu" else plain.name(trial.device)
    return Table.of(
        f"{TITLE} on {device}" if device else TITLE,
        rows,
        Column(
            "change",
            lambda row: _name(trial, row),
            _NAME,
            help="what was set while these steps ran",
            word_cells=_NAME_CELLS,
        ),
        Column("measured", _measured, FIGURE, help="speed-up of the step, and its 90 % interval over rounds"),
        *((expected,) if any(map(_expected, rows)) else ()),
        Column("step", lambda row: row.step_ms, Format(numbers.significant, "ms"), help="mean step with the change"),
        Column("worth it?", lambda row: _WORDS[row.outcome], help="worth it from 3 % on"),
        absent="There was no setting to try.",
    )


def ceilings(trial: Trial) -> str:
    """What no advice on the input, or around the model, can pass; empty where that was not measured."""
    loaders = [row.speedup for row in trial.tried if row.speedup is not None and _is_loader(row)]
    least = {"input": max([1.0, *loaders])}  # a perfect loader is as fast as each that was tried
    found = [
        f"{numbers.factor(max(least.get(row.arm.ceiling, 1.0), row.speedup))} {_CEILINGS[row.arm.ceiling]}"
        for row in trial.tried
        if row.arm.ceiling and row.speedup is not None
    ]
    return f"At most {', '.join(found)}." if found else ""


def _is_loader(row: Tried) -> bool:
    changes = row.arm.changes
    return bool(changes) and not row.per_sample and all(change.call == "DataLoader" for change in changes)


def notes(trial: Trial) -> list[tuple[str, str]]:
    """What must be known of some rows: a label, and a sentence."""
    rows = [row for row in (*trial.tried, trial.together) if row is not None and not row.arm.ceiling]
    found = [("failed", f"{row.arm.name} ({plain.sentence(row.why)})") for row in rows if row.outcome == "failed"]
    if unclear := [
        f"{row.arm.name} ({row.why})" if row.why else row.arm.name for row in rows if row.outcome == "undecided"
    ]:
        found.append(("unclear", f"{numbers.listed(unclear)}: try longer, with --seconds"))
    if other := [row.arm.name for row in trial.tried if row.changes_numbers and row.outcome in ("faster", "undecided")]:
        found.append(("numerics", f"with {numbers.listed(other)} the trained weights differ: compare the loss, too"))
    return found


def left_table(trial: Trial) -> Table:
    """Advice that was not tried, and why."""
    return Table.of(
        "Not tried",
        trial.not_tried,
        Column("advice", lambda row: row.advice, SENTENCE, help="of the finding"),
        Column("why not", lambda row: row.why, SENTENCE, help="why it could not be tried"),
        Column("gain", bound, help="the finding's upper bound"),
        absent="",
    )


def _name(trial: Trial, row: Tried) -> str:
    name = f"{row.arm.name} (per sample)" if row.per_sample else row.arm.name
    return f"together: {name}" if row is trial.together else name


def _expected(row: Tried) -> str | None:
    if row.arm.expected is not None:
        return _estimate(row.arm.expected.speedup, *row.arm.expected.speedup_range)
    return None if row.arm.promised_speedup is None else f"at most {numbers.factor(row.arm.promised_speedup)}"


def bound(row: NotTried) -> str | None:
    """The most that the finding said it gains; None if it has no gain."""
    return None if row.promised_speedup is None else f"at most {numbers.factor(row.promised_speedup)}"


def _measured(row: Tried) -> str | None:
    if row.speedup is None:
        return None
    if row.speedup_lower is None or row.speedup_upper is None:
        return numbers.factor(row.speedup)
    return _estimate(row.speedup, row.speedup_lower, row.speedup_upper)


def _estimate(speedup: float, lower: float, upper: float) -> str:
    """``1.94x (1.90 to 1.98)``."""
    return f"{numbers.factor(speedup)} ({' to '.join(numbers.factor(end).rstrip('x') for end in (lower, upper))})"


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
    """What the advice of a rule really gained, in words.

    Args:
        trial: The result.
        rule: Its id.

    Returns:
        ``1.94x (1.90 to 1.98) measured``, and what that means unless it is faster; empty where it was not tried or not
        measured.
    """
    row = next((one for one in trial.tried if rule in one.arm.rules), None)
    if row is None or row.speedup is None:
        return ""
    words = f"{_measured(row)} measured"
    return words if row.outcome == "faster" else f"{words}: {_WORDS[row.outcome]}"


def _workers(row: Tried) -> int:
    """That a change asks for: of settings that are as fast, the one with fewer is better."""
    found = [change.arguments.get("num_workers") for change in row.arm.changes]
    return max((count for count in found if isinstance(count, int)), default=0)


def is_undecided(trial: Trial) -> bool:
    """Whether something could still be worth it."""
    return any(row.outcome == "undecided" for row in trial.tried if not row.arm.ceiling)


def headline(trial: Trial) -> str:
    """The result in a sentence."""
    found, base = best(trial), trial.base_step_ms
    if base is None:
        return "Nothing was measured in this time: try longer, with --seconds."
    if found is None or found.step_ms is None or found.speedup is None:
        if is_undecided(trial):
            return "Nothing is clear yet: try longer, with --seconds."
        if not any(not row.arm.ceiling for row in trial.tried):
            return "The advice names no setting that can be tried."
        return "Nothing that was tried is faster."
    per = "for as many samples" if found.per_sample else "per step"
    return (
        f"{found.arm.name}: {numbers.factor(found.speedup)} faster, "
        f"{numbers.significant(base)} -> {numbers.significant(found.step_ms)} ms {per}."
    )
