"""The advice of a finding, applied to the fit exactly as it says, and what that brought."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lightning.pytorch.callbacks import ModelCheckpoint

from truths.case import Case
from truths.fits import Fit
from truths.running import Job, Named, Said, said
from truths.setup import Setup

Measure = Literal["median step", "mean step", "run"]


class NoCureError(Exception):
    """The advice has no value that could be applied."""


@dataclass(frozen=True, kw_only=True)
class Cure:
    """How the advice of some rules is applied.

    Attributes:
        rules: Whose advice it is.
        pattern: Finds the value in it.
        apply: Changes the fit.
        measure: In which time the effect shows.
    """

    rules: tuple[str, ...]
    pattern: str
    apply: Callable[[Setup, re.Match[str]], None]
    measure: Measure = "median step"


def _workers(setup: Setup, value: re.Match[str]) -> None:
    setup.loader |= {"num_workers": int(value[1]), "persistent_workers": True}


def _stay_alive(setup: Setup, value: re.Match[str]) -> None:
    setup.loader["persistent_workers"] = True


def _callback_less_often(setup: Setup, value: re.Match[str]) -> None:
    setup.costs["callback"].every = int(value[1])


def _log_less_often(setup: Setup, value: re.Match[str]) -> None:
    setup.trainer["log_every_n_steps"] = int(value[1])


def _validate_less_often(setup: Setup, value: re.Match[str]) -> None:
    name, number = value[1], value[2]
    setup.trainer[name] = float(number) if "." in number else int(number)


def _save_less_often(setup: Setup, value: re.Match[str]) -> None:
    setup.callbacks = [c for c in setup.callbacks if not isinstance(c, ModelCheckpoint)]
    setup.callbacks.append(
        ModelCheckpoint(every_n_train_steps=int(value[1]), save_top_k=1, dirpath=Path(setup.folder) / "checkpoints")
    )


def _out_of_the_step(setup: Setup, value: re.Match[str]) -> None:
    setup.costs["step"].ms = 0.0


CURES: Mapping[str, Cure] = {
    "workers": Cure(rules=("single-process-loading", "too-few-workers"), pattern=r"num_workers=(\d+)", apply=_workers),
    "workers of bursts": Cure(  # which the median step does not show
        rules=("too-few-workers",), pattern=r"num_workers=(\d+)", apply=_workers, measure="mean step"
    ),
    "persistent workers": Cure(
        rules=("worker-startup",), pattern=r"persistent_workers=True", apply=_stay_alive, measure="run"
    ),
    "callback": Cure(rules=("callback-slow",), pattern=r"every (\d+) batches", apply=_callback_less_often),
    "logging": Cure(
        rules=("logging-overhead",),
        pattern=r"log_every_n_steps=(\d+)",
        apply=_log_less_often,
        measure="mean step",
    ),
    "validation": Cure(
        rules=("validation-stall",),
        pattern=r"Trainer\(\.\.\., (check_val_every_n_epoch|limit_val_batches|val_check_interval)=([\d.]+)",
        apply=_validate_less_often,
        measure="run",
    ),
    "checkpoint": Cure(
        rules=("checkpoint-stall",), pattern=r"every_n_train_steps=(\d+)", apply=_save_less_often, measure="run"
    ),
    "step": Cure(rules=("blocked-in-step",), pattern=r"[Mm]ove", apply=_out_of_the_step),
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
        Job(name=case.name, do=functools.partial(take_advice, case, 1 + repetition))
        for case in cases
        if case.cure and isinstance(case.source, Fit)
    ]


def take_advice(case: Case, seed: int, folder: Path) -> Effect:
    """Run a case, do what the report says, run it again; in a process of its own.

    Raises:
        NoCureError: No finding of the expected rule, or its advice has no value to apply.
    """
    cure = CURES[case.cure]
    fit = case.source
    assert isinstance(fit, Fit)
    before = said(fit(_made(folder / "before"), seed))
    finding, value = advised(cure, before)
    after = said(fit(_made(folder / "after"), seed, change=lambda setup: cure.apply(setup, value)))
    return Effect(
        case=case.name,
        rule=finding.rule,
        advice=finding.advice,
        measure=cure.measure,
        before_ms=_time_ms(before, cure.measure),
        after_ms=_time_ms(after, cure.measure),
        bound_ms=finding.saved_ms or 0.0,
        cpu_busy_ratio=after.cpu_busy_ratio,
        still=any(f.rule == finding.rule and f.severity != "info" for f in after.findings),
    )


def advised(cure: Cure, told: Said) -> tuple[Named, re.Match[str]]:
    """The first finding of the cure's rules that has a gain, and what its advice says to set.

    Raises:
        NoCureError: There is none, or its advice has no such value.
    """
    for finding in told.findings:
        if finding.rule in cure.rules and finding.saved_ms is not None:
            value = re.search(cure.pattern, finding.advice)
            if value is None:
                raise NoCureError(f"{finding.rule} advises nothing to apply: {finding.advice}")
            return finding, value
    raise NoCureError(f"none of {', '.join(cure.rules)} is among the findings")


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _time_ms(told: Said, measure: Measure) -> float:
    value = {
        "median step": told.period_ms,
        "mean step": told.period_mean_ms,
        "run": told.run_ms_per_step,
    }[measure]
    if value is None:
        raise NoCureError(f"the {measure} was not measured")
    return value
