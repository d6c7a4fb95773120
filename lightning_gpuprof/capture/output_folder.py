"""Finds the folder of a run: never over an earlier run, the same for all ranks, a temporary one where none can be made.

Ranks do not talk to each other: each leaves the run's mark in the folder, and none takes one with another run's mark.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from lightning_gpuprof.capture.journal_file import open_journal
from lightning_gpuprof.model.phases import Stage

JOURNAL_NAME = "rank{rank}.jsonl"
MARK = ".run-"

_LAUNCH = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
)
"""Variables that launchers give to all ranks of a run alike, and to each run anew."""

_stages = itertools.count()


def key_of_run(environ: Mapping[str, str], world_size: int) -> str:
    """What all ranks of this stage know and no other run has; a new one at each call.

    Args:
        environ: Environment variables of the process.
        world_size: Ranks of the run.
    """
    stage = next(_stages)
    if world_size == 1:
        return uuid.uuid4().hex[:12]
    known = "|".join([*(environ.get(name, "") for name in _LAUNCH), str(stage)])
    return hashlib.sha256(known.encode()).hexdigest()[:12]


def expand(dirpath: str) -> Path:
    """``~`` and ``$VARIABLES`` in a path that came from YAML, where nobody else expands them."""
    return Path(os.path.expandvars(dirpath)).expanduser()


def wanted(dirpath: str | None, stage: Stage, trainer: Any) -> Path:
    """Where a stage's folder should be: ``dirpath``, or beside the trainer's logs.

    Args:
        dirpath: The option; its last part gets the stage's name behind it unless the stage is ``fit``.
        stage: Which call is measured.
        trainer: The trainer, in its ``setup``.

    Returns:
        The folder. With MLflow's experiments in the log folder it is in ``trainer.default_root_dir``.
    """
    suffix = "" if stage == "fit" else f"-{stage}"
    if dirpath is not None:
        given = expand(dirpath)
        return given.with_name(given.name + suffix)
    # Lightning has just told its own profiler the log folder; asking `trainer.log_dir` is a collective.
    known = getattr(trainer.profiler, "dirpath", None)
    if known is None:
        known = trainer.log_dir if trainer.world_size == 1 else trainer.default_root_dir
    if known is not None and str(known) == _folder_of_experiments(trainer):
        known = None
    return Path(known or trainer.default_root_dir) / f"gpuprof{suffix}"


def _folder_of_experiments(trainer: Any) -> str | None:
    """Where MLflow keeps experiments, which Lightning takes for the log folder; it warns of any other folder in there.

    That of the run inside of it is known to the first rank only.
    """
    first = next(iter(getattr(trainer, "loggers", ())), None)
    if "MLFlowLogger" not in {kind.__name__ for kind in type(first).__mro__}:
        return None
    return str(getattr(first, "save_dir", None))


def create(wanted: Path, rank: int, key: str) -> tuple[Path, BinaryIO, str]:
    """Make the folder and this rank's journal in it.

    Args:
        wanted: The folder; ``-2``, ``-3``, … is added until it holds no other run.
        rank: Global rank.
        key: Of the run, from :func:`key_of_run`.

    Returns:
        The folder, the opened journal, and what went wrong with the wanted folder (empty if nothing).
    """
    name = JOURNAL_NAME.format(rank=rank)
    try:
        return *_create_in(wanted, name, key), ""
    except OSError as error:
        problem = f"{wanted} cannot be written ({error.strerror or error})"
    fallback = Path(tempfile.mkdtemp(prefix="gpuprof-"))
    return *_create_in(fallback, name, key), f"{problem}; the run is recorded in {fallback} instead"


def _create_in(wanted: Path, name: str, key: str) -> tuple[Path, BinaryIO]:
    for number in range(1, 10_000):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        folder.mkdir(parents=True, exist_ok=True)
        if any(mark.name != f"{MARK}{key}" for mark in folder.glob(f"{MARK}*")):
            continue
        try:
            journal = folder / name
            if journal.exists():
                continue
            (folder / f"{MARK}{key}").touch()
            return folder, open_journal(journal)
        except FileExistsError:
            continue
    raise OSError(f"{wanted} and 9,999 numbered folders beside it are taken")
