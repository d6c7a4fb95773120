"""The most that a device can do: dense peak rates and memory bandwidth from data sheets, and rates measured on it."""

from collections.abc import Mapping

import msgspec

from lightning_gpuprof.model.device_peaks import peaks_of
from lightning_gpuprof.model.trace.roofline import MeasuredCeilings
from lightning_gpuprof.trace.reader import Trace


class Ceilings(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one device can do; a multiply-add counts 2."""

    device: str | None
    peak_source: str | None = None
    peak_flops_per_s: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Dense, of the data sheet, per type of operands; empty if the device is in no table."""
    peak_bytes_per_s: float | None = None
    measured_flops_per_s: Mapping[str, float] = msgspec.field(default_factory=dict)
    measured_bytes_per_s: float | None = None

    def flops_per_s(self, dtype: str | None) -> float | None:
        """What operators are compared with: what was measured, else the data sheet. None: neither is known."""
        return self.measured_flops_per_s.get(dtype or "") or self.peak_flops_per_s.get(dtype or "")

    @property
    def bytes_per_s(self) -> float | None:
        """The same of the memory. None: neither is known."""
        return self.measured_bytes_per_s or self.peak_bytes_per_s

    def possible_flops_per_s(self, dtype: str | None) -> float | None:
        """The larger of both: what is faster cannot be; a measurement may miss the fastest kernel.

        None: neither is known.
        """
        rates = (self.measured_flops_per_s.get(dtype or ""), self.peak_flops_per_s.get(dtype or ""))
        return max(filter(None, rates), default=None)

    @property
    def possible_bytes_per_s(self) -> float | None:
        """The same of the memory. None: neither is known."""
        return max(filter(None, (self.measured_bytes_per_s, self.peak_bytes_per_s)), default=None)


def ceilings_of(trace: Trace, device: int | None, measured: MeasuredCeilings | None) -> Ceilings:
    """The ceilings of a device.

    Args:
        trace: The trace.
        device: Index into :attr:`Trace.devices`; None if there is no device.
        measured: On a device of the same kind; None if nobody did.

    Returns:
        FLOP/s by type, and bytes/s; empty and None where the device is in no table, or was not measured.
    """
    name = None if device is None else trace.product_of(device)
    peaks = peaks_of(name) if name else None
    return Ceilings(
        device=name,
        peak_source=peaks.source if peaks else None,
        peak_flops_per_s={str(dtype): rate for dtype, rate in peaks.flops_per_s.items()} if peaks else {},
        peak_bytes_per_s=peaks.bytes_per_s if peaks else None,
        measured_flops_per_s={} if measured is None else measured.flops_per_s,
        measured_bytes_per_s=None if measured is None else measured.bytes_per_s,
    )
