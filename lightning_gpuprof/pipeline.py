"""A run's folder becomes its report and its files: journal and window facts → metrics → findings → report → sinks."""

import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from lightning_gpuprof.analyze import metrics as analyze_metrics
from lightning_gpuprof.analyze import rank_notices, rank_states
from lightning_gpuprof.analyze.comparison.step_times import StepTimes, step_times
from lightning_gpuprof.analyze.journal import Journal, read_journal
from lightning_gpuprof.analyze.other_ranks import attribute_cpu_to_ranks
from lightning_gpuprof.analyze.rank_ends import rank_ends
from lightning_gpuprof.analyze.rank_summary import OtherRanks, other_ranks, summarise, summary_path, without_summary
from lightning_gpuprof.analyze.rank_times import rank_times
from lightning_gpuprof.capture.fence import logger_part
from lightning_gpuprof.errors import GpuProfError, JournalError, ReportError, TraceError
from lightning_gpuprof.model.comparison import DEFAULT_THRESHOLD_RATIO, THIS_RUN, Comparison
from lightning_gpuprof.model.conditions import FixedGroup
from lightning_gpuprof.model.config import OWN_KINDS, ReportKind
from lightning_gpuprof.model.curves import RankRow, Ranks
from lightning_gpuprof.model.job_ranks import JobRanks
from lightning_gpuprof.model.journal import Notice, WindowRecord
from lightning_gpuprof.model.metrics import Metrics, RankTimes
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.numbers import listed
from lightning_gpuprof.model.report import SCHEMA_VERSION, Report
from lightning_gpuprof.model.run_folders import own_folders
from lightning_gpuprof.model.trial import FILE_NAME as TRIAL_FILE
from lightning_gpuprof.model.trial import Trial
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules import engine, targets
from lightning_gpuprof.rules.engine import Diagnosis
from lightning_gpuprof.rules.method import method
from lightning_gpuprof.sinks import brief, json_report
from lightning_gpuprof.sinks.discovery import sinks
from lightning_gpuprof.sinks.files import write_whole
from lightning_gpuprof.sinks.status_line import progress

# Pages, tables, comparisons and the reading of traces are imported where they are wanted: a short run wants none.

_MAX_JOURNALS = 64
"""Journals of other ranks that are read in the training process, where they left no summary."""
_RANKS_WAIT_S = 5.0
"""How long the report at the end of a run waits for the summaries of the other ranks, which end about then."""
_INTERRUPTED_RANKS_WAIT_S = 2.0
"""The same of a run that was interrupted, as some of them may be dead."""

_ON_RANKS = ("straggler-rank", "load-imbalance")

TRACE_ENDING = ".pt.trace.json.gz"


def _draw(report: Report) -> str:
    from lightning_gpuprof.sinks import notebook

    return notebook.render(report)


Report.drawn_by = _draw


def make_report(directory: Path, *, notices: Sequence[Notice] = (), rank: int | None = None) -> Report:
    """Make the report of a run from its folder alone; neither torch nor a GPU is needed.

    Args:
        directory: Folder with ``rank0.jsonl`` (or the journal of the lowest rank that is there).
        notices: Notices that did not reach the journal, because writing it failed.
        rank: Whose steps, windows and samples the report has; None: the lowest one's.

    Raises:
        JournalError: There is no readable journal in the folder.
    """
    found = find_journal(directory)
    if rank is not None:
        found = found.with_name(f"rank{rank}.jsonl")
        if not found.exists():
            there = listed([path.stem.removeprefix("rank") for path in _journals(found.parent)])
            raise JournalError(f"{found.parent} has no journal of rank {rank}: there are those of {there}")
    journal = read_journal(found)
    return with_trial(report_of(_metrics_of(journal, found, notices)), found.parent)


def job_ranks(directory: Path, most_bytes: int = rank_states.MOST_BYTES) -> JobRanks:
    """Where all ranks of a job are and who is late, from its folder, while it runs or later; no rank is asked.

    Of large journals only the ends are read.

    Args:
        directory: Folder of the run.
        most_bytes: Of all journals together that are read, but at least 128 kB of each.

    Raises:
        JournalError: There is no readable journal in the folder.
    """
    folder = find_journal(directory).parent
    job = rank_states.look(folder, most_bytes)
    header = job.own.header
    metrics = _metrics_of(job.own, folder / f"rank{header.rank}.jsonl", others=job.others)
    findings = tuple(one for one in engine.diagnose(metrics).findings if one.rule in _ON_RANKS)
    comparison = _ranks_of(metrics.ranks)
    return JobRanks(
        folder=str(folder),
        stage=header.stage,
        world_size=header.world_size,
        answer=rank_states.answer(job, findings, compared=comparison is not None),
        is_over=job.is_over,
        ranks=job.states,
        worst=rank_states.worst(job, comparison),
        ends=job.ends.sentences,
        problems=job.problems,
        findings=findings,
        comparison=comparison,
        not_compared=metrics.ranks.why if isinstance(metrics.ranks, Unmeasured) else "",
    )


