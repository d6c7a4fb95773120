"""From a case to what the diagnosis said, each run in a process of its own."""

import contextlib
import multiprocessing
import os
import random
import re
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from checked_screen import checked

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.finding import Expected
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.pipeline import load_report
from lightning_gpuprof.sinks.first_screen import first_screen
from truths.fits import Fit
from truths.setup import Setup

TIMEOUT_S = 180
SLICES_S = 30.0
"""Of all slices of two runs."""
SLICE_S = 0.1, 1.0
"""Of a slice, and of one with workers: what they sleep goes on while they are stopped, and is a hundredth of it."""
SLICE_STEPS = 10
"""In a slice at least."""
TRIMMED = 0.2
"""Of the pairs of slices at either end."""
ENDLESS = 50_000
"""Steps that no slices use up."""
_POLL_S = 0.02
_WARM_UP_S = 2.5

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class JudgedFinding:
    """A finding, as far as it is judged here."""

    rule: str
    severity: str
    subject: str
    advice: str
    saved_ms: float | None
    """Bound of the gain; None: the finding has none."""
    most_saved_ms: float | None = None
    """The same as people are shown it: more where the rest of the step is expected to speed up as well."""
    change: Change | None = None
    """The advice as data."""
    expected: Expected | None = None
    """What it is expected to bring."""
    leaves: str = ""
    """What its change leaves of the fault."""


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """What the report of a run says."""

    verdict: str
    verdict_words: str
    findings: tuple[JudgedFinding, ...]
    leads: str
    """Rule and subject of what the first screen is about; empty: nothing."""
    reliability: str
    not_evaluated: dict[str, str]
    period_ms: float | None
    period_mean_ms: float | None
    """Of the last half of the steps: batches that were made while the run started are used up by then."""
    steady_steps: int
    phases_ms: dict[str, float]
    """Median of each phase in steady steps."""
    run_ms_per_step: float
    """Wall time without setup and teardown, spread over the steps."""
    cpu_busy_ratio: float | None
    """Of all CPUs of the machine, by this run and others."""
    run_delay_ratio: float | None
    """Time in which the main thread was ready to run but had no CPU: how disturbed the run was."""


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """One run of one job."""

    name: str
    seconds: float
    told: Any
    """What the job returned; None if it failed."""
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Something to do in a process of its own; ``do`` is given a folder for its files."""

    name: str
    do: Callable[[Path], Any]
    kind: str = ""
    """Jobs of one kind are about the same thing."""
    limit_s: float = TIMEOUT_S
    """Longest time that it may take."""


def read_outcome(path: Path) -> RunOutcome:
    """Read a report, which has to be one that can be trusted."""
    report = checked(load_report(path.parent))
    screen = first_screen(report)
    first = report.findings[0] if screen.severity is not None else None
    return RunOutcome(
        verdict=report.verdict.kind,
        verdict_words=report.verdict.summary,
        findings=tuple(
            JudgedFinding(
                rule=f.rule,
                severity=f.severity,
                subject=f.subject,
                advice=f.advice,
                change=f.change,
                expected=f.expected,
                leaves=f.leaves,
                saved_ms=None if f.gain is None else f.gain.saved_ms_per_step,
                most_saved_ms=None if f.gain is None else f.most_saved_ms,
            )
            for f in report.findings
        ),
        leads="" if first is None else f"{first.rule}: {first.subject}",
        reliability=screen.reliability.kind,
        not_evaluated={n.rule: n.why for n in report.not_evaluated},
        period_ms=None if report.steps.period_ms is None else report.steps.period_ms.median,
        period_mean_ms=_last_half_ms(path.parent),
        steady_steps=report.steps.steady_count,
        phases_ms={row.phase: row.median_ms for row in report.phases if row.median_ms is not None},
        run_ms_per_step=_run_ms_per_step(report),
        cpu_busy_ratio=_busy(report),
        run_delay_ratio=_delay(report),
    )


def in_turn(jobs: Sequence[Job]) -> list[Job]:
    """One job of each kind first, then the others, all kinds evenly spread: wherever it is cut, all are covered."""
    sizes, seen = Counter(job.kind for job in jobs), Counter[str]()
    places = []
    for job in jobs:
        place = seen[job.kind]
        seen[job.kind] += 1
        places.append((place > 0, (place + 0.5) / sizes[job.kind] if place else 0.0))
    return [jobs[index] for index in sorted(range(len(jobs)), key=places.__getitem__)]


def _last_half_ms(folder: Path) -> float | None:
    found = folder / "rank0.jsonl"
    if not found.is_file():
        return None
    periods_ns = read_journal(found).steps.period_ns
    return float(periods_ns[len(periods_ns) // 2 :].mean()) / 1e6 if len(periods_ns) else None


def _run_ms_per_step(report: Report) -> float:
    parts = report.wall.parts
    inside_s = report.wall.total_s - parts.get("setup", 0.0) - parts.get("teardown", 0.0)
    return inside_s * 1e3 / max(1, report.steps.count)


def _busy(report: Report) -> float | None:
    machine = report.host.machine
    return machine.cpu_busy_ratio.mean if machine is not None and machine.cpu_busy_ratio is not None else None


def _delay(report: Report) -> float | None:
    process = report.host.process
    return process.run_delay_ratio.mean if process is not None and process.run_delay_ratio is not None else None


def run_all(jobs: Sequence[Job], *, at_once: int = 1, keep: Path | None = None) -> Iterator[JobResult]:
    """Run jobs in forked processes, so that torch and Lightning are imported once; results come as they are done.

    This process must not have computed with torch: its threads would not survive the fork.

    Args:
        jobs: What to do.
        at_once: Processes at the same time.
        keep: Where a folder with the files of each job stays; default: none does.
    """
    waiting = list(reversed(jobs))
    running: list[_Running] = []
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(_Running(waiting.pop(), keep))
            for one in list(running):
                done = one.poll()
                if done is not None:
                    running.remove(one)
                    yield done
            time.sleep(_POLL_S)
    finally:
        for one in running:
            one.kill()


class _Running:
    def __init__(self, job: Job, keep: Path | None) -> None:
        self.job = job
        self.begin_s = time.perf_counter()
        context = multiprocessing.get_context("fork")
        self.receiver, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(job, sender, keep))
        self.process.start()
        sender.close()

    def poll(self) -> JobResult | None:
        seconds = time.perf_counter() - self.begin_s
        if self.receiver.poll():
            try:
                told, error = self.receiver.recv()
            except EOFError:
                told, error = None, "the process died"
        elif seconds > self.job.limit_s:
            self.kill()
            told, error = None, f"not done after {self.job.limit_s:g} s"
        else:
            return None
        self.process.join()
        return JobResult(name=self.job.name, seconds=seconds, told=told, error=error)

    def kill(self) -> None:
        """End it and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.kill()  # it may not have its group yet


