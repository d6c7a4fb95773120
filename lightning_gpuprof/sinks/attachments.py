"""A Report's files flow in, artifacts of the trackers that keep files (Weights & Biases, MLflow) flow out.

Neither is imported: each is known by its Lightning logger, whose ``experiment`` does the rest. Methods of the same name
take something else in other trackers. Read in wandb 0.31 (``Run.log_artifact``) and mlflow 3.17
(``MlflowClient.log_artifacts``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ARTIFACT_TYPE = "gpuprof-report"
"""Type of the artifact in Weights & Biases."""

_LONGEST_NAME = 128


def keeper(logger: Any) -> Callable[[Path, str], object] | None:
    """What attaches a folder's files to the run of a logger, under a name.

    Args:
        logger: A Lightning logger.

    Returns:
        A function of folder and name, or None for a logger that keeps no files. The files are copied or sent before it
        returns; the folder may go then.
    """
    kinds = {kind.__name__ for kind in type(logger).__mro__}
    if "MLFlowLogger" in kinds:
        return lambda folder, name: logger.experiment.log_artifacts(logger.run_id, str(folder), name)
    if "WandbLogger" in kinds:
        return lambda folder, name: logger.experiment.log_artifact(
            str(folder), name=artifact_name(name, str(logger.experiment.id)), type=ARTIFACT_TYPE
        )
    return None


def artifact_name(name: str, run_id: str) -> str:
    """One name per run, in the characters that artifacts may have."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", f"{name}-{run_id}")[:_LONGEST_NAME]
