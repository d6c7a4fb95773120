"""What a planted fault costs, known by running without it, beside what its finding says can be saved."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from truths.case import Case
from truths.fits import Fit
from truths.running import Job, JudgedFinding, RunOutcome, outcome_of


@dataclass(frozen=True, kw_only=True)
class Removal:
    """A run with a fault and one without it, in ms of wall time per step, whatever is between steps included."""

    case: str
    rule: str
    """That names the fault; empty: none has a gain."""
    with_ms: float
    without_ms: float
    promised_ms: float | None
    leaves: str = ""
    """What the finding says that its change leaves of the fault."""

    @property
    def cost_ms(self) -> float:
        """Of the fault."""
        return self.with_ms - self.without_ms

    @property
    def ratio(self) -> float | None:
        """Of the cost, what is promised."""
        return None if self.promised_ms is None or self.cost_ms <= 0 else self.promised_ms / self.cost_ms


def jobs(cases: Sequence[Case], repetition: int = 0) -> list[Job]:
    """One for each real fit with one fault: both runs, one after the other."""
    return [
        Job(name=case.name, do=functools.partial(remove, case, 1 + repetition))
        for case in cases
        if case.group == "fault" and isinstance(case.source, Fit)
    ]


def remove(case: Case, seed: int, folder: Path) -> Removal:
    """Run a case, then without its first fault, which is what the case is about; each in a fresh process."""
    fit = case.source
    assert isinstance(fit, Fit)
    told = outcome_of(fit, folder / "with", seed)
    without = outcome_of(replace(fit, faults=fit.faults[1:]), folder / "without", seed)
    found = _promised(case, told)
    return Removal(
        case=case.name,
        rule="" if found is None else found.rule,
        with_ms=told.run_ms_per_step,
        without_ms=without.run_ms_per_step,
        promised_ms=None if found is None else _promised_ms(found),
        leaves="" if found is None else found.leaves,
    )


def _promised(case: Case, told: RunOutcome) -> JudgedFinding | None:
    """The first finding that names the fault and has a gain."""
    names = case.expected[0] if case.expected else ()
    return next((one for one in told.findings if one.rule in names and one.saved_ms is not None), None)


def _promised_ms(finding: JudgedFinding) -> float | None:
    """As expected, or else at most."""
    likely = finding.expected
    return finding.saved_ms if likely is None else likely.whole_ms - likely.step_ms
