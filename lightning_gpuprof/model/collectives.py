"""Communication of the steps of several ranks, as their trace windows show it."""

import msgspec

from lightning_gpuprof.model.share import Measured
from lightning_gpuprof.model.trace.communication import CollectiveTimes, Communication
from lightning_gpuprof.model.window import WindowFacts

_LEAST_ALIKE = 3
"""Collectives of one size from which the fastest stands for the transfer. Heuristic."""

_SLOWEST_BYTES_PER_S = 1e9
"""No network that ranks train over is slower: 10 Gbit Ethernet carries 1.25 GB/s. Heuristic."""

_SLOWEST_IN_NODE_BYTES_PER_S = 4e9
"""Within a node: half of what PCIe 3.0 x8 carries (7.9 GB/s). Heuristic."""

_LONGEST_LATENCY_US = 100.0
"""What a collective needs beside its bytes. Heuristic: NCCL starts in 10 to 50 µs."""


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
        return sum(map(self.transfer_us, sizes)) / exposed_us if exposed_us > 0 else 1.0

    def transfer_us(self, one: CollectiveTimes) -> float:
        """The part of the exposed time of one size that is transfer at most, in the whole window."""
        slowest = _SLOWEST_IN_NODE_BYTES_PER_S if self.in_one_node else _SLOWEST_BYTES_PER_S
        return one.exposed_us * _most_transfer_ratio(one, slowest)

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