def in_own_process(do: Callable[[], Result]) -> Result:
    """Do something in a forked process: whatever ran before leaves no caches, no heap and no threads to it.

    Like :func:`run_all`, for a process that has not computed with torch.

    Args:
        do: Its result can be pickled.

    Raises:
        RuntimeError: It failed, or its process died.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_result, args=(do, sender))
    process.start()
    sender.close()
    try:
        told, error = receiver.recv()
    except EOFError:
        told, error = None, "the process died"
    process.join()
    if error:
        raise RuntimeError(error)
    return told  # type: ignore[no-any-return]


def outcome_of(
    fit: Callable[..., Path], folder: Path, seed: int, change: Callable[[Any], None] | None = None
) -> RunOutcome:
    """Run a fit in a process of its own and read its report.

    Args:
        fit: Trains; takes folder, seed and change, gives its report.
        folder: For its files; made here.
        seed: Of the fit.
        change: Applied to the fit before it runs.
    """
    folder.mkdir()
    return read_outcome(in_own_process(lambda: fit(folder, seed, change)))


@dataclass(frozen=True, kw_only=True)
class Achieved:
    """What a change really brought, in ms of the mean step."""

    before_ms: float
    after_ms: float
    unsure: float
    """Standard error of the ratio of both, 0.01 for 1 %: what is less off is not known to be off."""


def ratio_of(before_ms: Sequence[float], after_ms: Sequence[float]) -> tuple[float, float]:
    """Time after over time before in neighbouring pairs: the geometric mean without the outer fifths, and its error.

    Steps of 3 ms that take 45 once are a tenth of the time on a shared machine. They are in few slices: without the
    outer fifths two equal runs differed by 1.8 % (standard error, Tukey and McLaughlin 1963) instead of 3.8 %.
    """
    ratios = np.sort(np.log(np.divide(after_ms, before_ms)))
    cut = int(TRIMMED * len(ratios))
    kept = ratios[cut : len(ratios) - cut]
    spread = np.clip(ratios, kept[0], kept[-1]).std(ddof=1) / (1 - 2 * TRIMMED * (cut > 0))
    return float(np.exp(kept.mean())), float(spread / np.sqrt(len(ratios)))


def paired(before_ms: Sequence[float], after_ms: Sequence[float]) -> Achieved:
    """What neighbouring pairs of measurements say.

    Args:
        before_ms: Without the change.
        after_ms: With it.
    """
    ratio, unsure = ratio_of(before_ms, after_ms)
    mean_ms = float(np.mean(before_ms))
    return Achieved(before_ms=mean_ms, after_ms=mean_ms * ratio, unsure=unsure)


def each_in_slices(
    fit: Fit,
    changes: Sequence[Callable[[Setup], None] | None],
    folder: Path,
    seed: int,
    *,
    step_s: float,
    has_workers: bool,
    seconds: float = SLICES_S,
) -> list[list[float]]:
    """Mean steps in ms of a fit with each of some changes, in neighbouring slices.

    Args:
        fit: Trains; for longer than it would by itself.
        changes: One for each of the runs; None: as it is.
        folder: For its files; made here.
        seed: Of the fit, and of the order.
        step_s: About what a step takes, in s.
        has_workers: Whether a change is about them.
        seconds: For all slices.
    """
    endless = replace(fit, steps=ENDLESS)
    runs = [lambda own, change=change: endless.run(own, seed, change) for change in changes]
    slice_s = max(SLICE_S[has_workers], SLICE_STEPS * step_s)
    return in_slices(runs, folder, slice_s=slice_s, seconds=seconds, seed=seed)


def in_slices(
    runs: Sequence[Callable[[Path], Any]], folder: Path, *, slice_s: float, seconds: float, seed: int
) -> list[list[float]]:
    """Run fits in processes of their own, all but one stopped at any time: a slow moment meets all of them.

    Two whole runs of equal fits differ by up to a fifth on a machine that others use, too; slices of a tenth of a
    second in turn differ by one or two hundredths after ten seconds.

    Args:
        runs: Each trains with the profiler below the folder that it is given, for longer than all slices take.
        folder: For their files; made here.
        slice_s: Seconds in which one of them runs; several steps long.
        seconds: For all slices.
        seed: Of the order.

    Returns:
        For each run the mean step of its slices in ms, in pairs of neighbours.

    Raises:
        RuntimeError: A run ended before that, or half of the slices were too short for a step.
    """
    folders = [folder / str(number) for number in range(len(runs))]
    context = multiprocessing.get_context("fork")
    processes = []
    for run, own in zip(runs, folders, strict=True):
        own.mkdir(parents=True)
        processes.append(context.Process(target=_alone_in_group, args=(run, own)))
    slices: list[tuple[int, int, int]] = []
    order = random.Random(seed)
    try:
        for process in processes:
            process.start()
            time.sleep(_WARM_UP_S)
            os.killpg(process.pid or 0, signal.SIGSTOP)
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            for number in order.sample(range(len(runs)), len(runs)):
                begin_ns = time.perf_counter_ns()
                os.killpg(processes[number].pid or 0, signal.SIGCONT)
                time.sleep(slice_s)
                os.killpg(processes[number].pid or 0, signal.SIGSTOP)
                slices.append((number, begin_ns, time.perf_counter_ns()))
        for process in processes:  # the journal is behind by a second
            os.killpg(process.pid or 0, signal.SIGCONT)
            time.sleep(_WARM_UP_S)
            if process.exitcode is not None:
                raise RuntimeError("a run was shorter than its slices")
            os.killpg(process.pid or 0, signal.SIGSTOP)
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid or 0, signal.SIGKILL)
            process.join()
    found: list[list[float | None]] = [[] for _ in runs]
    steps = [read_journal(next(own.rglob("rank0.jsonl"))).steps for own in folders]
    for number, begin_ns, end_ns in slices:
        starts, periods = steps[number].start_ns, steps[number].period_ns
        whole = (starts > begin_ns) & (starts + periods < end_ns)
        found[number].append(float(periods[whole].mean()) / 1e6 if whole.any() else None)
    return complete(found)


def complete(found: Sequence[Sequence[float | None]]) -> list[list[float]]:
    """Rounds in which each run has a step; on a busy machine the first come late, and the last are not in the journal.

    Args:
        found: For each run the mean step of its slices, None where a slice holds no whole step.

    Raises:
        RuntimeError: These are fewer than half.
    """
    rounds = list(zip(*found, strict=True))
    kept = [one for one in rounds if None not in one]
    if 2 * len(kept) < len(rounds):
        raise RuntimeError(f"{len(rounds) - len(kept)} of {len(rounds)} rounds of slices hold no whole step of a run")
    return [[step for step in own if step is not None] for own in zip(*kept, strict=True)]


def _alone_in_group(do: Callable[[Path], Any], folder: Path) -> None:
    os.setpgrp()
    do(folder)


def _send_result(do: Callable[[], Any], sender: Any) -> None:
    told, error = None, ""
    try:
        told = do()
    except Exception:
        error = traceback.format_exc(limit=-4)
    with contextlib.suppress(BrokenPipeError):
        sender.send((told, error))
    sender.close()


def _work(job: Job, sender: Any, keep: Path | None) -> None:
    os.setpgrp()
    with contextlib.ExitStack() as stack:
        if keep is None:
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="truth-", ignore_cleanup_errors=True))
        else:
            name = tempfile.mkdtemp(prefix=re.sub(r"\W+", "-", job.name) + "-", dir=keep)
        folder = Path(name)
        with (folder / "output.txt").open("w") as output:
            for stream in (1, 2):
                os.dup2(output.fileno(), stream)
            _send_result(lambda: job.do(folder), sender)
