"""What a planted fault costs, known by running without it, beside what its finding says can be saved."""

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback

from truths.case import Case
from truths.fits import Fit
from truths.running import Job, JudgedFinding, RunOutcome, outcome_of
from truths.setup import Setup

MOST_PAIRS = 5
"""Of runs with and without a fault, until both were made at the same speed of the machine."""

SAME_SPEED = 1.1
"""Ratio of two speeds of the machine that count as the same: its neighbours change it by up to 1.7, every few
seconds."""

_EVERY_STEPS = 5
_ADDITIONS = 10_000


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
    speed_ratio: float
    """Time of the same additions in the run without the fault over that in the run with it."""

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
    """Run a case with its faults and without the first, which is what it is about; each in a fresh process.

    Of several such pairs the one whose runs met the most equal speeds of the machine counts.
    """
    pairs: list[Removal] = []
    while not pairs or (_unlike(pairs[-1]) > SAME_SPEED and len(pairs) < MOST_PAIRS):
        pair = folder / str(len(pairs))
        pair.mkdir()
        pairs.append(_pair(case, seed, pair))
    return min(pairs, key=_unlike)


def _unlike(pair: Removal) -> float:
    return max(pair.speed_ratio, 1 / pair.speed_ratio)


def _pair(case: Case, seed: int, folder: Path) -> Removal:
    fit = case.source
    assert isinstance(fit, Fit)
    yards = [folder / "yard_with", folder / "yard_without"]
    told = outcome_of(fit, folder / "with", seed, functools.partial(_measure_speed, yards[0]))
    healthy = replace(fit, faults=fit.faults[1:])
    without = outcome_of(healthy, folder / "without", seed, functools.partial(_measure_speed, yards[1]))
    found = _promised(case, told)
    with_ms, without_ms = (float(yard.read_text(encoding="utf-8")) for yard in yards)
    return Removal(
        case=case.name,
        rule="" if found is None else found.rule,
        with_ms=told.run_ms_per_step,
        without_ms=without.run_ms_per_step,
        promised_ms=None if found is None else _promised_ms(found),
        leaves="" if found is None else found.leaves,
        speed_ratio=without_ms / with_ms,
    )


def _measure_speed(result: Path, setup: Setup) -> None:
    setup.callbacks.append(_Yardstick(result))


class _Yardstick(Callback):
    """Times the same additions now and then, by the CPU time of the thread, and writes the mean in ms to a file."""

    def __init__(self, result: Path) -> None:
        self.result = result
        self.times_ns: list[int] = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx % _EVERY_STEPS:
            return
        begin_ns, total = time.thread_time_ns(), 0
        for number in range(_ADDITIONS):
            total += number
        self.times_ns.append(time.thread_time_ns() - begin_ns)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.result.write_text(str(sum(self.times_ns) / len(self.times_ns) / 1e6), encoding="utf-8")


def _promised(case: Case, told: RunOutcome) -> JudgedFinding | None:
    """The first finding that names the fault and has a gain."""
    names = case.expected[0] if case.expected else ()
    return next((one for one in told.findings if one.rule in names and one.saved_ms is not None), None)


def _promised_ms(finding: JudgedFinding) -> float | None:
    """As expected, or else at most."""
    likely = finding.expected
    return finding.saved_ms if likely is None else likely.whole_ms - likely.step_ms
