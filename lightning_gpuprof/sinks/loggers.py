"""From a Report to the trainer's loggers: the diagnosis as text, the final numbers as scalars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import scalars, tensorboard_text

TEXT_TAG = "gpuprof/report"


def push(report: Report, loggers: Sequence[object], step: int) -> str:
    """Hand the report to each logger that can take it.

    Args:
        report: The report.
        loggers: Lightning loggers. One whose ``experiment`` has ``add_text`` (TensorBoard) gets the diagnosis; each
            with ``log_metrics`` gets the final numbers.
        step: Their last step.

    Returns:
        Log folder of the first TensorBoard logger, or an empty string.
    """
    shown_in = ""
    numbers = scalars.final_scalars(report)
    for logger in loggers:
        log_metrics: Callable[[Mapping[str, float], int], None] | None = getattr(logger, "log_metrics", None)
        if log_metrics is not None:
            log_metrics(numbers, step)
        add_text = getattr(getattr(logger, "experiment", None), "add_text", None)
        if callable(add_text):
            add_text(TEXT_TAG, tensorboard_text.markdown(report), step)
            shown_in = shown_in or str(getattr(logger, "log_dir", "") or "")
    return shown_in
