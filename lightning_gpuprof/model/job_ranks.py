"""What ``gpuprof ranks`` says of a job: where each rank is, and which of them the others wait for."""

from typing import Literal

import msgspec

from lightning_gpuprof.model.curves import Ranks
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.phases import Stage

State = Literal["killed", "failed", "silent", "hanging", "unreadable", "missing", "stopped", "running", "finished"]
"""The most pressing first. ``silent``: it has written nothing for long, and whether its process lives is not known.
``hanging``: it makes no progress and does not just compile or the like, or it waits for such a rank. ``stopped``: by
Ctrl-C or SIGTERM."""
GONE_S = 600.0
"""A rank that has written nothing for so long has stopped, even if its process lives. Heuristic."""


class RankState(msgspec.Struct, kw_only=True, frozen=True):
    """One rank."""

    rank: int
    state: State
    host: str = ""
    batches: int | None = None
    """That it finished; None: not known."""
    written_s: float | None = None
    """Since its journal was last written to, which a living rank does every five seconds."""
    waits: bool = False
    """It stands where ranks wait for each other."""
    has_journal: bool = False
    """Its report can be made."""
    has_stacks: bool = False
    """It recorded the stacks of its threads when it made no progress."""
    detail: str = ""
    """Its exception and the line, the line where it hangs, or why it cannot be read."""


class JobRanks(msgspec.Struct, kw_only=True, frozen=True):
    """All ranks of a job."""

    folder: str
    """Or the address that it is a copy of."""
    stage: Stage
    world_size: int
    answer: str
    """One sentence."""
    is_over: bool
    """No rank goes on."""
    ranks: tuple[RankState, ...]
    worst: tuple[int, ...]
    """At most five ranks, the most pressing first."""
    ends: tuple[str, ...]
    """How ranks stand or ended beside each other, as in the report."""
    problems: tuple[str, ...]
    """Journals that were left out, and why."""
    findings: tuple[Finding, ...]
    """Of the rules on late and unequal ranks, as in the report."""
    comparison: Ranks | None
    """Own times; None if fewer than two ranks can be compared."""
    not_compared: str
    """Why not; empty if they were."""
