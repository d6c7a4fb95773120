"""Matrix products of a window that tensor cores could do, or do slowly."""

from typing import Literal

import msgspec

from lightning_gpuprof.model.measured_time import Measured
from lightning_gpuprof.model.trace.roofline import RooflineRow

ProductKind = Literal["all", "matrix products", "convolutions"]
"""Matrix products include those of attention."""


class OffTensorCores(msgspec.Struct, frozen=True, kw_only=True):
    """Time of fp32 products on CUDA cores, per step."""

    time: Measured
    saved: Measured
    """``ms`` with the full ratio of the peaks, ``lower_ms`` with the part of it that is surely reached."""
    peak_ratio: float
    """Peak of the tensor cores over that of the CUDA cores."""
    faster_dtype: str | None
    """None: the device is in no table of peaks."""
    names: tuple[str, ...]
    """The longest kernels, short."""


class MisalignedProduct(msgspec.Struct, frozen=True, kw_only=True):
    """A product with a size that is no multiple of what tensor cores load at once."""

    row: RooflineRow
    size: int
    multiple: int
    """Of elements, that its type needs."""
    peer_ratio: float | None
    """Share of the roofline that products of similar work reach whose sizes fit; None: there are none."""

    @property
    def reached_ratio(self) -> float:
        """Share of the roofline that it reaches."""
        return self.row.ceiling_ratio or 0.0

    @property
    def saved_us(self) -> float:
        """At the peers' share of the roofline; 0 if it is as good."""
        return self.row.device_us * max(0.0, 1.0 - self.reached_ratio / self.peer_ratio) if self.peer_ratio else 0.0
