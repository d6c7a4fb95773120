"""Sends the final numbers, the diagnosis as text and the report's files to the trainer's loggers.

Neither Weights & Biases nor MLflow is imported: each is known by its Lightning logger, whose ``experiment`` does the
rest. Methods of the same name take something else in other trackers. Read in wandb 0.31 (``Run.log``, ``Html``,
``Run.log_artifact``) and mlflow 3.17 (``MlflowClient.log_artifacts``).
"""

import math
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from lightning_gpuprof.model.comparison import Comparison
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import tensorboard_text

TEXT_TAG = "gpuprof/report"
ATTACH_TIMEOUT_S = 30.0
"""For the files, which may go to a server that does not answer."""
INTERRUPTED_TIMEOUT_S = 5.0
"""For the numbers and the text of an interrupted run: nobody is kept waiting."""

ARTIFACT_TYPE = "gpuprof-report"
"""Type of the artifact in Weights & Biases."""


PANEL, COMPARISON_PANEL = "gpuprof/report", "gpuprof/comparison"
"""Names of the panels in Weights & Biases: the first screen, and the comparison with the baseline."""

_LONGEST_NAME = 128


def push(
    report: Report,
    loggers: Sequence[object],
    step: int,
    *,
    write_files: Callable[[Path], Mapping[str, str]],
    guard: Callable[[object], AbstractContextManager[object]],
    late: Callable[[str], None],
    finished: bool = True,
    folder: Path | None = None,
    comparison: Comparison | None = None,
) -> str:
    """Hand the report to each logger that can take it.

    Args:
        report: The report.
        loggers: Lightning loggers. Each with ``log_metrics`` gets the final numbers; one whose ``experiment`` has
            ``add_text`` (TensorBoard) the diagnosis; Weights & Biases panels with the first screen and the
            comparison; one that keeps artifacts the files.
        step: Their last step.
        write_files: Writes the report's files to a folder and returns what it wrote.
        guard: A context around what is done with a logger; keeps what it raises from the other loggers.
        late: Told when the loggers took longer than they are given; what is under way goes on in its thread.
        finished: The run came to its own end. One that did not gives no files, and waits for nothing else for long.
        folder: Of the run, for the command that proves a fix; None: not known.
        comparison: With the baseline, if there is one; shown by a run that came to its own end.

    Returns:
        Log folder of the first TensorBoard logger, or an empty string.
    """
    shown: list[str] = []
    if not finished:
        if not _run_with_timeout(
            INTERRUPTED_TIMEOUT_S, lambda: _show(report, loggers, step, guard, shown, folder, None)
        ):
            late(f"the loggers did not accept the final numbers within {INTERRUPTED_TIMEOUT_S:g} s")
    else:
        _show(report, loggers, step, guard, shown, folder, comparison)
        keepers = [(logger, keep) for logger in loggers if (keep := keeper(logger)) is not None]
        if keepers and not _run_with_timeout(ATTACH_TIMEOUT_S, lambda: _attach(report, keepers, write_files, guard)):
            late(f"the loggers did not accept the report's files within {ATTACH_TIMEOUT_S:g} s")
    return shown[0] if shown else ""


def _show(
    report: Report,
    loggers: Sequence[object],
    step: int,
    guard: Callable[[object], AbstractContextManager[object]],
    shown: list[str],
    folder: Path | None,
    comparison: Comparison | None,
) -> None:
    """Numbers, text and panels; the log folders of the loggers that took the text go to ``shown``."""
    numbers = final_scalars(report)
    for logger in loggers:
        with guard(logger):
            _log_numbers(logger, numbers, step)
        with guard(logger):
            if _add_text(logger, report, step, folder):
                log_dir = getattr(logger, "log_dir", "")
                shown += [log_dir] if isinstance(log_dir, str) and log_dir else []
        show = panel(logger)
        if show is None:
            continue
        with guard(logger):
            show(PANEL, _first_page(report, folder), step)
        with guard(logger):
            if comparison is not None:
                show(COMPARISON_PANEL, _compared_page(comparison), step)


def _attach(
    report: Report,
    keepers: Sequence[tuple[object, Callable[[Path, str], object]]],
    write_files: Callable[[Path], Mapping[str, str]],
    guard: Callable[[object], AbstractContextManager[object]],
) -> None:
    """The files, written once for all."""
    with ExitStack() as stack:
        folder: Path | None = None
        for logger, keep in keepers:
            with guard(logger):
                if folder is None:
                    made = tempfile.TemporaryDirectory(prefix="gpuprof-", ignore_cleanup_errors=True)
                    written = Path(stack.enter_context(made))
                    if not write_files(written):
                        return
                    folder = written
                keep(folder, _name_of(report))


