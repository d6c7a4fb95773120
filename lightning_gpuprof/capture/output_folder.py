"""Finds the folder of a run: never over an earlier run, the same for all ranks, a temporary one where none can be made.

Ranks do not talk to each other: the first one leaves the run's mark in the folder, and none takes one with another.
What they have in common is in their launcher's environment, whose variables are known on every node. With one node
there is more: what was handed to all ranks.
"""

import hashlib
import itertools
import os
import stat
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from lightning_gpuprof.capture.fence import suppress_exceptions
from lightning_gpuprof.capture.journal_file import open_journal
from lightning_gpuprof.model import run_folders
from lightning_gpuprof.model.phases import Stage

JOURNAL_NAME = "rank{rank}.jsonl"
MARK = ".run"
"""File with the key of the run that a folder belongs to."""
_WRITING_S = 1.0
"""How long a mark may be empty while somebody writes it."""

_stages = itertools.count()

_SHARED_VARIABLES = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_RESTART_COUNT",
    "LSB_JOBID",
    "PBS_JOBID",
    "RAY_JOB_ID",
    "PMIX_NAMESPACE",
)
"""Variables that launchers give to all ranks of a run alike, and differently to each run."""


def run_key(launch: str, world_size: int) -> str:
    """What all ranks of this stage know and no other run has; a new one at each call.

    Args:
        launch: What the ranks of the job have in common, see :func:`launch_key`.
        world_size: Ranks of the run.

    Returns:
        12 hexadecimal digits: random for one rank, else the same in all ranks that have come to as many stages.
    """
    stage = next(_stages)
    if world_size == 1:
        return uuid.uuid4().hex[:12]
    return hashlib.sha256(f"{launch}|{stage}".encode()).hexdigest()[:12]


def expand(dirpath: str) -> Path:
    """``~`` and ``$VARIABLES`` in a path that came from YAML, where nobody else expands them."""
    return Path(os.path.expandvars(dirpath)).expanduser()


def target_folder(dirpath: str | None, stage: Stage, trainer: Any) -> Path:
    """Where a stage's folder should be: ``dirpath``, or beside the trainer's logs.

    Args:
        dirpath: The option; its last part gets the stage's name behind it unless the stage is ``fit``. An address of
            another machine is where the folder is copied to.
        stage: Which call is measured.
        trainer: The trainer, in its ``setup``.

    Returns:
        The folder. With MLflow's experiments in the log folder it is in ``trainer.default_root_dir``; where that is an
        address such as ``s3://bucket/run``, in the current folder: a journal grows while it is written. Instead of the
        working folder of a worker of Ray Train, which others cannot see, it is in the storage of the run. Where the log
        folder is that of checkpoints, it is beside it, because Lightning warns of anything else in there, and so may
        break what loads every file of it.
    """
    suffix = "" if stage == "fit" else f"-{stage}"
    if dirpath is not None and is_local_path(dirpath):
        given = expand(dirpath)
        return given.with_name(given.name + suffix)
    # Lightning has just given its own profiler the log folder; asking `trainer.log_dir` is a collective.
    known = getattr(trainer.profiler, "dirpath", None)
    if known is None:
        known = trainer.log_dir if trainer.world_size == 1 else trainer.default_root_dir
    if known is not None and str(known) == _experiments_folder(trainer):
        known = None
    folders = [str(folder) for folder in (known, trainer.default_root_dir) if folder]
    folder, name = Path(next((folder for folder in folders if is_local_path(folder)), Path.cwd())), f"gpuprof{suffix}"
    if folder.absolute().is_relative_to(Path.cwd()):
        folder = _storage_of_ray() or folder
    return run_folders.sibling(folder.absolute(), name) if _is_for_checkpoints(folder, trainer) else folder / name


def is_local_path(folder: str) -> bool:
    """Whether it is a path, and no address of another machine."""
    return "://" not in folder


def _storage_of_ray() -> Path | None:
    """Folder of the run to which a worker of Ray Train saves; None: this is none, or it saves to an address.

    As of Ray 2.60. Only read: whatever Ray raises means that there is none.
    """
    with suppress_exceptions():
        storage = sys.modules["ray.train"].get_context().get_storage()
        if storage.storage_filesystem.type_name == "local":
            return Path(storage.experiment_fs_path)
    return None


