"""The records of a journal, in the order in which a run writes them: one JSON object per line.

A journal keeps what was measured and concludes nothing. Times are nanoseconds on the run's monotonic clock
(``time.perf_counter_ns``); the header ties that clock to the calendar. The first line is a :class:`Header`; readers
skip lines with an unknown tag and stop at a torn last line.
"""

import zlib
from typing import Annotated

import msgspec

from lightning_gpuprof.model.line_times import FunctionTimes
from lightning_gpuprof.model.memory import MemoryHistory, OutOfMemory
from lightning_gpuprof.model.phases import Phase, Region, SegmentKind, Stage

JOURNAL_VERSION = 2
"""Raised when a reader of the version before would read a record wrongly; new record types do not raise it."""

PROFILED = 1
"""Step flag: a trace window, or its warm-up, was open during the step."""
FIRST_OF_EPOCH = 2
"""Step flag: first step after an epoch start; its fetch includes the workers' start."""
CPU_SAMPLED = 4
"""Step flag: main-thread CPU time was read at every phase edge of this step."""
LAST_OF_EPOCH = 8
"""Step flag: the epoch ended with this step."""

DISTURBED = 16
"""Step flag: a window's trace was compressed and analysed on the same machine meanwhile."""

Value = str | int | float | bool | None


GRADIENT_WAIT = "wait for gradients"
"""Action of the time from the end of a rank's own backward until the gradients of all ranks are there."""


RankNumber = Annotated[int, msgspec.Meta(ge=0, lt=2**20)]
WorldSize = Annotated[int, msgspec.Meta(ge=1, le=2**20)]
"""A larger number is damage."""


class Header(msgspec.Struct, tag="header", tag_field="k", kw_only=True, omit_defaults=True):
    """First line: what wrote the journal, where, and how its clock relates to the calendar."""

    version: int
    gpuprof: str
    run_id: str
    stage: Stage
    rank: RankNumber
    world_size: WorldSize
    host: str
    pid: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    pid_space: str = ""
    """In which boot and PID namespace ``pid`` is that process; empty: not known."""
    start_ns: int
    """The run's clock when ``fit`` was entered."""
    epoch_ns: Annotated[int, msgspec.Meta(ge=0, lt=4_102_444_800 * 10**9)]
    """Unix time in nanoseconds at ``start_ns``; before the year 2100."""
    job: str = ""
    """The same on all ranks of the stage, and of no other run."""


class Slot(msgspec.Struct, tag="slot", tag_field="k", kw_only=True, omit_defaults=True):
    """A named place that time is charged to. Ids are dense and in order of first use."""

    id: int
    action: str
    """Lightning's action name, or the position between two actions that was given a name."""
    phase: Phase
    """What the time is in its own loop."""
    region: Region = "main"
    callback: str = ""
    """Whose hook it is: a callback's state key, or the LightningModule's class."""
    hook: str = ""
    annotation: str = ""
    """Name of a region of the user's own, inside of what the other fields say; nested names are joined by `` > ``."""

    @property
    def step_phase(self) -> Phase:
        """What the time is in a step: all of an inner evaluation loop is ``validation``, except its checkpoints."""
        return self.phase if self.region == "main" or self.phase == "checkpoint" else "validation"


class StepBlock(msgspec.Struct, tag="steps", tag_field="k", kw_only=True):
    """Consecutive training steps of one epoch without anything between them, as packed columns.

    A step begins where the one before ends, and its step time is the sum of its slots: neither needs a column.
    """

    first_batch: int
    """``total_batch_idx`` of the first step; the others follow by one."""
    start_ns: int
    """When the first step began."""
    global_step: int
    """Optimizer steps completed before the first step began."""
    epoch: int
    count: int
    """Steps."""
    widths: str
    """Of the columns in ``data``, see :mod:`lightning_gpuprof.model.packing`: optimizer steps completed since the step
    before, flags, then slot 0, 1, …: the exclusive time in ns of each step in that slot."""
    crc32: int
    """:meth:`checksum` of the block as it was written."""
    data: bytes

    def checksum(self) -> int:
        """CRC-32 of everything else in the block."""
        numbers = (self.first_batch, self.start_ns, self.global_step, self.epoch, self.count)
        return zlib.crc32(f"{numbers}{self.widths}".encode(), zlib.crc32(self.data))


STEP_COLUMNS = 2
"""Columns of a :class:`StepBlock` before those of the slots."""


class CpuBlock(msgspec.Struct, tag="cpu", tag_field="k", kw_only=True):
    """Main-thread CPU time of sampled steps, as packed columns.

    In microseconds: reading that clock takes a third of one, and finer digits would be half of a slow run's journal.
    """

    first_batch: int
    """``total_batch_idx`` of the first sampled step."""
    count: int
    """Sampled steps."""
    delay_known: bool
    """Whether the kernel reports how long the thread was ready to run but had no CPU."""
    widths: str
    """Of the columns in ``data``: batches since the sampled step before, that delay in us, then slot 0, 1, …: the
    exclusive CPU time in us of each step in that slot."""
    crc32: int
    """:meth:`checksum` of the block as it was written."""
    data: bytes

    def checksum(self) -> int:
        """CRC-32 of everything else in the block."""
        numbers = (self.first_batch, self.count, self.delay_known)
        return zlib.crc32(f"{numbers}{self.widths}".encode(), zlib.crc32(self.data))


