"""Planted against found: the naps of a case and of its twin without naps go in, lines and complaints come out.

A case is run twice: first as a twin whose places are all there but take no naps, then with them. The sleeps are timed
where they are, so that what is compared is exact on a busy machine too. What is found in a phase, a part of the wall
time or a row of callbacks must be at least what was slept there, and at most :data:`TOLERANCE` more, on top of the
loop's own time. That is bounded by :data:`COLD` times what the twin has there, plus a slack. In all other places there
may be, on top of their own time, at most that share of all that was slept.
"""

import tempfile
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

from lightning_gpuprof.model.phases import STEP_PARTS
from lightning_gpuprof.model.report import Report
from planted_loops.case import Case
from planted_loops.naps import Naps
from planted_loops.places import place_of
from planted_loops.run import Measured, Run

TOLERANCE = 0.05
COLD = 2.0
"""The same code takes so much longer after a sleep than in a busy loop, because caches are cold (1.3 to 2.6 times)."""
SLACK_S = 0.004
"""What the loop's own time may differ besides between two runs, in one place: a preemption or two."""
SLACK_AROUND_S = 0.03
"""The same in set-up and teardown, where files are written and threads started."""
UNEXPLAINED = 0.01
"""Share of the wall time."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One place of a report: seconds that were planted there, found there, and that the twin has there.

    Attributes:
        case: Name of the case, with a number where it has several fits.
        where: ``phase forward``, ``part setup``, ``ledger validation forward`` or ``row Callback.hook``.
        planted_s: What was slept.
        found_s: What the report has.
        twin_s: What the report of the run without naps has.
        ok: Whether that fits.
    """

    case: str
    where: str
    planted_s: float
    found_s: float
    twin_s: float
    ok: bool


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A case as it went: all places, and what is wrong in words."""

    case: str
    lines: tuple[Line, ...]
    problems: tuple[str, ...]


def run_case(case: Case, *, scale: float = 1.0, cold: float = COLD, alone: bool = False) -> Outcome:
    """Run a case and its twin.

    Args:
        case: What to run.
        scale: All naps are longer by this factor.
        cold: Multiple of what the twin has in a place that may be found there besides what was slept.
        alone: Nothing is allowed for what others take of the CPUs.
    """
    twin = _run(case, Naps(case.naps, awake=True))
    fits = _run(case, Naps({place: seconds * scale for place, seconds in case.naps.items()}))
    lines: list[Line] = []
    problems: list[str] = []
    if len(fits) != len(twin):
        problems.append(f"{len(fits)} fits, {len(twin)} in the twin")
    slept = {place for fit in fits for place in fit.slept_s}
    # A place may be called otherwise where it was slept in, as `sanity val_dataset`.
    silent = [place for place in case.naps if not any(name.endswith(place.rpartition(".")[2]) for name in slept)]
    problems += [f"nothing was slept in {place}" for place in silent]
    for number, (fit, bare) in enumerate(zip(fits, twin, strict=False), start=1):
        name = case.name if len(fits) == 1 else f"{case.name} #{number}"
        compared = compare(name, replace(fit, lost_s=0.0) if alone else fit, bare, case, cold)
        lines += compared
        problems += [_complaint(line) for line in compared if not line.ok]
        problems += [f"{name}: {problem}" for problem in (*disagreements(fit), *_miscounts(fit))]
    return Outcome(case=case.name, lines=tuple(lines), problems=tuple(problems))


def _run(case: Case, naps: Naps) -> list[Measured]:
    with tempfile.TemporaryDirectory(prefix="accounting-") as folder:
        run = Run(Path(folder), naps)
        case.do(run)
        return run.measured


def compare(label: str, fit: Measured, twin: Measured, case: Case, cold: float = COLD) -> list[Line]:
    """All phases, parts and kinds of ledger rows, and the rows of callbacks in which something was planted."""
    planted: dict[str, float] = defaultdict(float)
    least: dict[str, float] = defaultdict(lambda: 0.999)
    for name, seconds in fit.slept_s.items():
        place = case.places.get(name) or place_of(name)
        where = [f"part {place.part}", f"ledger {place.part} {place.own}"]
        where += [f"phase {place.phase}"] if place.phase else []
        where += [f"row {place.row}"] if place.row else []
        for key in where:
            planted[key] += seconds
            if name in case.approximate:
                least[key] = 1 - TOLERANCE
    slept_s = sum(fit.slept_s.values())
    found, bare = totals(fit.report), totals(twin.report)
    lines = []
    for key in {**found, **planted}:
        not_compared = key.startswith("row ") or (case.varies and key.split()[1] == case.varies)
        if not_compared and key not in planted:
            continue
        planted_s, found_s, twin_s = planted.get(key, 0.0), found.get(key, 0.0), bare.get(key, 0.0)
        around = "setup" in key or "teardown" in key
        own_s = cold * twin_s + (SLACK_AROUND_S if around else SLACK_S) + fit.lost_s
        # A worker sleeps on while others have the CPU of who waits for it.
        hidden_s = fit.lost_s if least[key] < 0.999 else 0.0
        ok = least[key] * planted_s - hidden_s <= found_s <= planted_s + TOLERANCE * (planted_s or slept_s) + own_s
        lines.append(Line(case=label, where=key, planted_s=planted_s, found_s=found_s, twin_s=twin_s, ok=ok))
    return lines


def totals(report: Report) -> dict[str, float]:
    """Seconds by place of a report."""
    found: dict[str, float] = defaultdict(float)
    found |= {f"phase {row.phase}": row.total_s for row in report.phases}
    found |= {f"part {part}": seconds for part, seconds in report.wall.parts.items()}
    for row in report.callbacks:
        found[f"row {row.name}.{row.hook}"] += row.total_s
    for entry in report.ledger:
        if entry.phase is not None:
            found[f"ledger {entry.part} {entry.phase}"] += entry.total_s
    return found


def disagreements(fit: Measured) -> list[str]:
    """Sums of a report that do not hold."""
    problems = []
    report, wall = fit.report, fit.report.wall
    if abs(sum(wall.parts.values()) - wall.total_s) > 1e-6 * wall.total_s:
        problems.append(f"the parts sum to {sum(wall.parts.values()):.6f} s, the wall time is {wall.total_s:.6f} s")
    if abs(sum(row.total_s for row in report.ledger) - wall.total_s) > 1e-6 * wall.total_s:
        problems.append(
            f"the ledger sums to {sum(row.total_s for row in report.ledger):.6f} s, not {wall.total_s:.6f} s"
        )
    accounted = abs(wall.parts["unexplained"]) <= UNEXPLAINED * wall.total_s + fit.lost_s
    if not accounted:
        problems.append(f"{wall.parts['unexplained'] / wall.total_s:.2%} of the wall time is unexplained")
    in_steps_s = sum(row.total_s for row in report.phases if row.phase not in ("validation", "checkpoint"))
    steps_s = wall.parts[next(part for stage, part in STEP_PARTS.items() if stage == report.run["stage"])]
    if abs(in_steps_s - steps_s) > 1e-6 * wall.total_s:
        problems.append(f"the phases of the steps sum to {in_steps_s:.6f} s, their part of the wall is {steps_s:.6f} s")
    if report.steps.count and abs(sum(row.share for row in report.phases) - 1) > 1e-6:
        problems.append("the shares of the phases do not sum to 1")
    # These runs are as short as can be, which the report remarks; and what a busy machine took it must remark.
    by_others = ["are unaccounted for", "the main thread waited for a CPU"]
    expected = ["steady steps", *(by_others if accounted and fit.lost_s else [])]
    caveats = [caveat for caveat in report.validity.caveats if not any(words in caveat for words in expected)]
    return [*problems, *(f"the report has a caveat: {caveat}" for caveat in caveats)]


def _miscounts(fit: Measured) -> list[str]:
    steps = fit.report.steps
    problems = []
    if fit.steps is not None and steps.count != fit.steps:
        problems.append(f"{steps.count} steps were found, there were {fit.steps}")
    if fit.optimizer_steps is not None and steps.optimizer_steps != fit.optimizer_steps:
        problems.append(f"{steps.optimizer_steps} optimizer steps were found, there were {fit.optimizer_steps}")
    return problems


def _complaint(line: Line) -> str:
    return (
        f"{line.case}: {line.where}: {line.planted_s * 1e3:.1f} ms were planted, {line.found_s * 1e3:.1f} ms found"
        f" ({line.twin_s * 1e3:.1f} ms in the twin)"
    )