def _is_for_checkpoints(folder: Path, trainer: Any) -> bool:
    """Whether a callback is to save into this very folder, and there is room beside it.

    There is none outside of the folder in which the program works, of a disk that was mounted for the run, and where
    nothing can be written.
    """
    folder = folder.absolute()
    folders = [getattr(callback, "dirpath", None) for callback in getattr(trainer, "checkpoint_callbacks", ())]
    if not any(path and Path(path).absolute() == folder for path in folders):
        return False
    around = next((parent for parent in folder.parents if parent.exists()), None)
    if around is None or Path.cwd().is_relative_to(folder) or folder.is_mount():
        return False
    return os.access(around, os.W_OK | os.X_OK)


def _experiments_folder(trainer: Any) -> str | None:
    """Where MLflow keeps experiments, which Lightning takes for the log folder; it warns of any other folder in there.

    That of the run inside of it is known to the first rank only.
    """
    first = next(iter(getattr(trainer, "loggers", ())), None)
    if "MLFlowLogger" not in {kind.__name__ for kind in type(first).__mro__}:
        return None
    return str(getattr(first, "save_dir", None))


def create(target_folder: Path, rank: int, key: str) -> tuple[Path, BinaryIO, str]:
    """Make the folder and this rank's journal in it.

    Args:
        target_folder: The folder; ``-2``, ``-3``, … is added until it has no other run.
        rank: Global rank.
        key: Of the run, from :func:`run_key`.

    Returns:
        The folder's whole path, the opened journal, and what went wrong with the target folder (empty if nothing).
    """
    name = JOURNAL_NAME.format(rank=rank)
    try:
        return *_create_in(target_folder.absolute(), name, key), ""  # the program may change its working folder
    except OSError as error:
        problem = f"{target_folder} cannot be written ({error.strerror or error})"
    fallback = _temporary_folder(key)
    return *_create_in(fallback, name, key), f"{problem}; the run is recorded in {fallback} instead"


def _temporary_folder(key: str) -> Path:
    """One for all ranks of the run on this machine, which nobody else can write to."""
    folder = Path(tempfile.gettempdir()) / f"gpuprof-{key}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == getattr(os, "getuid", lambda: found.st_uid)():
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="gpuprof-"))


def _create_in(target_folder: Path, name: str, key: str) -> tuple[Path, BinaryIO]:
    for number in range(1, 10_000):
        folder = target_folder if number == 1 else target_folder.with_name(f"{target_folder.name}-{number}")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            if _claim(folder, key):
                return folder, open_journal(folder / name)
        except FileExistsError:
            continue
    raise OSError(f"{target_folder} and 9,999 numbered folders beside it are taken")


def _claim(folder: Path, key: str) -> bool:
    """Whether the folder has the run's mark, or had none and no journals: then it gets one, of one of all who try."""
    mark = folder / MARK
    # In this order: a rank that begins meanwhile leaves the mark before its journal.
    if any(folder.glob(JOURNAL_NAME.format(rank="*"))) and not mark.exists():
        return False
    try:
        with mark.open("x") as file:
            file.write(key)
        return True
    except FileExistsError:
        end = time.monotonic() + _WRITING_S
        while not (found := mark.read_text()) and time.monotonic() < end:
            time.sleep(0.01)
        return found == key


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where an object was made; one that was spawned or forked into the ranks of a job has what they share."""

    pid: int = msgspec.field(default_factory=os.getpid)
    token: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def shared_token(self) -> str:
        """The same in all processes that the object was handed to, and in no others; empty where it was made."""
        return "" if self.pid == os.getpid() else self.token


def launch_key(trainer: Any, origin: Origin, environ: Mapping[str, str]) -> str:
    """What the ranks of this job have in common.

    Not who started them: ranks that somebody starts by hand, with ``RANK`` set for each, look like those that the first
    rank started. Where that one did, it has drawn the port.

    Args:
        trainer: In its ``setup``.
        origin: Of something that the trainer holds.
        environ: Environment variables of the process.

    Returns:
        World size, variables of launchers, and on a single node what its processes share, joined by ``|``.
    """
    known = [str(trainer.world_size), *(environ.get(name, "") for name in _SHARED_VARIABLES)]
    if trainer.num_nodes == 1:
        known += [origin.shared_token, _agent_folder(environ)]
    return "|".join(known)


def _agent_folder(environ: Mapping[str, str]) -> str:
    """Made by torchrun for each start of the ranks on a node; its run id is ``none`` unless somebody sets one."""
    file = environ.get("TORCHELASTIC_ERROR_FILE", "")
    return str(Path(file).parent.parent) if file and environ.get("GROUP_WORLD_SIZE") == "1" else ""