CPU_COLUMNS = 2
"""Columns of a :class:`CpuBlock` before those of the slots."""
CPU_UNIT_NS = 1000


class KernelNames(msgspec.Struct, tag="kernel_names", tag_field="k", kw_only=True):
    """Numbers of kernels that no record before has."""

    names: dict[int, str]


class KernelBlock(msgspec.Struct, tag="kernels", tag_field="k", kw_only=True, omit_defaults=True):
    """Kernels summed by step and name, as packed columns."""

    first_batch: int
    """``total_batch_idx`` of the first row."""
    count: int
    """Rows."""
    widths: str
    """Of the columns in ``data``: batches since the row before, number of the kernel, calls, their time in ns."""
    crc32: int
    """:meth:`checksum` of the block as it was written."""
    data: bytes
    lost: int = 0
    """Kernels that are in no row."""

    def checksum(self) -> int:
        """CRC-32 of everything else in the block."""
        numbers = self.first_batch, self.count, self.lost
        return zlib.crc32(f"{numbers}{self.widths}".encode(), zlib.crc32(self.data))


KERNEL_COLUMNS = 4
MAX_KERNEL_ROWS = 65_536


class DeviceBlock(msgspec.Struct, tag="device", tag_field="k", kw_only=True, omit_defaults=True):
    """Device spans of sampled steps, in columns of equal length m; ``batch`` says which steps."""

    batch: list[int]
    charged: dict[int, list[int]]
    """Time in ns on the device's clock per slot, exclusive: from when the device had done what was queued before the
    slot's time to when it had done what was queued in it. The slots of a step sum to its whole span."""
    dropped_backlog: int = 0
    """Steps since the block before that were not measured because the device was too far behind."""
    dropped_capturing: int = 0
    """Likewise, because a graph was captured in them."""
    dropped_unusable: int = 0
    """Likewise, because they had too many edges, or edges on streams that do not follow each other."""


class Segment(msgspec.Struct, tag="segment", tag_field="k", kw_only=True, omit_defaults=True):
    """A stretch of wall time outside the steps, with the exclusive time in ns of each slot in it."""

    kind: SegmentKind
    start_ns: int
    end_ns: int
    charged: dict[int, int]
    epoch: int = 0


class Sample(msgspec.Struct, tag="sample", tag_field="k", kw_only=True, omit_defaults=True):
    """One reading of a sampler. A value that could not be had is ``None`` or absent, never 0."""

    source: str
    """``nvml``, ``host``, ``input`` or ``memory``."""
    subject: str
    """What was read: ``gpu0``, ``process``, ``workers``, ``loader0.worker1``, ``gpu0 forward`` (at that phase's end),
    ``held cpu float32``."""
    t_ns: int
    values: dict[str, float | None]
    """Names carry their unit, e.g. ``power_w``, ``memory_used_bytes``, ``utilization_ratio``."""


