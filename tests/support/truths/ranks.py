"""A source of reports: a real fit on several ranks of the CPU, which exchange gradients through gloo."""

import multiprocessing
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from truths.fits import Fit
from truths.models import Kind
from truths.setup import Fault, Setup

_TIMEOUT_S = 150
_WORLD_SIZE = 2


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """A real fit of two ranks.

    Attributes:
        kind: Of the model.
        faults: By the rank in which they are planted.
        steps: Training steps of each rank.
    """

    kind: Kind
    faults: Mapping[int, tuple[Fault, ...]] = field(default_factory=dict)
    steps: int = 150

    def __call__(self, folder: Path, seed: int) -> Path:
        """Run all ranks; the first one writes the report.

        Raises:
            RuntimeError: A rank failed or did not end.
        """
        port = _free_port()
        context = multiprocessing.get_context("fork")  # faults are closures; nothing runs yet that a fork could break
        others = [context.Process(target=_run, args=(self, rank, port, folder, seed)) for rank in range(1, _WORLD_SIZE)]
        for other in others:
            other.start()
        try:
            report = _run(self, 0, port, folder, seed)
        except BaseException:
            for other in others:
                other.kill()  # it would wait for this rank
            raise
        finally:
            for other in others:
                other.join(_TIMEOUT_S)
                if other.exitcode is None:
                    other.kill()
        if any(other.exitcode for other in others):
            raise RuntimeError(f"a rank ended with {[other.exitcode for other in others]}")
        assert report is not None
        return report


def _run(ranks: Ranks, rank: int, port: int, folder: Path, seed: int) -> Path | None:
    os.environ |= {
        "TORCHELASTIC_RUN_ID": "truth",  # by which Lightning knows that its ranks are started already
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(_WORLD_SIZE),
        "LOCAL_WORLD_SIZE": str(_WORLD_SIZE),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
    }
    fit = Fit(kind=ranks.kind, faults=ranks.faults.get(rank, ()), steps=ranks.steps)
    if rank:
        fit.run(folder, seed, _distribute)
        return None
    return fit(folder, seed, _distribute)


def _distribute(setup: Setup) -> None:
    setup.items.size *= _WORLD_SIZE
    setup.trainer |= {"devices": _WORLD_SIZE, "strategy": "ddp"}


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
