"""What a device was measured to do at most, as plain data."""

from __future__ import annotations

import msgspec


class MeasuredCeilings(msgspec.Struct, kw_only=True, frozen=True):
    """Rates that large operations reach on a device; the data sheet's are above them."""

    device: str
    """Name of the product."""
    flops_per_s: dict[str, float]
    """Of a product of two square matrices, by type: ``fp32``, ``tf32``, ``bf16``, ``fp16``; a multiply-add is 2."""
    bytes_per_s: float
    """Of a copy on the device: bytes read and bytes written."""
