"""Windows of a run of several ranks flow in; what communication costs a step, as transfer and as waiting, flows out."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.device_kernels import Measured, ordinary
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal, NotApplicable
from lightning_gpuprof.model.signals import is_cpu_only, is_distributed, steady_period_ms
from lightning_gpuprof.model.trace.communication import CollectiveTimes, Communication
from lightning_gpuprof.model.window import WindowFacts

MIB = 2**20

_LEAST_ALIKE = 3
"""Collectives of one size from which the fastest stands for the transfer. Heuristic."""

_SLOWEST_BYTES_PER_S = 1e9
"""No network that ranks train over is slower: 10 Gbit Ethernet carries 1.25 GB/s. Heuristic."""

_SLOWEST_IN_NODE_BYTES_PER_S = 4e9
"""Within a node: half of what PCIe 3.0 x8 carries (7.9 GB/s). Heuristic."""

_LONGEST_LATENCY_US = 100.0
"""What a collective needs beside its bytes. Heuristic: NCCL starts in 10 to 50 us."""


@dataclass(frozen=True, kw_only=True)
class CollectiveWindow:
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
        waited least. Sizes that are seen fewer than three times do not tell by that; what takes longer than the slowest
        link would need was waiting in any case. Collectives of unknown size count in full.
        """
        sizes = self.communication.sizes
        exposed_us = sum(one.exposed_us for one in sizes)
        slowest = _SLOWEST_IN_NODE_BYTES_PER_S if self.in_one_node else _SLOWEST_BYTES_PER_S
        transfer_us = sum(one.exposed_us * _most_transfer_ratio(one, slowest) for one in sizes)
        return transfer_us / exposed_us if exposed_us > 0 else 1.0

    def per_step(self, collective: CollectiveTimes) -> float:
        """How often a collective is in a step."""
        return collective.count / self.steps


@dataclass(frozen=True, kw_only=True)
class CollectiveRun:
    """A run of several ranks whose windows hold communication."""

    period_ms: float
    ranks: int
    windows: tuple[CollectiveWindow, ...]

    @property
    def exposed(self) -> Measured:
        """Communication of a step that no computation covers."""
        return Measured.over([window.exposed_ms for window in self.windows])

    @property
    def largest(self) -> CollectiveWindow:
        """The window whose communication is exposed most."""
        return max(self.windows, key=lambda window: window.exposed_ms)


def collective_run(metrics: Metrics, *, with_earlier_work: bool = False) -> CollectiveRun | None:
    """What the windows tell of communication.

    Args:
        metrics: The run.
        with_earlier_work: Where all windows hold much work that was launched before them, take them all the same: it
            is not that of their steps, but the share of the time is that of as much untraced time.

    Returns:
        None if there is only one rank, or the windows of a device hold no communication at all.

    Raises:
        NotApplicable: The ranks are on the CPU.
        MissingSignal: Too few steady steps, or no window with communication analysed.
    """
    period_ms = steady_period_ms(metrics)
    if not is_distributed(metrics):
        return None
    if is_cpu_only(metrics):
        raise NotApplicable("the model runs on the CPU: collectives of gloo are not in device traces")
    told = [facts for facts in metrics.windows if _tells(facts)]
    seen = [facts for facts in told if ordinary(facts)] or (told if with_earlier_work else [])
    if not seen:
        raise MissingSignal("no trace window holds the device work of whole steps")
    windows = tuple(
        CollectiveWindow(
            facts=facts,
            communication=facts.analysis.communication,
            steps=_steps(facts, period_ms),
            in_one_node=metrics.run.get("trainer.num_nodes") == 1,
        )
        for facts in seen
        if facts.analysis is not None
        and facts.analysis.communication is not None
        and any(one.collectives for one in facts.analysis.communication.devices)
    )
    if len(windows) != len(seen):
        return None
    ranks = metrics.run.get("trainer.world_size")
    return CollectiveRun(period_ms=period_ms, ranks=ranks if isinstance(ranks, int) else 2, windows=windows)


def _tells(facts: WindowFacts) -> bool:
    analysis = facts.analysis
    return (
        analysis is not None
        and analysis.communication is not None
        and bool(facts.steps_us)
        and bool(analysis.communication.devices)
        and not facts.is_on_slow_step
    )


def _steps(facts: WindowFacts, period_ms: float) -> float:
    if not facts.holds_earlier_work:
        return len(facts.steps_us)
    return max(device.window_us for device in facts.devices) / 1e3 / period_ms


def _most_transfer_ratio(one: CollectiveTimes, slowest_bytes_per_s: float) -> float:
    if one.message_bytes is None or one.mean_us <= 0:
        return 1.0
    most_us = one.message_bytes / slowest_bytes_per_s * 1e6 + _LONGEST_LATENCY_US
    fastest_us = one.min_us if one.count >= _LEAST_ALIKE else one.mean_us
    return min(1.0, most_us / one.mean_us, fastest_us / one.mean_us)


def sized(one: CollectiveTimes) -> str:
    """A collective with its size: ``all_reduce of 25.0 MiB``; without one only its kind."""
    size = one.message_bytes
    if size is None:
        return one.kind
    unit, words = (MIB, "MiB") if size >= MIB / 10 else (1024, "KiB") if size >= 1024 else (1, "bytes")
    return f"{one.kind} of {size / unit:.3g} {words}"
