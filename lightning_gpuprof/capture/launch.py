"""Identifies a job from its launcher's environment: the same for all its ranks, without communication.

Variables that launchers set are known on every node. With one node there is more: what was handed to all ranks.
"""

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
"""Variables that launchers give to all ranks of a run alike, and to each run anew."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where an object was made; one that was spawned or forked into the ranks of a job has what they share."""

    pid: int = field(default_factory=os.getpid)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

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
    """
    known = [str(trainer.world_size), *(environ.get(name, "") for name in _SHARED_VARIABLES)]
    if trainer.num_nodes == 1:
        known += [origin.shared_token, _agent_folder(environ)]
    return "|".join(known)


def _agent_folder(environ: Mapping[str, str]) -> str:
    """Made by torchrun anew for each start of the ranks on a node; its run id is ``none`` unless somebody sets one."""
    file = environ.get("TORCHELASTIC_ERROR_FILE", "")
    return str(Path(file).parent.parent) if file and environ.get("GROUP_WORLD_SIZE") == "1" else ""