def with_trial(report: Report, folder: Path) -> Report:
    """The report with what was tried of its advice, if that lies in its folder and can be read.

    Args:
        report: It.
        folder: Of the run.
    """
    try:
        trial = msgspec.json.decode((folder / TRIAL_FILE).read_bytes(), type=Trial)
    except (OSError, msgspec.MsgspecError):
        return report
    return msgspec.structs.replace(report, trial=trial)


def _metrics_of(
    journal: Journal,
    found: Path,
    notices: Sequence[Notice] = (),
    *,
    before: Metrics | None = None,
    most_journals: int | None = None,
    others: OtherRanks | None = None,
) -> Metrics:
    """The metrics of the journal that was read from a file; what belongs to it lies beside that file.

    ``before`` are those of the same run when its steps were over. At most so many journals of other ranks are read,
    and none where the others are given.
    """
    on_gpu = journal.conditions.get("device.type") == "cuda"
    windows = [_facts(found.parent, window, on_gpu=on_gpu) for window in journal.windows]
    alone = journal.header.world_size == 1 and journal.standstill is None
    if before is not None and alone:  # other ranks may have gone on
        return analyze_metrics.with_end(before, journal, windows, notices)
    if alone:
        return analyze_metrics.build(journal, windows, notices)
    if others is None:
        others = other_ranks(found, most_journals=most_journals)
    metrics = analyze_metrics.build(attribute_cpu_to_ranks(journal, others.summaries), windows, notices)
    own = summarise(journal)
    ends = rank_ends(own, others.summaries, others.unread.keys() - others.skipped)
    notices_of_others, windows_of_others = rank_notices.of_others(journal, others.summaries)
    caveats = (*ends.sentences, *metrics.validity.caveats, *notices_of_others)
    return msgspec.structs.replace(
        metrics,
        validity=msgspec.structs.replace(metrics.validity, ok=metrics.validity.ok and ends.in_step, caveats=caveats),
        ranks=rank_times(own, others.summaries, others.unread),
        rank_ends=ends.sentences,
        rank_windows=windows_of_others,
    )


def leave_summary(folder: Path, rank: int) -> None:
    """Have a rank leave what the report of another one needs of it, beside its journal.

    Args:
        folder: Of the run; the rank's journal must be written up to now.
        rank: Which one.

    Raises:
        GpuProfError: The journal cannot be read, or the summary not be written.
    """
    journal = folder / f"rank{rank}.jsonl"
    write_whole(summary_path(journal), msgspec.json.encode(summarise(read_journal(journal))))


def _await_ranks(found: Path, journal: Journal) -> None:
    """Give the other ranks a moment to leave their summaries; nobody is asked, and nobody has to answer."""
    if journal.header.world_size == 1:
        return
    finished = journal.footer is not None and journal.footer.status == "finished"
    end = time.monotonic() + (_RANKS_WAIT_S if finished else _INTERRUPTED_RANKS_WAIT_S)
    with progress("waiting for the summaries of the other ranks"):
        while without_summary(found) and time.monotonic() < end:
            time.sleep(0.05)


def find_journal(directory: Path) -> Path:
    """The journal of the lowest rank in a folder, or in the only one of ours in it or beside it that has one.

    Raises:
        JournalError: There is none, or several subfolders have one.
    """
    if own := _journals(directory):
        return own[0]
    inner = [found[0] for folder in own_folders(directory) if (found := _journals(folder))]
    if len(inner) == 1:
        return inner[0]
    if inner:
        raise JournalError(
            f"{directory} holds {len(inner)} runs, name one: {', '.join(str(found.parent) for found in inner)}"
        )
    if not directory.exists():
        raise JournalError(f"{directory}: no such folder")
    raise JournalError(
        f"{directory}: no journal (rank0.jsonl) in it. Name the folder that the run printed, usually <log_dir>/gpuprof."
    )


