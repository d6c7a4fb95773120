"""The advice of a finding, applied to the fit exactly as it says, and what that brought."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.finding import Expected
from truths.case import Case
from truths.fits import Fit
from truths.running import Job, JudgedFinding, RunOutcome, each_in_slices, outcome_of, paired
from truths.setup import Setup

Measure = Literal["step", "run"]
RUN_PAIRS = 3
"""Of whole runs, where the effect is not in the steps."""


class NoCureError(Exception):
    """The advice has no value that could be applied."""


@dataclass(frozen=True, kw_only=True)
class Cure:
    """How the advice of some rules is applied.

    Attributes:
        rules: Whose advice it is.
        apply: Changes the fit; default: as the finding's change says.
        measure: In which time the effect shows.
    """

    rules: tuple[str, ...]
    apply: Callable[[Setup, Change], None] | None = None
    measure: Measure = "step"


def as_advised(setup: Setup, change: Change) -> None:
    """The arguments of a change, in the call that it names.

    Raises:
        NoCureError: It names a call that a fit here does not make.
    """
    if change.call == "DataLoader":
        setup.loader |= change.arguments
    elif change.call == "Trainer":
        setup.trainer |= change.arguments
    elif change.call == "ModelCheckpoint":
        setup.callbacks = [c for c in setup.callbacks if not isinstance(c, ModelCheckpoint)]
        folder = Path(setup.folder) / "checkpoints"
        arguments: dict[str, Any] = dict(change.arguments)
        setup.callbacks.append(ModelCheckpoint(**arguments, save_top_k=1, dirpath=folder))
    else:
        raise NoCureError(f"nothing here calls {change.call or change.add}")


def _callback_less_often(setup: Setup, change: Change) -> None:
    every = re.search(r"% (\d+): return", "".join(change.add))
    if every is None:
        raise NoCureError(f"no number of batches in {change.add}")
    setup.costs["callback"].every = int(every[1])


def _out_of_the_step(setup: Setup, change: Change) -> None:
    setup.costs["step"].ms = 0.0


CURES: Mapping[str, Cure] = {
    "workers": Cure(rules=("single-process-loading", "too-few-workers")),
    "workers of bursts": Cure(rules=("too-few-workers",)),
    "queue": Cure(rules=("input-jitter",)),
    "persistent workers": Cure(rules=("worker-startup",), measure="run"),
    "callback": Cure(rules=("callback-slow",), apply=_callback_less_often),
    "logging": Cure(rules=("logging-overhead", "step-outliers")),
    "validation": Cure(rules=("validation-stall",), measure="run"),
    "checkpoint": Cure(rules=("checkpoint-stall",), measure="run"),
    "step": Cure(rules=("blocked-in-step",), apply=_out_of_the_step),
}


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What the advice of a case brought."""

    case: str
    rule: str
    advice: str
    measure: Measure
    before_ms: float
    after_ms: float
    bound_ms: float
    """The gain that the finding promises at most."""
    unsure: float
    """Standard error of the ratio of both times, 0.01 for 1 %."""
    expected: Expected | None
    """What the finding expects."""
    cpu_busy_ratio: float | None
    still: bool
    """Whether the same rule speaks again, as a warning or worse."""

    @property
    def achieved_ms(self) -> float:
        """What a step became shorter by."""
        return self.before_ms - self.after_ms


def jobs(cases: Sequence[Case], repetition: int = 0) -> list[Job]:
    """One for each case with a cure: both runs, one after the other."""
    return [
        Job(name=case.name, do=functools.partial(take_advice, case, 1 + repetition), kind=case.cure)
        for case in cases
        if case.cure and isinstance(case.source, Fit)
    ]


def take_advice(case: Case, seed: int, folder: Path) -> Effect:
    """Run a case, do what the report says, run it again; each in a fresh process.

    The time of a step is measured in slices of both, that of a run in pairs of whole runs.

    Raises:
        NoCureError: No finding of the expected rule, or nothing that could be applied.
    """
    cure = CURES[case.cure]
    fit = case.source
    assert isinstance(fit, Fit)
    before = outcome_of(fit, folder / "before", seed)
    finding = advised(cure, before)
    change, apply = finding.change or Change(), cure.apply or as_advised
    longer = fit.longer(change.arguments.get("num_workers"))

    def do(setup: Setup) -> None:
        apply(setup, change)

    after = outcome_of(longer, folder / "after", seed, do)
    if cure.measure == "run":
        pairs = [(before, after)]
        for pair in range(1, RUN_PAIRS):
            again = outcome_of(fit, folder / f"before {pair}", seed)
            pairs.append((again, outcome_of(longer, folder / f"after {pair}", seed, do)))
        times = [(one.run_ms_per_step, other.run_ms_per_step) for one, other in pairs]
    else:
        step_s, has_workers = (before.period_mean_ms or 0.0) / 1e3, change.call == "DataLoader"
        slices = each_in_slices(fit, (None, do), folder / "slices", seed, step_s=step_s, has_workers=has_workers)
        times = list(zip(*slices, strict=True))
    achieved = paired(*zip(*times, strict=True))
    return Effect(
        case=case.name,
        rule=finding.rule,
        advice=finding.advice,
        measure=cure.measure,
        before_ms=achieved.before_ms,
        after_ms=achieved.after_ms,
        unsure=achieved.unsure,
        bound_ms=finding.most_saved_ms or 0.0,
        expected=finding.expected,
        cpu_busy_ratio=after.cpu_busy_ratio,
        still=any(f.rule == finding.rule and f.severity != "info" for f in after.findings),
    )


def advised(cure: Cure, told: RunOutcome) -> JudgedFinding:
    """The first finding of the cure's rules that has a gain and, where the cure applies it, a change.

    Raises:
        NoCureError: There is none.
    """
    for finding in told.findings:
        if finding.rule in cure.rules and finding.saved_ms is not None:
            if cure.apply is None and finding.change is None:
                raise NoCureError(f"{finding.rule} advises nothing to apply: {finding.advice}")
            return finding
    raise NoCureError(f"none of {', '.join(cure.rules)} is among the findings")
