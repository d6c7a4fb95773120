"""Finds the folder of a run: never over an earlier run, and a temporary one where the wanted one cannot be written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import BinaryIO

from lightning_gpuprof.capture.journal_writer import open_journal

JOURNAL_NAME = "rank{rank}.jsonl"


def expand(dirpath: str) -> Path:
    """``~`` and ``$VARIABLES`` in a path that came from YAML, where nobody else expands them."""
    return Path(os.path.expandvars(dirpath)).expanduser()


def create(wanted: Path, rank: int) -> tuple[Path, BinaryIO, str]:
    """Make the folder and this rank's journal in it.

    Args:
        wanted: The folder; ``-2``, ``-3``, … is added until it holds no journal of this rank.
        rank: Global rank.

    Returns:
        The folder, the opened journal, and what went wrong with the wanted folder (empty if nothing).
    """
    name = JOURNAL_NAME.format(rank=rank)
    try:
        return *_create_in(wanted, name), ""
    except OSError as error:
        problem = f"{wanted} cannot be written ({error.strerror or error})"
    fallback = Path(tempfile.mkdtemp(prefix="gpuprof-"))
    return *_create_in(fallback, name), f"{problem}; the run is recorded in {fallback} instead"


def _create_in(wanted: Path, name: str) -> tuple[Path, BinaryIO]:
    for number in range(1, 10_000):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return folder, open_journal(folder / name)
        except FileExistsError:
            continue
    raise OSError(f"{wanted} and 9,999 numbered folders beside it are taken")
