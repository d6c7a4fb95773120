"""What a case is: a run whose truth is known, and what the diagnosis is to say about it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from lightning_gpuprof.model.finding import VerdictKind

Group = Literal["fault", "pair", "healthy", "decoy"]


class Source(Protocol):
    """Whatever gives a report: a real fit, a recorded trace, a scripted GPU."""

    def __call__(self, folder: Path, seed: int) -> Path:
        """Run, in a process of its own.

        Args:
            folder: For files of the run.
            seed: Of everything that is drawn.

        Returns:
            The ``report.json``.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run whose truth is known.

    Attributes:
        name: What it is called.
        source: Gives the report.
        group: ``healthy`` has no fault; ``decoy`` has something that looks like one; ``pair`` has two faults.
        expected: For each planted fault, largest first, the rules any of which names it. A fault none of whose rules
            exists yet is counted as waiting, and not as missed.
        verdicts: Kinds that are right; empty: not judged.
        allowed: Rules that may speak besides, because what they say is true, too.
        must_judge: Rules that have to be able to judge: the silence of one that lacks its signal proves nothing. Of a
            healthy run they may not even say it as information.
        cure: Name of what applies the advice, in :data:`truths.cures.CURES`; empty: none here.
        of_peers: Also run under other tools.
    """

    name: str
    source: Source
    group: Group = "fault"
    expected: tuple[tuple[str, ...], ...] = ()
    verdicts: tuple[VerdictKind, ...] = ()
    allowed: tuple[str, ...] = ()
    must_judge: tuple[str, ...] = ()
    cure: str = ""
    of_peers: bool = False
