"""From a run's folder to its report and its files: journal and window facts → metrics → findings → report → sinks."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from lightning_gpuprof.analyze import metrics as analyze_metrics
from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.analyze.journal import Journal, read_journal
from lightning_gpuprof.errors import GpuProfError, JournalError, ReportError, TraceError
from lightning_gpuprof.model.comparison import Comparison
from lightning_gpuprof.model.config import ReportKind
from lightning_gpuprof.model.journal import Notice, WindowRecord
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import SCHEMA_VERSION, Report
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules import engine
from lightning_gpuprof.sinks import comparison_text, html, json_report, loggers, terminal
from lightning_gpuprof.sinks.files import write_whole
from lightning_gpuprof.trace.facts import window_facts
from lightning_gpuprof.trace.reader import Trace

HTML_NAME = "report.html"
TRACE_ENDING = ".pt.trace.json.gz"


def make_report(directory: Path, *, notices: Sequence[Notice] = ()) -> Report:
    """Make the report of a run from its folder alone; neither torch nor a GPU is needed.

    Args:
        directory: Folder with ``rank0.jsonl`` (or the journal of the lowest rank that is there).
        notices: Notices that did not reach the journal, because writing it failed.

    Raises:
        JournalError: There is no readable journal in the folder.
    """
    journal = read_journal(find_journal(directory))
    on_gpu = journal.conditions.get("device.type") == "cuda"
    windows = [_facts(directory, window, on_gpu=on_gpu) for window in journal.windows]
    return report_of(journal, analyze_metrics.build(journal, windows, notices))


def find_journal(directory: Path) -> Path:
    """The journal of the lowest rank in a folder, or in its ``gpuprof`` subfolder.

    Raises:
        JournalError: There is none.
    """
    for folder in (directory, directory / "gpuprof", *sorted(directory.glob("gpuprof-*"))):
        found = sorted(folder.glob("rank*.jsonl"), key=lambda p: (len(p.name), p.name))
        if found:
            return found[0]
    if not directory.exists():
        raise JournalError(f"{directory}: no such folder")
    raise JournalError(
        f"{directory}: no journal (rank0.jsonl) in it. Name the folder that the run printed, usually <log_dir>/gpuprof."
    )


def write_reports(report: Report, directory: Path, kinds: Sequence[ReportKind]) -> dict[str, str]:
    """Write the files of a report.

    Args:
        report: The report.
        directory: Where.
        kinds: What; ``terminal`` and ``tensorboard`` are no files and ignored.

    Returns:
        What was written: name → path.

    Raises:
        ReportError: A file cannot be written.
    """
    written: dict[str, str] = {}
    if "json" in kinds:
        target = directory / json_report.FILE_NAME
        json_report.write(report, target)
        written["JSON"] = str(target)
    if "html" in kinds:
        target = directory / HTML_NAME
        write_whole(target, html.render_html(report).encode())
        written["HTML"] = str(target)
    return written


def finish_run(
    folder: Path,
    *,
    kinds: Sequence[ReportKind],
    baseline: str | None,
    notices: Sequence[Notice],
    logged_to: str = "",
) -> Report:
    """What happens at the end of a stage: report, files, terminal, comparison with a baseline.

    Args:
        folder: Of the run.
        kinds: What to make.
        baseline: An earlier run to compare with, or None.
        notices: That did not reach the journal.
        logged_to: Folder of the TensorBoard logger that was given the diagnosis; empty if none.
    """
    begin = time.perf_counter()
    report = make_report(folder, notices=notices)
    report.overhead["report_s"] = time.perf_counter() - begin
    where: dict[str, str] = {}
    problems: list[str] = []
    try:
        where |= write_reports(report, folder, kinds)
    except ReportError as error:
        problems.append(str(error))
    if logged_to:
        # One folder above both, where the traces lie in another logger's.
        both = os.path.commonpath([os.path.abspath(logged_to), folder.resolve()])  # noqa: PTH100
        where["TensorBoard"] = f"tensorboard --logdir {logged_to if both == os.path.abspath(logged_to) else both}"  # noqa: PTH100
    comparison: Comparison | None = None
    if baseline is not None:
        try:
            comparison = compare_runs(Path(baseline).expanduser(), report, after_name="this run")
        except GpuProfError as error:
            problems.append(f"baseline: {error}")
    if "terminal" in kinds and not report.steps.count:
        print(f"gpuprof: this {report.run['stage']} had no step; what was measured is in {folder}")
    elif "terminal" in kinds:
        terminal.print_report(report, where=where)
        if comparison is not None:
            comparison_text.print_comparison(comparison)
    for problem in problems:
        print(f"gpuprof: {problem}", file=sys.stderr)
    return report


def push_to_loggers(folder: Path, *, notices: Sequence[Notice], trainer_loggers: Sequence[object], step: int) -> str:
    """Give the diagnosis and the final numbers to the trainer's loggers, before Lightning ends them.

    What comes after (other callbacks' teardown, the loggers' own end) is in the final report only.

    Args:
        folder: Of the run; its journal must be written up to now.
        notices: That did not reach the journal.
        trainer_loggers: The trainer's loggers.
        step: Their last step.

    Returns:
        Log folder of the first TensorBoard logger, or an empty string.
    """
    return loggers.push(make_report(folder, notices=notices), trainer_loggers, step)


def compare_runs(before: Path, after: Report | Path, *, after_name: str = "") -> Comparison:
    """Compare two runs, each given by its folder or ``report.json``.

    Raises:
        GpuProfError: One of them cannot be read.
    """
    later = after if isinstance(after, Report) else load_report(after)
    return compare(load_report(before), later, before_name=str(before), after_name=after_name or str(after))


def load_report(path: Path) -> Report:
    """A report from a ``report.json``, or from a run's folder, in which the journal counts.

    Raises:
        GpuProfError: There is neither.
    """
    if path.is_dir():
        try:
            return make_report(path)
        except JournalError:
            if (path / json_report.FILE_NAME).is_file():
                return json_report.read(path / json_report.FILE_NAME)
            raise
    return json_report.read(path)


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

    traces = [] if folder is None else sorted(folder.glob(f"*{TRACE_ENDING}"))
    if not traces:
        raise TraceError(f"{folder}: there is no trace. Record one: GpuProfiler(windows=100), with trace=True")
    try:
        path = traces[window]
    except IndexError:
        raise TraceError(f"window must count one of {len(traces)} traces, got {window}") from None
    return op_analyse_json(LinkedTrace(Trace.read(path)), names)


def trace_facts(path: Path) -> WindowFacts:
    """Facts of any Kineto trace.

    Raises:
        TraceError: It cannot be read.
    """
    return window_facts(Trace.read(path), start_step=0, stop_step=0, file=path.name)


def _facts(directory: Path, window: WindowRecord, *, on_gpu: bool) -> WindowFacts:
    """The facts that the analysis left beside the trace, completed by what the run itself knows of the window."""
    facts = WindowFacts(start_step=window.start_step, stop_step=window.stop_step, file=window.file)
    problem = window.problem
    if window.file:
        beside = directory / window.file.replace(".pt.trace.json.gz", ".facts.json")
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


def report_of(journal: Journal, metrics: Metrics) -> Report:
    """The report of a journal of which the metrics are known."""
    diagnosis = engine.diagnose(metrics)
    return Report(
        schema_version=SCHEMA_VERSION,
        run=dict(metrics.run),
        validity=metrics.validity,
        wall=metrics.wall,
        steps=metrics.steps,
        phases=metrics.phases,
        callbacks=metrics.callbacks,
        devices=metrics.devices,
        host=dict(metrics.host),
        memory=dict(metrics.memory),
        windows=metrics.windows,
        verdict=diagnosis.verdict,
        findings=diagnosis.findings,
        not_evaluated=diagnosis.not_evaluated,
        overhead=dict(metrics.overhead),
        ledger=metrics.ledger,
        series=_mutable(metrics.series),
    )


def _mutable(series: Mapping[str, list[float]]) -> dict[str, list[float]]:
    return {name: list(values) for name, values in series.items()}
