"""A trace's totals inside the steps, or the window, for comparison with another trace."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import numpy as np

from lightning_gpuprof.model.phases import PHASES, Phase
from lightning_gpuprof.model.trace.differences import DeviceTimes, Unit
from lightning_gpuprof.trace.analyses.joins.device_parts import device_parts
from lightning_gpuprof.trace.analyses.joins.main_thread_phases import main_thread_phases, phase_coverage
from lightning_gpuprof.trace.analyses.joins.operator_calls import operator_calls
from lightning_gpuprof.trace.analyses.kernels.kernel_traits import kernel_traits
from lightning_gpuprof.trace.intervals import NOWHERE, Coverage
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import Int64, Mask, Spans, extent_ns, summed


class Total(msgspec.Struct, kw_only=True):
    """A time and how often it was spent."""

    ns: int = 0
    count: int = 0

    def add(self, ns: int, count: int) -> None:
        """Add to both.

        Args:
            ns: Duration.
            count: Calls.
        """
        self.ns += ns
        self.count += count


Totals = Mapping[str, Total]


@dataclass(frozen=True, kw_only=True)
class PerStep:
    """Totals of a trace over its steps, or over its window.

    Args:
        linked: The trace.
        unit: Of what the totals are; ``step`` needs a trace with steps.
    """

    linked: LinkedTrace
    unit: Unit
    inside: Coverage = field(init=False)
    """The steps, or the window: first start to last end of everything."""

    def __post_init__(self) -> None:
        steps, trace = self.linked.steps, self.linked.trace
        if self.unit == "step":
            inside = Coverage(steps.start_ns, steps.end_ns)
        else:
            window = extent_ns((trace.runtime, trace.cpu_op, trace.annotation, self.linked.work))
            inside = NOWHERE if window is None else Coverage(*(np.array([moment]) for moment in window))
        object.__setattr__(self, "inside", inside)

    @property
    def units(self) -> int:
        """How many steps, or 1."""
        return len(self.linked.steps) if self.unit == "step" else 1

    @property
    def lengths_ns(self) -> Int64:
        """Of each step, or of the window."""
        steps = self.linked.steps
        return steps.end_ns - steps.start_ns if self.unit == "step" else self.inside.end_ns - self.inside.start_ns

    @cached_property
    def work(self) -> Mask:
        """Which device work counts: what was launched inside.

        Work whose launch is not known counts where there are no launches at all, by its own start; otherwise it was
        launched before the steps.
        """
        if self.unit == "window":
            return np.ones(len(self.linked.work), np.bool_)
        counts = self.inside.contains(self.linked.launch_start_ns)
        return counts & self.linked.launched if len(self.linked.trace.runtime) else counts

    @cached_property
    def kernels(self) -> dict[str, Total]:
        """Durations of kernels, copies and memsets by name."""
        return self._by_name(self.linked.work, self.linked.work.duration_ns, self.work)

    def kernel_classes(self) -> dict[str, Total]:
        """Durations of kernels by class; copies and memsets are of the class ``copy``."""
        linked, counts, totals = self.linked, self.work, dict[str, Total]()
        traits, kernels = kernel_traits(linked), len(linked.trace.kernel)
        duration_ns = np.where(counts, linked.work.duration_ns, 0)
        of_group = traits.groups.sums(duration_ns[:kernels])
        often = traits.groups.sums(counts[:kernels].astype(np.int64))
        for trait, ns, count in zip(traits.of_group, of_group.tolist(), often.tolist(), strict=True):
            if count:
                totals.setdefault(trait.kernel_class, Total()).add(ns, count)
        if copies := int(counts[kernels:].sum()):
            totals.setdefault("copy", Total()).add(int(duration_ns[kernels:].sum()), copies)
        return totals

    def operators(self) -> tuple[dict[str, Total], dict[str, Total]]:
        """Host time without inner operators, and device time that they launched themselves, by operator."""
        ops, calls = self.linked.trace.cpu_op, operator_calls(self.linked)
        begun = calls.is_operator & self.inside.contains(ops.start_ns)
        device_ns = calls.device_self_ns
        return self._by_name(ops, calls.host_self_ns, begun), self._by_name(ops, device_ns, begun)

    def phases(self) -> dict[str, Total]:
        """Host time by phase, with ``none`` for the rest; they sum to the length of what is inside."""
        if not len(self.inside.start_ns):
            return {}
        first, last = self.inside.window_ns
        ranges = self.linked.phases.ranges
        begun = (ranges.start_ns >= first) & (ranges.start_ns < last)
        counts = np.bincount(self.linked.phases.phase[begun], minlength=len(PHASES)).tolist()
        totals: dict[str, Total] = {}
        if self.unit == "step":  # as the table of steps has them
            of_steps = main_thread_phases(self.linked, self.linked.steps)
            spent_ns: dict[Phase, int] = {phase: int(ns.sum()) for phase, ns in of_steps.items()}
        else:
            covered = phase_coverage(self.linked)
            spent_ns = {phase: coverage.common_ns(self.inside) for phase, coverage in covered.items()}
        for phase, ns in spent_ns.items():
            totals[phase] = Total(ns=ns, count=counts[PHASES.index(phase)])
        totals["none"] = Total(ns=self.inside.total_ns - sum(total.ns for total in totals.values()), count=0)
        return totals

    def devices(self) -> dict[str, DeviceTimes]:
        """Each device inside."""
        found = {}
        for device, parts in device_parts(self.linked).items():
            covers = parts.busy, parts.computation, parts.communication, parts.exposed_communication
            busy_ns, computation_ns, communication_ns, exposed_ns = (one.common_ns(self.inside) for one in covers)
            found[self.linked.trace.devices[device]] = DeviceTimes(
                busy_us=busy_ns / 1000 / self.units,
                idle_us=(self.inside.total_ns - busy_ns) / 1000 / self.units,
                computation_us=computation_ns / 1000 / self.units,
                communication_us=communication_ns / 1000 / self.units,
                exposed_us=exposed_ns / 1000 / self.units,
            )
        return found

    def _by_name(self, spans: Spans, values_ns: Int64, counts: Mask) -> dict[str, Total]:
        names = self.linked.trace.names
        totals = summed(spans.name[counts], values_ns[counts], len(names))
        often = np.bincount(spans.name[counts], minlength=len(names))
        return {names[row]: Total(ns=int(totals[row]), count=int(often[row])) for row in np.flatnonzero(often).tolist()}
