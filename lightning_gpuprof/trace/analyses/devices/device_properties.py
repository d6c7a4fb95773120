"""What ``deviceProperties`` says of a device in a trace."""

from __future__ import annotations

from collections.abc import Mapping

from lightning_gpuprof.trace.reader import Trace


def properties_of(trace: Trace, device: int) -> Mapping[str, object] | None:
    """What the trace says of a device.

    A device without an entry of its own (a trace may number devices otherwise than its properties) has those of the
    others if all of them are alike.

    Args:
        trace: The trace.
        device: Index into :attr:`Trace.devices`.

    Returns:
        None if the trace does not say.
    """
    known = trace.about.device_properties
    for properties in known:
        if device < len(trace.devices) and str(properties.get("id")) == trace.devices[device]:
            return properties
    alike = [{key: value for key, value in one.items() if key != "id"} for one in known]
    return known[0] if known and all(one == alike[0] for one in alike) else None


def device_name(properties: Mapping[str, object] | None) -> str | None:
    """The name of the product, None if it is not known."""
    name = None if properties is None else properties.get("name")
    return name if isinstance(name, str) and name else None
