"""Memory as data: what holds it, how much in which phase, how it grows, what was there when it ran out.

None is "not measured". Bytes of the allocator are those of torch's caching allocator in this process; what others hold
on the same device (CUDA's context, NCCL, other processes) is not in them.
"""

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

from lightning_gpuprof.model.missing import NOT_COMPUTED, Unmeasured
from lightning_gpuprof.model.numbers import possible

MemoryPhase = Literal["h2d", "forward", "zero_grad", "backward", "optimizer", "step"]
"""Phases at whose end the allocator is read, in the order of a step; ``step`` is a step's very end."""

MEMORY_PHASES: tuple[MemoryPhase, ...] = ("h2d", "forward", "zero_grad", "backward", "optimizer", "step")

HOLDERS = ("parameters", "buffers", "gradients", "optimizer_state")
"""What the model and its optimizers hold; a storage that several share counts once, for the first of these."""

NO_PYTHON = "(no Python stack)"
"""Place of allocations that were made where no Python code runs, such as backward threads."""


class Held(msgspec.Struct, kw_only=True, frozen=True):
    """Exact bytes of the storages of one device and dtype. The storage of a view counts whole."""

    device: str
    dtype: str
    parameters_bytes: int = 0
    buffers_bytes: int = 0
    gradients_bytes: int | None = 0
    """None: there were none whenever it was looked, or nobody looked."""
    optimizer_state_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All four together."""
        return self.parameters_bytes + self.buffers_bytes + (self.gradients_bytes or 0) + self.optimizer_state_bytes


class PhaseMemory(msgspec.Struct, kw_only=True, frozen=True):
    """The allocator at the end of one phase: medians after warm-up."""

    phase: MemoryPhase
    samples: int
    """Steps in which it was read."""
    allocated_bytes: float
    """Held by tensors."""
    reserved_bytes: float | None
    """Taken from the device by torch."""
    active_bytes: float | None
    """Held by tensors, or freed but still in use by a stream."""
    inactive_split_bytes: float | None
    """Free pieces of blocks that are partly in use."""
    growth_bytes: float | None
    """Over the end of the phase before."""
    peak_rise_bytes: float | None
    """By how much the run's peak rose in this phase, in the steps that were read at every phase's end."""


class Growth(msgspec.Struct, kw_only=True, frozen=True):
    """How a quantity went over the run, after warm-up."""

    what: str
    """``gpu0 allocated``, ``process rss``, ``workers rss``."""
    samples: int
    steps: int
    """From the first sample to the last."""
    first_bytes: float
    """On the line of that slope through the median."""
    last_bytes: float
    """Likewise."""
    bytes_per_step: float
    """Median of the slopes between samples of the same point of the step (Theil, Sen)."""
    p_value: float
    """Chance of such a trend without any growth, two-sided (seasonal Kendall test, points of the step as seasons)."""
    epochs: int | None = None
    """In which samples were taken; None: not known."""
    bytes_per_step_across_epochs: float | None = None
    """Median of the slopes from one epoch to the same position in the next one, without what each epoch clears. None: a
    single epoch."""

    @property
    def kept_bytes_per_step(self) -> float:
        """The slope, as far as it is no more than what stays from one epoch to the next."""
        across = self.bytes_per_step_across_epochs
        return self.bytes_per_step if across is None else min(self.bytes_per_step, across)

    @property
    def kept_bytes(self) -> float:
        """The growth over all steps, likewise."""
        grown = self.last_bytes - self.first_bytes
        return grown if self.bytes_per_step_across_epochs is None else min(grown, self.kept_bytes_per_step * self.steps)


class SourceHolder(msgspec.Struct, kw_only=True, frozen=True):
    """Memory that one source line had allocated and that was still held."""

    place: str
    """``file:line function`` of the innermost line of the user's code; of torch's where there is none."""
    held_bytes: int
    count: int


class MemoryHistory(msgspec.Struct, kw_only=True, frozen=True):
    """What the allocator's history of a stretch of steps says, replayed event by event."""

    reason: str
    """``window`` or ``out of memory``."""
    start_step: int
    """Optimizer steps completed at its start."""
    stop_step: int
    """Optimizer steps completed at its end."""
    device: int
    events: int
    """Allocations and frees that were replayed."""
    peak_bytes: int
    """Most bytes that were allocated at one time, as requested (the allocator rounds up)."""
    at_peak: tuple[SourceHolder, ...] = ()
    """The largest first; what stands for the rest comes last and is called ``others``."""
    at_failure: tuple[SourceHolder, ...] = ()
    """Of an out-of-memory: likewise, at that moment."""
    before_bytes: int = 0
    """Of the peak: allocated before the history began, so that no line is known."""
    peaks_by_phase: dict[str, int] = {}
    """Most bytes allocated at one time within each phase."""
    file: str = ""
    """Pickle for pytorch.org/memory_viz in the run's folder. Unpickling runs code: open only files of your own."""
    problem: str = ""
    """What is missing; empty if all is well."""


