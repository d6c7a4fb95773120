"""Communication of the steps of several ranks, as their trace windows show it."""

from collections.abc import Collection

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

_ITEM_BYTES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8}

_LONGEST_LATENCY_US = 100.0
"""What a collective needs beside its bytes. Heuristic: NCCL starts in 10 to 50 µs."""


class SmallCollectives(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of one kind that move few bytes, in each step of a window."""

    per_step: float
    exposed_ms: float
    """That no computation covers."""
    transfer_ms: float
    """Of that, what is transfer at most."""

    def part(self, count: float) -> float:
        """The share of them that so many are, at most 1."""
        return min(1.0, count / max(self.per_step, 1.0))


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

    @property
    def all_reduced_items(self) -> float:
        """Elements that all-reduces of a known type sum up in a step."""
        return sum(
            self.per_step(one) * (one.message_bytes or 0) / _ITEM_BYTES[one.dtype]
            for one in self.communication.sizes
            if one.kind == "all_reduce" and one.dtype in _ITEM_BYTES
        )

    def small(self, kind: str, most_bytes: float) -> SmallCollectives:
        """Those of one kind that move few bytes.

        Args:
            kind: As of :class:`CollectiveTimes`.
            most_bytes: Of one rank.

        Returns:
            Without those of unknown size.
        """
        found = [
            one
            for one in self.communication.sizes
            if one.kind == kind and one.message_bytes is not None and one.message_bytes / _parts(one) <= most_bytes
        ]
        return SmallCollectives(
            per_step=sum(map(self.per_step, found)),
            exposed_ms=sum(one.exposed_us for one in found) / 1e3 / self.steps,
            transfer_ms=sum(map(self.transfer_us, found)) / 1e3 / self.steps,
        )

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
    def certain_ms(self) -> float:
        """The least of :attr:`exposed`, of which only the transfer counts."""
        return self.exposed.lower_ms * self.largest.transfer_ratio

    def of_layers(self, kinds: Collection[str], layers: int, most_bytes: float) -> tuple[Measured, Measured]:
        """Exposed time per step of small collectives, of each kind as many as there are layers.

        Args:
            kinds: As of :class:`CollectiveTimes`.
            layers: Each has one collective of each kind.
            most_bytes: Of one rank.

        Returns:
            All of it, and what of it is transfer at most.
        """
        by_window = [[window.small(kind, most_bytes) for kind in kinds] for window in self.windows]
        return (
            Measured.over([sum(one.part(layers) * one.exposed_ms for one in small) for small in by_window]),
            Measured.over([sum(one.part(layers) * one.transfer_ms for one in small) for small in by_window]),
        )

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


def _parts(one: CollectiveTimes) -> int:
    """Of its message, those that come from one rank each."""
    return max(1, one.group_size or 1) if one.kind == "all_gather" else 1
