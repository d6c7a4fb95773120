"""What one rank leaves for a comparison of all ranks: up to 30 kB, however long the run was."""

from __future__ import annotations

import zlib
from typing import Annotated

import msgspec
import numpy as np

from lightning_gpuprof.model.journal import RankNumber, WorldSize
from lightning_gpuprof.model.packing import Ints, pack, unpack
from lightning_gpuprof.model.phases import OutsidePart, Phase, Stage
from lightning_gpuprof.model.rank_memory import GpuNeed

SUMMARY_VERSION = 7
"""Raised when a reader of the version before would read a summary wrongly."""

MAX_STEPS = 512
"""Steady steps in a summary."""
MAX_LONGEST = 96
"""Of the steady steps of a longer run, the longest, each with the one before it, likewise."""
MAX_DEVICE_STEPS = 256
"""Steps measured on the device's clock, likewise."""
MAX_READINGS = 200
"""Readings of the CPUs that a rank uses, likewise."""
MAX_SENTENCES = 16
"""Notices, and trace windows, likewise."""
MAX_SITE_CHARACTERS = 200
"""Of a call site."""
MAX_EPOCHS = 64
"""Epochs whose batches are counted."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2**64 over the golden ratio: its multiples lie evenly, and in step with no period (Fibonacci hashing)."""
_LEADING = 2
"""Columns of a table before those of the phases: batches since the row before, step time."""


