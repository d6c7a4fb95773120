"""A run's folder becomes its report, the report's files, or one side of a comparison."""

from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from lightning_gpuprof.analyze.comparison.uncertainty import StepTimes, step_times
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.analyze.training_cost import training_cost
from lightning_gpuprof.errors import JournalError
from lightning_gpuprof.model.comparison import DEFAULT_THRESHOLD_RATIO, Comparison
from lightning_gpuprof.model.conditions import FixedGroup
from lightning_gpuprof.model.config import ReportKind
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import listed
from lightning_gpuprof.model.report import Measured, Report
from lightning_gpuprof.model.trial import FILE_NAME as TRIAL_FILE
from lightning_gpuprof.model.trial import Trial
from lightning_gpuprof.rules import engine
from lightning_gpuprof.rules.method import method
from lightning_gpuprof.rules.targets import outlook
from lightning_gpuprof.run_folder import find_journal, journals_in, metrics_of, window_of_ranks
from lightning_gpuprof.sinks import json_report
from lightning_gpuprof.sinks.discovery import sinks

# Pages, tables, comparisons and the reading of traces are imported where they are wanted: a short run wants none.


def _draw(report: Report) -> str:
    from lightning_gpuprof.sinks import notebook

    return notebook.render(report)


Report.drawn_by = _draw


def make_report(directory: Path, *, rank: int | None = None) -> Report:
    """Make the report of a run from its folder alone; neither torch nor a GPU is needed.

    Args:
        directory: Folder with ``rank0.jsonl`` (or the journal of the lowest rank that is there).
        rank: Whose steps, windows and samples the report has; None: the lowest one's.

    Returns:
        With what was tried of its advice, and the window that several ranks traced, where these lie in the folder.

    Raises:
        JournalError: There is no readable journal in the folder.
    """
    found = find_journal(directory)
    if rank is not None:
        found = found.with_name(f"rank{rank}.jsonl")
        if not found.exists():
            there = listed([path.stem.removeprefix("rank") for path in journals_in(found.parent)])
            raise JournalError(f"{found.parent} has no journal of rank {rank}, only of {there}")
    report = with_trial(report_of(metrics_of(read_journal(found), found)), found.parent)
    compared = window_of_ranks(found.parent)
    return report if compared is None else msgspec.structs.replace(report, window_ranks=compared)


def report_in_training(directory: Path) -> Report:
    """The report of a run that goes on, in its own process: nothing is read of other ranks but their summaries.

    Args:
        directory: Folder with the journal.

    Raises:
        JournalError: There is no readable journal in the folder.
    """
    found = find_journal(directory)
    return report_of(metrics_of(read_journal(found), found, in_training=True))


def report_of(metrics: Metrics, diagnosis: engine.Diagnosis | None = None) -> Report:
    """The report of a run's metrics.

    Args:
        metrics: Of the run.
        diagnosis: What the rules said of it, where they have been asked.

    Returns:
        With the diagnosis, also where that was made of metrics of the same steps before the run's end.
    """
    diagnosis = diagnosis or engine.diagnose(metrics)
    target, cost = outlook(metrics, diagnosis), training_cost(metrics)
    return Report(
        **{name: getattr(metrics, name) for name in Measured.__struct_fields__},
        **msgspec.structs.asdict(diagnosis),
        ranks=metrics.rank_table,
        method=method(metrics, diagnosis, outlook=target, cost=cost),
        target=target,
        cost=cost,
    )


def with_trial(report: Report, folder: Path) -> Report:
    """The report with what was tried of its advice, if that lies in its folder.

    Args:
        report: It.
        folder: Of the run.

    Returns:
        A copy; the given report itself if there is nothing that can be read.
    """
    try:
        trial = msgspec.json.decode((folder / TRIAL_FILE).read_bytes(), type=Trial)
    except (OSError, msgspec.MsgspecError):
        return report
    return msgspec.structs.replace(report, trial=trial)


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


def load_report(path: Path, *, rank: int | None = None) -> Report:
    """A report from a ``report.json``, or from a run's folder, in which the journal counts.

    Args:
        path: The file or folder.
        rank: Whose report is made of the folder; None: the lowest one's.

    Returns:
        Of a folder, ``report.json`` is read only where there is no readable journal and no rank is named.

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


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison needs of a run."""

    report: Report
    times: StepTimes | None
    """Steady steps; None if only the report is there, or no step was steady."""


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
        return Run(report=report_of(metrics_of(journal, found)), times=step_times(journal))
    return Run(report=json_report.read(path), times=None)


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
        metrics: Measures that decide the outcome; empty for the default.

    Returns:
        Its outcome is ``not comparable`` where conditions differ that may not.

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
