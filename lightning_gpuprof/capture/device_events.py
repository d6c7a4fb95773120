"""Timed events of the trainer's device through torch, for :mod:`~lightning_gpuprof.capture.device_spans`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

TIMED_DEVICES = ("cuda", "xpu")
"""Device types whose events answer without waiting. Not ``mps``: its ``elapsed_time`` synchronises (torch 2.13); not
``cpu``: an event can be made there, but not recorded. What nobody has looked at stays off."""


class TorchEvents:
    """Events of one device; :func:`backend_for` makes it.

    Args:
        device: Where events are recorded: on its current stream.
        is_capturing: Whether that stream is being captured into a graph.
    """

    def __init__(self, device: torch.device, is_capturing: Callable[[], bool]) -> None:
        self._device = device
        self.is_capturing = is_capturing

    def new_event(self) -> torch.Event:
        """An event with timing; the driver's part of it is made when it is recorded for the first time."""
        return torch.Event(self._device, enable_timing=True)

    def record(self, event: torch.Event) -> None:
        """On the current stream of the current device.

        Raises:
            RuntimeError: The device failed, or the event was recorded on another one before.
        """
        event.record()

    def is_done(self, event: torch.Event) -> bool:
        """Whether the device has passed the event. True for one that was never recorded."""
        return event.query()

    def elapsed_ns(self, first: torch.Event, second: torch.Event) -> int:
        """Time between two events in ns; the driver resolves about half a microsecond.

        Args:
            first: The earlier event.
            second: The later event.

        Raises:
            RuntimeError: One of them is not done.
        """
        return round(first.elapsed_time(second) * 1e6)


def _never() -> bool:
    return False


def backend_for(device: torch.device) -> TorchEvents | None:
    """Events of the trainer's device, or None where there are none that can be read without waiting.

    Never initialises a device: one that is not in use yet has no events.

    Args:
        device: The trainer's root device.
    """
    if device.type not in TIMED_DEVICES or not hasattr(torch, "Event"):
        return None
    module: Any = getattr(torch, device.type, None)
    if module is None or not module.is_initialized():
        return None
    return TorchEvents(device, getattr(module, "is_current_stream_capturing", _never))
