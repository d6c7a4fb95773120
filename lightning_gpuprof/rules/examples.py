"""Examples in a rule's own file: runs, and what the rule makes of them. Tests and the rule's page come from them.

A run is a healthy one in which keywords change something: those that ``example_run`` of ``tests/rules/example_runs.py``
takes. Nothing is run outside of the tests.
"""

from collections.abc import Mapping
from typing import Literal, cast, get_args

import msgspec

from lightning_gpuprof.model.finding import Severity

Outcome = Literal["fires", "quiet", "looks alike", "not evaluated", "not applicable"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One run and what a rule makes of it."""

    outcome: Outcome
    run: str
    """What is special about it, in words."""
    says: str = ""
    """Parts of summary and advice, with " ... " between them; of a rule that cannot judge, of the reason."""
    lacks: str = ""
    """What neither summary nor advice says."""
    saves_ms: float | None = None
    """The gain of a step at most, 0: it has none; None: not checked."""
    severity: Severity | None = None
    changes: Mapping[str, object]
    """Keywords of the healthy run that differ."""


def fires(run: str, severity: Severity, says: str, /, **changes: object) -> Example:
    """A run with the fault; ``lacks`` and ``saves_ms`` among the keywords are those of :class:`Example`.

    Args:
        run: What is special about the run, in words.
        severity: Severity of the expected finding.
        says: Parts of summary and advice, with " ... " between them.
        **changes: Keywords of the healthy run that differ.

    Returns:
        For ``examples`` of the rule; the rule has to find it.
    """
    lacks, saves_ms = str(changes.pop("lacks", "")), cast("float | None", changes.pop("saves_ms", None))
    return Example(
        outcome="fires", run=run, says=says, lacks=lacks, saves_ms=saves_ms, severity=severity, changes=changes
    )


def quiet(run: str, /, **changes: object) -> Example:
    """A run without the fault, or with too little of it."""
    return Example(outcome="quiet", run=run, changes=changes)


def looks_alike(run: str, /, **changes: object) -> Example:
    """A run that another cause makes look as if it had the fault."""
    return Example(outcome="looks alike", run=run, changes=changes)


def not_evaluated(run: str, says: str, /, **changes: object) -> Example:
    """A run of which a signal is missing.

    Args:
        run: What is special about the run, in words.
        says: Parts of the reason, with " ... " between them.
        **changes: Keywords of the healthy run that differ.

    Returns:
        For ``examples`` of the rule; the rule has to raise ``MissingSignal``.
    """
    return Example(outcome="not evaluated", run=run, says=says, changes=changes)


def not_applicable(run: str, says: str, /, **changes: object) -> Example:
    """A run that cannot have the fault.

    Args:
        run: What is special about the run, in words.
        says: Parts of the reason, with " ... " between them.
        **changes: Keywords of the healthy run that differ.

    Returns:
        For ``examples`` of the rule; the rule has to raise ``NotApplicable``.
    """
    return Example(outcome="not applicable", run=run, says=says, changes=changes)


def listed(examples: tuple[Example, ...]) -> str:
    """Examples in Markdown, as a section of the rule's page: the runs of each outcome."""
    lines = []
    for outcome in OUTCOMES:
        runs = dict.fromkeys(one.run for one in examples if one.outcome == outcome)
        if runs:
            lines.append(f"- {outcome.capitalize()}: {'; '.join(runs)}.")
    return "\n".join(["## Examples", "", *lines, ""])
