"""Finds the folders of our runs that belong to a trainer's log folder."""

import glob
from pathlib import Path

FOLDER_PATTERN = "gpuprof*"
"""Names of our folders in a log folder."""
REPORT_FILE = "report.json"
"""A run's report in its folder."""
TRACE_ENDING = ".pt.trace.json.gz"
"""Of the name of a trace: TensorBoard's profiler tab looks for it."""


def sibling(folder: Path, name: str) -> Path:
    """Where the run goes whose log folder is for checkpoints: what lists that is to find nothing else.

    Args:
        folder: The log folder.
        name: What ours would be called inside of it.

    Returns:
        ``<log folder>-<name>``, whether it exists or not.
    """
    return folder.with_name(f"{folder.name}-{name}")


def own_folders(folder: Path) -> list[Path]:
    """Our folders in a log folder and beside it, in the order of their names; not all have to hold a run."""
    around = folder.absolute()
    return sorted(folder.glob(FOLDER_PATTERN)) + sorted(
        around.parent.glob(sibling(Path(glob.escape(around.name)), FOLDER_PATTERN).name)
    )