def _run_with_timeout(timeout_s: float, work: Callable[[], None]) -> bool:
    """Do something on a thread that is left behind when it takes longer; whether it came to its end."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="gpuprof-loggers", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if raised:
        raise raised[0]
    return not thread.is_alive()


PREFIX = "gpuprof/final"


def final_scalars(report: Report) -> dict[str, float]:
    """The run's summary as scalars.

    Returns:
        Names ``gpuprof/final/...`` that end with their unit, and finite values. What was not measured has no name.
    """
    return {f"{PREFIX}/{name}": float(value) for name, value in _measured(report) if math.isfinite(value)}


def _measured(report: Report) -> Iterator[tuple[str, float]]:
    """A dozen names at most: what is wanted in a table of runs. Everything else is in the report."""
    yield "wall_s", report.wall.total_s
    yield "steady_steps_count", report.steps.steady_count
    yield "findings_count", len(report.findings)
    period = report.steps.period_ms
    if period is not None:
        yield "step_time_median_ms", period.median
        yield "step_time_p95_ms", period.p95
    if report.steps.samples_per_s is not None:
        yield "samples_per_s", report.steps.samples_per_s
    gains = [most for finding in report.findings if (most := finding.most_speedup) is not None]
    if gains:
        yield "speedup_max_ratio", max(gains)
    cost = report.overhead.get("share_of_step_ratio")
    if cost is not None:
        yield "profiler_share_of_step_ratio", cost


def _log_numbers(logger: Any, numbers: dict[str, float], step: int) -> None:
    log_metrics = getattr(logger, "log_metrics", None)
    if log_metrics is not None:
        log_metrics(metrics=numbers.copy(), step=step)


def _add_text(logger: Any, report: Report, step: int, folder: Path | None) -> bool:
    add_text = getattr(getattr(logger, "experiment", None), "add_text", None)
    if not callable(add_text):
        return False
    add_text(TEXT_TAG, tensorboard_text.markdown(report, folder), step)
    return True


def _first_page(report: Report, folder: Path | None) -> str:
    """The first screen as a page of its own."""
    from lightning_gpuprof.sinks.first_screen import first_screen  # only where it is shown
    from lightning_gpuprof.sinks.views import first

    return _page(first.render(first_screen(report, folder)))


def _compared_page(comparison: Comparison) -> str:
    """The answer of a comparison as a page of its own."""
    from lightning_gpuprof.sinks.views import compared  # only where it is shown

    return _page(compared.compared(comparison))


def _page(body: str) -> str:
    from lightning_gpuprof.sinks.html_page import page

    return page("gpuprof", [f'<main id="main">\n{body}</main>\n'])


def _name_of(report: Report) -> str:
    """As the run's folder is called where nothing else is said."""
    stage = report.run.get("stage")
    return "gpuprof" if stage in (None, "fit") else f"gpuprof-{stage}"


def keeper(logger: Any) -> Callable[[Path, str], object] | None:
    """What attaches a folder's files to the run of a logger, under a name.

    Returns:
        A function of folder and name, or None for a logger that keeps no files. The files are copied or sent before it
        returns; the folder may go then.
    """
    kinds = _kinds(logger)
    if "MLFlowLogger" in kinds:
        return lambda folder, name: logger.experiment.log_artifacts(logger.run_id, str(folder), name)
    if "WandbLogger" in kinds:
        return lambda folder, name: logger.experiment.log_artifact(
            str(folder), name=artifact_name(name, str(logger.experiment.id)), type=ARTIFACT_TYPE
        )
    return None


def panel(logger: Any) -> Callable[[str, str, int], object] | None:
    """What shows a page in the workspace of a logger's run, at a step.

    Returns:
        A function of the panel's name, the page and the step, or None for a logger without panels of HTML.
    """
    html = getattr(sys.modules.get("wandb"), "Html", None)
    if html is None or "WandbLogger" not in _kinds(logger):
        return None
    return lambda name, page, step: logger.log_metrics({name: html(page, inject=False)}, step)


def _kinds(logger: object) -> set[str]:
    return {kind.__name__ for kind in type(logger).__mro__}


def artifact_name(name: str, run_id: str) -> str:
    """One name per run, in the characters that artifacts may have.

    Args:
        name: What the artifact is.
        run_id: Of the logger's run.

    Returns:
        Both with a hyphen between, at most 128 characters; others than ASCII letters, digits, ``_``, ``.`` and ``-``
        become hyphens.
    """
    return re.sub(r"[^A-Za-z0-9_.-]", "-", f"{name}-{run_id}")[:_LONGEST_NAME]