def _journals(folder: Path) -> list[Path]:
    return sorted(folder.glob("rank*.jsonl"), key=lambda path: (len(path.name), path.name))


def write_reports(report: Report, directory: Path, kinds: Sequence[ReportKind]) -> dict[str, str]:
    """Write the files of a report.

    Args:
        report: The report.
        directory: Where.
        kinds: What; ``terminal`` and ``tensorboard`` have no files.

    Returns:
        What was written: name → path.

    Raises:
        ReportError: A file cannot be written.
    """
    return {sink.label: str(sink.write_report(report, directory)) for sink in sinks(kinds)}


def _copies(report: Report, target: Path, kinds: Sequence[ReportKind], folder: Path) -> dict[str, str]:
    """Write the files elsewhere than into the run's folder, which their commands name all the same."""
    written = write_reports(report, target, [kind for kind in kinds if kind != "html"])
    if "html" in kinds:
        from lightning_gpuprof.sinks import html

        html.write(report, target / html.FILE_NAME, folder)
        written["HTML"] = str(target / html.FILE_NAME)
    return written


def _worth_making(report: Report, asked: Sequence[ReportKind] | None) -> Sequence[ReportKind]:
    """What was asked for; if nobody said, everything, but no page of a run too short to judge."""
    if asked is not None:
        return asked
    return tuple(kind for kind in OWN_KINDS if kind != "html" or not brief.is_enough(report))


@dataclass(frozen=True, kw_only=True)
class Logged:
    """What the loggers were given."""

    metrics: Metrics
    to: str
    """Log folder of the first TensorBoard logger, or an empty string."""


def finish_run(
    folder: Path,
    *,
    kinds: Sequence[ReportKind] | None,
    baseline: str | None,
    notices: Sequence[Notice],
    logged: Logged | None = None,
) -> Report:
    """What happens at the end of a stage: report, files, terminal, comparison with a baseline.

    Args:
        folder: Of the run.
        kinds: What to make; None: what the run is worth.
        baseline: An earlier run to compare with, or None; the comparison is written beside the report.
        notices: That did not reach the journal.
        logged: What :func:`push_to_loggers` gave; None if there were no loggers.
    """
    begin_ns = time.perf_counter_ns()
    found = find_journal(folder)
    journal = read_journal(found)
    _await_ranks(found, journal)
    with progress("making the report"):
        before = logged.metrics if logged else None
        report = report_of(_metrics_of(journal, found, notices, before=before, most_journals=_MAX_JOURNALS))
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

    Returns:
        For :func:`finish_run`, which adds the end to it.
    """
    from lightning_gpuprof.sinks import attachments, loggers  # not where there are none

    found = find_journal(folder)
    journal = read_journal(found)
    _await_ranks(found, journal)
    metrics = _metrics_of(journal, found, notices, most_journals=_MAX_JOURNALS)
    report = report_of(metrics)
    comparison: Comparison | None = None
    if baseline is not None and finished and any(attachments.panel(logger) for logger in trainer_loggers):
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
    return Logged(metrics=metrics, to=to)


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a comparison needs of a run."""

    report: Report
    times: StepTimes | None
    """Steady steps; None if only the report is there, or no step was steady."""


def compare_runs(
    before: Run,
    after: Run,
    *,
    before_name: str = "before",
    after_name: str = "after",
    allow: Collection[FixedGroup] = (),
    threshold_ratio: float = DEFAULT_THRESHOLD_RATIO,
    metrics: Sequence[str] = (),
) -> Comparison:
    """Hold a later run against an earlier one.

    Args:
        before: The earlier run.
        after: The later run.
        before_name: What to call the earlier run.
        after_name: What to call the later run.
        allow: Groups of conditions that may differ though they make runs incomparable.
        threshold_ratio: Smaller changes are within noise.
        metrics: Measures that the outcome rests on; empty for the default.

    Raises:
        ArgumentError: There is no such measure.
    """
    from lightning_gpuprof.analyze.compare import compare

    return compare(
        before.report,
        after.report,
        before_name=before_name,
        after_name=after_name,
        allow=allow,
        times=(before.times, after.times),
        threshold_ratio=threshold_ratio,
        metrics=metrics,
    )


def load_report(path: Path, *, rank: int | None = None) -> Report:
    """A report from a ``report.json``, or from a run's folder, in which the journal counts.

    Args:
        path: The file or folder.
        rank: Whose report is made of the folder; None: the lowest one's.

    Raises:
        GpuProfError: There is neither.
    """
    if path.is_dir():
        try:
            return make_report(path, rank=rank)
        except JournalError:
            if rank is None and (path / json_report.FILE_NAME).is_file():
                return json_report.read(path / json_report.FILE_NAME)
            raise
    return json_report.read(path)


