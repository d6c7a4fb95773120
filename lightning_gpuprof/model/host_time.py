"""What the time of the host costs a step: the limit that a device sets, waiting for a CPU, Python, the update."""

import math
from collections.abc import Mapping

import msgspec

from lightning_gpuprof.model.cost import Cost
from lightning_gpuprof.model.missing import NOT_COMPUTED, Unmeasured
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.share import Measured, Share


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
    by_quota: bool = False
    """That ran out so often that it is why the main thread waits."""
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
    phase: Phase = "forward"
    """The longer of the two."""
    place: str = ""
    """Where the main thread was most often seen in it; empty if it was not looked at."""
    calls: float | None = None
    """Of operators per traced step; None: no window shows them."""

    @property
    def python_ratio(self) -> float:
        """Share of :attr:`own_ms` that is certainly not torch's."""
        return self.lower_ms / self.own_ms if self.own_ms > 0 else 0.0

    @property
    def per_call_us(self) -> float:
        """Python for each operator, in microseconds; without a window there are hardly any where Python is seen."""
        return 1e3 * self.lower_ms / self.calls if self.calls else math.inf


class BesideModel(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the run, or a phase of the step, in which the host is at something else than the model."""

    name: str
    """Of the part or phase."""
    phase: Phase | None
    """None: it is a part."""
    ratio: float
    """Of the run, or the median of the step."""
    lower_ratio: float
    """Of a phase its lower bound; of a part the same."""


class AlgorithmTrials(msgspec.Struct, frozen=True, kw_only=True):
    """Convolutions for which cuDNN timed its algorithms in the traced steps, and what that took on the host."""

    steps: int
    """That were traced."""
    steps_with_trials: int
    convolutions: int
    time: Measured
    """Per traced step."""
    rest: Measured
    """The same steps without it."""


class MetricCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of metrics of torchmetrics that update twice, for the metric of all batches and for that of this one."""

    names: tuple[str, ...]
    """As in ``named_modules()``, the longest first; empty: none is called in the steps."""
    ratio: float
    """Share of the traced steps, on the host."""


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
