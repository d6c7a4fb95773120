"""Uploads a report's files and first screen to the trackers that keep artifacts and panels.

Neither Weights & Biases nor MLflow is imported: each is known by its Lightning logger, whose ``experiment`` does the
rest. Methods of the same name take something else in other trackers. Read in wandb 0.31 (``Run.log``, ``Html``,
``Run.log_artifact``) and mlflow 3.17 (``MlflowClient.log_artifacts``).
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ARTIFACT_TYPE = "gpuprof-report"
"""Type of the artifact in Weights & Biases."""

PANEL, COMPARISON_PANEL = "gpuprof/report", "gpuprof/comparison"
"""Names of the panels in Weights & Biases: the first screen, and the comparison with the baseline."""

_LONGEST_NAME = 128


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
    """
    return re.sub(r"[^A-Za-z0-9_.-]", "-", f"{name}-{run_id}")[:_LONGEST_NAME]