def load_run(path: Path) -> Run:
    """As :func:`load_report`, with the times of the steady steps where there is a journal.

    Raises:
        GpuProfError: There is neither.
    """
    if path.is_dir():
        try:
            found = find_journal(path)
            journal = read_journal(found)
        except JournalError:
            return Run(report=load_report(path), times=None)
        return Run(report=report_of(_metrics_of(journal, found)), times=step_times(journal))
    return Run(report=json_report.read(path), times=None)


def op_analyse_window(folder: Path | None, names: str | Sequence[str], window: int) -> str:
    """What operators did in a window of a run, as JSON.

    Args:
        folder: Of the run; None if there was none.
        names: Of operators.
        window: Which of the windows that have a trace, counted as Python's sequences are.

    Raises:
        TraceError: There is no such trace, or it cannot be read.
        ArgumentError: No operator has one of the names.
    """
    from lightning_gpuprof.trace.analyses.operators.op_analyse import op_analyse_json
    from lightning_gpuprof.trace.linked import LinkedTrace
    from lightning_gpuprof.trace.reader import Trace

    traces = [] if folder is None else sorted(folder.glob(f"*{TRACE_ENDING}"))
    if not traces:
        raise TraceError(f"{folder}: there is no trace. Record one: GpuProfiler(windows=100), with trace=True")
    try:
        path = traces[window]
    except IndexError:
        raise TraceError(f"window must count one of {len(traces)} traces, got {window}") from None
    return op_analyse_json(LinkedTrace(Trace.read(path)), names)


def _facts(directory: Path, window: WindowRecord, *, on_gpu: bool) -> WindowFacts:
    """The facts that the analysis left beside the trace, completed by what the run itself knows of the window."""
    facts = WindowFacts(start_step=window.start_step, stop_step=window.stop_step, file=window.file)
    problem = window.problem
    if window.file and (Path(window.file).name != window.file or not window.file.endswith(TRACE_ENDING)):
        # A journal is data: it must not name files outside of its folder.
        problem = problem or f"the trace has a name that none of ours has (*{TRACE_ENDING})"
    elif window.file:
        beside = directory / window.file.replace(TRACE_ENDING, ".facts.json")
        try:
            facts = msgspec.json.decode(beside.read_bytes(), type=WindowFacts)
            if on_gpu and not facts.problem and not facts.devices:
                problem = problem or "no GPU work in the trace: CUPTI may be in use or not permitted (gpuprof doctor)"
        except FileNotFoundError:
            problem = problem or "the trace has not been analysed (yet)"
        except (OSError, msgspec.MsgspecError) as error:
            problem = problem or f"the facts of the trace cannot be read: {error}"
    return msgspec.structs.replace(
        facts,
        start_step=window.start_step,
        stop_step=window.stop_step,
        file=window.file,
        problem="; ".join(p for p in (problem, facts.problem) if p),
        reason=window.reason,
        stop_cost_ms=window.stop_cost_ns / 1e6 if window.file else None,
    )


def report_of(metrics: Metrics) -> Report:
    """Diagnose a run: the report of its metrics."""
    diagnosis = engine.diagnose(metrics)
    target, cost = targets.outlook(metrics, diagnosis), targets.cost(metrics)
    return Report(
        schema_version=SCHEMA_VERSION,
        **{**_published(metrics), **_published(diagnosis), "ranks": _ranks_of(metrics.ranks)},
        method=method(metrics, diagnosis, outlook=target, cost=cost),
        target=target,
        cost=cost,
    )


def _published(source: Metrics | Diagnosis) -> dict[str, Any]:
    """What a report has under the name that it has here."""
    names = set(source.__struct_fields__) & set(Report.__struct_fields__)
    return {name: getattr(source, name) for name in names}


def _ranks_of(found: RankTimes | Unmeasured | None) -> Ranks | None:
    if not isinstance(found, RankTimes):
        return None
    return Ranks(
        world_size=found.world_size,
        steps=found.steps,
        own_phases=found.phases,
        left_out=found.left_out,
        rows=tuple(
            RankRow(
                rank=one.rank,
                host=one.host,
                period_ms=one.period_ms,
                phases_ms=dict(one.phases_ms),
                excess_ms=one.excess_ms,
            )
            for one in found.ranks
        ),
    )
