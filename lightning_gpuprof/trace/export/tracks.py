"""What an annotated trace shows on top of what was recorded: rows of named stretches of time, and counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.trace.tables import Int64, Rows

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Label:
    """What a stretch of time is called, and what a click on it tells."""

    name: str
    notes: Mapping[str, str]
    """Shown beneath the name; may be empty."""


@dataclass(frozen=True, kw_only=True)
class SliceTrack:
    """A row of disjoint stretches of time; all columns are equally long."""

    name: str
    start_ns: Int64
    end_ns: Int64
    label: Rows
    """Index into :attr:`labels`."""
    labels: tuple[Label, ...]


@dataclass(frozen=True, kw_only=True)
class CounterTrack:
    """A value over time: it holds from its moment to the next one."""

    name: str
    """What is counted: ``GPU 0 power``."""
    unit: str
    """Shown behind the name: ``W``."""
    time_ns: Int64
    """On the trace's clock: Unix time less :attr:`Trace.base_time_ns`."""
    value: Float64
    """What is not finite is left out: nothing was measured there."""
