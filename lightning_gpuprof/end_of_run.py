"""What a stage ends with: report, files, terminal and comparison, and before that what the loggers are given."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from lightning_gpuprof.analyze import metrics
from lightning_gpuprof.analyze.comparison.uncertainty import step_times
from lightning_gpuprof.analyze.journal import Journal, read_journal
from lightning_gpuprof.capture.fence import logger_part
from lightning_gpuprof.errors import GpuProfError, ReportError
from lightning_gpuprof.job_ranks import await_ranks
from lightning_gpuprof.model.comparison import THIS_RUN, Comparison
from lightning_gpuprof.model.config import OWN_KINDS, HostConfig, ReportKind
from lightning_gpuprof.model.journal import Notice
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.pipeline import Run, compare_runs, load_run, report_of, write_reports
from lightning_gpuprof.rules import engine
from lightning_gpuprof.run_folder import basis, find_journal, metrics_of
from lightning_gpuprof.sinks import brief
from lightning_gpuprof.sinks.discovery import sinks
from lightning_gpuprof.sinks.status_line import progress


@dataclass(frozen=True, kw_only=True)
class Logged:
    """What the loggers were given, and what it rests on."""

    metrics: Metrics
    diagnosis: engine.Diagnosis
    basis: tuple[object, ...]
    """As of :func:`~lightning_gpuprof.run_folder.basis`."""
    to: str
    """Log folder of the first TensorBoard logger, or an empty string."""


def push_to_loggers(
    folder: Path,
    *,
    kinds: Sequence[ReportKind] | None,
    notices: Sequence[Notice],
    trainer_loggers: Sequence[object],
    step: int,
    fence: Callable[[str], AbstractContextManager[object]],
    late: Callable[[str], None],
    finished: bool,
    baseline: str | None = None,
    ranks_wait_s: float = HostConfig.ranks_wait_s,
) -> Logged:
    """Give the diagnosis, the final numbers and the files to the trainer's loggers, before Lightning ends them.

    What comes after (other callbacks' teardown, the loggers' own end) is in the final report only.

    Args:
        folder: Of the run; its journal must be written up to now.
        kinds: Which files are made, and so attached where a logger keeps files; None: what the run is worth.
        notices: That did not reach the journal.
        trainer_loggers: The trainer's loggers.
        step: Their last step.
        fence: A context around a part of the work, by the part's name; what the part raises ends there.
        late: Told when the loggers took longer than they are given.
        finished: The run came to its own end; one that did not gives no files.
        baseline: As of :func:`finish_run`, which compares again when the profiler's own time is known, and says what is
            wrong with it: Weights & Biases shows the comparison.
        ranks_wait_s: For other ranks, at most.

    Returns:
        For :func:`finish_run`, which adds the end to it.
    """
    from lightning_gpuprof.sinks import loggers  # not where there are none, loggers

    found = find_journal(folder)
    journal = read_journal(found)
    await_ranks(found, journal, ranks_wait_s)
    measured = metrics_of(journal, found, notices, in_training=True)
    diagnosis = engine.diagnose(measured)
    report = report_of(measured, diagnosis)
    comparison: Comparison | None = None
    if baseline is not None and finished and any(loggers.panel(logger) for logger in trainer_loggers):
        with fence("baseline"), suppress(GpuProfError):
            comparison = _with_baseline(baseline, report, journal)
    to = loggers.push(
        report,
        trainer_loggers,
        step,
        write_files=lambda target: _copies(report, target, _worth_making(report, kinds), folder),
        guard=lambda logger: fence(logger_part(logger)),
        late=late,
        finished=finished,
        folder=folder,
        comparison=comparison,
    )
    return Logged(metrics=measured, diagnosis=diagnosis, basis=basis(journal, found, notices), to=to)


def finish_run(
    folder: Path,
    *,
    kinds: Sequence[ReportKind] | None,
    baseline: str | None,
    notices: Sequence[Notice],
    logged: Logged | None = None,
    journal: Journal | None = None,
    ranks_wait_s: float = HostConfig.ranks_wait_s,
) -> Report:
    """What happens at the end of a stage: report, files, terminal, comparison with a baseline.

    Args:
        folder: Of the run.
        kinds: What to make; None: what the run is worth.
        baseline: An earlier run to compare with, or None; the comparison is written beside the report.
        notices: That did not reach the journal.
        logged: What :func:`push_to_loggers` gave, which the report has as well, unless something has changed since
            that a rule may read; None if there were no loggers.
        journal: Of the run, where it has been read.
        ranks_wait_s: For other ranks, at most.

    Returns:
        The report, also where a file or the comparison could not be made, which is printed.
    """
    begin_ns = time.perf_counter_ns()
    found = find_journal(folder)
    journal = journal or read_journal(found)
    if logged is None:  # else they were awaited then
        await_ranks(found, journal, ranks_wait_s)
    with progress("making the report"):
        if logged is not None and logged.basis == basis(journal, found, notices):
            report = report_of(metrics.with_end(logged.metrics, journal), logged.diagnosis)
        else:
            report = report_of(metrics_of(journal, found, notices, in_training=True))
    report.overhead["report_s"] = (time.perf_counter_ns() - begin_ns) / 1e9
    in_brief = kinds is None and brief.is_enough(report)
    kinds = _worth_making(report, kinds)
    where: dict[str, str] = {}
    problems: list[str] = []
    try:
        with progress("writing the report's files"):
            where |= write_reports(report, folder, kinds)
    except ReportError as error:
        problems.append(str(error))
    if logged_to := logged.to if logged is not None else "":
        # One folder above both, where the traces lie in another logger's.
        both = os.path.commonpath([os.path.abspath(logged_to), folder.resolve()])  # noqa: PTH100
        where["TensorBoard"] = f"tensorboard --logdir {logged_to if both == os.path.abspath(logged_to) else both}"  # noqa: PTH100
    comparison: Comparison | None = None
    if baseline is not None:
        try:
            comparison = _with_baseline(baseline, report, journal)
            for sink in sinks(kinds):
                where[f"comparison, {sink.label}"] = str(sink.write_comparison(comparison, folder))
        except GpuProfError as error:
            problems.append(f"baseline: {error}")
    if "terminal" in kinds:
        _print(report, folder, comparison, where, in_brief=in_brief)
    for problem in problems:
        print(f"gpuprof: {problem}", file=sys.stderr)
    return report


def _worth_making(report: Report, asked: Sequence[ReportKind] | None) -> Sequence[ReportKind]:
    """What was asked for; if nobody said, everything, but no page of a run too short to judge."""
    if asked is not None:
        return asked
    return tuple(kind for kind in OWN_KINDS if kind != "html" or not brief.is_enough(report))


def _copies(report: Report, target: Path, kinds: Sequence[ReportKind], folder: Path) -> dict[str, str]:
    """Write the files elsewhere than into the run's folder, which their commands name all the same."""
    written = write_reports(report, target, [kind for kind in kinds if kind != "html"])
    if "html" in kinds:
        from lightning_gpuprof.sinks import html

        html.write(report, target / html.FILE_NAME, folder)
        written["HTML"] = str(target / html.FILE_NAME)
    return written


def _with_baseline(baseline: str, report: Report, journal: Journal) -> Comparison:
    this = Run(report=report, times=step_times(journal))
    return compare_runs(load_run(Path(baseline).expanduser()), this, before_name=baseline, after_name=THIS_RUN)


def _print(
    report: Report, folder: Path, comparison: Comparison | None, where: Mapping[str, str], *, in_brief: bool
) -> None:
    if in_brief or not report.steps.count:
        brief.print_lines(report, folder)
    else:
        from lightning_gpuprof.sinks import terminal_screen

        terminal_screen.print_screen(report, folder, where=where)
    if comparison is not None:
        from lightning_gpuprof.sinks import comparison_text

        comparison_text.print_comparison(comparison)