class StepTable(msgspec.Struct, kw_only=True):
    """Steady steps as packed columns, times in us: batches since the row before, step time, then ``phases``."""

    phases: tuple[Phase, ...]
    count: int
    widths: str
    crc32: int
    data: bytes

    @classmethod
    def of(cls, batch: Ints, period_ns: Ints, phases: dict[Phase, Ints]) -> StepTable:
        """Pack columns of shape (n,).

        Args:
            batch: Numbers of the steps, rising.
            period_ns: Step times.
            phases: Exclusive times in ns; those without any time are left out.

        Returns:
            Times in whole microseconds, rounded down.
        """
        taken = {phase: column for phase, column in phases.items() if column.any()}
        rows = [np.diff(batch, prepend=0), *(column // 1000 for column in (period_ns, *taken.values()))]
        widths, data = pack(np.array(rows, np.int64))
        return cls(phases=tuple(taken), count=len(batch), widths=widths, crc32=zlib.crc32(data), data=data)

    def columns(self) -> tuple[Ints, Ints, dict[Phase, Ints]]:
        """Batches, step times and times of the phases in ns, shape (n,); raises ValueError if the table is damaged."""
        columns = len(self.phases) + _LEADING
        if zlib.crc32(self.data) != self.crc32 or not 0 <= self.count <= MAX_STEPS or len(self.widths) != columns:
            raise ValueError("its steps are damaged")
        table = np.zeros((columns, self.count), np.int64)
        for group in unpack(self.widths, self.count, self.data):
            scale = 256 ** np.arange(len(group.planes), dtype=np.int64)
            table[group.columns] = np.tensordot(scale, group.planes, axes=1) + group.base[:, None]
        return np.cumsum(table[0]), table[1] * 1000, dict(zip(self.phases, table[_LEADING:] * 1000, strict=True))


class RankGpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The GPU of a rank that has one."""

    subject: str
    """``gpu1``, by its number in NVML."""
    name: str
    """Its model."""
    uuid: str
    sm_clock_mhz: float | None = None
    """Median while it was busy; None: not measured."""
    throttled: dict[str, float] = {}
    """Why its clocks were held down -> share of the busy samples."""


class RankSummary(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One rank of one stage."""

    version: int
    job: str
    """The same on all ranks of the stage."""
    stage: Stage
    rank: RankNumber
    world_size: WorldSize
    host: str
    pid: int
    pid_space: str
    """Both as in the header of its journal."""
    device: str
    """Type, such as ``cuda``; empty if not known."""
    start_ns: int
    """The rank's own clock when the stage was entered."""
    epoch_ns: int
    """Unix time then."""
    end_ns: int
    """On its own clock, when it ended or last wrote."""
    journal_bytes: int = 0
    """Size of the journal that is summed up; of a larger one that goes on its ends are."""
    status: str
    """As in the footer of its journal; empty if that has none."""
    failed_at: str = ""
    """``file:line function`` of the exception; empty if not known."""
    left_collective: bool = False
    """As in the footer of its journal."""
    batches: Annotated[int, msgspec.Meta(ge=0)]
    """Steps that it finished."""
    epochs: list[int]
    """Batches of its first epochs; empty if they were not all looked at."""
    steps: StepTable
    """What it waits for other ranks in its own phases is in ``sync``, as far as it can be separated."""
    longest: StepTable | None = None
    """Of a run with more: its longest ones. All ranks wait in them, in that step or the next; so they have the same
    ones, and the one before each."""
    steady_steps: int = 0
    """All of them."""
    steady_ns: int = 0
    """Their step times."""
    last_step_ns: int = 0
    """When its last step was over, on its own clock; else :attr:`start_ns`."""
    outside_s: dict[OutsidePart, float] | None = {}
    """Its own time outside of steps, by part, without waits that were seen; None if not all of it was looked at."""
    own_phases: tuple[Phase, ...] = ()
    """In which it waits for no other rank; on a device, whose host may wait for that in any other phase, only for
    batches."""
    run_delay_ratio: float | None = None
    """Median share of a step in which its main thread was ready to run but had no CPU; None: not measured."""
    strategy: str = ""
    """Class of the trainer's strategy."""
    device_steps: StepTable | None = None
    """Steps whose phases were measured on the device's own clock; ranks have not measured the same ones."""
    stands_in: Phase | None = None
    """Where it has not moved on for long, or had not when it ended; None: it moved."""
    stands_at: str = ""
    """``file:line function`` there; empty if not known."""
    stands_collective: str = ""
    """Function of torch.distributed there, with the collective's number in its group where torch knows it."""
    stands_s: float = 0.0
    busy: str = ""
    """As in :class:`~lightning_gpuprof.model.journal.Standstill`."""
    sites: dict[Phase, str] = {}
    """``file:line function`` of the user's code in which it was seen most, by phase."""
    memory: dict[str, float] = {}
    """What was read last in bytes: ``rss`` of its process, ``available`` on its host, ``gpu0 used``."""
    peak_rss_bytes: float | None = None
    """Most that its process held, if it trains on a CPU; None: not measured."""
    gpu: RankGpu | None = None
    """None: no samples, or of more than one."""
    gpu_need: GpuNeed | None = None
    """None: torch's allocator was not read."""
    batch_samples: float | None = None
    """Samples of a step; None: not known."""
    batch_length: float | None = None
    """Mean length of a row of tokens, with padding, in the few batches inspected; None: no such rows."""
    workers: float | None = None
    """DataLoader workers; None: not known."""
    read_bytes_per_s: float | None = None
    """From disks, by it and its workers, on average: what lies in the page cache is not in it. None: not measured."""
    tensor_parallel: int = 1
    """Ranks that share one copy of the model."""
    switch: str = ""
    """Network switch that its host is attached to; empty if not known."""
    pipeline_stage: int | None = None
    """Which part of the model it has; None: all, or not known."""
    xids: list[int] = []
    """Codes of the critical errors that the driver reported of its GPU."""
    notices: list[str] = []
    """What it could not measure, and why."""
    windows: list[str] = []
    """Its trace windows."""
    cpu_set: str = ""
    """CPUs that it may use."""
    cpu_t_s: list[float] = []
    """Since :attr:`start_ns`."""
    cpu_cpus: list[float] = []
    """CPUs that it and its workers used then."""

    @property
    def is_whole(self) -> bool:
        """Whether all of its journal was looked at, and not only the ends."""
        return self.outside_s is not None


def drawn(batch: Ints) -> Ints:
    """Indices of at most ``MAX_STEPS`` of the steps, ascending; ranks that never met draw steps of the same numbers."""
    place = batch.astype(np.uint64) * _GOLDEN
    rows = np.arange(len(batch))
    below = 64
    while len(rows) > MAX_STEPS:
        below -= 1
        rows = rows[place[rows] < np.uint64(1 << below)]
    return rows