class HeldPieces(msgspec.Struct, kw_only=True, frozen=True):
    """Allocated pieces of one size."""

    size_bytes: int
    count: int


class OutOfMemory(msgspec.Struct, kw_only=True, frozen=True):
    """What is known of the moment when no memory was left."""

    message: str
    batch: int
    """``total_batch_idx`` of the step."""
    global_step: int
    phase: str
    place: str
    """``file:line function`` of the innermost line of the user's code."""
    requested_bytes: int | None = None
    total_bytes: int | None = None
    device_free_bytes: int | None = None
    """By the message, to two decimals of its unit."""
    allocated_bytes: int | None = None
    """Held by tensors at that moment."""
    reserved_bytes: int | None = None
    """Taken from the device by torch."""
    allocated_peak_bytes: int | None = None
    inactive_split_bytes: int | None = None
    """Free pieces of blocks that are partly in use."""
    free_in_reserved_bytes: int | None = None
    """Reserved by torch and held by no tensor."""
    largest_free_bytes: int | None = None
    """Largest single piece of it."""
    free_pieces_count: int | None = None
    """How many pieces these are."""
    retries_count: int | None = None
    held: tuple[Held, ...] = ()
    other_bytes: int | None = None
    """Allocated on the device and held neither by parameters, buffers, gradients nor optimizer state: activations."""
    history: MemoryHistory | None = None
    """By source line, where the allocator's history was recorded."""
    history_absent: str = ""
    pieces: tuple[HeldPieces, ...] = ()
    """The ten sizes with most memory. Many pieces of one size are layers or kept steps."""
    snapshot_file: str = ""
    """The allocator's snapshot of that moment, for pytorch.org/memory_viz."""


class DeviceMemory(msgspec.Struct, kw_only=True, frozen=True):
    """torch's allocator on one device over the run."""

    name: str
    total_bytes: int | None
    samples: int
    """Readings of the allocator."""
    allocated_peak_bytes: float
    """The user's own peak counter at the last sample; it was never reset by us."""
    reserved_peak_bytes: float | None
    """Most that torch had taken from the device."""
    peak_ratio: float | None
    """Reserved peak over the device's total."""
    headroom_bytes: float | None
    """The device's total less the reserved peak; what others hold there is not taken off."""
    inactive_split_at_peak_bytes: float | None
    """Free pieces of blocks that are partly in use, in the sample with the most allocated bytes."""
    fragmentation_ratio: float | None
    """These over the bytes reserved in that sample."""
    unused_ratio: float | None
    """(reserved peak - allocated peak) / reserved peak."""
    retries_count: int | None
    """Allocations that had to give cached memory back to the device first."""
    retries_steady_count: int | None
    """Of these, after warm-up."""
    ooms_count: int | None
    """Allocations that failed for good."""
    device_allocs_steady_count: int | None
    """Calls of ``cudaMalloc`` (or mappings of expandable segments) after warm-up."""
    device_frees_steady_count: int | None
    """Calls of ``cudaFree`` (or unmappings) after warm-up."""
    steady_steps: int | None
    """Over which those two were counted."""
    allocations_per_step: float | None = None
    """Mostly from torch's cache."""
    activations_bytes: float | None
    """Allocated at the end of forward and held neither by parameters, buffers, optimizer state nor live gradients."""
    activations_ratio: float | None
    """Of the allocated peak."""
    gradients_live_in_forward: bool | None
    """Whether the gradients of the step before were still held at the end of forward."""
    peak_phase: MemoryPhase | None
    """Phase in which the run's peak was reached; None: not known."""
    phases: tuple[PhaseMemory, ...] = ()


class Memory(msgspec.Struct, kw_only=True, frozen=True):
    """``memory`` of ``report.json``."""

    process_rss_peak_bytes: float | None = None
    """Most resident memory of the main process."""
    devices: tuple[DeviceMemory, ...] = ()
    """Empty: no caching allocator was read, as on a CPU."""
    held: tuple[Held, ...] = ()
    growth: tuple[Growth, ...] = ()
    histories: tuple[MemoryHistory, ...] = ()
    out_of_memory: OutOfMemory | None = None


def outside_bytes(used: float | None, reserved: float | None, total: float | None) -> float | None:
    """What is in use on a GPU beyond what torch has reserved there.

    Args:
        used: Most that the driver reported in use.
        reserved: Most that torch had reserved.
        total: Size of the memory; None: not known.

    Returns:
        Bytes, 0 or more; None: not known.
    """
    if used is None or reserved is None:
        return None
    return max(0.0, (used if total is None else min(used, total)) - reserved)


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
        """How many times as large a batch fills so much of the memory, at least 1; inf if activations are unknown."""
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
