"""What the busiest device does in an untraced step: the one answer that the verdict, the engine and all rules share."""

from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from lightning_gpuprof.model.device_copies import DeviceCopies
from lightning_gpuprof.model.missing import NOT_COMPUTED, Unmeasured, measured
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.idle import DeviceIdle, IdleCause, IdleGap
from lightning_gpuprof.model.trace.sync_points import SyncSite
from lightning_gpuprof.model.window import WindowFacts

_LATE_LAUNCH: tuple[IdleCause, ...] = ("launch", "launch_latency")

HOST_SLICES: tuple[Phase, ...] = ("data_wait", "sync", "h2d", "callbacks", "logging", "loop")
"""Phases around the model, in the order in which they claim a device's idle time: the method's precedence."""

STARVED_RATIO = 0.15
"""Share of the step in which the device has no work because the host is late, from which the host is the bottleneck and
not the kernels. The method's decision tree."""

WaitCause = Literal["progress bar", "gradient scaler", "batch upload", "host tensor", "rank check", "code"]
"""Who makes the host wait: a progress bar that shows a tensor; the scaler of 16-bit gradients; a copy of pageable
memory to the device, outside of or within the model's phases; Lightning's check of all ranks at the begin of a step;
anything else, which is the code of the model or of a callback."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """One place that makes the host wait, in an untraced step."""

    site: SyncSite
    where: str
    """The line of user code, else the hook, else the module, range or phase around it."""
    per_step: float
    """How often."""
    cost_ms: float
    """Idle time of the device that it causes, per step."""


class HostWaits(msgspec.Struct, frozen=True, kw_only=True):
    """All waits of one cause in ordinary steps. Causes do not overlap: each explains idle time of its own."""

    period_ms: float
    waits: tuple[Wait, ...]
    """Costliest first."""
    lower_ms: float
    """Of :attr:`cost_ms`."""
    blocked_ms: float
    """Time per traced step for which the host is blocked: not the cost, because the device is busy then."""

    @property
    def per_step(self) -> float:
        """How often the host waits."""
        return sum(wait.per_step for wait in self.waits)

    @property
    def most_per_step(self) -> float:
        """How often the place is met that is met most often."""
        return max(wait.per_step for wait in self.waits)

    @property
    def cost_ms(self) -> float:
        """Idle time of the device that they cause, per step."""
        return sum(wait.cost_ms for wait in self.waits)

    @property
    def ratio(self) -> float:
        """The cost as a share of the step."""
        return self.cost_ms / self.period_ms

    @property
    def worst(self) -> Wait:
        """The costliest place."""
        return self.waits[0]


class ClockLoss(msgspec.Struct, frozen=True, kw_only=True):
    """What holds a busy GPU's clock down, and what that costs."""

    device: str
    ratio: float
    """Of its speed at the maximum clock, over all busy samples."""
    reason: str
    """NVML's (a key of :data:`~lightning_gpuprof.model.clock_events.REASONS`)."""
    clock_mhz: float
    """Median while the reason held."""
    most_mhz: float
    """The maximum clock."""
    held_ratio: float
    """Share of the busy samples in which it held."""


