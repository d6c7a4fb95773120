"""What is computed from measured metrics once, for all rules that ask."""

import math
from collections.abc import Mapping

import msgspec

from lightning_gpuprof.model.cost import Cost
from lightning_gpuprof.model.memory import DeviceMemory
from lightning_gpuprof.model.missing import NOT_COMPUTED, Unmeasured
from lightning_gpuprof.model.numbers import possible
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.report import LedgerRow
from lightning_gpuprof.model.share import Measured, Share
from lightning_gpuprof.model.trace.communication import CollectiveTimes, Communication
from lightning_gpuprof.model.window import WindowFacts


class EpochGaps(msgspec.Struct, frozen=True, kw_only=True):
    """Time between epochs without a step, a validation, a checkpoint or the making of loaders."""

    count: int
    whole_s: float
    """All gaps together, at most the run."""
    lower_s: float
    """The median gap times their number, so that no single gap decides; at most ``whole_s``."""
    each_s: float
    """The median gap."""
    epoch_s: float
    """Median time of the steps of an epoch."""
    run_s: float
    """Wall time without set-up and tear-down."""
    rows: tuple[tuple[LedgerRow, float], ...]
    """Where a tenth of the gaps or more went, largest first, each with its share; without the start of workers."""


class WorkerStarts(msgspec.Struct, frozen=True, kw_only=True):
    """What it costs that the workers are started at every epoch but the first."""

    epoch_s: float
    """Median time of an epoch, with the gap before it."""
    cost_s: float
    """Median time until the first batch is there, without the ordinary wait."""
    lower_s: float
    """Of that, what no worker that stays alive would need: all of ``iter(dataloader)``, and of the whole time what is
    more than n * T, the longest that one of n workers can take for a batch in a steady run."""
    sum_s: float
    """Of all epochs but the first."""
    iterator_s: float
    """Median time of ``iter(dataloader)``."""
    wait_s: float
    """Ordinary wait for a batch."""


class HostLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the step that time of the host can hold up at most: the rest is hidden behind a device's work."""

    ratio: float | Unmeasured = NOT_COMPUTED
    """Anywhere in the step."""
    by_phase: Mapping[Phase, float] = msgspec.field(default_factory=dict)
    """While the host is in a phase; where windows show the idle time of the whole step only, that. Empty: no window
    shows the device."""
    stalls_ratio: float = 1.0
    """For certain, of what stops the host now and then, so that 0 is no proof of the opposite: on a device what it
    idles by the trace windows, which hardly hold such a stop, or by NVML, whichever shows more."""


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


class PythonTime(msgspec.Struct, frozen=True, kw_only=True):
    """Time per step of the main thread in Python, or in native code that is not torch's; milliseconds."""

    period_ms: float
    own_ms: float
    """Of forward and backward in untraced steps, without what the thread waited, also for a CPU, and without pauses of
    the garbage collector; with several ranks, where backward waits for others, of forward."""
    operators_ms: float | None
    """Self time of all operators in traced steps, which tracing makes longer; None: no window shows it."""
    python_ms: float
    """The part of these phases that is neither waiting nor an operator's: tracing makes only operators longer. Of
    windows with Python's stacks, which tracing does make longer, the lower bound."""
    lower_ms: float
    """The same as if operators took as long in untraced steps as in traced ones."""
    place: str
    """Where the main thread was most often seen in the longer of the two; empty if it was not looked at."""

    @property
    def python_ratio(self) -> float:
        """Share of :attr:`own_ms` that is certainly not torch's."""
        return self.lower_ms / self.own_ms if self.own_ms > 0 else 0.0


class FusedUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """All parameter tensors updated together, where they are updated one by one."""

    tensors: float
    ms: float
    """Estimate, per step."""
    is_known: bool
    """Whether the estimate is the most that was measured of such an optimizer."""
    saved: Cost
    """What the loop takes longer. Waiting for a CPU is no work of the optimizer: the certain part is without it."""


class OptimizerUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """The phase ``optimizer`` without the learning rate scheduler, or without a noticeable wait."""

    ms: float
    """Median, per step."""
    lower_ratio: float
    """Lower bound of its share of the step."""
    running_ratio: float
    """Share of the step time in which the main thread does not wait for a CPU."""
    fused: FusedUpdate | Unmeasured | None
    """None: the update is fused, or torch does not loop over its tensors."""


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """How full a GPU was at its fullest."""

    memory: DeviceMemory
    total_bytes: float
    needed_bytes: float
    """The allocator's peak of tensors, with what others hold beside it; what the allocator only keeps is not in it."""
    outside_bytes: float | None
    """Held by CUDA's context, NCCL and other processes: in use on the GPU beyond what torch had reserved. None: not
    known, and not in ``needed_bytes``."""

    @property
    def ratio(self) -> float:
        """Needed over total."""
        return self.needed_bytes / self.total_bytes

    @property
    def reserved_ratio(self) -> float | None:
        """Reserved and outside, over total; None: not measured."""
        reserved = self.memory.reserved_peak_bytes
        return None if reserved is None else (reserved + (self.outside_bytes or 0.0)) / self.total_bytes

    def times_larger_batch(self, filled_ratio: float) -> float:
        """How many times as large a batch may be, at least 1; infinite where activations were not measured.

        Args:
            filled_ratio: Share of the GPU's memory that it may fill.
        """
        held = self.memory.activations_bytes
        if held is None or not possible(held) or held <= 0:
            return math.inf
        return max(1.0, (filled_ratio * self.total_bytes - (self.needed_bytes - held)) / held)

    def steps_until_full(self, bytes_per_step: float) -> float | None:
        """At this growth; None if it is full already, or does not grow."""
        left = self.total_bytes - self.needed_bytes
        return None if left <= 0 or bytes_per_step <= 0 else left / bytes_per_step


class ModelMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What model and optimizers hold on the one GPU that they are on."""

    gradients_bytes: float | None
    """None: not counted."""
    optimizer_state_bytes: float


class MemoryHolders(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds the memory."""

    use: MemoryUse | Unmeasured = NOT_COMPUTED
    model: ModelMemory | Unmeasured = NOT_COMPUTED
    held_bytes: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Parameters, gradients, optimizer state and activations, at the moment when the memory ran out where it did; empty
    unless all are known."""

    @property
    def largest(self) -> str:
        """Who holds most; empty if that is not known."""
        kind = max(self.held_bytes, key=lambda name: self.held_bytes[name], default="")
        return kind if kind and self.held_bytes[kind] > 0 else ""


_LEAST_ALIKE = 3
"""Collectives of one size from which the fastest stands for the transfer. Heuristic."""

_SLOWEST_BYTES_PER_S = 1e9
"""No network that ranks train over is slower: 10 Gbit Ethernet carries 1.25 GB/s. Heuristic."""

_SLOWEST_IN_NODE_BYTES_PER_S = 4e9
"""Within a node: half of what PCIe 3.0 x8 carries (7.9 GB/s). Heuristic."""

_LONGEST_LATENCY_US = 100.0
"""What a collective needs beside its bytes. Heuristic: NCCL starts in 10 to 50 us."""


class CollectiveWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A window of training steps with communication on the device."""

    facts: WindowFacts
    communication: Communication
    steps: float
    """Untraced steps that take as long as the window, where much of its work was launched before it; else its own."""
    in_one_node: bool

    @property
    def exposed_ms(self) -> float:
        """Communication of a step that no computation covers, of the device with most of it."""
        return max((one.exposed_us for one in self.communication.devices), default=0.0) / 1e3 / self.steps

    @property
    def communication_ms(self) -> float:
        """Communication of a step, covered or not."""
        return max((one.communication_us for one in self.communication.devices), default=0.0) / 1e3 / self.steps

    @property
    def transfer_ratio(self) -> float:
        """Part of the exposed time that is transfer at most, of each size at its fastest.

        Ranks leave a collective together, so its duration holds the wait for the last rank; the fastest of one size
        waited least. That says nothing about sizes that are seen fewer than three times; what takes longer than the
        slowest link would need was waiting in any case. Collectives of unknown size count in full.
        """
        sizes = self.communication.sizes
        exposed_us = sum(one.exposed_us for one in sizes)
        slowest = _SLOWEST_IN_NODE_BYTES_PER_S if self.in_one_node else _SLOWEST_BYTES_PER_S
        transfer_us = sum(one.exposed_us * _most_transfer_ratio(one, slowest) for one in sizes)
        return transfer_us / exposed_us if exposed_us > 0 else 1.0

    def per_step(self, collective: CollectiveTimes) -> float:
        """How often a collective is in a step."""
        return collective.count / self.steps


class CollectiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of several ranks whose windows hold communication."""

    period_ms: float
    ranks: int
    windows: tuple[CollectiveWindow, ...]
    has_earlier_work: bool
    """All windows hold much work that was launched before them: it is not that of their steps, but its share of the
    time is that of as much untraced time."""

    @property
    def exposed(self) -> Measured:
        """Communication of a step that no computation covers."""
        return Measured.over([window.exposed_ms for window in self.windows])

    @property
    def largest(self) -> CollectiveWindow:
        """The window whose communication is exposed most."""
        return max(self.windows, key=lambda window: window.exposed_ms)


def _most_transfer_ratio(one: CollectiveTimes, slowest_bytes_per_s: float) -> float:
    if one.message_bytes is None or one.mean_us <= 0:
        return 1.0
    most_us = one.message_bytes / slowest_bytes_per_s * 1e6 + _LONGEST_LATENCY_US
    fastest_us = one.min_us if one.count >= _LEAST_ALIKE else one.mean_us
    return min(1.0, most_us / one.mean_us, fastest_us / one.mean_us)
