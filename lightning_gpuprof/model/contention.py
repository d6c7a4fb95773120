"""How the main thread waits for a CPU, and who takes the CPUs of the run."""

import msgspec

from lightning_gpuprof.model.missing import NOT_COMPUTED, Unmeasured
from lightning_gpuprof.model.share import Share


class Contention(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting for a CPU, and what of the run wants one. None: not measured."""

    delay: Share | Unmeasured = NOT_COMPUTED
    """Share of the step in which the main thread is ready to run but has no CPU."""
    by_this_run: bool = False
    """It is this run that leaves its main thread without a CPU, and not other programs."""
    quota_exhausted_ratio: float | None = None
    """Share of its periods in which the control group's quota was used up."""
    threads: int | None = None
    """On which torch computes."""
    workers: int = 0
    """Of the loader that sets the pace; 0 where it is not known."""
    computing_workers: int = 0
    """Those that want a CPU: none of them where they were measured to mostly wait, for storage as a rule."""
    others_cpus: float | None = None
    """CPUs of this run that other processes use, on average."""
    ranks_cpus: float | None = None
    """CPUs of this run that other ranks of the job use, on average; also None: there are none."""