class DeviceStep(msgspec.Struct, frozen=True, kw_only=True):
    """The busiest device in an untraced step. Tracing slows the host down, hardly the device.

    ``idle_ratio``, ``computing_ratio``, ``exposed_communication_ratio`` and ``exposed_copy_ratio`` sum to 1.
    """

    source: str
    """Where the idle time is known from, as words."""
    period_ms: float
    """Median of steady untraced steps."""
    pace_ms: float
    """Time in which the device gets the work of one step: the step time, or the mean step if that is shorter."""
    busy_ms: float
    """Work of a step; more than ``pace_ms`` where the window's steps have more of it."""
    idle_ms: float
    """What is left of ``pace_ms``."""
    exposed_communication_ratio: float = 0.0
    """Kernels of NCCL or RCCL that no computation covers; holds the wait for other ranks."""
    above_fastest_ratio: float | None = None
    """Of the time of collectives: what is above the fastest of their kind and size, and so no transfer but a wait for
    other ranks, or links that others use. None unless that is known of half of the time."""
    exposed_copy_ratio: float = 0.0
    """Copies and memsets that no computation covers."""
    upload_ratio: float = 0.0
    """Of ``exposed_copy_ratio``: at most so much from host to device."""
    idle_in_phase: Mapping[Phase, float] = msgspec.field(default_factory=dict)
    """Share of a phase's time in which the device is idle; phases that the window does not show are left out."""
    idle_by_phase: Mapping[Phase, float] = msgspec.field(default_factory=dict)
    """Share of the step in which the device is idle and the host in a phase around the model: what that phase costs.
    Together at most :attr:`idle_ratio`."""
    causes: Mapping[IdleCause, float] = msgspec.field(default_factory=dict)
    """What the idle time is due to that is no fetch, callback, checkpoint or validation; sums to 1, or is empty."""
    window: WindowFacts | None = None
    """The window that this is from; None where only NVML's utilization is known. That counts a sample period with one
    kernel as busy, so the device is then idle for at least ``idle_ms``."""
    sees_fetch: bool = False
    """Whether the window shows the device before and after enough of its fetches, or has no ranges of fetches."""
    utilization_idle_ratio: float | None = None
    """Idle share of the whole training by NVML's utilization; None: too few samples, or too much beside the steps."""
    clock_loss: ClockLoss | None = None
    """Of all GPUs of the run the largest; None: nothing holds their clocks down, or too few samples show it."""
    why_unexplained: str = ""
    """Why this is no :class:`ExplainedStep`."""

    @property
    def idle_ratio(self) -> float:
        """Idle share of the time that the device has for a step."""
        return self.idle_ms / self.pace_ms

    @property
    def starved_ratio(self) -> float:
        """Share of the step in which the device is idle although the host is in the model's own phases."""
        return max(0.0, self.idle_ratio - sum(self.idle_by_phase.values()))

    @property
    def computing_ratio(self) -> float:
        """The rest: kernels that do not communicate, and what they cover."""
        return 1.0 - self.idle_ratio - self.exposed_communication_ratio - self.exposed_copy_ratio

    @property
    def steps(self) -> int:
        """Traced steps."""
        return 0 if self.window is None else len(self.window.steps_us)


class GapPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Long gaps with the same place on the host."""

    place: str
    phase: str
    gaps: int
    steps: int
    """Steps that have one."""
    traced_ms: float
    """Per traced step."""
    longest_ms: float
    allocates: bool


class LaunchCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of the function that launches most kernels, in a window whose queue is never full."""

    name: str
    count: int
    """In the window."""
    per_step: float
    median_us: float
    waits_for_kernels: bool
    """Whether each seems to wait until its kernel is done: it takes as long, and hardly anything is ever queued."""


