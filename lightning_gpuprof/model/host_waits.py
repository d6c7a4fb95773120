"""The host's waits for the device, by who makes the host wait."""

from typing import Literal

import msgspec

from lightning_gpuprof.model.trace.sync_points import SyncSite

WaitCause = Literal["progress bar", "gradient scaler", "batch upload", "host tensor", "rank check", "code"]
"""Who makes the host wait: a progress bar that shows a tensor; the scaler of 16-bit gradients; a copy of pageable
memory to the device, outside of or within the model's phases; Lightning's check of all ranks at the begin of a step;
anything else, which is the code of the model or of a callback."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """One place that makes the host wait, in an untraced step."""

    site: SyncSite
    where: str
    """The line of user code, else the hook, else the module, range or phase around it."""
    per_step: float
    """How often."""
    cost_ms: float
    """Idle time of the device that it causes, per step."""


class HostWaits(msgspec.Struct, frozen=True, kw_only=True):
    """All waits of one cause in ordinary steps. Causes do not overlap: each explains idle time of its own."""

    period_ms: float
    waits: tuple[Wait, ...]
    """Costliest first."""
    lower_ms: float
    """Of :attr:`cost_ms`."""
    blocked_ms: float
    """Time per traced step for which the host is blocked: not the cost, because the device is busy then."""

    @property
    def per_step(self) -> float:
        """How often the host waits."""
        return sum(wait.per_step for wait in self.waits)

    @property
    def most_per_step(self) -> float:
        """How often the place is met that is met most often."""
        return max(wait.per_step for wait in self.waits)

    @property
    def cost_ms(self) -> float:
        """Idle time of the device that they cause, per step."""
        return sum(wait.cost_ms for wait in self.waits)

    @property
    def ratio(self) -> float:
        """The cost as a share of the step."""
        return self.cost_ms / self.period_ms

    @property
    def worst(self) -> Wait:
        """The costliest place."""
        return self.waits[0]
