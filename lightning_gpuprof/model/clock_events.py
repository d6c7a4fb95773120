"""Names for the bits of NVML's mask of what holds a GPU's clocks down."""

from collections.abc import Mapping

MASK = "clocks_event_reasons_mask"
"""Name of the value in a sample: the mask as the driver gave it."""

REASONS: Mapping[str, int] = {
    "gpu_idle": 0x1,
    "app_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display_clock": 0x100,
    "board_limit": 0x200,
    "reliability": 0x400,
}
"""Bits of nvml.h (``nvmlClocksEventReason…``) by our names; bits that are not here are left out."""

TERMS: Mapping[str, str] = {
    "gpu_idle": "nothing runs, so the clocks go down: no limit",
    "app_clocks": "application clocks set by somebody (nvidia-smi -ac)",
    "sw_power_cap": "the board draws as much power as its limit allows",
    "hw_slowdown": "the hardware at least halves the clocks: heat, power brake or a failing supply",
    "sync_boost": "all GPUs of a sync boost group run as slowly as the slowest",
    "sw_thermal": "the driver lowers the clocks because GPU or memory is too hot",
    "hw_thermal": "the hardware at least halves the clocks because it is too hot",
    "hw_power_brake": "the power supply asks for less (external power brake)",
    "display_clock": "the clocks that a display needs",
    "board_limit": "the board's own voltage or current limit",
    "reliability": "the voltage at which the chip is reliable",
}
"""One sentence per reason, as reports explain it."""

WORDS: Mapping[str, str] = {
    "gpu_idle": "idle",
    "app_clocks": "application clocks",
    "sw_power_cap": "power cap",
    "hw_slowdown": "hardware slowdown",
    "sync_boost": "sync boost",
    "sw_thermal": "too hot (driver)",
    "hw_thermal": "too hot (hardware)",
    "hw_power_brake": "power brake",
    "display_clock": "display clock",
    "board_limit": "board limit",
    "reliability": "voltage limit",
}
"""What people call them."""

NO_LIMIT = frozenset({"gpu_idle", "display_clock"})
"""Reasons that say nothing about a limit of this run."""


def reasons_of(mask: float) -> tuple[str, ...]:
    """The reasons in a mask, in the order of :data:`REASONS`; empty if the clocks are as high as they go."""
    return tuple(name for name, bit in REASONS.items() if int(mask) & bit)


def ratio_name(reason: str) -> str:
    """The name that a reason has as a value: ``throttle_sw_power_cap_ratio``."""
    return f"throttle_{reason}_ratio"


def split(values: Mapping[str, float | None]) -> dict[str, float | None]:
    """A sample's values with the mask replaced by one value per reason, 0 or 1, so that means are shares."""
    found = {name: value for name, value in values.items() if name != MASK}
    mask = values.get(MASK)
    if mask is not None:
        found |= {ratio_name(name): float(bool(int(mask) & bit)) for name, bit in REASONS.items()}
    return found