class ExplainedStep(DeviceStep, frozen=True, kw_only=True):
    """One whose window holds the work of whole steps, so that its idle causes can be scaled to untraced steps.

    Each cause is at most as long as in the trace.
    """

    window: WindowFacts
    analysis: TraceAnalysis
    device: DeviceIdle
    idle_lower_ms: float
    """By the lower bound of the step time and the longest busy time of all windows."""
    traced_ms: Mapping[IdleCause, float]
    """Idle time per traced step by cause."""
    traced_idle_ms: float
    """Idle time per traced step, with what of the steps lies before or after all work of the device."""
    data_ms: float
    """Idle time while the host waits for a batch: of the untraced wait the part that is idle in traced ones."""
    outside_model_ms: float
    """Untraced time of the host in phases that are not the model's."""
    scale: float
    """Untraced over traced idle time that is not spent on data, 0 to 1."""
    waits: Mapping[WaitCause, HostWaits] | Unmeasured = NOT_COMPUTED
    """The host's waits for the device, by who makes it wait."""
    copies: DeviceCopies | Unmeasured = NOT_COMPUTED
    """Between host and device."""

    def waits_of(self, cause: WaitCause) -> HostWaits:
        """The host's waits of one cause; raises MissingSignal if they are not known."""
        none = HostWaits(period_ms=self.period_ms, waits=(), lower_ms=0.0, blocked_ms=0.0)
        return measured(self.waits).get(cause, none)

    def estimate_ms(self, traced_ms: float) -> float:
        """What is left, in an untraced step, of an idle time per traced step that is not spent on data."""
        return traced_ms * self.scale

    def cause_ms(self, *causes: IdleCause) -> float:
        """Idle time of some causes in an untraced step; ``data`` is in :attr:`data_ms`."""
        return self.estimate_ms(sum(self.traced_ms.get(cause, 0.0) for cause in causes))

    def lower_ms(self, idle_ms: float) -> float:
        """The lower bound of a part of the idle time."""
        return idle_ms * self.idle_lower_ms / self.idle_ms if self.idle_ms > 0 else 0.0

    @property
    def place_of_gaps(self) -> str:
        """The line before whose launches the longest gaps are, else the phase; empty if neither is known."""
        time_us: dict[str, float] = {}
        for gap in self.device.longest:
            place = gap.line.frame if gap.line is not None else gap.phase
            if place is not None:
                time_us[place] = time_us.get(place, 0.0) + gap.causes_us.get("launch", 0.0)
        best = max(time_us, key=lambda place: time_us[place], default="")
        return best if time_us.get(best) else ""

    @property
    def late_launch_ms(self) -> float:
        """Idle time for lack of launches, as far as the host's time outside of the model leaves room for it."""
        return min(self.cause_ms(*_LATE_LAUNCH), max(0.0, self.idle_ms - self.outside_model_ms))

    @property
    def late_launch_lower_ms(self) -> float:
        """What is certain of it: what is left if all other reasons take as long as in the trace.

        These are every other cause, what follows a wait for the device, and the host's time outside of the model.
        Tracing makes launches slower, so that the trace itself shows too much of them.
        """
        counted_ms = sum(self.traced_ms.get(cause, 0.0) for cause in _LATE_LAUNCH)
        certain_ms = max(0.0, min(counted_ms, self.idle_lower_ms - (self.traced_idle_ms - counted_ms)))
        points = self.analysis.sync_points
        after_waits_ms = 0.0 if points is None else points.idle_after_us / 1e3 / self.steps
        after_waits_ms = max(0.0, after_waits_ms - self.traced_ms.get("host_sync", 0.0))
        certain_ms = min(certain_ms - after_waits_ms, self.idle_lower_ms - self.outside_model_ms)
        return max(0.0, min(self.late_launch_ms, certain_ms))

    @property
    def kernels_per_step(self) -> float:
        """0: the window has none."""
        return (self.window.kernels or 0) / self.steps

    @property
    def us_per_kernel(self) -> float:
        """Time from one kernel to the next, if they were spread over the step."""
        return self.period_ms * 1e3 / self.kernels_per_step

    @property
    def mean_kernel_us(self) -> float:
        """Of the window; 0 where it holds none."""
        facts = self.analysis.kernels
        return facts.total_us / self.window.kernels if facts is not None and self.window.kernels else 0.0

    @property
    def python_ratio(self) -> float:
        """Share of the time for which the device waits for launches in which the host is in no operator and no call."""
        host = self.device.host
        host_us = host.calls_us + (host.operators_us or 0.0) + host.elsewhere_us
        return host.elsewhere_us / host_us if host_us > 0 and host.operators_us is not None else 0.0

    def device_ms_in(self, phase: Phase) -> float | Unmeasured:
        """Work of the device per traced step that the host launched in a phase."""
        attribution = self.analysis.attribution
        if attribution is None:
            return Unmeasured(why="the trace window does not show what launched its kernels")
        return sum(one.device_us for one in attribution.phases if one.phase == phase) / 1e3 / self.steps

    @property
    def launch_calls(self) -> LaunchCalls | Unmeasured | None:
        """None: the window has none, or they may wait for room in a full queue."""
        tables, attribution, streams = self.analysis.api_tables, self.analysis.attribution, self.analysis.streams
        if tables is None or attribution is None:
            return Unmeasured(why="the launch calls of the trace window could not be analysed")
        launches = [row for row in tables.cuda_api_sum if "LaunchKernel" in row.name]
        call = max(launches, key=lambda row: row.count, default=None)
        if call is None or attribution.full_queue_us > 0:
            return None
        longest = max((device.queue.max for device in streams.devices), default=0) if streams is not None else 0
        return LaunchCalls(
            name=call.name,
            count=call.count,
            per_step=call.count / self.steps,
            median_us=call.median_us,
            waits_for_kernels=0 < longest <= 2 and call.average_us >= self.mean_kernel_us,
        )

    def long_gaps(self, causes: Collection[IdleCause], least_ms: float) -> list[GapPlace]:
        """The longest gaps by the place on the host that held it.

        Args:
            causes: Of the gaps, and of the time in them that counts.
            least_ms: Length that a gap must be above.

        Returns:
            Most time first; empty if the trace lists no such gap.
        """
        by_place: dict[tuple[str, str], list[IdleGap]] = {}
        for gap in self.device.longest:
            if gap.cause in causes and gap.duration_us > least_ms * 1e3:
                by_place.setdefault((_place(gap), gap.phase or ""), []).append(gap)
        found = [
            GapPlace(
                place=place,
                phase=phase,
                gaps=len(gaps),
                steps=len({gap.step for gap in gaps}),
                traced_ms=sum(gap.causes_us.get(cause, 0.0) for gap in gaps for cause in causes) / 1e3 / self.steps,
                longest_ms=max(gap.duration_us for gap in gaps) / 1e3,
                allocates=all(gap.cause == "allocator" for gap in gaps),
            )
            for (place, phase), gaps in by_place.items()
        ]
        return sorted(found, key=lambda one: -one.traced_ms)


def _place(gap: IdleGap) -> str:
    if gap.line is not None:
        return gap.line.frame
    return (gap.host or gap.phase or "the host").removeprefix("[pl][profile]")