class ThreadLooks(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Another Python thread of the program."""

    cpu_ns: int = 0
    """CPU time."""
    sites: dict[str, int] = {}
    """``file:line function`` of the innermost frame of the user's code -> looks; also while it waits there."""


CALLS = ";"
"""Between a caller and what it calls, as in folded stacks."""


class CallSites(msgspec.Struct, tag="sites", tag_field="k", kw_only=True, omit_defaults=True):
    """Where the main thread was when it was looked at from outside: counts per slot and call site."""

    counts: dict[int, dict[str, int]]
    """slot id -> ``file:line function`` of each frame of the user's code, joined by :data:`CALLS`, the caller first ->
    looks; none in collectives."""
    looks: dict[int, int] = {}
    """slot id -> all looks."""
    weight: int = 1
    """How many looks each of these counts as, here and in threads: later ones are rarer and stand for more time."""
    in_collectives: dict[int, int] = {}
    """slot id -> looks in which it was in ``torch.distributed``: it waits for other ranks there."""
    threads: dict[str, ThreadLooks] = {}
    """Name -> other Python threads of the program since the record before."""
    threads_ns: int = 0
    """The time in which their CPU time was read."""
    lock: dict[int, tuple[int, int]] = {}
    """slot id -> how often our own thread asked for the interpreter, and how often of these it waited for a fifth
    of the switch interval (1 ms) or longer, as it does while another thread runs Python."""
    states: dict[int, dict[str, tuple[int, int, int]]] = {}
    """slot id -> ``file:line function`` of the innermost frame of the user's code -> of the looks there, those in
    Python, in native code and off the CPU; empty where the system does not know."""
    code: dict[str, str] = {}
    """``file:line function`` -> what is written in that line, of the places seen most; ``***`` for strings that may be
    secret."""
    sources: dict[str, str] = {}
    """Path -> the user's source file, without comments; ``***`` as above."""


class Standstill(msgspec.Struct, tag="standstill", tag_field="k", kw_only=True):
    """The main thread has passed no edge for long; another record every few seconds while that lasts."""

    t_ns: int
    since_ns: int
    """Its last edge."""
    slot: int
    """Where its time is charged to."""
    place: str
    """``file:line function`` of the innermost frame of the user's code, or of a library; empty if not known."""
    collective: str = ""
    """Function of torch.distributed in which it is, such as ``all_reduce``."""
    pending: str = ""
    """The first collective of the process that had not ended, such as ``all_reduce #4``; empty if not known."""
    busy: str = ""
    """What takes long without being a hang: ``compiling``, ``in a debugger``, or ``busy`` with a checkpoint or a batch
    of a validation; else empty."""


class WindowRecord(msgspec.Struct, tag="window", tag_field="k", kw_only=True, omit_defaults=True):
    """One trace window: planned, recorded, or why not."""

    start_step: int
    stop_step: int
    start_ns: int = 0
    stop_ns: int = 0
    file: str = ""
    """Name of the trace in the journal's folder; empty if none was written."""
    stop_cost_ns: int = 0
    """Time the main thread spent in stopping and exporting."""
    written_ns: int = 0
    """When its trace was found written; until then what it holds is in this process's memory."""
    problem: str = ""
    reason: str = ""
    """Why it was opened: ``planned``, ``steady``, ``every_n_steps``, ``slow step: …``, ``requested by …``."""


class Conditions(msgspec.Struct, tag="conditions", tag_field="k", kw_only=True):
    """Facts about the run, flat, with dotted names such as ``loader.num_workers``."""

    values: dict[str, Value]


class Notice(msgspec.Struct, tag="notice", tag_field="k", kw_only=True):
    """Something that could not be measured, or a part that was switched off after a failure."""

    part: str
    message: str


class MemoryHistoryRecord(msgspec.Struct, tag="memory_history", tag_field="k", kw_only=True):
    """What the allocator's history in a window says, replayed when it was recorded."""

    facts: MemoryHistory


class LineTimesRecord(msgspec.Struct, tag="line_times", tag_field="k", kw_only=True):
    """What the functions of ``lines=`` took so far; the last one of a journal counts."""

    functions: tuple[FunctionTimes, ...]


class OutOfMemoryRecord(msgspec.Struct, tag="out_of_memory", tag_field="k", kw_only=True):
    """The run ended because no memory was left."""

    facts: OutOfMemory


class Footer(msgspec.Struct, tag="end", tag_field="k", kw_only=True, omit_defaults=True):
    """Last line of a run that came to its end; absent after a kill."""

    end_ns: int
    status: str
    """``finished``, or ``interrupted: <exception class>``."""
    place: str = ""
    """``file:line function`` of the user's innermost frame that the exception came through."""
    left_collective: bool = False
    """The exception left a collective or a backward, as it does where another rank is gone."""
    global_step: int | None = None
    """Optimizer steps completed at the end, by the trainer's count."""
    overhead: dict[str, float]
    """The profiler's own cost, measured; names carry their unit."""


class Compilation(msgspec.Struct, tag="compilation", tag_field="k", kw_only=True, omit_defaults=True):
    """One piece of work of ``torch.compile``: a frame of Python, or a backward pass on its first use."""

    start_ns: int
    """On the run's clock; dynamo keeps calendar time, converted when it is read."""
    duration_ns: int
    id: str
    """Dynamo's: number of the code object ``/`` how often it was compiled before, e.g. ``0/1``."""
    kind: str
    """``frame``, ``backward`` or ``runtime`` (autotuning, recording of graphs)."""
    function: str = ""
    file: str = ""
    line: int = 0
    """First line of the function; of a function that resumes after a graph break, the line of the break."""
    reason: str = ""
    """Why it was compiled once more; empty the first time, and where torch does not say."""
    breaks: list[str] = []
    """Reasons of graph breaks within."""
    failure: str = ""
    cudagraph_skip: str = ""
    """Why no CUDA graph is used."""
    backend_ns: int | None = None
    """Part that AOTAutograd and the backend took."""
    inductor_ns: int | None = None
    """Part of that which inductor took."""
    guards: int | None = None
    operators: int | None = None


class CompilerCounts(msgspec.Struct, tag="compiler", tag_field="k", kw_only=True, omit_defaults=True):
    """Dynamo's own counters since the stage was entered; the last of a journal counts."""

    t_ns: int
    counts: dict[str, int]
    """``frames``, ``graphs``, ``graph_breaks`` and others, see ``capture/compilation.py``."""
    breaks: dict[str, int] = {}
    """Reason → how often."""
    lost: int = 0
    """Compilations that dynamo had forgotten before they were read; it keeps 64."""


Record = (
    Header
    | Slot
    | StepBlock
    | CpuBlock
    | DeviceBlock
    | KernelBlock
    | KernelNames
    | Segment
    | Sample
    | CallSites
    | Standstill
    | WindowRecord
    | Conditions
    | Notice
    | MemoryHistoryRecord
    | LineTimesRecord
    | OutOfMemoryRecord
    | Footer
    | Compilation
    | CompilerCounts
)
