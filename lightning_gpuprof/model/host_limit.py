"""How much of a step time of the host can hold up: all of it on a CPU, on a device what that idles."""

from collections.abc import Mapping

import msgspec

from lightning_gpuprof.model.missing import NOT_COMPUTED, Unmeasured
from lightning_gpuprof.model.phases import Phase


class HostLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the step that time of the host can hold up at most: the rest is hidden behind a device's work."""

    ratio: float | Unmeasured = NOT_COMPUTED
    """Anywhere in the step."""
    by_phase: Mapping[Phase, float] = msgspec.field(default_factory=dict)
    """While the host is in a phase; where windows show the idle time of the whole step only, that. Empty: no window
    shows the device."""
    stalls_ratio: float = 1.0
    """For certain, of what stops the host now and then, so that 0 is no proof of the opposite: on a device what it
    idles by the trace windows, which hardly hold such a stop, or by NVML, whichever shows more."""
