"""The values of a sample from the allocator's nested counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SIZES = (
    ("allocated_bytes", "allocated_bytes", "current"),
    ("allocated_peak_bytes", "allocated_bytes", "peak"),
    ("reserved_bytes", "reserved_bytes", "current"),
    ("reserved_peak_bytes", "reserved_bytes", "peak"),
    ("active_bytes", "active_bytes", "current"),
    ("requested_bytes", "requested_bytes", "current"),
    ("inactive_split_bytes", "inactive_split_bytes", "current"),
    ("segments_count", "segment", "current"),
    ("allocations_count", "allocation", "current"),
    ("allocated_total_bytes", "allocated_bytes", "allocated"),
)
"""Value, counter, which of its four numbers; over pools of all sizes."""

_COUNTS = (
    ("retries_count", "num_alloc_retries"),
    ("ooms_count", "num_ooms"),
    ("device_allocs_count", "num_device_alloc"),
    ("device_frees_count", "num_device_free"),
    ("stream_syncs_count", "num_sync_all_streams"),
)


def sample_values(counters: Mapping[str, Any]) -> dict[str, float | None]:
    """The counters that analyses read, by name; one that this torch does not have is left out."""
    values: dict[str, float | None] = {}
    for name, counter, number in _SIZES:
        found = counters.get(counter, {}).get("all", {}).get(number)
        if isinstance(found, int):
            values[name] = float(found)
    for name, counter in _COUNTS:
        found = counters.get(counter)
        if isinstance(found, int):
            values[name] = float(found)
    return values
